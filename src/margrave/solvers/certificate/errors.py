"""Bounds on the rounding errors of scores and of X'beta."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from margrave import _core
from margrave.blocks.passes import Passes
from margrave.kernels import core_rows
from margrave.problem import BaseProblem, Data, Floats, is_joint
from margrave.solvers.certificate.figures import UNIT

_TILE_SUM = 64.0  # additions within a dozen, and of the sums of batches and threads, at most
_CAREFUL = 1 << 28  # products that may be summed with compensation: about a second


class Errors:
    """Bounds on the rounding errors of scores K beta in double precision.

    A kernel value is off by product(x) product(z) + (relative(x) + relative(z)) |k(x, z)| at most,
    in units of rounding times a factor for the number of features; sums add an error by the size
    of their terms, |beta_j k(x_j, x)|. Tiles add up a dozen terms at a time, then the sums of
    dozens, so that no term takes part in more additions than `sum`. Values below `negligible` may
    have been left out. The `offset` of a kernel k + offset is part of the terms.
    """

    def __init__(self, data: Data, beta: Floats, offset: float = 0.0) -> None:
        self.data, self.beta = data, beta.reshape(len(beta), -1)
        self.product, self.relative, self.root = data.rounding
        self.support = np.flatnonzero(self.beta.any(axis=1))
        self.value = 4.0 + (int(data.X.shape[1]) if data.is_native else 1)
        n, in_tiles = len(self.support), data.is_native and not data.is_linear
        self.sum = min(4.0 + n, _TILE_SUM + n / 10) if in_tiles else 4.0 + n
        self.shift = UNIT * (self.sum + _TILE_SUM) * offset * np.abs(self.beta).sum(axis=0)
        self.negligible = data.negligible(single=False)

    def quick(self) -> Floats:
        """By the inequality |k(x, z)|^2 <= k(x, x) k(z, z); a column per class."""
        size = np.abs(self.beta)
        root = self.root
        rooted = root[:, None] * size
        terms = np.outer(root, rooted.sum(axis=0))
        with np.errstate(over="ignore", invalid="ignore"):
            found: Floats = np.outer(self.product, self.product @ size)
            found += self.relative[:, None] * terms + np.outer(root, self.relative @ rooted)
            products: Floats = np.outer(self.product, self.product @ size)
            found = UNIT * (self.value * found + self.sum * (terms + products))
            found += self.left_out + self.shift
        return np.where(np.isnan(found), np.inf, found)

    @property
    def left_out(self) -> Floats:
        """What negligible kernel values can add to a score; a number per class."""
        found: Floats = 1.001 * self.negligible * np.abs(self.beta).sum(axis=0)
        return found

    def closely(
        self, rows: NDArray[np.int64], scores: Floats, threads: int
    ) -> tuple[Floats, Floats]:
        """Scores of some rows and bounds on their errors, sharper than the quick ones.

        By compensated sums where these are affordable; else, for kernels that are never negative,
        with bounds by the kernel values themselves.
        """
        if self.data.kernel.is_precomputed and self.data.in_memory:
            return self._of_table(rows, scores)
        if self.data.is_remote or not self.data.is_native:
            return scores, self.quick()[rows]
        features = max(
            1,
            self.data.X.nnz // self.data.n_rows
            if sparse.issparse(self.data.X)
            else self.data.X.shape[1],
        )
        source = self.data.kernel_rows("float64", 0, 1 << 25, threads, cache=False)
        if self.beta.size * len(self.support) * features <= _CAREFUL:
            found = [
                source.multiply_carefully(self.support, np.ascontiguousarray(column), rows, 1e18)
                for column in self.beta[self.support].T
            ]
            sums, errors = (np.stack(parts, axis=1) for parts in zip(*found, strict=True))
            quick = self.quick()[rows]
            better = errors < quick
            return np.where(better, sums, scores), np.where(better, errors, quick)
        if self.product.any():
            return scores, self.quick()[rows]
        size = np.abs(self.beta[self.support])
        coef = np.hstack([size, size * self.relative[self.support, None]])
        products, _ = source.multiply(self.support, np.ascontiguousarray(coef), rows, True, 1e18)
        if products is None:
            raise KeyboardInterrupt
        terms, more = np.hsplit(products, 2)
        # both lack the values that were left out, in which relative errors are possible, too
        terms += self.left_out
        more += self.negligible * coef[:, self.beta.shape[1] :].sum(axis=0)
        # a row with itself has a distance of exactly zero
        own = np.abs(self.beta[rows]) * self.root[rows, None] ** 2
        relative = self.relative[rows, None]
        distant = relative * np.maximum(terms - own, 0.0) + np.maximum(more - relative * own, 0.0)
        bound: Floats = UNIT * (self.value * distant + self.sum * terms)
        bound += self.left_out + self.shift
        return scores, 1.001 * bound  # the bound itself is rounded

    def _of_table(self, rows: NDArray[np.int64], scores: Floats) -> tuple[Floats, Floats]:
        """By compensated sums over a table of kernel values, which are exact."""
        n = self.data.n_rows
        if self.beta.size * n > _CAREFUL:
            return scores, self.quick()[rows]
        table = _core.LinearRows(core_rows(self.data.X), [0], [n], _core.Team(1))
        nothing = np.zeros(n)
        found = [table.audit(np.ascontiguousarray(w), nothing, True)[:2] for w in self.beta.T]
        sums, errors = (np.stack(parts, axis=1)[rows] for parts in zip(*found, strict=True))
        return sums, errors


def off_by(length: float, size: float, n: int, compensated: bool) -> float:
    """Bound on the error of X'beta, a vector of this length from n terms of this size."""
    if compensated:
        return UNIT * (length + UNIT * (n + 2.0) ** 2 * size)
    return UNIT * (n + 2.0) * size


def audit(
    passes: Passes, w: Floats, beta: Floats, compensated: bool
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """X w, bounds on its errors, X'beta as high and low parts, and the absolute sums behind it."""
    n, d = passes.n_rows, passes.n_features
    if passes.in_one_array:
        return passes.rows().audit(w, beta, compensated)
    f, errors, v, low, size = np.zeros(n), np.zeros(n), np.zeros(d), np.zeros(d), 0.0
    for rows, at in passes.parts():
        f[at], errors[at], high, rest, more = rows.audit(w, beta[at], compensated)
        together = v + high
        part = together - v
        low += rest + ((v - (together - part)) + (high - part))  # Knuth's two-sum
        v, size = together, size + more
    return f, errors, v, low, size


def scores_of_weights(problem: BaseProblem, weights: Floats) -> Floats:
    """X w; a column per class of a joint problem."""
    blocks = [0] if is_joint(problem) else problem.block_list
    passes = Passes(problem.data, blocks, _core.Team(1), lambda: 1e18)
    found = passes.scores(np.atleast_2d(weights))
    return found[0] if weights.ndim == 1 else np.ascontiguousarray(found.T)


def combination(problem: BaseProblem, beta: Floats) -> Floats:
    """X'beta with compensated sums; a row per class of a joint problem."""
    blocks = [0] if is_joint(problem) else problem.block_list
    passes = Passes(problem.data, blocks, _core.Team(1), lambda: 1e18)
    nothing = np.zeros(passes.n_features)
    rows = []
    for column in np.atleast_2d(beta.T):
        _, _, v, low, _ = audit(passes, nothing, np.ascontiguousarray(column), True)
        rows.append(v + low)
    return rows[0] if beta.ndim == 1 else np.array(rows)
