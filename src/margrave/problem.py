"""The problem that every kernel machine solves, as data.

    min over beta   1/2 beta'K beta + sum_i h_i(beta_i)        one signed variable per row

`Data` is the rows and the kernel, shared by all binary problems of one fit; `Problem` adds targets,
weights, the loss and the kind of intercept on some blocks of these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from margrave import _core
from margrave.kernels import Kernel, core_rows
from margrave.losses import Loss

Floats = NDArray[np.float64]

# beyond this the squares of single-precision numbers come near the end of their range
_LARGEST_FLOAT32 = 1e15


@dataclass(frozen=True)
class Data:
    """Rows, kernel, and the blocks into which the rows fall.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, d)
        float32 or float64; the kernel matrix itself for a precomputed kernel.
    kernel : Kernel
    starts : int64 array
        Boundaries of the blocks: block b is rows ``starts[b]:starts[b + 1]``.
    """

    X: Any
    kernel: Kernel
    starts: NDArray[np.int64]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def is_native(self) -> bool:
        """Whether the kernel is compiled: neither a table nor a Python function."""
        return not (self.kernel.is_callable or self.kernel.is_precomputed)

    @property
    def fits_float32(self) -> bool:
        """Whether single-precision tiles can hold these rows without overflow."""
        values = self.X.data if sparse.issparse(self.X) else self.X
        if values.size == 0:
            return True
        return max(float(values.max()), -float(values.min())) < _LARGEST_FLOAT32

    def kernel_rows(
        self,
        precision: str,
        memory: int,
        buffer: int,
        threads: int,
        offset: float = 0.0,
        cache: bool = True,
    ) -> _core.KernelRows:
        """Make the compiled source of kernel values.

        `memory` bytes are for packed and (with `cache`) computed rows, `buffer` for rows on their
        way.
        """
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

    def _fetch(self) -> Callable[[NDArray[np.int64], NDArray[np.int64]], Floats]:
        return lambda queries, points: self.kernel.evaluate(self.X[queries], self.X[points])


@dataclass(frozen=True)
class Problem:
    """One binary or regression problem on some blocks of the data.

    Parameters
    ----------
    data : Data
    blocks : tuple of int or None
        Blocks of rows that take part, in this order; None for all.
    y : float64 array
        Targets: +-1, or real numbers.
    C : float64 array
        Positive weight of each row.
    loss : Loss
    intercept : {"free", "regularized"} or None
    """

    data: Data
    blocks: tuple[int, ...] | None
    y: Floats
    C: Floats
    loss: Loss
    intercept: str | None

    def __post_init__(self) -> None:
        if self.intercept not in ("free", "regularized", None):
            raise ValueError(
                f"intercept must be 'free', 'regularized' or None, got {self.intercept!r}"
            )
        starts = self.data.starts
        n = sum(int(starts[b + 1] - starts[b]) for b in self.block_list)
        if n == 0:
            raise ValueError("a problem needs at least one row")
        if len(self.y) != n or len(self.C) != n:
            raise ValueError(
                f"{n} rows need as many targets and weights, got {len(self.y)} and {len(self.C)}"
            )
        if not np.isfinite(self.y).all():
            raise ValueError("targets must be finite, got NaN or infinity")
        if self.loss.core().labels and not np.isin(self.y, (-1.0, 1.0)).all():
            raise ValueError(f"the loss {self.loss.name!r} needs targets -1 and +1")
        if not (np.isfinite(self.C).all() and (self.C > 0).all()):
            raise ValueError("the weights C must be positive and finite")

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def offset(self) -> float:
        """Added to every kernel value: 1 makes the intercept part of the regularised model."""
        return 1.0 if self.intercept == "regularized" else 0.0

    def core(
        self,
        rows: _core.KernelRows,
        start: Floats | None,
        size: int,
        floor: float,
        around: _core.Surroundings | None = None,
    ) -> _core.WorkingSet:
        """Make the compiled solver for this problem."""
        return _core.WorkingSet(
            rows,
            self.block_list,
            self.loss.core(floor),
            self.intercept == "free",
            self.y,
            self.C,
            start,
            around or _core.Surroundings(),
            size,
        )

    def restrict(self, rows: NDArray[np.int64]) -> Problem:
        """Return the problem on some of its rows alone, with a copy of these rows of the data."""
        X = self.data.X[self.data_rows[rows]]
        data = Data(X, self.data.kernel, np.array([0, len(rows)]))
        return Problem(data, None, self.y[rows], self.C[rows], self.loss, self.intercept)

    @property
    def data_rows(self) -> NDArray[np.int64]:
        """Rows of the data behind the rows of the problem."""
        starts = self.data.starts
        return np.concatenate([np.arange(starts[b], starts[b + 1]) for b in self.block_list])

    @property
    def block_list(self) -> list[int]:
        """The blocks as numbers."""
        return list(range(len(self.data.starts) - 1) if self.blocks is None else self.blocks)


@dataclass(frozen=True)
class Solution:
    """A dual point with its certificate.

    ``scores`` is K beta without the intercept, ``objective`` the primal value P, ``dual`` the dual
    value D, ``gap`` the relative duality gap (P + D) / max(|P|, |D|). ``precision`` names the tiles
    that are good enough to predict with.
    """

    beta: Floats
    intercept: float
    scores: Floats
    objective: float
    dual: float
    gap: float
    converged: bool
    n_iter: int
    precision: str
    solver: str
    interrupted: bool = False
