"""NuSVC, HardMarginSVC and NuSVR: LIBSVM's models, mappings, weights, bad input, budgets."""

from __future__ import annotations

import os
import pickle
import signal
import threading

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.svm import SVC as LibsvmSVC
from sklearn.svm import SVR as LibsvmSVR
from sklearn.svm import NuSVC as LibsvmNuSVC
from sklearn.svm import NuSVR as LibsvmNuSVR

from margrave import SVC, SVR, HardMarginSVC, NuSVC, NuSVR
from tests.data import load
from tests.systems import posix

KERNELS = [
    {"kernel": "rbf", "gamma": 0.1},
    {"kernel": "linear"},
    {"kernel": "poly", "gamma": 0.05, "degree": 2, "coef0": 1.0},
]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k["kernel"])


# --- classification ------------------------------------------------------------------------------


@each_kernel
@pytest.mark.parametrize("nu", [0.2, 0.5, 0.7])
def test_nusvc_is_libsvms(kernel, nu):
    X, y = load("breast")
    ours = NuSVC(nu, **kernel, tol=1e-9).fit(X, y)
    theirs = LibsvmNuSVC(nu=nu, **kernel, tol=1e-10).fit(X, y)
    expected = theirs.decision_function(X)
    size = np.abs(expected).max()
    np.testing.assert_allclose(ours.decision_function(X), expected, atol=1e-4 * size)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    sums = np.abs(ours.dual_coef_).sum(), np.abs(theirs.dual_coef_).sum()
    assert sums[0] == pytest.approx(sums[1], rel=1e-4)
    assert ours.rho_ == pytest.approx(2.0 / sums[1], rel=1e-4)
    if kernel["kernel"] == "linear":
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4 * np.abs(theirs.coef_).max())


@each_kernel
def test_equivalent_C(kernel):
    X, y = load("breast")
    nu = NuSVC(0.3, **kernel, tol=1e-10).fit(X, y)
    for model in (
        SVC(nu.equivalent_C_, **kernel, tol=1e-9),
        LibsvmSVC(C=nu.equivalent_C_, **kernel, tol=1e-9),
    ):
        found = model.fit(X, y).decision_function(X)
        np.testing.assert_allclose(nu.decision_function(X), found, atol=1e-3 * np.abs(found).max())


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_three_classes(shape):
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    ours = NuSVC(0.4, gamma=0.5, decision_function_shape=shape, tol=1e-9).fit(X, names)
    theirs = LibsvmNuSVC(nu=0.4, gamma=0.5, decision_function_shape=shape, tol=1e-10).fit(X, names)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.dual_coef_.shape[0] == 2 and ours.rho_.shape == (3,) == ours.equivalent_C_.shape
    assert ours.objective_ == pytest.approx(ours.objectives_.sum()) and len(ours.gaps_) == 3
    assert ours.certify(X, names) == pytest.approx(ours.gap_, abs=1e-9)
    again = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(again.decision_function(X), ours.decision_function(X))


@pytest.mark.parametrize("break_ties", [True, False])
def test_break_ties(break_ties):
    """Three classes that meet: some rows get one vote for each."""
    rng = np.random.default_rng(2)
    y = rng.integers(0, 3, 90)
    X = rng.normal(size=(90, 2)) + np.array([[0.0, 1.0], [1.0, -0.5], [-1.0, -0.5]])[y]
    grid = rng.uniform(-3.0, 3.0, (2000, 2))
    given = {"nu": 0.5, "gamma": 1.0, "break_ties": break_ties}
    ours = NuSVC(**given, tol=1e-9).fit(X, y)
    theirs = LibsvmNuSVC(**given, tol=1e-10).fit(X, y)
    np.testing.assert_array_equal(ours.predict(grid), theirs.predict(grid))
    largest = np.argmax(ours.decision_function(grid), axis=1)
    assert (ours.predict(grid) == largest).all() == break_ties


@pytest.mark.parametrize("estimator", [NuSVC(0.3, tol=1e-10), NuSVR(0.3, tol=1e-10)], ids=str)
def test_weights_are_repeated_rows(estimator):
    X, y = load("moons200")
    weight = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    rows = np.repeat(np.arange(len(y)), weight.astype(int))
    estimator.set_params(gamma=1.0)
    weighted = estimator.fit(X, y, sample_weight=weight)
    answer = getattr(weighted, "decision_function", weighted.predict)(X)
    C = getattr(weighted, "equivalent_C_", None)
    repeated = estimator.fit(X[rows], y[rows])
    found = getattr(repeated, "decision_function", repeated.predict)(X)
    np.testing.assert_allclose(answer, found, atol=1e-6)
    if C is not None:
        assert repeated.equivalent_C_ == pytest.approx(C, rel=1e-7)


@pytest.mark.parametrize("kind", ["csr", "float32", "precomputed", "callable", "fortran"])
@pytest.mark.parametrize("make", [NuSVC, NuSVR])
def test_the_same_rows_in_other_forms(kind, make):
    X, y = load("breast")
    base = make(0.3, kernel="linear", tol=1e-8).fit(X, y)

    def answer(model, X):
        return getattr(model, "decision_function", model.predict)(X)

    expected = answer(base, X)
    model, given = make(0.3, kernel="linear", tol=1e-8), X
    if kind == "csr":
        given = sparse.csr_array(X)
    elif kind == "float32":
        given = X.astype(np.float32)
    elif kind == "fortran":
        given = np.asfortranarray(X)
    elif kind == "precomputed":
        model, given = model.set_params(kernel="precomputed"), X @ X.T
    else:
        model = model.set_params(kernel=lambda A, B: A @ B.T)
    model.fit(given, y)
    atol = (1e-4 if kind != "float32" else 1e-3) * np.abs(expected).max()
    np.testing.assert_allclose(answer(model, given), expected, atol=atol)
    assert model.certify(given, y) <= 2e-8


def test_many_rows_start_from_a_sample_and_leave_out_content_rows(monkeypatch):
    """More than 4,000 rows: the same optimum, whatever the way there."""
    rng = np.random.default_rng(3)
    n = 5000
    y = np.where(rng.random(n) < 0.2, 1, -1)
    X = rng.standard_normal((n, 3)) + 0.8 * y[:, None]
    model = NuSVC(0.25, gamma=0.5, tol=1e-4).fit(X, y)
    theirs = LibsvmNuSVC(nu=0.25, gamma=0.5, tol=1e-6).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), theirs.decision_function(X), atol=0.05)
    monkeypatch.setattr("margrave.solvers.kernel.working_set._MANY_ROWS", 1000)
    active = NuSVC(0.25, gamma=0.5, tol=1e-4).fit(X, y)
    assert any("active" in told for told in active.history_)
    assert active.objective_ == pytest.approx(model.objective_, rel=2e-4)
    hard = HardMarginSVC(gamma=0.5, tol=1e-3).fit(X + 3.0 * y[:, None], y)
    assert hard.converged_ and (hard.predict(X + 3.0 * y[:, None]) == y).all()
    # regression has twice the rows
    target = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)
    nu = NuSVR(0.3, gamma=0.5, tol=1e-4).fit(X, target)
    assert nu.converged_ and nu.certify(X, target) <= 1.1e-4
    assert np.mean(np.abs(target - nu.predict(X)) > nu.epsilon_ + 1e-3) <= 0.3


def test_warm_start():
    X, y = load("breast")
    model = NuSVC(0.3, gamma=0.03, tol=1e-7, warm_start=True).fit(X, y)
    cold = model.n_iter_
    assert model.fit(X, y).n_iter_ <= 1 < cold
    model.set_params(nu=0.31).fit(X, y)
    fresh = NuSVC(0.31, gamma=0.03, tol=1e-7).fit(X, y)
    assert model.objective_ == pytest.approx(fresh.objective_, rel=1e-6)
    X, t = load("diabetes")
    tube = NuSVR(0.4, tol=1e-7, warm_start=True).fit(X, t)
    assert tube.fit(X, t).n_iter_ <= 1


def test_float32_rows_are_as_near_as_single_precision():
    X, y = load("breast")
    model = HardMarginSVC(kernel="poly", gamma=0.1, coef0=1.0, tol=1e-3).fit(X, y)
    exact = HardMarginSVC(kernel="poly", gamma=0.1, coef0=1.0, tol=1e-9).fit(X, y)
    assert exact.objective_ <= model.objective_ * (1 + 1e-9) <= exact.objective_ * 1.0011


# --- regression ----------------------------------------------------------------------------------


@each_kernel
@pytest.mark.parametrize(("nu", "C"), [(0.2, 1.0), (0.5, 10.0), (1.0, 0.1)])
def test_nusvr_is_libsvms(kernel, nu, C):
    X, y = load("diabetes")
    ours = NuSVR(nu, C, **kernel, tol=1e-9).fit(X, y)
    theirs = LibsvmNuSVR(nu=nu, C=C, **kernel, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-3)
    assert ours.certify(X, y) == pytest.approx(ours.gap_, abs=1e-9)
    beta = np.zeros(len(y))
    beta[ours.support_] = ours.dual_coef_[0]
    assert np.abs(beta).max() <= C * (1 + 1e-12) and abs(beta.sum()) <= 1e-9 * C * len(y)
    assert np.abs(beta).sum() <= C * nu * len(y) * (1 + 1e-9)


def test_the_tube_of_nusvr():
    """It is that of SVR with epsilon_, and leaves a share nu of the rows outside."""
    X, y = load("diabetes")
    nu = NuSVR(0.3, 2.0, gamma=0.1, tol=1e-10).fit(X, y)
    for model in (
        SVR(2.0, nu.epsilon_, gamma=0.1, tol=1e-9),
        LibsvmSVR(C=2.0, epsilon=nu.epsilon_, gamma=0.1, tol=1e-8),
    ):
        np.testing.assert_allclose(nu.predict(X), model.fit(X, y).predict(X), atol=1e-4)
    outside = np.abs(y - nu.predict(X)) > nu.epsilon_ + 1e-6
    assert outside.mean() <= 0.3 <= len(nu.support_) / len(y)


def test_nusvr_where_the_tube_closes():
    """With a price that hardly matters every row is met: the tube has no width."""
    X = np.linspace(0, 1, 12)[:, None]
    y = 3.0 * X[:, 0] + 1.0
    model = NuSVR(0.9, 1e3, kernel="linear", tol=1e-8).fit(X, y)
    assert model.epsilon_ <= 1e-4
    np.testing.assert_allclose(model.predict(X), y, atol=1e-3)
    flat = NuSVR().fit(X, np.full(12, 7.0))
    np.testing.assert_allclose(flat.predict(X), 7.0)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (NuSVC(0.0), "nu"),
        (NuSVC(1.1), "nu"),
        (NuSVC("a lot"), "nu"),
        (NuSVR(0.0), "nu"),
        (NuSVR(C=0.0), "C"),
        (NuSVC(0.3, solver="best"), "solver"),
        (HardMarginSVC(tol=0.0), "tol"),
    ],
    ids=str,
)
def test_wrong_parameters(model, message):
    X, y = load("moons200")
    with pytest.raises(ValueError, match=rf"'{message}' parameter"):
        model.fit(X, y)


def test_infeasible_nu_is_told_with_its_range():
    X, y = load("breast")  # 357 and 212 rows
    with pytest.raises(ValueError, match=r"infeasible: nu=0.8.*\(0, 0.745167\]"):
        NuSVC(0.8).fit(X, y)
    assert NuSVC(2 * 212 / 569, kernel="linear").fit(X, y).converged_
    weight = np.where(y > 0, 1.0, 0.1)
    with pytest.raises(ValueError, match=r"infeasible.*\(0, 0.112"):
        NuSVC(0.5).fit(X, y, sample_weight=weight)
    three = load_iris().target.copy()
    three[:45] = 1
    with pytest.raises(ValueError, match="infeasible"):
        NuSVC(0.5).fit(load_iris().data, three)


@pytest.mark.parametrize("model", [NuSVC(0.3), HardMarginSVC(), NuSVR()], ids=str)
def test_bad_rows(model):
    X, y = load("moons200")
    for bad in (np.nan, np.inf):
        wrong = X.copy()
        wrong[3, 1] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model.fit(wrong, y)
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(X, y[:-1])
    with pytest.raises(ValueError, match="0 sample"):
        model.fit(X[:0], y[:0])
    if isinstance(model, NuSVR):
        return
    with pytest.raises(ValueError, match="class"):
        model.fit(X, np.ones(len(y)))
    with pytest.raises(ValueError, match="class"):  # what weights leave
        model.fit(X, y, sample_weight=(y > 0).astype(float))
    with pytest.raises(ValueError, match="hulls overlap"):
        HardMarginSVC(kernel="linear").fit(np.zeros((4, 2)), [0, 0, 1, 1])


@pytest.mark.parametrize("name", ["class_weight", "cache_size", "probability"])
def test_foreign_arguments(name):
    with pytest.raises(TypeError, match=f"no argument '{name}'"):
        NuSVC(**{name: 1})


# --- Ctrl-C --------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("solver", ["pairs", "gilbert", "saddle"])
def test_first_interrupt_keeps_the_model(solver):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 40))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(3000) > 0, 1, -1)
    model = NuSVC(0.3, kernel="linear", solver=solver, tol=1e-15)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
            while timer.is_alive():  # a solver that was ready before
                pass
    finally:
        timer.join()
    assert np.isfinite(model.decision_function(X)).all() and np.isfinite(model.objective_)
