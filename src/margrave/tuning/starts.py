"""From the solution for one setting to the start for the next.

A solution beta with scores f = K beta starts the next problem at its best multiple,

    min over s   D(s beta) = 1/2 s^2 beta'f + sum_i h_i(s beta_i),      s beta in the new box,

which is nearly C'/C where most variables are at their bound, and nearly 1 where none are. The
scores there are s f: no kernel value has to be computed for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from margrave import _core
from margrave.problem import Floats, JointProblem, Problem
from margrave.solvers import Solution

_TRIALS = 25  # of the multiple: each takes a third off where it may be


@dataclass(frozen=True)
class StartedProblem(Problem):
    """A problem with a start whose scores are known."""

    start: Floats | None = None
    scores: Floats | None = None

    def core(
        self,
        rows: _core.KernelRows,
        start: Floats | None,
        size: int,
        floor: float,
        around: _core.Surroundings | None = None,
    ) -> _core.WorkingSet:
        """Make the compiled solver; from this start, with its scores."""
        if around is None and start is self.start and self.scores is not None:
            nothing = np.zeros(self.n_rows)
            bound = float(self.loss.core().value(self.y, self.C, nothing).sum())
            around = _core.Surroundings(nothing, self.scores, 0.0, 0.0, bound)
        return super().core(rows, start, size, floor, around)


@dataclass(frozen=True)
class Start:
    """Solutions and the prices that they are for, problem by problem."""

    betas: list[Floats]
    scores: list[Floats]
    C: list[Floats]

    @classmethod
    def of(cls, problems: Sequence[Any], solutions: Sequence[Solution]) -> Start:
        """Take what is needed of solutions; scores include an intercept that is regularised."""
        scores = [
            s.scores + (s.beta.sum(axis=0) if p.intercept == "regularized" else 0.0)
            for p, s in zip(problems, solutions, strict=True)
        ]
        return cls([s.beta for s in solutions], scores, [p.C for p in problems])

    def begin(self, problems: Sequence[Any]) -> tuple[list[Any], list[Floats] | None]:
        """Return the problems and a start for each; none if they are of another kind."""
        if [beta.shape for beta in self.betas] != [problem.shape for problem in problems]:
            return list(problems), None
        begun = [
            _begin(problem, beta, f, C)
            for problem, beta, f, C in zip(problems, self.betas, self.scores, self.C, strict=True)
        ]
        return [problem for problem, _ in begun], [start for _, start in begun]


def _begin(problem: Any, beta: Floats, f: Floats, C: Floats) -> tuple[Any, Floats]:
    ratio = problem.C / C
    if isinstance(problem, JointProblem):
        return problem, beta * ratio[:, None]
    if problem.total > 0.0:  # the sum of beta is given
        return problem, beta * (problem.total / max(float(beta.sum()), 1e-300))
    s = _best_multiple(problem, beta, f, max(1.0, float(ratio.max())))
    start = s * beta
    fields = {name: getattr(problem, name) for name in Problem.__dataclass_fields__}
    return StartedProblem(**fields, start=start, scores=s * f), start


def _best_multiple(problem: Problem, beta: Floats, f: Floats, most: float) -> float:
    """Golden section for the s in [0, most] with the least dual value, within the box."""
    loss = problem.loss.core()
    low, high = loss.box(problem.y, problem.C)
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(beta > 0.0, high / beta, np.where(beta < 0.0, low / beta, np.inf))
    a, b = 0.0, min(most, float(room.min(initial=np.inf)))
    square = float(beta @ f)

    def dual(s: float) -> float:
        return 0.5 * s * s * square + float(loss.conjugate(problem.y, problem.C, s * beta).sum())

    if not np.isfinite(b) or b <= 0.0:
        return 0.0
    golden = 0.5 * (np.sqrt(5.0) - 1.0)
    at_b, top = dual(b), b
    for _ in range(_TRIALS):
        left, right = b - golden * (b - a), a + golden * (b - a)
        if dual(left) < dual(right):
            b = right
        else:
            a = left
    s = 0.5 * (a + b)
    return top if at_b <= dual(s) else s
