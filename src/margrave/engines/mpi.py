"""Shards on the ranks of an MPI program.

All ranks run the same script. Rank 0 leads: it gives orders to the sites of all ranks, its own
among them; the others serve. Orders run in a thread, while the main thread of a rank, the only one
that calls MPI, passes on letters, answers and sends heartbeats. Messages, with the number of an
order:

    run, pass on           an order, or a letter, to be answered to the sender
    answer                 to one of these
    cancel                 an error makes later shards unnecessary; there is an answer nonetheless
    drop, dropped          rank 0 wants no answer, and waits until no rank is at work
    ping, sign             whether a rank is alive
    end, ended             `everywhere` is over
"""

from __future__ import annotations

import itertools
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    Letter,
    Order,
    Parcel,
    RemoteShards,
    Site,
    assembly,
    join,
    needed,
    pack,
    pack_error,
    place,
    undivided,
    unpack_answers,
)
from margrave.rows import Matrix, Piece, Places, RemoteRows, outline
from margrave.typing import MatrixLike, VectorLike

T = TypeVar("T")

_SIGN = 1.0  # seconds between heartbeats
_IDLE = 0.25  # share of the timeout after which a rank that may be idle is asked for one
_ORDERS = itertools.count(1)  # of all engines: answers to an earlier one may still arrive
_ENDED = mpi.Comm.Create_keyval()  # of a communicator: the order that ended the last `everywhere`


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
    by_name = True

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
        self._errands: dict[int, _Errand] = {}  # by order: what this rank works on
        self._own_mail: list[tuple[int, Any]] = []  # messages from this rank to itself
        self._leads = False
        self._lost: set[int] = set()
        self._per_node = 0
        self._shards = itertools.count()

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
        vectors: Mapping[str, VectorLike | None] | None = None,
    ) -> T:
        """Run `lead` on rank 0, while all other ranks serve it; its result or error on all ranks.

        `X` and `vectors` are this rank's own rows, and what belongs to them by name.
        """
        if self._leads:  # already inside of `everywhere`, on all ranks
            return lead()
        given = {name: vector for name, vector in (vectors or {}).items() if vector is not None}
        self._site.kept = {"X": X, "vectors": given}
        try:
            return self._lead(lead) if self._rank == 0 else self._serve()
        finally:
            self._post.close()
            self._site.close()
            self._site = Site(f"rank {self._rank}", by_name=True)
            self._errands, self._own_mail = {}, []

    @property
    def n_workers(self) -> int:
        """Ranks that are not lost."""
        return self._size - len(self._lost)

    @property
    def lost(self) -> set[int]:
        """Ranks that do not answer."""
        return set(self._lost)

    def share(self, at_work: int, threads: int, memory: int) -> tuple[int, int]:
        """Core threads and bytes for one shard: ranks on the same node divide the budgets."""
        if not self._per_node:
            nodes = self.ask({rank: (_node,) for rank in self._ranks})
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
        return RemoteShards(self, block_type, pieces, homes, self._shards)

    # --- rows of all ranks ------------------------------------------------------------------

    def rows(self, X: MatrixLike, prepare: Callable[[Any], tuple[Any, Any]]) -> RemoteRows:
        """Keep the rows of all ranks where they are.

        `prepare` turns a rank's X into what is kept there, an array or CSR matrix, and facts that
        are returned to rank 0. Its ValueError is raised with the number of the rank.
        """
        if self.rows_are != "local" or X is not self._site.kept.get("X"):
            raise ValueError("all ranks must give their own X to `everywhere`, and rows='local'")
        given = self.ask({rank: (_given,) for rank in range(self._size)})
        for rank, names in given.items():
            for one in sorted(names ^ given[0]):
                there, not_there = (rank, 0) if one in names else (0, rank)
                raise ValueError(
                    f"all ranks must pass the same arguments: rank {there} has passed {one}, and"
                    f" rank {not_there} has not"
                )
        name = next(self._shards)
        answers = self.ask({rank: (_keep, rank, name, prepare) for rank in range(self._size)})
        pieces = [_RankPiece(self, rank, name, known) for rank, (known, _) in answers.items()]
        return RemoteRows.of(pieces, [facts for _, facts in answers.values()], "rank")

    def vector(self, y: VectorLike, lengths: Sequence[int], name: str = "y") -> NDArray[Any]:
        """Fetch an entry per row; those of the ranks must have these lengths."""
        if self._site.kept.get("vectors", {}).get(name) is not y:
            return undivided(y, lengths, name)
        parts = self.ask({rank: (_vector, name) for rank in range(self._size)})
        return join(list(parts.values()), lengths, "rank", name)

    # --- rank 0 -----------------------------------------------------------------------------

    @property
    def _ranks(self) -> list[int]:
        return [rank for rank in range(self._size) if rank not in self._lost]

    def _lead(self, lead: Callable[[], T]) -> T:
        self._leads = True
        try:
            result = lead()
            frames, rows = pack(result, by_name=True)
            if rows:
                raise TypeError("a result cannot hold rows that are with the ranks")
            outcome: Parcel = (None, frames)
            return result
        except BaseException as error:
            outcome = pack_error(error, by_name=True)
            raise
        finally:
            self._leads = False
            self._dismiss(outcome)

    def _dismiss(self, outcome: Parcel) -> None:
        """End the service of the other ranks.

        Wait until they know: messages of what comes next may take another way, and be faster.
        """
        number, left = next(_ORDERS), set(range(1, self._size)) - self._lost
        with interrupts_noted() as interrupts:
            for rank in range(1, self._size):
                self._post.send(rank, ("end", number, outcome, sorted(self._lost)))
            end = time.monotonic() + self.timeout
            while left and not interrupts and time.monotonic() < end:
                came = self._post.receive()
                left -= {rank for rank, message in came if message == ("ended", number)}
                self._post.pause(bool(came), ())
        self._post.close(self._lost | left, self.timeout)
        if interrupts:
            raise KeyboardInterrupt

    def link(self, worker: int) -> int:
        """How other ranks reach a rank: by its number."""
        return worker

    def ask(self, orders: Mapping[int, Order]) -> dict[int, Any]:
        """Give an order to each of some ranks; their answers."""
        self._refuse_lost(orders)
        number = next(_ORDERS)
        messages = {rank: ("run", number, *self._pack(rank, o)) for rank, o in orders.items()}
        answers = self._await(number, messages, orders)
        return dict(zip(orders, unpack_answers([answers[r][0] for r in orders]), strict=True))

    def ask_all(self, links: Sequence[int], letter: Letter) -> list[Any]:
        """Send a letter to the first of these ranks, which passes it on; the answers."""
        self._refuse_lost(links)
        number = next(_ORDERS)
        [parcels] = self._await(number, {links[0]: ("pass on", number, *letter)}, links).values()
        return unpack_answers(parcels)

    def _refuse_lost(self, ranks: Iterable[int]) -> None:
        if self._size > 1 and not self._leads:
            raise RuntimeError("with several ranks, shards live inside of `everywhere`")
        gone = [f"rank {rank}" for rank in ranks if rank in self._lost]
        if gone:
            raise ShardLost(gone, "it was lost before")

    def _await(
        self, order: int, messages: Mapping[int, Any], ranks: Iterable[int]
    ) -> dict[int, list[Parcel]]:
        """Send messages and wait for answers, as long as these ranks are alive."""
        waiting = _Waiting(order, set(messages), dict.fromkeys(ranks, time.monotonic()))
        with interrupts_noted() as interrupts:
            for rank, message in messages.items():
                self._send(rank, message)
            try:
                while waiting.due:
                    self._receive(waiting)
                    if interrupts:
                        raise KeyboardInterrupt
                    self._check(waiting)
            except (
                BaseException
            ):  # a loss, or Ctrl-C: no rank may still run when the caller continues
                waiting.at_work = set(waiting.heard)
                for rank in waiting.at_work:
                    self._send(rank, ("drop", order))
                end = time.monotonic() + self.timeout
                while waiting.at_work - self._lost and len(interrupts) < 2:
                    if time.monotonic() > end:
                        break
                    self._receive(waiting)
                raise
        return waiting.answers

    def _pack(self, rank: int, order: Order) -> tuple[Frames, list[Assembly]]:
        def find(piece: Piece, places: Places) -> Any:
            if isinstance(piece, _RankPiece) and piece.rank == rank:
                return Kept(rank, piece.name, places)
            return piece.take(places)

        body, found = pack(order, by_name=True)
        return body, [assembly(rows, find) for rows in found]

    def _receive(self, waiting: _Waiting) -> None:
        """Receive messages, or wait a moment."""
        came = self._incoming()
        for rank, (what, order, *rest) in came:
            self._lost.discard(rank)
            if rank in waiting.heard:
                waiting.heard[rank] = time.monotonic()
                waiting.pinged.pop(rank, None)
            if what == "dropped" and order == waiting.order:
                waiting.at_work.discard(rank)
            elif what == "answer" and order == waiting.order and rank in waiting.due:
                waiting.due.discard(rank)
                waiting.answers[rank] = rest[0]
                last = needed(rest[0])
                if last is not None:  # later ones are not needed now
                    for other in waiting.due:
                        self._send(other, ("cancel", order, last))
            else:
                self._obey(rank, what, order, rest)
        self._advance()
        self._pause(came)

    def _check(self, waiting: _Waiting) -> None:
        """Raise if a rank is silent: if busy it sends signs, if idle it answers a ping."""
        now = time.monotonic()
        silent = []
        for rank, heard in waiting.heard.items():
            if rank == 0 or heard > now - _IDLE * self.timeout:
                continue
            if rank not in waiting.pinged:
                waiting.pinged[rank] = now
                self._send(rank, ("ping", waiting.order))
            elif waiting.pinged[rank] < now - (1.0 - _IDLE) * self.timeout:
                silent.append(rank)
        if silent:
            self._lost.update(silent)
            what = f"no sign of life for {self.timeout:g} s"
            raise ShardLost([f"rank {rank}" for rank in silent], what)

    # --- all ranks --------------------------------------------------------------------------

    def _send(self, rank: int, message: tuple[Any, ...]) -> None:
        if rank == self._rank:
            self._own_mail.append((rank, message))
        else:
            self._post.send(rank, message)

    def _incoming(self, single: bool = False) -> list[tuple[int, Any]]:
        own, self._own_mail = self._own_mail, []
        return own + self._post.receive(single)

    def _pause(self, came: Sequence[Any]) -> None:
        jobs = [errand.job for errand in self._errands.values() if errand.job is not None]
        self._post.pause(bool(came or self._own_mail), jobs)

    def _obey(self, source: int, what: str, order: int, rest: Sequence[Any]) -> None:
        """Do what a message says."""
        errand = self._errands.get(order)
        if what == "run":
            self._errands[order] = _Errand(source, None, self._run(order, *rest))
        elif what == "pass on" and order > (self.comm.Get_attr(_ENDED) or 0):
            self._pass_on(source, order, Letter(*rest))
        elif what == "answer" and errand is not None:
            errand.below.discard(source)
            self._add(order, errand, rest[0])
        elif what == "cancel":
            self._cancel(order, rest[0])
        elif what == "drop":
            self._site.cancel(order)
            if errand is None:
                self._send(source, ("dropped", order))
            else:
                errand.is_dropped = True
        elif what == "ping":
            self._send(source, ("sign", order))

    def _pass_on(self, source: int, order: int, letter: Letter) -> None:
        try:
            if self._site.is_cancelled(order):
                raise KeyboardInterrupt
            letter, below = self._site.accept(letter)
        except (ShardLost, KeyboardInterrupt) as error:
            self._send(source, ("answer", order, [pack_error(error, by_name=True)]))
            return
        for rank in below:
            self._send(rank, ("pass on", order, *letter))
        job = self._site.open(order, letter)
        self._errands[order] = _Errand(source, letter, job, set(below))

    def _add(self, order: int, errand: _Errand, parcels: Sequence[Parcel]) -> None:
        errand.parcels += parcels
        last = needed(parcels)
        if last is not None:  # later ones are not needed now
            self._cancel(order, last)

    def _cancel(self, order: int, last: int) -> None:
        self._site.cancel(order, last)
        if order in self._errands:
            for rank in self._errands[order].below:
                self._send(rank, ("cancel", order, last))

    def _advance(self) -> None:
        """Answer what is done."""
        for order, errand in list(self._errands.items()):
            if errand.job is not None:
                if not errand.job.done():
                    continue
                job, errand.job = errand.job, None
                self._add(order, errand, [job.result()])
            if errand.is_dropped:
                del self._errands[order]
                self._send(0, ("dropped", order))
            elif not errand.below:
                if errand.letter is not None:
                    errand.job = self._site.finish(order, errand.letter, errand.parcels)
                    errand.letter = None
                    if errand.job is not None:
                        errand.parcels = []
                        continue
                del self._errands[order]
                self._send(errand.source, ("answer", order, errand.parcels))

    # --- other ranks ------------------------------------------------------------------------

    def _serve(self) -> Any:
        """Run orders until rank 0 has finished."""
        signed = time.monotonic()
        with interrupts_noted() as interrupts:
            while True:
                came = self._incoming(single=True)
                for source, (what, order, *rest) in came:
                    if what == "end":
                        outcome, lost = rest
                        self.comm.Set_attr(_ENDED, order)
                        self._post.send(0, ("ended", order))
                        self._post.close(lost, self.timeout)
                        return unpack_answers([outcome])[0]
                    self._obey(source, what, order, rest)
                if interrupts:  # rank 0 raises it, and then all ranks do
                    for order, errand in self._errands.items():
                        self._add(order, errand, [pack_error(interrupts[0], by_name=True)])
                    interrupts.clear()
                self._advance()
                if (self._errands or self._post.is_busy) and time.monotonic() > signed + _SIGN:
                    self._post.send(0, ("sign", 0))
                    signed = time.monotonic()
                self._pause(came)

    def _run(self, order: int, body: Frames, heads: Sequence[Assembly]) -> Future[Parcel]:
        kept = self._site.kept

        def rows() -> list[Any]:
            return [
                one.put([kept[wanted.name][wanted.places] for wanted in one.wanted])
                for one in heads
            ]

        return self._site.run(order, body, rows)


@dataclass
class _Waiting:
    """An order that rank 0 has given."""

    order: int
    due: set[int]  # ranks that are to answer
    heard: dict[int, float]  # when the ranks that take part were last heard
    pinged: dict[int, float] = field(default_factory=dict)  # those that have not answered since
    answers: dict[int, list[Parcel]] = field(default_factory=dict)
    at_work: set[int] = field(default_factory=set)  # after `drop`


@dataclass
class _Errand:
    """An order or a letter that a rank works on."""

    source: int  # whom to answer
    letter: Letter | None  # until its answers are complete
    job: Future[Parcel] | None  # in the site's thread
    below: set[int] = field(default_factory=set)  # ranks to which it was passed on, at work
    parcels: list[Parcel] = field(default_factory=list)
    is_dropped: bool = False


class _RankPiece(Piece):
    """The rows of one rank."""

    def __init__(self, engine: MPI, rank: int, name: int, known: tuple[Any, ...]) -> None:
        super().__init__(*known)
        self.engine, self.rank, self.name = engine, rank, name

    def take(self, places: Places) -> Matrix:
        """Bring some of the rows to rank 0."""
        if self.rank in self.engine.lost:
            raise RuntimeError(f"rank {self.rank} was lost, and with it its rows of X")
        rows: Matrix = self.engine.ask({self.rank: (_take, self.name, places)})[self.rank]
        return rows


def _keep(site: Site, rank: int, name: int, prepare: Callable[[Any], tuple[Any, Any]]) -> Any:
    try:
        site.kept[name], facts = prepare(site.kept["X"])
    except ValueError as error:
        raise Failed(rank, ValueError(f"rank {rank}: {error}")) from error
    return outline(site.kept[name]), facts


def _take(site: Site, name: int, places: Places) -> Any:
    return site.kept[name][places]


def _given(site: Site) -> set[str]:
    return set(site.kept["vectors"])


def _vector(site: Site, name: str) -> Any:
    return np.asarray(site.kept["vectors"][name])


def _node(site: Site) -> str:
    return platform.node()
