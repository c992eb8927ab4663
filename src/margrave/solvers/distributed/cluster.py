"""Problems whose rows are in shards on an engine, with checkpoints and recovery.

Every shard holds the dual variables and scores of its rows (`blocks/kernel.py`). From time to time
the driver fetches this state as a checkpoint. When a worker is lost (or, with a checkpoint folder,
the whole run), the work since the last checkpoint is repeated, with bitwise the same results: all
calls are steps of `steadily`, which builds the shards anew where a loss has destroyed them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margrave.blocks import BlockState, KernelBlock
from margrave.blocks.point import stack
from margrave.engines import Arrivals, Engine, Shards
from margrave.partitions import Parts
from margrave.problem import Data, Floats, Problem
from margrave.progress import FOREVER
from margrave.rounds import floor_for
from margrave.rows import size_in_bytes
from margrave.solvers.base import CHEAP, PER_ROW, PER_ROW_OF_SHARDS, Settings
from margrave.solvers.distributed.checkpoint import Checkpoint, warned

logger = logging.getLogger("margrave")

Rows = NDArray[np.int64]
T = TypeVar("T")


def bytes_per_row(engine: Engine) -> int:
    """Bytes of vectors in this process."""
    return PER_ROW if engine.is_remote else PER_ROW_OF_SHARDS


def memory_left(data: Data, settings: Settings, engine: Engine) -> int:
    """Bytes for caches, buffers and copies of the rows."""
    return max(settings.memory // 8, settings.memory - bytes_per_row(engine) * data.n_rows)


class Cluster:
    """Problems of one fit on shards, with their last checkpoint.

    Parameters
    ----------
    problems : list of Problem
        On the same rows; replaced one by one by `become`.
    parts : Parts
    settings : Settings
    engine : Engine
    checkpoint : Checkpoint, optional
        Where to write checkpoints on disk as well.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        parts: Parts,
        settings: Settings,
        engine: Engine,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.problems, self.parts, self.settings = list(problems), parts, settings
        self.engine, self.checkpoint = engine, checkpoint
        self.data: Data = problems[0].data
        # rows of each problem in each part
        self.members = [[p.members(rows) for rows in parts.rows] for p in problems]
        # state of each shard, their problems, and what the strategy needs
        self.saved: tuple[list[list[BlockState]] | None, list[Problem], dict[str, Any]]
        self.saved = (None, list(problems), {})
        self.moved_before, self.checkpoint_bytes = 0, 0
        self.exchanged = 0  # bytes, by what is released or was not a call of these shards
        self.single: set[int] = set()  # problems whose scores are sums of single-precision values
        self.shards: Shards
        self.has_shards = False
        self.version = 0  # how often they were built; then their state is that of a checkpoint
        self.arrivals = Arrivals(engine)
        self.steadily(lambda: None)

    @property
    def memory(self) -> int:
        """Bytes for caches and buffers."""
        return memory_left(self.data, self.settings, self.engine)

    def bound(self, p: int) -> float:
        """The loss of zero scores; minus it is a lower bound on the dual value."""
        return self.problems[p].zero_primal

    # --- calls -----------------------------------------------------------------------------

    def steadily(self, step: Callable[[], T]) -> T:
        """Run a step on the shards, again from the last checkpoint if a worker is lost.

        A step finds by `version` that the shards are back at the checkpoint.
        """

        def on_shards() -> T:
            if not self.has_shards:
                self._build()
            return step()

        return self.settings.recovery.steadily(on_shards, self.abandon)

    def map(self, method: str, *args: object) -> list[Any]:
        """Call a method of all shards."""
        return self.shards.map(method, *args)

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of all shards, each with its own arguments."""
        return self.shards.each(method, arguments)

    def reduce(self, method: str, *args: object) -> Any:
        """Call a method of all shards and add up the results."""
        return self.shards.reduce(method, *args)

    @property
    def moved(self) -> int:
        """Bytes sent to and from the shards in rounds, without those of checkpoints."""
        now = self.shards.moved - self.checkpoint_bytes if self.has_shards else 0
        return self.moved_before + now

    @property
    def numbers(self) -> int:
        """Numbers exchanged with the shards so far, without forwarding and checkpoints."""
        return (self.exchanged + (self.shards.exchanged if self.has_shards else 0)) // 8

    # --- the point -------------------------------------------------------------------------

    def gather(self, p: int) -> Floats:
        """Fetch the present variables of a problem."""
        return self._joined(p, self.shards.checkpoint())[0]

    def last(self, p: int) -> tuple[Floats, Floats]:
        """Variables and scores of a problem at the last checkpoint."""
        states = self.saved[0]
        if states is None:
            problem = self.problems[p]
            return np.zeros(problem.n_rows), problem.zero_scores
        return self._joined(p, states)

    def become(self, p: int, problem: Problem, beta: Floats, precision: str) -> None:
        """Replace a problem by another one on the same rows, from given variables."""
        self.problems[p] = problem
        self.each(
            "adopt",
            [(p, problem.intercept, problem.y[rows], beta[rows]) for rows in self.members[p]],
        )
        if beta.any():
            self.rebuild(p, precision)

    def rebuild(self, p: int, precision: str) -> None:
        """Recompute the scores of a problem; raises ``_core.Stopped`` when the time is over."""
        points, coef = self.support(p)
        is_cheap = self.data.is_linear or len(coef) * self.data.n_rows < CHEAP
        deadline = FOREVER if is_cheap else self.settings.deadline()
        self.map("rebuild", p, points, coef, precision, deadline)
        self.single.discard(p)

    def support(self, p: int) -> tuple[Any, Floats]:
        """All rows with a nonzero variable, and their variables."""
        found = self.map("support", p)
        return stack([rows for rows, _ in found]), np.concatenate([coef for _, coef in found])

    # --- checkpoints -----------------------------------------------------------------------

    def save(self, **driver: Any) -> None:
        """Save the state of all shards, and what the strategy needs to continue from here."""
        before, exchanged = self.shards.moved, self.shards.exchanged
        states: list[list[BlockState]] = self.shards.checkpoint()
        self.checkpoint_bytes += self.shards.moved - before
        self.exchanged -= self.shards.exchanged - exchanged
        self.saved = (states, list(self.problems), driver)
        if self.checkpoint is not None:
            self._write(states, driver)

    def spread(self) -> None:
        """At a checkpoint: spread the shards over all workers, also those that have joined."""
        logger.info("workers have joined; the rows are spread over all of them")
        self.abandon()
        self._build()

    def abandon(self) -> None:
        """Give up the shards, and return to the problems of the last checkpoint."""
        self.close()
        self.problems = list(self.saved[1])

    def _build(self) -> None:
        """Build the shards, with the state of the last checkpoint."""
        self.arrivals.begin()
        self.shards = self._scatter(self.saved[0])
        self.has_shards = True
        self.version += 1
        self.arrivals.settle()

    def resume(self, arrays: dict[str, NDArray[Any]], numbers: dict[str, Any]) -> None:
        """Continue from a checkpoint on disk."""
        states: list[list[BlockState]] = []
        for c in range(len(self.parts)):
            states.append([])
            for p, members in enumerate(self.members):
                own, active = arrays.get(f"own_{p}"), arrays.get(f"active_{p}")
                rows = members[c]
                looked_at = None if active is None else np.flatnonzero(active[rows])
                if looked_at is not None and len(looked_at) == len(rows):
                    looked_at = None
                states[-1].append(
                    BlockState(
                        arrays[f"beta_{p}"][rows],
                        arrays[f"scores_{p}"][rows],
                        None if own is None else own[rows],
                        looked_at,
                    )
                )
        self.saved = (states, list(self.problems), numbers)
        self.abandon()

    def _write(self, states: list[list[BlockState]], driver: dict[str, Any]) -> None:
        assert self.checkpoint is not None
        arrays: dict[str, NDArray[Any]] = {"label": self.parts.label}
        for p in range(len(self.problems)):
            arrays[f"beta_{p}"], arrays[f"scores_{p}"] = self._joined(p, states)
            if any(part[p].active is not None for part in states):
                active = np.zeros(self.problems[p].n_rows)
                for rows, part in zip(self.members[p], states, strict=True):
                    one = part[p].active
                    active[rows if one is None else rows[one]] = 1.0
                arrays[f"active_{p}"] = active
            if all(part[p].own is not None for part in states):
                arrays[f"own_{p}"] = self._assemble(p, [part[p].own for part in states])
        numbers = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in driver.items()
        }
        with warned("no checkpoint was written, and the fit goes on without"):
            self.checkpoint.save(arrays, numbers)

    # --- shards ----------------------------------------------------------------------------

    def _scatter(self, states: list[list[BlockState]] | None) -> Shards:
        settings, parts = self.settings, self.parts
        at_work = min(self.engine.n_workers, len(parts))
        left = max(self.memory // 4, self.memory // 2 - 2 * size_in_bytes(self.data.X))
        threads, memory = self.engine.share(at_work, settings.threads, left)
        memory = (
            memory * at_work // len(parts)
        )  # all shards stay in memory, one per worker is at work
        precomputed = self.data.kernel.is_precomputed
        pieces = []
        for c, rows in enumerate(parts.rows):
            data = self.data.restrict(rows)
            pieces.append(
                {
                    "number": c,
                    "problems": [self._on(p, c, data) for p in range(len(self.problems))],
                    "states": None if states is None else states[c],
                    "numbers": rows,
                    "across": self.data.X[rows] if precomputed else None,
                    "floor": floor_for(settings.tol),
                    "memory": memory,
                    "threads": threads,
                }
            )
        self.checkpoint_bytes = 0
        return self.engine.scatter(KernelBlock, pieces)

    def _on(self, p: int, c: int, data: Data) -> Problem | None:
        """A problem on the rows of one shard, with its share of a given sum of beta."""
        problem = self.problems[p]
        part = problem.on(data, self.members[p][c])
        if part is None or part.total == 0.0:
            return part
        return replace(part, total=part.total * float(part.C.sum() / problem.C.sum()))

    def _joined(self, p: int, states: list[list[BlockState]]) -> tuple[Floats, Floats]:
        return (
            self._assemble(p, [part[p].beta for part in states]),
            self._assemble(p, [part[p].scores for part in states]),
        )

    def _assemble(self, p: int, pieces: Sequence[Any]) -> Floats:
        whole = np.zeros(self.problems[p].n_rows)
        for rows, piece in zip(self.members[p], pieces, strict=True):
            whole[rows] = piece
        return whole

    def close(self) -> None:
        """Release the shards."""
        if self.has_shards:
            self.moved_before = self.moved
            self.exchanged += self.shards.exchanged
            self.has_shards = False
            self.shards.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
