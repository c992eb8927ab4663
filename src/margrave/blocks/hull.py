"""Weights of a reduced convex hull, S = {x >= 0, sum x = total, x_i <= cap_i}.

The extreme point in a direction, and projections onto S.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]


def fill(s: Floats, cap: Floats, total: float = 1.0) -> Floats:
    """Weights x in S with the least s'x: the lowest rows at their caps, the last one partly.

    Examples
    --------
    >>> fill(np.array([3.0, 1.0, 2.0]), np.full(3, 0.75)).tolist()
    [0.0, 0.75, 0.25]
    """
    x = np.zeros(len(s))
    if cap.min() >= total:
        x[np.argmin(s)] = total
        return x
    order = np.argsort(s, kind="stable")
    x[order] = np.diff(np.minimum(np.cumsum(cap[order]), total), prepend=0.0)
    return x


def level(s: Floats, cap: Floats, total: float = 1.0) -> float:
    """Score p of the last row that `fill` uses: b = -p minimizes total b + sum cap_i (-s_i - b)_+.

    At the optimum of a distance it is the score of all rows with 0 < x_i < cap_i. Where the
    last row is at its cap too there are many such p; this is the middle one.

    Examples
    --------
    >>> level(np.array([4.0, 1.0, 2.0]), np.full(3, 0.75))
    2.0
    >>> level(np.array([4.0, 1.0, 2.0]), np.full(3, 0.5))
    3.0
    """
    if cap.min() > total:
        return float(s.min())
    order = np.argsort(s, kind="stable")
    sums = np.cumsum(cap[order])
    last = min(int(np.searchsorted(sums, total * (1.0 - 1e-12))), len(s) - 1)
    if sums[last] <= total * (1.0 + 1e-12) and last + 1 < len(s):
        return float((s[order[last]] + s[order[last + 1]]) / 2.0)
    return float(s[order[last]])


def settle(
    probe: Callable[[Floats], tuple[Floats, Floats, Floats]], guess: Floats, is_capped: bool
) -> Floats:
    """Shifts c with sum_i min(cap_i, exp(l_i + c)) = 1, one for each side.

    ``probe(c)`` returns the sum of caps and the number of the rows that c brings to their caps,
    and log sum exp(l_i) of the others. Newton's method on the sum as a function of exp(c), which is
    concave: from the second value on it increases, and more rows reach their caps until none does.
    It starts from the guess, or, if the caps reached there sum to more than one, without caps.
    """
    mass, count, rest = probe(guess)
    if np.any(mass > 1.0 + 1e-12):
        mass, count, rest = probe(np.where(mass > 1.0 + 1e-12, -np.inf, guess))
    c: Floats = np.full(len(guess), -np.inf)
    while True:
        left = np.maximum(1.0 - mass, 1e-15)
        higher = np.where(rest == -np.inf, np.inf, np.log(left) - rest)
        if not is_capped or np.all(higher <= c):  # no increase beyond rounding
            highest: Floats = np.maximum(c, higher)
            return highest
        before, c = count, np.maximum(c, higher)
        mass, count, rest = probe(c)
        if np.array_equal(count, before):
            return c


def project(logs: Floats, cap: Floats) -> Floats:
    """The point of S (total one) nearest to exp(logs) in Kullback-Leibler divergence.

    Examples
    --------
    >>> project(np.log([1.0, 2.0, 5.0]), np.full(3, 0.5)).round(6).tolist()
    [0.166667, 0.333333, 0.5]
    """
    log_cap = np.log(cap)

    def probe(c: Floats) -> tuple[Floats, Floats, Floats]:
        full = logs + c[0] >= log_cap
        rest = logsumexp(logs[~full]) if not full.all() else -np.inf
        return np.array([cap[full].sum()]), np.array([full.sum()]), np.array([rest])

    c = settle(probe, np.zeros(1), is_capped=True)[0]
    found: Floats = np.minimum(cap, np.exp(np.minimum(logs + c, log_cap)))
    return found
