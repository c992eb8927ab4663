"""SVRG and its relatives: the optimum by the gap, the published figures, and honest budgets."""

import itertools
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from margrave import SVC, ODMClassifier, RowBlocks, _core
from margrave.blocks import GradientBlock
from margrave.blocks.passes import Passes
from margrave.engines import ENGINES, Serial
from margrave.losses import SMOOTH_LOSSES, Loss
from margrave.partitions import PARTITIONS, Parts, pivots
from margrave.problem import Data, Problem
from margrave.progress import Progress
from margrave.solvers import Newton, Settings, VarianceReduced, resolve_solver
from margrave.solvers.linear.variance_reduced import METHODS
from margrave.solvers.published.landmarks import compressed, landmarks
from tests import build, cases
from tests.data import load
from tests.systems import posix
from tests.test_properties import arrays, best

LINEAR = ("linear", {})
ODM = ("margin_distribution", {"theta": 0.1, "upsilon": 0.5})
SMOOTH = [case for case in cases.ZERO_SUM if case[0] in SMOOTH_LOSSES]
each_method = pytest.mark.parametrize("method", METHODS)
each_loss = pytest.mark.parametrize("loss", SMOOTH, ids=cases.name_of)
each_intercept = pytest.mark.parametrize("intercept", [None, "regularized"])
EVERY_ROW = 10**6  # landmarks: more than there are rows


def breast(lam=1.0, intercept=None, X=None):
    """The model behind the published figures."""
    rows, y = load("breast")
    return build.problem(rows if X is None else X, y, lam / (len(y) * 0.81), ODM, LINEAR, intercept)


def run(problem, solver, engine=None, tol=1e-14, seed=0, threads=2, start=None, **budgets):
    """(solution, progress)"""
    with Progress(tol, **budgets) as progress:
        settings = Settings(tol, 1 << 26, threads, seed, progress, engine)
        starts = None if start is None else [np.array(start)]
        (solution,) = solver.solve([problem], settings, starts)
    return solution, progress


def optimum(problem):
    solution, _ = build.run(problem, tol=1e-14, solver=Newton())
    assert solution.converged
    return solution.objective


def error(problem, solver, epochs, **settings):
    """Relative error of the objective after so many epochs."""
    solution, _ = run(problem, solver, max_iter=epochs, **settings)
    return solution.objective / optimum(problem) - 1.0


def naive_gap(problem, solution):
    """(P, D, relative gap) of a solution, in plain numpy."""
    (loss,) = [
        cases.oracle_loss((name, parameters))
        for name, parameters in cases.LOSSES
        if Loss(name, **parameters) == problem.loss
    ]
    X = problem.data.X
    X = (X.toarray() if sparse.issparse(X) else np.asarray(X, float))[problem.data_rows]
    w, beta, b = solution.weights, solution.beta, solution.intercept
    v, total = X.T @ beta, beta.sum()
    is_free_of_b = problem.intercept is None
    assert b == 0.0 or not is_free_of_b
    primal = w @ w / 2 + b * b / 2 + loss.value(problem.y, problem.C, X @ w + b).sum()
    dual = v @ v / 2 + (0.0 if is_free_of_b else total**2 / 2)
    dual += loss.h(problem.y, problem.C, beta).sum()
    return primal, dual, (primal + dual) / max(abs(primal), abs(dual))


def assert_honest(problem, solution):
    """What the solution says of itself is what numpy finds."""
    primal, dual, gap = naive_gap(problem, solution)
    assert abs(primal - solution.objective) <= 1e-12 * abs(primal)
    assert abs(dual - solution.dual) <= 1e-12 * abs(primal)
    assert abs(gap - solution.gap) <= 1e-12
    X = problem.data.X[problem.data_rows]
    np.testing.assert_allclose(solution.scores, X @ solution.weights, atol=1e-12)
    low, high = problem.loss.core().box(problem.y, problem.C)
    assert np.all(solution.beta >= low) and np.all(solution.beta <= high)


# --- the optimum -----------------------------------------------------------------------------


@each_method
@each_loss
@each_intercept
def test_optimum_of_every_smooth_loss(method, loss, intercept):
    X, y, C, _ = arrays(loss, LINEAR)
    problem = build.problem(X, y, C, loss, LINEAR, intercept)
    solver = VarianceReduced(method, landmarks=EVERY_ROW)
    solution, progress = run(problem, solver, tol=1e-9)
    expected = best(loss, LINEAR, intercept)
    assert solution.converged and solution.solver == method
    assert progress.stop_reason == "converged"
    assert abs(solution.objective - expected.primal) <= 2e-9 * abs(expected.primal)
    assert_honest(problem, solution)
    for record in progress.history:  # no certificate says more than is true
        assert record["objective"] >= expected.primal * (1 - 1e-9)
        assert -record["dual"] <= expected.primal * (1 + 1e-9)


@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize("dtype", cases.DTYPES, ids=cases.name_of)
@pytest.mark.parametrize("method", ["svrg", "dsvrg"])
def test_every_layout(method, dtype, layout):
    X, _ = load("breast")
    solver = VarianceReduced(method, partitions=3)
    expected, _ = run(breast(X=X.astype(dtype)), solver, max_iter=5)
    solution, _ = run(breast(X=cases.LAYOUTS[layout](X.astype(dtype))), solver, max_iter=5)
    np.testing.assert_allclose(solution.weights, expected.weights, rtol=1e-9, atol=1e-12)


@each_method
def test_problem_on_some_blocks_of_the_data(method):
    X, y = load("breast")
    starts = np.array([0, 100, 250, 400, 569])
    data = Data(X, breast().data.kernel, starts)
    rows = np.r_[0:100, 250:400]
    C = np.full(len(rows), 1.0 / (len(rows) * 0.81))
    problem = Problem(data, (0, 2), y[rows], C, Loss("margin_distribution", 0.0, 0.1, 0.5), None)
    alone = build.problem(X[rows], y[rows], C, ODM, LINEAR, None)
    solver = VarianceReduced(method, landmarks=EVERY_ROW)
    solution, _ = run(problem, solver, tol=1e-9)
    assert solution.converged
    assert abs(solution.objective / optimum(alone) - 1.0) <= 2e-9
    assert_honest(problem, solution)


@each_method
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_tiny_problems(method, rows):
    X, y, C, _ = arrays(("squared_hinge", {}), LINEAR)
    problem = build.problem(X[:rows], y[:rows], C[:rows], ("squared_hinge", {}), LINEAR, None)
    solution, _ = run(problem, VarianceReduced(method, landmarks=rows), tol=1e-9)
    assert solution.converged


@each_method
def test_weights_are_repeated_rows(method):
    rng = np.random.default_rng(4)
    X, y = load("breast")
    repeats = rng.integers(1, 4, len(y))
    weighted = build.problem(X, y, 0.002 * repeats, ODM, LINEAR, "regularized")
    repeated = build.problem(
        np.repeat(X, repeats, axis=0), np.repeat(y, repeats), 0.002, ODM, LINEAR, "regularized"
    )
    solver = VarianceReduced(method, landmarks=EVERY_ROW)
    one, _ = run(weighted, solver, tol=1e-9)
    other, _ = run(repeated, solver, tol=1e-9)
    assert one.converged and other.converged
    assert abs(one.objective / other.objective - 1.0) <= 2e-9
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)


def test_several_classes_by_estimator():
    X, y = load("iris")
    y = np.r_[np.zeros(50), np.ones(50), np.full(50, 2.0)]
    models = [
        ODMClassifier(kernel="linear", tol=1e-8, solver=solver).fit(X, y)
        for solver in ("newton", "svrg", "dsvrg")
    ]
    for name, model in zip(("svrg", "dsvrg"), models[1:], strict=True):
        assert model.solver_ == name and model.converged_
        np.testing.assert_allclose(model.objectives_, models[0].objectives_, rtol=2e-8)
        np.testing.assert_allclose(model.coef_, models[0].coef_, atol=1e-3)
        assert model.certify(X, y) <= 1e-4


# --- the published figures, and what was wrong with them --------------------------------------


@pytest.mark.parametrize("step, expected", [(0.25, 5e-5), (0.5, 5e-7), (1.0, 1e-9)])
@pytest.mark.parametrize("partitions", [1, 4, 8])
def test_ten_epochs(step, expected, partitions):
    assert error(breast(), VarianceReduced(step=step, partitions=partitions), 10) <= expected


@pytest.mark.parametrize("step, expected", [(0.5, 1e-6), (1.0, 1e-8)])
def test_each_row_once_beats_draws(step, expected):
    ordered, drawn = (
        np.mean([error(breast(), solver, 10, seed=seed) for seed in range(10)])
        for solver in (VarianceReduced(step=step, partitions=1), VarianceReduced("svrg", step=step))
    )
    assert ordered < drawn <= expected


class By:
    """A partition by a function of the rows and the number of parts, which returns labels."""

    def __init__(self, label):
        self.label = label

    def split(self, data, k, seed, among=None, y=None, threads=1):
        return Parts(np.asarray(self.label(data.X, k), dtype=np.int64))


clusters = By(lambda X, k: KMeans(k, n_init=1, random_state=0).fit_predict(X))


def test_long_steps_need_partitions_that_look_like_the_whole():
    for step, far in ((0.25, 1e-8), (0.5, 1e-11)):
        solver = VarianceReduced(step=step, partitions=4, partition=clusters)
        assert error(breast(), solver, 30) <= far
    solver = VarianceReduced(step=1.0, partitions=4, partition=clusters)
    solution, _ = run(breast(), solver, max_iter=30)
    assert solution.objective >= 1.01 * optimum(breast()) and not solution.converged
    assert_honest(breast(), solution)
    assert error(breast(), VarianceReduced(step=1.0, partitions=4), 15) <= 1e-12


def test_weak_regularisation_is_not_for_gradients():
    problem = breast(lam=100.0)
    newton, _ = build.run(problem, tol=1e-10, solver=Newton())
    assert newton.converged and newton.n_iter <= 6
    assert 0.01 <= error(problem, VarianceReduced(), 30) <= 0.08


def test_algorithm_as_printed_leaves_most_of_the_way_undone():
    printed = VarianceReduced(step=0.5, partitions=4, as_published=True)
    solution, progress = run(breast(), printed, max_iter=30)
    corrected, other = run(breast(), VarianceReduced(step=0.5, partitions=4), max_iter=15)
    least = optimum(breast())
    assert 0.1 <= solution.objective / least - 1.0 <= 0.25
    assert corrected.objective / least - 1.0 <= 5e-8
    # at equal work
    assert abs(progress.history[-1]["passes"] / other.history[-1]["passes"] - 1.0) <= 0.01


def test_algorithm_as_printed_never_takes_a_row_again():
    X, y, C, _ = arrays(ODM, LINEAR)
    problem = build.problem(X[:6], y[:6], C[:6], ODM, LINEAR, None)
    solver = VarianceReduced(partitions=2, as_published=True)
    weights = [run(problem, solver, max_iter=epochs)[0].weights for epochs in range(6)]
    moved = [np.any(a != b) for a, b in itertools.pairwise(weights)]
    assert moved == [True, True, True, False, False]
    solution, progress = run(problem, solver)  # ends by itself
    assert not solution.converged and progress.stop_reason is None


# --- gradients and steps ----------------------------------------------------------------------


def block_of(X, y, C, loss, intercept, n_rows=None, sampling="each"):
    return GradientBlock(
        X=X,
        y=y,
        C=C,
        loss=Loss(loss[0], **loss[1]),
        constant=intercept == "regularized",
        n_rows=n_rows or len(y),
        sampling=sampling,
        beta=np.zeros(len(y)),
    )


@each_loss
@each_intercept
def test_gradient_by_finite_differences(loss, intercept):
    X, y, C, _ = arrays(loss, LINEAR)
    naive, rng = cases.oracle_loss(loss), np.random.default_rng(1)
    ones = np.ones((len(y), 1)) if intercept else np.zeros((len(y), 1))
    extended = np.hstack([X, ones])

    def objective(z):
        return z @ z / 2 + naive.value(y, C, extended @ z).sum()

    pieces = [slice(0, 7), slice(7, 40), slice(40, None)]
    blocks = [block_of(X[p], y[p], C[p], loss, intercept, len(y)) for p in pieces]
    z = rng.standard_normal(X.shape[1] + 1) * (ones.any() or np.r_[np.ones(X.shape[1]), 0.0])
    found = [block.gradient(z, 60.0) for block in blocks]
    gradient = z - sum(combined for combined, _ in found)
    for k in range(len(z) - (0 if intercept else 1)):
        step = 1e-6 * np.eye(len(z))[k]
        slope = (objective(z + step) - objective(z - step)) / 2e-6
        assert abs(slope - gradient[k]) <= 1e-6 * (1 + abs(slope))
    assert intercept or gradient[-1] == 0.0
    assert abs(sum(f[0] for _, f in found) + z @ z / 2 - objective(z)) <= 1e-12 * objective(z)


@each_loss
@each_intercept
@pytest.mark.parametrize("sampling", ["each", "draws"])
def test_steps_are_those_of_the_formula(loss, intercept, sampling):
    """z <- z - eta (grad p_i(z) - grad p_i(z0) + grad P(z0)), written down and run."""
    X, y, C, _ = arrays(loss, LINEAR)
    naive, rng = cases.oracle_loss(loss), np.random.default_rng(2)
    n, last, eta = len(y), 1.0 if intercept else 0.0, 0.003
    extended = np.hstack([X, np.full((n, 1), last)])
    z0 = rng.standard_normal(X.shape[1] + 1)
    z0[-1] *= last

    def gradient(i, z):
        slope = naive.slope(y[i : i + 1], C[i : i + 1], extended[i : i + 1] @ z)[0]
        return z + n * slope * extended[i]

    h = np.mean([gradient(i, z0) for i in range(n)], axis=0)
    node = slice(10, 30)
    block = block_of(X[node], y[node], C[node], loss, intercept, n, sampling)
    block.gradient(z0, 60.0)
    block.aim(z0 - h, 60.0)
    begin = z0 + 0.1 * h  # another node has been at it before
    found = block.steps(begin - (z0 - h), eta, np.array([5, 1, 0]), 60.0) + (z0 - h)
    order = np.random.default_rng([5, 1, 0])
    order = order.permutation(20) if sampling == "each" else order.integers(20, size=20)
    z = begin
    for i in 10 + order:
        z = z - eta * (gradient(i, z) - gradient(i, z0) + h)
    np.testing.assert_allclose(found, z, rtol=1e-11, atol=1e-12)


@each_loss
def test_steepest_is_the_largest_bend(loss):
    naive = cases.oracle_loss(loss)
    y = np.array([-1.0, 1.0]) if naive.labels else np.array([-3.0, 0.0, 0.7, 1e6])
    C = np.linspace(0.5, 3.0, len(y))
    grid = np.unique(np.r_[0.0, np.linspace(-4.0, 4.0, 4001), 10.0 ** np.arange(1, 8)])
    core = build.core_loss(loss)
    brute = [
        max(
            core.second_derivative(np.full_like(f, y_i), np.full_like(f, C_i), f).max()
            for f in (grid, y_i - grid, y_i + grid)
        )
        for y_i, C_i in zip(y, C, strict=True)
    ]
    np.testing.assert_allclose(Loss(loss[0], **loss[1]).steepest(y, C), brute, rtol=1e-12)


def test_pieces_survive_a_pickle():
    X, y, C, _ = arrays(ODM, LINEAR)
    for rows in (X, sparse.csr_array(X)):
        piece = {
            **{"X": rows, "y": y, "C": C, "loss": Loss("logistic"), "constant": True},
            **{"n_rows": len(y), "sampling": "each", "beta": np.zeros(len(y))},
        }
        block_type, again = pickle.loads(pickle.dumps((GradientBlock, piece)))
        z = np.linspace(-1.0, 1.0, X.shape[1] + 1)
        expected = GradientBlock(**piece).gradient(z, 60.0)
        for a, b in zip(block_type(**again).gradient(z, 60.0), expected, strict=True):
            np.testing.assert_array_equal(a, b)


# --- engines and seeds ------------------------------------------------------------------------


def same_bits(one, other):
    np.testing.assert_array_equal(one.weights, other.weights)
    np.testing.assert_array_equal(one.beta, other.beta)
    assert (one.objective, one.dual, one.gap) == (other.objective, other.dual, other.gap)


@each_method
def test_every_engine_gives_the_same_bits(method, engine_of):
    problem = breast(intercept="regularized")
    solver = VarianceReduced(method, partitions=5)
    expected, _ = run(problem, solver, engine="serial", max_iter=6)
    for name in ENGINES:
        for threads in (1, 3):
            found, _ = run(problem, solver, engine=engine_of(name), threads=threads, max_iter=6)
            same_bits(found, expected)


@each_method
def test_the_seed_decides(method):
    solver = VarianceReduced(method, partitions=2)
    one, other, third = (run(breast(), solver, seed=s, max_iter=3)[0] for s in (7, 7, 8))
    same_bits(one, other)
    assert np.any(one.weights != third.weights)


def test_partitions_follow_the_engine():
    """As many nodes as workers by default."""
    seen = []

    def label(X, count):
        seen.append(count)
        return np.arange(len(X)) % count

    noting = By(label)
    for engine, threads in ((None, 3), ("serial", 3), ("threads", 2)):
        run(breast(), VarianceReduced(partition=noting), engine, threads=threads, max_iter=1)
    run(breast(), VarianceReduced(partition=noting, partitions=7), max_iter=1)
    assert seen == [3, 1, 2, 7]


def test_any_partition():
    for partition in (By(lambda X, k: np.arange(len(X)) * k // len(X)), *PARTITIONS):
        solver = VarianceReduced(partition=partition, partitions=3)
        assert error(breast(), solver, 15) <= 1e-5


def test_rows_are_stratified_as_published():
    """Every node gets the same share of each stratum, to one row, as algorithm 2 demands."""
    problem = breast()
    data, k = problem.data, 4
    marks, _ = pivots(data, 32)
    X = data.X
    stratum = np.argmin([((X - X[mark]) ** 2).sum(axis=1) for mark in marks], axis=0)
    for options, is_even in (({"as_published": True}, True), ({}, False)):
        seen = []
        solver = VarianceReduced(partitions=k, **options)
        run(problem, solver, engine=_Watching(seen), max_iter=1)
        rows = [[np.flatnonzero((row == X).all(axis=1))[0] for row in part] for part in seen]
        counts = np.array([np.bincount(stratum[part], minlength=len(marks)) for part in rows])
        assert counts.sum() == len(X)
        assert (np.ptp(counts, axis=0).max() <= 1) == is_even


class _Watching(Serial):
    """An engine that notes the rows of its pieces."""

    n_workers = 4

    def __init__(self, seen):
        self.seen = seen

    def scatter(self, block_type, pieces):
        self.seen += [piece["X"] for piece in pieces]
        return super().scatter(block_type, pieces)


def test_strata_without_the_time_for_them():
    solver = VarianceReduced(partition="stratified", partitions=2)
    left = iter((1.0, *[0.0] * 1000))
    with Progress(1e-6, time_limit=100.0) as progress:
        progress.remaining = lambda: next(left)
        (solution,) = solver.solve([breast()], Settings(1e-6, 1 << 26, 1, 0, progress))
    assert not solution.converged and not solution.beta.any()


# --- landmarks --------------------------------------------------------------------------------


def passes_of(problem):
    return Passes(problem.data, problem.block_list, _core.Team(1), lambda: 1e18)


def test_landmarks_are_the_greedy_determinant():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((25, 6))
    problem = build.problem(X, np.ones(25), 1.0, ODM, LINEAR, None)
    chosen, nearest = landmarks(problem, 6, passes_of(problem))
    expected = []
    for _ in range(6):
        tried = [[*expected, j] for j in range(25)]
        volumes = [np.linalg.det(X[t] @ X[t].T) if len(set(t)) == len(t) else 0.0 for t in tried]
        expected.append(int(np.argmax(volumes)))
    assert chosen.tolist() == expected
    distances = ((X[:, None] - X[chosen]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(nearest, distances.argmin(axis=1))


def test_landmarks_go_on_when_every_direction_is_taken():
    """The farthest row comes next, and equal rows are one landmark."""
    rng = np.random.default_rng(6)
    X = np.repeat(rng.standard_normal((20, 2)), 2, axis=0)
    problem = build.problem(X, np.ones(40), 1.0, ODM, LINEAR, None)
    chosen, nearest = landmarks(problem, 40, passes_of(problem))
    assert len(chosen) == 20
    np.testing.assert_array_equal(X[chosen[nearest]], X)
    for count in range(3, 20):
        distances = ((X[:, None] - X[chosen[:count]]) ** 2).sum(axis=2).min(axis=1)
        assert distances[chosen[count]] >= distances.max() - 1e-12


@pytest.mark.parametrize("loss", [ODM, ("huber", {"epsilon": 0.2})], ids=cases.name_of)
def test_compression_keeps_the_weight_of_every_row(loss):
    X, y, C, _ = arrays(loss, LINEAR)
    problem = build.problem(sparse.csr_array(X), y, C, loss, LINEAR, None)
    few = compressed(problem, 10, passes_of(problem))
    assert few.n_rows <= (20 if loss is ODM else 10)
    assert abs(few.C.sum() - C.sum()) <= 1e-12 * C.sum()
    assert abs(few.C @ few.y - C @ y) <= 1e-12 * C.sum()


def test_few_landmarks_tell_the_gap_of_the_whole():
    errors = []
    for count in (10, 60, 250):
        solution, progress = run(breast(), VarianceReduced("csvrg", landmarks=count), tol=1e-6)
        assert not solution.converged and progress.stop_reason is None  # it ends by itself
        assert_honest(breast(), solution)
        errors.append(solution.objective / optimum(breast()) - 1.0)
        assert solution.gap >= errors[-1] / (1.0 + errors[-1]) - 1e-12
    assert errors[0] > errors[1] > errors[2] > 1e-4


# --- budgets, starts, trouble -------------------------------------------------------------------


@each_method
def test_epochs_are_counted(method):
    solution, progress = run(breast(), VarianceReduced(method), max_iter=3)
    assert solution.n_iter == 3 and not solution.converged
    assert progress.stop_reason == "max_iter"
    assert [record["round"] for record in progress.history] == [0, 1, 2, 3]
    if method != "csvrg":
        assert [record["passes"] for record in progress.history] == [1.0, 3.0, 5.0, 7.0]
    assert_honest(breast(), solution)
    none, _ = run(breast(), VarianceReduced(method), max_iter=0)
    assert none.n_iter == 0 and not none.weights.any()
    assert_honest(breast(), none)


@each_method
def test_no_time_at_all(method):
    solution, progress = run(breast(), VarianceReduced(method), time_limit=1e-9)
    assert progress.stop_reason == "time_limit" and not solution.converged
    assert_honest(breast(), solution)


@pytest.mark.parametrize("method", ["svrg", "dsvrg"])
def test_time_limit(method):
    solution, progress = run(large(), VarianceReduced(method), time_limit=0.5)
    assert progress.stop_reason == "time_limit" and not solution.converged
    assert progress.seconds < 1.5  # half a second on an idle machine
    assert_honest(large(), solution)


def test_callbacks_end_a_fit():
    seen = []

    def enough(record):
        seen.append(record["round"])
        return record["round"] == 2

    solution, progress = run(breast(), VarianceReduced(), callbacks=enough)
    assert seen == [0, 1, 2] and solution.n_iter == 2 and progress.stop_reason == "callback"


def large():
    """Thousands of epochs of some hundredths of a second."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100_000, 40))
    y = np.where(X.sum(axis=1) + rng.standard_normal(100_000) > 0, 1.0, -1.0)
    X *= np.logspace(0.0, -3.0, 40)
    return build.problem(X, y, 1.0, ODM, LINEAR, None)


@posix
@pytest.mark.parametrize("method", ["svrg", "dsvrg"])
def test_ctrl_c_keeps_the_best_so_far(method):
    problem = large()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        begin = time.perf_counter()
        solution, progress = run(problem, VarianceReduced(method), time_limit=20.0)
        assert time.perf_counter() - begin < 3.0
    finally:
        timer.cancel()
    assert progress.stop_reason == "interrupted" and solution.stop_reason == "interrupted"
    assert not solution.converged
    assert_honest(problem, solution)


class Striking(Serial):
    """An engine where Ctrl-C strikes at one call of a method."""

    n_workers = 3

    def __init__(self, method, at):
        self.method, self.left = method, at

    def scatter(self, block_type, pieces):
        strike = self._strike

        class Struck(block_type):
            def __getattribute__(self, name):
                strike(name)
                return super().__getattribute__(name)

        return super().scatter(Struck, pieces)

    def _strike(self, name):
        if name == self.method:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


@pytest.mark.parametrize("at", [1, 2, 8, 9])
@pytest.mark.parametrize("method", ["steepness", "gradient", "aim", "steps", "keep"])
def test_ctrl_c_at_any_place(method, at):
    solution, progress = run(breast(), VarianceReduced(), Striking(method, at), max_iter=20)
    if method != "steepness" or at < 4:
        assert solution.stop_reason == "interrupted" and progress.stop_reason == "interrupted"
        assert solution.n_iter <= 4
    assert_honest(breast(), solution)


@each_method
def test_a_start_that_is_good_enough_is_left_alone(method):
    problem = breast(intercept="regularized")
    solver = VarianceReduced(method, landmarks=EVERY_ROW)
    solution, _ = run(problem, solver, tol=1e-9)
    again, progress = run(problem, solver, tol=1e-6, start=solution.beta)
    assert again.converged and again.n_iter == 0 and len(progress.history) == 1
    np.testing.assert_array_equal(again.beta, solution.beta)
    assert_honest(problem, again)


@pytest.mark.parametrize("method", ["svrg", "dsvrg"])
def test_a_good_start_saves_epochs(method):
    problem, solver = breast(), VarianceReduced(method)
    cold, _ = run(problem, solver, tol=1e-9)
    start, _ = run(problem, solver, tol=1e-4)
    warm, _ = run(problem, solver, tol=1e-9, start=start.beta)
    assert warm.converged and warm.n_iter < cold.n_iter
    assert_honest(problem, warm)
    # a start that is far away, and out of the box, does no harm
    far, _ = run(problem, solver, tol=1e-9, start=np.full(problem.n_rows, -1e3))
    assert far.converged
    for epochs in (0, 1):
        soon, _ = run(problem, solver, tol=1e-9, start=1e3 * start.beta, max_iter=epochs)
        assert soon.gap <= 1.0
        assert_honest(problem, soon)


def test_starts_that_are_no_points():
    with pytest.raises(ValueError, match="length 3"):
        run(breast(), VarianceReduced(), start=np.zeros(3))
    with pytest.raises(ValueError, match="finite"):
        run(breast(), VarianceReduced(), start=np.full(569, np.nan))


@pytest.mark.parametrize("method", ["svrg", "dsvrg"])
@pytest.mark.parametrize("step", [20.0, 1e4, 1e200])
@pytest.mark.filterwarnings("error")
def test_too_long_steps_end_with_what_was_best(method, step):
    solution, progress = run(breast(), VarianceReduced(method, step=step))
    assert not solution.converged and progress.stop_reason is None
    assert np.isfinite(solution.weights).all() and solution.gap <= 1.0
    assert_honest(breast(), solution)


def test_too_long_steps_by_estimator():
    X, y = load("breast")
    model = ODMClassifier(kernel="linear", solver=VarianceReduced(step=1e4))
    with pytest.warns(ConvergenceWarning, match="relative duality gap of 1"):
        model.fit(X, y)
    assert not model.converged_ and np.isfinite(model.decision_function(X)).all()


# --- refusals ---------------------------------------------------------------------------------


@each_method
def test_refusals_name_what_would_work(method):
    X, y = load("breast")
    solver = resolve_solver(method)
    kernel = rf"solver '{method}' cannot work with the kernel 'rbf'.*'linear'.*'exact' with every"
    with pytest.raises(ValueError, match=kernel):
        run(build.problem(X, y, 1.0, ODM, ("rbf", {"gamma": 0.1}), None), solver)
    intercept = rf"solver '{method}' cannot work with intercept='free'.*'exact' with every"
    with pytest.raises(ValueError, match=intercept):
        run(breast(intercept="free"), solver)
    loss = rf"solver '{method}' cannot work with the loss 'hinge'.*'logistic'.*'exact' with every"
    with pytest.raises(ValueError, match=loss):
        run(build.problem(X, y, 1.0, ("hinge", {}), LINEAR, None), solver)
    with pytest.raises(ValueError, match=rf"{method}.*joint problem"):
        SVC(kernel="linear", multi_class="crammer_singer", solver=method, intercept=None).fit(
            X, np.arange(len(y)) % 3
        )
    blocks = Data(RowBlocks([X[:300], X[300:]]), breast().data.kernel, np.array([0, len(y)]))
    problem = Problem(blocks, None, y, np.ones(len(y)), Loss("logistic"), None)
    with pytest.raises(ValueError, match=rf"'{method}' needs all rows in one array.*'newton'"):
        run(problem, solver)


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"method": "sag"}, r"unknown method 'sag'.*svrg, csvrg, dsvrg"),
        ({"step": 0.0}, "step must be a number > 0"),
        ({"step": np.inf}, "step must be a number > 0"),
        ({"partitions": 0}, "partitions must be at least 1"),
        ({"partitions": 1000}, "569 rows cannot be split into 1000 partitions"),
        ({"method": "csvrg", "landmarks": 0}, "landmarks must be at least 1"),
        ({"partition": "by magic"}, r"unknown partition 'by magic'.*random.*stratified"),
        ({"partition": By}, "a partition is an object, got the class By"),
        ({"method": "svrg", "as_published": True}, "as_published belongs to 'dsvrg'"),
        ({"partition": By(lambda X, k: np.zeros(5))}, "has labelled 5 rows, and there are 569"),
        ({"partition": By(lambda X, k: np.ones(len(X)))}, "part 0 of .* has no row"),
    ],
)
def test_parameters_that_make_no_sense(parameters, message):
    with pytest.raises(ValueError, match=message):
        run(breast(), VarianceReduced(**parameters))


def test_a_stalled_fit_says_what_would_help():
    X, y = load("breast")
    model = ODMClassifier(kernel="linear", solver="csvrg", tol=1e-9)
    with pytest.warns(UserWarning, match="solver='auto', or VarianceReduced"):
        model.fit(X, y)
    assert not model.converged_ and model.gap_ > 1e-9
