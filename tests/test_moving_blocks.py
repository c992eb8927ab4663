"""Blocks that move: a new partition in every round, forced on small problems."""

import itertools

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from margrave import SVC, load
from margrave.engines import Recovery, Serial, Threads
from margrave.losses import Loss
from margrave.partitions import Parts
from margrave.solvers import BlockMinimization, DivideAndConquer
from margrave.solvers.divide import divide_and_conquer, levels
from margrave.solvers.kernel import active_set, moving_blocks, working_set
from margrave.solvers.kernel.copies import Copies
from margrave.solvers.kernel.moving_blocks import BlockPlan, MovingBlocks
from tests import build, cases, golden
from tests.data import moons200
from tests.test_blocks import run, targets
from tests.test_divide import blobs

each_loss = pytest.mark.parametrize("loss", cases.ZERO_SUM, ids=cases.name_of)
RBF = ("rbf", {"gamma": 0.5})


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch):
    for module in (working_set, divide_and_conquer):
        monkeypatch.setattr(module, "_MANY_ROWS", 60)
    monkeypatch.setattr(divide_and_conquer, "_VERY_MANY_ROWS", 60)
    monkeypatch.setattr(active_set, "SPARE_ROWS", 5)
    monkeypatch.setattr(levels, "_FINEST_SIZE", 20)
    monkeypatch.setattr(moving_blocks, "_BLOCK_ROWS", 25)
    monkeypatch.setattr(moving_blocks, "_ENOUGH", 0)


def rounds_of(progress):
    """Records of rounds of blocks on active rows."""
    return [record for record in progress.history if "step" in record and "active" in record]


def moving(problem, engine, precision="float64", **plan):
    """The core of a problem with blocks that move, from zero."""
    rows = problem.data.kernel_rows(precision, 1 << 24, 1 << 20, 1, problem.offset)
    core = problem.core(rows, None, 64, 1e-9)
    core.advance(0.0, 0, 1.0, 1e9)
    made = BlockPlan(engine, 0, 1 << 24, 2, **plan)
    copies = Copies(engine, made.recovery, precision, 1e-9, made.memory, made.threads)
    copies.choose(problem, np.arange(problem.n_rows))
    return MovingBlocks(problem, core, 1e-9, made, copies)


# --- the optimum ---------------------------------------------------------------------------------


@each_loss
@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
def test_clusters_then_blocks_end_at_the_optimum(loss, intercept):
    X, y = targets(loss, n=240)
    problem = build.problem(X, y, 1.5, loss, RBF, intercept)
    exact, _ = build.run(problem, tol=1e-11)
    for tol in (1e-3, 1e-7):
        solution, progress = run(problem, DivideAndConquer(), tol=tol, engine="threads")
        assert solution.converged and solution.certificate == "full" and solution.solver == "dc"
        assert -1e-10 * abs(exact.dual) <= solution.dual - exact.dual <= tol * abs(exact.dual)
        is_dense = Loss(loss[0], **loss[1]).is_dense
        assert bool(rounds_of(progress)) != is_dense


@pytest.mark.parametrize("kernel", cases.KERNELS, ids=cases.name_of)
@pytest.mark.parametrize("layout", ["C", "csr32"])
def test_every_kernel(kernel, layout):
    X, y = targets(("hinge", {}), n=150)
    if kernel[0] == "sigmoid":
        return  # not positive semidefinite: no optimum to compare with
    problem = build.problem(cases.LAYOUTS[layout](X), y, 1.0, ("hinge", {}), kernel, "free")
    exact, _ = build.run(problem, tol=1e-10)
    solution, progress = run(problem, BlockMinimization(blocks=3, rounds=4), tol=1e-6)
    assert solution.converged and len(rounds_of(progress)) == 3
    assert abs(solution.dual - exact.dual) <= 1e-6 * abs(exact.dual)


@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
@pytest.mark.parametrize(
    "loss",
    [("hinge", {}), ("logistic", {}), ("epsilon_insensitive", {"epsilon": 0.1})],
    ids=cases.name_of,
)
def test_blocks_alone_reach_any_tolerance(loss, intercept):
    """Where fixed blocks would push rows back and forth, and could not find the intercept."""
    X, y = golden.load("moons")
    y = y if build.core_loss(loss).labels else X[:, 0] + 0.3 * y
    problem = build.problem(X, y, 1.0, loss, ("rbf", {"gamma": 1.0}), intercept)
    exact, _ = build.run(problem, tol=1e-10)
    solution, progress = run(problem, BlockMinimization(blocks=4, finish=None), tol=1e-6)
    assert solution.converged and solution.gap <= 1e-6
    assert abs(solution.dual - exact.dual) <= 1e-6 * abs(exact.dual)
    assert len(rounds_of(progress)) > 3


def test_one_class():
    X, _ = golden.load("moons")
    problem = build.problem(X, np.ones(400), 1.0, ("one_class", {}), RBF, "free", total=40.0)
    exact, _ = build.run(problem, tol=1e-9)
    solution, progress = run(problem, BlockMinimization(blocks=4, rounds=4), tol=1e-6)
    assert solution.converged and rounds_of(progress)
    assert solution.objective == pytest.approx(exact.objective, rel=2e-6)


# --- a round -------------------------------------------------------------------------------------


@each_loss
@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
def test_the_dual_falls_in_every_round(loss, intercept):
    X, y = targets(loss, n=200)
    core = moving(build.problem(X, y, 2.0, loss, RBF, intercept), Threads(2), has_set=False)
    duals = [core.figures()["dual"]]
    for _ in range(6):
        status, records = core.advance(0.0, 1, 1.0, 1e9)
        duals += [record["dual"] for record in records]
        if status == "stalled":
            break
    assert len(duals) >= 4
    assert all(b <= a + 1e-9 * abs(a) for a, b in itertools.pairwise(duals)), duals


@each_loss
def test_the_step_is_the_best_of_all(loss):
    X, y = targets(loss, n=120)
    problem = build.problem(X, y, 2.0, loss, RBF, None)
    core, rng = moving(problem, Serial()), np.random.default_rng(0)
    lo, hi = problem.loss.core(1e-9).box(problem.y, problem.C)
    lo, hi = np.maximum(lo, -2.0), np.minimum(hi, 2.0)
    beta, goal = (lo + (hi - lo) * rng.uniform(0.1, 0.9, len(y)) for _ in range(2))
    K, change = problem.data.kernel.values(X, X), goal - beta
    h = problem.loss.core(1e-9).conjugate

    def dual(t):
        at = beta + t * change
        return 0.5 * at @ K @ at + h(problem.y, problem.C, at).sum()

    step = core._step(beta, K @ beta, np.arange(len(y)), change, K @ change)
    best = min(map(dual, np.linspace(0.0, 1.0, 2001)))
    assert dual(step) <= best + 1e-9 * abs(best)


def test_partitions_are_new_in_every_round_and_no_block_is_large():
    X, y = moons200(400)
    core = moving(build.problem(X, y, 1.0, ("hinge", {}), RBF, None), Serial())
    seen = []
    for _ in range(3):
        blocks = core._blocks(core.beta)
        np.testing.assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(400))
        assert max(map(len, blocks)) <= 2 * 400 / 16
        seen.append({rows.tobytes() for rows in blocks})
        core.plan.done += 1
    assert not seen[0] & seen[1] and not seen[1] & seen[2]


class OneLarge:
    """A partition with one part of nearly all rows."""

    def split(self, data, k, seed, among=None, y=None, threads=1):
        return Parts((np.arange(data.n_rows) < k - 1) * np.arange(1, data.n_rows + 1) % k)


@pytest.mark.parametrize("kernel", [RBF, "precomputed"], ids=str)
def test_large_blocks_are_halved(kernel):
    X, y = moons200(200)
    X = X if kernel == RBF else X @ X.T
    problem = build.problem(X, y, 1.0, ("hinge", {}), kernel, None)
    core = moving(problem, Serial(), blocks=4, partition=OneLarge())
    blocks = core._blocks(core.beta)
    assert len(blocks) > 4 and max(map(len, blocks)) <= 100
    np.testing.assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(200))


@pytest.mark.parametrize("blocks", [1, 7, 90])
def test_any_number_of_blocks(blocks):
    """One block is the working set, one per row coordinate descent."""
    X, y = moons200(90)
    problem = build.problem(X, y, 1.0, ("hinge", {}), RBF, None)
    exact, _ = build.run(problem, tol=1e-10)
    solution, _ = run(problem, BlockMinimization(blocks=blocks, rounds=5), tol=1e-6)
    assert solution.converged
    assert solution.dual == pytest.approx(exact.dual, rel=1e-6)


def test_blocks_of_one_class():
    X, y = moons200(120)
    X = X + 50.0 * (y > 0)[:, None]
    problem = build.problem(X, y, 1.0, ("hinge", {}), RBF, "free")
    exact, _ = build.run(problem, tol=1e-10)
    solution, _ = run(problem, BlockMinimization(blocks=4), tol=1e-6)
    assert solution.converged
    assert solution.objective == pytest.approx(exact.objective, rel=2e-6)


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tol", [1e-3, 1e-9])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_no_more_rounds_than_asked_for(rounds, tol):
    """Those in single precision count, too; without a working set the fit ends there."""
    X, y = moons200(300)
    problem = build.problem(X, y, 4.0, ("hinge", {}), ("rbf", {"gamma": 4.0}), None)
    solver = BlockMinimization(blocks=5, rounds=rounds, finish=None)
    solution, progress = run(problem, solver, tol=tol)
    assert len(rounds_of(progress)) <= rounds - 1
    assert solution.n_iter <= rounds


def test_a_free_intercept_needs_blocks_that_move():
    X, y = moons200(100)
    model = SVC(gamma=2.0, solver=BlockMinimization(blocks=4, rounds=1, finish=None))
    with pytest.raises(ValueError, match="cannot find a free intercept"):
        model.fit(X, y)


def test_copies_that_do_not_fit_into_memory():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 200))
    y = X[:, 0] > 0.0
    model = SVC(gamma=1e-3, intercept=None, memory_limit="10MiB")
    with pytest.raises(ValueError, match=r"copies of the rows, which take 13.7 MiB.*memory_limit"):
        model.set_params(solver=BlockMinimization(blocks=4, finish=None)).fit(X, y)
    model.set_params(solver=BlockMinimization(blocks=4)).fit(X, y)
    assert model.converged_ and not [r for r in model.history_ if "step" in r and "active" in r]


class Watched:
    """A partition at random that keeps the classes it was asked with."""

    def split(self, data, k, seed, among=None, y=None, threads=1):
        self.y = y
        return Parts(np.arange(data.n_rows) % k)


@pytest.mark.parametrize("loss", ["hinge", "squared_epsilon_insensitive"])
def test_partitions_know_the_classes(loss):
    X, y = moons200(100)
    watched = Watched()
    problem = build.problem(X, y, 1.0, (loss, {}), RBF, None)
    core = moving(problem, Serial(), blocks=4, partition=watched)
    core._blocks(core.beta)
    np.testing.assert_array_equal(watched.y, y if loss == "hinge" else None)


# --- where it runs -------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
@pytest.mark.parametrize("tol", [1e-3, 1e-7])
def test_the_same_bits_on_any_number_of_workers(intercept, tol):
    X, y = moons200(300)
    problem = build.problem(X, y, 4.0, ("hinge", {}), ("rbf", {"gamma": 4.0}), intercept)
    solver = BlockMinimization(blocks=5, rounds=6)
    expected, _ = run(problem, solver, tol=tol, engine=Serial())
    for engine in (Threads(1), Threads(2), Threads(3)):
        solution, _ = run(problem, solver, tol=tol, engine=engine)
        np.testing.assert_array_equal(solution.beta, expected.beta)
        assert solution.gap == expected.gap


@pytest.mark.parametrize("layout", ["C", "csr32"])
@pytest.mark.parametrize("kernel", [RBF, "precomputed"], ids=str)
def test_only_new_rows_are_sent(layout, kernel):
    """The copies are the same as if they had been made anew."""
    X, y = moons200(300)
    X = np.hstack([X, np.ones((300, 30))])
    X = X @ X.T if kernel == "precomputed" else cases.LAYOUTS[layout](X)
    whole = build.problem(X, y, 1.0, ("hinge", {}), kernel, None)
    rng = np.random.default_rng(0)
    first, second = (np.sort(rng.choice(300, size, replace=False)) for size in (250, 200))
    second = np.union1d(second, [0, 299])

    def made():
        return Copies(Serial(), Recovery(), "float64", 1e-9, 1 << 24, 1)

    def sums(copies, rows):
        copies.choose(whole.restrict(rows), rows)
        every, before = np.arange(len(rows)), copies.moved
        change = np.ones(len(rows))
        [(found, _)] = copies.ask(lambda shards: shards.map("spread", every, change, 1e18))
        return found, copies.moved - before

    copies, fresh = made(), made()
    _, sent_at_first = sums(copies, first)
    found, sent = sums(copies, second)
    np.testing.assert_array_equal(found, sums(fresh, second)[0])
    if kernel != "precomputed":
        assert sent < 0.5 * sent_at_first
    copies.close()
    fresh.close()


def test_bytes_of_rounds():
    """At most a few numbers per active row for each worker and round."""
    X, y = moons200(400)
    model = SVC(C=4.0, gamma=4.0, solver=BlockMinimization(blocks=5, rounds=6), engine="serial")
    model.fit(X, y)
    rounds = [record for record in model.history_ if "active" in record and "step" in record]
    assert rounds and all(0 < record["bytes"] < 100 * record["active"] for record in rounds)


def test_history_and_early_models():
    X, y = moons200(400)
    model = SVC(C=4.0, gamma=4.0, solver="dc").fit(X, y)
    assert model.early_.certificate_ == "blocks" and model.certificate_ == "full"
    rounds = [record for record in model.history_ if "step" in record and "active" in record]
    assert rounds and all(0.0 <= record["step"] <= 1.0 for record in rounds)
    values = [record["kernel_values"] for record in model.history_ if "violation" in record]
    assert values == sorted(values)


@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
@pytest.mark.parametrize("solver", [DivideAndConquer(), BlockMinimization(blocks=5)], ids=str)
def test_a_model_after_every_round_of_blocks(solver, intercept):
    """It is the one that the fit would end with if it were stopped there."""
    X, y = moons200(400)
    model = SVC(C=4.0, gamma=4.0, intercept=intercept, solver=solver, engine="serial")
    seen = []

    def look(record):
        if "active" in record and "step" in record:
            early = model.early_
            if record["gap"] > 0.1:  # those of the blocks predict better
                assert early.certificate_ == "blocks"
                return
            assert early.certificate_ == "estimate" and not early.converged_
            assert early.gap_ == record["gap"] and early.objective_ == record["objective"]
            seen.append((early.decision_function(X), early.score(X, y)))

    def stop(record):
        return "active" in record and "step" in record and record["gap"] <= 0.1

    model.set_params(callbacks=look).fit(X, y)
    assert seen and all(accuracy > 0.95 for _, accuracy in seen)
    assert model.early_.certificate_ == "blocks"  # the last model of parts
    with pytest.warns(ConvergenceWarning):
        model.set_params(callbacks=stop).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), seen[0][0], atol=0.2)


def test_without_blocks_that_move():
    X, y = moons200(400)
    published = SVC(C=4.0, gamma=4.0, solver=DivideAndConquer(moving=False)).fit(X, y)
    assert not [r for r in published.history_ if "step" in r]
    model = SVC(C=4.0, gamma=4.0, solver="dc").fit(X, y)
    assert model.objective_ == pytest.approx(published.objective_, rel=2e-3)


def test_auto_takes_clusters_for_narrow_kernels():
    """With wide ones a working set on all rows is faster, unless there are very many rows."""
    X, y = moons200(2000)
    for gamma, solver in ((1e4, "dc"), (0.5, "exact")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(divide_and_conquer, "_VERY_MANY_ROWS", 10_000)
            assert SVC(gamma=gamma).fit(X, y).solver_ == solver
    assert SVC(gamma=0.5).fit(X, y).solver_ == "dc"


@pytest.mark.parametrize("scheme", ["ovr", "ovo"])
@pytest.mark.parametrize(
    "solver",
    [
        DivideAndConquer(),
        DivideAndConquer(combine="sum"),
        DivideAndConquer(combine="committee"),
        BlockMinimization(blocks=5),
    ],
    ids=["nearest", "sum", "committee", "pbm"],
)
def test_a_model_of_several_problems_after_every_round(solver, scheme, tmp_path):
    """Problems that are being solved or have been are those of all rows, the others of parts."""
    X, y = blobs(400, 3)
    model = SVC(C=4.0, gamma=4.0, solver=solver, engine="serial", multi_class=scheme, n_jobs=1)
    seen = []

    def look(record):
        if "active" in record and "step" in record:
            number = int(record["where"].split()[1]) - 1
            found = model.early_.decision_function(X)
            if not seen or seen[-1][0] != number:
                model.early_.save(tmp_path / "model")
                np.testing.assert_array_equal(load(tmp_path / "model").decision_function(X), found)
            seen.append((number, record["gap"], found, model.early_.score(X, y)))

    model.set_params(callbacks=look, decision_function_shape=scheme).fit(X, y)
    parts, whole = model.early_.decision_function(X), model.decision_function(X)
    assert {number for number, *_ in seen} == {0, 1, 2}
    for number, gap, found, accuracy in seen:
        assert accuracy > 0.9 or getattr(solver, "combine", "nearest") != "nearest"
        np.testing.assert_allclose(found[:, :number], whole[:, :number], atol=1e-3)
        if gap <= 0.1:
            assert np.mean((found[:, number] > 0.0) == (whole[:, number] > 0.0)) > 0.95
        # the variances of a committee depend on all support vectors
        atol = 1.0 if getattr(solver, "combine", "nearest") == "committee" else 1e-3
        first = number + (gap <= 0.1)  # of the problems that are still those of parts
        np.testing.assert_allclose(found[:, first:], parts[:, first:], atol=atol)
