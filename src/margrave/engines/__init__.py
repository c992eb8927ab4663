"""Engines hold the shards of a strategy and run their methods.

base.py     the interface: Engine, Shards, ShardLost
recovery.py what a fit does about lost workers, and about those that join
tree.py     the tree along which calls travel, sums along it, and how much traffic that is
serial.py   one shard after the other, the reference
threads.py  the threads of this process, the default
remote.py   common code of the engines with other processes
dask.py     Dask clusters and collections; dask_workers.py  which workers are alive, calls to them
mpi.py      the ranks of an MPI program; mpi_post.py  messages between them
cuda.py     a graphics card
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from margrave.engines.base import Engine, ShardLost, Shards, is_collection
from margrave.engines.recovery import Arrivals, Recovery
from margrave.engines.serial import Serial
from margrave.engines.threads import Threads
from margrave.engines.tree import Traffic

if TYPE_CHECKING:
    from distributed import Client

    from margrave.engines.cuda import Cuda
    from margrave.engines.dask import Dask
    from margrave.engines.mpi import MPI

__all__ = [
    "ENGINES",
    "MPI",
    "Arrivals",
    "Cuda",
    "Dask",
    "Engine",
    "Recovery",
    "Serial",
    "ShardLost",
    "Shards",
    "Threads",
    "Traffic",
    "is_collection",
    "resolve_engine",
]


_MODULES = {
    "Cuda": "margrave.engines.cuda",
    "Dask": "margrave.engines.dask",
    "MPI": "margrave.engines.mpi",
}


def __getattr__(name: str) -> Any:
    # these need optional packages, which are imported on demand
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


ENGINES: dict[str, Callable[..., Engine]] = {
    "serial": Serial,
    "threads": Threads,
    "dask": lambda *args: __getattr__("Dask")(*args),
    "mpi": lambda *args: __getattr__("MPI")(*args),
    "cuda": cache(lambda *args: __getattr__("Cuda")(*args)),  # one handle of a card for all fits
}


EngineLike: TypeAlias = "str | Engine | Client | None"


def resolve_engine(engine: EngineLike, threads: int) -> Engine:
    """Turn None (threads of this process), a name or an engine into an engine.

    A name may also be the address of a Dask scheduler, ``"dask://host:port"`` (one with TLS is
    ``"dask+tls://host:port"``), and a Dask client stands for its cluster.

    Examples
    --------
    >>> resolve_engine(None, 2).n_workers, resolve_engine("serial", 2).n_workers
    (2, 1)
    """
    if engine is None:
        engine = "threads"
    if isinstance(engine, str):
        if engine.startswith(("dask://", "dask+")):
            return ENGINES["dask"](engine)
        if engine not in ENGINES:
            raise ValueError(f"unknown engine {engine!r}; known engines: {', '.join(ENGINES)}")
        return Threads(threads) if engine == "threads" else ENGINES[engine]()
    distributed = sys.modules.get("distributed")
    if distributed is not None and isinstance(engine, distributed.Client):
        return ENGINES["dask"](engine)
    if not hasattr(engine, "scatter"):
        raise ValueError(
            f"an engine is one of {', '.join(map(repr, ENGINES))} or has a method scatter,"
            f" got {engine!r}"
        )
    chosen: Engine = engine
    return chosen
