"""The objective of a fitted machine, computed from its public attributes alone.

    P = 1/2 beta' K beta + C sum_i max(0, 1 - y_i (f_i + b)),   f = K beta        (primal)
    D = 1/2 beta' K beta - sum_i |beta_i|,  |beta_i| <= C,  sum_i beta_i = 0      (dual, D* = -P*)

in float64 with NumPy, whatever precision the library used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.data import Data, Matrix

BLOCK = 1 << 24  # kernel values held at once


def _dense(X: Matrix) -> np.ndarray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def coefficients(model: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Support vectors, signed coefficients beta, intercept b of a binary machine."""
    beta = _dense(model.dual_coef_).ravel()
    return _dense(model.support_vectors_), beta, float(np.ravel(model.intercept_)[0])


def rbf_scores(X: Matrix, points: np.ndarray, beta: np.ndarray, gamma: float) -> np.ndarray:
    """f = K(X, points) beta, without the intercept."""
    # scikit-learn-intelex drops trailing columns that are zero in all sparse support vectors.
    points = np.pad(points, ((0, 0), (0, X.shape[1] - points.shape[1])))
    norms = np.einsum("ij,ij->i", points, points)
    scores = np.empty(X.shape[0])
    step = max(1, BLOCK // max(1, len(points)))
    for start in range(0, X.shape[0], step):
        rows = _dense(X[start : start + step])
        values = rows @ points.T
        values *= -2.0
        values += np.einsum("ij,ij->i", rows, rows)[:, None]
        values += norms
        np.maximum(values, 0.0, out=values)
        values *= -gamma
        np.exp(values, out=values)
        scores[start : start + step] = values @ beta
    return scores


def objective(model: Any, data: Data, C: float, gamma: float) -> dict[str, float]:
    """P, D, their relative gap, and how far beta is from feasible."""
    points, beta, intercept = coefficients(model)
    norm = float(beta @ rbf_scores(points, points, beta, gamma))
    scores = rbf_scores(data.X, points, beta, gamma) + intercept
    hinge = float(np.maximum(0.0, 1.0 - data.y * scores).sum())
    primal = 0.5 * norm + C * hinge
    dual = 0.5 * norm - float(np.abs(beta).sum())
    return {
        "primal": primal,
        "dual": dual,
        "gap": (primal + dual) / max(abs(primal), abs(dual), np.finfo(float).tiny),
        "above_C": max(0.0, float(np.abs(beta).max(initial=0.0)) - C),
        "imbalance": abs(float(beta.sum())) / max(float(np.abs(beta).sum()), np.finfo(float).tiny),
        "train_accuracy": float(np.mean(np.where(scores > 0, 1, -1) == data.y)),
    }


def score_error(model: Any, X: Matrix, scores: np.ndarray, gamma: float, rows: int = 500) -> float:
    """Largest error of the first ``rows`` scores, relative to the largest of them."""
    points, beta, intercept = coefficients(model)
    exact = rbf_scores(X[:rows], points, beta, gamma) + intercept
    given = np.ravel(scores)[:rows]
    return float(np.abs(given - exact).max() / max(1.0, np.abs(exact).max()))
