"""Several classes in one problem: Crammer-Singer and the softmax."""

import json

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn import datasets
from sklearn.linear_model import LogisticRegression

from margrave import SVC, KernelLogisticRegression
from margrave.kernels import Kernel
from margrave.losses import JOINT_LOSSES
from margrave.problem import Data, JointProblem
from margrave.solvers.kernel.joint import best_biases
from tests import oracle
from tests.data import GOLDEN, load, standardized

RECORDS = json.loads((GOLDEN / "crammer_singer.json").read_text())
INTERCEPTS = [None, "regularized", "free"]


def iris3():
    d = datasets.load_iris()
    return standardized(d.data), d.target


def make(loss, **parameters):
    if loss == "softmax":
        return KernelLogisticRegression(multi_class="softmax", **parameters)
    return SVC(multi_class="crammer_singer", **parameters)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: f"{r['kern']}-{r['lam']}")
def test_goldens(record):
    """J = lam/2 |W|^2 + 2 sum max s, so P = J / lam with C = 2 / lam."""
    X, y = iris3()
    is_linear = record["kern"].startswith("lin")
    model = SVC(
        C=2.0 / record["lam"],
        kernel="linear" if is_linear else "rbf",
        gamma=0.25,
        intercept="regularized" if is_linear else None,
        multi_class="crammer_singer",
        tol=1e-9,
    ).fit(X, y)
    assert model.converged_
    assert abs(model.objective_ * record["lam"] - record["J"]) <= 1e-8 * record["J"]
    f = model.decision_function(X[record["rows"]])
    np.testing.assert_allclose(f, record["f"], atol=1e-3)


def test_the_counterexample():
    """One row x = 1 of class 0 and two more classes: block descent sticks at 1.8, here is 1.7."""
    from margrave.kernels import Kernel
    from margrave.problem import Data, JointProblem
    from tests import build

    data = Data(np.ones((1, 1)), Kernel("linear"), np.array([0, 1]))
    problem = JointProblem(data, np.array([0]), 3, np.array([0.2]), "crammer_singer", None)
    solution, _ = build.run(problem, tol=1e-12)
    assert abs(10.0 * solution.objective - 1.7) < 1e-10
    np.testing.assert_allclose(solution.beta, [[0.2, -0.1, -0.1]], atol=1e-9)


@pytest.mark.parametrize("loss", JOINT_LOSSES)
@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_objective_against_a_general_optimiser(loss, intercept):
    """A smooth problem for BFGS; Crammer-Singer as a linear-constrained problem for SLSQP."""
    rng = np.random.default_rng(5)
    n, k = 24, 3
    X, y = rng.standard_normal((n, 2)), rng.integers(k, size=n)
    K = oracle.rbf(X, X, gamma=0.7)
    R = np.linalg.cholesky(K + 1e-12 * np.eye(n))  # f = R v, |w|^2 = |v|^2
    C = 1.5

    def primal(v):
        V, b = v[: n * k].reshape(n, k), v[n * k : n * k + k]
        f = R @ V + (b if intercept else 0.0)
        own = 0.5 * (V**2).sum() + (0.5 * b @ b if intercept == "regularized" else 0.0)
        return own, f

    model = make(loss, C=C, gamma=0.7, intercept=intercept, tol=1e-8).fit(X, y)
    assert model.converged_
    if loss == "softmax":

        def objective(v):
            own, f = primal(v)
            return own + C * JOINT_LOSSES[loss].value(f, y).sum()

        found = optimize.minimize(objective, np.zeros(n * k + k), method="BFGS", tol=1e-8).fun
    else:  # slack variables: xi_i >= [c != y] + f_c - f_y

        def objective(v):
            return primal(v)[0] + C * v[n * k + k :].sum()

        def room(v):
            f = primal(v)[1]
            needed = f - f[np.arange(n), y][:, None] + 1.0
            needed[np.arange(n), y] = 0.0
            return (v[n * k + k :, None] - needed).ravel()

        start = np.r_[np.zeros(n * k + k), np.ones(n)]
        found = optimize.minimize(
            objective,
            start,
            method="SLSQP",
            constraints={"type": "ineq", "fun": room},
            options={"maxiter": 500, "ftol": 1e-12},
        ).fun
    assert abs(model.objective_ - found) <= 1e-5 * found


@pytest.mark.parametrize("loss", JOINT_LOSSES)
@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_properties(loss, intercept):
    X, y = iris3()
    settings = {"C": 2.0, "gamma": 0.25, "intercept": intercept, "tol": 1e-7}
    model = make(loss, **settings).fit(X, y)
    assert model.certify(X, y) <= 1.5e-7
    f = model.decision_function(X)
    assert f.shape == (150, 3)
    np.testing.assert_array_equal(model.predict(X), model.classes_[f.argmax(axis=1)])
    if intercept == "free":
        dual = np.asarray(model.dual_coef_)
        np.testing.assert_allclose(dual.sum(axis=1), 0.0, atol=1e-10 * np.abs(dual).sum())
    np.testing.assert_allclose(np.asarray(model.dual_coef_).sum(axis=0), 0.0, atol=1e-9)

    order = np.random.default_rng(0).permutation(150)
    permuted = make(loss, **settings).fit(X[order], y[order])
    assert abs(permuted.objective_ - model.objective_) <= 1e-6 * model.objective_
    np.testing.assert_allclose(permuted.decision_function(X), f, atol=2e-2)

    renamed = make(loss, **settings).fit(X, np.array(["c", "b", "a"])[y])  # the classes reversed
    np.testing.assert_allclose(renamed.decision_function(X)[:, ::-1], f, atol=2e-2)

    weight = np.random.default_rng(1).integers(0, 3, size=150)
    settings["tol"] = 1e-9
    weighted = make(loss, **settings).fit(X, y, sample_weight=weight)
    repeated = make(loss, **settings).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert abs(weighted.objective_ - repeated.objective_) <= 1e-8 * repeated.objective_
    np.testing.assert_allclose(
        weighted.decision_function(X), repeated.decision_function(X), atol=5e-3
    )


@pytest.mark.parametrize("loss", JOINT_LOSSES)
def test_input_forms_agree(loss):
    X, y = iris3()
    X = np.where(X > 0, X, 0.0)
    dense = make(loss, tol=1e-7, intercept=None).fit(X, y)
    for form in (sparse.csr_array(X), X.astype(np.float32), np.asfortranarray(X)):
        other = make(loss, tol=1e-7, intercept=None).fit(form, y)
        assert abs(other.objective_ - dense.objective_) <= 1e-5 * dense.objective_
    gram = oracle.rbf(X, X, gamma=dense._kernel.gamma)
    other = make(loss, tol=1e-7, intercept=None, kernel="precomputed").fit(gram, y)
    assert abs(other.objective_ - dense.objective_) <= 1e-6 * dense.objective_
    np.testing.assert_allclose(other.decision_function(gram), dense.decision_function(X), atol=2e-2)


def test_two_classes():
    X, y = load("moons200")
    model = SVC(multi_class="crammer_singer", C=1.0, gamma=1.0, tol=1e-8).fit(X, y)
    # |w_1|^2 + |w_2|^2 with w_2 = -w_1 is half of |w_1 - w_2|^2: an SVC with twice the penalty
    half = SVC(C=2.0, gamma=1.0, tol=1e-8).fit(X, y)
    assert model.decision_function(X).shape == (200,)
    np.testing.assert_allclose(model.decision_function(X), half.decision_function(X), atol=1e-2)
    assert abs(2 * model.objective_ - half.objective_) <= 1e-6 * half.objective_


def test_softmax_is_scikit_learns_multinomial():
    X, y = iris3()
    model = KernelLogisticRegression(C=2.0, kernel="linear", multi_class="softmax", tol=1e-9).fit(
        X, y
    )
    reference = LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), atol=2e-4)


@pytest.mark.parametrize("loss", JOINT_LOSSES)
@pytest.mark.parametrize("C", [1e-6, 1e-3])
def test_little_weight_on_the_rows(loss, C):
    """Free intercepts are found even where they are nearly all that the model consists of."""
    X, y = iris3()
    model = make(loss, C=C, gamma=0.25).fit(X[20:], y[20:])
    assert model.converged_ and model.certify(X[20:], y[20:]) <= 1e-3


def test_warm_start_and_budgets():
    X, y = iris3()
    for loss in JOINT_LOSSES:
        model = make(loss, warm_start=True, intercept=None).fit(X, y)
        first = model.objective_
        model.fit(X, y)
        assert model.n_iter_ == 0 and abs(model.objective_ - first) < 1e-6 * first
        for intercept in INTERCEPTS:
            short = make(loss, max_iter=1, tol=1e-9, intercept=intercept)
            with pytest.warns(UserWarning, match="max_iter=1"):
                short.fit(X, y)
            assert 0 < short.gap_ < np.inf


@pytest.mark.parametrize("loss", JOINT_LOSSES)
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_warm_start_finds_its_free_intercepts(loss, tol, kernel):
    rng = np.random.default_rng(26)
    X, y = rng.normal(size=(180, 2)), rng.integers(0, 3, 180)
    model = make(loss, kernel=kernel, gamma=7.0, C=3.0, tol=tol, warm_start=True).fit(X, y)
    gap, b = model.gap_, model.intercept_
    assert model.fit(X, y).n_iter_ == 0
    assert model.set_params(max_iter=0).fit(X, y).gap_ <= 1.1 * gap
    np.testing.assert_allclose(model.intercept_, b, atol=20 * tol**0.5)


@pytest.mark.parametrize("loss", JOINT_LOSSES)
@pytest.mark.parametrize("spread", [0.0, 1e-6, 1.0, 1e6])
def test_best_biases(loss, spread):
    """No biases nearby are better, and without time those of zero are returned."""
    rng = np.random.default_rng(0)
    y, C = rng.integers(0, 4, 90), rng.uniform(0.5, 2.0, 90)
    f = spread * (rng.normal(size=(90, 4)) + rng.normal(size=4))
    f[np.arange(90), y] += spread
    problem = JointProblem(Data(f, Kernel("linear"), np.array([0, 90])), y, 4, C, loss, "free")
    b = best_biases(problem, f, 1e-7, 1e9)

    def value(b):
        return C @ JOINT_LOSSES[loss].value(f + b, y)

    assert abs(b.sum()) < 1e-9 * (1.0 + spread)
    for scale in (1e-6, 1e-3, 1.0, 1e3, 1e6):
        for _ in range(20):
            assert value(b) <= value(b + scale * rng.normal(size=4)) * (1.0 + 1e-7)
    np.testing.assert_array_equal(best_biases(problem, f, 1e-7, 0.0), np.zeros(4))


def test_refusals():
    X, y = iris3()
    with pytest.raises(ValueError, match=r"crammer_singer.*needs loss='hinge'"):
        SVC(multi_class="crammer_singer", loss="squared_hinge").fit(X, y)
    with pytest.raises(ValueError, match="decision_function_shape='ovo' needs multi_class='ovo'"):
        SVC(multi_class="crammer_singer", decision_function_shape="ovo").fit(X, y)


def test_variables_that_do_not_sum_to_zero_are_certified_at_a_feasible_point():
    """Tiny features: the solver leaves a row's variables with a sum of 2e-6 C.

    The certificate is that of a feasible point nearby.
    """
    from tests.exact_gap import exact_gaps
    from tests.fuzz_certificates import Recipe, is_covered

    recipe = Recipe(
        seed=8981,
        loss="hinge",
        intercept=None,
        multi_class="crammer_singer",
        n=10,
        d=2,
        classes=3,
        scale=1e-10,
        spread=58705949.624194935,
        C=93.58775486239088,
    )
    X, y, weight = recipe.data()
    model = recipe.fit()
    (true,) = exact_gaps(model, X, y, weight)
    assert is_covered(true.gap, model.gap_)
    assert is_covered(true.gap, model.certify(X, y))
