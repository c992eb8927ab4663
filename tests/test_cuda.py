"""On a graphics card: the same optimum, certificate and predictions as on a machine's threads.

Without a card the same tests run on an emulated one (`tests/emulated`), with fewer rows: it runs
the same device code, compiled for this machine. `make test-gpu` requires a real one.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file, make_classification

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
    Tuner,
    cuda,
)
from margrave.kernels import Kernel
from margrave.problem import Data
from margrave.solvers import BlockMinimization, DivideAndConquer, WorkingSet
from tests import emulated
from tests.cases import INTERCEPTS, KERNELS, name_of
from tests.exact_gap import exact_gaps

IS_REAL = cuda.cards() > 0
pytestmark = pytest.mark.skipif(
    not IS_REAL and emulated.COMPILER is None, reason="no graphics card, and no C++ compiler"
)
TOLERANCES = (1e-3, 1e-8)
POSITIVE = [case for case in KERNELS if case[0] != "sigmoid"]  # which is indefinite


def some(few, many):
    """How many rows: an emulated card is slow."""
    return many if IS_REAL else few


@pytest.fixture(scope="module", autouse=True)
def card():
    if IS_REAL:
        yield
        return
    with emulated.card():
        yield


@pytest.fixture(scope="module")
def rows():
    X, y = make_classification(some(70, 1200), 10, flip_y=0.1, random_state=0)
    return X, y


@pytest.fixture(scope="module")
def targets(rows):
    rng = np.random.default_rng(0)
    return np.sin(rows[0][:, 0]) + 0.1 * rng.normal(size=len(rows[0]))


def assert_same(make, X, y, tol, **parameters):
    """Compare a fit on the card with one on threads, and its gap with the true one."""
    here = make(tol=tol, **parameters).fit(X, y)
    there = make(tol=tol, engine="cuda", **parameters).fit(X, y)
    assert there.converged_ and there.gap_ <= tol
    assert there.objective_ == pytest.approx(here.objective_, rel=2.0 * tol + 1e-12)
    if tol < 1e-6:
        assert there.objective_ == pytest.approx(here.objective_, rel=1e-6)
        score = "decision_function" if hasattr(here, "decision_function") else "predict"
        a, b = getattr(here, score)(X), getattr(there, score)(X)
        # errors of scores are of the order of the root of the gap
        assert np.abs(a - b).max() <= 3e-3 * max(1.0, np.abs(a).max())
        assert np.array_equal(there.predict(X), there.set_params(engine=None).predict(X)) or (
            np.allclose(there.predict(X), there.set_params(engine=None).predict(X))
        )
    return there


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("case", KERNELS, ids=name_of)
@pytest.mark.parametrize("features", [1, 7, 8, 65])
def test_sums_of_kernel_values(case, precision, features):
    kernel = Kernel(case[0], **case[1])
    rng = np.random.default_rng(features)
    X = 0.7 * rng.normal(size=(413, features))
    starts, device = np.array([0, 100, 413]), cuda.Device()
    here = Data(X, kernel, starts).kernel_rows("float64", 0, 1 << 20, 1, 0.5, False)
    there = Data(X, kernel, starts, device).kernel_rows(precision, 0, 1 << 20, 1, 0.5, False)
    some, points = np.sort(rng.choice(413, 300, replace=False)), np.arange(0, 413, 2)
    for outputs in (1, 2, 3, 6):
        coef = rng.normal(size=(300, outputs))
        expected, _ = here.multiply(some, coef, points, True, 1e9)
        found, _ = there.multiply(some, coef, points, precision == "float64", 1e9)
        size = np.abs(coef).sum(axis=0).max() * max(1.0, np.abs(expected).max())
        error = {"float32": 3e-6, "float64": 1e-14}[precision]
        assert np.abs(found - expected).max() <= error * size
    assert np.allclose(
        there.block_sums(some, coef, 1), here.block_sums(some, coef, 1), atol=1e-4 * size
    )


@pytest.mark.parametrize("tol", TOLERANCES)
@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_svc(rows, loss, intercept, tol):
    assert_same(SVC, *rows, tol, loss=loss, intercept=intercept, gamma=0.1, C=3.0)


@pytest.mark.parametrize("tol", TOLERANCES)
@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("loss", sorted(SVR._parameter_constraints["loss"][0].options))
def test_svr(rows, targets, loss, intercept, tol):
    assert_same(SVR, rows[0], targets, tol, loss=loss, intercept=intercept, gamma=0.1)


@pytest.mark.parametrize("tol", TOLERANCES)
@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_logistic_and_margin_distribution(rows, intercept, tol):
    assert_same(KernelLogisticRegression, *rows, tol, intercept=intercept, gamma=0.1)
    assert_same(ODMClassifier, *rows, tol, intercept=intercept, gamma=0.1, lam=100.0)


@pytest.mark.parametrize("tol", TOLERANCES)
def test_given_sums(rows, targets, tol):
    X, y = rows
    assert_same(OneClassSVM, X, None, tol, gamma=0.1, nu=0.2)
    assert_same(NuSVC, X, y, tol, gamma=0.1, nu=0.3)
    assert_same(NuSVR, X, targets, tol, gamma=0.1)
    apart = X + 6.0 * np.where(y > 0, 1.0, -1.0)[:, None]
    assert_same(HardMarginSVC, apart, y, tol, gamma=0.01)
    assert_same(NuSVC, X, y, tol, gamma=0.1, nu=0.3, solver=SOLVERS["pbm"])
    assert_same(NuSVR, X, targets, tol, gamma=0.1, solver=SOLVERS["pbm"])


@pytest.mark.parametrize("tol", TOLERANCES)
@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_several_classes(scheme, tol):
    X, y = make_classification(some(90, 900), 10, n_informative=6, n_classes=4, random_state=1)
    assert_same(SVC, X, y, tol, multi_class=scheme, gamma=0.1)


def test_working_sets_of_different_sizes_in_turn(rows):
    X, y = rows
    half = len(X) // 2
    large = WorkingSet(size=2048)
    before = SVC(gamma=0.1, solver=large, engine="cuda").fit(X, y)
    SVC(gamma=0.1, solver=WorkingSet(size=4), engine="cuda").fit(X[:half], y[:half])
    after = SVC(gamma=0.1, solver=large, engine="cuda").fit(X, y)
    assert np.array_equal(before.dual_coef_, after.dual_coef_)


@pytest.mark.parametrize("case", POSITIVE, ids=name_of)
def test_every_kernel(rows, case):
    kernel, parameters = case
    X = 0.3 * rows[0]
    assert_same(SVC, X, rows[1], 1e-6, kernel=kernel, solver="exact", **parameters)


def test_sparse_weighted_and_precomputed(rows):
    X, y = rows
    X = X * (np.abs(X) > 0.7)
    weight = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    dense = SVC(gamma=0.1, tol=1e-7, engine="cuda").fit(X, y, weight)
    thin = SVC(gamma=0.1, tol=1e-7, engine="cuda").fit(sparse.csr_matrix(X), y, weight)
    here = SVC(gamma=0.1, tol=1e-7).fit(X, y, weight)
    assert dense.objective_ == pytest.approx(here.objective_, rel=1e-6)
    assert thin.objective_ == pytest.approx(here.objective_, rel=1e-6)
    assert np.allclose(thin.decision_function(sparse.csr_matrix(X)), here.decision_function(X),
                       atol=2e-3)  # fmt: skip
    K = Kernel("rbf", gamma=0.1).values(X, X)
    given = SVC(kernel="precomputed", tol=1e-7, engine="cuda").fit(K, y, weight)
    assert given.objective_ == pytest.approx(here.objective_, rel=1e-6)


SOLVERS = {
    "exact": WorkingSet(),
    "small sets": WorkingSet(size=6),
    "dc": DivideAndConquer(levels=2),
    "pbm": BlockMinimization(blocks=5),
    "pbm alone": BlockMinimization(blocks=4, finish=None),
}


@pytest.mark.parametrize("intercept", INTERCEPTS)
@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver(rows, name, intercept):
    assert_same(SVC, *rows, 1e-3, solver=SOLVERS[name], intercept=intercept, gamma=0.5)
    assert_same(
        KernelLogisticRegression, *rows, 1e-3, solver=SOLVERS[name], intercept=intercept, gamma=0.5
    )


@pytest.mark.parametrize("combine", ["nearest", "sum", "committee"])
def test_early_models(rows, combine):
    X, y = rows
    solver = DivideAndConquer(early=2, combine=combine)
    here = SVC(gamma=0.5, solver=solver).fit(X, y)
    there = SVC(gamma=0.5, solver=solver, engine="cuda").fit(X, y)
    assert there.certificate_ == "blocks" and there.gap_ <= 1e-2
    assert there.objective_ == pytest.approx(here.objective_, rel=3e-2)
    assert np.mean(there.predict(X) == here.predict(X)) > 0.97
    assert there.certify(X, y) == pytest.approx(here.certify(X, y), rel=0.3)


def test_moving_blocks_from_many_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(some(1500, 45_000), 3)).astype(np.float32)
    y = np.sin(9.0 * X).prod(axis=1) + 0.2 * rng.normal(size=len(X)) > 0.0
    solver = "auto" if IS_REAL else "dc"
    here = SVC(C=4.0, gamma=60.0, solver=solver).fit(X, y)
    there = SVC(C=4.0, gamma=60.0, solver=solver, engine="cuda").fit(X, y)
    again = SVC(C=4.0, gamma=60.0, solver=solver, engine="cuda").fit(X, y)
    assert there.solver_ == "dc" and there.converged_
    assert there.objective_ == pytest.approx(here.objective_, rel=2e-3)
    assert np.array_equal(there.dual_coef_, again.dual_coef_)  # the same bits
    assert there.early_.certificate_ == "blocks"
    assert np.mean(there.predict(X) == here.predict(X)) > 0.99


@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian"])
@pytest.mark.parametrize("intercept", INTERCEPTS)
def test_certificates_with_600_bits(intercept, kernel):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(some(20, 90), 4)) * 10.0 ** rng.uniform(-1, 1, 4) + rng.normal(size=4)
    y = rng.integers(0, 2, len(X))
    for tol in (1e-2, 1e-6, 1e-11):
        for make in (SVC, KernelLogisticRegression, ODMClassifier):
            model = make(kernel=kernel, gamma=0.2, intercept=intercept, tol=tol, engine="cuda")
            model.set_params(max_iter=some(6, 200)).fit(X, y)
            assert max(found.gap for found in exact_gaps(model, X, y)) <= model.gap_


def test_linear_machines_use_newton(rows, targets):
    X, y = rows
    for thin in (X, sparse.csr_matrix(X * (X > 0.5))):
        here = SVC(kernel="linear", tol=1e-6).fit(thin, y)
        there = SVC(kernel="linear", tol=1e-6, engine="cuda").fit(thin, y)
        assert there.solver_.startswith("newton") and there.converged_
        assert there.objective_ == pytest.approx(here.objective_, rel=1e-5)
        assert np.allclose(there.coef_, here.coef_, atol=1e-2)
    model = SVR(kernel="linear", engine="cuda").fit(X, targets)
    assert model.converged_


def test_tuner_shares_the_card(rows):
    X, y = rows
    grid = {"C": [0.1, 1.0, 10.0], "gamma": [0.05, 0.5]}
    here = Tuner(SVC(), grid, cv=3).fit(X, y)
    there = Tuner(SVC(engine="cuda"), grid, cv=3).fit(X, y)
    assert there.best_params_ == here.best_params_
    assert there.best_score_ == pytest.approx(here.best_score_, abs=3e-3)


def test_limits(rows):
    X, y = make_classification(some(400, 30_000), 40, flip_y=0.3, random_state=0)
    SVC(C=1e4, gamma=0.02, engine="cuda", tol=1e-6, time_limit=0.2).fit(X[:500], y[:500])
    begin = time.monotonic()
    with pytest.warns(match="time_limit"):
        model = SVC(C=1e4, gamma=0.02, engine="cuda", tol=1e-6, time_limit=0.5).fit(X, y)
    assert time.monotonic() - begin < 3.0 and not model.converged_
    assert model.decision_function(X[:10]).shape == (10,)
    many = np.tile(X, (30, 1))[:30_000]
    with pytest.raises(ValueError, match="memory"):
        SVC(engine="cuda", memory_limit="1MiB").fit(many, np.tile(y, 30)[: len(many)])


def test_interruption(rows):
    X, y = make_classification(some(400, 30_000), 40, flip_y=0.3, random_state=0)
    model = SVC(C=1e4, gamma=0.02, engine="cuda", tol=1e-8)
    pressed = []

    def press():
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(1.0, press)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    timer.join()
    assert time.monotonic() - pressed[0] < 1.5
    assert not model.converged_ and model.gap_ > 0.0
    assert model.certify(X, y) <= model.gap_ * (1.0 + 1e-6) or model.certificate_ == "estimate"


def test_copies_pickles_and_files(rows, tmp_path):
    X, y = rows
    model = SVC(gamma=0.1, engine="cuda").fit(X, y)
    expected = model.decision_function(X)
    for copy in (pickle.loads(pickle.dumps(model)), clone(model).fit(X, y)):
        assert np.allclose(copy.decision_function(X), expected, atol=1e-2)
    model.save(tmp_path / "model")
    again = margrave.load(tmp_path / "model")
    assert np.allclose(again.decision_function(X), expected, atol=1e-9)
    assert np.allclose(again.set_params(engine=None).decision_function(X), expected, atol=1e-4)


def test_the_machine_certifies_what_the_card_has_solved(rows):
    X, y = rows
    model = SVC(gamma=0.1, engine="cuda", tol=1e-7).fit(X, y)
    assert model.set_params(engine=None).certify(X, y) <= 1e-7


@pytest.mark.parametrize("name", ["exact", "dc", "pbm"])
def test_rows_that_do_not_fit_on_the_card(name, monkeypatch):
    X, y = make_classification(some(150, 1200), 10, flip_y=0.1, random_state=0)
    how = {"gamma": 0.5, "solver": SOLVERS[name], "tol": 1e-4}
    here = SVC(**how).fit(X, y)
    usual = SVC(engine="cuda", **how).fit(X, y)
    monkeypatch.setattr(cuda.rows, "_STAY", 0.0)
    streamed = SVC(engine="cuda", **how).fit(X, y)
    assert streamed.converged_ and streamed.objective_ == pytest.approx(here.objective_, rel=2e-4)
    assert max(found.gap for found in exact_gaps(streamed, X, y)) <= streamed.gap_
    assert np.allclose(streamed.decision_function(X), usual.decision_function(X), atol=0.05)


def test_a_limit_of_memory_below_the_size_of_the_rows(monkeypatch):
    X, y = make_classification(some(200, 3000), 3000, random_state=0)
    X = X.astype(np.float32)
    limit = X.nbytes
    there = SVC(engine="cuda", memory_limit=limit, solver=WorkingSet(size=32)).fit(X, y)
    assert there.objective_ == pytest.approx(SVC().fit(X, y).objective_, rel=2e-3)
    monkeypatch.setattr(cuda.rows, "_STAY", 0.0)
    K = Kernel("rbf", gamma=1e-3).values(X[:150], X[:150])
    given = SVC(kernel="precomputed", engine="cuda").fit(K, y[:150])
    assert given.converged_ and given.gap_ <= 1e-3


def test_the_command_line_uses_the_card(rows, run, tmp_path):
    dump_svmlight_file(*rows, str(tmp_path / "rows.txt"))
    for engine in ("cuda", "threads"):
        words = "train", "rows.txt", "-o", engine, "--engine", engine, "--gamma", "0.1", "-q"
        code, out, err = run(*words)
        assert code == 0, out + err
    there, here = (margrave.load(tmp_path / name) for name in ("cuda", "threads"))
    assert there.objective_ == pytest.approx(here.objective_, rel=2e-3)
    assert there.objective_ != here.objective_  # computed elsewhere


def kinds():
    """CuPy, and torch where it finds the card: how they make an array, and read one."""
    import cupy

    yield cupy.asarray, cupy.asnumpy
    if IS_REAL and find_spec("torch"):
        import torch

        yield (lambda x: torch.as_tensor(x, device="cuda")), (lambda x: x.cpu().numpy())


def test_rows_that_lie_on_the_card(rows, targets):
    X, y = rows
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    here = SVC(gamma=0.1, engine="cuda").fit(X, y, weight)
    fitted = KernelLogisticRegression(gamma=0.1, engine="cuda").fit(X, y)
    regression = SVR(gamma=0.1, engine="cuda").fit(X, targets)
    for there, back in kinds():
        rows_there = there(X)
        model = SVC(gamma=0.1, engine="cuda").fit(rows_there, there(y), there(weight))
        assert np.array_equal(model.dual_coef_, here.dual_coef_)
        assert isinstance(model.support_vectors_, np.ndarray)
        for of, method in ((here, "decision_function"), (here, "predict"),
                           (fitted, "predict_proba"), (regression, "predict")):  # fmt: skip
            found = getattr(of, method)(rows_there)
            assert type(found) is type(rows_there)
            assert np.array_equal(back(found), getattr(of, method)(X))
        named = SVC(gamma=0.1, engine="cuda").fit(rows_there, np.array(["no", "yes"])[y])
        assert named.predict(rows_there)[0] in ("no", "yes")


def compiled_functions():
    return cuda.device.function_of.cache_info().currsize


@pytest.mark.parametrize("solver", [BlockMinimization(blocks=4), DivideAndConquer(levels=1)])
def test_workers_that_share_a_card(rows, dask_client, solver):
    from margrave.engines.dask import Dask

    X, y = rows
    if not IS_REAL:
        dask_client.run(emulated.cupy.install)
    dask_client.run(cuda.device.function_of.cache_clear)
    engine = Dask(dask_client, inner="cuda")
    here = SVC(gamma=0.5, solver=solver).fit(X, y)
    there = SVC(gamma=0.5, solver=solver, engine=engine).fit(X, y)
    assert there.converged_ and all(dask_client.run(compiled_functions).values())
    assert there.objective_ == pytest.approx(here.objective_, rel=2e-3)
    assert max(found.gap for found in exact_gaps(there, X, y)) <= there.gap_
    with pytest.raises(ValueError, match=r"Dask\(inner='cuda'\) has no solver"):
        SVC(engine=engine, solver="exact").fit(X, y)
    with pytest.raises(ValueError, match=r"Dask\(inner='cuda'\) has no joint"):
        SVC(engine=engine, multi_class="crammer_singer").fit(X, np.arange(len(y)) % 3)
    if not IS_REAL:
        dask_client.run(emulated.cupy.uninstall)


def test_no_card_of_this_number():
    with pytest.raises(ValueError, match="no graphics card 99"):
        SVC(engine=margrave.engines.Cuda(device=99)).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.skipif("MARGRAVE_CARD" not in os.environ, reason="make test-gpu asks for a real card")
def test_a_real_card_runs_all_of_these_tests(request):
    assert IS_REAL
    here = [item for item in request.session.items if Path(item.fspath) == Path(__file__)]
    assert len(here) == int(os.environ["MARGRAVE_CARD"])
