"""Hsieh, Si, Dhillon: A Divide-and-Conquer Solver for Kernel Support Vector Machines (ICML 2014).

    python -m benchmarks.papers.dcsvm [--only NAME ...] [--methods NAME ...] [--time-limit SECONDS]

Table 2 (seconds and accuracy) and Table 6 (clusters against random parts), with the parameters of
the paper. LIBSVM and scikit-learn-intelex are measured at the sizes that they can do in some
minutes. Models of this library have no intercept, as in the paper; those two have a free one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from sklearn import svm
from sklearn.base import BaseEstimator, clone
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.pipeline import make_pipeline

from benchmarks.papers.common import SAMPLE, SIZES, Method, Paper, Table, run
from benchmarks.papers.data import (
    DataSet,
    census,
    covtype_binary,
    kddcup_binary,
    mnist_eight,
    official_split,
)
from margrave import SVC, solvers

_CACHE = 8192  # MB, as much as the models of margrave may use

DENSE = {"margrave": "float32-dense", "sklearn": "float64-dense", "intelex": "float32-dense"}
SPARSE = {"margrave": "float32-csr", "sklearn": "float64-csr", "intelex": "float32-dense"}

DATASETS = {
    "ijcnn1": DataSet(
        "ijcnn1, C=32, gamma=2", "ijcnn1", official_split, DENSE, {"C": 32.0, "gamma": 2.0}, (None,)
    ),
    "covtype": DataSet(
        "covtype.binary, C=32, gamma=32",
        "covtype",
        covtype_binary,
        {**DENSE, "sklearn": "float64-csr"},
        {"C": 32.0, "gamma": 32.0},
        (20_000, 50_000, 100_000),
    ),
    "census": DataSet(
        "census, C=512, gamma=2^-9",
        "census_income",
        census,
        SPARSE,
        {"C": 512.0, "gamma": 2.0**-9},
        (10_000, 20_000, 40_000),
    ),
    "kddcup99": DataSet(
        "kddcup99 (10 %), C=256, gamma=0.5",
        "kddcup99_10pct",
        kddcup_binary,
        SPARSE,
        {"C": 256.0, "gamma": 0.5},
        (20_000, 50_000, 100_000),
    ),
    "mnist": DataSet(
        "mnist 8 against the rest, C=10, gamma=0.02",
        "mnist",
        mnist_eight,
        {**SPARSE, "sklearn": "float64-dense"},
        {"C": 10.0, "gamma": 0.02},
        (5_000, 10_000, 20_000),
    ),
}


def _svc(parameters: Mapping[str, Any], **more: Any) -> SVC:
    fixed = {"intercept": None, "tol": 1e-3, "memory_limit": "8GiB", "random_state": 0}
    return SVC(**{**fixed, **parameters, **more})


def _dc(parameters: Mapping[str, Any]) -> SVC:
    return _svc(parameters, solver=solvers.DivideAndConquer(moving=False))


def _moving(parameters: Mapping[str, Any]) -> SVC:
    return _svc(parameters, solver="dc")


def _early(parameters: Mapping[str, Any], level: int) -> SVC:
    return _svc(parameters, solver=solvers.DivideAndConquer(early=level))


def _exact(parameters: Mapping[str, Any]) -> SVC:
    return _svc(parameters, solver="exact")


def _cascade(parameters: Mapping[str, Any]) -> SVC:
    return _svc(parameters, solver=solvers.Cascade(passes=1))


def _libsvm(parameters: Mapping[str, Any]) -> Any:
    return svm.SVC(cache_size=_CACHE, tol=1e-3, **parameters)


def _intelex(parameters: Mapping[str, Any]) -> Any:
    intelex = import_module("sklearnex.svm")  # optional
    return intelex.SVC(cache_size=_CACHE, tol=1e-3, **parameters)


def _on_features(parameters: Mapping[str, Any], features: Callable[..., Any], count: int) -> Any:
    """Features whose products are about the kernel's values, and a linear model on them with
    LIBLINEAR's default loss."""
    machine = {"kernel": "linear", "loss": "squared_hinge", "solver": "newton"}
    return make_pipeline(
        features(gamma=parameters["gamma"], n_components=count, random_state=0),
        _svc({"C": parameters["C"]}, **machine),
    )


class Bagging(BaseEstimator):  # type: ignore[misc]
    """Majority vote of `parts` models, each trained on its share of the rows, drawn at random."""

    def __init__(self, machine: SVC, parts: int) -> None:
        self.machine = machine
        self.parts = parts

    def fit(self, X: Any, y: np.ndarray) -> Bagging:
        self.classes_, code = np.unique(y, return_inverse=True)
        rng = np.random.default_rng(0)
        size = max(2, len(y) // self.parts)
        self.members_: list[Any] = []  # a model, or the only class that it has seen
        for _ in range(self.parts):
            rows = rng.choice(len(y), size, replace=False)
            seen = np.unique(code[rows])
            alone = len(seen) == 1
            self.members_.append(
                int(seen[0]) if alone else clone(self.machine).fit(X[rows], code[rows])
            )
        return self

    def predict(self, X: Any) -> np.ndarray:
        votes = np.zeros(X.shape[0])
        for member in self.members_:
            votes += member if isinstance(member, int) else member.predict(X)
        labels: np.ndarray = self.classes_[(2 * votes > len(self.members_)).astype(int)]
        return labels


def _bagging(parameters: Mapping[str, Any], parts: int) -> Bagging:
    return Bagging(_exact(parameters), parts)


LEVELS = {256: 4, 64: 3, 16: 2}  # clusters of a level
EARLY = {parts: f"early-{parts}" for parts in LEVELS}
BAGGING = {parts: f"bagging-{parts}" for parts in LEVELS}

METHODS = {
    "early-256": Method("DC-SVM (early, 256 clusters)", partial(_early, level=LEVELS[256])),
    "early-64": Method("DC-SVM (early)", partial(_early, level=LEVELS[64])),
    "early-16": Method("DC-SVM (early, 16 clusters)", partial(_early, level=LEVELS[16])),
    "dc": Method("DC-SVM", _dc),
    "moving": Method("margrave dc: clusters, then moving blocks", _moving),
    "exact": Method("margrave exact", _exact),
    "libsvm": Method("LIBSVM", _libsvm, "sklearn", SIZES),
    "libsvm-sample": Method("LIBSVM (subsample)", _libsvm, "sklearn", SAMPLE),
    "intelex": Method("scikit-learn-intelex", _intelex, "intelex", SIZES),
    "cascade": Method("Cascade", _cascade),
    "nystroem": Method("Nystroem", partial(_on_features, features=Nystroem, count=1000)),
    "random-features": Method(
        "random features", partial(_on_features, features=RBFSampler, count=3000)
    ),
    **{
        name: Method(f"bagging of {parts}", partial(_bagging, parts=parts))
        for parts, name in BAGGING.items()
    },
}
# The early models of Table 6 are in the files of Table 2.
TABLE_2 = Table("table2", tuple(m for m in METHODS if m not in BAGGING.values()), tuple(DATASETS))
TABLE_6 = Table("table6", tuple(BAGGING.values()), ("ijcnn1", "covtype"))
PAPER = Paper("dcsvm", DATASETS, METHODS, (TABLE_2, TABLE_6))

if __name__ == "__main__":
    sys.exit(run(PAPER))
