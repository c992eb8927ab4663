"""Kernel rows on a graphics card, in place of the core's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.cuda.device import Device
from margrave.cuda.rows import DeviceRows, Kernel, Rows, padded, stays, sums_of, upload
from margrave.cuda.streamed import StreamedRows
from margrave.rows import Matrix

Floats = NDArray[np.float64]


class KernelRows:
    """Kernel rows on a card; the counterpart of the core's class of this name.

    Parameters
    ----------
    device : Device
    X : ndarray or CSR of shape (n, d)
    kernel : compiled kernel with the offset, or None where X holds kernel values
    offset : float
    starts : list of int
        Where the blocks of rows begin.
    dtype : {"float32", "float64"}
    make_host : function that returns the same rows in the core
    """

    def __init__(
        self,
        device: Device,
        X: Matrix,
        kernel: _core.Kernel | None,
        offset: float,
        starts: list[int],
        dtype: str,
        make_host: Callable[[], _core.KernelRows],
    ) -> None:
        self.device, self.X, self.core = device, X, kernel
        self.starts, self.dtype, self.make_host = starts, dtype, make_host
        self.kernel = Kernel.of(kernel, offset)
        self.kernel_values = 0

    @cached_property
    def host(self) -> _core.KernelRows:
        """The same rows in the core, in double precision, for what is done there."""
        return self.make_host()

    @cached_property
    def centre(self) -> Floats:
        """What is subtracted from rows before kernel values are computed."""
        return np.empty(0) if self.core is None else self.host.centre

    def stay(self, dtype: str) -> bool:
        """Whether the rows in some precision stay on the card."""
        n, d = self.X.shape
        width = d if self.core is None else padded(d)
        return stays(self.device, n, width, dtype)

    def rows(self, dtype: str) -> DeviceRows | StreamedRows:
        """The rows in some precision: on the card, or copied there when they are needed."""
        centre = self.centre
        if not self.stay(dtype):
            return StreamedRows(self.device, self.X, self.kernel, dtype, centre)

        def make() -> DeviceRows:
            return upload(self.device, self.X, dtype, centre, self.core is None)

        found: DeviceRows = self.device.copy_of(self.X, dtype, make)
        if not np.array_equal(found.centre, centre):  # of another kernel
            self.device.forget(self.X, dtype)
            found = self.device.copy_of(self.X, dtype, make)
        return found

    def upload(self) -> None:
        """Copy the rows to the card."""
        with self.device.at_work():
            self.rows(self.dtype)

    # --- the interface of the core's KernelRows ------------------------------------------------

    def multiply(
        self, rows: Rows, coef: Floats, points: Rows, exact: bool, time_left: float
    ) -> tuple[Floats | None, bool]:
        """K[points, rows] @ coef; None if the time is over."""
        dtype = "float64" if exact else self.dtype
        with self.device.at_work():
            own = self.rows(dtype)
            if isinstance(own, StreamedRows):
                found = own.multiply(rows, coef, points, time_left)
            else:
                how = self.device, self.kernel, dtype
                found = sums_of(*how, own, points, own, rows, coef, time_left, same=True)
        if found is None:
            return None, False
        self.kernel_values += found[1]
        return found[0], False

    def block_sums(self, rows: Rows, coef: Floats, block: int) -> Floats:
        """coef.T @ K[rows, block]."""
        points = np.arange(self.starts[block], self.starts[block + 1])
        sums, _ = self.multiply(rows, coef, points, False, 1e18)
        assert sums is not None
        return np.ascontiguousarray(sums.T)

    def diagonal(self, points: Rows) -> Floats:
        """Kernel values of these rows with themselves."""
        return self.host.diagonal(points)

    def multiply_carefully(
        self, rows: Rows, coef: Floats, points: Rows, time_left: float
    ) -> tuple[Floats | None, Floats | None]:
        """K[points, rows] @ coef by compensated sums, with bounds on the errors: by the core."""
        return self.host.multiply_carefully(rows, coef, points, time_left)

    def rounding(self, points: Rows) -> tuple[Floats, Floats, Floats]:
        """What rounding does to kernel values; see the core."""
        return self.host.rounding(points)

    @property
    def cached_bytes(self) -> int:
        """Values are computed when needed."""
        return 0
