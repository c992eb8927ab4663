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

    A subclass implements how blocks are called (`_run`).

    Attributes
    ----------
    moved : int
        Bytes exchanged between the caller and the shards so far, as arguments and results. All
        engines count in the same way, even if nothing leaves the process.
    """

    def __init__(self) -> None:
        self.moved = 0

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

    def map(self, method: str, *args: object) -> list[Any]:
        """Call a method of all blocks, in parallel; the results in the order of the shards."""
        return self.each(method, [args] * len(self))

    def each(self, method: str, arguments: Sequence[Arguments]) -> list[Any]:
        """Call a method of all blocks, in parallel, shard k with the arguments number k."""
        if len(arguments) != len(self):
            raise ValueError(f"{len(self)} shards need as many arguments, got {len(arguments)}")
        return self._counted(method, list(enumerate(arguments)))

    def call(self, number: int, method: str, *args: object) -> Any:
        """Call a method of one block."""
        return self._counted(method, [(number, args)])[0]

    def reduce(self, method: str, *args: object) -> Any:
        """Call a method of all blocks and add up the results, entry by entry.

        The sum is in the order of the shards, so that it is bitwise the same whichever block is
        ready first.
        """
        return add_up(self.map(method, *args))

    def checkpoint(self) -> list[Any]:
        """Fetch what the blocks return as their `state`: enough to rebuild them elsewhere."""
        return self.map("state")

    def _counted(self, method: str, calls: Sequence[tuple[int, Arguments]]) -> list[Any]:
        results = self._run(method, calls)
        # what is the same for several shards goes to each worker once
        sent = {(self._home(number), id(args)): args for number, args in calls}
        self.moved += size_of(list(sent.values())) + size_of(results)
        return results

    def _home(self, number: int) -> Any:
        """The worker of a shard."""
        return 0

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


def add_up(results: Sequence[Any]) -> Any:
    """Add up arrays, numbers, or tuples of them, in their order.

    Examples
    --------
    >>> add_up([(1.0, np.array([1, 2])), (0.5, np.array([3, 4]))])
    (1.5, array([4, 6]))
    """
    if isinstance(results[0], tuple):
        return tuple(add_up(parts) for parts in zip(*results, strict=True))
    total = np.array(results[0])  # a copy: the block may still need its own
    for result in results[1:]:
        total = total + result
    return total if total.ndim else total.item()
