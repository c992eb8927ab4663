"""scikit-learn-intelex's SVC (oneDAL), imported directly: nothing is patched."""

from __future__ import annotations

from typing import Any

from sklearnex.svm import SVC

from benchmarks.adapters import Result
from benchmarks.data import Data
from benchmarks.measure import timed
from benchmarks.problems import Problem

PACKAGES = ("scikit-learn-intelex", "daal", "scikit-learn", "numpy", "scipy")


def fit(problem: Problem, data: Data, form: str, limit: float | None = None) -> Result:
    data = data.in_form(form)
    options = problem.options.get("intelex", {})
    model = SVC(kernel="rbf", C=problem.C, gamma=problem.gamma, cache_size=4000, **options)
    model, cost = timed(lambda: model.fit(data.X, data.y), limit)
    # It falls back to scikit-learn for input it does not support, and leaves no such attribute.
    return Result(model, cost, {"fell_back": not hasattr(model, "_onedal_estimator")})


def score(
    problem: Problem, data: Data, form: str, model: Any, limit: float | None = None
) -> Result:
    X_new = data.in_form(form).X_new
    scores, cost = timed(lambda: model.decision_function(X_new), limit)
    return Result(scores, cost)
