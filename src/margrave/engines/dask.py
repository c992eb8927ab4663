"""Shards on the workers of a Dask cluster, and rows of Dask collections."""

from __future__ import annotations

import itertools
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margrave.engines.base import ShardLost, is_collection
from margrave.engines.dask_workers import DaskWorkers, distributed
from margrave.engines.recovery import Recovery
from margrave.engines.remote import (
    Assembly,
    Kept,
    Letter,
    Order,
    RemoteShards,
    assembly,
    join,
    pack,
    place,
    remote_rows,
    undivided,
)
from margrave.rows import Matrix, Outline, Piece, Places, RemoteRows, outline
from margrave.typing import MatrixLike, VectorLike

K = TypeVar("K")


class Dask:
    """Blocks on the workers of a Dask cluster.

    A worker runs one shard at a time, with all its threads. This process must be able to reach
    the workers, not only the scheduler, and the workers each other.

    Parameters
    ----------
    client : distributed.Client or str, default=None
        A client, the address of a scheduler, or None for the current client.
    timeout : float, default=30.0
        Seconds without a heartbeat after which a worker counts as lost. A computing worker still
        sends heartbeats, unless it holds the interpreter's lock for so long.
    wait : float, default=60.0
        Seconds to wait for a new worker when all are lost.
    inner : {None, "cuda"}
        What a worker computes on: its threads, or the first graphics card that it may use (the
        environment variable CUDA_VISIBLE_DEVICES says which, a worker for each card).

    Examples
    --------
    >>> engine = Dask("tcp://10.0.0.1:8786")  # connects when it is used
    >>> engine.scatter(list, ["abc", "de"]).map("__len__")  # doctest: +SKIP
    [3, 2]
    """

    is_remote = True
    by_name = False

    def __init__(
        self,
        client: distributed.Client | str | None = None,
        timeout: float = 30.0,
        wait: float = 60.0,
        inner: str | None = None,
    ) -> None:
        if inner not in (None, "cuda"):
            raise ValueError(f"inner must be None or 'cuda', got {inner!r}")
        self.inner = inner
        if client is None:
            try:
                client = distributed.get_client()
            except ValueError:
                raise ValueError(
                    "there is no Dask client: create a dask.distributed.Client first"
                ) from None
        self.timeout, self.wait = timeout, wait
        self._workers: DaskWorkers | None = None
        self._shards = itertools.count()
        if isinstance(client, str):
            self._address = client.removeprefix("dask://").removeprefix("dask+")
        elif isinstance(client, distributed.Client):
            if client.asynchronous:
                raise ValueError("the engine needs a client that is not asynchronous")
            self._address = client.scheduler.address
            self._workers = DaskWorkers(client, timeout, wait)
        else:
            raise ValueError(f"client must be a distributed.Client or an address, got {client!r}")

    # scikit-learn copies parameters: a copy is the same engine, with the same client and actors
    def __copy__(self) -> Dask:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Dask:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Dask, (self._address, self.timeout, self.wait, self.inner)

    @property
    def workers(self) -> DaskWorkers:
        """The workers of the cluster; connects to it if only its address was known."""
        _step_aside()
        if self._workers is None:
            client = None
            with suppress(ValueError):
                client = distributed.Client.current()
            if client is None or _place(client.scheduler.address) != _place(self._address):
                client = _connected(self._address)
                weakref.finalize(self, client.close)
            self._workers = DaskWorkers(client, self.timeout, self.wait)
        return self._workers

    @property
    def n_workers(self) -> int:
        """Workers that are available now."""
        return len(self.workers.staff())

    def share(self, at_work: int, threads: int, memory: int) -> tuple[int, int]:
        """Core threads and bytes for one shard: those of the smallest worker."""
        staff = self.workers.staff().values()
        shards = -(-at_work // len(staff))
        limit = min(worker["memory_limit"] or 4 * memory for worker in staff)
        return max(1, min(worker["nthreads"] for worker in staff) // shards), limit // 4 // shards

    def scatter(self, block_type: Callable[..., Any], pieces: Sequence[Any]) -> RemoteShards:
        """Build one block per piece: where most of its rows are, else in turn."""
        found = itertools.chain(*map(remote_rows, pieces))
        holders = self._holders(found)
        homes = place(pieces, self.workers.staff(), lambda piece: holders.get(piece, ()))
        self.workers.open({*homes, *itertools.chain(*holders.values())})  # side by side
        return RemoteShards(self, block_type, pieces, homes, self._shards)

    # --- collections ------------------------------------------------------------------------

    def rows(self, X: MatrixLike, prepare: Callable[[Any], tuple[Any, Any]]) -> RemoteRows:
        """Keep the rows of a collection on the workers.

        Parameters
        ----------
        X : dask array, dask dataframe, or list of futures or delayed arrays
            In partitions of rows.
        prepare : callable
            Turns a partition into what is kept on the worker, an array or CSR matrix, and facts for
            the caller. Its ValueError is raised with the number of the partition.
        """
        submit = self.workers.client.submit
        kept = [submit(_prepare, prepare, part, pure=False) for part in self._partitions(X)]
        known = self._gather([submit(_known, one, pure=False) for one in kept])
        pieces = [_DaskPiece(self, *both) for both in zip(kept, known, strict=True)]
        return RemoteRows.of(pieces, [facts for _, facts in known])

    def vector(self, y: VectorLike, lengths: Sequence[int], name: str = "y") -> NDArray[Any]:
        """Fetch an entry per row; partitions must have these lengths."""
        if not is_collection(y):
            return undivided(y, lengths, name)
        return join(self._gather(self._partitions(y)), lengths, "partition", name)

    def _partitions(self, X: MatrixLike | VectorLike) -> list[distributed.Future]:
        parts: Any = X
        if hasattr(parts, "to_delayed"):
            if hasattr(parts, "numblocks") and len(parts.numblocks) > 1 and parts.numblocks[1] > 1:
                parts = parts.rechunk({1: -1})
            parts = np.ravel(parts.to_delayed()).tolist()
        futures: list[distributed.Future] = self.workers.client.compute(list(parts))
        return futures

    def _gather(self, futures: Sequence[distributed.Future]) -> list[Any]:
        """Bring results here, from other workers if some are lost meanwhile."""

        def gather() -> list[Any]:
            self._await(futures)
            holders = self._whereabouts({number: one.key for number, one in enumerate(futures)})
            return self.workers.gather(futures, itertools.chain(*holders.values()))

        return Recovery().steadily(gather)

    def _await(self, futures: Sequence[distributed.Future]) -> None:
        """Wait for tasks; raise for one that failed."""
        looked = time.monotonic()
        while not all(future.done() for future in futures):
            time.sleep(0.01)
            if time.monotonic() > looked + 1.0:
                self.workers.staff()  # raises if no worker is left
                looked = time.monotonic()
        for number, future in enumerate(futures):
            if future.status == "error":
                error = future.exception()
                if isinstance(error, ValueError):
                    raise ValueError(f"partition {number}: {error}")
                raise error
            if future.status == "cancelled":
                raise RuntimeError(f"partition {number} was cancelled by the Dask scheduler")

    def _holders(self, rows: Iterable[RemoteRows]) -> dict[Piece, list[str]]:
        """Workers that hold the pieces of rows; waits for those that Dask has to recompute."""
        pieces = {one.pieces[number] for one in rows for number, _ in one.by_piece()}
        kept: dict[Piece, str] = {}
        for piece in pieces:
            if isinstance(piece, _DaskPiece):
                if piece.future.status in ("error", "cancelled"):
                    raise RuntimeError("rows were lost with their worker and cannot be recomputed")
                kept[piece] = piece.future.key
        return self._whereabouts(kept)

    def _whereabouts(self, kept: Mapping[K, str]) -> dict[K, list[str]]:
        """Workers that have the results of these keys; waits while Dask computes them again."""
        end = time.monotonic() + self.wait
        while kept:
            known = self.workers.scheduler("who_has", keys=list(kept.values()))
            lost = self.workers.lost
            holders = {
                one: [worker for worker in known.get(key, ()) if worker not in lost]
                for one, key in kept.items()
            }
            missing = [key for one, key in kept.items() if not holders[one]]
            if not missing:
                return holders
            states = self.workers.scheduler("get_task_status", keys=missing)
            if any(states[key] in (None, "forgotten", "erred") for key in missing):
                raise RuntimeError("rows were lost with their worker and cannot be recomputed")
            silent = sorted({worker for key in missing for worker in known.get(key, ())})
            if silent and time.monotonic() > end:
                raise RuntimeError(
                    f"only {', '.join(silent)} has some of the rows, and does not answer"
                )
            self.workers.staff()  # raises if no worker is left to recompute them
            time.sleep(0.05)
        return {}

    def take(self, piece: _DaskPiece, places: Places) -> Matrix:
        """Bring some rows here, from other workers if some are lost meanwhile."""
        rows = RemoteRows([piece], np.zeros(1, np.int64), places[:1])

        def take() -> Matrix:
            [[worker, *_]] = self._holders([rows]).values()
            wanted = Kept((worker, ""), piece.future.key, places, piece.digest)
            brought: Matrix = self.workers.take(worker, wanted)
            return brought

        return Recovery().steadily(take)

    # --- orders -----------------------------------------------------------------------------

    def link(self, worker: str) -> tuple[str, str]:
        """How other workers reach a worker: its address, and the key of its site."""
        return worker, self.workers.open([worker])[worker]

    def ask_all(self, links: Sequence[tuple[str, str]], letter: Letter) -> list[Any]:
        """Send a letter to the first of these workers, which passes it on; the answers."""
        self._refuse_lost(worker for worker, _ in links)
        return self.workers.send(links, letter)

    def ask(self, orders: Mapping[str, Order]) -> dict[str, Any]:
        """Give an order to each of some workers; their answers."""
        self._refuse_lost(orders)
        packed, sources = {}, set[str]()
        for worker, order in orders.items():
            body, rows = pack(order)
            heads = [self._assembly(one, worker, sources) for one in rows]
            packed[worker] = (body, pack(heads)[0] if heads else None)
        return self.workers.run(packed, sources)

    def _refuse_lost(self, workers: Iterable[str]) -> None:
        gone = [worker for worker in workers if worker in self.workers.lost]
        if gone:
            raise ShardLost(gone, "it was lost before, and its shards with it")

    def _assembly(self, rows: RemoteRows, worker: str, sources: set[str]) -> Assembly:
        holders = self._holders([rows])

        def find(piece: Piece, places: Places) -> Any:
            if not isinstance(piece, _DaskPiece):
                return piece.take(places)
            source = worker if worker in holders[piece] else holders[piece][0]
            sources.add(source)
            site = source, self.workers.open([source])[source]
            return Kept(site, piece.future.key, places, piece.digest)

        return assembly(rows, find)


class _DaskPiece(Piece):
    """A partition held by workers."""

    def __init__(
        self, engine: Dask, future: distributed.Future, known: tuple[Outline, Any]
    ) -> None:
        super().__init__(*known[0])
        self.engine, self.future = engine, future

    def take(self, places: Places) -> Matrix:
        """Bring some of the rows here."""
        return self.engine.take(self, places)


def _step_aside() -> None:
    """Release the slot of the task that this thread runs, if any: its fit needs the workers."""
    with suppress(ValueError, AttributeError, KeyError):  # no task, or one that has done so
        distributed.secede()


def _connected(address: str) -> distributed.Client:
    """A client of its own; certificates are those of Dask's configuration."""
    if address.startswith("tls://"):
        known = distributed.Security().get_connection_args("client")
        if known["ssl_context"] is None:  # Dask's own refusal would hang at the end of the process
            raise ValueError(
                f"{address} needs certificates: set distributed.comm.tls in Dask's configuration,"
                " or pass a Client with security="
            )
    return distributed.Client(address, set_as_default=False)


def _place(address: str) -> str:
    """Host and port, without the protocol."""
    return address.rpartition("://")[2]


def _prepare(
    prepare: Callable[[Any], tuple[Any, Any]], partition: object
) -> tuple[Matrix, Outline, Any]:
    rows, facts = prepare(partition)
    return rows, outline(rows), facts


def _known(kept: tuple[Matrix, Outline, Any]) -> tuple[Outline, Any]:
    return kept[1:]
