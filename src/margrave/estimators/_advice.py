"""Why a fit missed its tolerance, and what to do about it: the text of its warning."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from margrave.progress import Progress
from margrave.solvers import Solution

# by the stop reason of the progress or of the solver
_ADVICE = {
    "max_iter": "Solver terminated early (max_iter={max_iter}); raise max_iter, or tol if this gap"
    " is enough",
    "time_limit": "time_limit={time_limit} s was reached; raise time_limit, or tol if this gap is"
    " enough",
    "callback": "a callback asked to stop",
    "interrupted": "it was interrupted",
    "indefinite": "the kernel is not positive semidefinite on these rows, so that no optimum can be"
    " certified; the solver made no further progress, use the model with care or choose another"
    " kernel",
    "stochastic": "the stochastic steps made no further progress; use solver='auto', or"
    " VarianceReduced with a smaller step or more landmarks",
    "unfinished": "the solver's parameters stop it before the whole problem is solved; remove"
    " passes, rounds, finish or as_published=True to reach the optimum",
    "hulls": "no direction was found that separates the hulls, which overlap or are too close to"
    " each other for double precision; {cure}",
    "rounding": "the model cannot be certified in double precision, because rounding errors may"
    " account for a gap of {rounding:.2g}: {cause}",
    None: "the solver could make no further progress in double precision: {cause}, or raise tol,"
    " unless the kernel is not positive semidefinite",
}


def advice(
    solutions: Sequence[Solution], progress: Progress, cure: str, parameters: Mapping[str, Any]
) -> str:
    """Say why the solver stopped, and what to do; `cure` is the advice for hulls that overlap.

    The reason that ended the fit comes first, then that of the solver of the worst problem.
    """
    worst = max(solutions, key=lambda solution: solution.gap)
    rounding = worst.rounding or 0.0
    reason = None if progress.stop_reason == "converged" else progress.stop_reason
    if not all(solution.definite for solution in solutions):
        reason = "indefinite"
    if reason is None:
        reason = worst.stop_reason
    if reason == "hulls" and not (cure and worst.gap >= 1.0):
        reason = None
    if reason is None and not worst.gap - rounding > progress.tol:
        reason = "rounding"
    return _ADVICE[reason].format(
        **parameters,
        cure=cure,
        cause=worst.cause or "scale the features, or lower C",
        rounding=rounding,
    )


def outside() -> int:
    """Stack level of the caller outside this package, for warnings."""
    level, frame = 0, sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("margrave."):
        level, frame = level + 1, frame.f_back  # type: ignore[assignment]
    return level + 1
