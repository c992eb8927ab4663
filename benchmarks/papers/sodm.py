"""Wang, Cao, Zhang, Shi, Jin: Scalable Optimal Margin Distribution Machine (IJCAI 2023).

    python -m benchmarks.papers.sodm [--only NAME ...] [--methods NAME ...] [--time-limit SECONDS]

Table 2 (rbf kernel), Table 3 (linear kernel) and Table 4 (the same strategies for support vector
machines). The paper does not say which parameters it used; here they come from a small
cross-validation, once for each table and data set, and are the same for all methods.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.papers.common import Method, Paper, Search, Table, run
from benchmarks.papers.data import DataSet, covtype_binary, pooled
from margrave import SVC, ODMClassifier, solvers

DENSE = {"margrave": "float32-dense"}
SPARSE = {"margrave": "float32-csr"}

DATASETS = {
    "svmguide1": DataSet("svmguide1", "svmguide1", pooled, DENSE),
    "phishing": DataSet("phishing", "phishing", pooled, SPARSE),
    "a7a": DataSet("a7a (here a8a)", "a8a", pooled, SPARSE),
    "ijcnn1": DataSet("ijcnn1", "ijcnn1", pooled, DENSE),
    "skin-nonskin": DataSet("skin-nonskin", "skin_nonskin", pooled, DENSE),
    "susy": DataSet("SUSY (here 30,000 rows)", "susy30k", pooled, DENSE),
}

# Half a million rows, all of which have a dual variable: a merge tree against all rows at once.
LARGE = {
    "covtype": DataSet(
        "covtype.binary, lam=10,000, theta=0.1, gamma=32, tol=1e-2",
        "covtype",
        covtype_binary,
        DENSE,
        {"lam": 10_000.0, "theta": 0.1, "gamma": 32.0, "tol": 1e-2},
    ),
}

ODM_FIXED: dict[str, Any] = {"upsilon": 0.5, "intercept": None, "tol": 1e-3, "random_state": 0}
SVM_FIXED: dict[str, Any] = {"intercept": None, "tol": 1e-3, "random_state": 0}
GAMMAS = [2.0**power for power in (-4, -2, 0, 2, 4)]
ODM_GRID = {"lam": [2.0**power for power in (0, 4, 8, 12)], "theta": [0.1, 0.3]}
SVM_GRID = {"C": [2.0**power for power in (0, 3, 6, 9)], "gamma": GAMMAS}

# strategy -> solver, and its name for ODM and SVM
STRATEGIES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "whole": (lambda: "exact", "ODM", "SVM"),
    "cascade": (lambda: solvers.Cascade(passes=1), "Ca-ODM", "Ca-SVM"),
    "dip": (lambda: solvers.DistributionPreserving(finish=False), "DiP-ODM", "DiP-SVM"),
    "dc": (lambda: solvers.MergeTree(partition="kmeans"), "DC-ODM", "DC-SVM"),
    "sodm": (lambda: solvers.MergeTree(partition="stratified"), "SODM", "SSVM"),
    "printed": (lambda: solvers.MergeTree(as_published=True), "SODM as printed", ""),
}
LINEAR_SOLVERS = {"newton": "ODM", "svrg": "ODM_svrg", "csvrg": "ODM_csvrg", "dsvrg": "SODM"}


def _odm(parameters: Mapping[str, Any], solver: Callable[[], Any]) -> ODMClassifier:
    return ODMClassifier(**{**ODM_FIXED, **parameters}, solver=solver())


def _svm(parameters: Mapping[str, Any], solver: Callable[[], Any]) -> SVC:
    return SVC(**SVM_FIXED, **parameters, solver=solver())


def _linear(parameters: Mapping[str, Any], solver: str) -> ODMClassifier:
    return ODMClassifier(**ODM_FIXED, **parameters, kernel="linear", solver=solver)


ODM = {
    f"odm-{name}": Method(title, partial(_odm, solver=solver), certified=True)
    for name, (solver, title, _) in STRATEGIES.items()
}
SVM = {
    f"svm-{name}": Method(title, partial(_svm, solver=solver), certified=True)
    for name, (solver, _, title) in STRATEGIES.items()
    if title
}
LINEAR = {
    f"linear-{solver}": Method(title, partial(_linear, solver=solver), certified=True)
    for solver, title in LINEAR_SOLVERS.items()
}
DIVIDED = {"odm-divide": Method("solver='dc'", partial(_odm, solver=lambda: "dc"), certified=True)}
METHODS = {**ODM, **LINEAR, **SVM, **DIVIDED}

TABLE_2 = Table(
    "table2",
    tuple(ODM),
    tuple(DATASETS),
    Search("ODMClassifier", {**ODM_FIXED, "solver": "exact"}, {**ODM_GRID, "gamma": GAMMAS}),
)
TABLE_3 = Table(
    "table3",
    tuple(LINEAR),
    tuple(DATASETS),
    Search("ODMClassifier", {**ODM_FIXED, "kernel": "linear", "solver": "newton"}, ODM_GRID),
)
TABLE_4 = Table(
    "table4",
    tuple(SVM),
    tuple(DATASETS),
    Search("SVC", {**SVM_FIXED, "solver": "exact"}, SVM_GRID),
)
TABLE_LARGE = Table("large", ("odm-whole", "odm-sodm", "odm-divide"), tuple(LARGE))
PAPER = Paper("sodm", {**DATASETS, **LARGE}, METHODS, (TABLE_2, TABLE_3, TABLE_4, TABLE_LARGE))

if __name__ == "__main__":
    sys.exit(run(PAPER))
