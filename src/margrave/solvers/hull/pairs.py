"""Pair swaps (SMO): the nearest points of two convex hulls.

    min over eta, xi   1/2 |A eta - B xi|^2,    sum eta = sum xi = 1,  0 <= eta_i, xi_i <= cap_i

A swap moves weight from one row of a class to another, the pair that violates optimality most:

    i = argmin over eta_i < cap_i of z'x_i,    j = argmax over eta_j > 0 of z'x_j
    t = z'(x_j - x_i) / |x_i - x_j|^2, or less where eta_i or eta_j reaches a bound

It is the working-set solver with two fixed sums (``cpp/inner.hpp``, `swap`): thousands of rows at a
time on their own kernel block, cached kernel rows, shrinking for many rows, and the bounds of
`distance.py` in double precision at the end. nu-regression is the same on twice the rows, once as
points above the tube and once as points below, with the targets as a linear term.

Blocks of rows, in this process or on workers, use the distributed working set
(`distributed/working_set.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sklearn.base import BaseEstimator

from margrave.engines.base import size_of
from margrave.problem import BaseProblem, Floats, Problem, Solution
from margrave.solvers.base import Settings, check_integer, refuse_remote, refuse_unless
from margrave.solvers.distributed.block_minimization import BlockMinimization, is_elsewhere
from margrave.solvers.hull.distance import first_rows, refuse_overlap
from margrave.solvers.kernel.descent import Kernels, descend
from margrave.solvers.kernel.sample_start import SampleStart, has_sample_start, sample_start
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
        check_integer("size", self.size, 2)
        check_integer("partitions", self.partitions, 1)
        problems = refuse_unless("pairs", problems, ("free",), ("hull",))
        refuse_remote("pairs", problems)
        elsewhere = is_elsewhere(problems, settings)
        if not elsewhere and self.partitions is None:
            solutions = descend(problems, settings, starts, core_of, "pairs", self.size)
        else:
            solutions = self._in_blocks(problems, settings, starts)
        return refuse_overlap(problems, solutions, settings)

    def _in_blocks(
        self, problems: Sequence[Problem], settings: Settings, starts: Sequence[Floats] | None
    ) -> list[Solution]:
        """The distributed working set, started from a sample or from the first rows."""
        if any(problem.shift is not None for problem in problems):
            raise ValueError(
                "the solver 'pairs' works with NuSVR only in this process and in one block; leave"
                " out engine and partitions"
            )
        samples: list[SampleStart | None] = [None] * len(problems)
        if starts is None:
            kernels = Kernels(problems[0].data, settings, 1, self.size)
            try:
                begun = [_start(problem, kernels) for problem in problems]
                starts, samples = [beta for beta, _ in begun], [sample for _, sample in begun]
            except KeyboardInterrupt:
                settings.progress.interrupt()
                starts = [first_rows(problem) for problem in problems]
                return descend(problems, settings, starts, core_of, "pairs", self.size)
        blocks = BlockMinimization(
            blocks=self.partitions, partition="random", rounds=0, size=self.size
        )
        solutions = blocks.solve_from(
            *(problems, settings, starts),
            lambda shards: sum(
                _exchanged(problem, start, shards)
                for problem, start in zip(problems, samples, strict=True)
            ),
        )
        return [replace(solution, solver="pairs") for solution in solutions]


def _start(problem: Problem, kernels: Kernels) -> tuple[Floats, SampleStart | None]:
    """Feasible variables, and the sample that they come from."""
    found = None
    if has_sample_start(problem, kernels):
        found = sample_start(problem, kernels, "float64", 0.0)
    return first_rows(problem) if found is None else found.beta, found


def _exchanged(problem: Problem, start: SampleStart | None, shards: int) -> int:
    """Bytes that a start from a sample takes where the rows are in shards.

    The rows and labels of the sample go to the driver, its model to all shards, scores back.
    """
    if start is None:
        return 0
    X, at = problem.data.X, problem.data_rows
    sample, model = (size_of(X[at[rows]]) + 8 * len(rows) for rows in (start.sample, start.model))
    scores = 8 * problem.n_rows if len(start.model) else 0
    return sample + shards * model + scores
