"""Pair swaps (SMO): the nearest points of two convex hulls.

    min over eta, xi   1/2 |A eta - B xi|^2,    sum eta = sum xi = 1,  0 <= eta_i, xi_i <= cap_i

A swap moves weight from one row of a class to another, the pair that violates optimality most:

    i = argmin over eta_i < cap_i of z'x_i,    j = argmax over eta_j > 0 of z'x_j
    t = z'(x_j - x_i) / |x_i - x_j|^2, or less where eta_i or eta_j reaches a bound

It is the working-set solver with two fixed sums (``cpp/inner.hpp``, `swap`): thousands of rows at a
time on their own kernel block, cached kernel rows, shrinking for many rows, and the bounds of
`distance.py` in double precision at the end. nu-regression is the same on twice the rows, once as
points above the tube and once as points below, with the targets as a linear term. With many rows
and a narrow kernel "auto" lets moving blocks go first (`solve_after`).

Blocks of rows, in this process or on workers, use the distributed working set
(`distributed/working_set.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sklearn.base import BaseEstimator

from margrave.problem import BaseProblem, Floats, Solution
from margrave.solvers.base import Settings, check_integer, refuse_remote, refuse_unless
from margrave.solvers.distributed.block_minimization import BlockMinimization, is_elsewhere
from margrave.solvers.hull.distance import refuse_overlap
from margrave.solvers.kernel.descent import descend
from margrave.solvers.kernel.working_set import core_of


class PairSwaps(BaseEstimator):  # type: ignore[misc]
    """Exact solver for hulls with any kernel: NuSVC, NuSVR and HardMarginSVC.

    Parameters
    ----------
    size : int, optional
        Rows per round; by default up to 2048.
    partitions : int, optional
        Blocks of rows; by default one, or one for each worker of an engine with other processes.

    Examples
    --------
    >>> from margrave import HardMarginSVC
    >>> from margrave.solvers import PairSwaps
    >>> model = HardMarginSVC(kernel="linear", solver=PairSwaps(size=2))
    >>> model.fit([[0.0], [1.0], [3.0], [4.0]], [0, 0, 1, 1]).solver_
    'pairs'
    """

    def __init__(self, size: int | None = None, partitions: int | None = None) -> None:
        self.size = size
        self.partitions = partitions

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems."""
        return self.solve_after(problems, settings, starts, moving=False)

    def solve_after(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None,
        moving: bool,
    ) -> list[Solution]:
        """Solve the problems; with many rows in one block by `moving` blocks first."""
        check_integer("size", self.size, 2)
        check_integer("partitions", self.partitions, 1)
        problems = refuse_unless("pairs", problems, ("free",), ("hull",))
        refuse_remote("pairs", problems)
        elsewhere = is_elsewhere(problems, settings)
        if not elsewhere and self.partitions is None:
            make_core = partial(core_of, moving=moving)
            solutions = descend(problems, settings, starts, make_core, "pairs", self.size)
            return refuse_overlap(problems, solutions, settings)
        blocks = BlockMinimization(
            blocks=self.partitions, partition="random", rounds=0, size=self.size
        )
        solutions = blocks.solve(problems, settings, starts)
        return [replace(solution, solver="pairs") for solution in solutions]
