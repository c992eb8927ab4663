"""Seconds and memory of one call, and what the machine is. Linux, standard library only."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    seconds: float
    memory_before: int  # resident bytes: interpreter, libraries, data
    memory_peak: int  # highest resident bytes during the call
    # False: the peak may stem from before the call, so it is an upper bound.
    peak_is_exact: bool
    # True: pages of mapped files do not count, and the peak is that of many samples.
    anonymous: bool = False

    @property
    def memory_beyond(self) -> int:
        return self.memory_peak - self.memory_before


def timed(
    call: Callable[[], T], limit: float | None = None, anonymous: bool = False
) -> tuple[T, Cost]:
    """Run ``call``. After ``limit`` seconds the *process* ends with SIGALRM: compiled code cannot
    be interrupted in any other way, and a measuring process has nothing else to lose.
    ``anonymous``: count the memory beyond mapped files."""
    exact = _reset_peak()
    watch = _Watch() if anonymous else None
    before = _resident("RssAnon" if anonymous else "VmRSS")
    if limit is not None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit)
    start = time.perf_counter()
    value = call()
    seconds = time.perf_counter() - start
    if limit is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)
    peak = _resident("VmHWM") if watch is None else watch.peak()
    return value, Cost(seconds, before, peak, exact, anonymous)


class _Watch:
    """The highest resident anonymous memory of this process. Linux keeps no record of it, so that
    another process samples it: a thread could not while compiled code holds the lock of the
    interpreter."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("watch_memory.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it complains if this process is ended by the limit
            text=True,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()  # it has begun

    def peak(self) -> int:
        answer, _ = self.process.communicate()
        return int(answer)


def _reset_peak() -> bool:
    """Set the high-water mark (VmHWM) to the present size."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in /proc/self/status")


# The flags that tell the x86-64 levels apart, as /proc/cpuinfo spells them.
_LEVELS = {
    "x86-64-v2": {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}


def machine() -> dict[str, Any]:
    """CPU model, cores of this process, instruction set, memory, and how busy it was."""
    cpu: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        cpu.setdefault(key.strip(), value.strip())
    flags = set(cpu.get("flags", "").split())
    level = platform.machine()
    for name, needed in _LEVELS.items():
        if not needed <= flags:
            break
        level = name
    return {
        "cpu": cpu.get("model name", platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "instruction_set": level,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "threads_environment": {
            key: os.environ[key]
            for key in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
            if key in os.environ
        },
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def in_own_process(task: list[str], limit: float, cwd: Path) -> dict[str, Any]:
    """The JSON that a command prints last; a failure is returned as an "error"."""
    try:
        done = subprocess.run(
            task, check=False, capture_output=True, text=True, cwd=cwd, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return {"error": f"given up after {limit:g} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["no answer"])[-1]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found
