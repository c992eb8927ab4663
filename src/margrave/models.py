"""Models that compute the scores of new rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from margrave import _core, cuda
from margrave.kernels import Kernel, core_rows
from margrave.progress import forever
from margrave.rows import AnyRows, Matrix, blocks_of, is_csr

Floats = NDArray[np.float64]

_LEAST_PRIOR = 1e-12  # least k(x, x), relative to the largest: it is zero for a row of zeros
_SMALL_WORK = 1 << 20  # multiplications below which a second thread does not pay off


@dataclass(frozen=True)
class Expansion:
    """Scores sum_j coef_j k(x, point_j) + intercept, one column per column of `coef`.

    Parameters
    ----------
    points : ndarray or CSR of shape (n_points, d)
        For a precomputed kernel: the indices of the points among the training rows.
    coef : float64 array of shape (n_points, n_outputs)
    kernel : Kernel
    intercept : float64 array of shape (n_outputs,)
    precision : {"float32", "float64"}
        Precision of the kernel values; sums are always float64.
    """

    points: Matrix
    coef: Floats
    kernel: Kernel
    intercept: Floats
    precision: str = "float64"

    def scores(
        self,
        X: Matrix,
        threads: int = 1,
        memory: int = 1 << 30,
        left: Callable[[], float] = forever,
        device: cuda.Device | None = None,
        stop_if: Callable[[], bool] | None = None,
    ) -> Floats:
        """Evaluate the model on rows X (kernel values with all training rows if precomputed)."""
        return self.counted_scores(X, threads, memory, left, device, stop_if)[0]

    def counted_scores(
        self,
        X: Matrix,
        threads: int = 1,
        memory: int = 1 << 30,
        left: Callable[[], float] = forever,
        device: cuda.Device | None = None,
        stop_if: Callable[[], bool] | None = None,
    ) -> tuple[Floats, int]:
        """The scores, and how many kernel values were computed for them.

        Raises ``_core.Stopped`` when no time is `left`, and ``KeyboardInterrupt`` when `stop_if`
        returns true.
        """
        used = np.flatnonzero(self.coef.any(axis=1))
        everything = len(used) == len(self.coef)
        points = self.points if everything else self.points[used]
        coef = self.coef if everything else self.coef[used]
        if len(used) == 0:
            return np.tile(self.intercept, (X.shape[0], 1)), 0
        computed = X.shape[0] * len(used)
        if self.kernel.is_precomputed:
            sums = np.asarray(X[:, points] @ coef, dtype=np.float64)
        elif self.kernel.is_callable:
            sums = self._in_blocks(X, points, coef, memory, left)
        elif device is not None:
            there = cuda.scores_of(
                *(device, self.kernel.core(), X, points, coef, self.precision, left())
            )
            if there is None:
                raise _core.Stopped
            sums, computed = there
        else:
            work = X.shape[0] * points.shape[0] * X.shape[1]
            sums, computed = _core.scores(
                self.kernel.core(),
                core_rows(X),
                core_rows(points),
                np.ascontiguousarray(coef),
                self.precision,
                threads if work > _SMALL_WORK else 1,
                seconds=left(),
                stop_if=stop_if,
            )
        result: Floats = sums + self.intercept
        return result, computed

    def _in_blocks(
        self, X: Matrix, points: Matrix, coef: Floats, memory: int, left: Callable[[], float]
    ) -> Floats:
        """Sums for a callable kernel, with as many rows at a time as the memory allows."""
        step = max(1, memory // (4 * 8 * points.shape[0]))
        blocks = []
        for first in range(0, X.shape[0], step):
            if left() <= 0.0:
                raise _core.Stopped
            blocks.append(self.kernel.evaluate(X[first : first + step], points) @ coef)
        return np.concatenate(blocks) if blocks else np.empty((0, coef.shape[1]))


@dataclass(frozen=True)
class LinearModel:
    """Scores x'w, one column per row of `weights`.

    Parameters
    ----------
    weights : float64 array of shape (n_outputs, d)
    """

    weights: Floats

    def scores(self, X: AnyRows, threads: int = 1) -> Floats:
        """Evaluate the model on rows X, which may come in blocks."""
        scores = np.empty((len(self.weights), X.shape[0]))
        team = _core.Team(threads if X.shape[0] * self.weights.size > _SMALL_WORK else 1)
        for at, block in blocks_of(X):
            rows = _core.LinearRows(core_rows(block), [0], [block.shape[0]], team)
            try:
                rows.multiply(self.weights, scores[:, at])
            except _core.Stopped:
                raise KeyboardInterrupt from None
        return scores.T


@dataclass(frozen=True)
class Landmarks:
    """Features whose inner products approximate a kernel, from some landmark points.

        phi(x) = L^-1 k(points, x),    L L' = k(points, points),    phi(x)'phi(z) ~ k(x, z)

    Parameters
    ----------
    points : ndarray or CSR of shape (n_points, d)
        For a precomputed kernel: the indices of the points among the training rows.
    factor : float64 array of shape (n_points, n_points)
        L, lower triangular.
    kernel : Kernel
    """

    points: Matrix
    factor: Floats
    kernel: Kernel

    def features(self, X: Matrix) -> Floats:
        """phi of rows X (kernel values with all training rows if precomputed)."""
        values = self.kernel.values(X, self.points)
        found: Floats = solve_triangular(self.factor, values.T, lower=True).T
        return found


@dataclass(frozen=True)
class Posterior:
    """Posterior of the weights: mean and covariance, and the samples if they were kept.

    Parameters
    ----------
    mean : float64 array of shape (n_outputs, n_weights)
        An intercept, if there is one, is the last weight.
    covariance : float64 array of shape (n_outputs, n_weights, n_weights)
    draws : float64 array of shape (n_draws, n_outputs, n_weights) or None
        Samples of all chains, one chain after the other.

    Examples
    --------
    >>> one = Posterior(np.ones((1, 2)), np.eye(2)[None])
    >>> mean, deviation = one.scores(np.array([[3.0, 4.0]]))
    >>> mean.tolist(), deviation.tolist()
    ([[7.0]], [[5.0]])
    """

    mean: Floats
    covariance: Floats
    draws: Floats | None = None

    def scores(self, features: Matrix) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the scores of rows, one column per output."""
        means = np.asarray(features @ self.mean.T)
        variances = [_squares(features, features @ cov) for cov in self.covariance]
        return means, np.sqrt(np.maximum(np.stack(variances, axis=1), 0.0))


def _squares(features: Matrix, products: Floats) -> Floats:
    """Inner products of corresponding rows; `features` may be sparse."""
    entries = features.multiply(products) if is_csr(features) else np.asarray(features) * products
    found: Floats = np.asarray(entries.sum(axis=1)).ravel()
    return found


@dataclass(frozen=True)
class LocalModels:
    """One model per part; a row is predicted by the model of the part that it belongs to.

    Parameters
    ----------
    assign : callable (X, threads) -> part of each row
    intercept : float64 array of shape (n_parts, n_outputs)
    known : float64 array of shape (n_parts, n_outputs)
        +1 or -1 if a part only has rows of that side and must not predict the other, -inf for a
        class without rows in a part, else 0.
    """

    assign: Callable[[Matrix, int], NDArray[np.int64]]
    intercept: Floats
    known: Floats

    def scores(self, X: Matrix, threads: int, expand: Callable[[Matrix, int], Floats]) -> Floats:
        """Evaluate the models on rows X; `expand` gives scores of rows by one part's model."""
        part = self.assign(X, threads)
        scores = np.empty((X.shape[0], self.intercept.shape[1]))
        order = np.argsort(part, kind="stable")
        present, firsts = np.unique(part[order], return_index=True)
        for c, rows in zip(present, np.split(order, firsts[1:]), strict=True):
            own = expand(X[rows], int(c)) + self.intercept[c]
            known = self.known[c]
            agrees = (known == 0.0) | (np.sign(own) == known)
            scores[rows] = np.where(agrees, own, known)
        return scores


@dataclass(frozen=True)
class Committee:
    """The models of all parts, each weighted by its precision (a Bayesian committee machine).

    With m_c(x) the score of part c, v_c(x) its variance as a Gaussian process on its points with
    noise 1/C, and k parts,

        v_c = (1 + 1e-6) k(x, x) - k_c' (K_cc + 1/C)^-1 k_c
        score = sum_c m_c / v_c  /  (sum_c 1 / v_c - (k - 1) / k(x, x))

    Parameters
    ----------
    points : list of arrays
        Support vectors of each part, or some of them if there are many.
    noise : float
        1 / C.
    kernel : Kernel
    offset : float
        Added to every kernel value, if the intercepts are regularised.
    intercept : float64 array of shape (n_parts, n_outputs)
    """

    points: list[Matrix]
    noise: float
    kernel: Kernel
    offset: float
    intercept: Floats

    @cached_property
    def factors(self) -> list[NDArray[Any]]:
        """Cholesky factors of K_cc + 1/C."""
        found = []
        for own in self.points:
            K = self.kernel.values(own, own) + self.offset
            try:
                found.append(np.linalg.cholesky(K + self.noise * np.eye(len(K))))
            except np.linalg.LinAlgError:
                raise ValueError(
                    "a committee needs a positive semidefinite kernel, and this one is not on the"
                    " support vectors of a part; use combine='nearest'"
                ) from None
        return found

    def scores(self, X: Matrix, threads: int, expand: Callable[[Matrix, int], Floats]) -> Floats:
        """Evaluate the models on rows X; `expand` gives scores of rows by one part's model."""
        step = max(1, _SMALL_WORK // max(1, *(own.shape[0] for own in self.points)))
        blocks = [
            self._scores(X[first : first + step], expand) for first in range(0, X.shape[0], step)
        ]
        return np.concatenate(blocks) if blocks else np.empty((0, self.intercept.shape[1]))

    def _scores(self, X: Matrix, expand: Callable[[Matrix, int], Floats]) -> Floats:
        prior = self.kernel.diagonal(X) + self.offset
        prior = np.maximum(prior, _LEAST_PRIOR * float(prior.max(initial=1e-300)))
        sums = np.zeros((X.shape[0], self.intercept.shape[1]))
        weights = -(len(self.points) - 1) / prior
        for c, (own, factor) in enumerate(zip(self.points, self.factors, strict=True)):
            known = np.zeros(X.shape[0])
            if own.shape[0]:
                products = self.kernel.values(X, own) + self.offset
                known = (solve_triangular(factor, products.T, lower=True) ** 2).sum(axis=0)
            # rounding errors may make the difference negative
            variance = np.maximum(prior - known, 0.0) + 1e-6 * prior
            sums += (expand(X, c) + self.intercept[c]) / variance[:, None]
            weights = weights + 1.0 / variance
        return sums / weights[:, None]
