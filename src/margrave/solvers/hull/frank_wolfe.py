"""Frank-Wolfe steps between two hulls (Gilbert's method), local and distributed.

    min over eta, xi   U = 1/2 |z|^2,   z = A eta - B xi,    eta, xi in their S (`blocks/hull.py`)

A round finds the corner v, the pair of extreme points of the hulls with the least z'v, and steps
towards it:

    D = v - z,       z <- z + t D,   t = -z'D / |D|^2 in [0, 1]            "plain": Gilbert's method
    D = v - a,       t up to where a weight reaches an end                 "pairwise", of one class

where a is the corner of largest z'a in the smallest face around the class's weights, so that a step
removes weight from the worst rows instead of all rows. The step with the largest decrease is made.
The corner also gives the certificate: m(z) = z'v.

Blocks of rows (`CornerBlock`) hold weights and scores; they exchange with the caller only vectors
of one number per feature, and numbers. Without caps a corner is a single row, the best of those
that the blocks propose: one exchange per round. With caps a few more exchanges find the level up to
which rows are at their caps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from margrave.blocks.corners import PLAIN, CornerBlock, KernelCornerBlock, Move
from margrave.engines import resolve_engine
from margrave.engines.base import Shards
from margrave.problem import BaseProblem, Floats, Problem, Solution
from margrave.solvers.base import Settings, check_integer
from margrave.solvers.hull.distance import bounds, first_rows
from margrave.solvers.hull.shards import (
    HullRun,
    find_levels,
    refuse_distances,
    solve_each,
    split_rows,
)

_FRESH = 100  # rounds after which z is recomputed


class FrankWolfe(BaseEstimator):  # type: ignore[misc]
    """Gilbert's method for hulls, with pairwise steps; on engines for the linear kernel.

    Parameters
    ----------
    steps : {"pairwise", "plain"}, default="pairwise"
        "plain" is Gilbert's method as published.
    partitions : int, optional
        Blocks of rows; by default one, or one for each worker of an engine.

    Examples
    --------
    >>> from margrave import NuSVC
    >>> from margrave.solvers import FrankWolfe
    >>> X, y = [[0.0], [1.0], [2.0], [4.0], [5.0], [6.0]], [0, 0, 0, 1, 1, 1]
    >>> model = NuSVC(nu=0.9, kernel="linear", solver=FrankWolfe(partitions=2)).fit(X, y)
    >>> model.solver_, model.converged_, "numbers" in model.history_[-1]
    ('gilbert', True, True)
    """

    def __init__(self, steps: str = "pairwise", partitions: int | None = None) -> None:
        self.steps = steps
        self.partitions = partitions

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems, one after the other."""
        if self.steps not in ("pairwise", "plain"):
            raise ValueError(f"steps must be 'pairwise' or 'plain', got {self.steps!r}")
        check_integer("partitions", self.partitions, 1)
        problems = refuse_distances("gilbert", problems)
        is_linear = problems[0].data.is_linear
        if not is_linear and (self.partitions or settings.engine is not None):
            raise ValueError(
                "the solver 'gilbert' works in blocks and on engines with kernel='linear'; leave"
                f" out partitions and engine for kernel={problems[0].data.kernel.name!r}"
            )
        return solve_each(
            problems, starts, lambda problem, where: _Run(self, problem, settings, where), settings
        )


class _Run(HullRun):
    """Frank-Wolfe rounds on one problem."""

    def __init__(
        self, solver: FrankWolfe, problem: Problem, settings: Settings, where: str
    ) -> None:
        super().__init__("gilbert", problem, settings, where)
        self.solver = solver
        self.scores: Floats | None = None  # of the weights so far, with a kernel

    def solve(self, start: Floats | None) -> Solution:
        """Run rounds on shards until the gap is certified or a budget is used up."""
        settings, problem = self.settings, self.problem
        weight = np.abs(first_rows(problem) if start is None else start)
        pairwise = self.solver.steps == "pairwise"
        if problem.data.is_linear:
            engine = resolve_engine(settings.engine or "serial", settings.threads)
            parts = split_rows(problem.n_rows, self.solver.partitions or engine.n_workers)
            pieces: list[Any] = [
                {
                    "X": problem.data.X[problem.data_rows[rows]],
                    "y": problem.y[rows],
                    "cap": problem.C[rows],
                    "weight": weight[rows],
                    "pairwise": pairwise,
                }
                for rows in parts
            ]
            shards = engine.scatter(CornerBlock, pieces)
        else:
            parts = [np.arange(problem.n_rows)]
            memory = settings.memory // 2
            piece = {
                "problem": problem,
                "weight": weight,
                "pairwise": pairwise,
                "threads": settings.threads,
                "memory": memory,
                "left": settings.seconds_left,
            }
            shards = resolve_engine("serial", 1).scatter(KernelCornerBlock, [piece])
        with shards:
            with self.stoppable():
                self._rounds(shards)
            weight = np.concatenate(shards.map("weights"))
        return self.solution(weight, self.scores)

    def _rounds(self, shards: Shards) -> None:
        dot = _dot if self.problem.data.is_linear else _kernel_dot
        find_corners = _capped_corners if self.problem.C.min() < 1.0 else _SingleRows()
        z = shards.reduce("point")
        move: Move | None = None
        for self.round in itertools.count():
            if not self.problem.data.is_linear:
                self.scores = z[1]
            # 1. the corner of least z'v and, with it, the certificate
            if self.round % _FRESH == _FRESH - 1:
                find_corners(shards, z, move)
                z, move = shards.reduce("point"), None
            towards, away, room = find_corners(shards, z, move)
            corner = towards[0] + towards[1]
            U = 0.5 * dot(z, z)
            if self.report(shards, U, bounds(U, 2.0 * U - dot(z, corner))[0]):
                return
            # 2. the best of the steps
            steps = [(PLAIN, corner - z, 1.0)]
            for kind, (to, off, most) in enumerate(zip(towards, away, room, strict=False)):
                steps.append((kind, to - off, float(most)))
            gain, kind, step, D = max((_best(dot, z, *one) for one in steps), key=_gain)
            if not gain > 1e-16 * U:
                return  # double precision is exhausted
            z, move = z + step * D, (kind, step)


def _dot(a: Floats, b: Floats) -> float:
    return float(a @ b)


def _kernel_dot(a: Floats, b: Floats) -> float:
    return float(a[0] @ b[1])


def _best(
    dot: Callable[[Floats, Floats], float], z: Floats, kind: int, D: Floats, room: float
) -> tuple[float, int, float, Floats]:
    """The decrease of U by the best step of this kind, the kind, the step and its direction."""
    slope, square = dot(z, D), dot(D, D)
    if not (slope < 0.0 and square > 0.0):
        return 0.0, kind, 0.0, D
    step = min(-slope / square, room)
    return -step * (slope + 0.5 * step * square), kind, step, D


def _gain(step: tuple[float, int, float, Floats]) -> float:
    return step[0]


# The corners of both classes to step towards, the away corners (none for plain steps), and the
# largest step of each class between the two.
Corners = tuple[list[Floats], list[Floats], list[float]]


def _capped_corners(shards: Shards, z: Floats, move: Move | None) -> Corners:
    """Apply the last step, and find the corners along z, for rows with caps."""
    ends, full = zip(*shards.map("aim", z, move), strict=True)
    totals = np.concatenate([[1.0, 1.0], 1.0 - sum(full)])[: len(ends[0])]
    parts, rooms = zip(*shards.map("corner", *find_levels(shards, ends, totals)), strict=True)
    vectors = [sum(vectors) for vectors in zip(*parts, strict=True)]
    return vectors[:2], vectors[2:], np.min(rooms, axis=0).tolist()


class _SingleRows:
    """The same for rows without caps: a corner is a single row, the first of the blocks' lists."""

    def __init__(self) -> None:
        self.first: list[int] | None = None  # the block of each, the last time

    def __call__(self, shards: Shards, z: Floats, move: Move | None) -> Corners:
        first = self.first
        answers = shards.each(
            "tips",
            [
                (z, move, None if first is None else [block == number for block in first])
                for number in range(len(shards))
            ],
        )
        lists = list(zip(*answers, strict=True))
        self.first = [int(np.argmin([score for score, _, _ in tips])) for tips in lists]
        best = [tips[block] for tips, block in zip(lists, self.first, strict=True)]
        vectors = [vector for _, _, vector in best]
        return vectors[:2], vectors[2:], [weight for _, weight, _ in best[2:]]
