"""What scikit-learn offers in place of kernel logistic regression: approximate features of the rbf
kernel from 1,000 random rows, and logistic regression on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

PACKAGES = ("scikit-learn", "numpy", "scipy")


def make(estimator: str, parameters: Mapping[str, Any]) -> Any:
    if estimator != "KernelLogisticRegression":
        raise ValueError(f"this pipeline stands for KernelLogisticRegression, not {estimator}")
    return make_pipeline(
        Nystroem(kernel="rbf", gamma=parameters["gamma"], n_components=1000, random_state=0),
        LogisticRegression(C=parameters["C"], max_iter=1000),
    )


def facts(model: Any) -> dict[str, Any]:
    return {"iterations": int(model[-1].n_iter_[0])}
