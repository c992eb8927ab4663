"""How well a fitted model predicts rows that it has not seen: one figure per kind of estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, log_loss, r2_score

from benchmarks.data import Data

# The most informative metric of each estimator.
FIGURES = {
    "SVC": "accuracy",
    "SVR": "R2",
    "KernelLogisticRegression": "log-loss",
}


def figure(model: Any, data: Data, estimator: str) -> dict[str, float]:
    """``{name: value}`` of the rows held out, with the library's own predictions."""
    name = FIGURES[estimator]
    if name == "log-loss":
        chances = np.asarray(model.predict_proba(data.X_new), dtype=np.float64)
        return {name: float(log_loss(data.y_new, chances, labels=model.classes_))}
    measured = {"accuracy": accuracy_score, "R2": r2_score}[name]
    return {name: float(measured(data.y_new, model.predict(data.X_new)))}
