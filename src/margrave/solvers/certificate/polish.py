"""A small change of a linear model that improves its certificate."""

from __future__ import annotations

from dataclasses import replace

from margrave.problem import BaseProblem, Solution, is_single
from margrave.solvers.base import Settings
from margrave.solvers.certificate.errors import audit
from margrave.solvers.certificate.figures import UNIT, Certificate, interruptible, is_noticeable
from margrave.solvers.certificate.single import SingleGap


@interruptible()
def polished(
    problem: BaseProblem, solution: Solution, found: Certificate, settings: Settings
) -> tuple[Solution, Certificate]:
    """Look for a better model nearby: the best intercept, and slightly longer weights.

    Rounding leaves support vectors within a few units in the last place of their margin, on either
    side. With a large C that adds a large loss; slightly longer weights bring all of them to the
    right side.
    """
    if not is_single(problem) or not is_noticeable(found):
        return solution, found
    at = SingleGap(problem, settings.threads)
    assert solution.weights is not None
    w, b = solution.weights, float(solution.intercept)
    for _ in range(3):
        f = audit(at.passes, w, solution.beta, True)[0]
        if problem.intercept == "free":
            b = at.terms.best_intercept(f, b)
        better = replace(solution, weights=w, intercept=b, scores=f)
        improved = at.by_weights(better, compensated=True)
        if improved.gap < found.gap:
            solution, found = better, improved
        if not problem.loss.core().labels or problem.intercept == "regularized":
            break
        short = 1.0 - problem.y * (f + b)
        short = short[(short > -1e-9) & (short < 1e-9)]
        if len(short) == 0 or found.gap <= settings.tol:
            break
        longer = 1.0 + max(0.0, float(short.max())) + 8.0 * UNIT * (1.0 + abs(b))
        w, b = w * longer, b * longer
    return solution, found
