"""A graphics card of this machine: problems are solved and rows are scored there.

Strategies stay where they are, in this process; the rows that they see carry the card
(`Data.device`), on which kernel values, working sets and sums are computed.
"""

from __future__ import annotations

from margrave.cuda import Device
from margrave.engines.serial import Serial


def is_card(engine: object) -> bool:
    """Whether an engine is a graphics card."""
    return (isinstance(engine, str) and engine == "cuda") or isinstance(engine, Cuda)


class Cuda(Serial):
    """A graphics card.

    Parameters
    ----------
    device : int
        Its number.

    Examples
    --------
    >>> Cuda(device=1)
    Cuda(device=1)
    """

    def __init__(self, device: int = 0) -> None:
        if isinstance(device, bool) or not isinstance(device, int) or device < 0:
            raise ValueError(f"device must be the number of a graphics card, got {device!r}")
        self.device = device
        self._cards: dict[int | None, Device] = {}  # by their limit

    def __getstate__(self) -> dict[str, int]:
        return {"device": self.device}

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"Cuda(device={self.device})"

    def card(self, memory: int | None = None) -> Device:
        """The card, of whose memory so many bytes are used; by default most of what is free."""
        if memory not in self._cards:
            self._cards[memory] = Device(self.device, memory)
        return self._cards[memory]
