"""Rigorous certificates of solutions computed in floating point.

`certified` (below) replaces the gaps of a fit's solutions by bounds that include rounding errors.

bounds.py      the bounds: one score per row (single.py), several classes (joint.py), hulls;
               `certificate` is where to start reading
errors.py      bounds on the rounding errors of scores
figures.py     what a certificate consists of
polish.py      a small change that improves a linear model
unfinished.py  a fit that was stopped: the best multiple of its model
centring.py    rows far from zero
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from margrave.problem import BaseProblem, Solution, is_single
from margrave.solvers.base import Settings
from margrave.solvers.certificate.bounds import (
    certificate,
    certified_by_norms,
    certify_plane,
    certify_tube,
    with_closer_scores,
)
from margrave.solvers.certificate.centring import FAR, around_mean, mean_and_spread
from margrave.solvers.certificate.errors import Errors, combination, scores_of_weights
from margrave.solvers.certificate.figures import UNIT, Certificate, with_certificate
from margrave.solvers.certificate.polish import polished
from margrave.solvers.certificate.single import Norms
from margrave.solvers.certificate.unfinished import best_multiple

__all__ = [
    "UNIT",
    "Certificate",
    "Errors",
    "Norms",
    "around_mean",
    "certificate",
    "certified",
    "certified_by_norms",
    "certify_plane",
    "certify_tube",
    "with_certificate",
]


def certified(
    problems: Sequence[BaseProblem],
    solutions: Sequence[Solution],
    settings: Settings,
    mend: bool = True,
    by_weights: bool = True,
) -> list[Solution]:
    """Replace the running gaps of solvers by rigorous bounds for the models that they return.

    With `mend`, the model of a fit that was stopped is replaced by its best multiple, zero
    included. A linear model that is not stored `by_weights` is the sum over its support vectors.
    Unchanged are solutions that are certified already, models of parts or landmarks, whose
    certificate is that of another problem, and estimates of fits that had no time for a
    certificate. After Ctrl-C what is not certified yet stays an estimate.
    """
    found = list(solutions)
    for number, problem in enumerate(problems):
        try:
            found[number] = _certified(problem, found[number], settings, mend, by_weights)
        except KeyboardInterrupt:
            settings.progress.interrupt()
            if found[number].certificate == "full" and found[number].rounding is None:
                found[number] = replace(found[number], certificate="estimate", converged=False)
    return found


def _certified(
    problem: BaseProblem,
    solution: Solution,
    settings: Settings,
    mend: bool,
    by_weights: bool,
) -> Solution:
    if solution.rounding is not None or solution.certificate not in ("full", "estimate"):
        return solution
    if is_single(problem) and problem.is_hull:
        return solution
    remote = problem.data.is_remote
    if remote and solution.weights is not None:
        return solution  # only the solver makes passes over these rows
    linear = problem.data.is_linear and not remote and by_weights
    if not by_weights:
        solution = replace(solution, weights=None)
    if linear and solution.weights is None and np.isfinite(solution.beta).all():
        weights = combination(problem, solution.beta)
        solution = replace(solution, weights=weights, scores=scores_of_weights(problem, weights))
    if solution.certificate == "estimate" and np.isnan(solution.scores).all():
        return solution  # there was no time for the scores of this point
    before = solution
    if mend and not solution.converged:
        solution = best_multiple(problem, solution, settings)
    if not solution.definite:
        return solution
    if solution.certificate == "estimate" and not linear:
        if solution is before:
            return solution
        primal, dual = problem.terms(solution.beta, solution.scores, solution.intercept)
        gap = max(0.0, primal + dual) / max(abs(primal), abs(dual), 1e-300)
        return replace(solution, objective=primal, dual=dual, gap=gap)
    limit = np.inf if settings.is_over else settings.tol
    found = certificate(problem, solution, settings.threads, limit)
    if linear and found.gap > settings.tol and not settings.is_over:
        solution, found = polished(problem, solution, found, settings)
    if mend and found.gap > settings.tol:  # the solver's own gap or scores may have misled
        closer = solution
        if found.refined and is_single(problem):
            closer = with_closer_scores(problem, solution, settings.threads)
        if before.converged or closer is not solution:
            mended = best_multiple(problem, closer, settings)
            if mended is not closer:
                solution, found = mended, certificate(problem, mended, settings.threads, limit)
    if found.gap > settings.tol and not settings.is_spent:
        solution = replace(solution, cause=_cause(problem))
    return with_certificate(solution, found, settings.tol)


def _cause(problem: BaseProblem) -> str:
    """What makes rounding errors so large here, and what to do about it."""
    X, y, C = problem.data.X, problem.y, problem.C
    if isinstance(X, np.ndarray) and problem.data.is_native and problem.data.rounding[0].any():
        mean, spread = mean_and_spread(X)
        if mean > FAR * spread:
            return (
                f"the features lie around {mean:.1g} with a spread of {spread:.1g}; centre them,"
                " for example with StandardScaler"
            )
    if is_single(problem) and not problem.loss.core().labels:
        mean, spread = abs(float(np.mean(y))), float(np.std(y))
        if mean > FAR * spread:
            return (
                f"the targets lie around {mean:.1g} with a spread of {spread:.1g}; subtract their"
                " mean"
            )
    if float(C.max()) > FAR**2 * float(C.min()):
        return (
            f"the penalties C * sample_weight range from {C.min():.1g} to {C.max():.1g}; bring"
            " them closer together"
        )
    return f"C is as large as {C.max():.1g} for these features; scale the features, or lower C"
