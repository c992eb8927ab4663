"""scikit-learn-intelex's estimators (oneDAL), imported directly: nothing is patched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sklearnex import svm

PACKAGES = ("scikit-learn-intelex", "daal", "scikit-learn", "numpy", "scipy")


def make(estimator: str, parameters: Mapping[str, Any]) -> Any:
    return getattr(svm, estimator)(cache_size=4000, **parameters)


def facts(model: Any) -> dict[str, Any]:
    # It falls back to scikit-learn for input it does not support, and leaves no such attribute.
    return {"fell_back": not hasattr(model, "_onedal_estimator")}
