"""A graphics card for tests, on machines without one: its programs compiled for this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from margrave.cuda import device
from margrave.engines import ENGINES
from tests.emulated import cupy
from tests.emulated.cupy import COMPILER

__all__ = ["COMPILER", "card", "turns"]


@contextmanager
def card() -> Iterator[None]:
    """Let margrave find the emulated card."""
    _forget()
    cupy.install()
    try:
        yield
    finally:
        cupy.uninstall()
        _forget()


@contextmanager
def turns(order: int) -> Iterator[None]:
    """Another order of the turns of a block's threads: ascending, descending, then by chance."""
    before, cupy.ORDER = cupy.ORDER, order
    try:
        yield
    finally:
        cupy.ORDER = before


def _forget() -> None:
    device.compiled.cache_clear()
    device.function_of.cache_clear()
    device.own_card.cache_clear()
    ENGINES["cuda"].cache_clear()
