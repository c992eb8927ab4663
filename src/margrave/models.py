"""What predicts: models that hold no more than they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.kernels import Kernel, core_rows
from margrave.rows import RowBlocks

Floats = NDArray[np.float64]

_SMALL_WORK = 1 << 20  # multiplications below which a second thread costs more than it brings


@dataclass(frozen=True)
class Expansion:
    """Scores sum_j coef_j k(x, point_j) + intercept, one column per column of `coef`.

    Parameters
    ----------
    points : ndarray or CSR of shape (n_points, d)
        For a precomputed kernel: the numbers of the training rows that are the points.
    coef : float64 array of shape (n_points, n_outputs)
    kernel : Kernel
    intercept : float64 array of shape (n_outputs,)
    precision : {"float32", "float64"}
        Of the kernel values; sums are always float64.
    """

    points: Any
    coef: Floats
    kernel: Kernel
    intercept: Floats
    precision: str = "float64"

    def scores(self, X: Any, threads: int = 1, memory: int = 1 << 30) -> Floats:
        """Evaluate the model on rows X (kernel values with all training rows if precomputed)."""
        used = np.flatnonzero(self.coef.any(axis=1))
        everything = len(used) == len(self.coef)
        points = self.points if everything else self.points[used]
        coef = self.coef if everything else self.coef[used]
        if len(used) == 0:
            return np.tile(self.intercept, (X.shape[0], 1))
        if self.kernel.is_precomputed:
            sums = np.asarray(X[:, points] @ coef, dtype=np.float64)
        elif self.kernel.is_callable:
            sums = self._in_blocks(X, points, coef, memory)
        else:
            work = X.shape[0] * points.shape[0] * X.shape[1]
            sums = _core.scores(
                self.kernel.core(),
                core_rows(X),
                core_rows(points),
                np.ascontiguousarray(coef),
                self.precision,
                threads if work > _SMALL_WORK else 1,
            )
        result: Floats = sums + self.intercept
        return result

    def _in_blocks(self, X: Any, points: Any, coef: Floats, memory: int) -> Floats:
        """Sums of a callable kernel, as many rows at a time as the memory allows."""
        step = max(1, memory // (4 * 8 * points.shape[0]))
        blocks = [
            self.kernel.evaluate(X[first : first + step], points) @ coef
            for first in range(0, X.shape[0], step)
        ]
        return np.concatenate(blocks) if blocks else np.empty((0, coef.shape[1]))


@dataclass(frozen=True)
class LinearModel:
    """Scores x'w, one column per row of `weights`.

    Parameters
    ----------
    weights : float64 array of shape (n_outputs, d)
    """

    weights: Floats

    def scores(self, X: Any, threads: int = 1) -> Floats:
        """Evaluate the model on rows X, which may come in blocks."""
        blocks = X if isinstance(X, RowBlocks) else [X]
        scores = np.empty((len(self.weights), X.shape[0]))
        team = _core.Team(threads if X.shape[0] * self.weights.size > _SMALL_WORK else 1)
        first = 0
        for block in blocks:
            last = first + block.shape[0]
            rows = _core.LinearRows(core_rows(block), [0], [last - first], team)
            try:
                rows.multiply(self.weights, scores[:, first:last])
            except _core.Stopped:
                raise KeyboardInterrupt from None
            first = last
        return scores.T
