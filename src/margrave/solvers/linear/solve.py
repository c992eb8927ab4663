"""Linear problems: weights instead of kernel values, by Newton's method or coordinate descent.

    min over w, b   1/2 |w|^2 + sum_i loss_i(x_i'w + b)

`newton_linear` runs Newton's method for all problems on the same rows side by side, so that they
share the passes over the data; `descend_linear` runs coordinate descent for one problem per thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from margrave import _core
from margrave.blocks.passes import Passes
from margrave.losses import LOSSES
from margrave.problem import BaseProblem, Data, Floats, Problem, Solution, is_single
from margrave.rounds import Core
from margrave.rows import sample_rows
from margrave.solvers.base import (
    Settings,
    check_start,
    refuse_unless,
    side_by_side,
    zero_solution,
)
from margrave.solvers.certificate import around_mean
from margrave.solvers.kernel.descent import Kernels, descend
from margrave.solvers.linear.newton import NewtonRun

_LOSSES = tuple(name for name in LOSSES if name not in ("one_class", "hull"))
_SAMPLED = 20_000  # rows from which a sample of them is solved first
_SAMPLED_SMOOTH = 100_000  # the same for smooth losses, which need few steps anyway
_SHARE = 10  # of the rows, in a sample
_SAMPLE_TOL = 1e-2

Point = tuple[Floats, float]  # weights and intercept


def is_linear(problems: Sequence[BaseProblem]) -> TypeGuard[Sequence[Problem]]:
    """Whether the problems can be solved in weights: linear kernel, one score per row."""
    return all(is_single(p) and p.data.is_linear and p.loss.name in _LOSSES for p in problems)


# --- coordinate descent --------------------------------------------------------------------------


def descend_linear(
    problems: Sequence[Problem],
    settings: Settings,
    starts: Sequence[Floats] | None = None,
    patience: float = math.inf,
) -> list[Solution]:
    """Coordinate descent on the dual; it stops after `patience` passes."""
    refuse_unless("cd", problems, losses=_LOSSES)
    if problems[0].data.in_blocks:
        raise ValueError(
            "the solver 'cd' needs all rows in one array (it may be memory-mapped);"
            " rows in blocks need solver='newton'"
        )

    def core_of(
        problem: Problem, kernels: Kernels, precision: str, start: Floats | None, floor: float
    ) -> Core:
        team = _core.Team(kernels.threads)
        passes = Passes(problem.data, problem.block_list, team, kernels.seconds_left)
        terms = _core.RowTerms(problem.loss.core(floor), problem.y, problem.C, team)
        return _core.LinearDescent(
            passes.rows(), terms, problem.intercept or "none", start, settings.seed, patience
        )

    return around_mean(
        problems,
        settings,
        lambda near, inner: descend(near, inner, starts, core_of, "cd", linear=True),
    )


# --- Newton --------------------------------------------------------------------------------------


def newton_linear(
    problems: Sequence[Problem],
    settings: Settings,
    starts: Sequence[Floats] | None = None,
) -> list[Solution]:
    """Newton's method on the primal, problems on the same rows side by side."""
    refuse_unless("newton", problems, losses=_LOSSES)
    return around_mean(problems, settings, lambda near, inner: _newton(near, inner, starts))


def _newton(
    problems: Sequence[Problem], settings: Settings, starts: Sequence[Floats] | None
) -> list[Solution]:
    for problem, start in zip(problems, starts or [], strict=bool(starts)):
        check_start(problem, start)
    groups: dict[tuple[int, ...], list[int]] = {}
    solutions: dict[int, Solution] = {}
    for number, problem in enumerate(problems):
        trivial = zero_solution(problem, "newton")
        if trivial is None:
            groups.setdefault(tuple(problem.block_list), []).append(number)
        else:
            settings.progress.report(objective=0.0, dual=0.0, gap=0.0, support=0)
            solutions[number] = trivial
    workers = settings.threads if len(groups) >= 2 * settings.threads else 1

    def report_of(number: int) -> Callable[..., bool]:
        where = f"problem {number + 1} of {len(problems)}" if len(problems) > 1 else ""

        def report(**record: Any) -> bool:
            stop: bool = settings.progress.report(**record, where=where)
            return stop or settings.progress.is_over

        return report

    def run(numbers: list[int]) -> None:
        group = _Group(
            [problems[i] for i in numbers],
            settings,
            settings.threads // workers,
            [report_of(i) for i in numbers],
        )
        runs = group.run(None if starts is None else [starts[i] for i in numbers])
        interrupted = settings.progress.stop_reason == "interrupted"
        for number, newton in zip(numbers, runs, strict=True):
            solutions[number] = newton.certified(newton.solution(interrupted), group.threads)

    side_by_side(run, list(groups.values()), workers, settings.progress)
    return [solutions[number] for number in range(len(problems))]


class _Group:
    """Problems on the same rows."""

    def __init__(
        self,
        problems: list[Problem],
        settings: Settings,
        threads: int,
        reports: list[Callable[..., bool]],
    ) -> None:
        self.problems, self.settings, self.reports = problems, settings, reports
        self.threads = max(1, threads)
        self.team = _core.Team(self.threads)
        self.data = problems[0].data
        self.passes = Passes(self.data, problems[0].block_list, self.team, self._seconds_left)

    def run(self, starts: list[Floats] | None) -> list[NewtonRun]:
        """Run Newton's method for all of them, side by side."""
        progress, tol = self.settings.progress, self.settings.tol
        runs = [
            NewtonRun(problem, self.passes, report, tol)
            for problem, report in zip(self.problems, self.reports, strict=True)
        ]
        try:
            for run, point in zip(runs, self._first_points(starts), strict=True):
                if point is not None:
                    run.begin(*point)
            self.passes.run([run.steps() for run in runs])
        except (_core.Stopped, KeyboardInterrupt) as stop:
            if self.team.interrupted or isinstance(stop, KeyboardInterrupt):
                progress.interrupt()
            for run in runs:
                run.report_last()
        return runs

    def _first_points(
        self, starts: list[Floats] | None
    ) -> list[tuple[Floats, float, Floats | None] | None]:
        """Weights, intercept and dual variables to begin with, None for zero."""
        if starts is not None:
            betas = np.array(starts)
            W = np.array(self.passes.combinations(betas))
            F = self.passes.scores(W)
            found = []
            for problem, w, f, beta in zip(self.problems, W, F, betas, strict=True):
                b = float(beta.sum()) if problem.intercept == "regularized" else 0.0
                if problem.intercept == "free":
                    terms = _core.RowTerms(problem.loss.core(), problem.y, problem.C, self.team)
                    b = terms.best_intercept(f, 0.0)
                found.append((w, b, beta))
            return list(found)
        enough = _SAMPLED_SMOOTH if self.problems[0].is_smooth else _SAMPLED
        if self.passes.n_rows < max(enough, _SHARE * self.passes.n_features):
            return [None] * len(self.problems)
        return [None if p is None else (*p, None) for p in self._sample_points()]

    def _sample_points(self) -> list[Point | None]:
        """Optimal weights for a sample of the rows, with weights scaled up to all rows."""
        n = self.passes.n_rows
        rng = np.random.default_rng(self.settings.seed)
        chosen = np.sort(rng.choice(n, n // _SHARE, replace=False))
        X = sample_rows(self.data.X, self.problems[0].data_rows[chosen])
        data = Data(X, self.data.kernel, np.array([0, len(chosen)]))
        sampled, numbers = [], []
        for number, problem in enumerate(self.problems):
            y, C = problem.y[chosen], problem.C[chosen]
            if problem.loss.core().labels and abs(float(y.mean())) == 1.0:
                continue  # only one class in the sample
            C = C * (problem.C.sum() / C.sum())
            sampled.append(Problem(data, None, y, C, problem.loss, problem.intercept))
            numbers.append(number)
        points: list[Point | None] = [None] * len(self.problems)
        if sampled:
            settings = replace(self.settings, tol=max(self.settings.tol, _SAMPLE_TOL))
            reports: list[Callable[..., bool]] = [self._silent] * len(sampled)
            runs = _Group(sampled, settings, self.threads, reports).run(None)
            for number, newton in zip(numbers, runs, strict=True):
                w, b, *_ = newton.best
                points[number] = (w, float(b))
        return points

    def _silent(self, **record: object) -> bool:
        return self.settings.progress.is_over

    def _seconds_left(self) -> float:
        return max(0.0, min(self.settings.progress.remaining(), 1e18))
