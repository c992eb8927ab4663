"""The objective of a fitted linear model, computed from its public attributes alone.

    P = 1/2 |w|^2 + sum_i loss_i(x_i'w + b)                 from coef_ and intercept_
    D = 1/2 |X'beta|^2 + sum_i conjugate_i(beta_i)          from support_ and dual_coef_

A regularised intercept adds b^2 / 2 to P, as LIBLINEAR does, and (sum_i beta_i)^2 / 2 to D; a free
one makes beta sum to zero. Several classes are a problem per class against the rest, and P and D
the sums. Libraries that solve for w alone have a primal value only. The losses, and all that the
kernels have in common, are in `objective.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.objective import (
    TERMS,
    Parameters,
    added,
    certificate,
    dense,
    dual_value,
    primal_value,
)


def one_vs_rest(data: Data) -> list[np.ndarray]:
    """Targets of each problem: one, or one for each of more than two classes."""
    if len(data.labels) <= 2:
        return [data.y]
    return [np.where(data.y == label, 1, -1) for label in data.labels]


def linear_objective(
    model: Any, data: Data, estimator: str, parameters: Parameters
) -> dict[str, float]:
    """P and, where the model has dual variables, D, their relative gap, and how far beta is from
    feasible: the sums of P and D and the worst of the others when there are several problems."""
    targets = one_vs_rest(data)
    terms = TERMS[estimator](parameters, len(data.y))
    weights = dense(model.coef_).reshape(len(targets), -1)
    # A model without an intercept may store one zero for all its problems.
    intercepts = np.broadcast_to(np.ravel(model.intercept_), len(targets))
    scores = data.X @ weights.T
    figures: list[dict[str, float]] = []
    for number, (y, w, b) in enumerate(zip(targets, weights, intercepts, strict=True)):
        primal = primal_value(terms, y, scores[:, number], float(w @ w), float(b))
        figures.append({"primal": primal})
        if hasattr(model, "dual_coef_"):
            beta = np.zeros(len(y))
            beta[model.support_] = dense(model.dual_coef_)[number]
            combined = data.X.T @ beta
            dual = dual_value(terms, y, beta, float(combined @ combined))
            figures[-1] |= {"dual": dual, **certificate(terms, y, beta, primal, dual)}
    return added(figures)
