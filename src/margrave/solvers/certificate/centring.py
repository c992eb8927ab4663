"""Centring: linear models of rows far from zero are solved on rows minus their mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margrave.problem import BaseProblem, Floats, Solution, is_single
from margrave.rows import is_mapped
from margrave.solvers.base import Settings
from margrave.solvers.certificate.errors import combination

FAR = 1e3  # mean of the rows, in units of their spread, above which they are centred
_SAMPLE = 1000  # rows from which mean and spread are estimated

P = TypeVar("P", bound=BaseProblem)


def around_mean(
    problems: Sequence[P],
    settings: Settings,
    solve: Callable[[Sequence[P], Settings], list[Solution]],
) -> list[Solution]:
    """Solve on rows minus their mean where that is far from zero; the problem is equivalent.

    With a linear kernel and a free intercept, (w, b) on x is (w, b + w'm) on x - m. Where the
    mean is large, the differences between rows are lost in the rounding of their products.
    """
    mean = _mean_to_remove(problems, settings)
    if mean is None:
        return solve(problems, settings)
    data = problems[0].data
    moved = replace(data, X=data.X.astype(np.float64) - mean)
    near = [problem.with_data(moved) for problem in problems]
    found = solve(near, settings)
    return [_with_mean(problem, one, mean) for problem, one in zip(near, found, strict=True)]


def _mean_to_remove(problems: Sequence[BaseProblem], settings: Settings) -> Floats | None:
    """Mean of the rows if it is far from zero and may be subtracted; else None."""
    X = problems[0].data.X
    if (
        not isinstance(X, np.ndarray)
        or is_mapped(X)
        or not problems[0].data.is_linear
        or not all(is_single(p) and p.intercept == "free" and p.total == 0.0 for p in problems)
        or 8 * X.size > settings.memory
    ):
        return None
    far, spread = mean_and_spread(X)
    if far <= FAR * spread:
        return None
    mean: Floats = X.mean(axis=0, dtype=np.float64)
    return mean


def mean_and_spread(X: NDArray[Any]) -> tuple[float, float]:
    """How far from zero the rows lie, and how far apart, estimated from some of them."""
    some = X[np.linspace(0, len(X) - 1, min(len(X), _SAMPLE)).astype(np.intp)].astype(np.float64)
    return float(np.linalg.norm(some.mean(axis=0))), float(np.sqrt(some.var(axis=0).sum()))


def _with_mean(problem: BaseProblem, solution: Solution, mean: Floats) -> Solution:
    """A solution for rows around their mean in terms of the rows as they are."""
    w = solution.weights if solution.weights is not None else combination(problem, solution.beta)
    at_mean = math.fsum(w * mean)
    return replace(
        solution,
        weights=w,
        intercept=float(solution.intercept) - at_mean,
        scores=solution.scores + at_mean,
        rounding=None,
    )
