"""What a fit does about lost workers, in one place: it repeats the step in which they were lost.

    repeat
        build what the last loss has destroyed, from the last checkpoint
        the step
    until no worker was lost

Steps are nested: a call of the shards, a stage of a solver, the whole fit. Whatever repairs belong
to a step are inside of it, so that a loss during a repair is one more loss, and nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from margrave.engines.base import MOST_LOSSES, Engine, ShardLost

logger = logging.getLogger("margrave")

T = TypeVar("T")

_CHECK = 1.0  # seconds between two looks for workers that have joined
_SHARE = 0.1  # of the time, at most, for moving to them


def _nothing() -> None:
    pass


class Recovery:
    """The losses of one fit, and the loop that repeats its steps.

    Examples
    --------
    >>> recovery, left = Recovery(), ["lost", "lost again", "here"]
    >>> def step():
    ...     found = left.pop(0)
    ...     if found != "here":
    ...         raise ShardLost(["a worker"], found)
    ...     return found
    >>> recovery.steadily(step), recovery.losses
    ('here', 2)
    """

    def __init__(self) -> None:
        self.losses = 0

    def steadily(self, step: Callable[[], T], release: Callable[[], None] = _nothing) -> T:
        """Run a step until no worker is lost in it; `release` gives up what a loss has left."""
        while True:
            try:
                return step()
            except ShardLost as lost:
                self.losses += 1
                if self.losses > MOST_LOSSES:
                    raise RuntimeError(
                        f"workers were lost {self.losses} times in one fit, the last time: {lost}"
                    ) from lost
                logger.warning("%s; the step is repeated with the workers that are left", lost)
                release()


class Arrivals:
    """Notices workers that have joined since shards were built."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._known, self._next, self._begun = 0, 0.0, time.monotonic()

    def begin(self) -> None:
        """Shards are about to be built, on all workers that are there."""
        self._begun = time.monotonic()
        self._known = self.engine.n_workers if self.engine.is_remote else 0

    def settle(self) -> None:
        """Shards were built: look again when the time for it is a small share."""
        now = time.monotonic()
        self._next = now + max(_CHECK, (now - self._begun) / _SHARE)

    def have_come(self) -> bool:
        """Whether there are more workers than when shards were built."""
        if not self.engine.is_remote or time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _CHECK
        now = self.engine.n_workers
        self._known, before = min(now, self._known), self._known
        return now > before
