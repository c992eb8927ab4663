"""What an engine is: workers that hold shards of the data and are called by the names of methods.

A strategy says what one shard holds and can do, as a plain class (a block), and hands an engine one
piece of the data per shard. The engine builds the blocks where the work is to be done and passes on
calls. It knows nothing of kernels or losses, and a strategy nothing of threads or networks:
everything that goes between them is arrays, numbers and names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol

import numpy as np


class Shards(Protocol):
    """Blocks that an engine has built, one per piece; a context manager that ends with `close`."""

    def __len__(self) -> int:
        """Return the number of shards."""
        ...

    def map(self, method: str, *args: Any) -> list[Any]:
        """Call a method of all blocks, side by side; the results in the order of the shards."""
        ...

    def call(self, number: int, method: str, *args: Any) -> Any:
        """Call a method of one block."""
        ...

    def reduce(self, method: str, *args: Any) -> Any:
        """Call a method of all blocks and add up the results, entry by entry.

        The sum goes through the shards in their order, so that it comes out the same, bit for bit,
        whichever block is ready first.
        """
        ...

    def close(self) -> None:
        """Let go of the blocks."""
        ...

    def __enter__(self) -> Shards: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Engine(Protocol):
    """Where shards live and work."""

    @property
    def n_workers(self) -> int:
        """How many shards can work at a time."""
        ...

    def scatter(self, block_type: Callable[..., Any], pieces: Sequence[Any]) -> Shards:
        """Build one block per piece.

        A piece that is a mapping holds the arguments of `block_type` by name, any other is its only
        argument. Both must survive a pickle, since other engines build their blocks elsewhere.

        A block whose calls take long has a method `cancel`, which ends the call that another thread
        is in, soon: engines call it when the caller was interrupted.
        """
        ...


def build(block_type: Callable[..., Any], piece: Any) -> Any:
    """Build the block of one piece."""
    return block_type(**piece) if isinstance(piece, Mapping) else block_type(piece)


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
