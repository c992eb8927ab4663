"""Shards on the ranks of an MPI program.

All ranks run the same script. Rank 0 leads: it gives orders to the sites of all ranks, its own
among them; the others serve. Orders run in a thread, while the main thread of a rank, the only one
that calls MPI, answers and sends heartbeats.
"""

from __future__ import annotations

import itertools
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margrave.engines.base import ShardLost
from margrave.engines.mpi_post import Post, interrupts_noted, mpi
from margrave.engines.remote import (
    Assembly,
    Failed,
    Frames,
    Kept,
    Order,
    RemoteShards,
    Site,
    assembly,
    join,
    pack,
    pack_error,
    place,
    settle,
    undivided,
    unpack,
)
from margrave.rows import Matrix, Piece, Places, RemoteRows, outline
from margrave.typing import MatrixLike, VectorLike

T = TypeVar("T")

_SIGN = 1.0  # seconds between heartbeats


class MPI:
    """Blocks on the ranks of an MPI program, which all run the same script.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, default=None
        The ranks; None for all.
    rows : {"root", "local"}, default="root"
        Which rows are fitted: those of rank 0, or those of all ranks together.
    timeout : float, default=60.0
        Seconds without a heartbeat after which a rank counts as lost.

    Examples
    --------
    A script for ``mpiexec -n 4 python script.py``, or for one rank alone:

    >>> engine = MPI()
    >>> def lead():
    ...     with engine.scatter(list, ["abc", "de"]) as shards:
    ...         return shards.map("__len__")
    >>> engine.everywhere(lead)
    [3, 2]
    """

    is_remote = True

    def __init__(
        self, comm: mpi.Comm | None = None, rows: str = "root", timeout: float = 60.0
    ) -> None:
        if rows not in ("root", "local"):
            raise ValueError(f"rows must be 'root' or 'local', got {rows!r}")
        self.comm = mpi.COMM_WORLD if comm is None else comm
        self.rows_are, self.timeout = rows, timeout
        self._rank, self._size = self.comm.Get_rank(), self.comm.Get_size()
        self._post = Post(self.comm)
        self._site = Site(f"rank {self._rank}", by_name=True)
        self._leads = False
        self._lost: set[int] = set()
        self._per_node = 0
        # not those of an earlier engine, whose answers may still arrive
        self._orders, self._shards = itertools.count(time.time_ns()), itertools.count()

    def __copy__(self) -> MPI:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> MPI:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        comm = None if self.comm == mpi.COMM_WORLD else self.comm
        return MPI, (comm, self.rows_are, self.timeout)

    def everywhere(
        self,
        lead: Callable[[], T],
        X: MatrixLike | None = None,
        vectors: Sequence[VectorLike | None] = (),
    ) -> T:
        """Run `lead` on rank 0, while all other ranks serve it; its result or error on all ranks.

        `X` and `vectors` are this rank's own rows and what belongs to them.
        """
        if self._leads:  # already inside of `everywhere`, on all ranks
            return lead()
        self._site.kept = {"X": X, "vectors": list(vectors)}
        try:
            return self._lead(lead) if self._rank == 0 else self._serve()
        finally:
            self._post.close()
            self._site.close()
            self._site = Site(f"rank {self._rank}", by_name=True)

    @property
    def n_workers(self) -> int:
        """Ranks that are not lost."""
        return self._size - len(self._lost)

    def share(self, at_work: int, threads: int, memory: int) -> tuple[int, int]:
        """Core threads and bytes for one shard: ranks on the same node divide the budgets."""
        if not self._per_node:
            nodes = self._ask({rank: (_node,) for rank in self._ranks})
            self._per_node = max(Counter(nodes.values()).values())
        ranks = min(self._per_node, at_work)
        return max(1, threads // ranks), memory // ranks

    def scatter(self, block_type: Callable[..., Any], pieces: Sequence[Any]) -> RemoteShards:
        """Build one block per piece: where most of its rows are, else in turn."""
        homes = place(
            pieces,
            self._ranks,
            lambda piece: [piece.rank] if isinstance(piece, _RankPiece) else [],
        )
        return RemoteShards(self._ask, block_type, pieces, homes, self._shards)

    # --- rows of all ranks ------------------------------------------------------------------

    def rows(self, X: MatrixLike, prepare: Callable[[Any], tuple[Any, Any]]) -> RemoteRows:
        """Keep the rows of all ranks where they are.

        `prepare` turns a rank's X into what is kept there, an array or CSR matrix, and facts that
        are returned to rank 0. Its ValueError is raised with the number of the rank.
        """
        if self.rows_are != "local" or X is not self._site.kept.get("X"):
            raise ValueError("all ranks must give their own X to `everywhere`, and rows='local'")
        name = next(self._shards)
        answers = self._ask({rank: (_keep, rank, name, prepare) for rank in range(self._size)})
        pieces = [_RankPiece(self, rank, name, known) for rank, (known, _) in answers.items()]
        return RemoteRows.of(pieces, [facts for _, facts in answers.values()], "rank")

    def vector(self, y: VectorLike, lengths: Sequence[int]) -> NDArray[Any]:
        """Fetch an entry per row; those of the ranks must have these lengths."""
        for number, vector in enumerate(self._site.kept.get("vectors", ())):
            if vector is y:
                parts = self._ask({rank: (_vector, number) for rank in range(self._size)})
                return join(list(parts.values()), lengths, "rank")
        return undivided(y, lengths)

    # --- rank 0 -----------------------------------------------------------------------------

    @property
    def _ranks(self) -> list[int]:
        return [rank for rank in range(self._size) if rank not in self._lost]

    def _lead(self, lead: Callable[[], T]) -> T:
        self._leads = True
        try:
            result = lead()
            outcome, rows = pack(result, by_name=True)
            if rows:
                raise TypeError("a result cannot hold rows that are with the ranks")
            return result
        except BaseException as error:
            outcome = pack_error(error, by_name=True)
            raise
        finally:
            self._leads = False
            for rank in range(1, self._size):
                self._post.send(rank, ("end", 0, outcome, []))
            self._post.close(self._lost, self.timeout)

    def _ask(self, orders: Mapping[int, Order]) -> dict[int, Any]:
        """Give orders to ranks; their answers, when all are there."""
        if self._size > 1 and not self._leads:
            raise RuntimeError("with several ranks, shards live inside of `everywhere`")
        gone = [f"rank {rank}" for rank in orders if rank in self._lost]
        if gone:
            raise ShardLost(gone, "it was lost before")
        packed = {rank: self._pack(rank, order) for rank, order in orders.items()}
        waiting = _Waiting(next(self._orders), dict.fromkeys(orders, time.monotonic()))
        with interrupts_noted() as interrupts:
            for rank, order in packed.items():
                if rank:
                    self._post.send(rank, ("run", waiting.order, *order))
                else:
                    waiting.own.append(self._run(waiting.order, *order))
            try:
                while waiting.heard:
                    self._receive(waiting)
                    if interrupts:
                        raise KeyboardInterrupt
                    self._check(waiting)
            except (
                BaseException
            ):  # a loss, or Ctrl-C: no rank may still run when the caller continues
                self._cancel(waiting)
                end = time.monotonic() + self.timeout
                while waiting.heard.keys() - self._lost and len(interrupts) < 2:
                    if time.monotonic() > end:
                        break
                    self._receive(waiting)
                raise
        return settle({rank: waiting.answers[rank] for rank in orders})

    def _pack(self, rank: int, order: Order) -> tuple[Frames, list[Assembly]]:
        def find(piece: Piece, places: Places) -> Any:
            if isinstance(piece, _RankPiece) and piece.rank == rank:
                return Kept(rank, piece.name, places)
            return piece.take(places)

        body, found = pack(order, by_name=True)
        return body, [assembly(rows, find) for rows in found]

    def _receive(self, waiting: _Waiting) -> None:
        """Receive messages, or wait a moment."""
        came = self._post.receive()
        if waiting.own and waiting.own[0].done():
            came.append((0, (waiting.order, waiting.own.pop().result())))
        for rank, (order, frames) in came:
            self._lost.discard(rank)
            if rank not in waiting.heard:
                continue
            waiting.heard[rank] = time.monotonic()
            if order == waiting.order and frames is not None:
                del waiting.heard[rank]
                waiting.answers[rank] = answer = unpack(frames)
                if isinstance(answer, Failed):
                    self._cancel(waiting, answer.needed)  # later ones are not needed now
        self._post.pause(bool(came), waiting.own)

    def _check(self, waiting: _Waiting) -> None:
        long_ago = time.monotonic() - self.timeout
        silent = [rank for rank, heard in waiting.heard.items() if rank and heard < long_ago]
        if silent:
            self._lost.update(silent)
            what = f"no sign of life for {self.timeout:g} s"
            raise ShardLost([f"rank {rank}" for rank in silent], what)

    def _cancel(self, waiting: _Waiting, needed: int = -1) -> None:
        for rank in waiting.heard:
            if rank:
                self._post.send(rank, ("cancel", waiting.order, needed, []))
            else:
                self._site.cancel(waiting.order, needed)

    # --- other ranks ------------------------------------------------------------------------

    def _serve(self) -> Any:
        """Run orders until rank 0 has finished."""
        jobs: dict[int, Future[Frames]] = {}
        signed = time.monotonic()
        with interrupts_noted() as interrupts:
            while True:
                came = self._post.receive(single=True)
                for _, (what, order, body, heads) in came:
                    if what == "end":
                        outcome = unpack(body)
                        if isinstance(outcome, Failed):
                            raise outcome.error
                        return outcome
                    if what == "cancel":
                        self._site.cancel(order, body)
                    else:
                        jobs[order] = self._run(order, body, heads)
                for order in [order for order, job in jobs.items() if job.done()]:
                    answer = jobs.pop(order).result()
                    if interrupts:  # rank 0 raises it, and then all ranks do
                        answer = pack_error(interrupts.pop(), by_name=True)
                    self._post.send(0, (order, answer))
                for order in jobs if interrupts else ():
                    self._site.cancel(order)
                if not jobs:
                    interrupts.clear()
                if (jobs or self._post.is_busy) and time.monotonic() > signed + _SIGN:
                    self._post.send(0, (0, None))
                    signed = time.monotonic()
                self._post.pause(bool(came), jobs.values())

    def _run(self, order: int, body: Frames, heads: Sequence[Assembly]) -> Future[Frames]:
        kept = self._site.kept

        def rows() -> list[Any]:
            return [
                one.put([kept[wanted.name][wanted.places] for wanted in one.wanted])
                for one in heads
            ]

        return self._site.run(order, body, rows)


@dataclass
class _Waiting:
    """A pending order: when each rank that has not answered was last heard, and the answers."""

    order: int
    heard: dict[int, float]
    answers: dict[int, Any] = field(default_factory=dict)
    own: list[Future[Frames]] = field(default_factory=list)  # the job of rank 0, if there is one


class _RankPiece(Piece):
    """The rows of one rank."""

    def __init__(self, engine: MPI, rank: int, name: int, known: tuple[Any, ...]) -> None:
        super().__init__(*known)
        self.engine, self.rank, self.name = engine, rank, name

    def take(self, places: Places) -> Matrix:
        """Bring some of the rows to rank 0."""
        rows: Matrix = self.engine._ask({self.rank: (_take, self.name, places)})[self.rank]
        return rows


def _keep(site: Site, rank: int, name: int, prepare: Callable[[Any], tuple[Any, Any]]) -> Any:
    try:
        site.kept[name], facts = prepare(site.kept["X"])
    except ValueError as error:
        raise Failed(rank, ValueError(f"rank {rank}: {error}")) from error
    return outline(site.kept[name]), facts


def _take(site: Site, name: int, places: Places) -> Any:
    return site.kept[name][places]


def _vector(site: Site, number: int) -> Any:
    vector = site.kept["vectors"][number]
    return np.empty(0) if vector is None else np.asarray(vector)


def _node(site: Site) -> str:
    return platform.node()
