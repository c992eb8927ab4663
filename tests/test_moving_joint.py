"""Moving blocks of joint problems: one variable per row and class."""

import itertools
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from margrave import SVC, KernelLogisticRegression, _core
from margrave.engines import Serial, Threads
from margrave.kernels import Kernel
from margrave.problem import Data, JointProblem
from margrave.solvers import BlockMinimization
from margrave.solvers.divide import divide_and_conquer
from margrave.solvers.kernel import joint
from margrave.solvers.kernel.moving_blocks import MovingBlocks
from tests import exact_gap
from tests.data import load, standardized
from tests.test_moving_blocks import few_rows_are_many  # noqa: F401  # a fixture
from tests.test_recovery import Losing

X, LABELS = load("iris")
X, LABELS = standardized(X[::2]), np.arange(150)[::2] // 50
WEIGHT = np.random.default_rng(0).integers(0, 4, len(X))
ESTIMATORS = [
    make(gamma=1.0, C=2.0, intercept=intercept, multi_class=loss)
    for make, loss in ((SVC, "crammer_singer"), (KernelLogisticRegression, "softmax"))
    for intercept in ("free", "regularized", None)
]
each_estimator = pytest.mark.parametrize(
    "estimator", ESTIMATORS, ids=lambda e: f"{e.multi_class}-{e.intercept}"
)


@pytest.fixture(autouse=True)
def rounds(monkeypatch):
    """Steps of all rounds of blocks."""
    steps, one_round = [], MovingBlocks.round

    def counted(self, figures, deadline):
        record = one_round(self, figures, deadline)
        if record is not None:
            steps.append(record["step"])
        return record

    monkeypatch.setattr(MovingBlocks, "round", counted)
    return steps


def fitted(estimator, solver, rows=X, y=LABELS, sample_weight=None, **parameters):
    parameters = {"tol": 1e-6, "engine": "serial", **parameters}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a test says itself what has to converge
        model = clone(estimator).set_params(solver=solver, **parameters)
        return model.fit(rows, y, sample_weight)


def moving(blocks, size=4, **parameters):
    """With so small a working set that its rounds before the first one of blocks do not suffice."""
    return BlockMinimization(blocks=blocks, size=size, **parameters)


def assert_same(found, expected):
    np.testing.assert_array_equal(found.dual_coef_, expected.dual_coef_)
    np.testing.assert_array_equal(found.intercept_, expected.intercept_)
    assert found.gap_ == expected.gap_ and found.objective_ == expected.objective_


# --- the optimum ---------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize("tol", [1e-3, 1e-7])
def test_the_optimum_of_the_exact_solver(estimator, tol, rounds):
    exact = fitted(estimator, "exact", tol=1e-9)
    assert not rounds
    model = fitted(estimator, moving(blocks=3, rounds=5), tol=tol)
    assert model.converged_ and model.solver_ == "pbm" and model.certificate_ == "full"
    assert model.objective_ == pytest.approx(exact.objective_, rel=2.0 * tol)
    assert 0 < len(rounds) <= 5 and max(rounds) > 0.0
    assert model.certify(X, LABELS) == pytest.approx(model.gap_, rel=1e-6, abs=1e-12)


@each_estimator
def test_certificates_with_600_bits(estimator, rounds):
    model = fitted(estimator, moving(blocks=3, rounds=4), X[::2], LABELS[::2], tol=1e-5)
    (true,) = exact_gap.exact_gaps(model, X[::2], LABELS[::2])
    assert rounds and true.gap <= model.gap_ <= 1e-5


@each_estimator
@pytest.mark.parametrize("form", ["csr", "precomputed", "linear"])
def test_forms_of_rows_and_weights(estimator, form, rounds):
    estimator, given = clone(estimator), X
    if form == "csr":
        given = sparse.csr_matrix(np.where(X > 0.0, X, 0.0))
    elif form == "precomputed":
        given = Kernel("rbf", gamma=1.0).values(X, X)
    if form != "csr":
        estimator.set_params(kernel=form)
    exact = fitted(estimator, "exact", given, sample_weight=WEIGHT, tol=1e-9)
    model = fitted(estimator, moving(blocks=3, rounds=4), given, sample_weight=WEIGHT)
    assert rounds and model.converged_
    assert model.objective_ == pytest.approx(exact.objective_, rel=2e-6)


@pytest.mark.parametrize(
    "estimator", [one for one in ESTIMATORS if one.intercept != "free"], ids=str
)
def test_no_round_is_worse_than_the_one_before(estimator):
    """With free intercepts the dual values are those of several problems, one after the other."""
    model = fitted(estimator, moving(blocks=4, rounds=6), tol=1e-8)
    values = [record["dual"] for record in model.history_]
    assert all(b <= a + 1e-9 * abs(a) for a, b in itertools.pairwise(values)), values


@pytest.mark.parametrize("estimator", [ESTIMATORS[1], ESTIMATORS[2], ESTIMATORS[5]], ids=str)
def test_blocks_alone(estimator, rounds):
    exact = fitted(estimator, "exact", tol=1e-9)
    model = fitted(estimator, moving(blocks=3, finish=None), tol=1e-5)
    assert model.converged_ and len(rounds) == model.n_iter_ > 3
    assert model.objective_ == pytest.approx(exact.objective_, rel=2e-5)


@each_estimator
@pytest.mark.parametrize("blocks", [1, 20, 75])
def test_any_number_of_blocks(estimator, blocks, rounds):
    exact = fitted(estimator, "exact", tol=1e-9)
    model = fitted(estimator, moving(blocks=blocks, rounds=3))
    assert rounds and model.converged_
    assert model.objective_ == pytest.approx(exact.objective_, rel=2e-6)


@each_estimator
def test_a_warm_start(estimator, rounds):
    model = clone(estimator).set_params(
        solver=moving(blocks=3, rounds=4), tol=1e-4, warm_start=True
    )
    model.fit(X, LABELS)
    before = len(rounds)
    model.set_params(C=2.2).fit(X, LABELS)
    exact = fitted(clone(estimator).set_params(C=2.2), "exact", tol=1e-9)
    assert before and model.converged_
    assert model.objective_ == pytest.approx(exact.objective_, rel=2e-4)


@each_estimator
def test_a_stop_in_the_first_round_of_blocks_leaves_a_model(estimator, monkeypatch):
    def stopped(self, figures, deadline):
        raise _core.Stopped

    monkeypatch.setattr(MovingBlocks, "round", stopped)
    model = fitted(estimator, moving(blocks=3))
    assert not model.converged_ and model.gap_ > 0.0 and model.score(X, LABELS) > 0.5


@each_estimator
def test_work_is_counted_once(estimator, rounds):
    model = fitted(estimator, moving(blocks=3, rounds=4), tol=1e-3)
    assert rounds
    for name in ("round", "steps", "kernel_values"):
        counts = [record[name] for record in model.history_]
        assert counts == sorted(counts), name


# --- the compiled solver -------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["crammer_singer", "softmax"])
def test_new_values_of_some_rows_update_the_scores_of_the_others(loss):
    data = Data(X, Kernel("rbf", gamma=1.0), np.array([0, len(X)]))
    problem = JointProblem(data, LABELS, 3, 1.0 + WEIGHT, loss, None)
    rows = data.kernel_rows("float64", 1 << 24, 1 << 20, 1, 0.0, False)
    core, better = (problem.core(rows, None, 16, 0.0) for _ in range(2))
    for one, count in ((core, 1), (better, 4)):
        one.advance(1e-12, count, 10.0, 10.0)
    some = np.arange(0, len(X), 2)
    beta = core.beta
    beta[some] = better.beta[some]
    K = data.kernel.values(X, X)
    scores = K @ beta
    assert core.adopt(some, beta[some], scores[some], 10.0)
    np.testing.assert_array_equal(core.beta, beta)
    np.testing.assert_allclose(core.scores, scores, atol=1e-12)
    primal, dual = problem.terms(beta, scores, np.zeros(3))
    assert core.kkt_violations().sum() == pytest.approx(primal + dual, rel=1e-9)
    with pytest.raises(ValueError, match="no such row"):
        core.adopt(some + 2, beta[some], scores[some], 10.0)


@pytest.mark.parametrize("loss", ["crammer_singer", "softmax"])
def test_a_part_has_the_gap_and_the_dual_value_of_the_whole(loss):
    """With all rows outside at their optimum, the part's optimum is that of the whole."""
    from margrave.blocks.point import fixed_part, own_scores

    data = Data(X, Kernel("rbf", gamma=1.0), np.array([0, len(X)]))
    problem = JointProblem(data, LABELS, 3, np.ones(len(X)), loss, None)
    core = problem.core(data.kernel_rows("float64", 1 << 24, 1 << 20, 1, 0.0, False), None, 75, 0.0)
    core.advance(1e-12, 500, 10.0, 10.0)
    some = np.arange(0, len(X), 3)
    part = problem.restrict(some)
    rows = part.data.kernel_rows("float64", 1 << 24, 1 << 20, 1, 0.0, False)
    beta, scores = core.beta[some], core.scores[some]
    own = own_scores(rows, beta, np.arange(len(some)))
    terms = part.dual_terms(0.0), part.y, part.C, beta
    fixed = fixed_part(*terms, scores, scores - own, core.figures()["dual"])
    found = part.core(rows, beta, 75, 0.0, fixed)
    assert found.figures()["dual"] == pytest.approx(core.figures()["dual"], rel=1e-12)
    assert found.figures()["gap"] <= core.figures()["gap"] + 1e-13
    assert found.certify(10.0)["dual"] == pytest.approx(core.figures()["dual"], rel=1e-12)
    with pytest.raises(ValueError, match="needs a start"):
        part.core(rows, None, 75, 0.0, fixed)


@pytest.mark.parametrize("loss", ["crammer_singer", "softmax"])
def test_derivatives_of_the_terms_of_the_dual(loss):
    problem = JointProblem(
        Data(X, Kernel("rbf"), np.array([0, len(X)])), LABELS, 3, 1.0 + WEIGHT, loss, None
    )
    terms, rng = problem.dual_terms(0.0), np.random.default_rng(0)
    points = [problem.variables(rng.dirichlet(np.ones(3), len(X))) for _ in range(2)]
    change = points[1] - points[0]

    def value(t):
        return terms.conjugate(LABELS, problem.C, points[0] + t * change).sum()

    slope = (terms.right_derivative(LABELS, problem.C, points[0] + 0.5 * change) * change).sum()
    assert slope == pytest.approx((value(0.5 + 1e-6) - value(0.5 - 1e-6)) / 2e-6, rel=1e-6)
    low, high = terms.box(LABELS, problem.C)
    assert (low <= points[0]).all() and (points[0] <= high).all()


# --- where it runs -------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize("tol", [1e-3, 1e-7])
def test_the_same_bits_on_any_number_of_threads(estimator, tol):
    solver = moving(blocks=4, rounds=5)
    expected = fitted(estimator, solver, tol=tol, engine=Serial())
    for engine in (None, Threads(1), Threads(2), Threads(3)):
        assert_same(fitted(estimator, solver, tol=tol, engine=engine), expected)


@each_estimator
@pytest.mark.parametrize(
    "limit",
    [{"time_limit": 1e-4}, {"max_iter": 0}, {"max_iter": 2}, {"memory_limit": "1MiB"}],
    ids=str,
)
def test_limits(estimator, limit):
    model = fitted(estimator, moving(blocks=3, rounds=4), tol=1e-12, **limit)
    assert model.n_iter_ <= limit.get("max_iter", 10**6)
    assert np.isfinite(model.predict_proba(X) if hasattr(model, "predict_proba") else 0.0).all()
    assert 0.0 <= model.certify(X, LABELS) <= 1.0 + 1e-12
    assert ("memory_limit" in limit) == (model.gap_ < 1e-6)


@pytest.mark.parametrize("after", range(0, 12, 2))
@each_estimator
def test_ctrl_c_keeps_the_model(estimator, after):
    class Pressed(Serial):
        calls = 0

        def scatter(self, block_type, pieces):
            shards = super().scatter(block_type, pieces)
            run = shards._run

            def pressed(method, calls):
                Pressed.calls += 1
                if Pressed.calls == after + 1:
                    raise KeyboardInterrupt
                return run(method, calls)

            shards._run = pressed
            return shards

    solver = moving(blocks=3, rounds=6)
    model = clone(estimator).set_params(solver=solver, engine=Pressed(), tol=1e-10)
    try:
        model.fit(X, LABELS)
        assert Pressed.calls <= after
    except KeyboardInterrupt:
        assert not model.converged_
    # 2 where the dual value is still positive, as at the start of the softmax
    most = 2.0 if model.multi_class == "softmax" else 1.0 + 1e-12
    assert 0.0 <= model.certify(X, LABELS) <= most
    assert model.certify(X, LABELS) == pytest.approx(model.gap_, rel=1e-6, abs=1e-12)


@each_estimator
@pytest.mark.parametrize(("gamma", "moves"), [(1e4, True), (0.5, False)])
def test_auto_moves_blocks_for_narrow_kernels(estimator, gamma, moves, rounds, monkeypatch):
    """In this process even where an engine has workers elsewhere."""
    monkeypatch.setattr(joint, "SET_ROUNDS", 0)  # which would solve so few rows
    monkeypatch.setattr(divide_and_conquer, "_MANY_JOINT_ROWS", 60)  # and the fixture's of softmax
    for engine in (None, Losing()):
        rounds.clear()
        model = fitted(clone(estimator).set_params(gamma=gamma), "auto", engine=engine)
        assert model.converged_ and model.solver_ == "exact" and bool(rounds) == moves


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (BlockMinimization(moving=False), "have moving blocks, without checkpoints"),
        (BlockMinimization(checkpoint="here"), "have moving blocks, without checkpoints"),
        (BlockMinimization(blocks=100), "75 rows cannot be split into 100 blocks"),
        (BlockMinimization(rounds=-1), "rounds must be"),
    ],
    ids=str,
)
def test_refusals(solver, message):
    with pytest.raises(ValueError, match=message):
        fitted(ESTIMATORS[0], solver)


def test_workers_of_other_processes_are_refused():
    with pytest.raises(ValueError, match=r"joint problem.*threads of this process alone.*engine="):
        fitted(ESTIMATORS[0], "pbm", engine=Losing())
