"""Warm starts on other rows: the same optimum as a cold fit, for a fraction of the work."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import margrave
from margrave import (
    SVC,
    SVR,
    HardMarginSVC,
    KernelLogisticRegression,
    NuSVC,
    NuSVR,
    ODMClassifier,
    OneClassSVM,
)
from margrave.estimators._rows import check_ids, places, settled
from margrave.losses import Loss
from margrave.problem import Data, Problem
from tests import exact_gap

TOL = 1e-6
COMMON = {"gamma": 0.5, "tol": TOL, "warm_start": True}
MODELS = [
    SVC(C=3.0, **COMMON),
    SVC(C=3.0, loss="squared_hinge", **COMMON),
    SVC(C=3.0, intercept="regularized", **COMMON),
    SVC(C=3.0, intercept=None, class_weight="balanced", **COMMON),
    SVC(kernel="linear", tol=TOL, warm_start=True),
    SVR(C=3.0, **COMMON),
    SVR(C=3.0, loss="pinball", quantile=0.8, **COMMON),
    KernelLogisticRegression(C=3.0, **COMMON),
    ODMClassifier(**COMMON),
    OneClassSVM(nu=0.2, **COMMON),
    NuSVC(nu=0.3, **COMMON),
    NuSVR(nu=0.3, **COMMON),
    HardMarginSVC(gamma=20.0, tol=TOL, warm_start=True),
]
SEVERAL = [
    SVC(C=3.0, **COMMON),
    SVC(C=3.0, multi_class="ovr", **COMMON),
    SVC(C=3.0, multi_class="crammer_singer", **COMMON),
    KernelLogisticRegression(C=3.0, multi_class="softmax", **COMMON),
    NuSVC(nu=0.2, **COMMON),
]
each = pytest.mark.parametrize("model", MODELS, ids=str)
N = 300


def rows(n=N, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    f = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(n)
    return X, np.digitize(f, np.quantile(f, np.arange(1, classes) / classes))


def fitted(model, X, y, **more):
    return clone(model).fit(X, y, **more)


def assert_same_optimum(warm, X, y):
    cold = clone(warm).fit(X, y)
    assert warm.converged_ and cold.converged_
    assert warm.certify(X, y) <= 1.01 * TOL
    size = max(abs(cold.objective_), 1e-300)
    assert abs(warm.objective_ - cold.objective_) <= 2.0 * len(warm.gaps_) * TOL * size


CHANGES = {
    "appended": np.arange(N),
    "removed": np.arange(20, N - 10),
    "moved on": np.arange(30, N),
    "shuffled": np.random.default_rng(1).permutation(N)[:250],
}


@each
@pytest.mark.parametrize("change", CHANGES)
def test_the_optimum_is_that_of_a_cold_fit(model, change):
    X, y = rows()
    first = slice(0, N - 30) if change in ("appended", "moved on") else slice(0, N)
    warm, now = fitted(model, X[first], y[first]), CHANGES[change]
    warm.fit(X[now], y[now])
    assert_same_optimum(warm, X[now], y[now])


@pytest.mark.parametrize("model", SEVERAL, ids=str)
def test_several_classes(model):
    X, y = rows(classes=4)
    warm = fitted(model, X[:270], y[:270]).fit(X[20:], y[20:])
    assert_same_optimum(warm, X[20:], y[20:])


@pytest.mark.parametrize("model", MODELS[:1] + MODELS[5:6] + MODELS[9:10], ids=str)
@pytest.mark.parametrize("form", [sparse.csr_matrix, np.float32])
def test_forms_of_rows(model, form):
    X, y = rows()
    X = form(X)
    warm = fitted(model, X[:270], y[:270]).fit(X[20:], y[20:])
    assert_same_optimum(warm, X[20:], y[20:])


@pytest.mark.parametrize("columns", [2, 5])
def test_sparse_rows_with_other_columns(columns):
    """Most rows keep their entries, and thus their digest, in a matrix of another width."""
    X, y = rows()
    X[30:, 2] = 0.0
    now = np.zeros((N, columns))
    now[:, : min(3, columns)] = X[:, :columns]
    now[-10:, -1] = 1.0
    warm = fitted(MODELS[0], sparse.csr_matrix(X), y).fit(sparse.csr_matrix(now), y)
    assert_same_optimum(warm, sparse.csr_matrix(now), y)


def work(model):
    return model.history_[-1]["kernel_values"]


def test_appended_rows_cost_a_fraction_of_a_cold_fit():
    """Counted, not timed: 1 % more rows, with the scores of the others from the last fit."""
    X, y = rows(6060, seed=2)
    model = SVC(C=1.0, gamma=0.5, warm_start=True).fit(X[:6000], y[:6000])
    cold = clone(model).fit(X, y)
    model.fit(X, y)
    assert model.converged_ and model.certify(X, y) <= model.tol
    assert work(model) <= 0.2 * work(cold)
    assert model.history_[-2]["kernel_values"] <= 0.1 * work(cold)  # before the certificate
    assert model.n_iter_ < cold.n_iter_


def test_scores_of_the_start_end_at_the_time_limit():
    X, y = rows(3000)
    model = SVC(gamma=0.5, warm_start=True).fit(X[:2500], y[:2500])
    model.set_params(time_limit=1e-9)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model.fit(X, y)
    assert np.isfinite(model.gap_) and model.history_[0]["kernel_values"] == 0


def test_a_second_fit_of_the_same_rows_computes_next_to_nothing():
    X, y = rows(3000)
    model = SVC(C=1.0, gamma=0.5, warm_start=True).fit(X, y)
    first = work(model)
    model.fit(X[::-1], y[::-1])
    assert model.n_iter_ == 0 and model.history_[0]["kernel_values"] == 0
    assert work(model) <= 0.2 * first


@pytest.mark.parametrize("model", [SVC(C=5.0, **COMMON), OneClassSVM(nu=0.2, **COMMON)], ids=str)
def test_carried_scores_stay_exact_over_many_fits(model):
    """A window over 40 batches: the certificate holds in 600 bits."""
    X, y = rows(1000)
    warm = clone(model)
    for first in range(0, 800, 20):
        at = slice(first, first + 200)
        warm.fit(X[at], y[at])
        assert warm.converged_
    assert_same_optimum(warm, X[at], y[at])
    gap = max(found.gap for found in exact_gap.exact_gaps(warm, X[at], y[at]))
    assert gap <= warm.gap_


def test_ids_recognise_rows_whose_contents_have_changed():
    X, y = rows()
    ids = np.array([f"row {i}" for i in range(N)])
    model = fitted(MODELS[0], X, y, row_ids=ids)
    order = np.random.default_rng(0).permutation(N)
    nearly = X + 1e-9
    with_ids = pickle.loads(pickle.dumps(model)).fit(nearly[order], y[order], row_ids=ids[order])
    without = model.fit(nearly[order], y[order])
    assert with_ids.n_iter_ <= 1 < without.n_iter_
    assert_same_optimum(with_ids, nearly[order], y[order])


@pytest.mark.parametrize("model", [SVC(C=5.0, **COMMON), SVR(C=5.0, **COMMON)], ids=str)
def test_some_rows_have_new_contents_and_their_old_ids(model):
    X, y = rows()
    X = X.copy()
    model = fitted(model, X, y, row_ids=np.arange(N))
    X[::10] = X[::-10]
    X[5] = X[7]  # a row that is there twice
    at = np.arange(3, N)
    model.fit(X[at], y[at], row_ids=at)
    assert_same_optimum(model, X[at], y[at])
    assert max(found.gap for found in exact_gap.exact_gaps(model, X[at], y[at])) <= model.gap_


def test_precomputed_kernels():
    X, y = rows()
    K = X @ X.T
    model = SVC(kernel="precomputed", tol=TOL, warm_start=True).fit(K[:270, :270], y[:270])
    model.fit(K, y)
    assert_same_optimum(model, K, y)
    at = np.arange(30, N)
    model = SVC(kernel="precomputed", tol=TOL, warm_start=True).fit(K, y, row_ids=np.arange(N))
    model.fit(K[np.ix_(at, at)], y[at], row_ids=at)
    assert_same_optimum(model, K[np.ix_(at, at)], y[at])


def test_a_model_file_goes_on_with_other_rows(tmp_path):
    X, y = rows()
    fitted(MODELS[0], X[:270], y[:270]).save(tmp_path / "model")
    model = margrave.load(tmp_path / "model")
    cold = clone(model).fit(X, y)
    assert model.fit(X, y).history_[0]["gap"] <= 0.5 * cold.history_[0]["gap"]
    assert_same_optimum(model, X, y)


def test_what_is_kept_is_small_and_only_for_warm_starts():
    X, y = rows(3000)
    plain = SVC(gamma=0.5).fit(X, y)
    warm = SVC(gamma=0.5, warm_start=True).fit(X, y)
    more = len(pickle.dumps(warm)) - len(pickle.dumps(plain))
    assert 0 < more <= 32 * len(y)
    assert not hasattr(clone(warm), "_dual_points") and "_kept" not in vars(plain)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2], "one entry for each of 300 rows"),
        (np.zeros(N, dtype=int), "unique, but 0 occurs twice"),
        (np.arange(N) / 2, "integers or strings"),
        (np.array([*range(N - 1), "last"], dtype=object), "integers or strings"),
        (np.zeros((N, 1)), "one entry"),
    ],
)
def test_wrong_ids(ids, message):
    X, y = rows()
    model = fitted(MODELS[0], X, y)
    before = model.dual_coef_
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, row_ids=ids)
    assert model.dual_coef_ is before


@pytest.mark.parametrize("kind", [int, str])
def test_ids_of_a_data_frame(kind):
    ids = np.array([kind(number) for number in range(N)], dtype=object)
    np.testing.assert_array_equal(check_ids(ids, N), np.arange(N).astype(kind))


def test_equal_rows_are_paired_in_their_order():
    assert places(np.array([7, 5, 7]), np.array([5, 7, 9, 7, 7])).tolist() == [1, 0, 3]
    assert places(np.array([1, 1]), np.array([2, 1])).tolist() == [1, -1]


@pytest.mark.parametrize("scores", [None, np.linspace(1.0, -1.0, 6)])
def test_what_is_missing_goes_to_few_rows_inside_their_box(scores):
    y = np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    data = Data(np.eye(6), margrave.kernels.resolve_kernel("linear", X=np.eye(6), sample_weight=y,
                gamma=1.0, degree=3, coef0=0.0, power=1.0), np.array([0, 6]))  # fmt: skip
    problem = Problem(data, None, y, np.full(6, 2.0), Loss("hinge"), "free")
    given = np.array([2.0, 1.0, 0.0, -1.0, 0.0, 0.0])
    found = settled(problem, given, scores)
    low, high = problem.loss.core().box(y, problem.C)
    assert abs(found.sum()) <= 1e-15 and (low <= found).all() and (found <= high).all()
    assert np.count_nonzero(found != given) <= 2
