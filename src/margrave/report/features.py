"""Statistics of the features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from margrave.rows import Matrix, is_csr

Floats = NDArray[np.float64]

_VALUES = 1 << 22  # feature values in a block of rows


@dataclass
class Features:
    """Minimum, mean, maximum and standard deviation of each feature, updated block by block."""

    count: int = 0
    mean: Floats = field(default_factory=lambda: np.zeros(1))
    squares: Floats = field(default_factory=lambda: np.zeros(1))  # sum of squares around the mean
    low: Floats = field(default_factory=lambda: np.full(1, np.inf))
    high: Floats = field(default_factory=lambda: np.full(1, -np.inf))
    # rows in which a feature is not zero
    filled: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    def add(self, rows: Matrix) -> None:
        """Include more rows."""
        n, d = rows.shape
        for at in row_ranges(n, rows.nnz if is_csr(rows) else n * d):
            with np.errstate(over="ignore", invalid="ignore"):
                self._add(rows[at])

    def _add(self, rows: Matrix) -> None:
        n = rows.shape[0]
        if is_csr(rows):
            block = sparse.csr_matrix(rows)
            mean = np.asarray(block.mean(axis=0, dtype=np.float64)).ravel()
            squares = np.asarray(block.multiply(block).sum(axis=0)).ravel() - n * mean**2
            low, high = (side.toarray().ravel() for side in (block.min(axis=0), block.max(axis=0)))
            filled = np.asarray((block != 0).sum(axis=0)).ravel()
        else:
            dense = np.asarray(rows)
            mean = dense.mean(axis=0, dtype=np.float64)
            squares = np.square(dense - mean).sum(axis=0)
            low, high = dense.min(axis=0), dense.max(axis=0)
            filled = (dense != 0).sum(axis=0)
        total, step = self.count + n, mean - self.mean
        self.squares = self.squares + squares + step**2 * self.count * n / total
        self.mean = self.mean + step * n / total
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        self.filled = self.filled + filled
        self.count = total

    @property
    def deviation(self) -> Floats:
        """Standard deviation of each feature."""
        found: Floats = np.sqrt(np.maximum(self.squares / self.count, 0.0))
        return found


def row_ranges(n_rows: int, n_values: int, most_rows: int | None = None) -> Iterator[slice]:
    """Ranges of rows (at most `most_rows`) that are so small that their values take few bytes."""
    step = _VALUES * n_rows // max(1, n_values)
    step = max(1, step if most_rows is None else min(step, most_rows))
    for first in range(0, n_rows, step):
        yield slice(first, min(first + step, n_rows))
