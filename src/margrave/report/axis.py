"""Axes of figures: scales and tick labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margrave.report.page import number

Floats = NDArray[np.float64]

_HUGE = 1e100  # larger numbers would overflow when subtracted or squared
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """A horizontal or vertical axis from `low` to `high`."""

    title: str
    low: float
    high: float
    log: bool = False

    @classmethod
    def over(
        cls,
        title: str,
        values: ArrayLike,
        log: bool = False,
        also: Sequence[float] = (),
        pad: float = 0.0,
    ) -> Axis:
        """An axis for all finite values (if `log`, positive ones), with some padding."""
        found = np.concatenate([np.ravel(np.asarray(values, dtype=np.float64)), also])
        found = np.clip(found[np.isfinite(found)], -_HUGE, _HUGE)
        if log:
            found = found[found > 1.0 / _HUGE]
        low, high = (float(found.min()), float(found.max())) if len(found) else (0.0, 1.0)
        if log:
            low, high = (low, high) if len(found) else (0.1, 1.0)
            low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
            return cls(title, low, high if high > low else 10.0 * low, True)
        room = pad * (high - low)
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            room = 0.5 * abs(high) or 0.5
        return cls(title, low - room, high + room)

    def at(self, values: ArrayLike) -> Floats:
        """Position of each value on the axis, from 0 to 1; values outside are clipped."""
        found = np.asarray(values, dtype=np.float64)
        low, high = self.low, self.high
        if self.log:
            found = np.log10(np.maximum(found, low))
            low, high = math.log10(low), math.log10(high)
        return np.clip((found - low) / (high - low), 0.0, 1.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Round numbers along the axis, and their labels."""
        if self.log:
            low, high = round(math.log10(self.low)), round(math.log10(self.high))
            every = max(1, math.ceil((high - low) / 5))
            return [(10.0**e, _power(e)) for e in range(low, high + 1, every)]
        step = _round_step((self.high - self.low) / 5)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(step * i, _tick(step * i, step)) for i in range(first, last + 1)]


def _round_step(step: float) -> float:
    unit: float = 10.0 ** math.floor(math.log10(step))
    return unit * next(f for f in (1.0, 2.0, 5.0, 10.0) if f * unit >= step * (1 - 1e-9))


def _tick(value: float, step: float) -> str:
    if value == 0.0:
        return "0"
    if abs(value) >= 1e5 or step < 1e-4:
        digits = math.ceil(math.log10(max(1.0, abs(value) / step)) + 1e-9) + 1
        return f"{value:.{digits}g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:,.{digits}f}"


def _power(exponent: int) -> str:
    if -2 <= exponent <= 3:
        return number(10.0**exponent)
    return "10" + str(exponent).translate(_RAISED)
