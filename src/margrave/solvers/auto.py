"""The choice behind ``solver="auto"``, from measurements of `benchmarks`.

Hulls have pair swaps; with the linear kernel, many more rows than features and caps that let no row
have much, Frank-Wolfe steps first, which move all of these at once. Many rows and a kernel that
falls with the distance: divide and conquer, which ends with the working set among the workers where
these are elsewhere. Else such workers have blocks and then that working set, and one machine the
whole problem at once (`whole.py` has its own choice).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from margrave.problem import Floats, Problem, Solution
from margrave.rows import RemoteRows
from margrave.solvers.base import Settings
from margrave.solvers.block_minimization import BlockMinimization, is_elsewhere
from margrave.solvers.divide import DivideAndConquer, pays
from margrave.solvers.frank_wolfe import FrankWolfe
from margrave.solvers.pairs import PairSwaps
from margrave.solvers.whole import solve_whole

_ROWS_PER_FEATURE = 20
_MANY_AT_CAPS = 50
_STEPS = 60  # after which pairs of rows are better, one after the other


class Auto:
    """Choose a solver by the kernel, the loss and the shape of the data."""

    def solve(
        self,
        problems: Sequence[Any],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems."""
        if getattr(problems[0], "is_hull", False):
            return _solve_hulls(problems, settings, starts)
        is_remote = isinstance(problems[0].data.X, RemoteRows)  # these rows stay where they are
        if starts is None and pays(problems) and not is_remote:
            return DivideAndConquer().solve(problems, settings)
        if is_elsewhere(problems, settings):
            return BlockMinimization().solve(problems, settings, starts)
        return solve_whole(problems, settings, starts)


def _solve_hulls(
    problems: Sequence[Problem], settings: Settings, starts: Sequence[Floats] | None
) -> list[Solution]:
    if not all(_has_many_at_caps(problem) for problem in problems):
        return PairSwaps().solve(problems, settings, starts)
    solutions = FrankWolfe(rounds=_STEPS).solve(problems, settings, starts)
    for number, (problem, before) in enumerate(zip(problems, solutions, strict=True)):
        if before.converged or settings.is_spent:
            continue
        (after,) = PairSwaps().solve([problem], settings, [before.beta])
        solutions[number] = replace(
            after, n_iter=before.n_iter + after.n_iter, solver="gilbert, pairs"
        )
    return solutions


def _has_many_at_caps(problem: Problem) -> bool:
    """Whether a corner of the hulls is many rows, in few features."""
    if not problem.data.is_linear or problem.shift is not None:
        return False
    many_rows = problem.n_rows >= _ROWS_PER_FEATURE * problem.data.X.shape[1]
    return bool(many_rows and problem.C.max() * _MANY_AT_CAPS <= 1.0)
