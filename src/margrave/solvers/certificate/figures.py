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

    The part of rounding may exceed a bound that is 1 because the dual value is not positive.
    """

    objective: float
    dual: float
    gap: float
    rounding: float


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
    return bound(True) if needs_refinement(found, products, tol) else found


def is_noticeable(found: Certificate) -> bool:
    """Whether rounding is such a large part of a bound that a refinement may help."""
    return not found.rounding < NOTICEABLE * found.gap


def needs_refinement(found: Certificate, products: int, tol: float) -> bool:
    """Whether a refinement may help, and is cheap or needed."""
    return is_noticeable(found) and (found.gap > tol or products <= _CHEAP)
