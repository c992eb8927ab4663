"""scikit-learn's estimators: LIBSVM with a kernel cache of 4 GB; for the linear kernel LIBLINEAR
(LinearSVC, LinearSVR) and LogisticRegression, where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn import svm
from sklearn.linear_model import LogisticRegression

PACKAGES = ("scikit-learn", "numpy", "scipy")

# Class and the only kind of intercept it has.
_LINEAR = {
    "SVC": (svm.LinearSVC, "regularized"),
    "SVR": (svm.LinearSVR, "regularized"),
    "KernelLogisticRegression": (LogisticRegression, "free"),
}


def make(estimator: str, parameters: Mapping[str, Any]) -> Any:
    if parameters["kernel"] != "linear" or estimator == "NuSVC":
        return getattr(svm, estimator)(cache_size=4000, **parameters)
    if estimator not in _LINEAR:
        raise ValueError(f"scikit-learn has no linear {estimator}")
    kind, intercept = _LINEAR[estimator]
    if parameters["intercept"] != intercept:
        raise ValueError(f"the intercept of {kind.__name__} is {intercept}")
    rest = {key: value for key, value in parameters.items() if key not in ("kernel", "intercept")}
    return kind(random_state=0, **rest)


def facts(model: Any) -> dict[str, Any]:
    if hasattr(model, "support_"):
        # One number, or one per pair of classes.
        return {"iterations": int(np.sum(model.n_iter_))}
    iterations = int(np.max(model.n_iter_))  # of the longest of several problems
    return {
        "iterations": iterations,
        "max_iter": int(model.max_iter),
        "converged": iterations < model.max_iter,
    }
