"""Blocks for the tests of engines, in a module that workers elsewhere can import."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse


class Numbers:
    """A block that holds an array."""

    def __init__(self, values, unit=1.0):
        self.values, self.unit = np.asarray(values, dtype=float), unit

    def array(self):
        return self.values

    def several(self, power):
        return self.values**power, float(self.values[0]), len(self.values)

    def scaled(self, factor, by):
        time.sleep(0.02 / (1.0 + self.values[0]))  # the first shards are ready last
        return factor * self.unit * self.values + by

    def grow(self):
        self.values = self.values + 1.0

    def one(self, argument):
        return 1

    def none_of(self, argument):
        return None

    def many(self, method, items):
        return [getattr(self, method)(*item) for item in items]

    def doubled(self, argument):
        return 2.0 * argument

    def refuse(self, number):
        if self.values[0] >= number:
            raise LookupError(f"shard {self.values[0]:.0f}")

    def state(self):
        return {"values": self.values, "unit": self.unit}

    def place(self):
        return os.getpid()

    def nothing(self):
        return None


class Slow:
    """A block that takes its time; the first interrupts somebody. Who is at work leaves a file."""

    def __init__(self, number, folder, pid=None):
        self.number, self.folder, self.pid = number, Path(folder), pid
        self.end = threading.Event()

    def work(self, seconds):
        mark = self.folder / str(self.number)
        mark.touch()
        try:
            if self.number == 0 and self.pid is not None:
                self.end.wait(0.05)
                os.kill(self.pid, signal.SIGINT)
            self.end.wait(seconds)
        finally:
            mark.unlink()
        return self.number

    def cancel(self):
        self.end.set()

    def is_cancelled(self):
        return self.end.is_set()

    def place(self):
        return os.getpid()

    def work_alone(self, number, seconds):
        """One block takes its time, all others are ready at once."""
        return self.work(seconds) if self.number == number else self.number

    def die_or_work(self, number, load):
        """One worker dies while the others are at work, or still get the load."""
        if self.number == number:
            os.kill(os.getpid(), signal.SIGKILL)
        self.work(30.0)
        return load

    def refuse_or_work(self, numbers, seconds, least):
        """Some blocks refuse; those before them are needed, and work for a moment."""
        if self.number in numbers:
            raise LookupError(f"shard {self.number}")
        self.work(seconds if self.number > min(numbers) else least)

    def work_or_ponder(self, seconds):
        """Every other block holds the interpreter, as much as Python code can."""
        if self.number % 2 == 0:
            return self.work(seconds)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        return self.number


@dataclass(frozen=True)
class Inner:
    """Rows deep inside of something."""

    X: Any
    others: Any = None


@dataclass(frozen=True)
class Outer:
    """Something that holds rows."""

    inner: Inner
    name: str = ""


class Holder:
    """A block that holds rows, however they came."""

    def __init__(self, outers, extra=None):
        self.outers, self.extra = outers, extra

    def kinds(self):
        return [type(outer.inner.X).__name__ for outer in self.outers]

    def rows(self):
        first = self.outers[0].inner.X
        return first.toarray() if sparse.issparse(first) else first

    def is_writable(self):
        return bool(self.extra.flags.writeable)

    def first_extra(self):
        return self.extra[0]

    def is_shared(self):
        return all(outer.inner.X is self.outers[0].inner.X for outer in self.outers)

    def place(self):
        return os.getpid()


class Refusing:
    """A block that cannot be built of negative numbers."""

    def __init__(self, number):
        if number < 0:
            raise ArithmeticError(f"no block of {number}")


class Awkward(Exception):
    """An error that a pickle cannot make again."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class Awful:
    """A block whose errors and results do not travel well."""

    def __init__(self, number):
        self.number = number

    def fail(self):
        raise Awkward("this", "that")

    def lock(self):
        return threading.Lock()
