"""From problems to certified solutions, by any iterative solver.

A strategy supplies a core for each problem (`margrave.rounds.Core`), and `run_rounds` runs it until
its gap is certified. This module adds precision, budgets, progress and the order of several
problems.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from margrave import cuda
from margrave.problem import BaseProblem, Data, Floats, Solution
from margrave.rounds import (
    EXACT,
    Core,
    LinearCore,
    Outcome,
    Record,
    Watch,
    floor_for,
    precision_for,
    run_rounds,
    set_size,
)
from margrave.solvers.base import (
    PER_ROW,
    Settings,
    Show,
    check_memory,
    check_start,
    side_by_side,
    stop_reason,
    zero_solution,
)

_SLICE = 0.1  # seconds in the core between two progress reports
_NO_LIMIT = 1 << 60
_LARGEST_SET, _SMALLEST_SET = 2048, 512
_MORE_ROUNDS = 10  # at least, for exact solutions

P = TypeVar("P", bound=BaseProblem)
# (problem, kernels, precision, start, floor) -> core
MakeCore = Callable[[P, "Kernels", str, Floats | None, float], Core]


def descend(
    problems: Sequence[P],
    settings: Settings,
    starts: Sequence[Floats] | None,
    make_core: MakeCore[P],
    solver: str,
    size: int | None = None,
    linear: bool = False,
    where: str = "",
    show: Show | None = None,
) -> list[Solution]:
    """Solve the problems, in parallel where that is faster, else one after the other.

    A `linear` core has no kernel values, works in double precision on one thread, and needs little
    memory. `where` describes the place in the strategy, for progress reports; `show` gets the
    solution of each problem as soon as it is there.
    """
    if not linear:
        check_memory(problems, settings)
    for problem, start in zip(problems, starts or [], strict=bool(starts)):
        check_start(problem, start)
    workers = min(len(problems), settings.threads) if linear else _workers(problems, settings)
    worker = threading.local()  # each keeps the kernel rows that its problems share

    def run(number: int) -> Solution:
        if not hasattr(worker, "kernels"):
            worker.kernels = Kernels(problems[0].data, settings, workers, size)
        place = f"problem {number + 1} of {len(problems)}" if len(problems) > 1 else where
        trivial = zero_solution(problems[number], solver)
        if trivial is not None:
            settings.progress.report(objective=0.0, dual=0.0, gap=0.0, support=0, where=place)
            return trivial
        start = None if starts is None else starts[number]
        descent = _Descent(problems[number], settings, worker.kernels, place, linear)
        solution = descent.run(make_core, start, solver)
        if show is not None:
            show(number, solution)
        return solution

    return side_by_side(run, range(len(problems)), workers, settings.progress)


def _workers(problems: Sequence[BaseProblem], settings: Settings) -> int:
    """How many problems to solve at a time.

    One problem keeps several threads busy only while it computes kernel values, so many problems go
    side by side if their kernel matrices fit into memory together. A Python kernel holds the
    interpreter's lock: one at a time.
    """
    if len(problems) < 2 * settings.threads or problems[0].data.kernel.is_callable:
        return 1
    largest = max(problem.n_rows for problem in problems)
    return settings.threads if 4 * largest**2 * settings.threads < settings.memory else 1


class Kernels:
    """Kernel rows of one data set, made when asked for, in one precision at a time.

    The worker's share of the memory goes to vectors and buffers first (a working set's kernel block
    gets a quarter at most), then to packed and cached rows.
    """

    def __init__(self, data: Data, settings: Settings, workers: int, size: int | None) -> None:
        self.data, self.settings, self.workers = data, settings, workers
        self.threads = max(1, settings.threads // workers)
        self.given_size = None if size is None else max(2, min(size, data.n_rows))
        self.seed, self.progress = settings.seed, settings.progress
        self.made: dict[tuple[str, float, bool, int], cuda.AnyKernelRows] = {}

    @cached_property
    def share(self) -> int:
        """Bytes for this worker; linear cores never need it."""
        return self.settings.memory // self.workers

    @property
    def size(self) -> int:
        """Variables per round, at most."""
        return self.given_size or set_size(self.share, _LARGEST_SET)

    @property
    def buffer(self) -> int:
        """Bytes for kernel rows that are being computed."""
        return min(32 << 20, self.share // 8)

    @property
    def memory(self) -> int:
        """Bytes for packed and cached kernel rows."""
        block = 8 * min(self.size, self.data.n_rows) ** 2
        return max(0, self.share - PER_ROW * self.data.n_rows - block - self.buffer)

    def size_for(self, n_rows: int) -> int:
        """Variables per round of a problem: small problems rarely need all their kernel values."""
        return self.given_size or min(self.size, max(_SMALLEST_SET, n_rows // 8))

    def seconds_left(self) -> float:
        """Until the time limit, for work before the first round."""
        return self.settings.seconds_left()

    def rows(
        self, precision: str, offset: float, cache: bool = True, spare: int = 0
    ) -> cuda.AnyKernelRows:
        """Make the kernel rows, which leave `spare` bytes of the memory."""
        key = (precision, offset, cache, spare)
        if key not in self.made:
            self.made.clear()  # frees the old cache before the new one grows
            memory = max(0, self.memory - spare)
            self.made[key] = self.data.kernel_rows(
                precision, memory, self.buffer, self.threads, offset, cache
            )
        return self.made[key]


class _Descent(Generic[P]):
    """Solves one problem: precision, budgets and reports around `run_rounds`."""

    def __init__(
        self,
        problem: P,
        settings: Settings,
        kernels: Kernels,
        where: str,
        linear: bool,
    ) -> None:
        self.problem, self.settings, self.kernels = problem, settings, kernels
        self.linear = linear
        self.progress, self.where = settings.progress, where
        self.n_iter = 0
        self.best: tuple[Floats, Floats] | None = None  # the point to return, if not the core's
        self.certified = False  # whether the last figures are from scores in double precision
        self.core: Core

    def run(self, make_core: MakeCore[P], start: Floats | None, solver: str) -> Solution:
        """Descend in single precision if the tolerance allows, then in double if need be."""
        tol, converged = self.settings.tol, False
        in_double = self.linear or self.settings.exact
        first = "float64" if in_double else precision_for(tol, self.problem.data)
        floor = floor_for(tol)
        for precision in ("float32", "float64") if first == "float32" else ("float64",):
            try:
                self.core = make_core(self.problem, self.kernels, precision, start, floor)
                over, converged, figures = self._descend(precision, warm=start is not None)
            except KeyboardInterrupt:  # in Python, between two slices
                self.progress.interrupt()
                if not hasattr(self, "core"):
                    zero = np.zeros(self.problem.shape)
                    self.core = make_core(self.problem, self.kernels, precision, zero, floor)
                over, figures, self.certified = True, self.core.figures(), False
            if over:
                break
            # where rounding errors have increased the dual, zero is the better start
            start = self.core.beta if self.problem.is_better_start(figures["dual"]) else None
        return self._solution(precision, converged, figures, solver)

    def _descend(self, precision: str, warm: bool) -> tuple[bool, bool, Record]:
        """Rounds until certified: (is it over, has it converged, the last figures).

        Not over means that this precision is exhausted.
        """
        tol = self.settings.tol
        # Running figures in single precision are slightly too optimistic. With a small tol the
        # scores should be accurate too; their error is of the order of the root of the gap.
        digits = 1e-8 if self.problem.is_smooth else 0.1
        target = tol * (0.9 if precision == "float32" else digits if tol < 1e-6 else 1.0)
        before = self.n_iter
        watch = Watch(
            self.kernels.seconds_left,
            lambda records: self._report(records, before),
            self._is_over,
            self._rounds_left,
            _SLICE,
        )
        outcome = run_rounds(
            self.core, tol, watch, target, certify=not self.settings.rough, is_warm=warm
        )
        if outcome.certified and outcome.status == "converged" and self.settings.exact:
            outcome = self._improve(outcome, watch)
        if self.core.interrupted:
            self.progress.interrupt()
        self.certified = outcome.certified
        over = outcome.status != "stalled" or precision == "float64"
        if over:
            self._report_one(outcome.figures, certified=outcome.status != "stopped")
        return over, outcome.status == "converged", outcome.figures

    def _improve(self, outcome: Outcome, watch: Watch) -> Outcome:
        """Go on below the tolerance; a limit that ends this returns to the certified point."""
        self.best = self.core.beta.copy(), self.core.scores.copy()
        before, most = watch.report, 2 * self.n_iter + _MORE_ROUNDS
        end = self.progress.seconds + 0.5 * watch.seconds_left()  # the certificate needs time too
        further = replace(
            watch,
            report=lambda new: before(new) or self.n_iter >= most,
            rounds=lambda: max(0, min(watch.rounds(), most - self.n_iter)),
            seconds_left=lambda: min(watch.seconds_left(), max(0.0, end - self.progress.seconds)),
        )
        found = run_rounds(self.core, EXACT, further, EXACT)
        if not (found.certified and found.figures["gap"] <= outcome.figures["gap"]):
            return outcome
        self.best = None
        return replace(found, status="converged")

    def _is_over(self) -> bool:
        if self.core.interrupted:
            self.progress.interrupt()
        return self.progress.is_over

    def _rounds_left(self) -> int:
        # callbacks see every round before the next one begins
        limit = 1 if self.progress.callbacks else _NO_LIMIT
        if self.progress.max_iter < 0:
            return limit
        return min(limit, max(0, self.progress.max_iter - self.n_iter))

    def _report(self, records: list[Record], rounds_before: int) -> bool:
        """Report rounds; True if a budget is used up."""
        self.n_iter = rounds_before + self.core.work[0]
        stop = False
        for record in records:
            record["round"] += rounds_before
            stop = self._record(record, certified=False) or stop
        return stop or (0 <= self.progress.max_iter <= self.n_iter)

    def _report_one(self, figures: Record, certified: bool) -> None:
        self._record({**figures, "round": self.n_iter}, certified)

    def _record(self, record: dict[str, Any], certified: bool) -> bool:
        if "kernel_values" in record:
            record["kernel_values"] += self.problem.start_values
        return self.progress.report(**record, where=self.where, certified=certified)

    def _solution(self, precision: str, converged: bool, figures: Record, solver: str) -> Solution:
        beta, scores = (self.core.beta, self.core.scores) if self.best is None else self.best
        intercept = figures["intercept"]
        if self.problem.intercept == "regularized":  # the core's scores include it
            intercept = beta.sum(axis=0)
            scores = scores - intercept
        in_double = self.certified or precision == "float64"
        noise = 1e-9 if in_double else max(1e-4, 0.1 * self.settings.tol)
        scale = max(abs(figures["objective"]), abs(figures["dual"]), self.problem.least_scale)
        definite = self.problem.data.is_definite(beta, scores, scale, noise)
        return Solution(
            beta=beta,
            intercept=intercept,
            scores=scores,
            objective=float(figures["objective"]),
            dual=float(figures["dual"]),
            gap=float(figures["gap"]) if definite else np.inf,
            converged=converged and definite,
            n_iter=self.n_iter,
            precision=precision,
            solver=solver,
            stop_reason=stop_reason(self.progress, "hulls" if self.problem.is_hull else None),
            definite=definite,
            weights=self.core.weights if isinstance(self.core, LinearCore) else None,
            certificate="full" if self.certified or self.settings.rough else "estimate",
        )
