"""The way from problems to certified solutions, whatever makes the steps.

A strategy supplies a core for each problem: an object that runs rounds (`advance`), tells its
figures, certifies its point in double precision, and shows `beta`, `scores` and the work done. This
module owns what surrounds the rounds: precision, budgets, progress, the certificate, and the order
of several problems.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from margrave import _core
from margrave.problem import Data, Floats, Solution
from margrave.solvers.base import Settings, check_start, side_by_side, zero_solution

_SLICE = 0.1  # seconds in the core between two looks at progress
_NO_LIMIT = 1 << 60
_PER_ROW = 256  # bytes of vectors: the point, its solution, and what certifies or mends it
_FLOAT32_TOL = 1e-4  # single-precision kernel values certify gaps down to about 1e-5
_LARGEST_SET, _SMALLEST_SET = 2048, 512
_FLOOR = 1e-6  # of the tolerance: logistic variables below that share of C are as good as zero

Record = dict[str, Any]


class Core(Protocol):
    """What makes the steps for one problem in one precision."""

    def advance(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        """Run rounds; return how they ended and a record for each."""
        ...

    def certify(self, time_left: float) -> Record | None:
        """Figures from scores recomputed in double precision; None if stopped."""
        ...

    def figures(self) -> Record:
        """Figures from the running scores."""
        ...

    @property
    def work(self) -> tuple[int, int, int]:
        """Rounds, steps and kernel values so far."""
        ...

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        ...

    @property
    def beta(self) -> Floats:
        """Dual variables."""
        ...

    @property
    def scores(self) -> Floats:
        """Scores K beta."""
        ...


# (problem, kernels, precision, start, floor) -> core
MakeCore = Callable[[Any, "Kernels", str, Floats | None, float], Core]


def descend(
    problems: Sequence[Any],
    settings: Settings,
    starts: Sequence[Floats] | None,
    make_core: MakeCore,
    solver: str,
    size: int | None = None,
    linear: bool = False,
    where: str = "",
) -> list[Solution]:
    """Solve the problems, side by side where that pays, else one after the other.

    A `linear` core has no kernel values, works in double precision on one thread, and needs little
    memory. A problem that is one of several elsewhere says `where`.
    """
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
        way = _Descent(problems[number], settings, worker.kernels, place, linear)
        return way.run(make_core, start, solver)

    return side_by_side(run, range(len(problems)), workers, settings.progress)


def _workers(problems: Sequence[Any], settings: Settings) -> int:
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
        self.given_size = size
        self.seed, self.progress = settings.seed, settings.progress
        self.made: dict[tuple[str, float, bool], _core.KernelRows] = {}

    @cached_property
    def share(self) -> int:
        """Bytes for this worker; linear machines never ask."""
        return self.settings.memory // self.workers

    @property
    def size(self) -> int:
        """Variables per round, at most."""
        return self.given_size or max(2, min(_LARGEST_SET, math.isqrt(self.share // 32)))

    @property
    def buffer(self) -> int:
        """Bytes for kernel rows on their way."""
        return min(32 << 20, self.share // 8)

    @property
    def memory(self) -> int:
        """Bytes for packed and cached kernel rows."""
        block = 8 * min(self.size, self.data.n_rows) ** 2
        return max(0, self.share - _PER_ROW * self.data.n_rows - block - self.buffer)

    def size_for(self, n_rows: int) -> int:
        """Variables per round of a problem: small problems rarely need all their kernel values."""
        return self.given_size or min(self.size, max(_SMALLEST_SET, n_rows // 8))

    def seconds_left(self) -> float:
        """Until the time limit, for work before the first round."""
        return self.settings.seconds_left()

    def rows(self, precision: str, offset: float, cache: bool = True) -> _core.KernelRows:
        key = (precision, offset, cache)
        if key not in self.made:
            self.made.clear()  # frees the old cache before the new one grows
            self.made[key] = self.data.kernel_rows(
                precision, self.memory, self.buffer, self.threads, offset, cache
            )
        return self.made[key]


class _Descent:
    """The way of one problem from its start to a certified solution."""

    def __init__(
        self,
        problem: Any,
        settings: Settings,
        kernels: Kernels,
        where: str,
        linear: bool,
    ) -> None:
        self.problem, self.settings, self.kernels = problem, settings, kernels
        self.linear = linear
        self.progress, self.where = settings.progress, where
        self.n_iter = 0
        self.certified = False  # whether the last figures are from scores in double precision
        self.core: Core

    def run(self, make_core: MakeCore, start: Floats | None, solver: str) -> Solution:
        """Descend in single precision if the tolerance allows, then in double if need be."""
        single = (
            not self.linear and self.settings.tol >= _FLOAT32_TOL and self.problem.data.fits_float32
        )
        converged = False
        for precision in ("float32", "float64") if single else ("float64",):
            floor = _FLOOR * self.settings.tol
            try:
                self.core = make_core(self.problem, self.kernels, precision, start, floor)
                over, converged, figures = self._descend(precision, warm=start is not None)
            except KeyboardInterrupt:  # struck in Python, between two slices
                self.progress.interrupt()
                if not hasattr(self, "core"):
                    zero = np.zeros(self.problem.shape)
                    self.core = make_core(self.problem, self.kernels, precision, zero, floor)
                over, figures, self.certified = True, self.core.figures(), False
            if over:
                break
            # where rounding has led single precision uphill, zero is the better start
            start = self.core.beta if self.problem.is_better_start(figures["dual"]) else None
        return self._solution(precision, converged, figures, solver)

    def _descend(self, precision: str, warm: bool) -> tuple[bool, bool, Record]:
        """Rounds until certified: (is it over, has it converged, the last figures).

        Not over means that this precision can do no more.
        """
        tol = self.settings.tol
        # Single precision flatters its running figures a little. Who asks for many digits wants
        # them in the scores too, whose error is of the order of the square root of the gap.
        digits = 1e-8 if self.problem.is_smooth else 0.1
        target = tol * (0.9 if precision == "float32" else digits if tol < 1e-6 else 1.0)
        rounds_before, first = self.n_iter, target
        while True:
            warm = warm and self.core.work[0] == 0
            # a start that is good enough is left as it is
            goal, rounds = (max(target, tol), 1) if warm else (target, self._rounds_left())
            status, records = self.core.advance(
                goal, min(rounds, self._rounds_left()), _SLICE, self._seconds_left()
            )
            self.n_iter = rounds_before + self.core.work[0]
            stop = self._report(records, rounds_before)
            if self.core.interrupted:
                self.progress.interrupt()
            if self.progress.is_over or status == "stopped":
                return self._end(precision)
            if not stop and status == "running":
                continue
            rough = self.settings.rough and status == "converged"
            figures = self.core.figures() if rough else self.core.certify(self._seconds_left())
            if figures is None:
                return self._end(precision)
            self.certified = not rough
            if figures["gap"] <= tol or stop:
                self._report_one(figures, certified=True)
                return True, figures["gap"] <= tol, figures
            # The running figures were better than the truth: single-precision kernel values, or
            # rounding in a long sum. The certificate has left exact scores to go on from.
            warm = False
            if status == "stalled" or target < 0.02 * min(tol, first):
                if precision == "float64":
                    self._report_one(figures, certified=True)
                return precision == "float64", False, figures
            target *= 0.7

    def _end(self, precision: str) -> tuple[bool, bool, Record]:
        """Out of time or interrupted: the running figures have to do."""
        if self.core.interrupted:
            self.progress.interrupt()
        figures = self.core.figures()
        self.certified = False
        self._report_one(figures, certified=False)
        return True, False, figures

    def _rounds_left(self) -> int:
        # callbacks see every round before the next one begins
        limit = 1 if self.progress.callbacks else _NO_LIMIT
        if self.progress.max_iter < 0:
            return limit
        return min(limit, max(0, self.progress.max_iter - self.n_iter))

    def _seconds_left(self) -> float:
        return self.kernels.seconds_left()

    def _report(self, records: list[Record], rounds_before: int) -> bool:
        """Report rounds; True if a budget is used up."""
        stop = False
        for record in records:
            record["round"] += rounds_before
            stop = self._tell(record, certified=False) or stop
        return stop or (0 <= self.progress.max_iter <= self.n_iter)

    def _report_one(self, figures: Record, certified: bool) -> None:
        self._tell({**figures, "round": self.n_iter}, certified)

    def _tell(self, record: dict[str, Any], certified: bool) -> bool:
        return self.progress.report(**record, where=self.where, certified=certified)

    def _solution(self, precision: str, converged: bool, figures: Record, solver: str) -> Solution:
        beta, scores, intercept = self.core.beta, self.core.scores, figures["intercept"]
        if self.problem.intercept == "regularized":  # the core's scores hold it already
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
            interrupted=self.progress.stop_reason == "interrupted",
            definite=definite,
            weights=getattr(self.core, "weights", None),
            certificate="full" if self.certified or self.settings.rough else "estimate",
        )
