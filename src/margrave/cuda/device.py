"""A graphics card: its memory, and programs that are compiled for it when they are first used."""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeVar
from weakref import finalize

import numpy as np

from margrave import _core
from margrave.extras import install

T = TypeVar("T")

_HEADERS = Path(_core.__file__).parent / "include"
_ROOM = 0.9  # share of the free memory that is used if there is no limit
# The dual point needs gap terms that are never negative: no fused multiply-add there.
_OPTIONS = {"tiles": (), "solver": ("-fmad=false",)}


def import_cupy() -> ModuleType:
    """Import CuPy, or say what to install."""
    try:
        import cupy
    except ImportError as missing:
        raise ValueError(
            f"engine='cuda' needs CuPy: {install('cuda')}, or cupy-cuda12x for a driver of CUDA 12"
            f" ({missing})"
        ) from missing
    found: ModuleType = cupy
    return found


def cards() -> int:
    """Number of graphics cards that can be used here; zero without CuPy or a driver."""
    try:
        return int(import_cupy().cuda.runtime.getDeviceCount())
    except Exception:  # of CuPy: no driver, or one that is too old
        return 0


class Device:
    """A graphics card of this process, used by any of its threads.

    Parameters
    ----------
    number : int
        Of the card.
    memory : int, optional
        Bytes of its memory to use at most; by default nine tenths of what is free.
    """

    def __init__(self, number: int = 0, memory: int | None = None) -> None:
        cupy = self.cupy = import_cupy()
        try:
            count = cupy.cuda.runtime.getDeviceCount()
        except Exception as failure:
            raise ValueError(
                f"engine='cuda' finds no graphics card: {failure}; a driver of CUDA 12 or later and"
                " the CuPy package for it are needed"
            ) from failure
        if not 0 <= number < count:
            raise ValueError(f"there is no graphics card {number}: this machine has {count}")
        self.number = number
        self.memory = memory
        self.lock = threading.RLock()
        self.structs: dict[bytes, Any] = {}
        self.copies: dict[tuple[int, str], Any] = {}  # of host arrays, while these live
        self.local = threading.local()
        with cupy.cuda.Device(number):
            free = int(cupy.cuda.runtime.memGetInfo()[0] * _ROOM)
            self.limit = free if memory is None else min(free, memory)
            self.pool = cupy.cuda.MemoryPool()
            self.pool.set_limit(size=self.limit)

    @contextmanager
    def at_work(self) -> Iterator[ModuleType]:
        """Allocate and launch on this card, on a stream of the calling thread."""
        cupy = self.cupy
        if not hasattr(self.local, "stream"):
            with cupy.cuda.Device(self.number):
                self.local.stream = cupy.cuda.Stream(non_blocking=True)
        try:
            with (
                cupy.cuda.Device(self.number),
                self.local.stream,
                cupy.cuda.using_allocator(self.pool.malloc),
            ):
                yield cupy
        except cupy.cuda.memory.OutOfMemoryError as full:
            raise ValueError(
                f"the rows and working sets do not fit into {self.limit / 2**30:.1f} GiB of the"
                f" card's memory ({full}); raise memory_limit, or use a machine's threads"
            ) from full

    def function(self, program: str, name: str, shared: int = 0, **macros: object) -> Any:
        """A compiled function of one of the programs in ``cpp/cuda``.

        It may use so many bytes of shared memory besides what it declares.
        """
        with self.lock:
            return function_of(self.number, program, name, shared, tuple(sorted(macros.items())))

    def struct(self, packed: bytes) -> Any:
        """A copy of a struct on the card."""
        with self.lock:
            if packed not in self.structs:
                self.structs[packed] = self.cupy.asarray(np.frombuffer(packed, dtype=np.uint8))
                self.cupy.cuda.get_current_stream().synchronize()
            return self.structs[packed]

    def copy_of(self, array: Any, kind: str, make: Callable[[], T]) -> T:
        """What `make` computes from an array of the host, once while the array lives."""
        key = (id(array), kind)
        with self.lock:
            if key not in self.copies:
                copy = make()
                self.cupy.cuda.get_current_stream().synchronize()  # other threads may read it
                self.copies[key] = copy
                finalize(array, self.copies.pop, key, None)
            found: T = self.copies[key]
            return found

    def release(self) -> None:
        """Give memory that is not in use back to the card."""
        self.pool.free_all_blocks()

    def forget(self, array: Any, kind: str) -> None:
        """Release a copy."""
        with self.lock:
            self.copies.pop((id(array), kind), None)


@cache
def own_card() -> Device:
    """The first card that this process may use: which it is says CUDA_VISIBLE_DEVICES."""
    return Device()


@cache
def digest() -> str:
    """Of all headers: compiled programs are kept on disk by their options."""
    found = hashlib.sha256()
    for path in sorted(_HEADERS.rglob("*")):
        if path.is_file():
            found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def options(program: str, macros: tuple[tuple[str, object], ...]) -> tuple[str, ...]:
    """How one of the programs is compiled."""
    return (
        "-std=c++17",
        "-default-device",
        f"-I{_HEADERS}",
        f"-I{_HEADERS / 'cuda' / 'std'}",
        f"-DMARGRAVE_DIGEST={digest()}",
        *_OPTIONS[program],
        *(f"-D{macro}={value}" for macro, value in macros),
    )


@cache
def compiled(number: int, program: str, macros: tuple[tuple[str, object], ...]) -> Any:
    """One of the programs in ``cpp/cuda``, compiled for the present card and loaded there."""
    return import_cupy().RawModule(
        code=f'#include "cuda/{program}.cu"\n', options=options(program, macros)
    )


@cache
def function_of(
    number: int, program: str, name: str, shared: int, macros: tuple[tuple[str, object], ...]
) -> Any:
    """A function of a program; the limit of its shared memory is set before any thread uses it."""
    found = compiled(number, program, macros).get_function(name)
    if shared:
        found.max_dynamic_shared_size_bytes = shared
    return found


@contextmanager
def deferred_interrupt() -> Iterator[list[bool]]:
    """Ctrl-C sets the only entry of the list instead of raising: steps are done completely."""
    pressed = [False]
    usual = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not usual:
        yield pressed
        return

    def remember(number: int, frame: FrameType | None) -> None:
        pressed[0] = True

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
