"""Linear models: weights instead of kernel values, by every solver that has them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC, LinearSVR

from margrave import SVC, SVR, KernelLogisticRegression, ODMClassifier, RowBlocks
from margrave.solvers import WorkingSet, resolve_solver
from margrave.solvers.whole import choose
from tests import build, cases, oracle
from tests.data import load
from tests.golden import RECORDS
from tests.test_properties import arrays, best, decisions

SOLVERS = ["cd", "newton", "auto"]
LINEAR = ("linear", {})
each_solver = pytest.mark.parametrize("solver", SOLVERS)
each_loss = pytest.mark.parametrize("loss", cases.ZERO_SUM, ids=cases.name_of)
each_intercept = pytest.mark.parametrize("intercept", cases.INTERCEPTS)


def run(problem, solver, **settings):
    return build.run(problem, solver=resolve_solver(solver), **settings)


def check(solution, problem, tol, rel=1e-9):
    """The certificate, computed anew from the attributes alone, up to a relative rounding."""
    X = problem.data.X
    X = X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    beta, w, b = solution.beta, solution.weights, solution.intercept
    f, v = X @ w, X.T @ beta
    np.testing.assert_allclose(solution.scores, f, atol=1e-9 * (1 + np.abs(f).max()))
    nothing, total = np.zeros(problem.n_rows), beta.sum()
    primal = 0.5 * w @ w + problem.terms(nothing, f, b)[0]
    dual = 0.5 * v @ v + problem.terms(beta, nothing, 0.0)[1]
    gap = 0.5 * (w - v) @ (w - v)
    gap += problem.loss.core().gap(problem.y, problem.C, beta, f + b).sum()
    if problem.intercept == "regularized":
        dual, gap = dual + 0.5 * total**2, gap + 0.5 * (b - total) ** 2
    scale = max(abs(primal), abs(dual))
    assert solution.objective == pytest.approx(primal, rel=rel)
    assert solution.dual == pytest.approx(dual, rel=rel)
    assert gap == pytest.approx(primal + dual, abs=rel * scale)
    assert solution.converged and gap <= 1.01 * tol * scale
    low, high = problem.loss.core().box(problem.y, problem.C)
    assert np.all(beta >= low - 1e-290) and np.all(beta <= high + 1e-290)
    if problem.intercept == "free":
        assert abs(beta.sum()) <= 1e-12 * np.abs(beta).sum()


# --- the optimum ---------------------------------------------------------------------------------


@each_solver
@each_loss
@each_intercept
def test_optimum(solver, loss, intercept):
    X, y, C, _ = arrays(loss, LINEAR)
    problem = build.problem(X, y, C, loss, LINEAR, intercept)
    solution, progress = run(problem, solver, tol=1e-9)
    check(solution, problem, 1e-9)
    expected = best(loss, LINEAR, intercept)
    assert abs(solution.objective - expected.primal) <= 1e-8 * abs(expected.primal)
    np.testing.assert_allclose(X.T @ solution.beta, solution.weights, atol=1e-9)
    if solver == "cd" and intercept != "free":
        duals = [record["dual"] for record in progress.history]
        assert np.all(np.diff(duals) <= 1e-10 * abs(duals[-1]))
    objectives = [record["objective"] for record in progress.history]
    if solver == "newton":  # it tells of its best
        assert np.all(np.diff(objectives) <= 1e-9 * abs(objectives[-1]))


@each_solver
@pytest.mark.parametrize(
    "record", [r for r in RECORDS if r.kernel == "linear"], ids=lambda r: r.name
)
def test_goldens(solver, record):
    problem = build.problem(*record.problem())
    found, _ = run(problem, solver, tol=1e-10)
    check(found, problem, 1e-10)
    assert found.objective == pytest.approx(record.objective, rel=1e-8)
    np.testing.assert_allclose(decisions(found)[list(record.rows)], record.decisions, atol=1e-4)


@each_solver
@each_loss
@each_intercept
def test_equals_the_kernel_path(solver, loss, intercept):
    name = "diabetes" if not oracle.LOSSES[loss[0]].labels else "bc"
    X, y = load(name)
    problem = build.problem(X, y, 0.5, loss, LINEAR, intercept)
    kernel, _ = build.run(problem, tol=1e-6, solver=WorkingSet())
    linear, _ = run(problem, solver, tol=1e-6)
    check(linear, problem, 1e-6)
    assert linear.objective == pytest.approx(kernel.objective, rel=2e-6)


# --- LIBLINEAR -----------------------------------------------------------------------------------


@each_solver
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_linear_svc(solver, loss):
    X, y = load("bc")
    ours = SVC(0.3, kernel="linear", loss=loss, intercept="regularized", tol=1e-8, solver=solver)
    theirs = LinearSVC(C=0.3, loss=loss, tol=1e-10, max_iter=10**6, dual=True)
    ours.fit(X, y)
    theirs.fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    assert (ours.predict(X) == theirs.predict(X)).all()


@each_solver
def test_logistic_regression(solver):
    X, y = load("bc")
    ours = KernelLogisticRegression(0.5, kernel="linear", tol=1e-9, solver=solver).fit(X, y)
    theirs = LogisticRegression(C=0.5, tol=1e-10, solver="newton-cholesky").fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)


@each_solver
def test_linear_svr(solver):
    X, y = load("diabetes")
    ours = SVR(1.0, 0.1, kernel="linear", intercept="regularized", tol=1e-8, solver=solver)
    theirs = LinearSVR(C=1.0, epsilon=0.1, tol=1e-10, max_iter=10**6, random_state=0)
    ours.fit(X, y)
    theirs.fit(X, y)
    np.testing.assert_allclose(ours.coef_[0], theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-3)


# --- properties ----------------------------------------------------------------------------------

SOME = [
    ("hinge", {}),
    ("logistic", {}),
    ("margin_distribution", {"theta": 0.1, "upsilon": 0.5}),
]
some_losses = pytest.mark.parametrize("loss", SOME, ids=cases.name_of)


@each_solver
@some_losses
@each_intercept
def test_order_labels_and_repeated_rows(solver, loss, intercept):
    X, y, C, _ = arrays(loss, LINEAR)

    def solve(X, y, C):
        return run(build.problem(X, y, C, loss, LINEAR, intercept), solver, tol=1e-9)[0]

    plain = solve(X, y, C)
    order = np.random.default_rng(1).permutation(len(y))
    mixed, flipped = solve(X[order], y[order], C[order]), solve(X, -y, C)
    twice = solve(np.repeat(X, 2, axis=0), np.repeat(y, 2), np.repeat(C, 2) / 2)
    for other, sign in ((mixed, 1), (flipped, -1), (twice, 1)):
        assert other.objective == pytest.approx(plain.objective, rel=1e-7)
        np.testing.assert_allclose(other.weights, sign * plain.weights, atol=2e-4)


@each_solver
@some_losses
@each_intercept
def test_warm_start_from_the_optimum_does_nothing(solver, loss, intercept):
    X, y, C, _ = arrays(loss, LINEAR)
    problem = build.problem(X, y, C, loss, LINEAR, intercept)
    first, _ = run(problem, solver, tol=1e-9)
    again, _ = run(problem, solver, tol=1e-8, start=first.beta)
    assert again.n_iter == 0 and again.converged
    np.testing.assert_allclose(again.beta, first.beta, rtol=1e-12, atol=1e-12)


@each_solver
@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_layouts(solver, layout, dtype):
    """Sparse equals dense, float32 equals float64, strided equals contiguous."""
    X, y = load("bc")
    X = np.where(np.abs(X) < 0.3, 0.0, X).astype(np.float32)
    reference, _ = run(
        build.problem(X.astype(float), y, 0.1, ("hinge", {}), LINEAR, "free"), solver
    )
    laid = cases.LAYOUTS[layout](X.astype(dtype))
    found, _ = run(build.problem(laid, y, 0.1, ("hinge", {}), LINEAR, "free"), solver)
    assert found.objective == pytest.approx(reference.objective, rel=1e-9)
    np.testing.assert_allclose(found.weights, reference.weights, atol=1e-4)


SHAPES = {
    "duplicated columns": lambda X: np.hstack([X, X]),
    "constant column": lambda X: np.hstack([X, np.full((len(X), 1), 3.0)]),
    "column of zeros": lambda X: np.hstack([X, np.zeros((len(X), 1))]),
    "collinear columns": lambda X: np.hstack([X, X[:, :1] - 2 * X[:, 1:2]]),
    "one column": lambda X: X[:, :1],
    "nothing but zeros": lambda X: np.zeros((len(X), 2)),
    "rows of zeros": lambda X: X * (np.arange(len(X)) % 2)[:, None],
    "more columns than rows": lambda X: np.random.default_rng(2).standard_normal((len(X), 100)),
    "duplicated rows": lambda X: np.repeat(X[: len(X) // 2], 2, axis=0),
    "huge": lambda X: 1e6 * X,
    "tiny": lambda X: 1e-6 * X,
}


@each_solver
@pytest.mark.parametrize("shape", SHAPES)
@some_losses
@each_intercept
def test_shapes(solver, shape, loss, intercept):
    if shape == "huge" and solver == "cd":
        pytest.skip("coordinate descent needs very many passes for that")
    X, y, C, _ = arrays(loss, LINEAR)
    X = SHAPES[shape](X)
    problem = build.problem(X, y, C, loss, LINEAR, intercept)
    tol = 1e-4 if shape == "huge" else 1e-6
    solution, _ = run(problem, solver, tol=tol, time_limit=20.0)
    check(solution, problem, tol)


@each_solver
@pytest.mark.parametrize(
    "loss",
    [case for case in cases.ZERO_SUM if not oracle.LOSSES[case[0]].labels],
    ids=cases.name_of,
)
@each_intercept
def test_constant_targets(solver, loss, intercept):
    X = np.random.default_rng(8).standard_normal((30, 3))
    for value in (0.0, 5.0, -1e-3):
        problem = build.problem(X, np.full(30, value), 1.0, loss, LINEAR, intercept)
        solution, _ = run(problem, solver, tol=1e-6)
        assert solution.converged
        if intercept == "free":
            width = loss[1].get("epsilon", 0.0)
            np.testing.assert_allclose(decisions(solution), value, atol=width + 1e-3)


@pytest.mark.parametrize("C", [1e-6, 1e3, 1e6])
@some_losses
@each_intercept
def test_prices(C, loss, intercept):
    for name in ("iris", "bc"):  # separable, and nearly so
        X, y = load(name)
        problem = build.problem(X, y, C, loss, LINEAR, intercept)
        solution, _ = run(problem, "auto", tol=1e-4)
        check(solution, problem, 1e-4, rel=1e-6)


@pytest.mark.parametrize("solver", ["newton", "auto"])
@each_intercept
def test_a_small_optimum_of_a_high_price_is_not_taken_for_zero(solver, intercept):
    """Separable rows: the optimum is a hundred-millionth of what zero weights pay."""
    X, y = load("iris")
    problem = build.problem(X, y, 1e6, ("hinge", {}), LINEAR, intercept)
    solution, _ = run(problem, solver, tol=1e-7)
    exact = build.problem(X, y, 1.0, ("hinge", {}), LINEAR, intercept)  # the same hard margin
    expected, _ = build.run(exact, tol=1e-10, solver=WorkingSet())
    assert solution.gap > 0.0
    assert solution.objective == pytest.approx(expected.objective, rel=1e-5)


@each_solver
@pytest.mark.parametrize("rows", [1, 2, 3])
@each_loss
def test_few_rows(solver, rows, loss):
    X, y, C, _ = arrays(loss, LINEAR)
    problem = build.problem(X[:rows], y[:rows], C[:rows], loss, LINEAR, "regularized")
    solution, _ = run(problem, solver, tol=1e-9)
    check(solution, problem, 1e-9)


@each_solver
def test_many_features(solver):
    """More than Cholesky is for: conjugate gradients, or coordinate descent."""
    rng = np.random.default_rng(3)
    X = sparse.random_array((150, 3000), density=0.02, rng=rng, format="csr")
    y = np.sign(X @ rng.standard_normal(3000))
    for loss in SOME:
        for intercept in cases.INTERCEPTS:
            problem = build.problem(X, y, 1.0, loss, LINEAR, intercept)
            solution, _ = run(problem, solver, tol=1e-5)
            check(solution, problem, 1e-5)


def test_solvers_agree_on_a_sampled_problem():
    """Enough rows for a start from a sample of them."""
    X, y = make_classification(30_000, 12, n_informative=6, flip_y=0.1, random_state=0)
    objectives = []
    for solver in SOLVERS:
        model = SVC(0.01, kernel="linear", solver=solver).fit(X, y)
        assert model.converged_ and model.certify(X, y) <= 1e-3
        objectives.append(model.objective_)
    assert max(objectives) <= min(objectives) * (1 + 1e-3)


# --- several classes -----------------------------------------------------------------------------


@each_solver
@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_several_classes(solver, scheme):
    X, y = make_classification(300, 8, n_informative=5, n_classes=4, random_state=1)
    model = SVC(0.3, kernel="linear", multi_class=scheme, solver=solver, tol=1e-7).fit(X, y)
    reference = SVC(0.3, kernel="linear", multi_class=scheme, solver="exact", tol=1e-7).fit(X, y)
    np.testing.assert_allclose(model.objectives_, reference.objectives_, rtol=1e-6)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=2e-3)
    assert model.coef_.shape == (6 if scheme == "ovo" else 4, 8)
    assert (model.predict(X) == reference.predict(X)).mean() > 0.99
    assert model.certify(X, y) <= 1.01e-7


def test_one_vs_rest_shares_passes():
    X, y = make_classification(500, 8, n_informative=5, n_classes=4, random_state=1)
    together = SVC(1.0, kernel="linear", multi_class="ovr", solver="newton").fit(X, y)
    alone = [
        SVC(1.0, kernel="linear", solver="newton").fit(X, y == c).history_[-1]["passes"]
        for c in range(4)
    ]
    # the slowest problem sets the number of passes, not their sum
    assert max(r["passes"] for r in together.history_) <= max(alone) + 1 < sum(alone) / 2


# --- the choice ----------------------------------------------------------------------------------


def test_choice():
    rng = np.random.default_rng(0)
    dense, wide = rng.standard_normal((300, 10)), rng.standard_normal((50, 3000))
    thin = sparse.random_array((300, 100), density=0.05, rng=rng, format="csr")
    text = sparse.random_array((300, 5000), density=0.01, rng=rng, format="csr")
    hinge, logistic = ("hinge", {}), ("logistic", {})
    expected = [
        (dense, hinge, "newton"),
        (thin, hinge, "cd"),
        (thin, logistic, "newton"),
        (text, hinge, "cd"),
        (wide, hinge, "exact"),
        (RowBlocks([dense]), hinge, "newton"),
    ]
    for X, loss, solver in expected:
        y = np.where(np.arange(X.shape[0]) % 2, 1.0, -1.0)
        problem = build.problem(X, y, 1.0, loss, LINEAR, "free")
        assert choose(problem) == solver
        solution, _ = run(problem, "auto", tol=1e-3)
        assert solution.converged and solution.solver.startswith(solver)
    assert SVC().fit(dense, dense[:, 0] > 0).solver_ == "exact"


@pytest.mark.parametrize("features", [100, 3000])
def test_hand_over_when_the_descent_stalls(features):
    """Long rows, nearly equal, of different classes: coordinate descent creeps."""
    rng = np.random.default_rng(5)
    X = sparse.random_array((300, features), density=0.03, rng=rng, format="lil")
    y = np.where(rng.random(300) < 0.5, 1.0, -1.0)
    for pair in range(0, 20, 2):
        X[pair] = X[pair + 1] = 30.0 * (rng.random(features) < 0.1)
        X[pair, 0] = X[pair + 1, 0] + 0.01
        y[pair], y[pair + 1] = 1.0, -1.0
    helper = "newton" if features == 100 else "exact"
    problem = build.problem(X.tocsr(), y, 10.0, ("hinge", {}), LINEAR, "regularized")
    solution, _ = run(problem, "auto", tol=1e-3)  # no further than `tol`
    assert solution.solver.split(", ")[:2] == ["cd", helper] and solution.converged
    model = SVC(10.0, kernel="linear", intercept="regularized").fit(X.tocsr(), y)
    assert model.solver_.split(", ")[:2] == ["cd", helper] and model.converged_
    assert model.certify(X.tocsr(), y) <= 1e-3


# --- budgets -------------------------------------------------------------------------------------


@each_solver
@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_budgets(solver, multi_class):
    X, y = make_classification(400, 20, n_informative=10, n_classes=3, random_state=1)
    model = SVC(100.0, kernel="linear", tol=1e-9, solver=solver, multi_class=multi_class)
    with pytest.warns(UserWarning, match="max_iter=1"):
        model.set_params(max_iter=1).fit(X, y)
    assert not model.converged_ and np.isfinite(model.gap_) and np.all(model.n_iter_ <= 3)
    assert model.certify(X, y) == pytest.approx(model.gap_, rel=1e-6)
    with pytest.warns(UserWarning, match="time_limit"):
        model.set_params(max_iter=-1, time_limit=1e-9).fit(X, y)
    assert not model.converged_ and model.gap_ <= 1.0
    seen = []
    with pytest.warns(UserWarning, match="callback"):
        model.set_params(time_limit=None, callbacks=lambda r: seen.append(r) or len(seen) > 1)
        model.fit(X, y)
    assert 2 <= len(seen) <= 9 and {"objective", "gap", "passes"} <= set(seen[0])


def test_time_limit_with_short_passes():
    """A pass over few rows is over before anyone looks at the clock."""
    X, y = load("iris")
    problem = build.problem(
        X[:20], y[:20] * (-1.0) ** np.arange(20), 1e6, ("hinge", {}), LINEAR, None
    )
    _, progress = run(problem, "cd", tol=1e-13, time_limit=0.3)
    assert progress.seconds < 5.0


# --- attributes ----------------------------------------------------------------------------------


@each_solver
def test_attributes(solver):
    X, y = load("bc")
    model = SVC(kernel="linear", solver=solver, tol=1e-8).fit(X, y)
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    np.testing.assert_allclose(model.coef_, model.dual_coef_ @ model.support_vectors_, atol=1e-8)
    np.testing.assert_allclose(
        model.decision_function(X), X @ model.coef_[0] + model.intercept_[0], atol=1e-9
    )
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(again.support_vectors_, model.support_vectors_)
    assert again.certify(X, y) == model.certify(X, y)
    model.set_params(kernel="rbf", solver="auto").fit(
        X, y
    )  # leaves nothing of the linear model behind
    assert not hasattr(model, "coef_") and len(model.support_vectors_) == len(model.support_)


def test_warm_start_of_an_estimator():
    X, y = load("bc")
    for Model in (SVC, KernelLogisticRegression, ODMClassifier):
        model = Model(kernel="linear", tol=1e-9, warm_start=True).fit(X, y)
        assert model.set_params(tol=1e-8).fit(X, y).n_iter_ == 0
