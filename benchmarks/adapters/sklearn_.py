"""scikit-learn's SVC (LIBSVM) with a kernel cache of 4 GB."""

from __future__ import annotations

from typing import Any

from sklearn.svm import SVC

from benchmarks.adapters import Result
from benchmarks.data import Data
from benchmarks.measure import timed
from benchmarks.problems import Problem

PACKAGES = ("scikit-learn", "numpy", "scipy")


def fit(problem: Problem, data: Data, form: str, limit: float | None = None) -> Result:
    data = data.in_form(form)
    options = problem.options.get("sklearn", {})
    model = SVC(kernel="rbf", C=problem.C, gamma=problem.gamma, cache_size=4000, **options)
    model, cost = timed(lambda: model.fit(data.X, data.y), limit)
    return Result(model, cost, {"iterations": int(model.n_iter_[0])})


def score(
    problem: Problem, data: Data, form: str, model: Any, limit: float | None = None
) -> Result:
    X_new = data.in_form(form).X_new
    scores, cost = timed(lambda: model.decision_function(X_new), limit)
    return Result(scores, cost)
