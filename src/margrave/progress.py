"""Progress of a fit: objective, gap and seconds of every round, and the signal to stop.

A solver calls :meth:`Progress.report` once a round and stops when it returns True. Everything a
user sees of a running fit (history, callbacks, progress bar, log lines) comes from that one call.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from margrave import _core

logger = logging.getLogger("margrave")

Record = dict[str, Any]
Callback = Callable[[Record], Any]

# reasons that end every problem of a fit, not only the one being solved
_FINAL = ("time_limit", "callback", "interrupted")


FOREVER = 1e18  # seconds
_WIDE = 100  # characters of a line that have room for the objective


def forever() -> float:
    """Seconds left where there is no time limit."""
    return FOREVER


def left_until(deadline: float) -> float:
    """Seconds left until a deadline (in seconds of ``time.time``)."""
    return max(0.0, deadline - time.time())


class Progress:
    """Record the rounds of a fit and decide when it ends.

    Use it as a context manager: the clock starts and the display opens on entry. Time spent in
    callbacks is not counted.

    A fit may solve several problems one after the other. A report that returned True ends one of
    them and the next report begins another: `max_iter` is counted per problem, while a time limit,
    a callback that returned True and Ctrl-C end them all.

    Parameters
    ----------
    tol : float
        Relative duality gap at which a problem is solved.
    max_iter : int, default=-1
        Rounds per problem; -1 for no limit.
    time_limit : float, optional
        Seconds for all problems together.
    callbacks : callable or iterable of callables, optional
        Each gets every record; one that returns True stops the fit.
    verbose : int, default=0
        0 shows nothing, 1 a progress bar, 2 one line per round through ``logging``.
    label : str
        Name shown in front of the bar and the lines.
    n_problems : int, default=1
        Problems whose solutions make a model together.

    Attributes
    ----------
    history : list of dict
        One record per report: round, seconds, objective, dual, gap, support, and what the solver
        adds.
    stop_reason : {None, "converged", "max_iter", "time_limit", "callback", "interrupted"}
        Why the fit ended; when problems ended for different reasons, the first that is not
        "converged". None if the solver stopped on its own.
    early : sequence of Solution or None
        The last solutions of parts that `show_early` was called with.
    shown : sequence of Solution or None
        The present point of each problem that has one, of the others the solutions of parts.

    Examples
    --------
    >>> with Progress(tol=1e-3) as progress:
    ...     progress.report(objective=2.0, dual=-1.0, gap=0.5, support=3)
    ...     progress.report(objective=1.5, dual=-1.5, gap=0.0, support=3)
    False
    True
    >>> progress.stop_reason, [record["gap"] for record in progress.history]
    ('converged', [0.5, 0.0])
    """

    def __init__(
        self,
        tol: float,
        max_iter: int = -1,
        time_limit: float | None = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        verbose: int = 0,
        label: str = "fit",
        n_problems: int = 1,
    ) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.callbacks: tuple[Callback, ...] = (
            () if callbacks is None else (callbacks,) if callable(callbacks) else tuple(callbacks)
        )
        self.label = label
        self.history: list[Record] = []
        self.stop_reason: str | None = None
        self.early: Sequence[Any] | None = None
        self.shown: Sequence[Any] | None = None
        self.n_problems = n_problems
        self._latest: list[Any] = [None] * n_problems  # None for those that have no point yet
        self._display: _Display = _display(verbose, label, tol)
        self._start = time.perf_counter()
        self._uncounted = 0.0  # seconds spent in callbacks
        self._round = 0  # rounds of the current problem
        self._ended = False  # the last report returned True
        self._reporting = threading.RLock()  # problems may be solved side by side

    def __enter__(self) -> Progress:
        self._start = time.perf_counter()
        self._display.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._display.close()
        if self.stop_reason is None and self.remaining() <= 0.0:  # noticed without a report
            self.stop_reason = "time_limit"
        if isinstance(error, _core.Stopped) and self.remaining() > 0.0:
            raise KeyboardInterrupt from error  # the core only says that it was stopped

    @property
    def seconds(self) -> float:
        """Seconds since the start, without those of the callbacks."""
        return time.perf_counter() - self._start - self._uncounted

    def remaining(self) -> float:
        """Seconds left of the time limit; inf without one."""
        return math.inf if self.time_limit is None else self.time_limit - self.seconds

    def time_left(self) -> float | None:
        """Time limit for a part of the work: what remains, at least a moment; None without one."""
        left = self.remaining()
        return None if math.isinf(left) else max(left, 1e-3)

    def interrupt(self) -> None:
        """Record that the user pressed Ctrl-C: every further report returns True."""
        self.stop_reason = "interrupted"

    def show_early(self, solutions: Sequence[Any]) -> None:
        """Publish the solutions of parts, one per problem, from which a model can be made."""
        with self._reporting:
            self.early = solutions
            self.forget_latest()

    def show_latest(self, number: int, solution: Any) -> None:
        """Publish the present point of one problem on all rows."""
        with self._reporting:
            self._latest[number] = solution
            pairs = zip(self._latest, self.early or self._latest, strict=True)
            self.shown = _complete(early if latest is None else latest for latest, early in pairs)

    @property
    def latest(self) -> Sequence[Any] | None:
        """The present points, if there is one for every problem."""
        return _complete(self._latest)

    def forget_latest(self) -> None:
        """Drop the present points: only solutions of parts are shown."""
        with self._reporting:
            self._latest, self.shown = [None] * self.n_problems, self.early

    def report(
        self,
        objective: float,
        dual: float,
        gap: float,
        support: int,
        where: str = "",
        certified: bool = True,
        ago: float = 0.0,
        **extra: object,
    ) -> bool:
        """Record one round; True means stop.

        Parameters
        ----------
        objective, dual : float
            Primal value P and dual value D of the current point.
        gap : float
            Relative duality gap (P + D) / max(|P|, |D|).
        support : int
            Number of nonzero dual variables.
        where : str
            Place in the strategy, for display: "problem 2 of 3", "level 1".
        certified : bool
            Whether `gap` is a certificate; a running figure never ends a problem as converged.
        ago : float
            Seconds since the round, when several are reported at once.
        **extra
            Whatever else the solver wants in the history. ``round=r`` replaces the count of
            reports by the solver's own count of rounds.
        """
        with self._reporting:
            if self._ended:
                self._round, self._ended = 0, False
            self._round += 1
            record: Record = {
                "round": self._round,
                "seconds": self.seconds - ago,
                "objective": float(objective),
                "dual": float(dual),
                "gap": float(gap),
                "support": int(support),
            }
            if where:
                record["where"] = where
            record.update(extra)
            self.history.append(record)
            self._ended = self._decide(record, certified)
            return self._ended

    @property
    def is_over(self) -> bool:
        """Whether every problem has to end: time limit, callback or Ctrl-C."""
        return self.stop_reason in _FINAL

    def _decide(self, record: Record, certified: bool) -> bool:
        asked = False
        try:
            self._display.show(record)
            asked = self._call_back(record)
        except KeyboardInterrupt:  # finish the report and stop, so that the model is kept
            self.interrupt()
        if self.is_over:
            return True
        reason = None
        if certified and record["gap"] <= self.tol:
            reason = "converged"
        elif asked:
            reason = "callback"
        elif self.remaining() <= 0.0:
            reason = "time_limit"
        elif 0 <= self.max_iter <= record["round"]:
            reason = "max_iter"
        if reason and self.stop_reason in (None, "converged"):
            self.stop_reason = reason
        return reason is not None

    def _call_back(self, record: Record) -> bool:
        """Give the record to every callback; True if one of them asks to stop."""
        begin = time.perf_counter()
        try:
            # every callback gets every record, whatever the others return
            answers = [callback(record) for callback in self.callbacks]
        finally:
            self._uncounted += time.perf_counter() - begin
        return any(isinstance(answer, (bool, np.bool_)) and bool(answer) for answer in answers)


def _complete(solutions: Iterable[Any]) -> list[Any] | None:
    found = list(solutions)
    return None if any(one is None for one in found) else found


class _Display(Protocol):
    def open(self) -> None: ...

    def show(self, record: Record) -> None: ...

    def close(self) -> None: ...


def _display(verbose: int, label: str, tol: float) -> _Display:
    if verbose <= 0:
        return _Silence()
    return _Bar(label, tol) if verbose == 1 else _Lines(label)


class _Silence:
    def open(self) -> None:
        pass

    def show(self, record: Record) -> None:
        pass

    def close(self) -> None:
        pass


class _Bar:
    """A bar that fills as the gap falls from 1 to tol, on a log scale.

    Where there is little room the label is cut off and the objective left out.
    """

    def __init__(self, label: str, tol: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self.tol = tol
        console = Console(stderr=True)
        columns: list[ProgressColumn] = [
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None, complete_style="cyan", finished_style="green"),
            TextColumn("gap [cyan]{task.fields[gap]}[/] of [cyan]{task.fields[tol]}[/]"),
            TextColumn("objective [cyan]{task.fields[objective]}[/]"),
            TextColumn("[cyan]{task.fields[support]}[/] SVs"),
            TimeElapsedColumn(),
        ]
        needed = len("10 chars of | gap 1.0e-01 of 1e-03 | 1,000,000 SVs | 0:00:00")
        if console.width < _WIDE:
            del columns[3]
        else:
            needed += len(" | objective -1.23457e+06")
        self.room = max(1, console.width - needed)  # characters of the label
        self.bar = RichProgress(*columns, console=console, expand=True)
        self.task = self.bar.add_task(
            shorten(label, self.room),
            total=1.0,
            gap="-",
            objective="-",
            support="-",
            tol=f"{tol:.0e}",
        )
        self.label = label

    def open(self) -> None:
        self.bar.start()

    def show(self, record: Record) -> None:
        where = record.get("where", "")
        self.bar.update(
            self.task,
            description=shorten(f"{self.label}, {where}" if where else self.label, self.room),
            completed=_completion(record["gap"], self.tol),
            gap=f"{record['gap']:.1e}",
            objective=f"{record['objective']:.6g}",
            support=f"{record['support']:,}",
        )

    def close(self) -> None:
        self.bar.stop()


def shorten(text: str, most: int) -> str:
    """The first characters of a text that is too long.

    >>> shorten("level 1", 10), shorten("problem 12 of 45", 10)
    ('level 1', 'problem 1…')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


class _Lines:
    """One log line per round, shown even if logging is not configured."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.handler: logging.Handler | None = None
        self.level = logging.NOTSET

    def open(self) -> None:
        self.level = logger.level
        if not logger.hasHandlers():
            self.handler = logging.StreamHandler()
            self.handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
            logger.addHandler(self.handler)
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO)

    def show(self, record: Record) -> None:
        where = record.get("where", "")
        logger.info(
            "%s%s round %d: %.2f s, objective %.8g, gap %.2e, %d support vectors",
            self.label,
            f", {where}," if where else "",
            record["round"],
            record["seconds"],
            record["objective"],
            record["gap"],
            record["support"],
        )

    def close(self) -> None:
        logger.setLevel(self.level)
        if self.handler is not None:
            logger.removeHandler(self.handler)


def _completion(gap: float, tol: float) -> float:
    """Fraction of the way from gap 1 to tol, on a log scale."""
    if gap <= tol:
        return 1.0
    if not gap < 1.0 or tol >= 1.0:
        return 0.0
    return math.log(gap) / math.log(tol)
