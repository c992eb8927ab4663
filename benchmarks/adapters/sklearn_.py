"""scikit-learn's support vector machines (LIBSVM) with a kernel cache of 4 GB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn import svm

PACKAGES = ("scikit-learn", "numpy", "scipy")


def make(estimator: str, parameters: Mapping[str, Any]) -> Any:
    return getattr(svm, estimator)(kernel="rbf", cache_size=4000, **parameters)


def facts(model: Any) -> dict[str, Any]:
    # One number, or one per pair of classes.
    return {"iterations": int(np.sum(model.n_iter_))}
