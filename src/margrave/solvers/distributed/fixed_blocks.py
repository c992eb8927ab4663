"""Rounds of fixed blocks, which minimise the problem in parallel, each in its own variables.

As published, these are all rounds; before moving blocks there is only one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from margrave import _core
from margrave.blocks.point import Change, Points, stack
from margrave.problem import Floats, Problem, Solution
from margrave.rounds import precision_for
from margrave.solvers.base import Settings
from margrave.solvers.distributed.cluster import Cluster
from margrave.solvers.divide.parts import Division, PartOptions
from margrave.solvers.kernel.moving_blocks import MOST_IDLE, SHARPER
from margrave.solvers.line_search import best_step

_ROUGH = 1e-3  # tolerance of the blocks down to which single precision and few steps suffice
_INNER_SHARE = 0.1  # tolerance of the blocks, as a share of the gap
_RUNNING = 0.9  # the gap that rounds in single precision aim at, as a share of the tolerance
_LINEAR = ("hinge", "pinball")  # losses whose conjugate is linear between its bounds
_SIGMA, _HALVINGS = 0.01, 30  # of Armijo's rule; the paper does not print its numbers


class FixedBlocks:
    """Rounds of all problems of one fit: `run` is the loop, `_round` a round.

    Parameters
    ----------
    cluster : Cluster
    division : Division
    settings : Settings
    inner_tol : float
        Relative duality gap to which blocks are solved, at most; later it falls with the gap.
    limit : int or None
        Rounds, at most.
    as_published : bool
        Whether steps are as printed.
    show : callable or None
        Publishes the local model of a problem after a round.

    Attributes
    ----------
    done : int
        Rounds so far.
    early : list of Solution or None
        The models of the blocks after the first round, if blocks have centres.
    """

    def __init__(
        self,
        cluster: Cluster,
        division: Division[Problem],
        settings: Settings,
        inner_tol: float,
        limit: int | None,
        as_published: bool,
        show: Callable[[int, Solution], None] | None,
    ) -> None:
        self.cluster, self.division, self.settings = cluster, division, settings
        self.inner_tol, self.limit, self.as_published = inner_tol, limit, as_published
        self.done = self.bytes = self.kernel_values = 0
        self.idle = 0  # rounds in a row in which no block has moved
        self.figures: list[tuple[float, float, int]] = []  # gap, dual and support of each problem
        self.steps = [0.0] * len(cluster.problems)
        self.early: list[Solution] | None = None
        self.show = show

    def run(self) -> bool:
        """Run rounds; True if time ran out with nothing better than the blocks' own models.

        A round without the time for its step leaves the blocks where they were.
        """
        cluster, enough, version = self.cluster, False, self.cluster.version

        def step() -> bool | None:
            """A round, and whether it moved anything; None if there was enough."""
            nonlocal enough, version
            if version != cluster.version:  # a worker was lost
                last = cluster.saved[2]
                self.done, self.idle = last.get("done", 0), last.get("idle", 0)
                enough, self.figures = False, []
                version = cluster.version
            cluster.save(phase="rounds", done=self.done, idle=self.idle)
            if enough or self.done == self.limit:
                return None
            if cluster.arrivals.have_come():
                cluster.spread()
                version = cluster.version
            return self._round()

        while True:
            try:
                moved = cluster.steadily(step)
            except _core.Stopped:
                return True
            if moved is None:
                return False
            self.done += 1
            stop = self._report()
            if self.settings.is_over:
                return self.done == 1
            self.idle = 0 if moved else self.idle + 1
            enough = stop or self.idle == MOST_IDLE or self._gap() <= self._goal()

    def _round(self) -> bool:
        """One round of every problem; False if nothing moves."""
        cluster, settings = self.cluster, self.settings
        before, moved = cluster.moved, False
        deadline = settings.deadline()
        numbers = range(len(cluster.problems))
        tol, count = self.inner_tol, 1
        if self.done > 0:  # blocks divide the gap among themselves, and each leaves a part of it
            self.figures = self.figures or [self._measured(p) for p in numbers]
            share = _INNER_SHARE * SHARPER**self.idle
            tol, count = min(tol, share * self._gap()), len(cluster.parts)
        rough = tol >= _ROUGH
        for p in () if rough else sorted(cluster.single):  # from here on scores are in double
            cluster.rebuild(p, "float64")
        changes: list[Change] = []
        for p in numbers:  # 1. a direction from every block
            dual, bound = self._dual(p), cluster.bound(p)
            found = cluster.map("propose", p, tol / count, rough, dual, bound, deadline)
            points, coef = stack([one[0] for one in found]), np.concatenate([c for _, c in found])
            changes.append((points, coef))
        if self.done == 0:
            self._keep_local()
        local = self._locals()
        if settings.is_over:  # a step takes as many kernel values as all blocks together
            raise _core.Stopped
        for p in numbers:
            points, coef = changes[p]
            self._step(p, points, coef, rough)
            moved = moved or (len(coef) > 0 and self.steps[p] > 0.0)
        self.bytes = cluster.moved - before
        self.figures = [self._measured(p) for p in numbers]
        for p, (start, own) in enumerate(local):
            self._show_local(p, start, own)
        return moved

    def _step(self, p: int, points: Points, coef: Floats, rough: bool) -> None:
        """Step along the directions of all blocks of one problem."""
        cluster, problem = self.cluster, self.cluster.problems[p]
        # 2. how the objective changes along it
        precision = precision_for(self.settings.tol, problem.data) if rough else "float64"
        deadline = self.settings.deadline()
        probes = cluster.map("probe", p, points, coef, precision, deadline)
        cluster.single |= {p} if precision == "float32" else set()
        slope, curvature = (float(sum(probe[i] for probe in probes)) for i in (0, 1))
        largest = float(min(probe[2] for probe in probes))

        def rate(steps: Floats) -> Floats:
            h: Floats = cluster.reduce("rates", p, steps)
            return slope + steps * max(curvature, 0.0) + h

        # 3. the step; from zero, a given sum of beta is reached by a full step
        given = problem.total > 0.0 and self.done == 0
        if self.as_published:
            up, down = (float(min(probe[i] for probe in probes)) for i in (3, 4))
            step = self._printed_step(p, slope, curvature, (-down, min(up, largest)))
        else:
            step = 1.0 if given else best_step(rate, largest)
        cluster.map("commit", p, step)
        self.steps[p] = step

    def _printed_step(
        self, p: int, slope: float, curvature: float, bounds: tuple[float, float]
    ) -> float:
        """Equation 13, between bounds for all variables together, or the first step of Armijo's.

        The bounds of equation 13 may also be too wide: steps end where a variable leaves its box.
        Steps 1, 1/2, 1/4, ... until the objective has decreased by a share of what its slope
        promises, and by no less than with a step of one over the number of blocks.
        """
        cluster = self.cluster
        descent = slope + float(cluster.reduce("rates", p, np.zeros(1))[0])
        if cluster.problems[p].loss.name in _LINEAR:
            best = -descent / curvature if curvature > 0.0 else np.inf
            return min(bounds[1], max(bounds[0], best))
        mean = 1.0 / len(cluster.parts)
        steps = np.array([*0.5 ** np.arange(_HALVINGS), mean, 0.0])
        values = slope * steps + 0.5 * curvature * steps**2
        values += cluster.reduce("conjugates", p, steps)
        decrease = values - values[-1]
        enough = (decrease <= _SIGMA * steps * descent) & (decrease <= decrease[-2])
        return float(steps[np.argmax(enough)]) if enough[:-2].any() else mean

    def _keep_local(self) -> None:
        """Keep the blocks' own solutions as an early model, if blocks have centres."""
        parts, division = self.cluster.parts, self.division
        if parts.places is None:
            return
        options = PartOptions(self.inner_tol)
        solutions = division.collect(parts, self.cluster.map("local"), options)
        if solutions is None:
            return
        self.early = [replace(one, n_iter=1) for one in solutions]
        self.settings.progress.show_early(self.early)

    def _locals(self) -> list[tuple[Floats, Floats]]:
        """Variables before the step and as the blocks alone have found them, if somebody looks."""
        cluster, looked_at = self.cluster, self.settings.progress.callbacks
        if self.done == 0 or not looked_at or self.show is None or cluster.parts.places is None:
            return []
        found = []
        for p, problem in enumerate(cluster.problems):
            points = np.zeros((2, problem.n_rows))
            for rows, aim in zip(cluster.members[p], cluster.map("aim", p), strict=True):
                points[:, rows] = aim
            found.append((points[0], points[1]))
        return found

    def _show_local(self, p: int, before: Floats, own: Floats) -> None:
        """Publish the local model: of a block B that solved its problem from beta,

            score(x) = sum over all rows of beta_j k(x, x_j) + sum over B of d_j k(x, x_j)

        Its figures are those of the point after the step.
        """
        problem, parts = self.cluster.problems[p], self.cluster.parts
        gap, dual, _ = self.figures[p]
        intercept = np.zeros(len(parts))
        if problem.intercept == "regularized":
            label = parts.label[problem.data_rows]
            intercept = before.sum() + np.bincount(label, own - before, minlength=len(parts))
        local = Solution(
            beta=own,
            intercept=intercept,
            scores=np.full(problem.shape, np.nan),
            objective=gap - dual,
            dual=dual,
            gap=_relative(gap, dual),
            converged=False,
            n_iter=self.done + 1,
            precision=precision_for(self.settings.tol, problem.data),
            solver="pbm",
            certificate="blocks",
            parts=parts,
            level=self.division.shifts[p],
            shared=before,
        )
        assert self.show is not None
        self.show(p, local)

    def _dual(self, p: int) -> float:
        return self.figures[p][1] if self.figures else self._measured(p)[1]

    def _measured(self, p: int) -> tuple[float, float, int]:
        """Sum of gap terms, dual value and support of one problem."""
        gaps, (dual, support, self.kernel_values) = self.cluster.reduce(
            "figures", p, np.zeros((1, 1))
        )
        return float(gaps[0, 0]), float(dual), int(support)

    def _gap(self) -> float:
        """Largest relative gap of the problems as the blocks solve them (no free intercept)."""
        return max(_relative(gap, dual) for gap, dual, _ in self.figures)

    def _goal(self) -> float:
        """The gap at which rounds end: less than the tolerance where scores are rounded."""
        return self.settings.tol * (_RUNNING if self.cluster.single else 1.0)

    def _report(self) -> bool:
        return self.settings.progress.report(
            objective=sum(gap - dual for gap, dual, _ in self.figures),
            dual=sum(dual for _, dual, _ in self.figures),
            gap=self._gap(),
            support=max(support for _, _, support in self.figures),
            where=f"round {self.done}, {len(self.cluster.parts)} blocks",
            certified=False,
            round=self.done,
            kernel_values=self.kernel_values,
            step=self.steps[0] if len(self.steps) == 1 else list(self.steps),
            parts=len(self.cluster.parts),
            bytes=self.bytes,
        )


def _relative(gap: float, dual: float) -> float:
    return gap / max(abs(gap - dual), abs(dual), 1e-300)
