"""Rows on a graphics card: products with their kernel matrix, and scores of new rows."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.cuda.device import Device
from margrave.rows import Matrix, is_csr

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

REAL = {"float32": "float", "float64": "double"}
_DEEP = 8  # features are padded to a multiple, as tiles read them
_AT_ONCE = 1 << 24  # numbers converted at a time
POINTS, TILE_ROWS = 128, {"float32": 128, "float64": 64}  # of a tile
_LAUNCH = 2e10  # kernel values per launch: a tenth of a second or so
_BUSY = 528  # thread blocks that keep a card busy
_FARTHEST, _BOXED = 1e30, 256  # squared distance, and features, of boxes
_WARPS = 8  # of a thread block of a tile
_WORTH, _MANY = 0.7, 1024  # share of values up to which skipping pays, and rows
_SKETCH = 1000  # rows from which a centre is computed
_STAY = 1 / 3  # share of the card's memory up to which rows stay there
_FEW_OUTPUTS = 4  # columns of coefficients that are summed in tiles, with values computed for each


@dataclass(frozen=True)
class Kernel:
    """A kernel as the card needs it: its number (-1 for given values) and its parameters."""

    number: int
    packed: bytes
    far: dict[str, float]  # distance from which on values are negligible, by precision
    negligible: dict[str, float]  # values up to this may be left out of sums, by precision

    @classmethod
    def of(cls, core: _core.Kernel | None, offset: float) -> Kernel:
        """From the compiled kernel, which has the offset; None for given values.

        With an offset no value is negligible.
        """
        far, negligible = dict.fromkeys(REAL, math.inf), dict.fromkeys(REAL, 0.0)
        if core is None:
            return cls(-1, _core.Kernel("linear", offset=offset).packed, far, negligible)
        if offset == 0.0:
            margin = {"float32": 1e-4, "float64": 1e-12}  # the distances of boxes are rounded
            far = {dtype: (1.0 + margin[dtype]) * core.far(dtype == "float32") for dtype in REAL}
            negligible = {dtype: core.negligible(dtype == "float32") for dtype in REAL}
        return cls(list(_core.KERNELS).index(core.name), core.packed, far, negligible)


@dataclass(frozen=True)
class DeviceRows:
    """Rows on the card, padded, around a centre, and their squared lengths."""

    entries: Any
    sizes: Any
    centre: Floats
    shares: dict[str, float] = field(default_factory=dict)  # of values that were not skipped

    @property
    def width(self) -> int:
        """Numbers from one row to the next."""
        return int(self.entries.shape[1])


def padded(features: int) -> int:
    """Numbers from one row to the next."""
    return -(-max(1, features) // _DEEP) * _DEEP


def stays(device: Device, n: int, width: int, dtype: str) -> bool:
    """Whether so many rows of this precision stay on the card, or are copied when needed."""
    return n * width * np.dtype(dtype).itemsize <= _STAY * device.limit


def upload(device: Device, X: Matrix, dtype: str, centre: Floats, is_given: bool) -> DeviceRows:
    """Copy rows to the card in some precision, dense, less the centre."""
    cupy = device.cupy
    n, d = X.shape
    width = d if is_given else padded(d)
    entries = cupy.zeros((n, width), dtype=dtype)
    sizes = cupy.zeros(n, dtype=dtype)
    middle = cupy.asarray(centre) if len(centre) else None
    step = max(1, _AT_ONCE // max(1, d))
    for first in range(0, n, step):
        some = X[first : first + step]
        part = cupy.asarray(some.toarray() if is_csr(some) else np.ascontiguousarray(some))
        if middle is not None:
            part = part - middle  # in double precision
        own = entries[first : first + step]
        own[:, :d] = part
        if not is_given:
            exact = own.astype(cupy.float64)
            sizes[first : first + step] = (exact * exact).sum(axis=1)
    return DeviceRows(entries, sizes, centre)


def sums_of(
    device: Device,
    kernel: Kernel,
    dtype: str,
    points: DeviceRows,
    which: Rows | None,
    rows: DeviceRows,
    chosen: Rows | None,
    coef: Floats,
    time_left: float,
    same: bool,
) -> tuple[Floats, int] | None:
    """Sums over some rows of coefficients times kernel values with some points.

    One column per column of coef, and how many values were computed; None if the time is over.
    `same` points and rows have a distance of exactly zero.
    """
    cupy, deadline = device.cupy, time.monotonic() + time_left
    n = points.entries.shape[0] if which is None else len(which)
    m, outputs = coef.shape
    found = np.zeros((n, outputs))
    computed = 0
    if n == 0 or m == 0:
        return found, computed
    many = outputs > _FEW_OUTPUTS
    weights = cupy.asarray(coef, dtype=dtype)
    chosen_there = None if chosen is None else cupy.asarray(chosen, dtype=cupy.int32)
    which_there = None if which is None else cupy.asarray(which, dtype=cupy.int32)
    step = max(POINTS, int(_LAUNCH / m) // POINTS * POINTS)
    if many:  # tiles of values are kept: in an eighth of the memory
        step = min(step, max(1, device.limit // (8 * np.dtype(dtype).itemsize * m)))
    for first in range(0, n, step):
        if time.monotonic() > deadline:
            return None
        last = min(n, first + step)
        tile = Tiles(device, kernel, dtype, points, which_there, rows, chosen_there, same)
        if many:
            values = tile.values(first, last, m)
            found[first:last] = cupy.asnumpy(values @ weights)
            computed += values.size
        else:
            for column in range(0, outputs, 2):
                sums = tile.sums(first, last, m, weights[:, column : column + 2])
                found[first:last, column : column + 2] = cupy.asnumpy(sums)
            computed += tile.computed[0]
    return found, computed


def tiles_function(device: Device, kernel: Kernel, dtype: str, name: str) -> Any:
    """A function of the program for tiles of a kernel."""
    return device.function("tiles", name, KERNEL=kernel.number, REAL=REAL[dtype])


def boxes_around(
    device: Device, kernel: Kernel, dtype: str, rows: DeviceRows, chosen: Any, count: int
) -> Any:
    """Boxes around tiles of some rows, so that tiles of distant points are skipped.

    None where they skip little, as the first large sum over these rows has shown; `chosen` are the
    numbers of the rows.
    """
    cupy = device.cupy
    share = rows.shares.get(dtype, 0.0)
    is_local = kernel.far[dtype] < _FARTHEST and rows.width <= _BOXED
    if not is_local or share > _WORTH or count < _MANY:
        return None
    tiles = -(-count // TILE_ROWS[dtype])
    boxes = cupy.zeros(
        (tiles + _WARPS, 2, rows.width), dtype=dtype
    )  # warps look at as many at once
    tiles_function(device, kernel, dtype, "surround_rows")(
        (tiles,),
        (64,),
        (
            *(np.int32(rows.width), rows.entries, rows.sizes, _pointer(chosen)),
            *(np.int32(count), boxes),
        ),
    )
    return boxes


@dataclass(frozen=True)
class Tiles:
    """Kernel values of points with rows, of one problem."""

    device: Device
    kernel: Kernel
    dtype: str
    points: DeviceRows
    which: Any
    rows: DeviceRows
    chosen: Any
    same: bool
    computed: list[int] = field(default_factory=lambda: [0])  # values

    def _arguments(self, first: int, last: int, count: int) -> tuple[Any, ...]:
        cupy = self.device.cupy
        ranges = cupy.asarray([first, last - first, 0, count], dtype=cupy.int32)
        return (
            self.device.struct(self.kernel.packed),
            np.int32(self.rows.width),
            *(self.points.entries, self.points.sizes, _pointer(self.which)),
            *(ranges[0:1], ranges[1:2]),
            *(self.rows.entries, self.rows.sizes, _pointer(self.chosen)),
            *(ranges[2:3], ranges[3:4]),
            np.int32(self.same),
        )

    def _function(self, name: str) -> Any:
        return tiles_function(self.device, self.kernel, self.dtype, name)

    def sums(self, first: int, last: int, count: int, coef: Any) -> Any:
        """Sums over all rows of one or two columns of coefficients times values, for some points.

        The values of points `first` to `last` are computed once for both columns.
        """
        cupy = self.device.cupy
        columns = coef.shape[1]
        tiles = -(-(last - first) // POINTS)
        shares = shares_of(tiles, count, self.dtype)
        out = cupy.empty((shares, columns, last), dtype=cupy.float64)
        boxes = boxes_around(self.device, self.kernel, self.dtype, self.rows, self.chosen, count)
        counter = cupy.zeros(1, dtype=cupy.uint64)
        self._function("sum" if columns == 1 else "sum_two")(
            (tiles, shares, 1),
            (256,),
            (
                *self._arguments(first, last, count),
                *(cupy.ascontiguousarray(coef.T), np.int64(count), out, np.int64(last)),
                *(_pointer(boxes), np.float64(self.kernel.far[self.dtype]), counter, np.int32(0)),
            ),
        )
        computed = int(counter[0].item())
        self.computed[0] += computed
        if boxes is not None:
            self.rows.shares.setdefault(self.dtype, computed / max(1, (last - first) * count))
        return out[:, :, first:].sum(axis=0).T

    def values(self, first: int, last: int, count: int) -> Any:
        """The values themselves."""
        cupy = self.device.cupy
        out = cupy.empty((last - first, count), dtype=self.dtype)
        grid = (-(-(last - first) // POINTS), -(-count // TILE_ROWS[self.dtype]), 1)
        self._function("store")(
            grid, (256,), (*self._arguments(first, last, count), out, np.int64(0), np.int32(count))
        )
        return out


def shares_of(tiles: int, rows: int, dtype: str) -> int:
    """Thread blocks that share the rows of a tile of points, so that the card is busy."""
    return max(1, min(16, _BUSY // max(1, tiles), -(-rows // TILE_ROWS[dtype])))


def _pointer(array: Any) -> Any:
    return np.uint64(0) if array is None else array


def scores_of(
    device: Device,
    kernel: _core.Kernel,
    X: Matrix,
    points: Matrix,
    coef: Floats,
    precision: str,
    seconds: float,
) -> tuple[Floats, int] | None:
    """Sums over points of coefficients times kernel values with new rows, on a card.

    Also how many values were computed; None if the time is over.
    """
    there_kernel = Kernel.of(kernel, 0.0)
    centre = np.empty(0)
    if kernel.shift_invariant and not is_csr(X) and not is_csr(points):
        some = points[:: points.shape[0] // _SKETCH + 1]
        centre = np.asarray(some).mean(axis=0, dtype=np.float64)
    bytes_per_row = 4 * padded(X.shape[1]) * np.dtype(precision).itemsize
    step = max(POINTS, device.limit // 4 // bytes_per_row)
    deadline = time.monotonic() + seconds
    found, computed = np.empty((X.shape[0], coef.shape[1])), 0
    with device.at_work():
        there = upload(device, points, precision, centre, False)
        for first in range(0, X.shape[0], step):  # what does not fit is streamed
            rows = upload(device, X[first : first + step], precision, centre, False)
            sums = sums_of(
                *(device, there_kernel, precision, rows, None, there, None, coef),
                *(deadline - time.monotonic(), False),
            )
            if sums is None:
                return None
            found[first : first + step] = sums[0]
            computed += sums[1]
    return found, computed
