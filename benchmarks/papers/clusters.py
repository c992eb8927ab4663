"""What clusters are good for: studies for the pages of DC-SVM and of PBM."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.papers.dcsvm import DATASETS, LEVELS, _svc
from benchmarks.papers.study import TIMED, Found, Study
from benchmarks.papers.worker import facts, first
from benchmarks.papers.workload import counted_predictions
from margrave import SVC, solvers
from margrave.kernels import Kernel
from margrave.partitions import KernelKMeans, KMeans, Partition, Random
from margrave.problem import Data as Rows

# case -> data set, and rows (None: all)
SETS = {
    "ijcnn1": ("ijcnn1", None),
    "kddcup99 (10 %)": ("kddcup99", 100_000),
    "covtype.binary, 50,000 rows": ("covtype", 50_000),
    "mnist 8, 20,000 rows": ("mnist", 20_000),
}
QUICK_ROWS = 200


def load(case: str, quick: bool, rows: int | None = None) -> tuple[Data, dict[str, Any]]:
    """The first rows of a data set in its fastest form, and the paper's parameters."""
    name, most = SETS[case]
    dataset = DATASETS[name]
    data = dataset.load(quick).in_form(dataset.forms["margrave"])
    count = QUICK_ROWS if quick else min(len(data.y), rows or most or len(data.y))
    return first(data, count), dict(dataset.parameters)


def levels(quick: bool) -> dict[int, int]:
    """Clusters of a level."""
    return {4: 1} if quick else LEVELS


def _accuracy(model: Any, data: Data) -> float:
    return 100.0 * float(np.mean(model.predict(data.X_new) == data.y_new))


# --- support vectors of clusters: Figure 2 -------------------------------------------------------

PARTITIONS: dict[str, Partition] = {
    "k-means": KMeans(),
    "two-step kernel k-means": KernelKMeans(),
    "k-means, balanced": KMeans(balanced=True),
}


def support(case: str, quick: bool) -> dict[str, Any]:
    """Support vectors of each level and of Cascade's levels, against those of the whole problem."""
    data, parameters = load(case, quick)
    whole = _svc({**parameters, "tol": 1e-4}, solver="exact").fit(data.X, data.y)
    true = set(whole.support_.tolist())
    found: dict[str, Any] = {
        "rows": len(data.y),
        "support": len(true),
        "accuracy": _accuracy(whole, data),
        "ways": {},
    }

    def note(name: str, model: Any) -> None:
        own = set(model.support_.tolist())
        found["ways"][name] = {
            "precision": len(own & true) / len(own),
            "recall": len(own & true) / len(true),
            "support": len(own),
            "accuracy": _accuracy(model, data),
        }

    for title, partition in PARTITIONS.items():
        for parts, level in levels(quick).items():
            solver = solvers.DivideAndConquer(early=level, partition=partition)
            note(f"{title}, {parts}", _svc(parameters, solver=solver).fit(data.X, data.y))
    note(
        "Cascade, one pass", _svc(parameters, solver=solvers.Cascade(passes=1)).fit(data.X, data.y)
    )
    return found


def _support_rows(case: str, found: Found) -> list[list[str]]:
    return [
        [
            way,
            f"{one['precision']:.2f}",
            f"{one['recall']:.2f}",
            f"{one['support']:,}",
            f"{one['accuracy']:.2f}",
        ]
        for way, one in found["ways"].items()
    ] + [["all rows", "1.00", "1.00", f"{found['support']:,}", f"{found['accuracy']:.2f}"]]


# --- the bound of Theorem 1: Figure 1 ------------------------------------------------------------

BOUND_ROWS = 3000


def bound(case: str, quick: bool) -> dict[str, Any]:
    """The increase of the objective by independent clusters, and the bound on it."""
    data, parameters = load(case, quick, BOUND_ROWS)
    C, gamma = parameters["C"], parameters["gamma"]
    kernel = Kernel("rbf", gamma=gamma)
    X = np.asarray(data.X.todense() if hasattr(data.X, "todense") else data.X, dtype=np.float64)
    K = kernel.values(X, X)

    def cost(matrix: np.ndarray) -> float:
        """The objective of the whole problem at the solution with this kernel matrix."""
        model = SVC(C, kernel="precomputed", intercept=None, tol=1e-6).fit(matrix, data.y)
        support, beta = model.support_, model.dual_coef_[0]
        return float(0.5 * beta @ K[np.ix_(support, support)] @ beta - np.abs(beta).sum())

    best = cost(K)
    rows = Rows(X, kernel, np.array([0, len(X)]))
    found: dict[str, Any] = {"rows": len(X), "optimum": best, "ways": {}}
    for title, partition in {"clusters": KMeans(), "random parts": Random()}.items():
        for parts in (4,) if quick else (4, 16, 64):
            label = partition.split(rows, parts, 0).label
            same = label[:, None] == label[None, :]
            found["ways"][f"{title}, {parts}"] = {
                "increase": cost(np.where(same, K, 0.0)) - best,
                "bound": 0.5 * C * C * float(np.abs(K[~same]).sum()),
            }
    return found


def _bound_rows(case: str, found: Found) -> list[list[str]]:
    scale = abs(found["optimum"])
    return [
        [
            way,
            f"{one['increase'] / scale:.2e}",
            f"{one['bound'] / scale:.2e}",
            f"{one['bound'] / max(one['increase'], 1e-300):,.0f}",
        ]
        for way, one in found["ways"].items()
    ]


# --- prediction by a level: Table 1 --------------------------------------------------------------

COMBINATIONS = {"nearest": "nearest cluster (early)", "sum": "sum of all (5)", "committee": "BCM"}
PAPER_TABLE_1 = {  # covtype, k = 50 and 100: accuracy and milliseconds per row
    "nearest": ((96.1, 0.4), (96.0, 0.2)),
    "sum": ((94.6, 2.6), (92.7, 2.6)),
    "committee": ((91.5, 3.7), (89.3, 5.6)),
}
PREDICTION_ROWS, NEW_ROWS = 20_000, 2000


def _level_models(case: str, quick: bool) -> Iterator[tuple[str, Any, Data]]:
    """Models of a level's clusters, combined in three ways."""
    data, parameters = load(case, quick, PREDICTION_ROWS)
    for parts, level in ({4: 1} if quick else {64: 3, 256: 4}).items():
        for combine in COMBINATIONS:
            solver = solvers.DivideAndConquer(early=level, combine=combine)
            model = _svc(parameters, solver=solver).fit(data.X, data.y)
            yield f"{combine} {parts}", model, data


def prediction(case: str, quick: bool) -> dict[str, Any]:
    """Accuracy of a level's models combined in three ways, and kernel values per new row."""
    found: dict[str, Any] = {"ways": {}}
    for way, model, data in _level_models(case, quick):
        found["rows"] = len(data.y)
        X_new, y_new = data.X_new[:NEW_ROWS], data.y_new[:NEW_ROWS]
        with counted_predictions() as counter:
            predicted = model.predict(X_new)
        found["ways"][way] = {
            "accuracy": 100.0 * float(np.mean(predicted == y_new)),
            "support": len(model.support_),
            "kernel_values": counter.values / len(y_new),
        }
    return found


def prediction_seconds(case: str, quick: bool) -> dict[str, Any]:
    """Milliseconds per new row: the median of five predictions."""
    found: dict[str, Any] = {}
    for way, model, data in _level_models(case, quick):
        X_new, spent = data.X_new[:NEW_ROWS], []
        for _ in range(5):
            begin = time.perf_counter()
            model.predict(X_new)
            spent.append(time.perf_counter() - begin)
        found[way] = 1e3 * float(np.median(spent)) / X_new.shape[0]
    return found


def _prediction_rows(case: str, found: Found) -> list[list[str]]:
    rows = []
    for way, one in found["ways"].items():
        combine, parts = way.split()
        theirs = "-"
        if case.startswith("covtype"):
            accuracy, spent = PAPER_TABLE_1[combine][0 if parts == "64" else 1]
            theirs = f"{accuracy:.1f}, {spent:g} ms"
        spent = found[TIMED].get(way)
        cells = [parts, COMBINATIONS[combine], f"{one['accuracy']:.2f}"]
        cells += [f"{one['kernel_values']:,.0f}", "-" if spent is None else f"{spent:.3g}"]
        rows.append([*cells, theirs])
    return rows


# --- the polynomial kernel: Figure 4 -------------------------------------------------------------

POLYNOMIAL = {"kernel": "poly", "degree": 3, "coef0": 0.0, "gamma": 1.0, "C": 2.0}
POLYNOMIAL_ROWS = 20_000


def polynomial(case: str, quick: bool) -> dict[str, Any]:
    """Early models, DC-SVM and the exact solver with the polynomial kernel."""
    data, _ = load(case, quick, POLYNOMIAL_ROWS)
    divided = solvers.DivideAndConquer
    ways: dict[str, Any] = {
        f"DC-SVM (early, {parts} clusters)": divided(early=level)
        for parts, level in levels(quick).items()
    }
    ways |= {"DC-SVM": divided(moving=False), "margrave exact": "exact"}
    found: dict[str, Any] = {"rows": len(data.y), "ways": {}}
    for title, solver in ways.items():
        model = _svc(POLYNOMIAL, solver=solver, time_limit=120).fit(data.X, data.y)
        told = facts(model)
        found["ways"][title] = {
            "accuracy": _accuracy(model, data),
            "kernel_values": told["kernel_values"],
            "gap": told["gap"],
            "support": len(model.support_),
        }
    return found


def _polynomial_rows(case: str, found: Found) -> list[list[str]]:
    return [
        [
            way,
            f"{one['accuracy']:.2f}",
            f"{one['kernel_values']:.2e}",
            f"{one['gap']:.1e}" + (" (clusters)" if "early" in way else ""),
            f"{one['support']:,}",
        ]
        for way, one in found["ways"].items()
    ]


STUDIES = {
    "dcsvm-polynomial": Study(
        "Figure 4: the polynomial kernel",
        f"The first {POLYNOMIAL_ROWS:,} rows with the paper's kernel for covtype, (x'z)^3, C = 2;"
        " clusters are those of two-step kernel k-means. The paper shows curves only, also for"
        " webspam, which was not available.",
        ("covtype.binary, 50,000 rows",),
        polynomial,
        ("data set", "method", "accuracy (%)", "kernel values", "gap", "support vectors"),
        _polynomial_rows,
    ),
    "dcsvm-support": Study(
        "Figure 2: support vectors of clusters",
        "How many of the support vectors of a level's independent clusters are support vectors of"
        " the whole problem (precision, solved to a gap of 1e-4), and how many of these they"
        " find (recall); the accuracy is that of the level's early model. The paper shows curves"
        " only. Two-step kernel k-means (1,000 sampled rows) is the paper's partition, k-means in"
        " input space ours; balanced clusters have at most 1.3 times the mean size.",
        tuple(SETS),
        support,
        ("data set", "parts", "precision", "recall", "support vectors", "early accuracy (%)"),
        _support_rows,
    ),
    "dcsvm-bound": Study(
        "Figure 1: the bound of Theorem 1",
        f"The first {BOUND_ROWS:,} rows with the paper's C and gamma. Both columns are relative to"
        " the optimal objective: by how much the solution of independent parts exceeds it, and"
        " the bound on that.",
        tuple(SETS),
        bound,
        ("data set", "parts", "increase", "bound", "bound / increase"),
        _bound_rows,
    ),
    "dcsvm-prediction": Study(
        "Table 1: three ways to predict with a level",
        f"The first {PREDICTION_ROWS:,} rows; accuracy on {NEW_ROWS:,} new rows, with 64 and 256"
        " clusters (the paper: 50 and 100, all rows). Kernel values are those of one new row, which"
        " is also compared with each centre. The committee also solves a triangular system for"
        " each cluster.",
        ("covtype.binary, 50,000 rows", "ijcnn1"),
        prediction,
        (
            *("data set", "clusters", "prediction", "accuracy (%)", "kernel values"),
            *("ms per row", "paper: accuracy (%), time"),
        ),
        _prediction_rows,
        seconds=prediction_seconds,
    ),
}
