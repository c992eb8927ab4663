"""Jin, Huang, Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms.

    python -m benchmarks.papers.saddle [--only NAME ...] [--methods NAME ...] [--time-limit SECONDS]

Table 1 (hard margin: separable sets), Table 3 and Figures 1 and 2 (nu from alpha = 0.85, linear
kernel: accuracy and objective over time), Table 4 and Figure 3 (hard margin on twenty nodes:
objective over the numbers sent, which `history_` has). The paper compares with Gilbert's method,
NuSVC, and a stochastic gradient; pair swaps, which it does not know, are here too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn import svm
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import SGDClassifier

from benchmarks.data import SEED, Data
from benchmarks.papers.common import Method, Paper, Table, run
from benchmarks.papers.data import DataSet, pooled
from margrave import HardMarginSVC, NuSVC
from margrave.solvers import FrankWolfe, PairSwaps, Saddle

ALPHA = 0.85  # nu = 1 / (alpha min(n1, n2)) in the paper's terms
NODES = 20
DENSE = {"margrave": "float64-dense", "sklearn": "float64-dense"}
SPARSE = {"margrave": "float64-csr", "sklearn": "float64-csr"}


class ByAlpha(BaseEstimator):
    """A machine whose nu follows from the number of rows in the smaller class."""

    def __init__(self, machine: Any = None, alpha: float = ALPHA) -> None:
        self.machine = machine
        self.alpha = alpha

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the machine with its nu."""
        _, counts = np.unique(y, return_counts=True)
        nu = 2.0 * self.alpha * counts.min() / len(y)
        self.machine_ = clone(self.machine).set_params(nu=nu).fit(X, y)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "machine_":
            raise AttributeError(name)
        return getattr(self.machine_, name)


@dataclass(frozen=True)
class Synthetic(DataSet):
    """Points of the unit ball on both sides of a plane, as the paper's appendix D has them.

    Distances to the plane are between a tenth of the largest and the largest; where the set is not
    `separable`, points nearer than a tenth have a random label instead.
    """

    rows: int = 10_000
    features: int = 128
    separable: bool = True

    def load(self, generated: bool = False) -> Data:
        """Make the rows; a few where they are for tests of the harness."""
        rng, n = np.random.default_rng(SEED), 200 if generated else self.rows
        w = rng.standard_normal(self.features)
        w /= np.linalg.norm(w)
        X = rng.standard_normal((n, self.features))
        X /= np.linalg.norm(X, axis=1)[:, None]
        X *= rng.uniform(0.0, 1.0, (n, 1)) ** (1.0 / self.features)
        y = np.where(X @ w > 0, 1, -1)
        distance = np.abs(X @ w)
        if self.separable:
            least = 0.1 * distance.max()
            X += np.outer(y * np.maximum(0.0, least - distance), w)
        else:
            near = distance < 0.1
            y[near] = rng.choice([-1, 1], int(near.sum()))
        cut = n // 5
        return Data(X[cut:], y[cut:], X[:cut], y[:cut])


def _synthetic(features: int, separable: bool = True, rows: int = 10_000) -> DataSet:
    kind = "separable" if separable else "not separable"
    title = f"synthetic, {rows:,} x {features}, {kind}"
    return Synthetic(title, "", pooled, DENSE, {}, (), rows, features, separable)


HARD = {
    "mushrooms": DataSet("mushrooms", "mushrooms", pooled, DENSE),
    **{f"synthetic{d}": _synthetic(d) for d in (8, 32, 128, 512)},
}
SOFT = {
    "a9a": DataSet("a9a", "a9a", pooled, SPARSE),
    "ijcnn1": DataSet("ijcnn1", "ijcnn1", pooled, DENSE),
    "phishing": DataSet("phishing", "phishing", pooled, SPARSE),
    "skin-nonskin": DataSet("skin_nonskin", "skin_nonskin", pooled, DENSE),
    "madelon": DataSet("madelon", "madelon", pooled, DENSE),
    "noisy512": _synthetic(512, separable=False, rows=20_000),
}

FIXED: dict[str, Any] = {"kernel": "linear", "tol": 1e-3, "random_state": 0}


def _hard(parameters: Mapping[str, Any], solver: Callable[[], Any]) -> HardMarginSVC:
    return HardMarginSVC(**FIXED, **parameters, solver=solver())


def _soft(parameters: Mapping[str, Any], solver: Callable[[], Any]) -> ByAlpha:
    return ByAlpha(NuSVC(**FIXED, **parameters, solver=solver()))


def _libsvm(parameters: Mapping[str, Any]) -> ByAlpha:
    return ByAlpha(svm.NuSVC(kernel="linear", tol=1e-3, cache_size=1000, **parameters))


def _liblinear(parameters: Mapping[str, Any]) -> Any:
    return svm.LinearSVC(**parameters)


def _sgd(parameters: Mapping[str, Any]) -> Any:
    return SGDClassifier(random_state=0, n_jobs=-1, **parameters)


WAYS: dict[str, tuple[str, Callable[[], Any]]] = {
    "pairs": ("pair swaps", PairSwaps),
    "gilbert": ("Frank-Wolfe, pairwise", FrankWolfe),
    "published-gilbert": ("Gilbert", partial(FrankWolfe, steps="plain")),
    "saddle": ("Saddle-SVC, all features", Saddle),
    "blocks": ("Saddle-SVC, 8 features", partial(Saddle, size=8)),
    "published-saddle": ("Saddle-SVC as printed", partial(Saddle, as_published=True)),
}
APART: dict[str, tuple[str, Callable[[], Any]]] = {
    "gilbert": ("distributed Gilbert", partial(FrankWolfe, steps="plain", partitions=NODES)),
    "pairwise": ("distributed Frank-Wolfe, pairwise", partial(FrankWolfe, partitions=NODES)),
    "saddle": ("Saddle-DSVC, all features", partial(Saddle, partitions=NODES)),
    "blocks": ("Saddle-DSVC, 8 features", partial(Saddle, size=8, partitions=NODES)),
}

HARD_METHODS = {
    f"hard-{name}": Method(title, partial(_hard, solver=make), certified=True)
    for name, (title, make) in WAYS.items()
}
SOFT_METHODS = {
    **{
        f"nu-{name}": Method(title, partial(_soft, solver=make), certified=True)
        for name, (title, make) in WAYS.items()
    },
    "libsvm": Method("scikit-learn NuSVC", _libsvm, "sklearn"),
    "liblinear": Method("scikit-learn LinearSVC", _liblinear, "sklearn"),
    "sgd": Method("scikit-learn SGDClassifier", _sgd, "sklearn"),
}
NODE_METHODS = {
    f"nodes-{name}": Method(title, partial(_hard, solver=make), certified=True)
    for name, (title, make) in APART.items()
}

TABLE_1 = Table("table1", tuple(HARD_METHODS), tuple(HARD))
TABLE_3 = Table("table3", tuple(SOFT_METHODS), tuple(SOFT))
TABLE_4 = Table("table4", tuple(NODE_METHODS), ("mushrooms", "synthetic128", "synthetic512"))
PAPER = Paper(
    "saddle",
    {**HARD, **SOFT},
    {**HARD_METHODS, **SOFT_METHODS, **NODE_METHODS},
    (TABLE_1, TABLE_3, TABLE_4),
)

if __name__ == "__main__":
    sys.exit(run(PAPER))
