"""Rows of a linear model of several classes: sums for the joint problem of Crammer and Singer.

With scores f_ic = x_i'z_c and s_ic = [c != y_i] + f_ic - f_iy the loss of a row is C_i max_c s_ic.
Two ways to smooth it, and the published one:

    fast       max_c s_c ~ max over p in the simplex of  p's - width/2 |p|^2, whose slope is p
    em         max_c s_c = min over m of  m + sum_c (s_c - m)_+, with a parabola above each term
    published  class after class: max(0, +-(r - f_c)), r from the scores of the other classes
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.blocks.augmented import Parabolas, drawn_sums
from margrave.blocks.passes import Passes, within
from margrave.kernels import Kernel
from margrave.losses import JOINT_LOSSES
from margrave.problem import Data
from margrave.rows import AnyRows

Floats = NDArray[np.float64]


def nearest_shares(v: Floats) -> Floats:
    """The point of the simplex nearest to each row.

    Examples
    --------
    >>> nearest_shares(np.array([[0.25, 0.75], [3.0, 0.0], [0.0, 0.5]])).tolist()
    [[0.25, 0.75], [1.0, 0.0], [0.25, 0.75]]
    """
    ordered = -np.sort(-v, axis=1)
    excess = np.cumsum(ordered, axis=1) - 1.0
    count = np.arange(1, v.shape[1] + 1)
    used = (ordered * count > excess).sum(axis=1)
    level = excess[np.arange(len(v)), used - 1] / used
    shares: Floats = np.maximum(v - level[:, None], 0.0)
    return shares


def ahead_of(f: Floats, y: NDArray[np.int64]) -> Floats:
    """s: by how much each class violates the margin of one to the true class."""
    at = np.arange(len(y))
    ahead: Floats = f - f[at, y][:, None] + 1.0
    ahead[at, y] = 0.0
    return ahead


class JointAugmentedBlock:
    """Some rows, and their contribution to the sums of a joint problem.

    Weights are a row per class; the last entry of each is the class's intercept, if there is one.

    Parameters
    ----------
    X : ndarray, CSR or RowBlocks of shape (rows, d)
    y : int64 array
        Class of each row.
    C : float64 array
    n_classes : int
    constant : bool
    first : int
        Number of the first of these contiguous rows among all rows.
    threads : int
    """

    def __init__(
        self,
        X: AnyRows,
        y: NDArray[np.int64],
        C: Floats,
        n_classes: int,
        constant: bool,
        first: int,
        threads: int,
    ) -> None:
        self.y, self.C, self.k = y, C, n_classes
        self.constant, self.first, self.team = constant, first, _core.Team(threads)
        data = Data(X, Kernel("linear"), np.array([0, len(y)]))
        self.passes = Passes(data, [0], self.team, lambda: 1e18)
        self.at = np.arange(len(y))
        self.pairs = list(combinations_with_replacement(range(n_classes), 2))
        self.scores = self.along = np.zeros((len(y), n_classes))
        self.shares = np.zeros((len(y), n_classes))
        self.shares[self.at, y] = 1.0
        self.threshold = np.ones(len(y))  # m
        self.curvature: Floats | None = None  # p, of the last parabolas

    # --- losses and dual points ------------------------------------------------------------

    def value(self, W: Floats, seconds: float) -> float:
        """The loss of the weights."""
        return self._total_loss(self.products(W, seconds))

    def products(self, W: Floats, seconds: float) -> Floats:
        """Scores, with the intercepts."""
        with within(self.team, seconds):
            return self._products(W)

    def begin(self, beta: Floats, seconds: float) -> Floats:
        """Start from dual variables, and return X'beta."""
        self.shares = -beta / self.C[:, None]
        self.shares[self.at, self.y] += 1.0
        with within(self.team, seconds):
            return self._combined(beta)

    def dual_point(self) -> tuple[Floats, Floats]:
        """The dual variables of the last sums, and the scores then."""
        return self._beta(), self.scores

    def _beta(self) -> Floats:
        beta = -self.C[:, None] * self.shares
        beta[self.at, self.y] += self.C
        return beta

    # --- the sums --------------------------------------------------------------------------

    def sums(self, W: Floats, width: float, seconds: float) -> tuple[Floats, Floats, Floats]:
        """Curvatures of the smoothed maximum, a matrix per pair of classes; X'beta; figures.

        Figures are the loss, the conjugate of beta, and C of the rows near a kink.
        """
        with within(self.team, seconds):
            self.scores = self._products(W)
            ahead = ahead_of(self.scores, self.y)
            self.shares = nearest_shares(ahead / width)
            inside = (self.shares > 0.0).astype(np.float64)
            part = inside / inside.sum(axis=1, keepdims=True)
            scale = self.C / width
            return (
                self._curvatures(lambda a, b: scale * inside[:, a] * ((a == b) - part[:, b])),
                self._combined(self._beta()),
                self._figures(ahead),
            )

    def touching_sums(
        self, W: Floats, width: float, seconds: float
    ) -> tuple[Floats, Floats, Floats]:
        """The same for the parabolas in W and the thresholds m: curvatures; right sides; X'beta.

        The thresholds minimize the previous parabolas at the new weights.
        """
        with within(self.team, seconds):
            self.scores = self._products(W)
            ahead, half = ahead_of(self.scores, self.y), 0.5 * self.C
            if self.curvature is not None:
                total = self.curvature.sum(axis=1)
                self.threshold = ((self.curvature * ahead).sum(axis=1) + self.k - 2.0) / total
            above = ahead - self.threshold[:, None]
            old = self.curvature
            if old is None:
                old = 1.0 / np.maximum(np.abs(above), width)
            alpha = np.maximum(1.0 + above * old, 0.0)
            none = alpha.sum(axis=1) <= 0.0
            alpha[none, self.y[none]] = 1.0
            self.shares = alpha / alpha.sum(axis=1, keepdims=True)
            p = self.curvature = 1.0 / np.maximum(np.abs(above), width)
            part = p / p.sum(axis=1, keepdims=True)
            delta = np.ones_like(p)
            delta[self.at, self.y] = 0.0
            pulled = p * delta - part * (p * delta).sum(axis=1, keepdims=True)  # V delta
            right = -1.0 + (self.k - 2.0) * part - pulled
            right[self.at, self.y] += 2.0
            return (
                self._curvatures(lambda a, b: half * p[:, a] * ((a == b) - part[:, b])),
                np.array([self._combined(half[:, None] * right), self._combined(self._beta())]),
                self._figures(ahead),
            )

    def class_sums(
        self, W: Floats, c: int, width: float, seconds: float
    ) -> tuple[Floats, Floats, float]:
        """The published sums of class c alone, the others fixed; the loss of the weights."""
        with within(self.team, seconds):
            f = self._products(W)
            sign, r = self._against(f, c)
            rows = Parabolas([(sign, r)], 0.5 * self.C, f[:, c], width, False)
            right = rows.u + rows.D * f[:, c]
            return self._gram(rows.D), self._combined(right[:, None])[0], self._total_loss(f)

    def class_draw(
        self, Ws: Floats, c: int, seed: int, iteration: int, seconds: float
    ) -> tuple[Floats, Floats, Floats]:
        """Sums of class c with drawn scales, for the weights of each chain; their losses."""
        matrices, rights, costs = [], [], []
        for chain, W in enumerate(Ws):
            with within(self.team, seconds):
                f = self._products(W)
                sign, r = self._against(f, c)
                key = (seed, chain, iteration * self.k + c)
                D, u, _ = drawn_sums([(sign, r)], 0.5 * self.C, f[:, c], self.first, key)
                matrices.append(self._gram(D))
                rights.append(self._combined(u[:, None])[0])
            costs.append(self._total_loss(f))
        return np.array(matrices), np.array(rights), np.array(costs)

    def _against(self, f: Floats, c: int) -> tuple[Floats, Floats]:
        """b and r of class c: the value that its scores must exceed, or stay below."""
        others = f + 1.0
        others[self.at, self.y] -= 1.0
        others[:, c] = -np.inf
        own = self.y == c
        return np.where(own, 1.0, -1.0), others.max(axis=1) - np.where(own, 0.0, 1.0)

    # --- a line search ---------------------------------------------------------------------

    def aim(self, step: Floats, seconds: float) -> None:
        """Prepare a line search along the step."""
        with within(self.team, seconds):
            self.along = self._products(step)

    def rates(self, steps: Floats, width: float) -> Floats:
        """Derivatives of the smoothed losses along the step."""
        ahead, change = ahead_of(self.scores, self.y), self.along
        change = change - change[self.at, self.y][:, None]
        shares = (nearest_shares((ahead + t * change) / width) for t in steps)
        return np.array([float((self.C[:, None] * p * change).sum()) for p in shares])

    # --- products with the rows ------------------------------------------------------------

    def _total_loss(self, f: Floats) -> float:
        return float((self.C * JOINT_LOSSES["crammer_singer"].value(f, self.y)).sum())

    def _figures(self, ahead: Floats) -> Floats:
        conjugate = JOINT_LOSSES["crammer_singer"].conjugate(self.shares, self.y)
        near_kink = (self.shares > 0.0).sum(axis=1) > 1
        values = (ahead.max(axis=1), conjugate, near_kink)
        return np.array([float((self.C * one).sum()) for one in values])

    def _curvatures(self, weight: Callable[[int, int], Floats]) -> Floats:
        return np.array([self._gram(weight(a, b)) for a, b in self.pairs])

    def _gram(self, D: Floats) -> Floats:
        """X'DX of one pair of classes, as a full matrix."""
        d = self.passes.n_features
        matrix, border = np.zeros((d, d)), np.zeros(d)
        for rows, at in self.passes.parts():
            rows.gram(np.ascontiguousarray(D[at]), matrix, border)
        if not self.constant:
            return matrix
        top = np.hstack([matrix, border[:, None]])
        return np.vstack([top, [*border, float(D.sum())]])

    def _products(self, W: Floats) -> Floats:
        d, F = self.passes.n_features, np.empty((len(W), len(self.y)))
        weights = np.ascontiguousarray(W[:, :d])
        for rows, at in self.passes.parts():
            rows.multiply(weights, F[:, at])
        return F.T + (W[:, d] if self.constant else 0.0)

    def _combined(self, beta: Floats) -> Floats:
        d = self.passes.n_features
        found = np.zeros((beta.shape[1], d + self.constant))
        for rows, at in self.passes.parts():
            rows.transposed(np.ascontiguousarray(beta[at].T), found[:, :d])
        found[:, d:] = beta.sum(axis=0)[:, None]
        return found
