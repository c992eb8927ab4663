"""Engines: where the shards of a strategy live and work. `base.py` says what one has to offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from margrave.engines.base import Engine, Shards
from margrave.engines.serial import Serial
from margrave.engines.threads import Threads

ENGINES: dict[str, Callable[..., Engine]] = {"serial": Serial, "threads": Threads}

__all__ = ["ENGINES", "Engine", "Serial", "Shards", "Threads", "resolve_engine"]


def resolve_engine(engine: Any, threads: int) -> Engine:
    """Turn None (so many threads of this process), a name or an engine into an engine.

    Examples
    --------
    >>> resolve_engine(None, 2).n_workers, resolve_engine("serial", 2).n_workers
    (2, 1)
    """
    if engine is None:
        engine = "threads"
    if isinstance(engine, str):
        if engine not in ENGINES:
            raise ValueError(f"unknown engine {engine!r}; known engines: {', '.join(ENGINES)}")
        return Threads(threads) if engine == "threads" else ENGINES[engine]()
    if not callable(getattr(engine, "scatter", None)):
        raise ValueError(
            f"an engine is one of {', '.join(map(repr, ENGINES))} or has a method scatter,"
            f" got {engine!r}"
        )
    chosen: Engine = engine
    return chosen
