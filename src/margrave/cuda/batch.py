"""Many problems side by side on a card, a working set each: one round of all of them.

    1. measure every row's KKT violation, and each problem's gap        (chunks of rows)
    2. replace the older half of each working set                      (a thread block per problem)
    3. compute the kernel blocks                                       (tiles)
    4. solve on each working set                                       (a thread block per problem)
    5. add what the changed variables contribute to the scores         (tiles)

The rounds of ``cpp/working_set.hpp``; one problem is a batch of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.cuda.device import Device
from margrave.cuda.rows import (
    POINTS,
    REAL,
    TILE_ROWS,
    DeviceRows,
    Kernel,
    Rows,
    boxes_around,
    shares_of,
    tiles_function,
)
from margrave.cuda.streamed import StreamedRows

Floats = NDArray[np.float64]

# The fields of `Part` in cpp/cuda/point.cuh, eight bytes each.
_WHOLE = frozenset(
    ("first", "count", "capacity", "most_steps", "support", "steps", "rounds", "values", "members")
) | {"status"}
_FIELDS = (
    *("first", "count", "capacity", "most_steps", "sum", "other_sum", "scale", "fixed_dual"),
    *("fixed_gap", "target", "enough", "top", "other_top", "bottom", "other_bottom", "middle"),
    *("other_middle", "bias", "other_bias", "violation", "primal", "dual", "gap", "own_gap"),
    *("negligible", "inner_share", "support", "steps", "rounds", "values", "members", "status"),
)
_AT = {name: place for place, name in enumerate(_FIELDS)}
RUNNING, CONVERGED, STALLED = range(3)
LARGEST_SET = 2048  # variables of a working set

_CHUNK = 1024  # rows, as in cpp/cuda/point.cuh
_INNER_SHARE = 0.1  # tolerance on a working set, as a share of the violation
# Steps per variable of a working set: many problems wait for the slowest.
_MOST_STEPS, _STEPS_SIDE_BY_SIDE = 100, 2
_PADDING = 32  # of the rows of kernel blocks
_WIDEST = 1024  # threads of a block
_PER_THREAD, _BEST_THREADS = (1, 2, 4, 8), 512  # variables, and threads of the inner solver


@dataclass(frozen=True)
class Outline:
    """What is given of one problem of a batch.

    ``rows`` are its rows among those of the data, ``scores`` those of `beta` (None for zero);
    `shift` is the part of the scores that other variables contribute.
    """

    rows: Rows
    y: Floats
    C: Floats
    beta: Floats
    scores: Floats | None = None
    shift: Floats | None = None
    sums: tuple[float, float] = (0.0, 0.0)
    scale: float = 0.0
    fixed_dual: float = 0.0
    fixed_gap: float = 0.0
    target: float = 0.0
    enough: float = 0.0


class Batch:
    """Problems with one loss on some rows of a card.

    Parameters
    ----------
    device : Device
    rows : DeviceRows or StreamedRows
    kernel : Kernel
    dtype : {"float32", "float64"}
    loss : compiled loss
    has_free_intercept : bool
    outlines : sequence of Outline
    size : int
        Variables of a working set, at most 2,048.
    """

    def __init__(
        self,
        device: Device,
        rows: DeviceRows | StreamedRows,
        kernel: Kernel,
        dtype: str,
        loss: _core.Loss,
        has_free_intercept: bool,
        outlines: Sequence[Outline],
        size: int,
    ) -> None:
        cupy = device.cupy
        self.device, self.rows, self.kernel, self.dtype = device, rows, kernel, dtype
        self.loss, self.free = loss, has_free_intercept
        self.counts = np.array([len(one.rows) for one in outlines], dtype=np.int64)
        self.ends = np.cumsum(self.counts)
        self.firsts = self.ends - self.counts
        self.total, self.number = int(self.ends[-1]), len(outlines)
        largest = int(self.counts.max())
        self.size = min(size, largest)
        self.leading = -(-self.size // _PADDING) * _PADDING
        self.chunks = -(-largest // _CHUNK)
        self.variables = next(  # of a thread
            each for each in _PER_THREAD if each * _BEST_THREADS >= self.leading
        )
        self.threads = -(-self.leading // (32 * self.variables)) * 32
        # bytes of shared memory, as in cpp/cuda/inner.cuh
        self.per_variable = 2 * 8 + 2 * np.dtype(dtype).itemsize

        def joined(parts: Sequence[Any], kind: str = "float64") -> Any:
            return cupy.asarray(np.concatenate(parts).astype(kind, copy=False))

        self.row = joined([one.rows for one in outlines], "int32")
        self.y = joined([one.y for one in outlines])
        self.C = joined([one.C for one in outlines])
        self.beta = joined([one.beta for one in outlines])
        self.scores = joined(
            [np.zeros(len(one.rows)) if one.scores is None else one.scores for one in outlines]
        )
        self.shift = None
        if any(one.shift is not None for one in outlines):
            self.shift = joined(
                [np.zeros(len(one.rows)) if one.shift is None else one.shift for one in outlines]
            )
        self.inside = cupy.zeros(self.total, dtype=cupy.uint8)
        self.key = cupy.zeros(self.total, dtype=cupy.float32)
        arrays = (self.row, self.y, self.C, self.shift, self.beta, self.scores, self.inside)
        pointers = [0 if array is None else array.data.ptr for array in (*arrays, self.key)]
        self.pointers = cupy.asarray(np.array(pointers, dtype=np.uint64))
        self.parts = cupy.asarray(self._parts(outlines))
        self.whole = self.parts.view(cupy.int64)

        places = self.number * self.size
        self.members = cupy.zeros(places, dtype=cupy.int32)
        self.set_rows = cupy.zeros(places, dtype=cupy.int32)
        self.set_count = cupy.zeros(self.number, dtype=cupy.int32)
        self.changed_rows = cupy.zeros(places, dtype=cupy.int32)
        self.changed_coef = cupy.zeros(places, dtype=dtype)
        self.changed_count = cupy.zeros(self.number, dtype=cupy.int32)
        self.set_first = cupy.arange(0, places, self.size, dtype=cupy.int32)
        self.first = cupy.asarray(self.firsts.astype(np.int32))
        self.count = cupy.asarray(self.counts.astype(np.int32))
        self.found = cupy.empty(self.number * self.chunks * 4, dtype=cupy.float64)
        self.block = cupy.empty((self.number, self.size, self.leading), dtype=dtype)
        self.tiles = -(-largest // POINTS)
        self.shares = shares_of(int((-(-self.counts // POINTS)).sum()), self.size, dtype)
        self.added = cupy.empty((self.shares, self.total), dtype=cupy.float64)
        self.parameters = device.struct(loss.packed)

    def _parts(self, outlines: Sequence[Outline]) -> Floats:
        parts = np.zeros((self.number, len(_FIELDS)))
        whole = parts.view(np.int64)
        whole[:, _AT["first"]], whole[:, _AT["count"]] = self.firsts, self.counts
        whole[:, _AT["capacity"]] = np.minimum(self.counts, self.size)
        whole[:, _AT["most_steps"]] = _MOST_STEPS if self.number == 1 else _STEPS_SIDE_BY_SIDE
        parts[:, _AT["inner_share"]] = _INNER_SHARE
        for number, one in enumerate(outlines):
            parts[number, _AT["sum"]], parts[number, _AT["other_sum"]] = one.sums
            for name in ("scale", "fixed_dual", "fixed_gap", "target", "enough"):
                parts[number, _AT[name]] = getattr(one, name)
        return parts

    # --- figures -----------------------------------------------------------------------------

    def read(self) -> dict[str, NDArray[Any]]:
        """All figures of all problems, by name."""
        parts = self.device.cupy.asnumpy(self.parts)
        whole = parts.view(np.int64)
        return {name: (whole if name in _WHOLE else parts)[:, place] for name, place in _AT.items()}

    def write(self, name: str, values: Any) -> None:
        """Set a figure of all problems."""
        there = self.whole if name in _WHOLE else self.parts
        there[:, _AT[name]] = self.device.cupy.asarray(values)

    def measure(self) -> None:
        """KKT violations, bias and gap of all problems."""
        if self.free and not self.loss.quadratic:
            self._best_bias()
        chunks, grid = np.int32(self.chunks), (self.chunks, self.number)
        self._run("extremes", grid, 256, *self._point(), self.found, chunks)
        self._run(
            "middle", (self.number,), 256, self.parts, self.found, chunks, np.int32(self.free)
        )
        self._sum_up()

    def improve_bias(self) -> None:
        """The best bias of all problems, and the gaps with it."""
        if self.free:
            self._best_bias()
            self._sum_up()

    def count_values(self, values: int) -> None:
        """Add kernel values that were computed elsewhere to those of the first problem."""
        self.whole[0, _AT["values"]] += values

    def violations(self) -> Floats:
        """How much each row violates the KKT conditions, after `measure`."""
        cupy = self.device.cupy
        found = cupy.empty(self.total, dtype=cupy.float64)
        grid = (-(-int(self.counts.max()) // 256), self.number)
        self._run("violations", grid, 256, *self._point(), found)
        return np.asarray(cupy.asnumpy(found))

    def _sum_up(self) -> None:
        chunks, grid = np.int32(self.chunks), (self.chunks, self.number)
        self._run("sums", grid, 256, *self._point(), self.found, chunks)
        self._run("figures", (self.number,), 256, self.parts, self.found, chunks)

    def _best_bias(self) -> None:
        self._run("best_bias", (self.number,), _WIDEST, *self._point())

    # --- steps 2 to 5 ------------------------------------------------------------------------

    def improve(self) -> None:
        """Choose working sets, solve on them, and bring the scores up to date."""
        free, size = np.int32(self.free), np.int32(self.size)
        chosen = (self.members, self.set_rows, self.set_count, size)
        self._run("choose_set", (self.number,), _WIDEST, self.pointers, self.parts, *chosen, free)
        leading = np.int32(self.leading)
        stride = np.int64(self.size * self.leading)
        rows, numbers = self.rows, self.set_rows
        if isinstance(rows, StreamedRows):
            rows = rows.some(self.device.cupy.asnumpy(numbers))
            numbers = self.device.cupy.arange(len(numbers), dtype="int32")
        own = (rows.entries, rows.sizes, numbers, self.set_first, self.set_count)
        high, wide = -(-self.size // POINTS), -(-self.size // TILE_ROWS[self.dtype])
        grid = (high, wide, self.number)
        self._tiles("store", self.dtype, grid, own, own, self.block, stride, leading)
        changed = (self.changed_rows, self.changed_coef, self.changed_count)
        self._run(
            *("solve", (self.number,), self.threads, *self._point(), *chosen),
            *(self.block, stride, leading, *changed, free),
            shared=self.per_variable * self.leading,
        )
        self.add(self.changed_rows, self.set_first, self.changed_count, self.changed_coef)

    def add(
        self,
        rows: Any,
        first: Any,
        count: Any,
        coef: Any,
        exact: DeviceRows | StreamedRows | None = None,
    ) -> None:
        """Scores += sums over some rows of each problem of their coefficients times the kernel.

        With the `exact` rows in double precision.
        """
        of, dtype = (self.rows, self.dtype) if exact is None else (exact, "float64")
        if isinstance(of, StreamedRows):
            self._add_streamed(of, rows, first, count, coef)
            return
        points = (of.entries, of.sizes, self.row, self.first, self.count)
        others = (of.entries, of.sizes, rows, first, count)
        total = np.int64(self.total)
        grid = (self.tiles, self.shares, self.number)
        boxes = None
        if self.number == 1:  # the rows of many problems are near each other anyway
            boxes = boxes_around(self.device, self.kernel, dtype, of, rows, int(count[0].item()))
        arguments = (
            *(coef, np.int64(0), self.added, total),
            *(np.uint64(0) if boxes is None else boxes, np.float64(self.kernel.far[dtype])),
            *(np.uint64(self.parts.data.ptr + 8 * _AT["values"]), np.int32(len(_FIELDS))),
        )
        self._tiles("sum", dtype, grid, points, others, *arguments)
        self._run(
            *("add", (-(-int(self.counts.max()) // 256), self.number), 256),
            *(self.pointers, self.parts, count, self.added, total, np.int32(self.shares)),
        )

    def _add_streamed(self, of: StreamedRows, *changes: Any) -> None:
        """`add`, one problem after the other."""
        cupy = self.device.cupy
        rows, first, count, coef = map(cupy.asnumpy, changes)
        numbers, weights = cupy.asnumpy(self.row), coef.astype(np.float64)[:, None]
        for p in np.flatnonzero(count):
            own = slice(int(self.firsts[p]), int(self.ends[p]))
            some = slice(int(first[p]), int(first[p] + count[p]))
            found = of.multiply(rows[some], weights[some], numbers[own], math.inf)
            assert found is not None
            self.scores[own] += cupy.asarray(found[0][:, 0])
            self.whole[int(p), _AT["values"]] += found[1]

    def start(self) -> None:
        """Compute the scores of variables that are not zero."""
        own = self.own_scores()
        self.scores[:] = own if self.shift is None else own + self.shift

    def fix_others(self, dual: float) -> None:
        """Let the scores hold a fixed part from other variables, of a problem with this dual value.

        The sums that the variables here do not explain become the shift, and each problem's dual
        value that of the whole one.
        """
        assert self.shift is not None
        self.shift[:] = self.scores - self.own_scores()
        self.measure()
        self.write("fixed_dual", dual - self.read()["dual"])
        self.write("status", RUNNING)  # it was measured without the others

    def own_scores(self, exact: DeviceRows | StreamedRows | None = None) -> Any:
        """What the variables of each problem contribute to its own scores."""
        cupy = self.device.cupy
        used = cupy.flatnonzero(self.beta)
        if len(used) == 0:
            return cupy.zeros_like(self.scores)
        ends = cupy.searchsorted(used, cupy.asarray(self.ends), side="left")
        firsts = cupy.searchsorted(used, cupy.asarray(self.firsts), side="left")
        before = self.scores.copy()
        self.scores[:] = 0.0
        coef = self.beta[used].astype(self.dtype if exact is None else "float64")
        self.add(
            *(self.row[used], firsts.astype(cupy.int32), (ends - firsts).astype(cupy.int32)),
            *(coef, exact),
        )
        own = self.scores.copy()
        self.scores[:] = before
        return own

    def split(self, values: Any) -> list[Floats]:
        """Numbers of all rows, as a list with those of each problem."""
        return np.split(np.asarray(self.device.cupy.asnumpy(values)), self.ends[:-1])

    # --- launches ----------------------------------------------------------------------------

    def _point(self) -> tuple[Any, ...]:
        return self.parameters, self.pointers, self.parts

    def _run(
        self, name: str, grid: tuple[int, ...], threads: int, *arguments: Any, shared: int = 0
    ) -> None:
        macros = {
            "LOSS": self._loss_number,
            "REAL": REAL[self.dtype],
            "VARIABLES": self.variables,
            "THREADS": _BEST_THREADS,
        }
        most = self.per_variable * LARGEST_SET if shared else 0
        function = self.device.function("solver", name, most, **macros)
        function(grid, (threads,), arguments, shared_mem=shared)

    @property
    def _loss_number(self) -> int:
        return int(np.frombuffer(self.loss.packed[:4], dtype=np.int32)[0])

    def _tiles(
        self,
        name: str,
        dtype: str,
        grid: tuple[int, int, int],
        points: tuple[Any, ...],
        rows: tuple[Any, ...],
        *rest: Any,
    ) -> None:
        tiles_function(self.device, self.kernel, dtype, name)(
            grid,
            (256,),
            (
                self.device.struct(self.kernel.packed),
                np.int32(points[0].shape[1]),
                *points,
                *rows,
                np.int32(1),
                *rest,
            ),
        )
