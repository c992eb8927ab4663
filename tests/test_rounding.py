"""What rounding does to scores and sums, and the bounds of it, against rational arithmetic."""

from __future__ import annotations

import warnings
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from margrave import SVC, SVR, HardMarginSVC, NuSVC, NuSVR, RowBlocks, _core
from margrave.kernels import KERNELS, Kernel, core_rows
from margrave.losses import Loss
from margrave.problem import Data
from margrave.solvers.certificate import UNIT, Errors
from tests import exact_gap
from tests.fuzz_certificates import Recipe, is_covered, judge

NATIVE = [
    (name, power)
    for name, read in KERNELS.items()
    for power in ((1.0, 0.5) if "power" in read else (1.0,))
    if name != "precomputed"
]
PLACES = [
    (1.0, 0.0),
    (1e-9, 0.0),
    (1e6, 0.0),
    (1.0, 1e8),
    (1e-3, -1e4),
    (1.0, 1e12),
]  # scale and offset


def rows(scale, offset, form, n=25, d=7):
    rng = np.random.default_rng(int(abs(offset)) + n)
    X = rng.standard_normal((n, d)) * scale + offset
    if form == "float32":
        return X.astype(np.float32)
    if form == "csr":
        X[rng.random(X.shape) < 0.5] = 0.0
        return sparse.csr_array(X)
    return X


def dense(X):
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


@pytest.mark.parametrize("compensated", [False, True])
@pytest.mark.parametrize("form", ["float64", "float32", "csr"])
@pytest.mark.parametrize(("scale", "offset"), PLACES)
def test_products_with_rows(scale, offset, form, compensated):
    """X w and X'b are within their bounds, and compensated ones are exact to the last digit."""
    X = rows(scale, offset, form)
    rng = np.random.default_rng(1)
    w, b = rng.standard_normal(X.shape[1]), rng.standard_normal(X.shape[0])
    b -= b.mean()
    linear = _core.LinearRows(core_rows(X), [0], [X.shape[0]], _core.Team(2))
    f, errors, high, low, size = linear.audit(w, b, compensated)
    for i, row in enumerate(dense(X)):
        true = sum(Fraction(x) * Fraction(v) for x, v in zip(row, w, strict=True))
        off = abs(Fraction(f[i]) - true)
        assert off <= Fraction(errors[i])
        if compensated:
            assert off <= Fraction(1.01 * UNIT * abs(f[i])) + Fraction(1, 10**300)
    for k, column in enumerate(dense(X).T):
        true = sum(Fraction(x) * Fraction(v) for x, v in zip(column, b, strict=True))
        off = abs(Fraction(high[k]) + Fraction(low[k]) - true)
        assert off <= Fraction(UNIT * (len(b) + 2) * size)
        if compensated:
            assert off <= Fraction(1e4 * UNIT**2 * size)


@pytest.mark.parametrize("form", ["float64", "float32", "csr"])
@pytest.mark.parametrize(("name", "power"), NATIVE)
@pytest.mark.parametrize(("scale", "offset"), PLACES)
def test_scores(name, power, scale, offset, form):
    """Scores in double precision, and with compensation, are within their bounds."""
    X = rows(scale, offset, form)
    n = X.shape[0]
    gamma = 0.3 / scale if name == "laplacian" else 0.3 / scale**2
    kernel = Kernel(name, gamma=gamma, degree=3, coef0=-1.0, power=power)
    data = Data(X, kernel, np.array([0, n]))
    beta = np.random.default_rng(2).standard_normal(n) * 10.0 ** np.linspace(-3, 3, n)
    source = data.kernel_rows("float64", 0, 1 << 20, 1, cache=False)
    everyone = np.arange(n)
    scores, _ = source.multiply(everyone, beta[:, None].copy(), everyone, True, 1e18)
    bounds = Errors(data, beta)
    quick = bounds.quick()
    sharp, errors = bounds.closely(everyone, scores, 1)
    gram = exact_gap.Gram(dense(X), name, vars(kernel))
    true = gram.times(exact_gap.exact(beta))
    for i in range(n):
        assert abs(true[i] - mpmath.mpf(scores[i, 0])) <= quick[i, 0]
        assert abs(true[i] - mpmath.mpf(sharp[i, 0])) <= errors[i, 0]


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("form", ["float64", "csr"])
def test_sums_of_many_equal_terms(form, offset):
    """Where a sum of one term after the other would be off by a tenth of n roundings of itself."""
    n, term = 50_000, 0.1
    X = rows(1.0, 0.0, form, n=1)[np.zeros(n, dtype=int)]
    data = Data(X, Kernel("rbf", gamma=0.5), np.array([0, n]))
    beta = np.full(n, term)
    source = data.kernel_rows("float64", 0, 1 << 20, 1, offset, cache=False)
    some = np.arange(0, n, 9999)
    scores, _ = source.multiply(np.arange(n), beta[:, None], some, True, 1e18)
    true = n * Fraction(term) * (1 + Fraction(offset))
    bounds = Errors(data, beta, offset).quick()[some, 0]
    assert (bounds < 0.2 * UNIT * n * float(true)).all()
    for score, bound in zip(scores[:, 0], bounds, strict=True):
        assert abs(Fraction(score) - true) <= Fraction(bound)


def test_terms_of_one_sign():
    """Errors of equal terms all have the same sign: bounds are not statistical."""
    n = 20_000
    X = sparse.vstack([sparse.csr_array(np.full((1, n), 0.1)), sparse.eye_array(n, format="csr")])
    linear = _core.LinearRows(core_rows(X.tocsr()), [0], [n + 1], _core.Team(1))
    f, errors, high, _, size = linear.audit(np.ones(n), np.ones(n + 1), False)
    assert abs(Fraction(f[0]) - n * Fraction(0.1)) <= Fraction(errors[0])
    assert abs(Fraction(high[0]) - Fraction(0.1) - 1) <= Fraction(UNIT * (n + 3) * size)


def test_a_change_of_the_sum_goes_where_it_costs_least():
    y, C = np.array([1.0, 1.0, -1.0, -1.0]), np.ones(4)
    terms = _core.RowTerms(Loss("hinge").core(), y, C, _core.Team(1))
    beta, f = np.array([1.0, 0.4, 0.0, -0.4]), np.array([0.5, 1.0, -3.0, -1.0])
    nothing = np.zeros(4)
    row, cost = terms.absorb(beta, f, nothing, 0.0, 1e-3)
    assert row in (1, 3) and cost == pytest.approx(0.0, abs=1e-15)  # both are on their margin
    row, cost = terms.absorb(beta, f, nothing, 0.0, 5.0)  # no box has room
    assert row == -1 and cost == np.inf


# --- what users see of it ------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["auto", "exact", "newton", "cd"])
def test_rows_far_from_zero_are_solved_around_their_mean(solver):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 4))
    y = X[:, 0] + 0.5 * rng.standard_normal(60) > 0
    near = SVC(kernel="linear", solver=solver, tol=1e-6).fit(X, y)
    far = SVC(kernel="linear", solver=solver, tol=1e-6).fit(X + 2.0**22, y)
    assert far.converged_
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-2, atol=1e-3)
    np.testing.assert_array_equal(far.predict(X + 2.0**22), near.predict(X))
    assert far.objective_ == pytest.approx(near.objective_, rel=3e-6)


@pytest.mark.parametrize(
    "make", [lambda: NuSVC(0.3, kernel="linear"), lambda: SVC(kernel="linear")]
)
@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1e6, 1e12])
def test_swaps_do_not_depend_on_units(make, scale):
    """Curvatures are compared with the rows' own size, not with a number."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((80, 3))
    y = X[:, 0] + 0.3 * rng.standard_normal(80) > 0
    model = make().set_params(solver="exact", tol=1e-6, time_limit=20.0)
    if isinstance(model, SVC):
        model.set_params(C=1.0 / scale**2)
    model.fit(scale * X, y)
    reference = make().set_params(solver="exact", tol=1e-6).fit(X, y)
    assert model.converged_ and model.n_iter_ <= 2 * reference.n_iter_ + 5
    np.testing.assert_array_equal(model.predict(scale * X), reference.predict(X))


def test_hopeless_problems_end_by_themselves():
    """Two digits are left of what tells these rows apart: no solver goes on for ever."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 40))
    y = X[:, 0] + 0.5 * rng.standard_normal(30) > 0
    model = SVC(kernel="linear", intercept="regularized", tol=1e-6, time_limit=30.0)
    for solver in ("auto", "exact"):
        with pytest.warns(ConvergenceWarning):
            model.set_params(solver=solver).fit(X + 3e7, y)
        assert model.history_[-1]["seconds"] < 20.0
        assert is_covered(exact_gap.exact_gaps(model, X + 3e7, y)[0].gap, model.gap_)


CAUSES = [
    (
        lambda X, y: SVC(kernel="linear", solver="pbm").fit(
            np.random.default_rng(0).standard_normal((40, 40)) + 1e8, y
        ),
        "centre them",
    ),
    (lambda X, y: SVR(gamma=1.0, C=1e6, tol=1e-8).fit(X, X[:, 0] + 1e9), "subtract their mean"),
    (
        lambda X, y: SVC(kernel="laplacian", gamma=8e-9).fit(
            X, y, sample_weight=np.where(np.arange(len(y)) == 3, 1e14, 1.0)
        ),
        "closer together",
    ),
    (lambda X, y: SVC(kernel="poly", C=1e16, tol=1e-6).fit(X, y), "lower C"),
]


@pytest.mark.parametrize(("fit", "cure"), CAUSES, ids=[cure for _, cure in CAUSES])
def test_the_warning_says_what_makes_rounding_so_large(fit, cure):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((40, 3))
    y = X[:, 0] + 0.5 * rng.standard_normal(40) > 0
    with pytest.warns(ConvergenceWarning, match="in double precision") as told:
        model = fit(X, y)
    assert cure in str(told[-1].message) and not model.converged_


def test_a_stopped_fit_has_an_estimate():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((3000, 5))
    y = X[:, 0] + rng.standard_normal(3000) > 0
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model = SVC(C=100.0, gamma=1.0, solver="exact", time_limit=0.05).fit(X, y)
    assert not model.converged_
    assert model.certificate_ in ("estimate", "full")
    if model.certificate_ == "full":  # nothing but zero was reached
        assert not model.dual_coef_.any()
    assert model.gap_ > 0.0 and model.certify(X, y) > model.tol


def test_the_tube_is_certified_as_it_is_stored():
    """Intercept and width of the tube depend on rows whose scores the solver kept in float32."""
    rng = np.random.default_rng(8)
    for _ in range(40):
        X = rng.standard_normal((int(rng.integers(3, 9)), 2))
        y = rng.standard_normal(len(X))
        model = NuSVR(nu=float(rng.uniform(0.1, 0.9)), C=10 ** rng.uniform(3, 6), gamma=0.003)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.set_params(time_limit=5.0).fit(X, y)
        assert is_covered(exact_gap.exact_gaps(model, X, y)[0].gap, model.gap_)


def test_rows_in_blocks_that_cannot_be_certified():
    X = np.random.default_rng(9).standard_normal((50, 5)) + 1e9
    with pytest.warns(ConvergenceWarning):
        model = SVC(kernel="linear").fit(RowBlocks([X[:20], X[20:]]), X[:, 0] > 1e9)
    assert not model.converged_


@pytest.mark.parametrize("solver", ["cd", "exact"])
def test_rows_that_almost_depend_on_each_other(solver):
    """Coordinate descent creeps, and says so; no model is worse than a constant."""
    X = [[196130971.44284838], [193326980.14545688], [196130971.44284838], [193326980.14545688]]
    y = [1, 2, 0, 0]
    model = SVC(kernel="linear", solver=solver, time_limit=60.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    assert model.history_[-1]["seconds"] < 50.0
    for one in exact_gap.exact_gaps(model, np.array(X), np.array(y)):
        assert one.primal <= one.zero * (1 + 1e-9)


def test_support_vectors_of_wide_rows_are_certified_as_they_are_stored():
    """Without room for weights of all features the model is a sum over support vectors."""
    rng = np.random.default_rng(10)
    dense = rng.standard_normal((50, 3))
    X = sparse.csr_array((50, 10**6)).tolil()
    X[:, [5, 70_000, 999_999]] = dense
    y = dense[:, 0] > 0
    model = SVC(kernel="linear", solver="exact", C=1e10, tol=1e-9, time_limit=20.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X.tocsr(), y)
        narrow = SVC(kernel="linear", solver="exact").fit(dense[:4], [0, 1, 0, 1])
    assert narrow.converged_ and model.coef_.shape == (1, 10**6)
    claimed = model.certify(X.tocsr(), y)
    assert is_covered(claimed, model.gap_)


def test_one_heavy_row_of_a_joint_problem():
    """Its variables are a point of the simplex only up to the weight times a rounding error."""
    recipe = Recipe(
        seed=90308,
        loss="hinge",
        intercept="regularized",
        multi_class="crammer_singer",
        n=5,
        d=5,
        apart=10.0,
        constant=True,
        heavy=1e14,
    )
    assert not judge(recipe)[0]


@pytest.mark.parametrize("weight", [1e-300, 1e300])
def test_weights_beyond_double_precision(weight):
    X, y = np.arange(6.0)[:, None], [0, 1, 0, 1, 1, 1]
    with pytest.raises(ValueError, match="times the weights"):
        SVC(kernel="linear").fit(X, y, sample_weight=np.full(6, weight))


def test_points_of_both_classes_in_one_place():
    """Equal rows that only the rounding of their mean tells apart are not separable."""
    X, y = np.full((11, 1), 0.1), np.arange(11) % 2
    with pytest.raises(ValueError, match="overlap"), warnings.catch_warnings():
        warnings.simplefilter("error")
        HardMarginSVC(kernel="linear").fit(X, y)
