"""Expectation maximization: goldens, properties, several classes, landmarks, engines."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from margrave import SVC, SVR, RowBlocks
from margrave.blocks.augmented import Parabolas, sides_of
from margrave.losses import Loss
from margrave.solvers import ExpectationMaximization
from margrave.solvers.linear.augmentation import Coefficients, Weights
from margrave.solvers.linear.shards import ranges_of
from tests import build, oracle
from tests.data import GOLDEN, load
from tests.golden import RECORDS

EM = ExpectationMaximization
LINEAR_LOSS = [r for r in RECORDS if r.loss in ("hinge", "epsilon_insensitive")]
# homogeneous quadratics of two features: a kernel of rank three, where the iteration stalls
STALLING = [r for r in LINEAR_LOSS if r.name.startswith("moons200-poly-0.7-2-0.0")]
STRAIGHT = [r for r in LINEAR_LOSS if not r.name.startswith("moons200-poly-0.7-2-0.0")]
JOINT = [r for r in json.loads((GOLDEN / "augmentation.json").read_text()) if r["task"] == "mlt"]
INTERCEPTS = [None, "regularized", "free"]
LINEAR = ("linear", {})


def rows(n, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.array([1.0, 0.5, 2.0, 1.0, 0.1, 3.0])[:d]
    y = np.sign(X[:, 0] - 0.3 * X[:, 1] + 0.5 * rng.normal(size=n) + 0.2)
    return X, y


# --- goldens -------------------------------------------------------------------------------------


def test_there_are_goldens_of_all_kinds():
    assert len(STRAIGHT) >= 36 + 24 and len(STALLING) == 1 and len(JOINT) == 4


@pytest.mark.parametrize("record", STRAIGHT, ids=lambda r: r.name)
def test_golden(record):
    found = build.solve(*record.problem(), tol=1e-9, solver=EM())
    assert found.converged and found.solver == "em"
    assert found.objective == pytest.approx(record.objective, rel=2e-9)
    assert found.dual == pytest.approx(-record.objective, rel=2e-9)
    decisions = found.scores[list(record.rows)] + found.intercept
    np.testing.assert_allclose(decisions, record.decisions, atol=1e-4)


@pytest.mark.parametrize("record", STALLING, ids=lambda r: r.name)
def test_where_it_stalls_it_claims_no_more_than_it_has(record):
    found = build.solve(*record.problem(), tol=1e-9, solver=EM())
    assert found.gap < 1e-7 and found.converged == (found.gap <= 1e-9)
    assert 0 <= found.objective - record.objective <= found.gap * found.objective


@pytest.mark.parametrize("mode", ["fast", "em"])
@pytest.mark.parametrize("record", JOINT, ids=lambda r: f"{r['kern']}-{r['lam']}")
def test_joint_golden(record, mode):
    X, y = load("iris3")
    linear = record["kern"] == "linear+1"
    tol = 1e-7 if linear and mode == "fast" else 1e-4
    model = SVC(
        C=2.0 / record["lam"],
        kernel="linear" if linear else "rbf",
        gamma=0.25,
        intercept="regularized" if linear else None,
        tol=tol,
        multi_class="crammer_singer",
        solver=EM(mode),
        n_jobs=1,
    ).fit(X, y)
    assert model.converged_ and model.solver_ == "em"
    lam = record["lam"]
    assert -1e-12 <= lam * model.objective_ / record["J"] - 1.0 <= tol
    assert model.certify(X, y) == pytest.approx(model.gap_, rel=1e-4, abs=1e-12)
    # |w - w*|^2 <= 2 gap / lam bounds the scores
    reach = np.sqrt(2.0 * tol * model.objective_ * (1.0 + (X**2).sum(axis=1).max() * linear))
    np.testing.assert_allclose(model.decision_function(X[record["rows"]]), record["f"], atol=reach)


def test_identity_of_the_optimum():
    """sum alpha = J + lam/2 |w|^2 for the hinge."""
    for record in json.loads((GOLDEN / "augmentation.json").read_text()):
        if record["task"] != "cls" or record["kern"] != "linear+1":
            continue
        X, y = load("moons200" if record["data"] == "moons" else record["data"])
        model = SVC(2.0 / record["lam"], kernel="linear", intercept="regularized", tol=1e-9)
        model.set_params(solver="em").fit(X, y)
        alpha = record["lam"] * np.abs(model.dual_coef_).sum()
        assert alpha == pytest.approx(record["sumalpha"], rel=1e-4)
        norm = np.sqrt((model.coef_**2).sum() + model.intercept_[0] ** 2)
        assert norm == pytest.approx(record["wnorm"], rel=1e-4)


# --- properties ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "em"])
@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("data", ["iris12", "diabetes"])
def test_weak_duality_and_monotone_objective(mode, intercept, data):
    X, y = load(data)
    loss = ("hinge", {}) if data == "iris12" else ("epsilon_insensitive", {"epsilon": 0.3})
    problem = build.problem(X, y, 2.0, loss, LINEAR, intercept)
    solution, progress = build.run(problem, tol=1e-4, solver=EM(mode))
    assert solution.converged
    best = build.solve(X, y, 2.0, loss, LINEAR, intercept, tol=1e-12).objective
    for record in progress.history:
        assert record["dual"] >= -best - 1e-9 * best
        assert record["objective"] >= best - 1e-9 * best
    assert np.all(np.diff([record["objective"] for record in progress.history]) <= 0.0)
    if intercept == "free":
        assert abs(solution.beta.sum()) <= 1e-9 * np.abs(solution.beta).sum()


def _costs(problem, space, mode, count):
    """J at the points of the first iterations, and J_e of the clamped losses."""
    found = []
    sides, s = sides_of(problem.loss, problem.y), 0.5 * problem.C
    for _, _figures in zip(range(count), space.iterations(mode), strict=False):
        norm = 0.5 * float(space.z @ (space.penalty * space.z))
        f = problem.data.X @ space.z[: problem.data.X.shape[1]] + space.z[-1]
        paid = rounded = 0.0
        for b, r in sides:
            a = b * (r - f)
            size = np.abs(a)
            paid += float(s @ (a + size))
            e = space.width
            rounded += float(s @ (a + np.where(size < e, size**2 / (2 * e) + e / 2, size)))
        found.append((norm + paid, norm + rounded))
    return np.array(found)


def _space(form, problem):
    from margrave.engines import Serial
    from margrave.progress import Progress
    from margrave.solvers import Settings

    return form(problem, Settings(1e-6, 1 << 28, 1, 0, Progress(1e-6)), Serial())


@pytest.mark.parametrize("data", ["iris12", "diabetes"])
def test_steps_of_em_never_rise(data):
    """The clamped objective falls with full steps, the objective itself with a line search."""
    X, y = load(data)
    loss = ("hinge", {}) if data == "iris12" else ("epsilon_insensitive", {"epsilon": 0.1})
    problem = build.problem(X, y, 2.0, loss, LINEAR, "regularized")
    published = _costs(problem, _space(Weights, problem), "published", 60)
    assert np.all(np.diff(published[:, 1]) <= 1e-9)
    searched = _costs(problem, _space(Weights, problem), "em", 60)
    clamp = 1e-8 * problem.n_rows
    assert np.all(np.diff(searched[:, 0]) <= clamp)
    assert searched[-1, 0] < published[-1, 0]


def test_fast_needs_fewer_passes():
    X, y = load("breast")
    passes = {}
    for mode in ("fast", "em"):
        model = SVC(2.0, kernel="linear", intercept="regularized", tol=1e-3, solver=EM(mode))
        passes[mode] = model.fit(X, y).n_iter_
    plain = SVC(2.0, kernel="linear", intercept="regularized", solver=EM(as_published=True))
    passes["published"] = plain.fit(X, y).n_iter_
    assert 5 * passes["fast"] <= passes["published"] and passes["fast"] < passes["em"]


def test_clamp_costs_no_more_than_its_bound():
    """J(w_e) - J* <= e/2 per row within e of its corner at the optimum."""
    X, y = load("iris12")
    problem = build.problem(X, y, 20.0, ("hinge", {}), LINEAR, "regularized")
    best = build.solve(X, y, 20.0, ("hinge", {}), LINEAR, "regularized", tol=1e-12)
    f = best.scores + best.intercept
    Z, s = np.hstack([X, np.ones((len(X), 1))]), 0.5 * problem.C
    for e in (1e-1, 1e-2, 1e-3):
        z = np.zeros(Z.shape[1])
        for _ in range(3000):
            parts = Parabolas(sides_of(problem.loss, y), s, Z @ z, e, False)
            A = np.eye(len(z)) + (Z * parts.D[:, None]).T @ Z
            z = np.linalg.solve(A, Z.T @ (parts.u + parts.D * (Z @ z)))
        paid = 0.5 * z @ z + float(problem.C @ np.maximum(0.0, 1.0 - y * (Z @ z)))
        near = float(problem.C[np.abs(1.0 - y * f) < e].sum()) / 2
        assert -1e-9 <= paid - best.objective <= e / 2 * near + 1e-9


def test_coefficients_of_the_linear_kernel_are_its_weights():
    X, y = load("iris12")
    for loss in (("hinge", {}), ("epsilon_insensitive", {"epsilon": 0.1})):
        for intercept in INTERCEPTS:
            problem = build.problem(X, y, 2.0, loss, LINEAR, intercept)
            kernel = build.problem(X @ X.T, y, 2.0, loss, "precomputed", intercept)
            one, _ = build.run(problem, tol=1e-6, solver=EM())
            other, _ = build.run(kernel, tol=1e-6, solver=EM())
            assert one.weights is not None and other.weights is None
            assert one.objective == pytest.approx(other.objective, rel=2e-6)
            np.testing.assert_allclose(one.scores, other.scores, atol=2e-2)


def test_more_features_than_rows():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(40, 300)), np.sign(rng.normal(size=40))
    problem = build.problem(X, y, 1.0, ("hinge", {}), LINEAR, "free")
    assert isinstance(_space(Coefficients, problem), Coefficients)
    model = SVC(kernel="linear", solver="em", tol=1e-8).fit(X, y)
    exact = SVC(kernel="linear", solver="exact", tol=1e-10).fit(X, y)
    assert model.converged_ and model.objective_ == pytest.approx(exact.objective_, rel=1e-7)
    assert model.certify(X, y) <= 1e-8


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("mode", ["fast", "em"])
def test_weights_are_repeated_rows(kernel, mode):
    X, y = rows(120)
    weight = np.random.default_rng(2).integers(0, 4, size=len(y))
    settings = {"kernel": kernel, "gamma": 0.3, "tol": 1e-6, "solver": EM(mode)}
    one = SVC(**settings).fit(X, y, sample_weight=weight)
    other = SVC(**settings).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert one.objective_ == pytest.approx(other.objective_, rel=2e-6)
    reach = 4.0 * np.sqrt(2e-6 * one.objective_ * 10.0)
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=reach)


def test_flipped_labels_and_targets():
    X, y = load("breast")
    one = SVC(kernel="linear", solver="em", intercept="regularized", tol=1e-8).fit(X, y)
    other = SVC(kernel="linear", solver="em", intercept="regularized", tol=1e-8).fit(X, -y)
    np.testing.assert_allclose(one.coef_, -other.coef_, atol=1e-4)
    X, y = load("diabetes")
    for epsilon in (0.0, 0.2):
        model = SVR(kernel="linear", epsilon=epsilon, solver="em", tol=1e-8)
        first = model.fit(X, y).predict(X)
        np.testing.assert_allclose(model.fit(X, -y).predict(X), -first, atol=1e-3)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_warm_start_from_the_optimum_does_nothing(kernel):
    X, y = load("breast")
    model = SVC(kernel=kernel, gamma=0.02, solver="em", tol=1e-6, warm_start=True).fit(X, y)
    before = model.dual_coef_.copy()
    model.set_params(tol=1e-3).fit(X, y)
    assert model.n_iter_ == 0 and model.converged_
    np.testing.assert_allclose(model.dual_coef_, before, rtol=1e-12)


@pytest.mark.parametrize("form", ["float32", "csr", "F", "blocks", "mapped"])
def test_rows_of_any_form(form, tmp_path):
    X, y = rows(500)
    X[np.abs(X) < 0.3] = 0.0
    expected = SVC(kernel="linear", solver="em", tol=1e-6).fit(X, y)
    if form == "float32":
        given = X.astype(np.float32)
    elif form == "csr":
        given = sparse.csr_array(X)
    elif form == "F":
        given = np.asfortranarray(X)
    elif form == "blocks":
        given = RowBlocks([X[:100], lambda: X[100:101], X[101:]])
    else:
        np.save(tmp_path / "X.npy", X)
        given = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = SVC(kernel="linear", solver="em", tol=1e-6).fit(given, y)
    assert model.converged_
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-5)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=2e-2)


def test_many_rows_come_in_shards_that_do_not_depend_on_workers():
    from margrave.engines import Serial, Threads
    from margrave.progress import Progress
    from margrave.solvers import Settings

    X, y = rows(34_000, 3)
    problem = build.problem(X, y, 1.0, ("hinge", {}), LINEAR, "free")
    settings = Settings(1e-3, 1 << 28, 2, 0, Progress(1e-3))
    dealt = [ranges_of(problem, settings, engine)[0] for engine in (Serial(), Threads(3))]
    assert dealt[0] == dealt[1] and len(dealt[0]) == 4
    models = [
        SVC(kernel="linear", solver="em", engine=engine, n_jobs=jobs).fit(X, y)
        for engine, jobs in (("serial", 1), ("threads", 1), ("threads", 2), ("threads", 3))
    ]
    exact = SVC(kernel="linear", solver="newton", tol=1e-6).fit(X, y)
    for model in models:
        assert model.converged_ and model.objective_ <= exact.objective_ * (1.0 + 1e-3)
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        np.testing.assert_array_equal(model.dual_coef_, models[0].dual_coef_)


@pytest.mark.parametrize("name", ["serial", "threads", "dask", "mpi"])
def test_every_engine(name, engine_of, monkeypatch):
    monkeypatch.setattr("margrave.solvers.linear.shards._LEAST_ROWS", 1)
    X, y = rows(9_000, 3)
    classes = np.digitize(X[:, 0], [-0.5, 0.5])
    expected = SVC(kernel="linear", solver="em").fit(X, y)
    model = SVC(kernel="linear", solver="em", engine=engine_of(name)).fit(X, y)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    settings = {"multi_class": "crammer_singer", "intercept": "regularized", "solver": "em"}
    expected = SVC(kernel="linear", **settings).fit(X, classes)
    model = SVC(kernel="linear", **settings, engine=engine_of(name)).fit(X, classes)
    assert model.converged_
    np.testing.assert_array_equal(model.coef_, expected.coef_)


def test_rows_of_a_dask_array_stay(dask_client):
    array = pytest.importorskip("dask.array")
    X, y = rows(600, 3)
    lazy = array.from_array(X, chunks=(250, -1))
    model = SVC(kernel="linear", solver="em", engine=dask_client, tol=1e-6).fit(lazy, y)
    expected = SVC(kernel="linear", solver="em", tol=1e-6).fit(X, y)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    with pytest.raises(ValueError, match="'em' needs all rows in one array"):
        SVC(solver="em", engine=dask_client).fit(lazy, y)


# --- several classes -----------------------------------------------------------------------------


def test_class_after_class_stops_short():
    """One row x = 1 of the first of three classes, lam = 10: J = 1.8 instead of 1.7."""
    X = np.array([[1.0], [0.0], [0.0]])
    y = np.array([0, 1, 2])
    cost = {}
    for name, solver in (("published", EM(as_published=True)), ("fast", EM()), ("em", EM("em"))):
        model = SVC(0.2, kernel="linear", intercept=None, multi_class="crammer_singer", tol=1e-6)
        stops = pytest.warns(UserWarning, match="max_iter") if name == "published" else _nothing()
        with stops:
            model.set_params(solver=solver, max_iter=500).fit(X, y)
        # rows of zeros pay two each whatever the weights are
        cost[name] = 10.0 * model.objective_ - 4.0
    assert cost["published"] == pytest.approx(1.8, rel=1e-3)
    assert cost["fast"] == pytest.approx(1.7, rel=1e-5)
    assert cost["em"] == pytest.approx(1.7, rel=1e-5)


def _nothing():
    from contextlib import nullcontext

    return nullcontext()


@pytest.mark.parametrize("kind", ["CLS", "SVR", "MLT"])
@pytest.mark.parametrize("space", ["LIN", "KRN"])
def test_printed_algorithms_match_a_naive_twin(space, kind):
    """Equations 6, 27-28 and 38-39 of the paper, in NumPy: all six forms of EM."""
    data = {"CLS": "iris12", "SVR": "diabetes", "MLT": "iris3"}[kind]
    X, y = load(data)
    X, y = X[::3], y[::3]
    # from zero, where rows are on their margin, rounding errors of LIN-MLT double in every sweep
    lam, steps = 1.0, 12 if (space, kind) == ("LIN", "MLT") else 20
    classes = {"multi_class": "crammer_singer"} if kind == "MLT" else {}
    kernel = {"kernel": "linear"} if space == "LIN" else {"kernel": "rbf", "gamma": 0.25}
    form = SVR if kind == "SVR" else SVC
    model = form(2.0 / lam, **kernel, **classes, intercept=None, solver=EM(as_published=True))
    with pytest.warns(UserWarning, match="max_iter"):
        model.set_params(max_iter=steps, tol=1e-12).fit(X, y)
    K = np.exp(-0.25 * cdist(X, X, "sqeuclidean"))
    scores, cost = printed_em(X if space == "LIN" else K, y, kind, lam, steps, space)
    assert lam * model.objective_ == pytest.approx(cost, rel=1e-6)
    found = model.predict(X) if kind == "SVR" else model.decision_function(X)
    np.testing.assert_allclose(found, np.squeeze(scores), rtol=1e-4, atol=1e-4)


def printed_em(Z, y, kind, lam, steps, space):
    """Scores and objective of the best iterate, one class after the other.

    LIN  (lam + sum_d z_d z_d' / c_d) w = sum_d (r_d / c_d + b_d) z_d
    KRN  lam K in place of lam, and k_d of z_d; divided by K and by 1 / c, which are invertible
    """
    k = len(np.unique(y)) if kind == "MLT" else 1
    w, best = np.zeros((Z.shape[1], k)), (np.inf, None)
    for _ in range(steps + 1):
        f = Z @ w
        norm = np.sum(w * w) if space == "LIN" else np.sum(w * f)
        cost = 0.5 * lam * norm + 2.0 * printed_losses(f, y, kind).sum()
        best = min(best, (cost, f), key=lambda one: one[0])
        for c in range(k):
            f, weight, right = Z @ w, np.zeros(len(y)), np.zeros(len(y))
            for b, r in printed_terms(f, y, kind, c):
                scale = np.maximum(np.abs(r - f[:, c]), 1e-8)
                weight, right = weight + 1.0 / scale, right + r / scale + b
            if space == "LIN":
                matrix = lam * np.eye(Z.shape[1]) + (Z.T * weight) @ Z
                w[:, c] = np.linalg.solve(matrix, Z.T @ right)
            else:
                w[:, c] = np.linalg.solve(Z + np.diag(lam / weight), right / weight)
    return best[1], best[0]


def printed_terms(f, y, kind, c):
    if kind == "CLS":
        return [(y, y)]
    if kind == "SVR":
        return [(1.0, y - 0.1), (-1.0, y + 0.1)]
    others = f + (np.arange(f.shape[1]) != y[:, None])
    others[:, c] = -np.inf
    return [(np.where(y == c, 1.0, -1.0), others.max(axis=1) - (y != c))]


def printed_losses(f, y, kind):
    if kind == "CLS":
        return np.maximum(0.0, 1.0 - y * f[:, 0])
    if kind == "SVR":
        return np.maximum(0.0, np.abs(y - f[:, 0]) - 0.1)
    ahead = f + (np.arange(f.shape[1]) != y[:, None])
    return ahead.max(axis=1) - f[np.arange(len(y)), y]


def test_two_classes_jointly_are_one_model_with_half_lam():
    X, y = load("iris12")
    lam = 0.5
    joint = SVC(2.0 / lam, kernel="linear", intercept=None, multi_class="crammer_singer", tol=1e-8)
    joint.set_params(solver="em").fit(X, y)
    # |w_1|^2 + |w_0|^2 = |w|^2 / 2, so that lam/2 (|w_0|^2 + |w_1|^2) = (lam/2)/2 |w|^2
    single = SVC(2.0 / (lam / 2), kernel="linear", intercept=None, tol=1e-8, solver="em").fit(X, y)
    assert lam * joint.objective_ == pytest.approx(lam / 2 * single.objective_, rel=1e-7)
    np.testing.assert_allclose(joint.coef_[1] - joint.coef_[0], single.coef_[0], atol=1e-3)


@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_joint_problems_with_every_intercept(intercept, kernel):
    X, y = load("iris3")
    settings = {"kernel": kernel, "gamma": 0.3, "intercept": intercept, "tol": 1e-6}
    exact = SVC(**settings, multi_class="crammer_singer").fit(X, y)
    model = SVC(**settings, multi_class="crammer_singer", solver="em").fit(X, y)
    assert model.converged_ and model.objective_ == pytest.approx(exact.objective_, rel=2e-6)
    assert model.certify(X, y) == pytest.approx(model.gap_, rel=1e-3, abs=1e-12)
    again = model.set_params(warm_start=True, tol=1e-3).fit(X, y)
    assert again.n_iter_ == 0


# --- landmarks -----------------------------------------------------------------------------------


def test_landmarks_restrict_the_model():
    """J of S landmarks falls with S to that of all rows; these excesses are known."""
    X, y = load("breast")
    best = 95.0542677895
    excess = []
    for S, known in ((50, 0.23), (100, 0.11), (200, 0.031), (400, 0.001), (569, 0.0)):
        solver = EM(features=S)
        model = SVC(2.0, gamma=0.02, intercept=None, tol=1e-6, solver=solver).fit(X, y)
        excess.append(model.objective_ / best - 1.0)
        assert excess[-1] == pytest.approx(known, abs=0.006)
        assert model.certificate_ == "features" and model.converged_ and len(model.support_) == S
        # the gap of the whole model is no less than what is missing, and not much more
        gap = model.certify(X, y)
        assert excess[-1] / (1 + excess[-1]) - 1e-9 <= gap <= 2.0 * excess[-1] + 2e-6
        K = oracle.rbf(X, X[model.support_], gamma=0.02)
        f = K @ model.dual_coef_[0]
        np.testing.assert_allclose(model.decision_function(X), f, atol=1e-6 * np.abs(f).max())
    assert np.all(np.diff(excess) < 0.0)


@pytest.mark.parametrize("multi_class", ["ovo", "ovr", "crammer_singer"])
def test_landmarks_of_several_classes_and_numbers(multi_class):
    X, y = load("iris3")
    exact = SVC(2.0, gamma=0.2, multi_class=multi_class).fit(X, y)
    model = SVC(2.0, gamma=0.2, multi_class=multi_class, solver=EM(features=30)).fit(X, y)
    assert exact.objective_ * 0.998 <= model.objective_ <= exact.objective_ * 1.03
    assert model.certify(X, y) <= 0.05 and model.score(X, y) >= 0.96
    X, y = load("diabetes")
    regression = SVR(gamma=0.05, solver=EM(features=60)).fit(X, y)
    assert regression.certify(X, y) <= 0.1 and len(regression.support_) == 60


# --- refusals ------------------------------------------------------------------------------------


def test_refusals():
    X, y = load("iris12")
    with pytest.raises(ValueError, match="unknown mode"):
        SVC(solver=EM("slow")).fit(X, y)
    with pytest.raises(ValueError, match="features must be a whole number"):
        SVC(solver=EM(features=0)).fit(X, y)
    with pytest.raises(ValueError, match="memory_limit"):
        SVC(solver="em", memory_limit=1000).fit(X, y)
    with pytest.raises(ValueError, match="memory_limit"):
        SVC(solver="em", memory_limit=1000, multi_class="crammer_singer").fit(X, y)
    with pytest.raises(ValueError, match="positive semidefinite"):
        SVC(solver="em", kernel="precomputed", C=100.0).fit(-(X @ X.T), y)
    with pytest.raises(ValueError, match="'em' cannot work with the loss 'squared_hinge'"):
        SVC(solver="em", loss="squared_hinge").fit(X, y)


def test_budgets():
    X, y = load("breast")
    for solver in (EM(), EM("em"), EM(features=30)):
        model = SVC(1e4, kernel="linear", tol=1e-12, solver=solver, max_iter=2)
        with pytest.warns(UserWarning, match="max_iter=2"):
            model.fit(X, y)
        assert model.n_iter_ <= 2 and np.isfinite(model.gap_)
        model = SVC(1e4, gamma=0.02, tol=1e-13, solver=solver, time_limit=1e-9)
        with pytest.warns(UserWarning, match="time_limit"):
            model.fit(X, y)
        assert not model.converged_


def test_columns_that_say_nothing_are_harmless():
    X, y = load("iris12")
    worse = np.hstack([X, X[:, :1], np.zeros((len(X), 1)), np.full((len(X), 1), 7.0)])
    model = SVC(kernel="linear", solver="em", tol=1e-6).fit(worse, y)
    exact = SVC(kernel="linear", tol=1e-9).fit(worse, y)
    assert model.converged_ and model.objective_ == pytest.approx(exact.objective_, rel=1e-5)


def test_straight_losses_are_told_from_others():
    assert len(sides_of(Loss("hinge"), np.ones(2))) == 1
    assert len(sides_of(Loss("epsilon_insensitive", epsilon=0.1), np.ones(2))) == 2
