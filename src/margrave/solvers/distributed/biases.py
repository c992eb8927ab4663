"""The best intercept for rows in shards, from derivatives that the shards compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from margrave.problem import Floats

_TRIALS = 16  # per call
_WIDER = 4.0 ** np.arange(14)


def enclose_biases(
    slopes: Callable[[Floats], Floats], begin: Floats, width: float, wanted: float
) -> Floats:
    """Three rows: the initial biases, and both ends of short intervals around the best ones.

    `slopes` takes rows of biases (one bias, or one per class) and returns the derivatives of the
    losses with respect to each, which increase with the bias. The search continues until all
    intervals have the `wanted` width, relative to the biases.

    Examples
    --------
    >>> found = enclose_biases(lambda b: b - [2.0, -3.0], np.zeros(2), 1.0, 1e-9)
    >>> found[1].round(6).tolist()
    [2.0, -3.0]
    """
    steps = width * np.concatenate([-_WIDER[::-1], [0.0], _WIDER])
    trials, sides = begin + steps[:, None], np.arange(len(begin))
    while True:
        rising = slopes(trials) > 0.0
        first = np.where(rising.any(axis=0), np.argmax(rising, axis=0), len(trials))
        low = trials[np.maximum(0, first - 1), sides]
        high = trials[np.minimum(first, len(trials) - 1), sides]
        inside = np.linspace(low, high, _TRIALS + 2)
        scale = np.maximum(1.0, np.maximum(np.abs(low), np.abs(high)))
        done = (high - low <= wanted * scale) | (inside[1] <= low) | (inside[-2] >= high)
        if done.all():
            return np.array([begin, low, high])
        trials = inside
