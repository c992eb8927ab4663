"""The tree along which calls travel, the sums along it, and what passes through every worker.

    driver  <-->  worker 0  <-->  workers 1, 2, 4, 8 ...  <-->  workers 3, 5, 6, 9 ...  <-->  ...

It is a binomial tree: the parent of a worker has its number without the lowest bit that is set, so
that the workers below number k are the next ones, up to a power of two. What is the same for all
goes down the tree; results come up, as a list or added up. Sums are pairwise in the order of the
shards, ((0 + 1) + (2 + 3)) + (4 + 5): along the tree these are sums of what the workers below have
added up, and they depend on the number of shards alone, not on who holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Sums = dict[tuple[int, int], Any]  # (l, k): the sum over the shards from k 2^l to (k + 1) 2^l


def children(number: int, count: int) -> list[int]:
    """Those to whom number `number` of `count` forwards, the one with most below it first.

    Examples
    --------
    >>> [children(number, 6) for number in range(6)]
    [[4, 2, 1], [], [3], [], [5], []]
    """
    lowest = number & -number or count
    found = []
    step = 1
    while step < lowest and number + step < count:
        found.append(number + step)
        step *= 2
    return found[::-1]


def combine(sums: Sums, count: int) -> Sums:
    """Add up neighbours, as far as both are there; `count` is the number of all shards.

    Examples
    --------
    >>> sums = combine({(0, 0): 1.0, (0, 1): 2.0, (0, 4): 5.0}, 5)
    >>> {place: float(found) for place, found in sums.items()}
    {(1, 0): 3.0, (2, 1): 5.0}
    """
    sums = dict(sums)
    for level in range((count - 1).bit_length()):
        for place in sorted(k for at, k in sums if at == level and k % 2 == 0):
            right = (level, place + 1)
            if (place + 1) << level >= count:  # there is nothing to add
                sums[level + 1, place // 2] = sums.pop((level, place))
            elif right in sums:
                sums[level + 1, place // 2] = _add(sums.pop((level, place)), sums.pop(right))
    return sums


def total(sums: Sums) -> Any:
    """The sum over all shards, from `combine`: a new array, a number, or a tuple of them."""
    [(_, found)] = sums.items()
    return _own(found)


def add_up(results: Sequence[Any]) -> Any:
    """Add up arrays, numbers, or tuples of them, pairwise in their order.

    Examples
    --------
    >>> add_up([(1.0, np.array([1, 2])), (0.5, np.array([3, 4]))])
    (1.5, array([4, 6]))
    """
    sums = {(0, number): result for number, result in enumerate(results)}
    return total(combine(sums, len(results)))


def _add(one: Any, other: Any) -> Any:
    if isinstance(one, tuple):
        return tuple(_add(*both) for both in zip(one, other, strict=True))
    return np.add(one, other)


def _own(found: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(map(_own, found))
    array = np.array(found)  # a copy: with one shard, the block may still need its own
    return array if array.ndim else array.item()


@dataclass(frozen=True)
class Traffic:
    """Bytes of arguments and results, on a cluster with a worker for every shard.

    All engines count in the same way, by the tree and the sizes of arguments and results, even if
    nothing leaves the process. Workers with several shards move less.

    Parameters
    ----------
    driver_sent, driver_received : int
        Bytes.
    workers : tuple of int
        Bytes that each worker has sent and received, forwarding included.
    total : int
        Bytes that were sent, by whomever.
    messages : int
        How many were sent, also empty ones.

    Examples
    --------
    >>> from margrave.engines import Serial
    >>> with Serial().scatter(list, ["abc", "de", "fgh"]) as shards:
    ...     counts = shards.map("count", "a")
    ...     shards.traffic.driver_sent, shards.traffic.workers, shards.traffic.worker_most
    (1, (43, 9, 9), 43)
    """

    driver_sent: int = 0
    driver_received: int = 0
    workers: tuple[int, ...] = ()
    total: int = 0
    messages: int = 0

    @property
    def worker_most(self) -> int:
        """Bytes that the busiest worker has sent and received."""
        return max(self.workers, default=0)

    def __sub__(self, before: Traffic) -> Traffic:
        return Traffic(
            self.driver_sent - before.driver_sent,
            self.driver_received - before.driver_received,
            tuple(now - then for now, then in zip(self.workers, before.workers, strict=True)),
            self.total - before.total,
            self.messages - before.messages,
        )


class Meter:
    """Counts the traffic of `count` shards."""

    def __init__(self, count: int) -> None:
        self.sent = self.received = self.messages = self.exchanged = 0
        self.workers = np.zeros(count, np.int64)
        numbers = np.arange(count)
        self._children = np.array([len(children(n, count)) for n in range(count)], np.int64)
        self._parents = numbers & (numbers - 1)
        self._parents[:1] = -1  # the driver

    @property
    def traffic(self) -> Traffic:
        """All so far."""
        ends = self.sent + self.received + int(self.workers.sum())  # of each message, both
        workers = tuple(map(int, self.workers))
        return Traffic(self.sent, self.received, workers, ends // 2, self.messages)

    def down(self, size: int) -> None:
        """The same for all, from the driver."""
        self.sent += size
        self.workers += size * (1 + self._children)
        self.messages += len(self.workers)
        self.exchanged += size * len(self.workers)

    def up(self, sizes: Sequence[int]) -> None:
        """A list with an entry of each, to the driver."""
        carried = np.array(sizes, np.int64)
        self.exchanged += int(carried.sum())
        for number in range(len(carried) - 1, 0, -1):
            carried[self._parents[number]] += carried[number]
        self._edges(carried)

    def summed(self, size: int) -> None:
        """A sum, to the driver."""
        self._edges(np.full(len(self.workers), size))
        self.exchanged += size * len(self.workers)

    def direct(self, number: int, sent: int, received: int) -> None:
        """Between the driver and one worker, by the driver."""
        self.exchanged += sent + received
        self.sent += sent
        self.received += received
        self.workers[number] += sent + received
        self.messages += 2

    def _edges(self, carried: Any) -> None:
        self.workers += carried
        np.add.at(self.workers, self._parents[1:], carried[1:])
        self.received += int(carried[:1].sum())
        self.messages += len(self.workers)
