"""Every solver in the list, on every problem that it takes: the optimum, or a clear refusal."""

import numpy as np
import pytest

from margrave import SVC, KernelLogisticRegression, ODMClassifier
from margrave.losses import SMOOTH_LOSSES
from margrave.solvers import SOLVERS, Newton, resolve_solver
from tests import build, cases, oracle
from tests.data import load
from tests.golden import RECORDS
from tests.test_properties import arrays, best

each_solver = pytest.mark.parametrize("name", SOLVERS)
each_kernel_solver = pytest.mark.parametrize(
    "name", ["exact", "newton", "cd", "dc", "cascade", "sodm", "dip"]
)
KERNEL = ("rbf", {"gamma": 0.5})


STOCHASTIC = ("svrg", "csvrg", "dsvrg")  # for the linear kernel: test_variance_reduced.py


EVERYTHING = ("exact", "dc", "cascade", "pbm", "sodm", "dip")  # take every loss and intercept


HULLS = ("pairs", "gilbert", "saddle")  # distances of hulls: test_hull.py


def takes(name, loss, intercept):
    if name in EVERYTHING:
        return True
    if name in (*STOCHASTIC, *HULLS, "gibbs"):
        return False
    if name == "em":
        return loss[0] in ("hinge", "epsilon_insensitive")
    return intercept != "free" and (name != "newton" or loss[0] in SMOOTH_LOSSES)


@each_solver
@pytest.mark.parametrize("loss", cases.ZERO_SUM, ids=cases.name_of)
@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
def test_optimum_or_refusal(name, loss, intercept):
    X, y, C, K = arrays(loss, KERNEL)
    problem = build.problem(X, y, C, loss, KERNEL, intercept)
    solver = resolve_solver(name)
    if not takes(name, loss, intercept):
        with pytest.raises(ValueError, match=rf"solver '{name}' cannot .*'exact'.* with every"):
            build.run(problem, solver=solver)
        return
    solution, progress = build.run(problem, tol=1e-9, solver=solver)
    expected = best(loss, KERNEL, intercept)
    assert solution.converged and solution.solver == name
    assert abs(solution.objective - expected.primal) <= 1e-8 * abs(expected.primal)
    f = K @ solution.beta
    np.testing.assert_allclose(solution.scores, f, atol=1e-9 * (1 + np.abs(f).max()))
    naive = cases.oracle_loss(loss)
    low, high = naive.box(y, C)
    assert np.all(solution.beta >= low - 1e-12) and np.all(solution.beta <= high + 1e-12)
    # parts have a problem of their own
    duals = [record["dual"] for record in progress.history if "parts" not in record]
    if name not in ("newton", "em"):  # which go down in the primal, or by the gap
        assert np.all(np.diff(duals) <= 1e-10 * abs(duals[-1]))


@each_kernel_solver
def test_warm_start_from_the_optimum_does_nothing(name):
    loss = ("margin_distribution", {"theta": 0.1, "upsilon": 0.5})
    X, y, C, _ = arrays(loss, KERNEL)
    problem = build.problem(X, y, C, loss, KERNEL, None)
    solution, _ = build.run(problem, tol=1e-9, solver=resolve_solver(name))
    again, _ = build.run(problem, tol=1e-8, solver=resolve_solver(name), start=solution.beta)
    assert again.n_iter == 0
    np.testing.assert_array_equal(again.beta, solution.beta)


@each_kernel_solver
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_tiny_problems(name, rows):
    X, y, C, _ = arrays(("squared_hinge", {}), KERNEL)
    problem = build.problem(X[:rows], y[:rows], C[:rows], ("squared_hinge", {}), KERNEL, None)
    solution, _ = build.run(problem, tol=1e-9, solver=resolve_solver(name))
    assert solution.converged


@each_kernel_solver
@pytest.mark.parametrize(
    "record",
    [r for r in RECORDS if r.loss == "margin_distribution" and r.intercept is None],
    ids=lambda r: r.name,
)
def test_margin_distribution_goldens(name, record):
    X, y = record.arrays()
    problem = build.problem(*record.problem())
    solution, _ = build.run(problem, tol=1e-9, solver=resolve_solver(name))
    assert solution.converged
    assert abs(solution.objective - record.objective) <= 1e-8 * record.objective
    # the norm's bound on scores: |f - f*|^2 <= gap k(x, x)
    gap = solution.objective + solution.dual
    rows = list(record.rows)
    kernel = cases.oracle_kernel(record.kernel_case)
    radius = np.sqrt(max(gap, 1e-20) * np.array([kernel(X[[i]], X[[i]])[0, 0] for i in rows]))
    assert np.all(np.abs(solution.scores[rows] - record.decisions) <= radius + 1e-7)
    gamma = y * solution.beta
    identity = (gamma.sum() - record.loss_parameters["theta"] * np.abs(gamma).sum()) / 2
    assert abs(identity - record.objective) <= 1e-5 * record.objective


@each_kernel_solver
def test_stops_within_budgets(name):
    X, y = load("breast")
    model = ODMClassifier(lam=1e4, tol=1e-9, solver=name, max_iter=1)
    with pytest.warns(UserWarning, match="max_iter=1"):
        model.fit(X, y)
    assert not model.converged_ and np.isfinite(model.gap_) and model.n_iter_ <= 1
    model = ODMClassifier(lam=1e6, tol=1e-12, solver=name, time_limit=1e-9)
    with pytest.warns(UserWarning, match="time_limit"):
        model.fit(X, y)
    assert not model.converged_


@each_kernel_solver
def test_same_model_from_every_solver(name):
    X, y = load("breast")
    reference = ODMClassifier(lam=16.0, gamma=0.02, tol=1e-9).fit(X, y).decision_function(X)
    model = ODMClassifier(lam=16.0, gamma=0.02, tol=1e-9, solver=name).fit(X, y)
    assert model.solver_ == name
    np.testing.assert_allclose(model.decision_function(X), reference, atol=1e-4)
    assert model.certify(X, y) <= 2e-9


def test_solvers_refuse_joint_problems():
    X, y = load("iris")
    y = np.r_[np.zeros(50), np.ones(50), np.full(50, 2.0)]
    for name in set(SOLVERS) - {"exact", "dc", "pbm", "sodm", "em", "gibbs"}:
        model = SVC(multi_class="crammer_singer", solver=name, intercept=None)
        with pytest.raises(ValueError, match=rf"{name}.*joint problem"):
            model.fit(X, y)
    with pytest.raises(ValueError, match=r"em.*joint problem"):
        KernelLogisticRegression(multi_class="softmax", solver="em").fit(X, y)


def test_newton_of_any_rank():
    X, y = load("moons200")
    reference = KernelLogisticRegression(tol=1e-9, intercept=None, gamma=1.0).fit(X, y)
    for rank in (0, 5, 500):
        model = KernelLogisticRegression(
            tol=1e-9, intercept=None, gamma=1.0, solver=Newton(rank=rank)
        )
        model.fit(X, y)
        assert abs(model.objective_ - reference.objective_) <= 1e-8 * reference.objective_
    with pytest.raises(ValueError, match="rank"):
        KernelLogisticRegression(intercept=None, solver=Newton(rank=-1)).fit(X, y)


def test_newton_preconditioner_is_the_greedy_determinant():
    """Pivots of the partial Cholesky factor maximise the determinant one after the other."""
    from margrave.solvers.kernel.newton import _NewtonPoint

    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 3))
    problem = build.problem(X, np.ones(30), 1.0, ("logistic", {}), KERNEL, None)
    rows = problem.data.kernel_rows("float64", 1 << 20, 1 << 20, 1, cache=False)
    point = _NewtonPoint(problem, rows, None, 6)
    L = point._pivoted_cholesky()
    K = oracle.rbf(X, X, gamma=0.5)
    chosen = []
    for _ in range(6):
        volume = [
            0.0 if j in chosen else np.linalg.det(K[np.ix_([*chosen, j], [*chosen, j])])
            for j in range(30)
        ]
        chosen.append(int(np.argmax(volume)))
    Kc = K[:, chosen]
    np.testing.assert_allclose(L @ L.T, Kc @ np.linalg.solve(K[np.ix_(chosen, chosen)], Kc.T))
