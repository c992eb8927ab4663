"""The distance between two convex hulls: bounds and checks that all hull solvers use.

A and B hold the rows with y = +1 and with y = -1 as columns. Weights eta, xi >= 0 that sum to one
give points A eta and B xi of the convex hulls of the two classes; if no weight may exceed its cap
C_i, of the reduced hulls.

    U(beta) = 1/2 |z|^2,  z = A eta - B xi = sum_i beta_i x_i,  beta = y (eta, xi)      (minimise)
    m(w)    = min over eta of w'A eta  -  max over xi of w'B xi
    L(w)    = m(w)^2 / (2 |w|^2)  <=  U*  <=  U        for every w with m(w) > 0

The optimal z separates the classes with the largest margin; (U - L) / U is the certificate. With
G = 2 U - m(z), the duality gap that the compiled solver computes without cancellation,
U - L(z) = G - G^2 / (4 U). If m(z) <= 0, L is zero and nothing is certified; as U goes to zero the
hulls overlap, and no direction separates them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from margrave.blocks.hull import fill
from margrave.problem import BaseProblem, Data, Floats, Problem, Solution
from margrave.rounds import Core, Record
from margrave.rows import loaded
from margrave.solvers.base import Settings

NOTHING = 1e-12  # of the largest |x|^2: a U below it counts as zero


class HullsOverlap(ValueError):
    """No direction separates the classes."""


def bounds(U: float, G: float) -> tuple[float, float]:
    """Lower bound L of the optimum and the gap (U - L) / U, from U and G = 2 U - m(z)."""
    if not (U > 0.0 and G < 2.0 * U):
        return 0.0, 1.0
    ratio = max(0.0, G / U)
    return (1.0 - ratio / 2.0) ** 2 * U, ratio - ratio * ratio / 4.0


def largest_square(data: Data) -> float:
    """Largest k(x, x) of all rows, the scale of squared distances."""
    if data.kernel.is_precomputed:
        return float(np.max(np.abs(np.diagonal(data.X))))
    return float(np.max(np.abs(data.kernel.diagonal(loaded(data.X)))))


def first_rows(problem: Problem) -> Floats:
    """Feasible variables: the first rows of each class at their caps, up to the sum."""
    beta = np.zeros(problem.n_rows)
    for side in (problem.y > 0, problem.y < 0):
        beta[side] = fill(np.zeros(int(side.sum())), problem.C[side], problem.total)
    return problem.y * beta


class HullCore:
    """The compiled solver, with figures in terms of U and L.

    For distances `objective` is U, `dual` is -L and `gap` is (U - L) / U. With a linear term
    (regression) the figures are the usual ones.
    """

    def __init__(self, core: Core, problem: Problem) -> None:
        self.core, self.shift = core, problem.shift

    def advance(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        """Run rounds; see `Core`."""
        status, records = self.core.advance(target, max_rounds, seconds, time_left)
        return status, [self._converted(record) for record in records]

    def certify(self, time_left: float) -> Record | None:
        """Figures in double precision; None if stopped."""
        record = self.core.certify(time_left)
        return None if record is None else self._converted(record)

    def figures(self) -> Record:
        """Figures from the running scores."""
        return self._converted(self.core.figures())

    def _converted(self, record: Record) -> Record:
        if self.shift is not None or not np.isfinite(record["gap"]):
            return record
        U = record["dual"]
        L, gap = bounds(U, record["objective"] + U)
        return {**record, "objective": U, "dual": -L, "gap": gap}

    @property
    def work(self) -> tuple[int, int, int]:
        """Rounds, steps and kernel values so far."""
        return self.core.work

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.core.interrupted

    @property
    def beta(self) -> Floats:
        """Dual variables."""
        return self.core.beta

    @property
    def scores(self) -> Floats:
        """Scores K beta."""
        return self.core.scores if self.shift is None else self.core.scores - self.shift


def refuse_overlap(
    problems: Sequence[BaseProblem], solutions: list[Solution], settings: Settings
) -> list[Solution]:
    """Raise where the hulls overlap; else return the solutions.

    Only a solver that was not cut short can tell: after Ctrl-C, a time limit or max_iter it may
    have found neither close points of the hulls nor a separating direction.
    """
    for number, (problem, solution) in enumerate(zip(problems, solutions, strict=True)):
        if not problem.is_hull or problem.shift is not None:
            continue
        square = largest_square(problem.data)
        if solution.objective <= NOTHING * square and solution.dual >= 0.0:
            if settings.is_spent:
                solutions[number] = replace(solution, gap=np.inf, converged=False)
                continue
            raise HullsOverlap(
                "the hulls overlap: no direction separates the convex hulls of the classes, which"
                f" come as close as {np.sqrt(2.0 * max(0.0, solution.objective)):.2g} with rows of"
                f" norm up to {np.sqrt(square):.2g}; "
                + (
                    "they are not separable with this kernel, use NuSVC or SVC"
                    if np.all(problem.total < problem.C)
                    else "nu is too small for these rows, raise it or choose another kernel"
                )
                + ". (Rows that occur in both classes, such as sparse rows without an entry, are in"
                " both hulls with any kernel.)"
            )
    return solutions
