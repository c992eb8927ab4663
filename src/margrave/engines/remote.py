"""Common code of engines with other processes: messages, what a worker holds, and calls.

    RemoteShards (driver)  --order-->  Site (worker): a thread, and the blocks that live there

An order is a function of this package with its arguments, pickled; large arrays travel beside the
pickle as raw buffers. Rows that are elsewhere (`RemoteRows`) are not part of it: the driver says
where they are (`Assembly`), and they are inserted when the order is unpickled.

A call of all blocks with the same arguments is a `Letter` instead. It goes to the first worker, and
from worker to worker along a tree (tree.py); each knows its `Route` since its blocks were built. A
worker passes on the letter unopened, calls its own blocks, waits for the answers of those below it,
and answers with these and its own, in a list or added up.
"""

from __future__ import annotations

import io
import itertools
import pickle
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from margrave.engines.base import Arguments, ShardLost, Shards, build, leaves, size_of
from margrave.engines.tree import Sums, children, combine, total
from margrave.extras import install
from margrave.rows import Piece, Places, RemoteRows, assemble, is_remote
from margrave.typing import VectorLike

try:
    import cloudpickle
except ImportError as error:
    what = f"engines elsewhere need: {install('dask')} or {install('mpi')}"
    raise ImportError(what) from error

Frames = list[Any]  # a pickle, and the raw buffers beside it as arrays of bytes
Order = tuple[Any, ...]  # a function of a site and more arguments, and these
Parcel = tuple[int | None, Frames]  # a packed answer; if it is an error, the number of its shard

_LARGE = 1 << 16  # bytes from which an array gets a buffer of its own
_NO_SHARD = sys.maxsize  # number of errors outside of shards, whose errors come first
_LOSS = -1  # number of a loss, which comes before these: it is why others were cancelled
CAME_BACK = "it was lost before and came back without its shards"


# --- messages -------------------------------------------------------------------------------


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Sets large buffers aside, leaves out rows that are elsewhere, and records both."""

    def __init__(self, file: io.BytesIO, by_name: bool) -> None:
        self.buffers: list[Any] = []
        self.rows: list[RemoteRows] = []
        self.by_name = by_name
        super().__init__(file, protocol=5, buffer_callback=self._set_aside)

    def persistent_id(self, thing: object) -> int | None:
        if not is_remote(thing):
            return None
        self.rows.append(thing)
        return len(self.rows) - 1

    def reducer_override(self, thing: object) -> Any:
        if self.by_name and isinstance(thing, (type, FunctionType)):
            main = sys.modules["__main__"]
            if getattr(main, thing.__qualname__, None) is thing:
                return NotImplemented  # as in any pickle
        return super().reducer_override(thing)

    def _set_aside(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LARGE:
            return True  # stays in the pickle
        self.buffers.append(np.frombuffer(raw, np.uint8))
        return False


class _Unpickler(pickle.Unpickler):
    def __init__(self, frames: Frames, arrays: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(frames[0]), buffers=frames[1:])
        self.arrays = arrays

    def persistent_load(self, number: int) -> Any:
        return self.arrays[number]


def pack(thing: object, by_name: bool = False) -> tuple[Frames, list[RemoteRows]]:
    """Pickle something; the rows in it that are elsewhere are left out and listed.

    What a script defines is included, unless the other side runs the same script and can import
    it `by_name`.

    Examples
    --------
    >>> frames, rows = pack({"a": np.zeros(100_000), "b": 1})
    >>> len(frames[0]) < 1000, frames[1].nbytes, rows
    (True, 800000, [])
    """
    file = io.BytesIO()
    pickler = _Pickler(file, by_name)
    pickler.dump(thing)
    return [file.getvalue(), *pickler.buffers], pickler.rows


def unpack(frames: Frames, arrays: Sequence[Any] = ()) -> Any:
    """Undo `pack`, with arrays in place of the rows that were elsewhere."""
    return _Unpickler(frames, arrays).load()


def pack_error(error: BaseException, by_name: bool = False) -> Parcel:
    """Pack an error such that it can be unpickled on the other side."""
    if not isinstance(error, Failed):
        error = Failed(_LOSS if isinstance(error, ShardLost) else _NO_SHARD, error)
    try:
        frames, _ = pack(error, by_name)
        unpack(frames)
    except Exception:
        said = RuntimeError(f"{type(error.error).__name__}: {error.error}")
        frames, _ = pack(Failed(error.number, said), by_name)
    return error.number, frames


def needed(parcels: Iterable[Parcel]) -> int | None:
    """The last shard whose answer still matters if there is an error among the answers.

    Of several errors, that of the first shard is to be raised.
    """
    failed = [number for number, _ in parcels if number is not None]
    return (min(failed) if min(failed) != _NO_SHARD else -1) if failed else None


def unpack_answers(parcels: Sequence[Parcel]) -> list[Any]:
    """Unpack answers, or raise the error of the first shard."""
    failed = [parcel for parcel in parcels if parcel[0] is not None]
    if failed:
        raise unpack(min(failed, key=lambda parcel: parcel[0] or 0)[1]).error
    return [unpack(frames) for _, frames in parcels]


# --- rows that are elsewhere ----------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """Rows that a worker keeps under a name; with the digest of all that it keeps there."""

    worker: Any
    name: Any
    places: Places
    digest: str = ""


@dataclass(frozen=True)
class Assembly:
    """Rows to assemble: where each part goes, and the part itself or where it is `Kept`."""

    parts: list[tuple[Places, Any]]
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    is_sparse: bool

    @property
    def wanted(self) -> list[Kept]:
        """The rows to fetch before `put`."""
        return [part for _, part in self.parts if isinstance(part, Kept)]

    def put(self, found: Sequence[Any]) -> Any:
        """Assemble the rows from the fetched ones."""
        left = iter(found)
        parts = [
            (positions, next(left) if isinstance(part, Kept) else part)
            for positions, part in self.parts
        ]
        return assemble(parts, self.shape, self.dtype, self.is_sparse)


def assembly(rows: RemoteRows, find: Callable[[Piece, Places], Any]) -> Assembly:
    """Describe how to assemble the rows; `find` returns some rows of a piece, or where they are."""
    parts = [
        (positions, find(rows.pieces[number], rows.place[positions]))
        for number, positions in rows.by_piece()
    ]
    return Assembly(parts, rows.shape, rows.dtype, rows.is_sparse)


# --- what a worker holds --------------------------------------------------------------------


class Failed(Exception):
    """An error at the shard (or worker) of this number."""

    def __init__(self, number: int, error: BaseException) -> None:
        super().__init__(number, error)
        self.number, self.error = number, error


@dataclass(frozen=True)
class Route:
    """The place of a worker in the tree of some shards.

    Parameters
    ----------
    below : list
        How to reach the workers to which it passes on letters.
    blocks : dict
        The numbers of its own blocks at the site, by shard.
    count : int
        All shards.
    """

    below: list[Any]
    blocks: dict[int, int]
    count: int


class Letter(NamedTuple):
    """A call of all blocks of some shards, which goes from worker to worker."""

    shards: int  # whose `Route` it takes
    answer: str  # "list" or "sum"
    body: Frames  # method and arguments


class Site:
    """Blocks and rows on one worker, and a thread that works on them.

    The thread runs one order after the other, while the worker's own thread can answer. `name` is
    the worker's; orders and answers refer to a script's definitions `by_name` if all processes run
    the same script.
    """

    def __init__(self, name: str, by_name: bool = False) -> None:
        self.name, self.by_name = name, by_name
        self.blocks: dict[int, Any] = {}
        self.routes: dict[int, Route] = {}  # by shards
        self.kept: dict[Any, Any] = {}  # what else orders leave here
        self.at_work: dict[int, Any] = {}  # blocks of the current order
        self.order = -1
        self._needed: dict[int, int] = {}  # of orders that were cancelled: the last block
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="margrave")

    def run(
        self, order: int, frames: Frames, rows: Callable[[], Sequence[Any]] = list
    ) -> Future[Parcel]:
        """Run an order; the packed answer, or error, is its value.

        `rows` fetches the rows that were elsewhere.
        """
        return self._thread.submit(self._run, order, partial(_obey, self, frames, rows))

    def accept(self, letter: Letter) -> tuple[Letter, list[Any]]:
        """Take a letter; return it as it is to be passed on, and to whom."""
        if letter.shards not in self.routes:
            raise ShardLost([self.name], CAME_BACK)
        return letter, self.routes[letter.shards].below

    def open(self, order: int, letter: Letter) -> Future[Parcel]:
        """Call the site's own blocks."""
        return self._thread.submit(self._run, order, partial(_call_own, self, letter))

    def finish(
        self, order: int, letter: Letter, parcels: Sequence[Parcel]
    ) -> Future[Parcel] | None:
        """Unite the answers to a letter, own and others; None if they are a list already."""
        if letter.answer != "sum" or len(parcels) == 1 or needed(parcels) is not None:
            return None
        return self._thread.submit(self._run, order, partial(_add, self, letter, parcels))

    def cancel(self, order: int, needed: int = -1) -> None:
        """End the calls of an order, at once as far as the blocks can.

        Blocks up to the number that is `needed` continue.
        """
        self._needed[order] = min(needed, self._needed.get(order, needed))
        at_work = self.at_work.items() if order == self.order else ()
        for number, block in list(at_work):
            if number > needed and hasattr(block, "cancel"):
                block.cancel()

    def is_cancelled(self, order: int) -> bool:
        """Whether no block is to be called any more."""
        return self._needed.get(order, 0) < 0

    def go_on(self, number: int = _NO_SHARD) -> None:
        """Raise if the current order was cancelled, for the block of this number."""
        if number > self._needed.get(self.order, _NO_SHARD):
            raise KeyboardInterrupt

    def close(self) -> None:
        """Release everything, and cancel what is running."""
        self.cancel(self.order)
        self.blocks, self.routes, self.kept = {}, {}, {}
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run(self, order: int, work: Callable[[], Any]) -> Parcel:
        self.order = order
        try:
            if self.is_cancelled(order):
                raise KeyboardInterrupt
            return None, pack(work(), self.by_name)[0]
        except BaseException as error:  # any error is raised by the driver
            cause = error.error if isinstance(error, Failed) else error
            cause.add_note("at a worker:\n" + "".join(traceback.format_tb(cause.__traceback__)))
            return pack_error(error, self.by_name)


def _obey(site: Site, frames: Frames, rows: Callable[[], Sequence[Any]]) -> Any:
    function, *args = unpack(frames, rows())
    return function(site, *args)


def _call_own(site: Site, letter: Letter) -> dict[int, Any] | Sums:
    route = site.routes[letter.shards]
    method, args = unpack(letter.body)
    results = call_blocks(site, method, dict.fromkeys(route.blocks.values(), args))
    if letter.answer == "sum":
        sums = {(0, shard): one for shard, one in zip(route.blocks, results, strict=True)}
        return combine(sums, route.count)
    return dict(zip(route.blocks, results, strict=True))


def _add(site: Site, letter: Letter, parcels: Sequence[Parcel]) -> Sums:
    sums: Sums = {}
    for _, frames in parcels:
        sums |= unpack(frames)
    return combine(sums, site.routes[letter.shards].count)


def in_order(answers: Iterable[Mapping[int, Any]]) -> list[Any]:
    """The results of all shards, from the answers of workers."""
    found: dict[int, Any] = {}
    for answer in answers:
        found |= answer
    return [found[shard] for shard in sorted(found)]


def build_blocks(
    site: Site, block_type: Callable[..., Any], pieces: dict[int, Any], shards: int, route: Route
) -> None:
    """Build blocks at a site."""
    for number, piece in pieces.items():
        try:
            site.blocks[number] = build(block_type, piece)
        except BaseException as error:
            raise Failed(number, error) from error
    site.routes[shards] = route


def call_blocks(site: Site, method: str, calls: dict[int, Arguments]) -> list[Any]:
    """Call a method of some blocks of a site, one after the other."""
    if not site.blocks.keys() >= calls.keys():
        raise ShardLost([site.name], CAME_BACK)
    site.at_work = {number: site.blocks[number] for number in calls}
    results = []
    try:
        for number, args in calls.items():
            site.go_on(number)
            try:
                results.append(getattr(site.blocks[number], method)(*args))
            except BaseException as error:
                raise Failed(number, error) from error
    finally:
        site.at_work = {}
    return results


def drop_blocks(site: Site, numbers: Sequence[int], shards: int) -> None:
    """Release some blocks of a site."""
    for number in numbers:
        site.blocks.pop(number, None)
    site.routes.pop(shards, None)


# --- the driver's side ----------------------------------------------------------------------


class Carrier(Protocol):
    """How an engine passes on orders and letters, and brings back the answers."""

    by_name: bool  # whether all processes run the same script

    def link(self, worker: Any) -> Any:
        """How other workers reach a worker."""

    def ask(self, orders: Mapping[Any, Order]) -> dict[Any, Any]:
        """Give an order to each of some workers; their answers."""

    def ask_all(self, links: Sequence[Any], letter: Letter) -> list[Any]:
        """Send a letter to the first of these workers, which passes it on; the answers."""


class RemoteShards(Shards):
    """Blocks at sites; `homes` are the workers of the shards."""

    def __init__(
        self,
        carrier: Carrier,
        block_type: Callable[..., Any],
        pieces: Sequence[Any],
        homes: Sequence[Any],
        numbers: itertools.count[int],
    ) -> None:
        super().__init__(len(pieces))
        self._carrier, self._homes, self._id = carrier, list(homes), next(numbers)
        self._numbers = [next(numbers) for _ in pieces]  # blocks of other shards live there too
        self._workers = list(dict.fromkeys(homes))  # by their first shards, as in the tree
        self._links = [carrier.link(worker) for worker in self._workers]
        try:
            blocks = self._by_worker(list(enumerate(pieces)))
            carrier.ask(
                {
                    worker: (build_blocks, block_type, blocks[worker], self._id, self._route(place))
                    for place, worker in enumerate(self._workers)
                }
            )
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._homes)

    def _run(self, method: str, calls: Sequence[tuple[int, Arguments]]) -> list[Any]:
        own = self._by_worker(calls)
        answers = self._carrier.ask(
            {worker: (call_blocks, method, calls) for worker, calls in own.items()}
        )
        left = {worker: iter(results) for worker, results in answers.items()}
        return [next(left[self._homes[shard]]) for shard, _ in calls]

    def _map(self, method: str, args: Arguments) -> list[Any]:
        answers = self._ask_all("list", method, args)
        return super()._map(method, args) if answers is None else in_order(answers)

    def _reduce(self, method: str, args: Arguments) -> Any:
        answers = self._ask_all("sum", method, args)
        return super()._reduce(method, args) if answers is None else total(answers[0])

    def close(self) -> None:
        """Release the blocks on the workers that are left."""
        homes, self._homes = self._homes, []
        orders: dict[Any, Order] = {
            worker: (
                drop_blocks,
                [n for n, at in zip(self._numbers, homes, strict=True) if at == worker],
                self._id,
            )
            for worker in dict.fromkeys(homes)
        }
        for worker, order in orders.items():
            with suppress(ShardLost, RuntimeError):  # workers, or all of the cluster, are gone
                self._carrier.ask({worker: order})

    def _ask_all(self, answer: str, method: str, args: Arguments) -> list[Any] | None:
        """The answers of all workers to a letter; None if it would have to hold remote rows."""
        body, rows = pack((method, args), self._carrier.by_name)
        if rows or not self._homes:
            return None
        return self._carrier.ask_all(self._links, Letter(self._id, answer, body))

    def _by_worker(self, things: Sequence[tuple[int, Any]]) -> dict[Any, dict[int, Any]]:
        found: dict[Any, dict[int, Any]] = {}
        for shard, thing in things:
            found.setdefault(self._homes[shard], {})[self._numbers[shard]] = thing
        return found

    def _route(self, place: int) -> Route:
        worker = self._workers[place]
        own = {k: n for k, n in enumerate(self._numbers) if self._homes[k] == worker}
        below = children(place, len(self._workers))
        return Route([self._links[other] for other in below], own, len(self))


def place(
    pieces: Sequence[Any], workers: Iterable[Any], holders: Callable[[Piece], Iterable[Any]]
) -> list[Any]:
    """Choose a worker for each piece: where most of its rows are, else the one with the least load.

    The largest pieces first, for an even load.
    """
    load = Counter(dict.fromkeys(workers, 0))  # bytes by worker
    sizes = [1 + size_of(piece) for piece in pieces]
    homes: list[Any] = [None] * len(pieces)
    for number in sorted(range(len(pieces)), key=sizes.__getitem__, reverse=True):
        near = Counter(dict.fromkeys(load, 0))  # rows of the piece by worker
        for rows in remote_rows(pieces[number]):
            for source, positions in rows.by_piece():
                near.update(dict.fromkeys(holders(rows.pieces[source]), len(positions)))
        most = max(near[worker] for worker in load)
        home = min((worker for worker in load if near[worker] == most), key=load.__getitem__)
        homes[number] = home
        load[home] += sizes[number]
    return homes


def remote_rows(piece: object) -> list[RemoteRows]:
    """Rows in a piece of work that are elsewhere."""
    return [leaf for leaf in leaves(piece) if is_remote(leaf)]


def join(parts: Sequence[VectorLike], lengths: Sequence[int], noun: str, name: str) -> NDArray[Any]:
    """Concatenate the vectors of the partitions, which must have these lengths.

    Examples
    --------
    >>> join([[1, 2], [], [3]], [2, 0, 1], "partition", "y")
    array([1, 2, 3])
    >>> join([[1, 2], [3]], [2, 2], "partition", "y")
    Traceback (most recent call last):
    ValueError: X and y differ: partition 1 has 2 rows in X and 1 in y
    """
    if len(parts) != len(lengths):
        raise ValueError(
            f"X and {name} differ: X has {len(lengths)} {noun}s, {name} has {len(parts)}"
        )
    vectors = [np.asarray(part) for part in parts]
    for number, (vector, length) in enumerate(zip(vectors, lengths, strict=True)):
        if len(vector) != length:
            raise ValueError(
                f"X and {name} differ: {noun} {number} has {length} rows in X and {len(vector)}"
                f" in {name}"
            )
    # one without rows often has a default type: ignore it
    return np.concatenate([vector for vector in vectors if len(vector)] or vectors)


def undivided(y: VectorLike, lengths: Sequence[int], name: str) -> NDArray[Any]:
    """Return a vector of all rows as it is, if it has as many entries."""
    vector = np.asarray(y)
    if len(vector) != sum(lengths):
        raise ValueError(f"X has {sum(lengths)} rows, {name} has {len(vector)}")
    return vector
