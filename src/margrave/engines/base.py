"""The interface of engines: workers that hold shards of the data, and calls of their methods.

A strategy defines what one shard holds and can do as a plain class (a block), and gives an engine
one piece of the data per shard. The engine builds the blocks on its workers and forwards calls. It
does not depend on kernels and losses, nor a strategy on threads and networks: they exchange only
arrays, numbers and names of methods.
"""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Number
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from margrave.engines.tree import Meter, Traffic, add_up
from margrave.rows import is_csr, is_remote

Arguments = tuple[Any, ...]

MOST_LOSSES = 20  # of workers, after which a fit fails


class ShardLost(Exception):
    """A worker that holds shards died, froze or went away, and its shards with it.

    Parameters
    ----------
    workers : sequence of str
        Names of the workers.
    what : str
        What happened to them.

    Examples
    --------
    >>> raise ShardLost(["tcp://10.0.0.7:4711"], "no sign of life for 30 s")
    Traceback (most recent call last):
    margrave.engines.base.ShardLost: lost tcp://10.0.0.7:4711: no sign of life for 30 s
    """

    def __init__(self, workers: Sequence[str], what: str) -> None:
        super().__init__(workers, what)  # the arguments with which it is unpickled
        self.workers, self.what = list(workers), what

    def __str__(self) -> str:
        return f"lost {', '.join(self.workers)}: {self.what}"


class Shards(ABC):
    """Blocks that an engine has built, one per piece; a context manager that ends with `close`.

    A subclass implements how blocks are called (`_run`), and may implement calls of all of them
    in better ways (`_map`, `_reduce`). Blocks must not change arguments: other blocks
    may get the same arrays.

    Parameters
    ----------
    count : int
        Shards.
    """

    def __init__(self, count: int) -> None:
        self._meter = Meter(count)

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of shards."""

    @abstractmethod
    def _run(self, method: str, calls: Sequence[tuple[int, Arguments]]) -> list[Any]:
        """Call a method of some blocks, each with its arguments; the results in the same order.

        Of several errors, that of the first shard is raised.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the blocks."""

    @property
    def traffic(self) -> Traffic:
        """Arguments and results so far: who has sent and received how many bytes."""
        return self._meter.traffic

    @property
    def moved(self) -> int:
        """Bytes of arguments and results that the driver and all workers have sent so far."""
        return self.traffic.total

    @property
    def exchanged(self) -> int:
        """Bytes of arguments and results so far without forwarding: each once for each worker.

        That is what passes between the driver and the workers if each is linked with it directly,
        and what the literature counts as communication.
        """
        return self._meter.exchanged

    def map(self, method: str, *args: object) -> list[Any]:
        """Call a method of all blocks, in parallel; the results in the order of the shards."""
        results = self._map(method, args)
        self._meter.down(size_of(args))
        self._meter.up([size_of(result) for result in results])
        return results

    def each(self, method: str, arguments: Sequence[Arguments]) -> list[Any]:
        """Call a method of all blocks, in parallel, shard k with the arguments number k.

        Nothing is forwarded: arguments and results travel between the driver and each worker.
        """
        if len(arguments) != len(self):
            raise ValueError(f"{len(self)} shards need as many arguments, got {len(arguments)}")
        return self._direct(method, list(enumerate(arguments)))

    def call(self, number: int, method: str, *args: object) -> Any:
        """Call a method of one block."""
        return self._direct(method, [(number, args)])[0]

    def deal(self, method: str, items: Sequence[Arguments], sizes: Sequence[int]) -> list[Any]:
        """Call a method once per item, each on any one of the blocks, which are equal.

        The calls must not depend on each other; `sizes` say how long they take. Blocks have a
        method ``many(method, items)`` for it.
        """
        found = self._deal(method, items, sizes)
        for number, queue in enumerate(deal_out(sizes, len(self))):
            self._meter.direct(
                *(number, size_of([items[i] for i in queue]), size_of([found[i] for i in queue]))
            )
        return found

    def reduce(self, method: str, *args: object) -> Any:
        """Call a method of all blocks and add up the results, entry by entry.

        Sums are pairwise, in the order of the shards, so that they are bitwise the same whichever
        block is ready first, and wherever it is.
        """
        found = self._reduce(method, args)
        self._meter.down(size_of(args))
        self._meter.summed(size_of(found))
        return found

    def checkpoint(self) -> list[Any]:
        """Fetch what the blocks return as their `state`: enough to rebuild them elsewhere."""
        return self.each("state", [()] * len(self))  # large: not through other workers

    def _map(self, method: str, args: Arguments) -> list[Any]:
        return self._run(method, [(number, args) for number in range(len(self))])

    def _reduce(self, method: str, args: Arguments) -> Any:
        return add_up(self._map(method, args))

    def _deal(self, method: str, items: Sequence[Arguments], sizes: Sequence[int]) -> list[Any]:
        queues = deal_out(sizes, len(self))
        calls = [(k, (method, [items[i] for i in queue])) for k, queue in enumerate(queues)]
        found = dict[int, Any]()
        for queue, results in zip(queues, self._run("many", calls), strict=True):
            found.update(zip(queue, results, strict=True))
        return [found[i] for i in range(len(items))]

    def _direct(self, method: str, calls: Sequence[tuple[int, Arguments]]) -> list[Any]:
        results = self._run(method, calls)
        for (number, args), found in zip(calls, results, strict=True):
            self._meter.direct(number, size_of(args), size_of(found))
        return results

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Engine(Protocol):
    """Builds shards on its workers and calls their methods."""

    @property
    def n_workers(self) -> int:
        """How many shards can run at a time."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether the workers are other processes, which can be lost."""
        ...

    def scatter(self, block_type: Callable[..., Any], pieces: Sequence[Any]) -> Shards:
        """Build one block per piece.

        A piece that is a mapping holds the arguments of `block_type` by name, any other is its only
        argument. Both must be picklable, since some engines build their blocks in other processes.
        In place of :class:`~margrave.rows.RemoteRows`, which a piece may hold in containers and
        dataclasses, the block gets the rows themselves.

        A block with long calls has a method `cancel`, which makes a call in another thread return
        soon: engines call it when the caller was interrupted.
        """
        ...

    def share(self, at_work: int, threads: int, memory: int) -> tuple[int, int]:
        """Core threads and bytes for one shard while `at_work` shards run at a time.

        `threads` and `memory` are the budgets of this process.
        """
        ...


def is_collection(X: object) -> bool:
    """Whether X is a Dask collection, or a list of futures or delayed arrays.

    Examples
    --------
    >>> is_collection([[1.0, 2.0]])
    False
    """
    if isinstance(X, (list, tuple)):
        return len(X) > 0 and all(_is_later(part) for part in X)
    return _is_later(X) and hasattr(X, "to_delayed")


def _is_later(thing: object) -> bool:
    """Whether it is a future or a delayed object of Dask, which is not imported for this."""
    base, distributed = sys.modules.get("dask.base"), sys.modules.get("distributed")
    return bool(
        (base is not None and base.is_dask_collection(thing))
        or (distributed is not None and isinstance(thing, distributed.Future))
    )


def share_here(at_work: int, threads: int, memory: int) -> tuple[int, int]:
    """Divide the budgets of this process between the shards that run.

    Examples
    --------
    >>> share_here(2, 5, 100), share_here(3, 2, 100)
    ((2, 50), (1, 33))
    """
    return max(1, threads // at_work), memory // at_work


def deal_out(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Numbers of items for each of some workers: the largest first, to the least busy one.

    Examples
    --------
    >>> deal_out([1, 5, 3, 4], 2)
    [[1, 0], [3, 2]]
    """
    queues: list[list[int]] = [[] for _ in range(count)]
    load = [0] * count
    for item in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        worker = load.index(min(load))
        queues[worker].append(item)
        load[worker] += sizes[item]
    return queues


def build(block_type: Callable[..., Any], piece: object) -> Any:
    """Build the block of one piece, in this process."""
    held = list(leaves(piece))
    if any(is_remote(leaf) for leaf in held):
        # copy only the containers around the rows: deepcopy does not copy what is in the memo
        memo = {id(leaf): leaf.load() if is_remote(leaf) else leaf for leaf in held}
        piece = copy.deepcopy(piece, memo)
    return block_type(**piece) if isinstance(piece, Mapping) else block_type(piece)


def leaves(thing: object) -> Iterator[object]:
    """Iterate over the contents of nested containers and dataclasses.

    Examples
    --------
    >>> list(leaves((1, [2, {"a": 3}])))
    [1, 2, 3]
    """
    if isinstance(thing, Mapping):
        thing = list(thing.values())
    elif is_dataclass(thing) and not isinstance(thing, type):
        thing = [getattr(thing, field.name) for field in fields(thing)]
    if isinstance(thing, (tuple, list)):
        for part in thing:
            yield from leaves(part)
    else:
        yield thing


def size_of(thing: object) -> int:
    """Bytes of arrays, text and numbers (8 each), however deep in containers and dataclasses.

    Examples
    --------
    >>> size_of((np.zeros(3), [1, None, True], "abc"))
    43
    """
    return sum(map(_size, leaves(thing)))


def _size(leaf: object) -> int:
    if isinstance(leaf, np.ndarray):
        return leaf.nbytes
    if is_csr(leaf):
        return int(leaf.data.nbytes + leaf.indices.nbytes + leaf.indptr.nbytes)
    if isinstance(leaf, (str, bytes)):
        return len(leaf)
    return 8 if isinstance(leaf, (Number, np.generic)) else 0
