"""No certificate is false: random problems and known traps, judged with 600 bits.

    true gap <= gap_,    true gap <= certify    (but for their last digits)

`fuzz_certificates.py` draws the problems and says what is wrong with a fit; `make fuzz` goes on
where the tests end.
"""

from __future__ import annotations

import faulthandler
import warnings
from itertools import product

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import margrave
from margrave import SVC, SVR
from margrave.kernels import KERNELS, Kernel
from margrave.losses import LOSSES, Loss
from margrave.problem import Data, Problem, Solution
from margrave.progress import Progress
from margrave.solvers import SOLVERS
from margrave.solvers.base import Settings
from margrave.solvers.certificate import certificate, certified
from margrave.solvers.certificate.figures import relative
from margrave.solvers.whole import certify
from tests import cases, oracle
from tests.exact_gap import exact_gaps
from tests.fuzz_certificates import Recipe, draw, is_covered, judge

SEEDS = 400
BLOCK = 20


@pytest.fixture(autouse=True)
def no_test_hangs():
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def assert_honest(model, X, y, sample_weight=None):
    """What the model claims of itself holds."""
    exact = exact_gaps(model, X, y, sample_weight)
    true = np.array([one.gap for one in exact])
    assert all(map(is_covered, true, model.gaps_)), (model.gaps_, true)
    claimed = model.certify(X, y, sample_weight)
    assert is_covered(true.max(), claimed), (claimed, true)
    assert (model.gaps_ >= 0).all() and not np.isnan(claimed)
    return exact


def quietly(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*data)


# --- random problems -----------------------------------------------------------------------


@pytest.mark.parametrize("block", range(SEEDS // BLOCK))
def test_random_problems(block):
    found = []
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        recipe = draw(seed)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found += [f"{f.kind}: {f.text}\n    {recipe}" for f in judge(recipe)[0]]
    assert not found, "\n".join(found)


def test_drawn_problems_are_of_all_kinds():
    """A third is ordinary, and every estimator, kernel, loss and solver has its turn."""
    recipes = [draw(seed) for seed in range(2000)]
    ordinary = sum(recipe.is_ordinary for recipe in recipes) / len(recipes)
    assert 0.2 < ordinary < 0.4
    certified = {name for name in margrave.__all__ if hasattr(getattr(margrave, name), "certify")}
    assert {recipe.estimator for recipe in recipes} == certified
    assert {recipe.kernel for recipe in recipes} == set(KERNELS)
    assert {recipe.solver for recipe in recipes} == {"auto", *SOLVERS}
    own = {"logistic", "margin_distribution", "one_class", "hull"}  # of one estimator each
    assert {recipe.loss for recipe in recipes} - {None} == set(LOSSES) - own


@pytest.mark.parametrize("seed", range(20))
def test_ordinary_gaps_are_exact(seed, rng):
    """Where nothing cancels the gap is right to many digits, so that no bound is padded."""
    recipe = Recipe(seed=seed, kernel=("linear", "rbf")[seed % 2], tol=1e-3, n=30, apart=0.3)
    model = recipe.fit()
    assert model.converged_
    (found,) = assert_honest(model, *recipe.data())
    assert found.gap == pytest.approx(model.gap_, rel=1e-6, abs=1e-13)


# --- values that drown in the rounding of others --------------------------------------------

BLOBS = make_blobs(50, centers=2, random_state=0, cluster_std=0.6)


@pytest.mark.parametrize("tol", [1e-3, 1e-9])
def test_blobs_with_a_huge_price(tol):
    """C = 1e10 in place of a hard margin: the optimum is a 1e-17th of what zero weights pay."""
    X, y = 100 * BLOBS[0], BLOBS[1]
    (found,) = assert_honest(quietly(SVC(kernel="linear", C=1e10, tol=tol), X, y), X, y)
    assert found.primal < 1.0


def test_targets_of_long_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3)) * 1e8
    y = X @ [1, 2, 3] / 1e8
    assert_honest(quietly(SVR(kernel="linear", tol=1e-8), X, y), X, y)


LINEAR = [
    (SVC, "hinge"),
    (SVC, "squared_hinge"),
    (SVR, "epsilon_insensitive"),
    (SVR, "squared_epsilon_insensitive"),
    (SVR, "huber"),
    (SVR, "pinball"),
]


@pytest.mark.parametrize(("estimator", "loss"), LINEAR, ids=lambda v: getattr(v, "__name__", v))
@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
@pytest.mark.parametrize("scale", [1e7, 1e9, 1e11])
def test_long_rows(estimator, loss, intercept, scale):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 3)) * scale
    y = X @ [1, 2, 3] / scale + 0.1 * rng.normal(size=30)
    y = y if estimator is SVR else y > 0
    for tol in (1e-3, 1e-8):
        model = estimator(kernel="linear", loss=loss, intercept=intercept, tol=tol)
        assert_honest(quietly(model, X, y), X, y)


@pytest.mark.parametrize(("estimator", "loss"), LINEAR, ids=lambda v: getattr(v, "__name__", v))
@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
@pytest.mark.parametrize("scale", [0.1, 1.0, 1e3])
def test_newton_bounds_its_own_gap(estimator, loss, intercept, scale, monkeypatch):
    """By norms, without another pass over the rows, where these are many."""
    monkeypatch.setattr("margrave.solvers.certificate.figures._CHEAP", 0)
    monkeypatch.delattr("margrave.solvers.certificate.single.SingleGap.by_weights")
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 3)) * scale
    y = X @ [1, 2, 3] / scale + 0.5 * rng.normal(size=80)
    y = y if estimator is SVR else y > 0
    weight = rng.uniform(0.1, 2.0, size=80)
    for tol in (1e-2, 1e-5):
        model = estimator(kernel="linear", loss=loss, intercept=intercept, tol=tol, solver="newton")
        model.fit(X, y, weight)
        (true,) = exact_gaps(model, X, y, weight)
        assert model.converged_ and true.gap <= model.gap_ <= true.gap + 0.1 * tol


# --- features with a large mean -------------------------------------------------------------


@pytest.mark.parametrize("solver", ["auto", "exact", "pbm"])
@pytest.mark.parametrize("offset", [1e6, 3e6])
@pytest.mark.parametrize("seed", range(8))
def test_large_mean(solver, offset, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 40))
    y = X[:, 0] + 0.5 * rng.normal(size=30) > 0
    X = X + offset
    assert_honest(quietly(SVC(kernel="linear", solver=solver), X, y), X, y)


# --- weights and kernels beyond double precision ---------------------------------------------


@pytest.mark.parametrize("heavy", [1e11, 1e12, 1e13, 1e14])
@pytest.mark.parametrize("solver", ["auto", "exact", "newton", "cd", "dip"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_one_heavy_row(heavy, solver, loss):
    for seed, n, apart in product(range(4), (5, 10), (1.0, 3.0)):
        recipe = Recipe(
            seed, "SVC", loss, n=n, apart=apart, heavy=heavy, solver=solver, time_limit=2.0
        )
        assert_honest(recipe.fit(), *recipe.data())


@pytest.mark.parametrize("seed", range(8))
def test_laplacian_that_is_nearly_constant(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(10, 3))
    y = X[:, 0] + 0.5 * rng.normal(size=10)
    weight = np.ones(10)
    weight[0] = 1e14
    for model, target in ((SVC(), y > 0), (SVR(), y)):
        model.set_params(kernel="laplacian", gamma=8e-9, time_limit=5)
        assert_honest(quietly(model, X, target, weight), X, target, weight)


@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
@pytest.mark.parametrize("seed", range(16))
def test_cubic_kernel_below_zero(seed, intercept):
    """(10 x'z / 3 - 1)^3: large values of both signs, and a price that makes rounding dear."""
    recipe = Recipe(
        *(seed, "SVC", "hinge", "poly", intercept),
        **{"tol": 1e-6, "n": 5, "apart": 3.0, "C": 1e6, "gamma": 10.0, "coef0": -1.0},
    )
    assert_honest(recipe.fit(), *recipe.data())


HEAVY_TUBES = [
    Recipe(678, "NuSVR", None, "precomputed", tol=1e-8, n=3, heavy=1e6),
    Recipe(
        *(428, "NuSVR", None, "precomputed"),
        **{"tol": 1e-8, "n": 4, "d": 2, "heavy": 1e12, "C": 0.01, "target_scale": 1219.73063055571},
    ),
    Recipe(757, "NuSVR", None, "precomputed", tol=1e-10, n=2, d=1, heavy=1e10),
    Recipe(40904, "NuSVR", n=5, d=2, spread=1e7, duplicates=True, heavy=18059258386441.0),
    Recipe(6237, "NuSVR", n=2, d=2, offset=1e7, heavy=1e10, C=1578758.500647297, nu=1.0),
    Recipe(1016, "NuSVR", None, "sigmoid", n=2, d=5, heavy=9.2e13, gamma=3.741184168519475e-05),
]


@pytest.mark.parametrize("recipe", HEAVY_TUBES, ids=lambda recipe: str(recipe.seed))
def test_copies_of_a_row_that_cancel(recipe):
    """Both variables of a heavy row are many times larger than their difference, the model's."""
    assert not judge(recipe)[0]


def test_combination_of_long_rows_that_cancel():
    """X'beta is little more than the part of its sum that rounding would take away."""
    recipe = Recipe(
        *(37905, "KernelLogisticRegression", None, "linear", None, "ovr", "newton"),
        **{"tol": 1e-5, "n": 60, "apart": 0.3, "duplicates": True, "C": 5.422677979173997},
        **{"scale": 4279666373.799083, "spread": 247115.07392743987, "offset": 2123866.55969014},
    )
    assert not judge(recipe)[0]


INDEFINITE = [
    Recipe(745, "KernelLogisticRegression", None, "sigmoid", n=2),
    Recipe(1795134010, "NuSVR", None, "sigmoid", n=2, d=2, constant=True, heavy=1e8),
]


@pytest.mark.parametrize("recipe", INDEFINITE, ids=lambda recipe: recipe.estimator)
def test_a_kernel_that_is_indefinite_by_little(recipe):
    assert not judge(recipe)[0]


TRAPS = [
    # C times the quantile is rounded, and kernel values of 1e24 make a step of 1e-17 dear
    Recipe(
        *(1795139661, "SVR", "pinball"),
        **{"intercept": None, "tol": 1e-10, "n": 4, "d": 2, "scale": 1e12, "spread": 1e4},
        **{"C": 1.872604375374453, "quantile": 0.1},
    ),
    # P is as small as the rounding of a score plus the intercept makes it
    Recipe(
        *(1795138245, "SVR", "pinball"),
        **{"solver": "cd", "n": 6, "d": 10, "apart": 0.3, "scale": 1883673196.7682965},
        **{"constant": True, "storage": "csr", "quantile": 0.05},
    ),
    # values up to 5e11, whose last digits cost more than P
    Recipe(
        *(1795138427, "SVC", "hinge", "poly"),
        **{"n": 40, "d": 1, "classes": 3, "apart": 3.0, "C": 1.8320462239556032},
        **{"gamma": 6165.867362129457, "degree": 2},
    ),
    # a residual of 3e-17 of a row of weight 1e12 makes the model worse than a constant
    Recipe(
        *(1795135448, "SVR", "epsilon_insensitive", "precomputed"),
        **{"n": 4, "d": 1, "duplicates": True, "heavy": 1e12, "target_scale": 1e-5},
    ),
    # a heavy row without a loss, of which a rounding error must not make a gain
    Recipe(
        *(5736, "SVC", "hinge"),
        **{"intercept": None, "multi_class": "crammer_singer", "solver": "exact", "n": 9, "d": 5},
        **{"classes": 3, "storage": "float32", "heavy": 37530943.21976274},
        **{"C": 0.26441776098336434},
    ),
]


@pytest.mark.parametrize("recipe", TRAPS, ids=lambda recipe: str(recipe.seed))
def test_scores_whose_last_digits_decide(recipe):
    assert not judge(recipe)[0]


def test_the_gap_of_a_dual_value_that_may_be_positive():
    """Where only bounds are known, the largest ratio between them counts."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        D, P = rng.normal(), rng.exponential()
        if P + D < 0.0:
            continue
        off, error = rng.uniform(0.0, 0.3, 2) * abs(D)
        plain, dual = P + D + rng.uniform(-1.0, 1.0) * off, D + rng.uniform(-1.0, 1.0) * error
        found = relative(plain, plain + off, dual, error)
        assert (P + D) / max(P, abs(D)) <= found.gap * (1.0 + 1e-12)


STEEP = [
    Recipe(1794847259, "NuSVC", None, "exponential", tol=1e-8, n=2, d=1, apart=3.0, power=0.4),
    Recipe(1794847768, "SVC", "hinge", "exponential", tol=1e-8, n=2, d=1, C=10.0, power=0.4),
]


@pytest.mark.parametrize("recipe", STEEP, ids=lambda recipe: str(recipe.seed))
def test_kernels_that_are_steep_at_zero(recipe):
    """A small power of a distance makes much of its last digits."""
    assert not judge(recipe)[0]


@pytest.mark.parametrize(("C", "tol"), [(100.0, 1e-8), (1e4, 1e-6), (1e6, 1e-3)])
def test_shares_of_the_own_class_that_are_nearly_one(C, tol):
    """Variables of a 1e-6th of C, and kernel values up to 1e4: C (1 - p) would have no digits."""
    recipe = Recipe(
        *(889347, "SVC", "hinge", "poly"),
        **{"multi_class": "crammer_singer", "tol": tol, "n": 2, "d": 1, "apart": 3.0, "C": C},
    )
    assert recipe.fit().converged_ and not judge(recipe)[0]


@pytest.mark.parametrize("seed", [778068, *range(6)])
def test_hulls_that_are_close_to_each_other(seed):
    """Classes that alternate along a line are 1e-4 apart, and pairs approach that slowly."""
    recipe = Recipe(seed, "HardMarginSVC", None, "rbf", n=8, d=1, apart=3.0)
    assert recipe.fit().converged_ and not judge(recipe)[0]


def test_the_gap_of_variables_whose_sum_is_wrong():
    """A fit that was stopped: D is negative, but not at the point with the right sum."""
    X = np.array([[-1.0], [0.2], [0.9]])
    data = Data(X, Kernel("rbf", gamma=1.0), np.array([0, 3]))
    loss = Loss("one_class")
    problem = Problem(data, None, np.ones(3), np.ones(3), loss, "free", total=0.9)
    beta, K = np.array([0.1, 0.2, 0.2]), oracle.rbf(X, X, gamma=1.0)
    unknown = (np.nan, np.nan, np.nan, False, 0, "float64", "")
    found = certificate(problem, Solution(beta, 0.25, K @ beta, *unknown), 1)
    b, f = 0.25, K @ beta
    primal = beta @ f / 2 + b * 0.9 + np.maximum(0.0, -(f + b)).sum()
    duals = [point @ K @ point / 2 for point in beta + 0.4 * np.eye(3)]
    assert primal > 0 and max(duals) > 0
    assert found.gap >= min((primal + dual) / primal for dual in duals)


def test_a_point_that_is_not_certified_in_time_has_no_certificate():
    """The scores at hand are those of another point, with the right sum."""
    X, beta = np.array([[-1.0], [0.2], [0.9]]), np.array([0.1, 0.2, 0.2])
    data = Data(X, Kernel("rbf", gamma=1.0), np.array([0, 3]))
    problem = Problem(data, None, np.ones(3), np.ones(3), Loss("one_class"), "free", total=0.9)
    with Progress(1e-3, time_limit=0.0) as progress:
        (found,) = certify([problem], Settings(1e-3, None, 1, 0, progress), [beta])
    assert found.certificate == "estimate" and found.gap == np.inf
    np.testing.assert_array_equal(found.beta, beta)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss not in ("one_class", "hull")])
def test_a_point_whose_scores_are_unknown_is_not_mended_by_those_of_another(kernel, loss):
    """Linear scores are cheap and computed; others stay unknown, and the model as it is."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), np.tile([1.0, -1.0], 10)
    data = Data(X, Kernel(kernel, gamma=1.0), np.array([0, 20]))
    problem = Problem(data, None, y, np.ones(20), Loss(loss), "free")
    beta = 0.3 * y
    beta[0] = 0.2  # so that a point with the right sum is another one
    with Progress(1e-3, time_limit=0.0) as progress:
        settings = Settings(1e-3, None, 1, 0, progress)
        found = certify([problem], settings, [beta])
        assert np.isnan(found[0].scores).all() and found[0].weights is None
        (model,) = certified([problem], found, settings)
    if kernel == "rbf":
        np.testing.assert_array_equal(model.beta, beta)
        assert model.gap == np.inf and model.certificate == "estimate" and not model.converged
    else:
        np.testing.assert_allclose(model.weights, model.beta @ X, atol=1e-14)
        np.testing.assert_allclose(model.scores, X @ model.weights, atol=1e-14)


def test_scores_beyond_double_precision_are_no_secret():
    """A cubic kernel of rows of 1e300 overflows; whoever asks is told."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    model = SVC(kernel="poly", degree=3).fit(X, X[:, 0] > 0)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            scores = model.decision_function(np.full((2, 3), 1e300))
        except ValueError as error:
            assert "1e" in str(error) or "large" in str(error) or "overflow" in str(error)
            return
    assert heard or np.isfinite(scores).all()


# --- fits that are stopped -------------------------------------------------------------------


def primal(model, X, y):
    """P of a binary model with the hinge, in double precision."""
    K = oracle.rbf(X, X[model.support_], model.gamma)
    f = K @ model.dual_coef_[0]
    loss = np.maximum(0.0, 1.0 - np.where(y, 1.0, -1.0) * (f + model.intercept_[0]))
    return model.dual_coef_[0] @ f[model.support_] / 2 + model.C * loss.sum()


@pytest.mark.parametrize("gamma", [0.5, 5.0])
@pytest.mark.parametrize("budget", [{"max_iter": 1}, {"max_iter": 5}, {"time_limit": 0.02}])
def test_stopped_is_no_worse_than_a_constant(budget, gamma):
    """One class is rare and lies among the other, and C is large."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 3)), rng.random(3000) < 0.1
    model = quietly(SVC(C=1000, gamma=gamma, solver="exact", **budget), X, y)
    constant = 2 * model.C * min(y.sum(), (~y).sum())
    assert not model.converged_
    assert primal(model, X, y) <= constant * (1 + 1e-6)
    assert model.objective_ == pytest.approx(primal(model, X, y), rel=1e-4)


@pytest.mark.parametrize("budget", [{"max_iter": 1}, {"max_iter": 5}, {"time_limit": 1e-3}])
@pytest.mark.parametrize("solver", ["auto", "exact", "cd", "pbm", "dc", "dip", "cascade", "sodm"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_budgets_make_no_false_claims(budget, solver, kernel):
    found = []
    for estimator, loss in LINEAR:
        recipe = Recipe(
            *(3, estimator.__name__, loss, kernel),
            **{"solver": solver, "n": 60, "apart": 0.1, "C": 1e3, "tol": 1e-8, **budget},
        )
        found += [f"{f.kind}: {f.text}\n    {recipe}" for f in judge(recipe)[0]]
    assert not found, "\n".join(found)
