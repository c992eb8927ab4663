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

from margrave.progress import Progress
from margrave.tuning.fits import Resources, Result, fit_and_score
from margrave.tuning.folds import Store
from margrave.tuning.plan import Setting
from margrave.tuning.samples import Sample, Task
from margrave.tuning.starts import Start

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
    workers : list of Worker
    memory : int or None
        Bytes for the kernel values of one fit.
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
        workers: list[Worker],
        threads: int,
        memory: int | None,
        time_limit: float | None,
        show: Callable[[dict[tuple[int, int], Result], str], None],
    ) -> None:
        self.task, self.workers, self.threads, self.memory = task, workers, threads, memory
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
