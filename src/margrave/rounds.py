"""Rounds until certified: the one loop behind whole problems, parts, shards and blocks.

    repeat   rounds of the core until its running gap is below a target
    certify  the gap in double precision;   stop if it is at most tol
    else     the running gap was too optimistic: lower the target and continue

`run_rounds` below is that loop. The running gap may be too optimistic because kernel values are in
single precision, or because long sums have accumulated rounding errors; after a certificate the
core continues from exact scores. All tolerances that determine precision, targets and stopping are
here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from margrave.problem import Data, Floats
from margrave.progress import FOREVER

Record = dict[str, Any]

EXACT = 1e-12  # gap at which a problem of few rows counts as solved exactly
FEW = 1000  # rows for which that is attempted, since it takes milliseconds
_FLOAT32_TOL = 1e-4  # single-precision kernel values certify gaps down to about 1e-5
_LOWER = 0.7  # factor of the target after a failed certificate
_LOWEST = 0.02  # of the tolerance: below this target the precision is exhausted
_FLOOR = 1e-6  # of the tolerance: logistic variables below this fraction of C count as zero
_NO_LIMIT = 1 << 60


class Core(Protocol):
    """An iterative solver of one problem in one precision."""

    def advance(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        """Run rounds: "running", "converged", "stalled" or "stopped", and a record for each."""
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


@runtime_checkable
class LinearCore(Core, Protocol):
    """A core that works on the feature weights of a linear model."""

    @property
    def weights(self) -> Floats:
        """Feature weights w."""
        ...


def precision_for(tol: float, data: Data) -> str:
    """Precision of kernel values that is good enough for a relative gap."""
    return "float32" if tol >= _FLOAT32_TOL and data.fits_float32 else "float64"


def floor_for(tol: float) -> float:
    """Fraction of C below which a logistic variable counts as zero."""
    return _FLOOR * tol


def set_size(memory: int, largest: int) -> int:
    """Variables per round, whose kernel block takes a quarter of the memory at most."""
    return max(2, min(largest, math.isqrt(memory // 32)))


@dataclass(frozen=True)
class Limits:
    """Limits after which an auxiliary problem is left unfinished."""

    rounds: int = _NO_LIMIT
    steps_per_row: int = 100_000  # beyond this a descent would not end

    def exceeded(self, core: Core, n_rows: int) -> bool:
        """Whether the core has reached a limit."""
        rounds, steps, _ = core.work
        return rounds >= self.rounds or steps > self.steps_per_row * n_rows


# for solutions that only serve as starts
ROUGH = Limits(rounds=30, steps_per_row=20)


def _never(records: list[Record]) -> bool:
    return False


@dataclass(frozen=True)
class Watch:
    """What is checked between rounds: the time, and whether to continue."""

    seconds_left: Callable[[], float]
    report: Callable[[list[Record]], bool] = _never  # True if a budget is spent
    is_over: Callable[[], bool] = lambda: False  # stopped from outside
    rounds: Callable[[], int] = lambda: 1  # until the next check
    seconds: float = FOREVER  # until the next check


@dataclass(frozen=True)
class Outcome:
    """How the rounds ended, and the last figures.

    "converged" or "stalled" (this precision is exhausted); "spent" (a budget) or "stopped" (no
    time left, or Ctrl-C), which say nothing about the problem.
    """

    status: str
    figures: Record
    certified: bool


def run_rounds(
    core: Core,
    tol: float,
    watch: Watch,
    target: float | None = None,
    certify: bool = True,
    is_warm: bool = False,
) -> Outcome:
    """Run rounds until the relative gap `tol` is certified, or nothing more can be done.

    Rounds aim at a running gap of `target`, by default `tol`. Without `certify` the running gap
    decides. A warm start (`is_warm`) that already reaches `tol` is not improved.
    """
    target = first = tol if target is None else target
    while True:
        is_warm = is_warm and core.work[0] == 0
        goal, rounds = (max(target, tol), 1) if is_warm else (target, watch.rounds())
        status, records = core.advance(
            goal, min(rounds, watch.rounds()), watch.seconds, watch.seconds_left()
        )
        spent = watch.report(records)
        if status == "stopped" or watch.is_over():
            return Outcome("stopped", core.figures(), False)
        if status == "running" and not spent:
            continue
        if status == "converged" and not certify:
            return Outcome("converged", core.figures(), False)
        figures = core.certify(watch.seconds_left()) if certify else core.figures()
        if figures is None:
            return Outcome("stopped", core.figures(), False)
        if figures["gap"] <= tol:
            return Outcome("converged", figures, certify)
        if spent:
            return Outcome("spent", figures, certify)
        if status == "stalled" or target < _LOWEST * min(tol, first):
            return Outcome("stalled", figures, certify)
        is_warm = False
        target *= _LOWER
