"""Several classes in one problem by least squares: Crammer and Singer's problem.

    min over W   1/2 sum_c |w_c|^2 + sum_i C_i max_c s_ic,      s_ic = [c != y_i] + (w_c - w_y)'x_i

"fast"  The maximum is smoothed, max over p of p's - e/2 |p|^2 with p in the simplex, Newton's steps
        solve that, and e shrinks. beta_i = C_i (e_y - p_i) is a dual point.
"em"    max_c s_c = min over m of m + sum_c (s_c - m)_+; a parabola touches every term from above,
        and W and m go to their minimum together.

As published, EM goes from class to class with the others held fixed. The maximum is no sum over
classes, so that this stops where no class alone can be improved, which is not the optimum: one row
x = 1 of class 0 out of three, C = 1/5, stays at W = (.2, 0, 0) instead of (.2, -.1, -.1).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from margrave.blocks.augmented_joint import JointAugmentedBlock, nearest_shares
from margrave.engines import Engine, Shards
from margrave.problem import Floats, JointProblem
from margrave.progress import FOREVER
from margrave.solvers.base import Settings
from margrave.solvers.kernel.joint import balancing
from margrave.solvers.linear.augmentation import (
    FLAT,
    HOLD,
    NARROWER,
    NARROWEST,
    NEAR,
    Figures,
    featured,
    line_search,
)
from margrave.solvers.linear.newton import solve_positive
from margrave.solvers.linear.shards import ranges_of, rows_at

_LEAST, _SLOWER = 1e-8, 0.7  # the last width of "em", and how it gets there
_CHECK = 10  # iterations between certificates that fetch all dual variables


class JointWeights:
    """The weights of a linear model of several classes, with its rows in shards.

    For other kernels the rows of the Cholesky factor are the features, the dual point the model.
    """

    def __init__(self, problem: JointProblem, settings: Settings, engine: Engine) -> None:
        self.dual_model, self.kernel_data = not problem.data.is_linear, problem.data
        if self.dual_model:
            problem = featured(problem, problem.n_rows, settings)[0]
        self.problem, self.settings, self.width = problem, settings, 1.0
        self.free, self.constant = problem.intercept == "free", problem.intercept is not None
        self.k, d = problem.n_classes, int(problem.data.X.shape[1])
        self.size = d + self.constant
        _check_memory(self.k * self.size, settings)
        self.penalty = np.ones(self.size)
        if self.free:
            self.penalty[-1] = 0.0
        self.ranges, pieces = joint_pieces(problem, settings, engine)
        self.shards: Shards = engine.scatter(JointAugmentedBlock, pieces)
        self.W = self.V = np.zeros((self.k, self.size))  # V = X'beta
        self.step = self.gradient = self.W
        self.H = np.empty((0, 0))
        self.slope = self.square = 0.0
        self.numbers = np.zeros(3)
        self.last = self.kept = self._zero()

    # --- iterations ------------------------------------------------------------------------

    def iterations(self, mode: str) -> Iterator[Figures | None]:
        """Iterate; returns the figures of the point when they are cheap or due."""
        steps = {"fast": self._smoothed, "em": self._touching, "published": self._by_class}
        for is_due in steps[mode]():
            yield self._figures() if is_due or not (self.free or self.dual_model) else None

    def _smoothed(self) -> Iterator[bool]:
        """Newton's steps on the smoothed maximum, with decreasing width."""
        self.width = 1.0
        while self.width > NARROWEST:
            curvatures, self.V, self.numbers = self.shards.reduce(
                "sums", self.W, self.width, self._left()
            )
            self.H, self.gradient = self._system(curvatures), self.penalty * self.W - self.V
            self.step = solve_positive(self.H, -self.gradient.ravel()).reshape(self.W.shape)
            promise = -float((self.gradient * self.step).sum())
            is_near = promise <= NEAR * self.width * max(float(self.numbers[2]), NEAR)
            yield is_near
            if is_near:
                self.width *= NARROWER
                continue
            self.slope = float((self.W * self.penalty * self.step).sum())
            self.square = float((self.step * self.penalty * self.step).sum())
            self.shards.map("aim", self.step, self._left())
            self.W = self.W + line_search(self._rates, FLAT) * self.step

    def _touching(self) -> Iterator[bool]:
        """Steps to the minimum of the parabolas in the weights and the thresholds."""
        self.width = 1.0
        for number in itertools.count():
            curvatures, (right, self.V), self.numbers = self.shards.reduce(
                "touching_sums", self.W, self.width, self._left()
            )
            yield number % _CHECK == 0
            found = solve_positive(self._system(curvatures), right.ravel())
            self.W = found.reshape(self.W.shape)
            self.width = max(self.width * _SLOWER, _LEAST)

    def _by_class(self) -> Iterator[bool]:
        """Steps of one class after the other, the others fixed."""
        while True:
            # a dual point for the certificate: the literature has none
            _, self.V, self.numbers = self.shards.reduce("sums", self.W, NEAR, self._left())
            yield True
            for c in range(self.k):
                matrix, right, _ = self.shards.reduce("class_sums", self.W, c, _LEAST, self._left())
                self.W = self.W.copy()
                self.W[c] = solve_positive(self._held(matrix + np.diag(self.penalty)), right)

    def _rates(self, steps: Floats) -> Floats:
        """Derivatives of the smoothed objective along the step."""
        losses: Floats = self.shards.reduce("rates", steps, self.width)
        return self.slope + self.square * steps + losses

    def _system(self, curvatures: Floats) -> Floats:
        H = np.zeros((self.k, self.size, self.k, self.size))
        pairs = [(a, b) for a in range(self.k) for b in range(a, self.k)]
        for (a, b), matrix in zip(pairs, curvatures, strict=True):
            H[a, :, b], H[b, :, a] = matrix, matrix
        whole = H.reshape(self.k * self.size, -1)
        whole[np.diag_indices(len(whole))] += np.tile(self.penalty, self.k)
        return self._held(whole)

    def _held(self, system: Floats) -> Floats:
        """Add a ridge to free intercepts, whose common shift has no curvature."""
        if self.free:
            last = np.arange(self.size - 1, len(system), self.size)
            system[last, last] += HOLD * float(self.problem.C.sum())
        return system

    # --- the certificate -------------------------------------------------------------------

    def _figures(self) -> Figures:
        """Figures of the weights and the dual point of the last sums."""
        V, conjugate = self.V, float(self.numbers[1])
        beta = None
        if self.free:  # its sums must be zero: a change that needs all variables here
            beta = self._gathered()
            V = self._combined(beta)
            conjugate = self.problem.terms(beta, np.zeros_like(beta), np.zeros(self.k))[1]
        W, losses = self.W, float(self.numbers[0])
        if self.dual_model:
            W = V.copy()
            if self.free:
                W[:, -1] = self.W[:, -1]
            losses = float(self.shards.reduce("value", W, self._left()))
        self.last = (W, beta)
        dual = 0.5 * float((V * self.penalty * V).sum()) + conjugate
        return Figures(0.5 * float((W * self.penalty * W).sum()) + losses, dual, 0, 0.0)

    def begin(self, start: Floats) -> Figures:
        """Start from dual variables."""
        beta = self._nearest(start)
        self.W = self.V = self._combined(beta)
        if self.free:
            self._settle_intercepts()
        self.last = (self.W, beta)
        terms = self.problem.terms(beta, np.zeros_like(beta), np.zeros(self.k))
        norm = 0.5 * float((self.W * self.penalty * self.W).sum())
        losses = float(self.shards.reduce("value", self.W, self._left()))
        return Figures(norm + losses, norm + terms[1], 0, 0.0)

    def _settle_intercepts(self) -> None:
        """Find intercepts for fixed weights, by the same steps."""
        self.W = self.W.copy()
        self.W[:, -1] = 0.0
        for self.width in NARROWER ** np.arange(12):
            for _ in range(20):
                curvatures, V, numbers = self.shards.reduce(
                    "sums", self.W, self.width, self._left()
                )
                at = slice(self.size - 1, None, self.size)
                H = self._system(curvatures)[at, at]
                self.step = np.zeros_like(self.W)
                self.step[:, -1] = solve_positive(H, V[:, -1])
                if V[:, -1] @ self.step[:, -1] <= NEAR * self.width * max(numbers[2], NEAR):
                    break
                self.slope = self.square = 0.0
                self.shards.map("aim", self.step, self._left())
                self.W = self.W + line_search(self._rates, FLAT) * self.step

    def _nearest(self, start: Floats) -> Floats:
        """The feasible point nearest to given variables."""
        problem, at = self.problem, np.arange(self.problem.n_rows)
        beta = -problem.C[:, None] * nearest_shares(problem.shares(start))
        beta[at, problem.y] += problem.C
        return beta + balancing(problem, beta, np.zeros_like(beta)) if self.free else beta

    def _gathered(self) -> Floats:
        """The dual point of the last sums; with free intercepts its columns sum to zero."""
        found = self.shards.map("dual_point")
        beta = np.concatenate([own for own, _ in found])
        if not self.free:
            return beta
        return beta + balancing(self.problem, beta, np.concatenate([f for _, f in found]))

    def _combined(self, beta: Floats) -> Floats:
        calls = [(np.ascontiguousarray(beta[at]), self._left()) for at in self.ranges]
        combined: Floats = np.sum(self.shards.each("begin", calls), axis=0)
        return combined

    def keep(self, primal: bool, dual: bool) -> None:
        """Keep the weights, the dual point, or both."""
        W, beta = self.last
        if dual and beta is None:
            beta = self._gathered()
        self.kept = (W if primal else self.kept[0], beta if dual else self.kept[1])

    def point(self) -> dict[str, Any]:
        """What is kept, as a solution has it."""
        W, beta = self.kept
        b = W[:, -1].copy() if self.constant else np.zeros(self.k)
        if self.dual_model:  # a Cholesky factor has rounding errors that certificates do not know
            rows = np.flatnonzero(beta.any(axis=1))
            source = self.kernel_data.kernel_rows(
                "float64", 0, 1 << 25, self.settings.threads, cache=False
            )
            scores, _ = source.multiply(rows, beta[rows], np.arange(len(beta)), True, FOREVER)
            if scores is None:
                raise KeyboardInterrupt
            return {"beta": beta, "scores": scores, "intercept": b, "weights": None}
        scores = np.concatenate(self.shards.map("products", W, FOREVER)) - b
        weights = W[:, : self.size - self.constant]
        return {"beta": beta, "scores": scores, "intercept": b, "weights": weights}

    def close(self) -> None:
        """Release the shards."""
        self.shards.close()

    def _zero(self) -> tuple[Floats, Any]:
        return np.zeros((self.k, self.size)), np.zeros(self.problem.shape)

    def _left(self) -> float:
        return self.settings.seconds_left()


def joint_pieces(
    problem: JointProblem, settings: Settings, engine: Engine
) -> tuple[list[slice], list[dict[str, Any]]]:
    """Split the rows into contiguous blocks, one per shard."""
    ranges, threads = ranges_of(problem, settings, engine)
    return ranges, [
        {
            "X": rows_at(problem, at),
            "y": problem.y[at],
            "C": problem.C[at],
            "n_classes": problem.n_classes,
            "constant": problem.intercept is not None,
            "first": at.start,
            "threads": threads,
        }
        for at in ranges
    ]


def _check_memory(unknowns: int, settings: Settings) -> None:
    needed = 4 * 8 * unknowns**2
    if needed > settings.memory:
        raise ValueError(
            f"the joint problem has {unknowns} unknowns, whose system takes {needed / 2**30:.1f}"
            f" GiB, above the memory_limit of {settings.memory / 2**30:.1f} GiB; use"
            " ExpectationMaximization(features=100), multi_class='ovr', or solver='exact'"
        )
