"""Divide and conquer (DC-SVM): clusters of rows, then larger ones, then all rows.

    for level l = finest .. coarsest:    branching^l clusters
        beta_c = argmin of the problem on cluster c alone, from beta_c     (in parallel)
    beta = argmin on the support vectors alone, from beta
    beta = argmin on all rows, from beta

With many rows and a narrow kernel all rows follow the finest level, with moving blocks
(`solvers/kernel/moving_blocks.py`).

Each level (`levels.py`) also gives an early model, which predicts a row by the model of the nearest
cluster, after a small part of the time (Hsieh, Si, Dhillon: A Divide-and-Conquer Solver for Kernel
Support Vector Machines, ICML 2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
from sklearn.base import BaseEstimator

from margrave.partitions import Partition, resolve_partition
from margrave.problem import BaseProblem, Data, Floats, Solution, is_joint, is_single
from margrave.rows import loaded
from margrave.solvers.base import (
    Settings,
    check_integer,
    check_memory,
    check_positive,
    check_switch,
)
from margrave.solvers.divide.levels import Levels
from margrave.solvers.divide.parts import Division
from margrave.solvers.kernel.working_set import solve_rows
from margrave.solvers.whole import solve_from

# rows from which clusters are faster if the kernel is narrow, and even if it is not
_MANY_ROWS, _VERY_MANY_ROWS = 40_000, 250_000
_MANY_JOINT_ROWS = 10_000  # the same of moving blocks for Crammer-Singer (softmax: _MANY_ROWS)
_SAMPLE = 500  # rows
_NOTHING, _NARROW = 1e-10, 0.25  # a narrow kernel has a quarter of its values below the first
_REFINE_TOL = 1e-2
_REFINE_ROUNDS = 100
_FEW_SUPPORT = 0.5  # fraction of support vectors up to which they are solved alone first
COMBINATIONS = ("nearest", "sum", "committee")


class DivideAndConquer(BaseEstimator):  # type: ignore[misc]
    """Levels of clusters, then the whole problem from their solutions.

    Parameters
    ----------
    levels : int, optional
        The finest level: `branching` ** `levels` clusters. By default clusters of about 2,000 rows.
        Levels whose clusters would have fewer than 8 rows on average are left out.
    branching : int
        Number of clusters that form one of the next level.
    early : int, optional
        Stop at this level and predict with the clusters' own models; 0 is the whole problem. Rows
        are then visited in blocks, and X may be :class:`~margrave.RowBlocks`.
    combine : {"nearest", "sum", "committee"}
        How an early model predicts: with the nearest cluster's model, with the sum of all, or with
        all of them weighted by their certainty about a row (Bayesian committee machine).
    partition : str or Partition, optional
        "kmeans", "kernel_kmeans" or an object of :mod:`margrave.partitions` whose parts have
        centres. By default k-means in input space for the linear kernel and those that decay with
        the distance, else in the kernel's feature space.
    sample : int, optional
        Number of rows from which the default partition computes its centres.
    adaptive : bool
        Whether the centres of a level are computed from the support vectors of the level before.
    level_tol : float
        Relative duality gap of a cluster's own problem.
    refine : bool
        Whether the problem is solved on the support vectors alone before all rows.
    moving : bool
        Whether, from 40,000 rows on with a narrow kernel, and from 250,000 on with any that decays
        with the distance, moving blocks replace all levels but the finest, and the solution on
        the support vectors alone.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from margrave import SVC
    >>> from margrave.solvers import DivideAndConquer
    >>> X, y = make_moons(2000, noise=0.2, random_state=0)
    >>> model = SVC(gamma=2.0, solver=DivideAndConquer(early=2)).fit(X, y)
    >>> model.certificate_, model.history_[-1]["parts"]
    ('blocks', 16)
    >>> SVC(gamma=2.0, solver="dc").fit(X, y).certificate_
    'full'
    """

    def __init__(
        self,
        levels: int | None = None,
        branching: int = 4,
        early: int | None = None,
        combine: str = "nearest",
        partition: str | Partition | None = None,
        sample: int | None = None,
        adaptive: bool = True,
        level_tol: float = 1e-2,
        refine: bool = True,
        moving: bool = True,
    ) -> None:
        self.levels = levels
        self.branching = branching
        self.early = early
        self.combine = combine
        self.partition = partition
        self.sample = sample
        self.adaptive = adaptive
        self.level_tol = level_tol
        self.refine = refine
        self.moving = moving

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems."""
        self._check(problems)
        if not self.early and not problems[0].data.in_blocks:
            check_memory(problems, settings)
        division = Division(problems, settings, "dc", in_blocks=self.visits_blocks)
        betas, done, solutions = starts, 0, None
        moving = self.moving and not self.early and is_worthwhile(problems)
        if starts is None or self.early:  # a given start is better than one from clusters
            for done, (level, found) in enumerate(self._levels().climb(division, starts), 1):
                solutions = [replace(one, combine=self.combine, n_iter=done) for one in found]
                betas = [solution.beta for solution in solutions]
                if division.keep(solutions, done, f"level {level}"):
                    return solutions
                if moving:
                    break
        if solutions is not None and settings.is_over:
            division.keep(solutions, done, "stopped")
        if solutions is not None and (self.early or settings.is_over):
            return solutions
        if division.data.in_blocks:
            return division.nothing()
        if self.refine and not moving and betas is not None and starts is None:
            betas = [_refined(*pair, settings) for pair in zip(problems, betas, strict=True)]
        return solve_from(problems, settings, betas, "dc", done, solutions, moving)

    @property
    def visits_blocks(self) -> bool:
        """Whether no stage needs all rows in one array, so that they may come in blocks."""
        return bool(self.early)

    def _levels(self) -> Levels:
        return Levels(
            finest=self.levels,
            coarsest=self.early,
            branching=self.branching,
            partition=self.partition,
            sample=self.sample,
            adaptive=self.adaptive,
            tol=self.level_tol,
        )

    def _check(self, problems: Sequence[BaseProblem]) -> None:
        for name, least in (("levels", 1), ("branching", 2), ("early", 0), ("sample", 1)):
            check_integer(name, getattr(self, name), least)
        if self.levels is not None and (self.early or 0) > self.levels:
            raise ValueError(
                f"early={self.early!r} is a finer level than levels={self.levels!r}, the finest"
            )
        check_positive("level_tol", self.level_tol)
        for name in ("adaptive", "refine", "moving"):
            check_switch(name, getattr(self, name))
        if self.partition is not None:
            resolve_partition(self.partition)
        if self.combine not in COMBINATIONS:
            raise ValueError(
                f"combine must be one of {', '.join(map(repr, COMBINATIONS))}, got {self.combine!r}"
            )
        first = problems[0]
        if self.combine != "nearest" and first.total > 0.0:
            raise ValueError(
                f"combine={self.combine!r} has no meaning for one-class problems, whose parts each"
                " have a level of their own; use combine='nearest'"
            )
        if self.combine == "committee" and first.data.kernel.is_precomputed:
            raise ValueError(
                "combine='committee' needs k(x, x) of new rows, which a precomputed kernel matrix"
                " does not have; use combine='nearest'"
            )


def is_worthwhile(problems: Sequence[BaseProblem]) -> bool:
    """Whether clusters are faster: many rows, and a kernel that is narrow."""
    first = problems[0]
    return (
        is_single(first)
        and not first.is_dense
        and first.total == 0.0
        and is_local(problems, _VERY_MANY_ROWS)
    )


def is_local(problems: Sequence[BaseProblem], many: float = inf) -> bool:
    """Whether there are many rows, with a kernel that is narrow or decays and `many` of them."""
    first = problems[0]
    least = _MANY_JOINT_ROWS if is_joint(first) and not first.is_dense else _MANY_ROWS
    return (
        max(problem.n_rows for problem in problems) >= least
        and first.data.kernel.is_shift_invariant
        and (first.n_rows >= many or _is_narrow(first.data))
    )


def _is_narrow(data: Data) -> bool:
    """Whether a good part of the rows is so far apart that their kernel values are zero."""
    size = min(_SAMPLE, data.n_rows)
    X = loaded(data.X[np.sort(np.random.default_rng(0).choice(data.n_rows, size, replace=False))])
    return bool(np.mean(data.kernel.values(X, X) < _NOTHING) >= _NARROW)


def _refined(problem: BaseProblem, beta: Floats, settings: Settings) -> Floats:
    """Solve the problem on the support vectors alone, if these are few."""
    if not is_single(problem):
        return beta
    rows = np.flatnonzero(beta)
    if not 2 <= len(rows) <= _FEW_SUPPORT * problem.n_rows or settings.is_over:
        return beta
    refined, _ = solve_rows(problem, beta, rows, settings, _REFINE_TOL, _REFINE_ROUNDS)
    return beta if settings.is_over else refined  # zero if there was no time to evaluate beta
