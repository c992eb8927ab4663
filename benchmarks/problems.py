"""All benchmark problems: here those with the rbf kernel, in `linear_problems.py` the others."""

from __future__ import annotations

from dataclasses import replace

from benchmarks import data
from benchmarks.linear_problems import LINEAR_PROBLEMS
from benchmarks.problem import Problem

_covtype = Problem(
    name="covtype-50k",
    title="covtype.binary, 50,000 rows, C=32, gamma=32: fit",
    dataset="covtype",
    prepare=data.covtype_binary,
    parameters={"C": 32.0, "gamma": 32.0},
    rows=50_000,
    # scikit-learn needs minutes for one fit, so it gets one repeat besides the tries of each form.
    repeats={"margrave": 3, "sklearn": 1, "intelex": 3},
    goals={"sklearn": 15, "intelex": 4},
)

_cadata = Problem(
    name="svr-cadata",
    title="cadata (SVR), 16,512 rows, C=10, epsilon=0.1, gamma=1/8: fit",
    dataset="cadata",
    prepare=data.regression,
    estimator="SVR",
    parameters={"C": 10.0, "epsilon": 0.1, "gamma": 1 / 8},
    rows=16_512,
    new_rows=4_128,
)

_shuttle = Problem(
    name="one-class-shuttle",
    title="shuttle (one class), 43,500 rows, nu=0.05: fit",
    dataset="shuttle",
    prepare=data.one_class,
    estimator="OneClassSVM",
    parameters={"nu": 0.05, "gamma": "scale"},
    libraries=("margrave", "sklearn"),  # scikit-learn-intelex has no such estimator
)

# nu = 2 alpha (rows of the smaller class) / (all rows), alpha = 0.85
_nu = Problem(
    name="nu-ijcnn1",
    title="ijcnn1 (NuSVC), 49,990 rows, nu=0.165, gamma=2: fit",
    dataset="ijcnn1",
    prepare=data.train_part,
    estimator="NuSVC",
    parameters={"nu": 2 * 0.85 * 4_853 / 49_990, "gamma": 2.0},
    repeats={"margrave": 5, "sklearn": 2, "intelex": 3},
    goals={"sklearn": 10, "intelex": 2.5},
)

KERNEL_PROBLEMS: tuple[Problem, ...] = (
    Problem(
        name="ijcnn1",
        title="ijcnn1, 49,990 rows, C=32, gamma=2: fit",
        dataset="ijcnn1",
        prepare=data.train_part,
        parameters={"C": 32.0, "gamma": 2.0},
        goals={"sklearn": 8, "intelex": 2.5},
    ),
    _covtype,
    replace(
        _covtype,
        name="covtype-50k-scores",
        title="covtype.binary, those 50,000-row models: scores of 20,000 rows",
        timed="score",
        model=_covtype.name,
        new_rows=20_000,
        repeats={"margrave": 5, "sklearn": 3, "intelex": 5},
        goals={"sklearn": 40, "intelex": 2},
    ),
    Problem(
        name="mnist-8",
        title="mnist 8 against the rest, 20,000 rows, C=10, gamma=0.02: fit",
        dataset="mnist",
        prepare=data.mnist_eight,
        parameters={"C": 10.0, "gamma": 0.02},
        rows=20_000,
        goals={"sklearn": 10, "intelex": 1},
    ),
    Problem(
        name="a9a",
        title="a9a (sparse), 32,561 rows, C=1, gamma=0.05: fit",
        dataset="a9a",
        prepare=data.train_part,
        parameters={"C": 1.0, "gamma": 0.05},
        goals={"sklearn": 20, "intelex": 2.5},
    ),
    replace(
        _covtype,
        name="covtype-100k-4GiB",
        title="covtype.binary, 100,000 rows, C=32, gamma=32, within 4 GiB: fit",
        rows=100_000,
        libraries=("margrave",),
        forms=("float32-dense",),
        options={"margrave": {"memory_limit": "4GiB"}},
        repeats={"margrave": 1},
        limit=3600.0,
        goals={},
        memory_goal=4 << 30,
    ),
    _cadata,
    replace(
        _cadata,
        name="svr-kin40k",
        title="kin40k (SVR), 32,000 rows, C=10, epsilon=0.1, gamma=1/8: fit",
        dataset="kin40k",
        rows=32_000,
        new_rows=8_000,
    ),
    _shuttle,
    replace(
        _shuttle,
        name="one-class-kddcup99",
        title="kddcup99 (one class), 50,000 rows, nu=0.05: fit",
        dataset="kddcup99_10pct",
        rows=50_000,
    ),
    _nu,
    replace(
        _nu,
        name="nu-a9a",
        title="a9a (NuSVC), 32,561 rows, nu=0.409, gamma=0.05: fit",
        dataset="a9a",
        parameters={"nu": 2 * 0.85 * 7_841 / 32_561, "gamma": 0.05},
    ),
    replace(
        _nu,
        name="nu-skin",
        title="skin_nonskin (NuSVC, linear), 245,057 rows, nu=0.353: fit",
        dataset="skin_nonskin",
        prepare=data.scaled,
        kernel="linear",
        parameters={"nu": 2 * 0.85 * 50_859 / 245_057},
        libraries=("margrave", "sklearn"),
        forms=("float64-dense",),
        repeats={"margrave": 5, "sklearn": 1},
        limit=1200.0,
        goals={"sklearn": 50},
    ),
    Problem(
        name="mnist-10",
        title="mnist, 10 classes one-vs-one, 20,000 rows, C=10, gamma=0.02: fit",
        dataset="mnist",
        prepare=data.mnist_digits,
        parameters={"C": 10.0, "gamma": 0.02},
        rows=20_000,
        new_rows=10_000,
    ),
    Problem(
        name="pendigits",
        title="pendigits, 10 classes one-vs-one, 7,494 rows, C=10, gamma=1: fit",
        dataset="pendigits",
        prepare=data.pendigits,
        parameters={"C": 10.0, "gamma": 1.0},
        new_rows=3_498,
    ),
    Problem(
        name="odm-ijcnn1",
        title="ijcnn1 (ODM), 49,990 rows, lam=100, upsilon=0.5, theta=0.1, gamma=2: fit",
        dataset="ijcnn1",
        prepare=data.train_part,
        estimator="ODMClassifier",
        parameters={"lam": 100.0, "upsilon": 0.5, "theta": 0.1, "gamma": 2.0},
        libraries=("margrave", "margrave-cd", "margrave-newton"),
        repeats={"margrave": 5, "margrave-cd": 3, "margrave-newton": 3},
    ),
    Problem(
        name="klr-ijcnn1",
        title="ijcnn1 (kernel logistic regression), 20,000 rows, C=1, gamma=2: fit",
        dataset="ijcnn1",
        prepare=data.both_parts,
        estimator="KernelLogisticRegression",
        # Coordinate descent cannot keep the sum that a free intercept asks for.
        parameters={"C": 1.0, "gamma": 2.0, "intercept": "regularized"},
        rows=20_000,
        new_rows=91_701,
        libraries=("margrave", "margrave-cd", "nystroem"),
        repeats={"margrave": 5, "margrave-cd": 3, "nystroem": 5},
    ),
)

PROBLEMS: dict[str, Problem] = {
    problem.name: problem for problem in (*KERNEL_PROBLEMS, *LINEAR_PROBLEMS)
}
