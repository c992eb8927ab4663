"""One shard after the other, in the thread that asks: the engine to compare all others with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from margrave.engines.base import add_up, build


class Serial:
    """Blocks in this process, called one after the other.

    Examples
    --------
    >>> with Serial().scatter(list, ["abc", "de"]) as shards:
    ...     shards.map("__len__"), shards.reduce("__len__"), shards.call(0, "index", "b")
    ([3, 2], 5, 1)
    """

    n_workers = 1

    def scatter(self, block_type: Callable[..., Any], pieces: Sequence[Any]) -> SerialShards:
        """Build one block per piece."""
        return SerialShards([build(block_type, piece) for piece in pieces])


class SerialShards:
    """Blocks in a list."""

    def __init__(self, blocks: list[Any]) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def map(self, method: str, *args: Any) -> list[Any]:
        """Call a method of all blocks; the results in the order of the shards."""
        return [getattr(block, method)(*args) for block in self._blocks]

    def call(self, number: int, method: str, *args: Any) -> Any:
        """Call a method of one block."""
        return getattr(self._blocks[number], method)(*args)

    def reduce(self, method: str, *args: Any) -> Any:
        """Call a method of all blocks and add up the results in the order of the shards."""
        return add_up(self.map(method, *args))

    def close(self) -> None:
        """Let go of the blocks."""
        self._blocks = []

    def __enter__(self) -> SerialShards:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
