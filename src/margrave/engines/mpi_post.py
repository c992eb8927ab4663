"""Non-blocking messages between the ranks of an MPI program."""

from __future__ import annotations

import signal
import threading
import time
import weakref
from collections.abc import Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from typing import Any

import numpy as np

from margrave.engines.remote import Frames, pack, unpack
from margrave.extras import install

try:
    from mpi4py import MPI as mpi
except (ImportError, RuntimeError) as error:  # no package, or no library for it
    raise ImportError(f'the engine "mpi" needs: {install("mpi")} ({error})') from error

__all__ = ["Post", "interrupts_noted", "mpi"]

_HEAD, _BODY = 22961, 22962  # tags: the sizes of a message's frames, and the frames
_CHUNK = 1 << 30  # bytes that any MPI can send at once
_PAUSES = 2e-4, 1e-3  # seconds between checks for messages: there may be more ranks than cores


@contextmanager
def interrupts_noted() -> Iterator[list[KeyboardInterrupt]]:
    """Record Ctrl-C instead of raising it in the middle of a message."""
    noted: list[KeyboardInterrupt] = []
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield noted
        return
    signal.signal(signal.SIGINT, lambda *_: noted.append(KeyboardInterrupt()))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Post:
    """Messages between ranks: the sizes of the frames, then the frames as raw bytes.

    Nothing blocks, so that a rank that does not answer cannot stop the others.
    """

    def __init__(self, comm: mpi.Comm) -> None:
        self._comm = comm
        self._leaving: list[tuple[int, list[Any], Any]] = []  # rank, requests, what they send
        self._arriving: list[tuple[int, list[Any], Frames]] = []
        self._last = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether messages are on their way."""
        return bool(self._leaving or self._arriving)

    def send(self, rank: int, message: object) -> None:
        """Begin to send a message."""
        frames = [np.frombuffer(frame, np.uint8) for frame in pack(message, by_name=True)[0]]
        sizes = np.array([len(frame) for frame in frames], np.int64)
        requests = [self._comm.Isend(sizes, rank, _HEAD)]
        requests += [self._comm.Isend(chunk, rank, _BODY) for chunk in _chunks(frames)]
        self._leaving.append((rank, requests, (sizes, frames)))

    def receive(self, single: bool = False) -> list[tuple[int, Any]]:
        """Ranks and messages that have arrived, those of one rank in their order.

        After a `single` one the rest is left to the next receiver, possibly another engine.
        """
        self._let_go()
        status = mpi.Status()
        while not (single and self._arriving) and self._comm.Iprobe(tag=_HEAD, status=status):
            rank = status.Get_source()
            sizes = np.empty(status.Get_count(mpi.INT64_T), np.int64)
            self._comm.Recv(sizes, rank, _HEAD)
            frames = [np.empty(size, np.uint8) for size in sizes]
            requests = [self._comm.Irecv(chunk, rank, _BODY) for chunk in _chunks(frames)]
            self._arriving.append((rank, requests, frames))
        came: list[tuple[int, Any]] = []
        left: list[tuple[int, list[Any], Frames]] = []
        for one in self._arriving:
            rank, requests, frames = one
            if any(rank == other for other, _, _ in left) or not mpi.Request.Testall(requests):
                left.append(one)
            else:
                came.append((rank, unpack(frames)))
        self._arriving = left
        return came

    def pause(self, came: bool, jobs: Collection[Future[Any]]) -> None:
        """Wait a moment for messages and jobs if none `came`, longer each time."""
        now = time.monotonic()
        if self._arriving:
            self._last = now
        moment = min(max(0.25 * (now - self._last), _PAUSES[0]), _PAUSES[1])
        if came:
            self._last = now
        elif not jobs:
            time.sleep(moment)
        elif wait(jobs, moment, FIRST_COMPLETED).done:
            self._last = now

    def _let_go(self) -> None:
        self._leaving = [one for one in self._leaving if not mpi.Request.Testall(one[1])]

    def close(self, lost: Collection[int] = (), timeout: float = 0.0) -> None:
        """Wait until everything is sent, except to lost ranks."""
        end = time.monotonic() + timeout
        self._let_go()
        while any(rank not in lost for rank, _, _ in self._leaving) and time.monotonic() < end:
            self.pause(False, ())
            self._let_go()
        if self.is_busy:  # as long as there are ranks, MPI may use these buffers
            left = (self._leaving, self._arriving)
            weakref.finalize(self._comm, bool, left).atexit = False


def _chunks(frames: Frames) -> list[Any]:
    return [frame[at : at + _CHUNK] for frame in frames for at in range(0, len(frame), _CHUNK)]
