"""Warm starts: from the solution for one setting to the start for the next.

A solution beta with scores f = K beta starts the next problem at its best multiple,

    min over s   D(s beta) = 1/2 s^2 beta'f + sum_i h_i(s beta_i),      s beta in the new box,

which is nearly C'/C where most variables are at their bound, and nearly 1 where none are. The
scores there are s f: no kernel value has to be computed for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from margrave.kernels import Kernel
from margrave.problem import BaseProblem, Floats, Problem, StartedProblem, is_single
from margrave.rows import AnyRows
from margrave.solvers import Solution
from margrave.tuning.folds import same_rows

_TRIALS = 15  # each reduces the interval by a third
_GOLDEN = 0.5 * (5.0**0.5 - 1.0)


@dataclass(frozen=True)
class Start:
    """Solutions on some rows and their penalties C_i, one per problem."""

    betas: list[Floats]
    scores: list[Floats]
    C: list[Floats]
    X: AnyRows
    kernel: Kernel

    @classmethod
    def of(cls, problems: Sequence[BaseProblem], solutions: Sequence[Solution]) -> Start:
        """Take coefficients and scores from solutions, including a regularised intercept."""
        scores = [
            s.scores + (s.beta.sum(axis=0) if p.intercept == "regularized" else 0.0)
            for p, s in zip(problems, solutions, strict=True)
        ]
        data = problems[0].data
        betas, C = [s.beta for s in solutions], [p.C for p in problems]
        return cls(betas, scores, C, data.X, data.kernel)

    def begin(
        self, problems: Sequence[BaseProblem]
    ) -> tuple[list[BaseProblem], list[Floats] | None]:
        """Return the problems and a start for each; no starts if the rows or kernel differ."""
        if [beta.shape for beta in self.betas] != [problem.shape for problem in problems]:
            return list(problems), None
        data = problems[0].data
        if data.kernel != self.kernel or not same_rows(self.X, data.X):  # the scores do not apply
            return list(problems), None
        begun = [
            _begin(problem, beta, f, C)
            for problem, beta, f, C in zip(problems, self.betas, self.scores, self.C, strict=True)
        ]
        return [problem for problem, _ in begun], [start for _, start in begun]


def _begin(problem: BaseProblem, beta: Floats, f: Floats, C: Floats) -> tuple[BaseProblem, Floats]:
    ratio = problem.C / C
    if not is_single(problem):
        return problem, beta * ratio[:, None]
    if problem.is_hull:
        return problem, problem.feasible(beta)
    if problem.total > 0.0:  # the sum of beta is given
        return problem, beta * (problem.total / max(float(beta.sum()), 1e-300))
    s = _best_multiple(problem, beta, f, max(1.0, float(ratio.max())))
    start = s * beta
    return StartedProblem.of(problem, start, s * f), start


def _best_multiple(problem: Problem, beta: Floats, f: Floats, most: float) -> float:
    """Golden section for the s in [0, most] with the least dual value, within the box."""
    at = np.flatnonzero(beta)
    if len(at) == 0:
        return 1.0
    loss, y, C, beta = problem.loss.core(), problem.y[at], problem.C[at], beta[at]
    low, high = loss.box(y, C)
    square = float(beta @ f[at])

    def dual(s: float) -> float:
        return 0.5 * s * s * square + float(loss.conjugate(y, C, s * beta).sum())

    a, b = 0.0, min(most, float(np.where(beta > 0.0, high / beta, low / beta).min()))
    top, left, right = b, b - _GOLDEN * (b - a), a + _GOLDEN * (b - a)
    at_left, at_right, at_top = dual(left), dual(right), dual(top)
    for _ in range(_TRIALS):
        if at_left < at_right:
            b, right, at_right = right, left, at_left
            left = b - _GOLDEN * (b - a)
            at_left = dual(left)
        else:
            a, left, at_left = left, right, at_right
            right = a + _GOLDEN * (b - a)
            at_right = dual(right)
    best, s = min((at_left, left), (at_right, right))
    return top if at_top <= best else s
