"""Copies of the active rows at the workers, from one choice of them to the next.

Most rows of a choice were active before: only the others are sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave.blocks.active import ActiveRows
from margrave.engines import Arrivals, Engine, Recovery, Shards
from margrave.problem import AnyProblem

Rows = NDArray[np.int64]


class Copies:
    """Workers that each hold the problem on the active rows.

    Parameters
    ----------
    engine : Engine
    recovery : Recovery
        What happens when workers are lost.
    precision : {"float32", "float64"}
    floor : float
        See `ActiveRows`.
    memory : int
        Bytes for all workers together.
    threads : int
    """

    def __init__(
        self,
        engine: Engine,
        recovery: Recovery,
        precision: str,
        floor: float,
        memory: int,
        threads: int,
    ) -> None:
        self.engine, self.recovery, self.arrivals = engine, recovery, Arrivals(engine)
        self.precision, self.floor = precision, floor
        self.memory, self.threads = memory, threads
        self.shards: Shards | None = None
        self.moved_before = 0  # bytes, by workers that are released
        self.problem: AnyProblem | None = None
        self.rows: Rows = np.empty(0, dtype=np.int64)
        self.held: Rows | None = None  # the rows that the workers have

    def choose(self, problem: AnyProblem, rows: Rows) -> None:
        """Set the problem, and which of all rows are its own, in ascending order."""
        self.problem, self.rows = problem, rows

    def ask(self, step: Callable[[Shards], list[Any]]) -> list[Any]:
        """Ask the workers; with new copies of the rows if one of them is lost, or has joined."""

        def again() -> list[Any]:
            if self.shards is not None and self.arrivals.have_come():
                self.close()
            if self.shards is None:
                self.arrivals.begin()
                self.shards = self._scattered()
                self.shards.map("hold", self.problem)
                self.arrivals.settle()
            elif self.held is not self.rows:
                self.shards.map("hold", *self._difference())
            self.held = self.rows
            return step(self.shards)

        return self.recovery.steadily(again, self.close)

    @property
    def moved(self) -> int:
        """Bytes that the driver and all workers have sent, as if each were elsewhere."""
        return self.moved_before + (0 if self.shards is None else self.shards.moved)

    def close(self) -> None:
        """Release the workers' copies."""
        if self.shards is not None:
            self.moved_before += self.shards.moved
            self.shards.close()
        self.shards = self.held = None

    def _difference(self) -> tuple[AnyProblem | None, NDArray[np.int32] | None]:
        """The problem with its new rows alone, and the places that the others had; see `hold`."""
        problem, held = self.problem, self.held
        assert problem is not None and held is not None
        if problem.data.kernel.is_precomputed:  # new rows have new columns
            return problem, None
        at = np.minimum(np.searchsorted(held, self.rows), len(held) - 1)
        places = np.where(held[at] == self.rows, at, -1).astype(np.int32)
        fresh = replace(problem.data, X=problem.data.X[np.flatnonzero(places < 0)])
        return replace(problem, data=fresh), places

    def _scattered(self) -> Shards:
        """One copy per worker of another process, one for all threads here."""
        engine = self.engine
        count = engine.n_workers if engine.is_remote else 1
        threads, memory = engine.share(count, self.threads, self.memory)
        common = {
            "precision": self.precision,
            "floor": self.floor,
            "memory": memory,
            "threads": threads,
            "at_work": 1 if engine.is_remote else min(engine.n_workers, threads),
        }
        return engine.scatter(
            ActiveRows, [{"number": number, "count": count, **common} for number in range(count)]
        )
