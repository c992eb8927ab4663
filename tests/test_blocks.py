"""Blocks that step together, and the working set among them: PBM, on every engine."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from margrave import SVC, OneClassSVM
from margrave.engines import Serial, ShardLost, recovery
from margrave.partitions import Random
from margrave.progress import Progress
from margrave.solvers import BlockMinimization, Settings, WorkingSet
from margrave.solvers.distributed import working_set as distributed
from margrave.solvers.distributed.checkpoint import Checkpoint
from margrave.solvers.line_search import best_step
from tests import build, cases, golden
from tests.data import moons200
from tests.test_divide import Given, blocks, moons

RECORDS = json.loads((Path(__file__).parent / "golden" / "blocks.json").read_text())
SOLVERS = [
    BlockMinimization(blocks=3),
    BlockMinimization(blocks=4, partition="random"),
    BlockMinimization(blocks=2, rounds=3),
    BlockMinimization(blocks=3, rounds=0),
    BlockMinimization(blocks=1),
    BlockMinimization(blocks=3, moving=False),
]
each_solver = pytest.mark.parametrize("solver", SOLVERS, ids=str)
each_loss = pytest.mark.parametrize("loss", cases.ZERO_SUM, ids=cases.name_of)


def targets(loss, n):
    """Rows, and labels or numbers as the loss asks for them."""
    X, y = moons200(n)
    if build.core_loss(loss).labels:
        return X, y
    return X, np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.1 * y


def run(problem, solver, tol=1e-6, engine="serial", start=None, **budgets):
    with Progress(tol, **budgets) as progress:
        settings = Settings(tol, 1 << 26, 2, 0, progress, engine)
        starts = None if start is None else [start]
        (solution,) = solver.solve([problem], settings, starts)
    return solution, progress


# --- rounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: f"{r['gamma']}-{r['part'][:4]}")
def test_golden_traces(record):
    problem, label = moons(record["C"], record["gamma"]), blocks(record)
    solver = BlockMinimization(
        partition=Given(label), rounds=4, inner_tol=1e-13, finish=None, moving=False
    )
    solver.blocks = 4
    _, progress = run(problem, solver, tol=1e-12)
    rounds = [entry for entry in progress.history if "step" in entry]
    assert [entry["round"] for entry in rounds] == [1, 2, 3, 4]
    found = [(entry["step"], entry["dual"]) for entry in rounds]
    np.testing.assert_allclose(found, record["trace"], rtol=1e-7)


@each_loss
@pytest.mark.parametrize("partition", ["kmeans", "random"])
def test_the_objective_falls_in_every_round(loss, partition):
    X, y = targets(loss, n=240)
    for intercept in (None, "regularized"):
        problem = build.problem(X, y, 2.0, loss, ("rbf", {"gamma": 0.5}), intercept)
        solver = BlockMinimization(blocks=4, partition=partition, rounds=6, finish=None)
        _, progress = run(problem, solver, tol=1e-9)
        duals = [entry["dual"] for entry in progress.history if "step" in entry]
        assert len(duals) >= 3
        assert all(b <= a + 1e-9 * abs(a) for a, b in itertools.pairwise(duals)), duals


@each_loss
def test_rounds_alone_come_to_the_optimum(loss):
    X, y = targets(loss, n=120)
    problem = build.problem(X, y, 1.0, loss, ("rbf", {"gamma": 0.5}), "regularized")
    solver = BlockMinimization(blocks=3, finish=None, inner_tol=1e-6)
    solution, _ = run(problem, solver, tol=1e-3, max_iter=2000)
    exact, _ = build.run(problem, tol=1e-10)
    assert solution.converged and solution.gap <= 1e-3
    assert abs(solution.dual - exact.dual) <= 1e-3 * abs(exact.dual)


@pytest.mark.parametrize("tol", [1e-3, 1e-4, 1e-6])
def test_fixed_blocks_reach_the_tolerance(tol):
    """The blocks' own tolerance falls with the gap; as it was, at 1e-2, rounds ended at 6e-3."""
    X, y = moons200(500)
    model = SVC(C=8.0, gamma=4.0, intercept=None, tol=tol, engine="serial", random_state=0)
    model.set_params(solver=BlockMinimization(blocks=6, moving=False, finish=None)).fit(X, y)
    exact = SVC(C=8.0, gamma=4.0, intercept=None, tol=tol / 100).fit(X, y)
    assert model.converged_ and model.certificate_ == "full" and model.gap_ <= tol
    assert model.objective_ == pytest.approx(exact.objective_, rel=1.01 * tol)
    duals = [record["dual"] for record in model.history_ if "step" in record]
    assert len(duals) > 10 and np.all(np.diff(duals) <= 1e-6 * abs(duals[-1]))


def test_a_number_of_rounds_is_the_reason_to_stop():
    X, y = moons200(300)
    solver = BlockMinimization(blocks=6, moving=False, finish=None, rounds=3)
    model = SVC(C=8.0, gamma=4.0, intercept=None, tol=1e-6, solver=solver)
    with pytest.warns(ConvergenceWarning, match="remove passes, rounds"):
        model.fit(X, y)
    assert model.n_iter_ == 3


def test_blocks_that_cannot_move_end():
    """With a free intercept one row alone has nowhere to go."""
    X, y = moons200(60)
    model = SVC(solver=BlockMinimization(blocks=60, finish=None), tol=1e-6, max_iter=200)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    assert model.n_iter_ < 50


def test_one_block_takes_one_whole_step():
    for loss in cases.ZERO_SUM:
        X, y = targets(loss, n=100)
        problem = build.problem(X, y, 1.0, loss, ("rbf", {"gamma": 0.5}), None)
        solver = BlockMinimization(blocks=1, rounds=1, inner_tol=1e-12, finish=None)
        solution, progress = run(problem, solver, tol=1e-8)
        assert progress.history[0]["step"] == pytest.approx(1.0, abs=1e-5)
        assert solution.converged


def test_far_blocks_are_done_after_one_round():
    X, y = golden.load("moons")
    label = np.arange(400) % 4
    X = X + 1e3 * label[:, None]
    problem = build.problem(X, y, 1.0, ("hinge", {}), ("rbf", {"gamma": 1.0}), None)
    solver = BlockMinimization(partition=Given(label), blocks=4, inner_tol=1e-11, finish=None)
    solution, progress = run(problem, solver, tol=1e-8)
    assert solution.converged and len([e for e in progress.history if "step" in e]) == 1


def test_a_variable_at_its_bound_does_not_stall_the_step():
    """With bounds min(hi - beta) and max(lo - beta) in place of the steps to them, it would."""
    problem = moons(1.0, 1.0)
    start, _ = run(problem, BlockMinimization(blocks=4, rounds=1, finish=None), tol=1e-12)
    at_bound = np.abs(start.beta) == 1.0
    assert at_bound.any() and not at_bound.all()  # the published bounds are zero here
    _, progress = run(problem, BlockMinimization(blocks=4, rounds=6, finish=None), tol=1e-12)
    steps = [entry["step"] for entry in progress.history if "step" in entry]
    assert min(steps) > 0.05


@pytest.mark.parametrize("loss, C", [("hinge", 1.0), ("hinge", 2.0), ("squared_hinge", 2.0)])
def test_printed_steps_match_a_naive_twin(loss, C):
    """Equation 13 for the hinge loss, which may stall, and Armijo's rule for the squared one."""
    X, y = moons200(60)
    problem = build.problem(X, y, C, (loss, {}), ("rbf", {"gamma": 1.0}), None)
    label = np.argsort(np.argsort(X[:, 0])) // 20
    solver = BlockMinimization(
        blocks=3, partition=Given(label), rounds=4, inner_tol=1e-13, finish=None, moving=False
    )
    _, progress = run(problem, solver.set_params(as_published=True), tol=1e-12)
    found = [(entry["step"], entry["dual"]) for entry in progress.history if "step" in entry]
    Q = np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2)) * np.outer(y, y)
    expected = printed_rounds(Q, C, label, 4, is_squared=loss == "squared_hinge")
    np.testing.assert_allclose(found, expected[: len(found)], rtol=1e-6, atol=1e-9)
    if C == 1.0:  # a variable is at its bound after the first step
        assert found[0][0] == 1.0 and all(step == 0.0 for step, _ in found[1:])


def printed_rounds(Q, C, label, rounds, is_squared):
    """Steps and objectives: 1/2 a'Qa - sum a, 0 <= a <= C, or + a^2 / 4C and no upper bound."""
    most, ridge = (np.inf, 0.5 / C) if is_squared else (C, 0.0)
    H = Q + ridge * np.eye(len(Q))
    alpha, told = np.zeros(len(Q)), []

    def value(a):
        return 0.5 * a @ H @ a - a.sum()

    for _ in range(rounds):
        target = alpha.copy()
        for part in np.unique(label):  # coordinate descent, the other blocks fixed at alpha
            rows = np.flatnonzero(label == part)
            own = H[np.ix_(rows, rows)]
            fixed = H[rows] @ alpha - own @ alpha[rows] - 1.0
            a = alpha[rows].copy()
            for _ in range(3000):
                for i in range(len(a)):
                    a[i] = np.clip(a[i] - (own[i] @ a + fixed[i]) / own[i, i], 0.0, most)
            target[rows] = a
        d = target - alpha
        descent = (H @ alpha - 1.0) @ d
        if is_squared:
            mean = 1.0 / len(np.unique(label))
            least = value(alpha + mean * d) - value(alpha)
            step = 1.0
            while value(alpha + step * d) - value(alpha) > min(0.01 * step * descent, least):
                step /= 2.0
        else:
            best = -descent / (d @ H @ d)
            step = min((C - alpha).min(), max((-alpha).max(), best))
            with np.errstate(all="ignore"):  # a longer step, which equation 13 allows, is no point
                step = min(step, np.where(d > 0.0, (C - alpha) / d, -alpha / d)[d != 0.0].min())
        alpha = alpha + step * d
        told.append((step, value(alpha)))
    return told


def test_best_step():
    rng = np.random.default_rng(0)
    for _ in range(50):  # a piecewise linear rate with jumps
        corners = np.sort(rng.uniform(0, 3, 4))
        jumps, slope = rng.uniform(0, 2, 4), rng.uniform(0.1, 1)

        def rate(t, corners=corners, jumps=jumps, slope=slope):
            return -2.0 + slope * t + (jumps * (t[:, None] >= corners)).sum(axis=1)

        t = best_step(rate, 10.0)
        assert rate(np.array([t - 1e-9]))[0] <= 1e-9
        assert t == 10.0 or rate(np.array([t + 1e-9]))[0] >= -1e-9
    assert best_step(lambda t: t - 7.0, np.inf) == pytest.approx(7.0, rel=1e-12)
    assert best_step(lambda t: t + 1.0, 2.0) == 0.0
    with np.errstate(divide="ignore"):
        assert best_step(lambda t: np.log(t), 2.0) == pytest.approx(1.0)


# --- the optimum ---------------------------------------------------------------------------------


@each_solver
@each_loss
def test_every_loss_ends_at_the_optimum(solver, loss):
    X, y = targets(loss, n=90)
    for intercept in cases.INTERCEPTS:
        problem = build.problem(X, y, 1.5, loss, ("rbf", {"gamma": 0.5}), intercept)
        exact, _ = build.run(problem, tol=1e-11)
        for tol in (1e-3, 1e-7):
            solution, _ = run(problem, solver, tol=tol)
            assert solution.converged and solution.gap <= tol
            assert solution.solver == "pbm" and solution.certificate == "full"
            assert -1e-10 * abs(exact.dual) <= solution.dual - exact.dual <= tol * abs(exact.dual)


@pytest.mark.parametrize("kernel", [*cases.KERNELS, "precomputed", "callable"], ids=str)
@pytest.mark.parametrize("layout", ["C", "csr32"])
def test_every_kernel_ends_at_the_optimum(kernel, layout):
    X, y = targets(("hinge", {}), n=80)
    if kernel == "sigmoid" or kernel[0] == "sigmoid":
        return  # not positive semidefinite: no optimum to compare with
    if kernel == "precomputed":
        X = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    elif kernel == "callable":
        kernel = _linear_plus_one
    if layout != "C" and not isinstance(kernel, tuple):
        return
    X = cases.LAYOUTS[layout](X)
    problem = build.problem(X, y, 1.0, ("hinge", {}), kernel, "free")
    exact, _ = build.run(problem, tol=1e-10)
    solution, _ = run(problem, BlockMinimization(blocks=3, partition="random"))
    assert solution.converged
    assert solution.dual == pytest.approx(exact.dual, rel=1e-6)


def _linear_plus_one(A, B):
    return np.asarray(A @ B.T) + 1.0


def test_one_class():
    X, _ = golden.load("moons")
    exact = OneClassSVM(nu=0.2, gamma=1.0, tol=1e-6).fit(X)
    found = OneClassSVM(
        nu=0.2, gamma=1.0, tol=1e-6, solver=BlockMinimization(blocks=3), engine="serial"
    ).fit(X)
    assert found.converged_ and found.objective_ == pytest.approx(exact.objective_, rel=1e-5)


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_several_classes_share_their_rows(scheme):
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    parameters = {"C": 4.0, "gamma": 0.5, "multi_class": scheme, "tol": 1e-6}
    exact = SVC(**parameters, solver="exact").fit(X, y)
    for partition in ("kmeans", "random"):
        solver = BlockMinimization(blocks=4, partition=partition)
        found = SVC(**parameters, solver=solver, engine="serial").fit(X, y)
        assert found.converged_
        np.testing.assert_allclose(found.objectives_, exact.objectives_, rtol=1e-5)
        np.testing.assert_allclose(
            found.decision_function(X), exact.decision_function(X), atol=0.02
        )


def test_a_start_at_the_optimum_is_left_alone():
    problem = moons(4.0, 1.0, intercept="free")
    exact, _ = build.run(problem, tol=1e-9)
    solution, _ = run(problem, BlockMinimization(blocks=3), tol=1e-3, start=exact.beta)
    assert solution.converged and solution.n_iter == 0
    np.testing.assert_allclose(solution.beta, exact.beta, atol=1e-12)


def test_order_of_blocks_does_not_matter():
    problem = moons(10.0, 4.0, intercept="free")
    label = np.arange(400) // 100
    first, second = (
        run(problem, BlockMinimization(blocks=4, partition=Given(at)), tol=1e-9)[0]
        for at in (label, 3 - label)
    )
    assert first.dual == pytest.approx(second.dual, rel=1e-9)


def test_the_working_set_goes_round_when_it_is_small(monkeypatch):
    """Many rounds, members that leave and come back, and several blocks that own them."""
    monkeypatch.setattr("margrave.solvers.distributed.working_set._LARGEST_SET", 12)
    for intercept in cases.INTERCEPTS:
        for loss in (("hinge", {}), ("logistic", {}), ("epsilon_insensitive", {"epsilon": 0.1})):
            X, y = targets(loss, n=120)
            problem = build.problem(X, y, 2.0, loss, ("rbf", {"gamma": 0.5}), intercept)
            solution, _ = run(problem, BlockMinimization(blocks=3, rounds=0), tol=1e-5)
            exact, _ = build.run(problem, tol=1e-10)
            assert solution.converged and solution.n_iter > 10
            assert solution.dual == pytest.approx(exact.dual, rel=2e-5)


@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
def test_rows_that_satisfy_the_conditions_are_left_out(monkeypatch, intercept):
    """And come back: nothing is left out for good, and every figure that ends a fit is of all."""
    monkeypatch.setattr(distributed, "_FEW_ROWS", 10)
    monkeypatch.setattr(distributed, "SPARE_ROWS", 0)
    monkeypatch.setattr(distributed, "_LARGEST_SET", 30)
    for loss in (
        ("hinge", {}),
        ("epsilon_insensitive", {"epsilon": 0.3}),
        ("huber", {"epsilon": 0.2}),
    ):
        X, y = targets(loss, n=400)
        problem = build.problem(X, y, 5.0, loss, ("rbf", {"gamma": 2.0}), intercept)
        exact, _ = build.run(problem, tol=1e-10)
        for tol in (1e-3, 1e-6):
            solution, progress = run(problem, BlockMinimization(blocks=3, rounds=0), tol=tol)
            assert solution.converged
            assert solution.dual == pytest.approx(exact.dual, rel=tol)
            fewest = min(entry.get("active", 400) for entry in progress.history)
            assert loss[0] != "hinge" or fewest < 300


def test_foreign_rows_do_not_depend_on_what_is_kept(rng):
    from margrave import _core
    from margrave.kernels import Kernel, core_rows

    own, others = rng.normal(size=(301, 7)), rng.normal(size=(90, 7))
    for dtype in (np.float32, np.float64):
        X, Z = own.astype(dtype), others.astype(dtype)
        for kernel in (Kernel("rbf", gamma=0.3), Kernel("poly", gamma=0.3), Kernel("laplacian")):
            values = kernel.values(X, Z)
            for precision in ("float32", "float64"):
                stores = [
                    _core.ForeignRows(core_rows(X), kernel.core(), precision, memory, threads)
                    for memory, threads in ((0, 1), (1 << 24, 1), (1 << 24, 2), (20_000, 1))
                ]
                for _ in range(12):
                    at = rng.choice(90, 40, replace=False)
                    change = rng.normal(size=40)
                    first, *rest = (s.add(core_rows(Z), at, at, change) for s in stores)
                    np.testing.assert_allclose(first, values[:, at] @ change, rtol=0, atol=1e-3)
                    for other in rest:
                        np.testing.assert_array_equal(other, first)
                assert stores[1].kernel_values < stores[0].kernel_values
    with pytest.raises(ValueError, match="another kind"):
        stores[0].add(core_rows(np.ones((2, 3))), np.arange(2), np.arange(2), np.ones(2))
    with pytest.raises(ValueError, match="wrong length"):
        stores[0].add(core_rows(np.ones((2, 7))), np.arange(2), np.arange(3), np.ones(2))
    for place in (-1, 2):
        with pytest.raises(ValueError, match="not there"):
            stores[0].add(core_rows(np.ones((2, 7))), np.array([place]), np.arange(1), np.ones(1))


# --- models that come early ----------------------------------------------------------------------


def test_the_blocks_own_model_comes_early():
    X, y = golden.load("moons")
    seen = []
    solver = BlockMinimization(blocks=4)
    model = SVC(C=10.0, gamma=4.0, solver=solver, engine="serial")

    def look(record):
        if hasattr(model, "early_"):
            seen.append((model.early_.certificate_, model.early_.score(X, y)))

    model.set_params(callbacks=look).fit(X, y)
    assert seen and seen[0][0] == "blocks" and seen[0][1] > 0.8
    assert model.certificate_ == "full"


@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
@pytest.mark.filterwarnings("ignore:SVC stopped")
def test_local_prediction_after_every_round(intercept):
    """Each block predicts with its own variables from before the step, and others' as they were."""
    X, y = golden.load("moons")
    finish = "working_set" if intercept == "free" else None
    fit = SVC(C=10.0, gamma=4.0, intercept=intercept, engine="serial", tol=1e-9)
    found = []

    def look(record):
        if "step" in record and record["round"] <= 3:
            early = fit.early_
            local = early.decision_function(X), early._local.assign(X, 1)
            found.append((*local, record["step"], early.gap_ == record["gap"]))

    solver = BlockMinimization(4, "kmeans", 3, moving=False, finish=finish)
    fit.set_params(solver=solver, callbacks=look).fit(X, y)
    assert [same for *_, same in found] == [False, True, True] and fit.early_._shared is None
    K = np.exp(-4.0 * ((X[:, None] - X[None]) ** 2).sum(axis=2)) + (intercept == "regularized")
    before = np.zeros(len(X))
    for rounds, (local, block, step, _) in enumerate(found, 1):
        solver = BlockMinimization(4, "kmeans", rounds, moving=False, finish=None)
        alone = None if intercept == "free" else intercept  # blocks have no free intercept
        stopped = SVC(C=10.0, gamma=4.0, intercept=alone, engine="serial", tol=1e-9)
        with pytest.warns(UserWarning, match="rounds"):
            stopped.set_params(solver=solver).fit(X, y)
        beta = np.zeros(len(X))
        beta[stopped.support_] = stopped.dual_coef_[0]
        own = (block[:, None] == block[None]) * ((beta - before) / step)
        np.testing.assert_allclose(local, K @ before + (K * own).sum(axis=1), atol=1e-4)
        before = beta


def test_without_time_the_blocks_own_model_stands():
    X, y = golden.load("moons")
    model = SVC(C=10.0, gamma=4.0, solver=BlockMinimization(blocks=4), engine="serial")
    model.set_params(callbacks=lambda record: "step" in record)
    with pytest.warns(UserWarning, match="callback asked to stop"):
        model.fit(X, y)
    assert model.score(X, y) > 0.8


# --- what moves ----------------------------------------------------------------------------------


def test_bytes_of_a_round(monkeypatch):
    """Candidates, new rows, and a number per member: no number per row."""
    X, y = moons200(4000)
    q, d, k = 128, X.shape[1], 2
    monkeypatch.setattr("margrave.solvers.distributed.working_set._LARGEST_SET", q)
    problem = build.problem(X, y, 1.0, ("hinge", {}), ("rbf", {"gamma": 0.5}), None)
    _, progress = run(problem, BlockMinimization(blocks=k, rounds=0), tol=1e-3)
    rounds = [
        entry["bytes"] for entry in progress.history if entry.get("bytes") and "own_gap" in entry
    ]
    candidates = k * (q // 2) * 16  # rate and place
    rows = (q // 2) * (8 * d + 4 * 8) * (1 + k)  # to the driver, and from it to all
    values = k * q * 8
    assert len(rounds) > 3
    assert np.median(rounds) <= 1.5 * (candidates + rows + values)


# --- workers that are lost -----------------------------------------------------------------------


class Fragile:
    """An engine whose workers are lost at given calls."""

    n_workers, is_remote = 2, True

    def __init__(self, *when):
        self.when, self.calls, self.scattered = set(when), 0, 0

    def share(self, at_work, threads, memory):
        return 1, memory // 2

    def scatter(self, block_type, pieces):
        self.scattered += 1
        shards = Serial().scatter(block_type, pieces)
        original = shards._run

        def fails(method, calls):
            self.calls += 1
            if self.calls in self.when:
                for number, args in calls[:1]:  # one has made its step, the other has not
                    original(method, [(number, args)])
                raise ShardLost(["worker 1"], "gone")
            return original(method, calls)

        shards._run = fails
        return shards


@pytest.mark.parametrize("moving", [True, False])
@pytest.mark.parametrize(("intercept", "few"), [(None, 5000), ("free", 5000), ("free", 10)])
def test_lost_workers_change_nothing(monkeypatch, intercept, few, moving):
    monkeypatch.setattr(distributed, "_LARGEST_SET", 40)
    monkeypatch.setattr(distributed, "_BETWEEN_CHECKPOINTS", 3)
    monkeypatch.setattr(distributed, "_FEW_ROWS", few)
    monkeypatch.setattr(distributed, "SPARE_ROWS", 0)
    problem = moons(10.0, 4.0, intercept=intercept)
    solver = BlockMinimization(blocks=3, rounds=3 if moving else 2, moving=moving)
    quiet = Fragile()
    expected, _ = run(problem, solver, tol=1e-5, engine=quiet)
    assert expected.converged and quiet.calls > 40
    for when in range(1, quiet.calls + 1, 3 if moving else 7):
        engine = Fragile(when, when + 9)
        solution, _ = run(problem, solver, tol=1e-5, engine=engine)
        assert engine.scattered >= 2
        np.testing.assert_array_equal(solution.beta, expected.beta)
        assert solution.gap == expected.gap and solution.n_iter == expected.n_iter


def test_rare_checkpoints_change_nothing(monkeypatch):
    monkeypatch.setattr("margrave.solvers.distributed.working_set._LARGEST_SET", 40)
    problem = moons(10.0, 4.0, intercept="free")
    solver = BlockMinimization(blocks=3)
    expected, _ = run(problem, solver, tol=1e-5, engine=Fragile())
    for when in (4, 20, 33, 47):
        solution, _ = run(problem, solver, tol=1e-5, engine=Fragile(when))
        np.testing.assert_array_equal(solution.beta, expected.beta)


def test_workers_that_never_stay(monkeypatch):
    monkeypatch.setattr(recovery, "MOST_LOSSES", 3)
    with pytest.raises(RuntimeError, match=r"lost 4 times.*worker 1: gone"):
        run(moons(), BlockMinimization(blocks=2), engine=Fragile(*range(1000)))


def test_parts_survive_lost_workers():
    from margrave.solvers import Cascade, DivideAndConquer, MergeTree

    problem = moons(4.0, 1.0)
    for solver in (DivideAndConquer(levels=2, early=1), Cascade(leaves=4), MergeTree(levels=1)):
        expected, _ = run(problem, solver, tol=1e-4, engine=Fragile())
        solution, _ = run(problem, solver, tol=1e-4, engine=Fragile(1, 4))
        np.testing.assert_array_equal(solution.beta, expected.beta)


def test_epochs_survive_lost_workers():
    from margrave.solvers import VarianceReduced

    X, y = golden.load("moons")
    problem = build.problem(X, y, 0.1, ("squared_hinge", {}), ("linear", {}), None)
    solver = VarianceReduced(partitions=3)
    expected, _ = run(problem, solver, tol=1e-6, engine=Fragile())
    solution, _ = run(problem, solver, tol=1e-6, engine=Fragile(5, 17))
    np.testing.assert_array_equal(solution.beta, expected.beta)


def test_what_is_left_out_counts_when_the_time_is_over(monkeypatch):
    """The gap that a stopped fit tells is that of all rows, not of those it looked at last."""
    monkeypatch.setattr(distributed, "_FEW_ROWS", 10)
    monkeypatch.setattr(distributed, "SPARE_ROWS", 0)
    monkeypatch.setattr(distributed, "_LARGEST_SET", 20)
    problem = moons(10.0, 4.0, intercept="free")
    seen = 0
    for rounds in range(20, 120, 7):
        stop = lambda record, rounds=rounds: record["round"] >= rounds  # noqa: E731
        with Progress(1e-6, callbacks=stop) as progress:
            settings = Settings(1e-6, 1 << 26, 1, 0, progress, "serial")
            (found,) = BlockMinimization(blocks=3, rounds=0).solve([problem], settings)
        seen += any(entry.get("active", 400) < 400 for entry in progress.history)
        X = problem.data.X
        f = np.exp(-4.0 * ((X[:, None] - X[None]) ** 2).sum(axis=2)) @ found.beta
        primal, dual = problem.terms(found.beta, f, found.intercept)
        assert (primal + dual) / max(abs(primal), abs(dual)) == pytest.approx(found.gap, rel=1e-4)
    assert seen > 5


# --- checkpoints in a folder ---------------------------------------------------------------------


class Killed(Exception):
    pass


FIXED = [(1, 5000), (5, 5000), (12, 5000), (12, 10), (18, 10)]
MOVING = [(1, 5000), (2, 5000), (4, 5000), (7, 5000)]


@pytest.mark.parametrize(
    ("moving", "after", "few"),
    [*((False, *one) for one in FIXED), *((True, *one) for one in MOVING)],
)
def test_a_killed_run_is_resumed(tmp_path, monkeypatch, moving, after, few):
    monkeypatch.setattr("margrave.solvers.distributed.working_set._LARGEST_SET", 40)
    monkeypatch.setattr(distributed, "_FEW_ROWS", few)
    monkeypatch.setattr(distributed, "SPARE_ROWS", 0)
    monkeypatch.setattr(distributed, "_BETWEEN_CHECKPOINTS", 1)
    X, y = golden.load("moons")
    how = {"moving": moving, "rounds": 4 if moving else None}
    expected = SVC(
        C=10.0, gamma=4.0, tol=1e-6, solver=BlockMinimization(blocks=3, **how), engine="serial"
    ).fit(X, y)
    records = []

    def kill(record):
        records.append(record)
        if len(records) == after:
            raise Killed

    solver = BlockMinimization(blocks=3, checkpoint=tmp_path, **how)
    model = SVC(C=10.0, gamma=4.0, tol=1e-6, solver=solver, engine="serial", callbacks=kill)
    with pytest.raises(Killed):
        model.fit(X, y)
    kept = tmp_path / "margrave-checkpoint.npz"
    assert kept.exists()
    records.extend([None] * 1000)
    # with another number of workers the blocks are still those of the checkpoint
    solver = BlockMinimization(blocks=3 if moving else None, checkpoint=tmp_path, **how)
    again = SVC(C=10.0, gamma=4.0, tol=1e-6, solver=solver, engine="threads")
    again.fit(X, y)
    np.testing.assert_array_equal(again.dual_coef_, expected.dual_coef_)
    assert again.gap_ == expected.gap_ and not kept.exists()


def test_several_problems_are_resumed(tmp_path, monkeypatch):
    from sklearn.datasets import load_iris

    monkeypatch.setattr("margrave.solvers.distributed.working_set._LARGEST_SET", 20)
    monkeypatch.setattr(distributed, "_BETWEEN_CHECKPOINTS", 1)
    X, y = load_iris(return_X_y=True)
    parameters = {"C": 4.0, "gamma": 0.5, "engine": "serial", "multi_class": "ovr"}
    expected = SVC(**parameters, solver=BlockMinimization(blocks=2)).fit(X, y)
    solver = BlockMinimization(blocks=2, checkpoint=tmp_path)

    def kill(record):
        if record.get("where") == "problem 2 of 3" and record["round"] > 2:
            raise Killed

    with pytest.raises(Killed):
        SVC(**parameters, solver=solver, callbacks=kill).fit(X, y)
    again = SVC(**parameters, solver=solver).fit(X, y)
    np.testing.assert_array_equal(again.dual_coef_.shape, expected.dual_coef_.shape)
    np.testing.assert_allclose(again.objectives_, expected.objectives_, rtol=1e-12)


MINE = {"version": "1", "parameters": "p", "targets": "t", "weights": "w", "rows": [[5, "r"]]}


def test_checkpoints_of_others_are_refused(tmp_path):
    X, y = golden.load("moons")
    Checkpoint(tmp_path, {**MINE, "version": "0.1"}).save({}, {})
    with pytest.raises(ValueError, match="belongs to other data or parameters"):
        SVC(solver=BlockMinimization(checkpoint=tmp_path)).fit(X, y)
    (tmp_path / "margrave-checkpoint.npz").write_bytes(b"half a file")
    with pytest.raises(ValueError, match="cannot be read"):
        SVC(solver=BlockMinimization(checkpoint=tmp_path)).fit(X, y)


def test_a_checkpoint_tells_what_is_other(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 2))
    y, weight = X[:, 0] > 0, np.ones(20_000)

    def stop(record):
        raise InterruptedError

    def fit(X=X, y=y, weight=weight, **more):
        solver = BlockMinimization(blocks=2, partition="random", checkpoint=tmp_path)
        given = {"C": 1.0, "gamma": 1.0, "callbacks": stop, **more}
        return SVC(solver=solver, **given).fit(X, y, weight)

    with pytest.raises(InterruptedError):
        fit()
    for what, other in {
        "other parameters": {"gamma": 2.0},
        "other weights, or C": {"C": 2.0},
        "other labels": {"y": np.where(np.arange(20_000) == 17, ~y, y)},
        "other weights": {"weight": np.where(np.arange(20_000) == 17, 2.0, weight)},
        "other rows, from 16,384 to 19,999": {
            "X": np.where(np.arange(20_000)[:, None] == 17_000, X + 1.0, X)
        },
    }.items():
        with pytest.raises(ValueError, match=what):
            fit(**other)
    with pytest.raises(InterruptedError):  # the same are not refused
        fit()


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_checkpoints_know_every_row(tmp_path, layout):
    """Of 5,000 rows one in the middle is another: a resumed fit would certify what it never saw."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 3))
    y = X[:, 0] > 0

    def stop(record):
        raise InterruptedError

    solver = BlockMinimization(blocks=2, checkpoint=tmp_path)
    with pytest.raises(InterruptedError):
        SVC(solver=solver, callbacks=stop).fit(layout(X), y)
    X[2517] += 1.0
    with pytest.raises(ValueError, match="belongs to other data or parameters"):
        SVC(solver=solver).fit(layout(X), y)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_checkpoints_that_are_damaged(tmp_path, share):
    kept = Checkpoint(tmp_path, MINE)
    kept.save({"beta": np.arange(1000.0)}, {"round": 2})
    file = tmp_path / "margrave-checkpoint.npz"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match="cannot be read"):
        kept.load()
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    with pytest.raises(ValueError, match="cannot be read"):
        kept.load()


def test_a_full_disk_does_not_end_a_fit(tmp_path, monkeypatch, caplog):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("margrave.solvers.distributed.checkpoint.os.replace", full)
    X, y = golden.load("moons")
    model = SVC(solver=BlockMinimization(blocks=2, checkpoint=tmp_path)).fit(X, y)
    assert model.converged_ and "No space left" in caplog.text


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    kept = Checkpoint(tmp_path, MINE)
    kept.save({"beta": np.zeros(3)}, {})
    monkeypatch.setattr("margrave.solvers.distributed.checkpoint.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        kept.save({"beta": np.ones(3)}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["margrave-checkpoint.npz"]
    assert kept.load()[0]["beta"].tolist() == [0.0, 0.0, 0.0]  # the last one is whole


def test_an_altered_checkpoint_is_refused(tmp_path):
    """Also if whoever altered it has kept the format."""
    kept = Checkpoint(tmp_path, MINE)
    kept.save({"beta": np.arange(3.0)}, {"round": 2})
    file = tmp_path / "margrave-checkpoint.npz"
    with np.load(file) as found:
        arrays = dict(found)
    arrays["beta"][1] = 7.0
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match="altered"):
        kept.load()


def test_checkpoints_where_fsspec_says():
    pytest.importorskip("fsspec")
    kept = Checkpoint("memory://somewhere/run", MINE)
    assert kept.load() is None
    kept.save({"beta": np.arange(3.0)}, {"round": 2})
    arrays, numbers = kept.load()
    assert numbers == {"round": 2} and arrays["beta"].tolist() == [0.0, 1.0, 2.0]
    kept.remove()
    assert kept.load() is None


# --- bad input -----------------------------------------------------------------------------------

BAD = [
    ({"blocks": 0}, "blocks must be a whole number, at least 1"),
    ({"blocks": 401}, "400 rows cannot be split into 401 blocks"),
    ({"rounds": -1}, "rounds must be a whole number"),
    ({"inner_tol": 0.0}, "inner_tol must be a positive number"),
    ({"inner_tol": "x"}, "inner_tol must be a positive number"),
    ({"inner_tol": np.inf}, "inner_tol must be a positive number, and finite, got inf"),
    ({"inner_tol": np.nan}, "inner_tol must be a positive number"),
    ({"inner_tol": True}, "inner_tol must be a positive number"),
    ({"moving": "no"}, "moving must be True or False, got 'no'"),
    ({"moving": None}, "moving must be True or False, got None"),
    ({"checkpoint": 3}, "checkpoint must be a folder, as a string or path, got 3"),
    ({"partition": Random, "blocks": 1}, "got the class Random"),
    ({"finish": "newton"}, "finish must be 'working_set' or None"),
    ({"finish": None, "moving": False}, "finish=None cannot find a free intercept"),
    ({"partition": "circles", "blocks": 2}, "unknown partition 'circles'"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD, ids=str)
def test_bad_parameters(parameters, message):
    X, y = golden.load("moons")
    with pytest.raises(ValueError, match=message):
        SVC(solver=BlockMinimization(**parameters)).fit(X, y)


@pytest.mark.parametrize("make", [BlockMinimization, WorkingSet])
def test_a_working_set_has_at_most_all_rows(make):
    X, y = golden.load("moons")
    large, whole = (SVC(solver=make(size=n)).fit(X, y) for n in (10**12, len(y)))
    np.testing.assert_array_equal(large.dual_coef_, whole.dual_coef_)


def test_time_and_rounds_are_limited():
    X, y = golden.load("moons")
    for limit in ({"max_iter": 1}, {"max_iter": 3}, {"time_limit": 1e-3}):
        model = SVC(C=100.0, gamma=4.0, tol=1e-9, solver="pbm", engine="serial", **limit)
        with pytest.warns(UserWarning, match="stopped at a relative duality gap"):
            model.fit(X, y)
        assert np.isfinite(model.decision_function(X)).all()
