"""Fit settings on splits by a pool of threads.

A worker is a thread that takes one kernel and one split at a time and fits its settings, line by
line. Each worker caches kernel values, and prefers kernels that it has worked with before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import sklearn

from margrave.engines.cuda import is_card
from margrave.estimators._base import KernelEstimator
from margrave.progress import Progress
from margrave.resources import parse_bytes, thread_count
from margrave.tuning.fits import Resources, Result, fit_and_score
from margrave.tuning.folds import Store
from margrave.tuning.plan import Setting
from margrave.tuning.samples import Sample, Task
from margrave.tuning.starts import Start
from margrave.typing import MatrixLike

_MANY_ROWS = 40_000  # from here on solvers manage their kernel values themselves
_FITS_ON_CARD = 8  # at a time: one alone does not keep a graphics card busy
_VECTORS = 80 << 20  # bytes that a fit needs besides kernel values
_POLL = 0.1  # seconds between two checks of the workers


@dataclass(frozen=True)
class Job:
    """Settings of one kernel on one split, line by line in ascending order."""

    kernel: Hashable
    split: int
    settings: list[Setting]


@dataclass
class Worker:
    """State of a thread."""

    store: Store
    kernels: set[Hashable] = field(default_factory=set)  # those it has worked with
    progress: Progress | None = None  # of the running fit


class Search:
    """Fit and score settings on splits, with one thread per worker.

    Parameters
    ----------
    task : Task
    means : Means
    time_limit : float or None
        Seconds after which all fits are stopped.
    show : callable
        Called regularly with the results so far.

    Attributes
    ----------
    results : dict of (setting, split) -> dict
    stopped : {None, "time_limit", "interrupted", "failed"}
    """

    def __init__(
        self,
        task: Task,
        means: Means,
        time_limit: float | None,
        show: Callable[[dict[tuple[int, int], Result], str], None],
    ) -> None:
        self.task, self.workers = task, means.workers
        self.threads, self.memory = means.threads, means.memory
        self.show = show
        self.deadline = None if time_limit is None else time.perf_counter() + time_limit
        self.results: dict[tuple[int, int], Result] = {}
        self.starts: dict[tuple[int, int], Start] = {}
        self.stopped: str | None = None
        self.left: list[Job] = []
        self.lock = threading.Lock()

    def run(self, settings: Iterable[Setting], splits: Iterable[int], coarse: float) -> None:
        """Fit these settings on these splits to a gap of `coarse` or their own `tol`, if larger."""
        if self.stopped:
            return
        settings, splits = list(settings), list(splits)
        note = (
            f"{len(settings)} left"
            if coarse == 0.0
            else f"{len(settings)} on split {splits[0] + 1}"
        )
        alive = {setting.number for setting in settings}
        self.starts = {key: start for key, start in self.starts.items() if key[0] in alive}
        self.left = jobs_of(settings, splits, self._seconds)
        config = sklearn.get_config()  # thread-local
        futures: list[Future[None]] = []
        with ThreadPoolExecutor(len(self.workers)) as pool:
            try:
                for worker in self.workers:
                    futures.append(pool.submit(self._run_jobs, worker, coarse, config))
                while wait(futures, _POLL, FIRST_EXCEPTION).not_done and not self.stopped:
                    self.show(self.results, note)
                    if self.deadline is not None and time.perf_counter() > self.deadline:
                        self._stop("time_limit")
            except KeyboardInterrupt:
                self._stop("interrupted")
        for future in futures:
            future.result()
        self.show(self.results, note)

    def close(self) -> None:
        """Free the kernel values."""
        for worker in self.workers:
            worker.store.clear()

    def _run_jobs(self, worker: Worker, coarse: float, config: dict[str, Any]) -> None:
        with sklearn.config_context(**config):
            try:
                while (job := self._next(worker)) is not None:
                    self._run_job(worker, job, coarse)
            except KeyboardInterrupt:  # a fit that was stopped
                if not self.stopped:
                    self._stop("interrupted")
            except BaseException:
                self._stop("failed")
                raise

    def _next(self, worker: Worker) -> Job | None:
        """Take a job with a kernel this worker has used, else one that no other has used."""
        with self.lock:
            if self.stopped or not self.left:
                return None
            others = set().union(*(w.kernels for w in self.workers if w is not worker))
            known = [s for s in self.left if s.kernel in worker.kernels]
            free = [s for s in self.left if s.kernel not in others]
            job = (known or free or self.left)[0]
            self.left.remove(job)
            worker.kernels.add(job.kernel)
            return job

    def _run_job(self, worker: Worker, job: Job, coarse: float) -> None:
        sample: Sample | None = None
        before: tuple[Hashable, Start | None] = (None, None)
        resources = Resources(worker.store, self.threads, self.memory, self._running(worker))
        for setting in job.settings:
            if self.stopped:
                return
            key = (setting.number, job.split)
            if key in self.results and not self.results[key]["rough"]:
                before = (setting.line, self.starts.get(key))
                continue
            start = self.starts.get(key) or (before[1] if before[0] == setting.line else None)
            result, sample, found = fit_and_score(
                self.task, setting, job.split, sample, resources, start, coarse
            )
            before = (setting.line, found)
            with self.lock:
                self.results[key] = result
                if coarse and found is not None:
                    self.starts[key] = found

    def _seconds(self, setting: Setting) -> float:
        """Time that a setting took on the splits that were run."""
        own = [r for (number, _), r in self.results.items() if number == setting.number]
        return float(sum(result["fit_time"] for result in own))

    def _running(self, worker: Worker) -> Callable[[Progress], None]:
        """Make the function that is called with the progress of a new fit."""

        def running(progress: Progress) -> None:
            worker.progress = progress
            if self.deadline is not None:  # a little later than `run` stops the fit
                progress.time_limit = max(0.0, self.deadline - time.perf_counter()) + 2.0 * _POLL
            if self.stopped:
                progress.interrupt()

        return running

    def _stop(self, reason: str) -> None:
        """End all fits, which raise KeyboardInterrupt in their threads."""
        self.stopped = reason
        for worker in self.workers:
            if worker.progress is not None:
                worker.progress.interrupt()


@dataclass(frozen=True)
class Means:
    """Threads and memory, divided between the workers of a search."""

    workers: list[Worker]
    threads: int  # of each fit
    memory: int | None  # bytes for the kernel values of one fit


def divided(
    final: KernelEstimator | None,
    X: MatrixLike,
    n_rows: int,
    n_jobs: int | None,
    jobs: int,
    kernels: int,
) -> Means:
    """Create the workers for a number of jobs, each with settings of one of several kernels.

    Fits on `n_rows` rows keep their kernel values where that many rows and kernels fit into memory.
    """
    threads = thread_count(n_jobs)
    elsewhere = final is not None and final.engine is not None
    on_card = final is not None and is_card(final.engine)
    if on_card:  # fits of several threads share it
        threads = _FITS_ON_CARD
    n_workers = 1 if elsewhere and not on_card else min(threads, jobs)
    each, share, most, largest = max(1, threads // n_workers), None, 1, 0
    if final is not None:
        share = max(1, parse_bytes(final.memory_limit) // n_workers)
        if on_card:
            largest = n_rows
        matrix = 4 * n_rows**2 + _VECTORS
        if n_rows < _MANY_ROWS and matrix <= share and each == 1 and not on_card:
            most = min(kernels, share // matrix)
            share, largest = share // most, n_rows
    return Means([Worker(Store(X, most, largest)) for _ in range(n_workers)], each, share)


def jobs_of(
    settings: Iterable[Setting], splits: Iterable[int], seconds: Callable[[Setting], float]
) -> list[Job]:
    """Group settings by kernel into one job per kernel and split, the longest first.

    Without known times, a large gamma counts as long because it leads to more support vectors.
    """
    ordered = sorted(settings, key=lambda s: (repr(s.kernel), repr(s.line), s.place))
    groups = [list(own) for _, own in groupby(ordered, key=lambda s: s.kernel)]
    groups.sort(key=lambda own: (-sum(map(seconds, own)), -own[0].gamma, -len(own)))
    return [Job(own[0].kernel, split, own) for own in groups for split in splits]
