"""Common code of the hull solvers on shards: levels, certificates, solutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.blocks.corners import GRID
from margrave.blocks.hull import fill
from margrave.engines.base import Shards
from margrave.problem import BaseProblem, Floats, Problem, Solution
from margrave.progress import FOREVER
from margrave.solvers.base import CHEAP, Settings, check_start, refuse_unless, stop_reason
from margrave.solvers.hull.distance import NOTHING, bounds, largest_square, refuse_overlap

_GATHERED = 512  # scores that are fetched to find a level among them


def refuse_distances(solver: str, problems: Sequence[BaseProblem]) -> list[Problem]:
    """Return the problems, or raise for those that are not distances between hulls."""
    found = refuse_unless(solver, problems, ("free",), ("hull",))
    if any(problem.shift is not None for problem in problems):
        raise ValueError(
            f"the solver {solver!r} cannot work with the regression of NuSVR; use solver='pairs'"
        )
    return found


def split_rows(n: int, count: int) -> list[NDArray[np.int64]]:
    """Split the rows into `count` blocks, in their order.

    Examples
    --------
    >>> [part.tolist() for part in split_rows(5, 2)]
    [[0, 1, 2], [3, 4]]
    """
    return [part for part in np.array_split(np.arange(n), min(n, count)) if len(part)]


def solve_each(
    problems: Sequence[Problem],
    starts: Sequence[Floats] | None,
    run: Callable[[Problem, str], HullRun],
    settings: Settings,
) -> list[Solution]:
    """Solve the problems one after the other; `run` makes the solver of one, given its place."""
    for problem, start in zip(problems, starts or [], strict=bool(starts)):
        check_start(problem, start)
    solutions = []
    for number, problem in enumerate(problems):
        where = f"problem {number + 1} of {len(problems)}" if len(problems) > 1 else ""
        begin = None if starts is None else problem.feasible(starts[number])
        one = partial(run(problem, where).solve, begin)
        solutions.append(settings.recovery.steadily(one))  # after a loss again from the start
    return refuse_overlap(problems, solutions, settings)


def find_levels(shards: Shards, ends: Sequence[Floats], totals: Floats) -> tuple[Floats, Floats]:
    """Find the level up to which each of the shards' lists is filled to its total.

    Rows below the level are at their caps, those at the level at the fraction that is returned with
    it. `ends` are from the blocks' lists (`blocks.corners.Lists`). If the lowest rows suffice, no
    call is needed; else the blocks count their rows below a grid of levels, which is refined until
    the rows between two of them can be fetched: few rows, or all those of one level.
    """
    low, high = np.min(ends, axis=0)[:, 0], np.max(ends, axis=0)[:, 1]
    lowest = np.sum([np.where(end[:, 0] == low, end[:, 2], 0.0) for end in ends], axis=0)
    level, share = low.copy(), np.zeros(len(low))
    totals = np.where(totals > 1e-12, totals, 0.0)  # the rest is rounding
    done = (lowest >= totals * (1.0 - 1e-13)) | (low == np.inf)
    share[done] = np.clip(totals[done] / np.maximum(lowest[done], 1e-300), 0.0, 1.0)
    if done.all():
        return level, share
    low, high = np.where(done, 0.0, low), np.where(done, 0.0, high)
    below = np.where(done, 0.0, lowest)  # the mass up to `low`
    narrow = 1e-15 * np.maximum(np.abs(low), np.abs(high))  # levels may be zero themselves
    while True:
        steps = np.linspace(0.0, 1.0, GRID + 1)[1:]
        grid = low[:, None] + (high - low)[:, None] * steps
        grid[:, -1] = high
        mass, count = shards.reduce("below", grid)
        at = np.array(
            [np.searchsorted(m, t * (1.0 - 1e-13)) for m, t in zip(mass, totals, strict=True)]
        )
        at = np.minimum(at, GRID - 1)
        rows = np.arange(len(at))
        first = at == 0
        before = np.maximum(at - 1, 0)
        below = np.where(first, below, mass[rows, before])
        low, high = np.where(first, low, grid[rows, before]), grid[rows, at]
        left = count[rows, at] - np.where(first, 0.0, count[rows, before])
        if np.all(done | (left <= _GATHERED) | (high - low <= narrow)):
            break
    gathered = shards.map("between", low, high)
    for k in np.flatnonzero(~done):
        pairs = np.concatenate([found[k] for found in gathered])
        pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
        sums = below[k] + np.cumsum(pairs[:, 1])
        last = min(int(np.searchsorted(sums, totals[k] * (1.0 - 1e-13))), len(pairs) - 1)
        level[k] = pairs[last, 0]
        ties = pairs[:, 0] == level[k]
        under = below[k] + pairs[pairs[:, 0] < level[k], 1].sum()
        share[k] = np.clip((totals[k] - under) / pairs[ties, 1].sum(), 0.0, 1.0)
    return level, share


class HullRun:
    """Base of the solvers of one distance: best bounds, progress, and the solution."""

    def __init__(self, name: str, problem: Problem, settings: Settings, where: str) -> None:
        self.name, self.problem, self.settings, self.where = name, problem, settings, where
        self.progress = settings.progress
        self.round, self.lower, self.gap = 0, 0.0, 1.0
        self.nothing = NOTHING * largest_square(problem.data)

    def solve(self, start: Floats | None) -> Solution:
        """Solve the problem, from a feasible start if given."""
        raise NotImplementedError

    def report(self, shards: Shards, U: float, L: float) -> bool:
        """Report a point with U and the lower bound L of its plane.

        True if it was the last. The dual value is the best bound so far, which may be another
        plane's.
        """
        self.lower = max(self.lower, L)
        self.gap = max(0.0, (U - L) / U) if U > 0.0 else 1.0
        over = self.progress.report(
            round=self.round,
            objective=U,
            dual=-self.lower,
            gap=self.gap,
            numbers=shards.exchanged // 8,
            where=self.where,
            support=0,
        )
        return over or self.nothing >= U

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Ctrl-C and the time limit end the rounds; the weights so far are kept."""
        try:
            yield
        except _core.Stopped:
            pass
        except KeyboardInterrupt:
            self.progress.interrupt()

    def solution(
        self, weight: Floats, running: Floats | None = None, plane: Floats | None = None
    ) -> Solution:
        """Return the weights with their bounds, recomputed in double precision.

        Without the time for that the `running` scores are used; without these the gap is unknown.
        The `plane` is by default that of the weights.
        """
        problem = self.problem
        for side in (
            problem.y > 0,
            problem.y < 0,
        ):  # sums over all blocks, also after a stop in mid-step
            weight[side] = np.minimum(weight[side] / weight[side].sum(), problem.C[side])
        beta = problem.y * weight
        found = self._scores(beta)
        scores = running if found is None else found
        if scores is None:
            scores = np.zeros(len(beta))
        U, m, least = 0.5 * float(beta @ scores), 0.0, problem.y * scores
        for side in (problem.y > 0, problem.y < 0):
            m += float(least[side] @ fill(least[side], problem.C[side]))
        L = max(self.lower, bounds(U, 2.0 * U - m)[0])
        gap = max(0.0, (U - L) / U) if U > 0.0 else 1.0
        return Solution(
            beta=beta,
            intercept=0.0,
            scores=scores,
            objective=U,
            dual=-L,
            gap=gap,
            converged=gap <= self.settings.tol,
            n_iter=self.round,
            precision="float64",
            solver=self.name,
            stop_reason=stop_reason(self.progress, "hulls"),
            weights=plane,
        )

    def _scores(self, beta: Floats) -> Floats | None:
        """K beta; None if there is no time for it and it is not cheap."""
        data, rows = self.problem.data, self.problem.data_rows
        used = np.flatnonzero(beta)
        is_cheap = data.is_linear or len(used) * len(rows) < CHEAP
        left = FOREVER if is_cheap else self.settings.seconds_left()
        kernel_rows = data.kernel_rows("float64", 0, 1 << 25, self.settings.threads, cache=False)
        sums, _ = kernel_rows.multiply(
            rows[used], np.ascontiguousarray(beta[used, None]), rows, True, left
        )
        return None if sums is None else np.ascontiguousarray(sums[:, 0])
