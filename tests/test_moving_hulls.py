"""Moving blocks of hulls, whose classes each keep their sum: NuSVC, NuSVR and HardMarginSVC."""

import itertools
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from margrave import HardMarginSVC, NuSVC, NuSVR
from margrave.engines import Serial, Threads
from margrave.solvers import BlockMinimization, PairSwaps
from tests import exact_gap
from tests.data import load, moons200
from tests.fuzz_certificates import Recipe
from tests.test_blocks import Fragile, Killed
from tests.test_hull import each_record
from tests.test_moving_blocks import few_rows_are_many  # noqa: F401  # a fixture
from tests.test_recovery import Losing

X, LABELS = moons200(200)
NUMBERS = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.1 * LABELS
WEIGHT = np.random.default_rng(0).integers(0, 4, 200)
ESTIMATORS = [
    NuSVC(nu=0.3, gamma=1.0),
    NuSVC(nu=0.7, kernel="linear"),
    NuSVR(nu=0.3, C=2.0, gamma=1.0),
    NuSVR(nu=0.5, kernel="poly", degree=2, gamma=0.5),
    HardMarginSVC(gamma=20.0),
]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)


def fitted(estimator, solver, rows=X, y=None, sample_weight=None, **parameters):
    given = NUMBERS if isinstance(estimator, NuSVR) else LABELS
    given = given[:: 200 // rows.shape[0]] if y is None else y
    parameters = {"tol": 1e-6, "engine": "serial", **parameters}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a test says itself what has to converge
        model = clone(estimator).set_params(solver=solver, **parameters)
        return model.fit(rows, given, sample_weight)


def rounds_of(model):
    """Records of rounds of blocks."""
    return [record for record in model.history_ if "step" in record]


def assert_same(found, expected):
    np.testing.assert_array_equal(found.dual_coef_, expected.dual_coef_)
    assert found.gap_ == expected.gap_ and found.objective_ == expected.objective_


# --- the optimum ---------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize("tol", [1e-3, 1e-7])
def test_the_optimum_of_pairs(estimator, tol):
    exact = fitted(estimator, "pairs", tol=1e-9)
    model = fitted(estimator, BlockMinimization(blocks=4, rounds=5), tol=tol)
    assert model.converged_ and model.solver_ == "pbm" and model.certificate_ == "full"
    assert model.objective_ == pytest.approx(exact.objective_, rel=2.0 * tol)
    assert 0 < len(rounds_of(model)) <= 5
    y = NUMBERS if isinstance(estimator, NuSVR) else LABELS
    assert model.certify(X, y) == pytest.approx(model.gap_, rel=1e-6, abs=1e-12)


@each_estimator
def test_certificates_with_600_bits(estimator):
    y = (NUMBERS if isinstance(estimator, NuSVR) else LABELS)[::2]
    model = fitted(estimator, BlockMinimization(blocks=3, rounds=4), X[::2], tol=1e-5)
    (true,) = exact_gap.exact_gaps(model, X[::2], y)
    assert rounds_of(model) and true.gap <= model.gap_ <= 1e-5


@each_record
def test_golden(record):
    rows, y = load(record.data)
    solver = BlockMinimization(blocks=4, rounds=4)
    model = record.model(tol=1e-9, solver=solver).fit(rows, y)
    assert model.converged_ and model.solver_ == "pbm" and rounds_of(model)
    assert model.objective_ == pytest.approx(record.U, rel=2e-9)


@each_estimator
def test_no_round_is_worse_than_the_one_before(estimator):
    model = fitted(estimator, BlockMinimization(blocks=4, rounds=6), tol=1e-8)
    name = "dual" if isinstance(estimator, NuSVR) else "objective"
    values = [record[name] for record in model.history_]
    assert all(b <= a + 1e-9 * abs(a) for a, b in itertools.pairwise(values)), values


@pytest.mark.parametrize("estimator", ESTIMATORS[:3], ids=str)
def test_blocks_alone(estimator):
    """A block keeps the sum of each class, and yet sums come to all rows."""
    tol = 1e-3 if isinstance(estimator, NuSVR) else 1e-6
    exact = fitted(estimator, "pairs", tol=1e-9)
    model = fitted(estimator, BlockMinimization(blocks=3, finish=None), tol=tol)
    assert model.converged_ and len(rounds_of(model)) == model.n_iter_ > 3
    assert model.objective_ == pytest.approx(exact.objective_, rel=2.0 * tol)


@pytest.mark.parametrize("blocks", [1, 7, 100, 1000])
@pytest.mark.parametrize("estimator", [ESTIMATORS[0], ESTIMATORS[2]], ids=str)
def test_any_number_of_blocks(estimator, blocks):
    """One block is the working set; where each has one row, only the working set moves sums."""
    solver = BlockMinimization(blocks=blocks, rounds=3)
    if blocks == 1000:
        with pytest.raises(ValueError, match="100 rows cannot be split into 1000 blocks"):
            fitted(estimator, solver, X[::2])
        return
    exact = fitted(estimator, "pairs", X[::2], tol=1e-9)
    model = fitted(estimator, solver, X[::2])
    assert model.converged_ and model.objective_ == pytest.approx(exact.objective_, rel=2e-6)


def test_active_rows_that_differ_from_all_by_rounding_alone():
    """Both say that they are solved, one to 1e-15 and the other to 1e-8, for ever."""
    recipe = Recipe(1457, "NuSVC", tol=1e-8, n=2, scale=7e8, spread=3.4e6, nu=0.83, solver="pbm")
    model = recipe.fit()
    assert model.converged_ and len(model.history_) < 50


def test_blocks_of_one_class():
    apart = X + 50.0 * (LABELS > 0)[:, None]
    exact = fitted(ESTIMATORS[0], "pairs", apart, tol=1e-9)
    solver = BlockMinimization(blocks=4, rounds=4, partition="kmeans")
    model = fitted(ESTIMATORS[0], solver, apart)
    assert model.converged_ and model.objective_ == pytest.approx(exact.objective_, rel=2e-6)


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
@pytest.mark.parametrize("estimator", [NuSVC(nu=0.3), NuSVR(nu=0.3)], ids=str)
@pytest.mark.parametrize("solver", [BlockMinimization(blocks=3, rounds=4), PairSwaps(partitions=3)])
def test_weights_classes_and_kernels(estimator, solver, kernel):
    rows, y = load("iris")
    rows, y, weight = rows[::2], y[::2], WEIGHT[:75]
    y = rows[:, 0] + y if isinstance(estimator, NuSVR) else y
    rows = rows @ rows.T if kernel == "precomputed" else rows
    estimator = clone(estimator).set_params(kernel=kernel)
    exact = fitted(estimator, "pairs", rows, y, weight, tol=1e-9, engine=None)
    model = fitted(estimator, solver, rows, y, weight)
    assert model.converged_
    np.testing.assert_allclose(np.ravel(model.objectives_), np.ravel(exact.objectives_), rtol=2e-6)


# --- where it runs -------------------------------------------------------------------------------


@each_estimator
@pytest.mark.parametrize("tol", [1e-3, 1e-7])
def test_the_same_bits_on_any_number_of_threads(estimator, tol):
    solver = BlockMinimization(blocks=5, rounds=5)
    expected = fitted(estimator, solver, tol=tol, engine=Serial())
    for engine in (Threads(1), Threads(2), Threads(3)):
        assert_same(fitted(estimator, solver, tol=tol, engine=engine), expected)


@pytest.mark.parametrize("after", [1, 2, 4])
@pytest.mark.parametrize("estimator", [ESTIMATORS[0], ESTIMATORS[2]], ids=str)
def test_a_killed_run_is_resumed(tmp_path, estimator, after):
    expected = fitted(estimator, BlockMinimization(blocks=3, rounds=4))
    records = []

    def kill(record):
        records.append(record)
        if len(records) == after:
            raise Killed

    solver = BlockMinimization(blocks=3, rounds=4, checkpoint=tmp_path)
    with pytest.raises(Killed):
        fitted(estimator, solver, callbacks=kill)
    kept = tmp_path / "margrave-checkpoint.npz"
    assert kept.exists()
    other = -NUMBERS if isinstance(estimator, NuSVR) else -LABELS
    with pytest.raises(ValueError, match="labels or targets"):
        fitted(estimator, solver, y=other)
    assert_same(fitted(estimator, solver), expected)
    assert not kept.exists()


@each_estimator
@pytest.mark.parametrize("limit", [{"time_limit": 1e-4}, {"max_iter": 0}, {"max_iter": 2}], ids=str)
def test_limits(estimator, limit):
    model = fitted(estimator, BlockMinimization(blocks=3, rounds=4), tol=1e-12, **limit)
    assert model.n_iter_ <= limit.get("max_iter", 10**6) and not model.converged_
    y = NUMBERS if isinstance(estimator, NuSVR) else LABELS
    assert np.isfinite(model.predict(X).astype(float)).all() and 0.0 <= model.certify(X, y) <= 1.0


@pytest.mark.parametrize("after", range(0, 60, 6))
@pytest.mark.parametrize("estimator", [ESTIMATORS[0], ESTIMATORS[2]], ids=str)
def test_ctrl_c_keeps_the_model(estimator, after):
    class Pressed(Fragile):
        def scatter(self, block_type, pieces):
            shards = super().scatter(block_type, pieces)
            run = shards._run

            def pressed(method, calls):
                if self.calls == after:
                    self.calls += 1
                    raise KeyboardInterrupt
                return run(method, calls)

            shards._run = pressed
            return shards

    model = clone(estimator).set_params(
        solver=BlockMinimization(blocks=3, rounds=4), engine=Pressed(), tol=1e-8
    )
    y = NUMBERS if isinstance(estimator, NuSVR) else LABELS
    try:
        model.fit(X, y)
    except KeyboardInterrupt:
        assert not model.converged_
    assert np.isfinite(model.predict(X).astype(float)).all() and 0.0 <= model.certify(X, y) <= 1.0


@pytest.mark.parametrize("estimator", [NuSVC(nu=0.3), NuSVR(nu=0.3)], ids=str)
@pytest.mark.parametrize(("gamma", "moves"), [(1e4, True), (0.5, False)])
def test_auto_moves_blocks_for_narrow_kernels(estimator, gamma, moves):
    """Among workers they are those of "pbm"."""
    for engine, solver in ((None, "pairs"), (Losing(), "pbm" if moves else "pairs")):
        model = fitted(clone(estimator).set_params(gamma=gamma), "auto", engine=engine)
        assert model.converged_ and model.solver_ == solver
        assert bool(rounds_of(model)) == moves
    assert not rounds_of(fitted(clone(estimator).set_params(gamma=gamma), "pairs", engine=None))


# --- refusals ------------------------------------------------------------------------------------


@each_estimator
def test_blocks_have_to_move(estimator):
    with pytest.raises(ValueError, match="have to move; use moving=True"):
        fitted(estimator, BlockMinimization(moving=False))
    with pytest.raises(ValueError, match="without moving blocks finish=None"):
        fitted(estimator, BlockMinimization(rounds=0, finish=None))


def test_overlap_is_named():
    with pytest.raises(ValueError, match="hulls overlap"):
        fitted(HardMarginSVC(kernel="linear"), BlockMinimization(blocks=3, rounds=4))


@pytest.mark.parametrize(("seed", "blocks"), [(1, 3), (5, 1), (5, 3)])
def test_points_of_both_hulls_that_coincide(seed, blocks):
    """No row violates anything any more: another active set would not go on, and the fit ends."""
    rows, y = np.random.default_rng(seed).standard_normal((50, 1)), np.arange(50) % 2
    solver = BlockMinimization(blocks=blocks, rounds=3, partition="random")
    with pytest.raises(ValueError, match="hulls overlap"):
        fitted(HardMarginSVC(kernel="linear"), solver, rows, y, time_limit=10.0)
