"""One shard after the other, in the calling thread: the reference for all other engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from margrave.engines.base import Arguments, Shards, build, share_here


class Serial:
    """Blocks in this process, called one after the other.

    Examples
    --------
    >>> with Serial().scatter(list, ["abc", "de"]) as shards:
    ...     shards.map("__len__"), shards.reduce("__len__"), shards.call(0, "index", "b")
    ([3, 2], 5, 1)
    """

    n_workers = 1
    is_remote = False
    share = staticmethod(share_here)

    def scatter(self, block_type: Callable[..., Any], pieces: Sequence[Any]) -> SerialShards:
        """Build one block per piece."""
        return SerialShards([build(block_type, piece) for piece in pieces])


class SerialShards(Shards):
    """Blocks in a list."""

    def __init__(self, blocks: list[Any]) -> None:
        super().__init__(len(blocks))
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def _run(self, method: str, calls: Sequence[tuple[int, Arguments]]) -> list[Any]:
        return [getattr(self._blocks[number], method)(*args) for number, args in calls]

    def close(self) -> None:
        """Release the blocks."""
        self._blocks = []
