"""The problems with the linear kernel, where other libraries solve for the weights of the features.

LIBLINEAR, behind scikit-learn's LinearSVC and LinearSVR, regularises the intercept. It is timed
twice: with its defaults, and (as "sklearn-shortest") stopped as soon as it is near the optimum: see
`shortest.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks import data
from benchmarks.data import MAPPED
from benchmarks.problem import Problem

DENSE = ("float32-dense", "float64-dense")
SPARSE = ("float32-csr", "float64-csr")

_a9a = Problem(
    name="linear-hinge-a9a",
    title="a9a (linear), 32,561 rows, hinge, C=1: fit",
    dataset="a9a",
    prepare=data.train_part,
    kernel="linear",
    parameters={"C": 1.0, "loss": "hinge", "intercept": "regularized"},
    libraries=("margrave", "sklearn", "sklearn-shortest"),
    repeats={"margrave": 5, "sklearn": 3, "sklearn-shortest": 3},
    goals={"sklearn": 1},
)


def _covtype(loss: str, C: float) -> Problem:
    name = loss.replace("_", " ")
    return replace(
        _a9a,
        name=f"linear-{name.replace(' ', '-')}-covtype-C{C:g}",
        title=f"covtype.binary (linear), 581,012 rows, {name}, C={C:g}: fit",
        dataset="covtype",
        prepare=data.covtype_standardised,
        parameters={"C": C, "loss": loss, "intercept": "regularized"},
        # LIBLINEAR computes in double precision, and may need minutes for one fit.
        forms=("float64-dense",),
        repeats={"margrave": 5, "sklearn": 1, "sklearn-shortest": 3},
        goals={"sklearn": 5},
    )


_protein = Problem(
    name="linear-svr-protein",
    title="protein (linear SVR), 45,730 rows, C=1, epsilon=0.1: fit",
    dataset="protein",
    prepare=data.regression,
    estimator="SVR",
    kernel="linear",
    parameters={
        "C": 1.0,
        "epsilon": 0.1,
        "loss": "epsilon_insensitive",
        "intercept": "regularized",
    },
    libraries=("margrave", "sklearn", "sklearn-shortest"),
    forms=DENSE,
    repeats={"margrave": 5, "sklearn": 3, "sklearn-shortest": 3},
    goals={"sklearn": 5},
)

_odm = Problem(
    name="linear-odm-covtype",
    title="covtype.binary (linear ODM), 581,012 rows, lam=100, upsilon=0.5, theta=0.1, "
    "tol=1e-6: fit",
    dataset="covtype",
    prepare=data.covtype_standardised,
    estimator="ODMClassifier",
    kernel="linear",
    parameters={"lam": 100.0, "upsilon": 0.5, "theta": 0.1, "tol": 1e-6},
    libraries=("margrave", "margrave-svrg", "margrave-dsvrg"),
    forms=("float64-dense",),
    # A solver that has not reached the tolerance by then shows the gap that it reached.
    options={"margrave-svrg": {"time_limit": 60.0}, "margrave-dsvrg": {"time_limit": 60.0}},
    repeats={"margrave": 5, "margrave-svrg": 1, "margrave-dsvrg": 1},
    goals={"margrave-svrg": 10, "margrave-dsvrg": 10},
)

LINEAR_PROBLEMS: tuple[Problem, ...] = (
    _a9a,
    replace(
        _a9a,
        name="linear-hinge-reuters",
        title="reuters money-fx (linear, sparse), 7,770 rows, hinge, C=1: fit",
        dataset="reuters_moneyfx",
        forms=SPARSE,
    ),
    replace(
        _a9a,
        name="linear-hinge-news20",
        title="news20 (linear, sparse), 20 classes one-vs-rest, 18,221 rows, hinge, C=1: fit",
        dataset="news20_18k",
        prepare=data.all_rows,
        parameters={**_a9a.parameters, "multi_class": "ovr"},
        forms=SPARSE,
    ),
    _covtype("hinge", 1e-3),
    _covtype("hinge", 1.0),
    _covtype("squared_hinge", 1e-3),
    _covtype("squared_hinge", 1.0),
    Problem(
        name="linear-logistic-covtype",
        title="covtype.binary (linear logistic regression), 581,012 rows, C=1: fit",
        dataset="covtype",
        prepare=data.covtype_standardised,
        estimator="KernelLogisticRegression",
        kernel="linear",
        parameters={"C": 1.0, "intercept": "free"},
        # All solvers of scikit-learn that can do it well; the fastest one counts.
        libraries=("margrave", "sklearn-lbfgs", "sklearn-newton-cholesky", "sklearn-newton-cg"),
        forms=DENSE,
        repeats={
            "margrave": 5,
            "sklearn-lbfgs": 3,
            "sklearn-newton-cholesky": 1,
            "sklearn-newton-cg": 1,
        },
        goals={"sklearn": 1},
    ),
    _protein,
    replace(
        _protein,
        name="linear-svr-nycflights13",
        title="nycflights13 (linear SVR), 273,853 rows, C=1, epsilon=0.1: fit",
        dataset="nycflights13",
    ),
    _odm,
    replace(
        _odm,
        name="linear-odm-susy30k",
        title="susy (linear ODM), 30,000 rows, lam=100, upsilon=0.5, theta=0.1, tol=1e-6: fit",
        dataset="susy30k",
        prepare=data.standardised,
    ),
    replace(
        _odm,
        name="linear-odm-susy30k-lam10000",
        # The least of 1, 10, 100, ... that is best on rows held out.
        title="susy (linear ODM), 30,000 rows, lam=10,000, upsilon=0.5, theta=0.1, tol=1e-6: fit",
        dataset="susy30k",
        prepare=data.standardised,
        parameters={**_odm.parameters, "lam": 10_000.0},
    ),
    replace(
        _protein,
        name="linear-svr-flights-3m",
        title="flights (linear SVR), 3,000,000 memory-mapped rows, C=1, epsilon=0.1: fit",
        dataset="flights_3m",
        libraries=("margrave",),
        forms=(MAPPED,),
        repeats={"margrave": 3},
        limit=3600.0,
        goals={},
        memory_goal=1 << 30,
    ),
)


@dataclass(frozen=True)
class OneOf:
    """A goal that at least one of several problems has to reach."""

    problems: tuple[str, ...]
    rival: str
    faster: float


GOALS_OF_SEVERAL = (
    OneOf(("linear-hinge-a9a", "linear-hinge-reuters", "linear-hinge-news20"), "sklearn", 2.0),
)
