"""The figures of a certificate, and how much of them is rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from margrave import _core
from margrave.problem import Solution

UNIT = 2.0**-53  # largest relative error of one operation
NOTICEABLE = 1e-3  # a bound is refined if rounding is at least this fraction of it
_CHEAP = 1 << 22  # products whose compensated sum takes no noticeable time


@dataclass(frozen=True)
class Certificate:
    """Primal and dual value of a point, a bound on its relative gap, and the part of rounding.

    The part of rounding may exceed a bound that is 1 because the dual value is not positive. Where
    it was noticeable, scores are `refined`: summed with compensation.
    """

    objective: float
    dual: float
    gap: float
    rounding: float
    refined: bool = False


def relative(
    plain: float, upper: float, dual: float, error: float, least_scale: float = 0.0
) -> Certificate:
    """Bound the relative gap of P + D <= `upper`, where D is off by `error` at most.

    With g = P + D, computed as `plain`, and D <= 0 it is g / (g + |D|), which grows with g. Where D
    may be positive it is g / max(g - D, D); g, convex in the scores, is as far below `plain` at
    most as `upper` is above it.
    """
    primal, highest = plain - dual, dual + error
    if upper == 0.0:
        return Certificate(primal, dual, 0.0, 0.0)
    if not math.isfinite(upper):
        return Certificate(primal, dual, math.inf, math.inf)
    g = upper if highest <= 0.0 else 2.0 * plain - upper
    certain = max(g - highest, dual - error, least_scale)
    gap = upper / certain if certain > 0.0 else math.inf
    scale = max(abs(primal), abs(dual), least_scale)
    rounding = upper / (scale - error) - plain / scale if scale > error else math.inf
    return Certificate(primal, dual, gap, rounding)


def with_certificate(solution: Solution, found: Certificate, tol: float) -> Solution:
    """The solution with its final figures."""
    return replace(
        solution,
        objective=found.objective,
        dual=found.dual,
        gap=found.gap,
        rounding=min(found.rounding, found.gap),
        converged=found.gap <= tol,
        certificate="full",
    )


@contextmanager
def interruptible() -> Iterator[None]:
    """There is no time limit here: only Ctrl-C can have stopped the core."""
    try:
        yield
    except _core.Stopped:
        raise KeyboardInterrupt from None


def refined(bound: Callable[[bool], Certificate], products: int, tol: float) -> Certificate:
    """Compute a bound, and refine it where rounding is a noticeable part of it."""
    try:
        found = bound(False)
    except OverflowError:
        return Certificate(math.inf, -math.inf, math.inf, math.inf)
    if not needs_refinement(found, products, tol):
        return found
    return replace(bound(True), refined=True)


def is_noticeable(found: Certificate) -> bool:
    """Whether rounding is such a large part of a bound that a refinement may help."""
    return not found.rounding < NOTICEABLE * found.gap


def needs_refinement(found: Certificate, products: int, tol: float) -> bool:
    """Whether a refinement may help, and is cheap or needed."""
    return is_noticeable(found) and (found.gap > tol or products <= _CHEAP)
