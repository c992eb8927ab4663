"""Jin, Huang, Li: SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms.

    python -m benchmarks.papers.saddle [--only NAME ...] [--methods NAME ...] [--time-limit SECONDS]

Table 1 (hard margin, against Gilbert's method), Figures 1 and 2 (nu from alpha = 0.85, linear
kernel, against NuSVC), Table 3 (smaller alphas), Table 4 (against LinearSVC, and a stochastic
gradient method in place of HOGWILD!), and Figures 3, 4 and 6 (communication of twenty nodes). Pair
swaps, which are not in the paper, are in all of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse
from sklearn import svm
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_iris
from sklearn.linear_model import SGDClassifier

from benchmarks.data import SEED, Data
from benchmarks.papers.common import Entry, Method, Paper, Table, last, run
from benchmarks.papers.data import DataSet, official_split, pooled
from margrave import HardMarginSVC, NuSVC
from margrave.solvers import FrankWolfe, PairSwaps, Saddle

ALPHA = 0.85  # nu = 1 / (alpha min(n1, n2)) in the paper's terms
NODES = 20
BETAS = (1.0, 0.1, 0.01, 0.001)  # "try several beta = 10^-k and choose the best one": footnote 4
ROUNDS = tuple(step * 10**power for power in range(6) for step in (1, 3))
PAIRS = tuple(100 * rounds for rounds in ROUNDS)  # one at a time, as LIBSVM takes them
DENSE = {"margrave": "float64-dense", "sklearn": "float64-dense"}
SPARSE = {"margrave": "float64-csr", "sklearn": "float64-csr"}


class ByAlpha(BaseEstimator):
    """A model whose nu follows from the number of rows in the smaller class."""

    def __init__(self, machine: Any = None, alpha: float = ALPHA) -> None:
        self.machine = machine
        self.alpha = alpha

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model with its nu."""
        _, counts = np.unique(y, return_counts=True)
        nu = 2.0 * self.alpha * counts.min() / len(y)
        self.machine_ = clone(self.machine).set_params(nu=nu).fit(X, y)
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "machine_":
            raise AttributeError(name)
        return getattr(self.machine_, name)


class LibsvmByAlpha(ByAlpha):
    """A model of LIBSVM, with half the squared distance of the hulls as its objective."""

    @property
    def objective_(self) -> float:
        """Half of |z|^2, with weights that sum to one in each class."""
        machine = self.machine_
        z = machine.coef_ / (0.5 * abs(machine.dual_coef_).sum())
        return 0.5 * float((z.multiply(z) if issparse(z) else z * z).sum())


@dataclass(frozen=True)
class Synthetic(DataSet):
    """Points of the unit ball on both sides of a plane, as the paper's appendix D has them.

    Distances to the plane are between a tenth of the largest and the largest; where the set is not
    `separable`, points nearer than that have a random label instead (nearer than 0.1, to read the
    paper literally, are nearly all of them). `filled` is the share of the features that a point
    has.
    """

    rows: int = 10_000
    features: int = 128
    separable: bool = True
    filled: float = 1.0

    def load(self, generated: bool = False) -> Data:
        """Make the rows; a few where they are for tests of the harness."""
        rng, n = np.random.default_rng(SEED), 200 if generated else self.rows
        w = rng.standard_normal(self.features)
        w /= np.linalg.norm(w)
        X = rng.standard_normal((n, self.features))
        if self.filled < 1.0:
            X[rng.random(X.shape) >= self.filled] = 0.0
        X /= np.linalg.norm(X, axis=1)[:, None]
        X *= rng.uniform(0.0, 1.0, (n, 1)) ** (1.0 / self.features)
        y = np.where(X @ w > 0, 1, -1)
        distance = np.abs(X @ w)
        least = 0.1 * distance.max()
        if self.separable:
            X += np.outer(y * np.maximum(0.0, least - distance), w)
        else:
            near = distance < least
            y[near] = rng.choice([-1, 1], int(near.sum()))
        cut = n // 5
        return Data(X[cut:], y[cut:], X[:cut], y[:cut])


@dataclass(frozen=True)
class Iris(DataSet):
    """Setosa against the others, as scikit-learn ships it."""

    def load(self, generated: bool = False) -> Data:
        """Load all rows, which are also those to test."""
        X, y = load_iris(return_X_y=True)
        labels = np.where(y == 0, 1, -1)
        return Data(X, labels, X, labels)


def _synthetic(
    features: int, rows: int = 10_000, separable: bool = True, filled: float = 1.0
) -> DataSet:
    title = f"synthetic, {rows * 4 // 5:,} x {features}"  # a fifth of the rows is to test
    title += f", {filled:.0%} filled" if filled < 1.0 else ""
    title += "" if separable else ", not separable"
    form = SPARSE if filled < 0.4 else DENSE
    return Synthetic(title, "", pooled, form, {}, (), rows, features, separable, filled)


HARD = {
    "iris": Iris("iris, setosa", "", pooled, DENSE),
    "mushrooms": DataSet("mushrooms", "mushrooms", pooled, DENSE),
    "small128": _synthetic(128, 2_500),
    **{f"synthetic{d}": _synthetic(d, 12_500) for d in (8, 32, 128, 512)},
}
SOFT = {
    "a9a": DataSet("a9a", "a9a", pooled, SPARSE),
    "ijcnn1": DataSet("ijcnn1", "ijcnn1", pooled, DENSE),
    "a9a-official": DataSet("a9a, official split", "a9a", official_split, SPARSE),
    "ijcnn1-official": DataSet("ijcnn1, official split", "ijcnn1", official_split, DENSE),
    "phishing": DataSet("phishing", "phishing", pooled, SPARSE),
    "skin-nonskin": DataSet("skin_nonskin", "skin_nonskin", pooled, DENSE),
    "madelon": DataSet("madelon", "madelon", pooled, DENSE),
    **{f"noisy{n}": _synthetic(512, n, separable=False) for n in (5_000, 20_000, 50_000)},
    **{
        f"filled{share}": _synthetic(128, 100_000, separable=False, filled=share / 100)
        for share in (10, 50, 90)
    },
}

FIXED: dict[str, Any] = {"kernel": "linear", "tol": 1e-3, "random_state": 0}


def _hard(parameters: Mapping[str, Any], solver: Callable[[], Any]) -> HardMarginSVC:
    return HardMarginSVC(**FIXED, **parameters, solver=solver())


def _soft(
    parameters: Mapping[str, Any], solver: Callable[[], Any], alpha: float = ALPHA
) -> ByAlpha:
    return ByAlpha(NuSVC(**FIXED, **parameters, solver=solver()), alpha)


def _libsvm(parameters: Mapping[str, Any], alpha: float = ALPHA) -> LibsvmByAlpha:
    return LibsvmByAlpha(svm.NuSVC(kernel="linear", tol=1e-3, cache_size=1000, **parameters), alpha)


def _liblinear(parameters: Mapping[str, Any]) -> Any:
    return svm.LinearSVC(C=8.0, **parameters)


class Stochastic(SGDClassifier):
    """Stochastic gradient descent for the SVM with C = 32, in scikit-learn's parameters.

    The numbers are those that nodes without locks would send: the weights of a row's features, read
    and written.
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit, with the strength that stands for C."""
        self.set_params(alpha=1.0 / (32.0 * len(y)))
        fitted: Self = super().fit(X, y)
        entries = X.nnz if issparse(X) else np.count_nonzero(X)
        self.numbers_ = 2 * int(entries) * int(self.n_iter_)
        return fitted


def _sgd(parameters: Mapping[str, Any]) -> Any:
    return Stochastic(random_state=0, n_jobs=-1, **parameters)


WAYS: dict[str, tuple[str, Callable[[], Any]]] = {
    "pairs": ("pair swaps", PairSwaps),
    "gilbert": ("Frank-Wolfe, pairwise", FrankWolfe),
    "published-gilbert": ("Gilbert", partial(FrankWolfe, steps="plain")),
    "saddle": ("Saddle-SVC, all features", Saddle),
    **{
        f"published-saddle-{beta:g}": (
            f"Saddle-SVC as printed, beta={beta:g}",
            partial(Saddle, as_published=True, beta=beta),
        )
        for beta in BETAS
    },
}
APART: dict[str, tuple[str, Callable[[], Any]]] = {
    "pairs": ("working set among nodes", partial(PairSwaps, partitions=NODES)),
    "gilbert": ("distributed Gilbert", partial(FrankWolfe, steps="plain", partitions=NODES)),
    "pairwise": ("distributed Frank-Wolfe, pairwise", partial(FrankWolfe, partitions=NODES)),
    "saddle": ("Saddle-DSVC, all features", partial(Saddle, partitions=NODES)),
    "blocks": ("Saddle-DSVC, 8 features", partial(Saddle, size=8, partitions=NODES)),
    "single": ("Saddle-DSVC, one feature as printed", partial(Saddle, size=1, partitions=NODES)),
}


def points_until(found: Entry, gap: float) -> float | None:
    """Points of a node that are exchanged until a gap, k d numbers each; None if it is not reached.

    The paper's unit is what all k nodes send if each sends one point of d features.
    """
    history = found.get("history", {})
    for numbers, reached in zip(history.get("numbers", ()), history.get("gap", ()), strict=True):
        if reached is not None and reached <= gap:
            return float(numbers) / (NODES * found["features"])
    return None


def with_best_beta(methods: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries, of those with several beta only the one that came nearest to the optimum."""
    tried = [
        (name, one)
        for name in methods
        if "-published-saddle-" in name
        if (one := last(methods[name]))
    ]
    best = min(
        tried, key=lambda one: (one[1].get("full_gap") or np.inf, one[1]["seconds"]), default=None
    )
    return {
        name: entry
        for name, entry in methods.items()
        if "-published-saddle-" not in name or (best is not None and name == best[0])
    }


HARD_METHODS = {
    f"hard-{name}": Method(title, partial(_hard, solver=make), certified=True)
    for name, (title, make) in WAYS.items()
}
SOFT_METHODS = {
    **{
        f"nu-{name}": Method(title, partial(_soft, solver=make), certified=True, early=ROUNDS)
        for name, (title, make) in WAYS.items()
    },
    "libsvm": Method("scikit-learn NuSVC", _libsvm, "sklearn", early=PAIRS),
}
ALPHAS = (0.1, 0.3, 0.5)
ALPHA_METHODS = {
    f"{name}-{alpha}": method
    for alpha in ALPHAS
    for name, method in (
        (
            "pairs",
            Method(
                f"pair swaps, alpha={alpha}",
                partial(_soft, solver=PairSwaps, alpha=alpha),
                certified=True,
            ),
        ),
        (
            "saddle",
            Method(
                f"Saddle-SVC, all features, alpha={alpha}",
                partial(_soft, solver=Saddle, alpha=alpha),
                certified=True,
            ),
        ),
        (
            "libsvm",
            Method(f"scikit-learn NuSVC, alpha={alpha}", partial(_libsvm, alpha=alpha), "sklearn"),
        ),
    )
}
LINEAR_METHODS = {
    "liblinear": Method("scikit-learn LinearSVC", _liblinear, "sklearn", early=ROUNDS),
    "sgd": Method("scikit-learn SGDClassifier", _sgd, "sklearn", early=ROUNDS),
}
NODE_METHODS = {
    f"nodes-{kind}-{name}": Method(title, partial(make_machine, solver=make), certified=True)
    for kind, make_machine in (("hard", _hard), ("nu", _soft))
    for name, (title, make) in APART.items()
}

TABLE_1 = Table("table1", tuple(HARD_METHODS), tuple(HARD))
FIGURE_1 = Table(
    "figure1",
    (*SOFT_METHODS, *LINEAR_METHODS),
    ("a9a", "ijcnn1", "phishing", "skin-nonskin", "noisy5000", "noisy20000", "noisy50000"),
)
TABLE_3 = Table("table3", tuple(ALPHA_METHODS), ("a9a", "phishing", "ijcnn1"))
TABLE_4 = Table(
    "table4",
    ("nu-pairs", "nu-gilbert", "nu-saddle", *LINEAR_METHODS),
    ("skin-nonskin", "filled10", "filled50", "filled90"),
)
FIGURE_3 = Table(
    "figure3",
    (*(name for name in NODE_METHODS if "-hard-" in name), "sgd"),
    ("mushrooms", "synthetic128", "synthetic512"),
)
FIGURE_4 = Table(
    "figure4",
    (*(name for name in NODE_METHODS if "-nu-" in name), "sgd"),
    ("phishing", "a9a", "madelon"),
)
PAPER = Paper(
    "saddle",
    {**HARD, **SOFT},
    {**HARD_METHODS, **SOFT_METHODS, **ALPHA_METHODS, **LINEAR_METHODS, **NODE_METHODS},
    (TABLE_1, FIGURE_1, TABLE_3, TABLE_4, FIGURE_3, FIGURE_4),
)

if __name__ == "__main__":
    sys.exit(run(PAPER))
