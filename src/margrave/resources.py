"""What this process may use: bytes of memory and threads.

Limits come from the machine, from containers (cgroup versions 1 and 2), from ``ulimit -v`` and from
the usual variables; the tightest one wins.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

import joblib
from joblib.parallel import get_active_backend
from threadpoolctl import ThreadpoolController

# "4GiB" and, as in ulimit or docker, "4G" are powers of 1024; "4GB" is a power of 1000
_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _UNITS[_letter] = _UNITS[f"{_letter}IB"] = 1024**_power
    _UNITS[f"{_letter}B"] = 1000**_power

_UNKNOWN_MACHINE = 4 * 1024**3  # assumed if the system does not report its memory


def parse_bytes(limit: str | int | None) -> int:
    """Turn a memory limit into bytes; None means half of the memory available to the process.

    Examples
    --------
    >>> parse_bytes("4GiB"), parse_bytes("1.5 MB"), parse_bytes(1000)
    (4294967296, 1500000, 1000)
    """
    if limit is None:
        return max(1, available_memory() // 2)
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", limit)
        unit = _UNITS.get(match[2].upper()) if match else None
        if match is None or unit is None:
            raise ValueError(
                f"cannot read {limit!r} as a number of bytes; write for example '4GiB' or '500MB'"
            )
        number = int(float(match[1]) * unit)
    else:
        number = int(limit)
    if number <= 0:
        raise ValueError(f"a memory limit must be positive, got {limit!r}")
    return number


def in_words(count: int) -> str:
    """Write a number of bytes with a unit.

    Examples
    --------
    >>> in_words(1000), in_words(3 << 20), in_words(1 << 31)
    ('1000 bytes', '3.0 MiB', '2.0 GiB')
    """
    for power, unit in ((3, "GiB"), (2, "MiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.1f} {unit}"
    return f"{count} bytes"


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process can still allocate within all limits."""
    limits = [_free_memory(root), *_cgroup_headroom(root), *_address_space(root)]
    return max(0, min(limits))


def thread_count(n_jobs: int | None = None) -> int:
    """Threads to use for `n_jobs`.

    None means one inside a joblib worker (the outer loop has the cores already), else all cores
    of this process. A negative number counts back from all cores as in joblib. "All cores"
    respects the CPU affinity, container quotas and OMP_NUM_THREADS.
    """
    if n_jobs is None:
        backend, _ = get_active_backend()
        return 1 if (backend.nesting_level or 0) > 0 else _cores()
    if n_jobs == 0:
        raise ValueError("n_jobs=0 has no meaning; use None for all cores of the process")
    return int(n_jobs) if n_jobs > 0 else max(1, _cores() + 1 + int(n_jobs))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit the matrix products of NumPy and SciPy to the calling thread.

    The BLAS threads spin while they wait; when all cores are busy they use up the time slices of
    other threads, and a Cholesky factor can take a hundred times as long with two threads as with
    one. The setting is global to the process: of parallel fits the last one to end resets it.
    """
    user = _User()
    try:
        _alone.enter(user)
        yield
    finally:
        _alone.leave(user)


class _User:
    """A running fit; after Ctrl-C the reference disappears with the frame."""


class _Alone:
    def __init__(self) -> None:
        self.lock, self.users = threading.Lock(), WeakSet[_User]()
        self.limit: Any = None  # the one in force

    def enter(self, user: _User) -> None:
        with self.lock:
            self.users.add(user)
            if self.limit is None:
                self.limit = _pools().limit(limits=1, user_api="blas")

    def leave(self, user: _User) -> None:
        with self.lock:
            self.users.discard(user)
            if not self.users and self.limit is not None:
                limit, self.limit = self.limit, None
                limit.restore_original_limits()


_alone = _Alone()
if hasattr(os, "register_at_fork"):  # a child has none of the running threads
    os.register_at_fork(after_in_child=_alone.__init__)  # type: ignore[misc]


@lru_cache(maxsize=1)
def _pools() -> ThreadpoolController:
    """The libraries that are loaded; looking for them takes milliseconds."""
    return ThreadpoolController()


def _cores() -> int:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    cores = _cpu_count(os.getpid(), affinity)
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # "4,2": outermost level
    return max(1, min(cores, int(asked))) if asked.isdigit() and int(asked) > 0 else cores


@lru_cache(maxsize=8)
def _cpu_count(process: int, affinity: int) -> int:
    """Cores by affinity, container quota and LOKY_MAX_CPU_COUNT; reading the quota takes a while.

    The arguments are the cache key: another process or affinity is counted again.
    """
    return int(joblib.cpu_count())


def _free_memory(root: Path) -> int:
    """Free memory of the machine."""
    try:
        text = (root / "proc/meminfo").read_text()
        for line in text.splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        # without /proc the free pages are unknown or misleading: assume half of the total
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) // 2
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN_MACHINE


def _cgroup_headroom(root: Path) -> Iterator[int]:
    """What each memory group that holds this process leaves free (a parent's limit binds too)."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # inside a container the path may be the host's, then only the top exists
        group = top / path.lstrip("/")
        while True:
            yield from _group_headroom(group, *names)
            if group == top or top not in group.parents:
                break
            group = group.parent


def _group_headroom(group: Path, limit: str, usage: str, reclaimable: str) -> Iterator[int]:
    try:
        bytes_limit = int((group / limit).read_text())  # "max" is no number: no limit
        used = int((group / usage).read_text())
    except (OSError, ValueError):
        return
    cached = 0  # file pages that the kernel frees before it refuses memory
    try:
        for line in (group / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == reclaimable:
                cached = int(value)
    except (OSError, ValueError):
        pass
    yield bytes_limit - used + cached


def _address_space(root: Path) -> Iterator[int]:
    """What ``ulimit -v`` leaves."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft == resource.RLIM_INFINITY:
            return
        pages = int((root / "proc/self/statm").read_text().split()[0])
        yield soft - pages * resource.getpagesize()
    except (ImportError, OSError, ValueError, IndexError):
        return
