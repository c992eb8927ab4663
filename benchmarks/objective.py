"""The objective of a fitted model, computed from its public attributes alone.

    P = 1/2 |w|^2 + sum_i loss_i(f_i + b) + b total         f = K beta        (primal)
    D = 1/2 |w|^2 + sum_i conjugate_i(beta_i)                                 (dual, D* = -P*)

with |w|^2 = beta' K beta. A free intercept b makes beta sum to ``total`` (zero but for one class);
a regularised one adds b^2 to |w|^2. Several classes are a problem per pair, and P and D the sums.
Models with nu are pairs of points of two convex hulls: P = U, half their squared distance, and
D = -L, where L is a lower bound for half the squared distance of the hulls.
All in float64 with NumPy, whatever precision the library used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from benchmarks.data import Data, Matrix

BLOCK = 1 << 22  # kernel values held at once: few enough to stay near the processor
TINY = float(np.finfo(float).tiny)

Parameters = Mapping[str, Any]


# --- what the estimators minimise ----------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """The loss of rows by target and score, and its conjugate by target and beta."""

    loss: Callable[[np.ndarray, np.ndarray], np.ndarray]
    conjugate: Callable[[np.ndarray, np.ndarray], np.ndarray]
    # Interval of beta times the sign of the target. (That of a regression is symmetric.)
    low: float
    high: float
    intercept: str | None = "free"
    total: float = 0.0


def _svc(parameters: Parameters, rows: int) -> Terms:
    C, intercept = parameters["C"], parameters.get("intercept", "free")
    if parameters.get("loss") == "squared_hinge":
        return Terms(
            loss=lambda y, f: C * np.maximum(0.0, 1.0 - y * f) ** 2,
            conjugate=lambda y, beta: beta**2 / (4 * C) - y * beta,
            low=0.0,
            high=np.inf,
            intercept=intercept,
        )
    return Terms(
        loss=lambda y, f: C * np.maximum(0.0, 1.0 - y * f),
        conjugate=lambda y, beta: -y * beta,
        low=0.0,
        high=C,
        intercept=intercept,
    )


def _svr(parameters: Parameters, rows: int) -> Terms:
    C, epsilon = parameters["C"], parameters["epsilon"]
    return Terms(
        loss=lambda y, f: C * np.maximum(0.0, np.abs(y - f) - epsilon),
        conjugate=lambda y, beta: epsilon * np.abs(beta) - y * beta,
        low=-C,
        high=C,
        intercept=parameters.get("intercept", "free"),
    )


def _one_class(parameters: Parameters, rows: int) -> Terms:
    return Terms(
        loss=lambda y, f: np.maximum(0.0, -f),
        conjugate=lambda y, beta: np.zeros_like(beta),
        low=0.0,
        high=1.0,
        total=parameters["nu"] * rows,
    )


def _logistic(parameters: Parameters, rows: int) -> Terms:
    C = parameters["C"]

    def conjugate(y: np.ndarray, beta: np.ndarray) -> np.ndarray:
        share = np.clip(y * beta / C, 0.0, 1.0)
        paid: np.ndarray = C * (xlogy(share, share) + xlogy(1.0 - share, 1.0 - share))
        return paid

    return Terms(
        loss=lambda y, f: C * np.logaddexp(0.0, -y * f),
        conjugate=conjugate,
        low=0.0,
        high=C,
        intercept=parameters["intercept"],
    )


def _margin_distribution(parameters: Parameters, rows: int) -> Terms:
    theta, upsilon = parameters["theta"], parameters["upsilon"]
    price = parameters["lam"] / ((1.0 - theta) ** 2 * rows)

    def loss(y: np.ndarray, f: np.ndarray) -> np.ndarray:
        below = np.maximum(0.0, 1.0 - theta - y * f)
        above = np.maximum(0.0, y * f - 1.0 - theta)
        paid: np.ndarray = 0.5 * price * (below**2 + upsilon * above**2)
        return paid

    def conjugate(y: np.ndarray, beta: np.ndarray) -> np.ndarray:
        below, above = np.maximum(0.0, y * beta), np.maximum(0.0, -y * beta)
        squares = below**2 + above**2 / upsilon
        paid: np.ndarray = squares / (2 * price) - (1.0 - theta) * below + (1.0 + theta) * above
        return paid

    return Terms(loss, conjugate, low=-np.inf, high=np.inf, intercept=parameters.get("intercept"))


TERMS: dict[str, Callable[[Parameters, int], Terms]] = {
    "SVC": _svc,
    "SVR": _svr,
    "OneClassSVM": _one_class,
    "KernelLogisticRegression": _logistic,
    "ODMClassifier": _margin_distribution,
}


# --- what the attributes of a model say ----------------------------------------------------------


def dense(X: Matrix) -> np.ndarray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def coefficients(model: Any, classes: int) -> np.ndarray:
    """Signed coefficients of the support vectors, one column per problem.

    With more than two classes ``dual_coef_`` is in scikit-learn's layout: a support vector has a
    coefficient for each other class, and the support vectors are sorted by class.
    """
    dual = dense(model.dual_coef_)
    if classes <= 2:
        return dual.T
    ends = np.cumsum(model.n_support_)
    blocks = [slice(end - size, end) for size, end in zip(model.n_support_, ends, strict=True)]
    columns = np.zeros((dual.shape[1], classes * (classes - 1) // 2))
    for pair, (i, j) in enumerate(combinations(range(classes), 2)):
        columns[blocks[i], pair] = dual[j - 1, blocks[i]]
        columns[blocks[j], pair] = dual[i, blocks[j]]
    return columns


def targets(data: Data) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows and targets of each problem: one, or one for each pair of classes."""
    if len(data.labels) <= 2:
        return [(np.arange(len(data.y)), data.y)]
    found = []
    for first, second in combinations(data.labels, 2):
        rows = np.flatnonzero((data.y == first) | (data.y == second))
        found.append((rows, np.where(data.y[rows] == first, 1, -1)))
    return found


def width(gamma: float | str, X: Matrix) -> float:
    """The number behind gamma, which may be "scale"."""
    return 1.0 / (X.shape[1] * dense(X).var()) if isinstance(gamma, str) else gamma


def rbf_scores(X: Matrix, points: np.ndarray, beta: np.ndarray, gamma: float) -> np.ndarray:
    """f = K(X, points) beta, without the intercept; a column for each column of beta."""
    # scikit-learn-intelex drops trailing columns that are zero in all sparse support vectors.
    points = np.pad(points, ((0, 0), (0, X.shape[1] - points.shape[1])))
    norms = np.einsum("ij,ij->i", points, points)
    scores = np.empty((X.shape[0], *beta.shape[1:]))
    step = max(1, BLOCK // max(1, len(points)))
    for start in range(0, X.shape[0], step):
        rows = dense(X[start : start + step])
        values = rows @ points.T
        values *= -2.0
        values += np.einsum("ij,ij->i", rows, rows)[:, None]
        values += norms
        np.maximum(values, 0.0, out=values)
        values *= -gamma
        np.exp(values, out=values)
        scores[start : start + step] = values @ beta
    return scores


# --- the checks ----------------------------------------------------------------------------------


def objective(model: Any, data: Data, estimator: str, parameters: Parameters) -> dict[str, float]:
    """P, D, their relative gap, and how far beta is from feasible: the sums of P and D and the
    worst of the others when there are several problems."""
    columns = coefficients(model, len(data.labels))
    scores = _scores(model, data, columns, parameters)
    if estimator == "NuSVC":
        return _of_hulls(data.y, columns[:, 0], model.support_, scores[:, 0], parameters["nu"])
    intercepts = np.ravel(model.intercept_)
    figures = []
    for number, (rows, y) in enumerate(targets(data)):
        beta = np.zeros(len(data.y))
        beta[model.support_] = columns[:, number]
        terms = TERMS[estimator](parameters, len(rows))
        figures.append(
            _figures(terms, y, beta[rows], scores[rows, number], float(intercepts[number]))
        )
    return added(figures)


def _scores(model: Any, data: Data, columns: np.ndarray, parameters: Parameters) -> np.ndarray:
    points = dense(model.support_vectors_)
    if "gamma" in parameters:
        return rbf_scores(data.X, points, columns, width(parameters["gamma"], data.X))
    found: np.ndarray = dense(data.X) @ (points.T @ columns)
    return found


def _of_hulls(
    y: np.ndarray, coefficients: np.ndarray, support: np.ndarray, scores: np.ndarray, nu: float
) -> dict[str, float]:
    """Bounds on half the squared distance of two hulls, from a model with nu.

    Its coefficients sum to the same in both classes. Divided by that they are a point of the hulls,
    in which no row has more than 2 / (n nu) of the weight.
    """
    weight, cap = np.zeros(len(y)), 2.0 / (nu * len(y))
    weight[support] = np.abs(coefficients)
    sums = {sign: float(weight[np.sign(y) == sign].sum()) for sign in (1, -1)}
    signed = np.where(y > 0, weight / sums[1], -weight / sums[-1])
    scores = scores / (0.5 * (sums[1] + sums[-1]))
    upper, margin = 0.5 * float(signed @ scores), 0.0
    for sign in (1, -1):  # the lowest rows in full, the last of them in part
        lowest = np.sort(sign * scores[np.sign(y) == sign])
        margin += float(
            lowest @ np.diff(np.minimum(cap * np.arange(1, len(lowest) + 1), 1.0), prepend=0.0)
        )
    lower = margin**2 / (4.0 * upper) if margin > 0.0 else 0.0
    return {
        "primal": upper,
        "dual": -lower,
        "gap": (upper - lower) / max(upper, TINY),
        "above_C": max(0.0, float(np.abs(signed).max()) / cap - 1.0),
        "imbalance": abs(sums[1] - sums[-1]) / (sums[1] + sums[-1]),
    }


def _figures(
    terms: Terms, y: np.ndarray, beta: np.ndarray, scores: np.ndarray, b: float
) -> dict[str, float]:
    norm = float(beta @ scores)
    primal, dual = primal_value(terms, y, scores, norm, b), dual_value(terms, y, beta, norm)
    return {"primal": primal, "dual": dual, **certificate(terms, y, beta, primal, dual)}


def primal_value(terms: Terms, y: np.ndarray, scores: np.ndarray, norm: float, b: float) -> float:
    """P of the scores without the intercept b; ``norm`` is |w|^2."""
    norm += b**2 * (terms.intercept == "regularized")
    return 0.5 * norm + float(terms.loss(y, scores + b).sum()) + b * terms.total


def dual_value(terms: Terms, y: np.ndarray, beta: np.ndarray, norm: float) -> float:
    """D of beta; ``norm`` is beta' K beta."""
    norm += float(beta.sum()) ** 2 * (terms.intercept == "regularized")
    return 0.5 * norm + float(terms.conjugate(y, beta).sum())


def certificate(
    terms: Terms, y: np.ndarray, beta: np.ndarray, primal: float, dual: float
) -> dict[str, float]:
    """The relative gap, and how far beta is from feasible: else the gap says nothing."""
    signed = np.sign(y) * beta
    outside = np.maximum(terms.low - signed, signed - terms.high)
    off_balance = abs(float(beta.sum()) - terms.total) if terms.intercept == "free" else 0.0
    return {
        "gap": (primal + dual) / max(abs(primal), abs(dual), TINY),
        "above_C": max(0.0, float(outside.max())),
        "imbalance": off_balance / max(float(np.abs(beta).sum()), TINY),
    }


def added(figures: list[dict[str, float]]) -> dict[str, float]:
    """The figures of several problems as one."""
    return {
        key: (sum if key in ("primal", "dual") else max)(f[key] for f in figures)
        for key in figures[0]
    }


def score_error(model: Any, X: Matrix, scores: np.ndarray, gamma: float, rows: int = 500) -> float:
    """Largest error of the first ``rows`` scores, relative to the largest of them; two classes."""
    exact = rbf_scores(X[:rows], dense(model.support_vectors_), coefficients(model, 2), gamma)
    exact = np.ravel(exact) + np.ravel(model.intercept_)[0]
    given = np.ravel(scores)[:rows]
    return float(np.abs(given - exact).max() / max(1.0, np.abs(exact).max()))
