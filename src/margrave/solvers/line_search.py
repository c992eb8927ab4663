"""The exact step along a direction on which a convex function falls."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from margrave.problem import Floats

_TRIALS = 8  # steps per call


def best_step(rate: Callable[[Floats], Floats], largest: float) -> float:
    """Step t in [0, largest] at which an increasing rate of change is zero.

    The rate is asked for at several steps at a time: the one at which a straight line through both
    ends would be zero, which is the answer for a parabola, and others evenly between the ends.

    Examples
    --------
    >>> best_step(lambda t: 2.0 * t - 1.0, 5.0), best_step(lambda t: t - 9.0, 5.0)
    (0.5, 5.0)
    """
    low, high = 0.0, largest
    if np.isinf(high):
        high = next(t for t in 4.0 ** np.arange(500) if t > 1e150 or rate(np.array([t]))[0] >= 0.0)
    at_low, at_high = rate(np.array([low, high]))
    if at_high <= 0.0:
        return high
    if at_low >= 0.0:
        return 0.0
    small = 1e-13 * (abs(at_high) + (abs(at_low) if np.isfinite(at_low) else 0.0))
    for _ in itertools.count():
        grid = np.linspace(low, high, _TRIALS + 2)[1:-1]
        if np.isfinite(at_low):
            straight = low - at_low * (high - low) / (at_high - at_low)
            grid = np.unique(np.append(grid, straight))
        grid = grid[(grid > low) & (grid < high)]
        if len(grid) == 0:
            return low
        rates = rate(grid)
        best = int(np.argmin(np.abs(rates)))
        if abs(rates[best]) <= small:
            return float(grid[best])
        rises = int(np.searchsorted(rates, 0.0))
        if rises < len(grid):
            high, at_high = float(grid[rises]), float(rates[rises])
        if rises > 0:
            low, at_low = float(grid[rises - 1]), float(rates[rises - 1])
        if high - low <= 1e-14 * high:
            return low
    return low
