"""Shards in parallel on the threads of this process: the default engine of estimators.

Threads are effective because blocks spend their time in the compiled core, which releases the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from margrave.engines.base import Arguments, build, share_here
from margrave.engines.serial import SerialShards


class Threads:
    """Blocks in this process, called by several threads at a time.

    Parameters
    ----------
    n_workers : int
        Threads.

    Examples
    --------
    >>> with Threads(2).scatter(list, ["abc", "de"]) as shards:
    ...     shards.map("__len__"), shards.reduce("__len__"), shards.call(0, "index", "b")
    ([3, 2], 5, 1)
    """

    is_remote = False
    share = staticmethod(share_here)

    def __init__(self, n_workers: int) -> None:
        if n_workers < 1:
            raise ValueError(f"an engine needs at least one worker, got n_workers={n_workers}")
        self.n_workers = n_workers

    def scatter(self, block_type: Callable[..., Any], pieces: Sequence[Any]) -> ThreadShards:
        """Build one block per piece."""
        return ThreadShards([build(block_type, piece) for piece in pieces], self.n_workers)


class ThreadShards(SerialShards):
    """Blocks in a list, and threads that work on them; one block alone needs no other thread."""

    def __init__(self, blocks: list[Any], n_workers: int) -> None:
        super().__init__(blocks)
        self._n_workers = n_workers
        self._pool = self._hire()

    def _run(self, method: str, calls: Sequence[tuple[int, Arguments]]) -> list[Any]:
        if len(calls) == 1:
            return super()._run(method, calls)
        try:
            jobs = [
                self._pool.submit(getattr(self._blocks[number], method), *args)
                for number, args in calls
            ]
            return [job.result() for job in jobs]
        except (
            BaseException
        ):  # an error, or Ctrl-C: no thread may still run when the caller continues
            for block in self._blocks:
                if hasattr(block, "cancel"):
                    block.cancel()
            self._pool.shutdown(cancel_futures=True)
            self._pool = self._hire()
            raise

    def _deal(self, method: str, items: Sequence[Arguments], sizes: Sequence[int]) -> list[Any]:
        """The largest first; a thread that is done takes the next."""
        order = sorted(range(len(items)), key=lambda i: -sizes[i])
        calls = [(place % len(self), items[i]) for place, i in enumerate(order)]
        found = dict(zip(order, self._run(method, calls), strict=True))
        return [found[i] for i in range(len(items))]

    def close(self) -> None:
        """End the threads and release the blocks."""
        self._pool.shutdown(cancel_futures=True)
        super().close()

    def _hire(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._n_workers, thread_name_prefix="margrave")
