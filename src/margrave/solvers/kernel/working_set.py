"""The exact solver: working sets on cached kernel rows.

    min over beta   1/2 beta'K beta + sum_i h_i(beta_i),    lo_i <= beta_i <= hi_i
                    and sum_i beta_i fixed if the intercept is free

Each round solves a few thousand variables at once on their own kernel block and keeps half of them
for the next round (``cpp/working_set.hpp``; for several classes in one problem ``cpp/joint.hpp``).
From 40,000 rows on there is shrinking (`active_set.py`), from a good start with moving blocks.
Joint problems have no shrinking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from sklearn.base import BaseEstimator

from margrave.engines import resolve_engine
from margrave.problem import BaseProblem, Floats, Problem, RowNumbers, Solution, is_joint, is_single
from margrave.progress import Progress
from margrave.rounds import Core
from margrave.rows import loaded
from margrave.solvers.base import Settings, Show, present, refuse_remote
from margrave.solvers.certificate import around_mean
from margrave.solvers.hull.distance import HullCore, refuse_overlap
from margrave.solvers.kernel.active_set import ActiveSet
from margrave.solvers.kernel.descent import Kernels, descend
from margrave.solvers.kernel.joint import joint_core
from margrave.solvers.kernel.moving_blocks import BlockPlan
from margrave.solvers.kernel.sample_start import start_from_sample

_MANY_ROWS = 40_000  # rows from which shrinking saves most of the work


class WorkingSet(BaseEstimator):  # type: ignore[misc]
    """Exact solver for every loss, kernel and intercept.

    Parameters
    ----------
    size : int, optional
        Variables per round; by default up to 2048.

    Examples
    --------
    >>> from margrave import SVC
    >>> from margrave.solvers import WorkingSet
    >>> model = SVC(solver=WorkingSet(size=64)).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> model.solver_
    'exact'
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = size

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
        """Solve the problems from their starts, with many rows by `moving` blocks first."""
        refuse_remote("exact", problems)
        if problems[0].data.in_blocks:
            raise ValueError(
                "the solver 'exact' needs all rows in one array (it may be memory-mapped); rows in"
                " blocks have solver='newton', for SVC, SVR, KernelLogisticRegression and"
                " ODMClassifier with one binary problem per class"
            )
        if self.size is not None and self.size < 2:
            raise ValueError(f"a working set needs at least 2 variables, got size={self.size}")
        moving = moving and not settings.rough

        def solve(near: Sequence[BaseProblem], inner: Settings) -> list[Solution]:
            centred = near[0].data.is_linear  # perhaps
            show = None if centred else present(near, inner.progress)
            make_core = partial(core_of, moving=moving, show=show, among=near)
            return descend(near, inner, starts, make_core, "exact", self.size, show=show)

        solutions = around_mean(problems, settings, solve)
        return refuse_overlap(problems, solutions, settings)


def solve_rows(
    problem: Problem,
    beta: Floats,
    rows: RowNumbers,
    settings: Settings,
    tol: float,
    max_iter: int = -1,
    size: int | None = None,
) -> tuple[Floats, int]:
    """Solve a problem on some of its rows alone, from beta there; all other variables are zero.

    Returns beta and the number of rounds.
    """
    outer = settings.progress
    with Progress(
        tol,
        max_iter=max_iter,
        time_limit=outer.time_left(),
        callbacks=lambda record: outer.is_over,
    ) as progress:
        inner = replace(settings, tol=tol, progress=progress)
        part = problem.restrict(rows)
        part = replace(part, data=replace(part.data, X=loaded(part.data.X)))
        (found,) = WorkingSet(size).solve([part], inner, [beta[rows]])
    if progress.stop_reason == "interrupted":
        outer.interrupt()
    better = np.zeros_like(beta)
    better[rows] = found.beta
    return better, found.n_iter


def core_of(
    problem: BaseProblem,
    kernels: Kernels,
    precision: str,
    start: Floats | None,
    floor: float,
    moving: bool = False,
    show: Show | None = None,
    among: Sequence[BaseProblem] = (),
) -> Core:
    """Make the core that solves one problem `among` others, from its start with `moving` blocks.

    `show` gets the present point after each of their rounds.
    """
    if is_joint(problem):
        return joint_core(problem, kernels, precision, start, _plan(kernels) if moving else None)
    assert is_single(problem)
    if start is None:
        start = start_from_sample(problem, kernels, precision, floor)
    core: Core
    if problem.n_rows >= _MANY_ROWS and problem.data.is_native and not problem.is_dense:
        plan = _plan(kernels) if moving else None
        if plan is not None and show is not None:
            plan.show = partial(show, next(i for i, one in enumerate(among) if one is problem))
        core = ActiveSet(problem, kernels, precision, start, floor, plan)
    else:
        rows, size = kernels.rows(precision, problem.offset), kernels.size_for(problem.n_rows)
        core = problem.core(rows, start, size, floor)
    return HullCore(core, problem) if problem.is_hull else core


def _plan(kernels: Kernels) -> BlockPlan:
    """Moving blocks on the threads that this problem has."""
    on_card = kernels.data.device is not None
    engine = resolve_engine(kernels.settings.engine if on_card else None, kernels.threads)
    memory, threads = kernels.share // 4, kernels.threads
    return BlockPlan(engine, kernels.seed, memory, threads)
