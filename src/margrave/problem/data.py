"""Rows and kernel, shared by all problems of one fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core, cuda
from margrave.kernels import Kernel, core_rows
from margrave.rows import (
    AnyRows,
    Matrix,
    RemoteRows,
    blocks_of,
    in_blocks,
    in_memory,
    is_csr,
    is_remote,
    sample_rows,
)

Floats = NDArray[np.float64]
RowNumbers = NDArray[np.int64]

# squares of larger numbers nearly overflow in single precision
_LARGEST_FLOAT32 = 1e15


@dataclass(frozen=True)
class Data:
    """Rows, kernel, and the blocks into which the rows fall.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, d), RowBlocks or RemoteRows
        float32 or float64; the kernel matrix itself for a precomputed kernel.
    kernel : Kernel
    starts : int64 array
        Boundaries of the blocks: block b is rows ``starts[b]:starts[b + 1]``.
    device : Device, optional
        The graphics card on which kernel values are computed.
    has_cards : bool
        Whether processes that these rows are sent to compute on a graphics card of theirs.
    """

    X: Any  # `AnyRows`; which of them a solver gets is checked before it begins
    kernel: Kernel
    starts: RowNumbers
    device: cuda.Device | None = None
    has_cards: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "device": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        device = cuda.own_card() if state["has_cards"] else None
        self.__dict__.update(state, device=device)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in one array of this process."""
        return in_memory(self.X)

    @property
    def in_blocks(self) -> bool:
        """Whether the rows come in blocks, of which one at a time is in memory."""
        return in_blocks(self.X)

    @property
    def is_remote(self) -> bool:
        """Whether the rows are with the workers of an engine."""
        return is_remote(self.X)

    @property
    def is_linear(self) -> bool:
        """Whether the kernel is linear, so that feature weights are the model."""
        return bool(self.kernel.name == "linear")

    @property
    def is_native(self) -> bool:
        """Whether the kernel is compiled: neither a table nor a Python function."""
        return not (self.kernel.is_callable or self.kernel.is_precomputed)

    def negligible(self, single: bool) -> float:
        """Kernel values up to this may be left out of sums, in single precision or in double."""
        return self.kernel.core().negligible(single) if self.is_native else 0.0

    @cached_property
    def fits_float32(self) -> bool:
        """Whether single-precision tiles can hold these rows without overflow."""
        X: AnyRows = self.X
        if self.kernel.is_callable and X.dtype == object:
            return True
        if is_remote(X):
            largest = X.largest
        else:
            found = (
                block.data if is_csr(block) else np.asarray(block) for _, block in blocks_of(X)
            )
            extremes = [(values.max(), values.min()) for values in found if values.size]
            largest = max((max(float(high), -float(low)) for high, low in extremes), default=0.0)
        if largest >= _LARGEST_FLOAT32 or not self.is_native:
            return largest < _LARGEST_FLOAT32
        return self.kernel.bound(largest, self.n_features) < _LARGEST_FLOAT32**2

    @cached_property
    def rounding(self) -> tuple[Floats, Floats, Floats]:
        """Bounds on the rounding errors of kernel values (`Kernel.rounding`), for every row."""
        X: Matrix | RemoteRows = self.X
        if not is_remote(X):
            return self.kernel.rounding(X)
        # all that is known of these rows is their largest entry
        row = np.full((1, self.n_features), X.largest)
        extremes = Data(np.vstack([row, -row]), self.kernel, np.array([0, 2]))
        product, relative, root = (np.full(self.n_rows, found[0]) for found in extremes.rounding)
        # workers subtract their own mean from rows, which may double the entries
        return product, 4.0 * relative, root

    def kernel_rows(
        self,
        precision: str,
        memory: int,
        buffer: int,
        threads: int,
        offset: float = 0.0,
        cache: bool = True,
    ) -> cuda.AnyKernelRows:
        """Make the compiled source of kernel values.

        `memory` bytes are for packed and (with `cache`) computed rows, `buffer` for rows
        that are being computed.
        """
        if self.device is not None:
            return self._rows_on_card(precision, offset, threads)
        return _core.KernelRows(
            core_rows(self.X),
            self.kernel.core(offset) if self.is_native else None,
            self._fetch() if self.kernel.is_callable else None,
            offset,
            self.starts.tolist(),
            precision,
            memory,
            buffer,
            threads,
            cache,
        )

    def _rows_on_card(self, precision: str, offset: float, threads: int) -> cuda.KernelRows:
        assert self.device is not None
        here = replace(self, device=None)

        def in_core() -> _core.KernelRows:
            rows = here.kernel_rows("float64", 0, 1 << 20, threads, offset, cache=False)
            assert isinstance(rows, _core.KernelRows)
            return rows

        return cuda.KernelRows(
            self.device,
            self.X,
            self.kernel.core(offset) if self.is_native else None,
            offset,
            self.starts.tolist(),
            precision,
            in_core,
        )

    def upload(self) -> None:
        """Copy the rows to the graphics card, if there is one, for all that follows."""
        if self.device is not None and not self.kernel.is_precomputed:
            self._rows_on_card("float32", 0.0, 1).upload()

    def restrict(self, rows: RowNumbers) -> Data:
        """Return a copy of some rows; in ascending order they fall into the same blocks."""
        if self.kernel.is_precomputed:
            X = self.X[np.ix_(rows, rows)]
        else:
            X = sample_rows(self.X, rows) if self.in_blocks else self.X[rows]
        starts = np.searchsorted(rows, self.starts).astype(np.int64)
        return Data(X, self.kernel, starts, self.device, self.has_cards)

    def is_definite(self, beta: Floats, scores: Floats, scale: float, noise: float = 1e-9) -> bool:
        """Whether beta'K beta >= 0 up to `noise` times the `scale` and rounding errors.

        If not, the kernel is not positive semidefinite on these rows.
        """
        with np.errstate(invalid="ignore", over="ignore"):  # of a diverging descent
            product = float((beta * scores).sum())
        if product >= -noise * scale:
            return True
        if not np.isfinite(product):
            return False
        sizes = np.abs(beta).sum(axis=0)
        rounding = 2.0**-50 * float(np.sum(sizes * sizes)) * abs(self.mean_diagonal())
        return product >= -noise * scale - rounding

    def mean_diagonal(self) -> float:
        """Mean of k(x, x) over some rows."""
        some = np.linspace(0, self.n_rows - 1, min(self.n_rows, 50)).astype(np.int64)
        if self.kernel.is_precomputed:
            return float(np.mean(self.X[some, some]))
        return float(self.kernel.diagonal(sample_rows(self.X, some)).mean())

    def _fetch(self) -> Callable[[RowNumbers, RowNumbers], Floats]:
        return lambda queries, points: self.kernel.evaluate(self.X[queries], self.X[points])
