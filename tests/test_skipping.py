"""Kernel values of distant rows are skipped: what that changes, and what it saves."""

import itertools
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_moons

from margrave import SVC, SVR, KernelLogisticRegression, NuSVC, NuSVR, OneClassSVM, _core
from margrave.blocks import KernelBlock
from margrave.blocks.point import BlockState, Point
from margrave.kernels import Kernel
from margrave.losses import Loss
from margrave.partitions import Centres, Parts
from margrave.problem import Data, Problem
from margrave.progress import Progress
from margrave.solvers import DivideAndConquer, Settings, order
from margrave.solvers.certificate import errors
from margrave.solvers.order import RowOrder
from tests import build, cases, exact_gap, oracle
from tests.test_kernels import LEVELS, SHIFT_INVARIANT, expected

KERNELS = [case for case in cases.KERNELS if case[0] in SHIFT_INVARIANT]
each_kernel = pytest.mark.parametrize("case", KERNELS, ids=cases.name_of)
NEGLIGIBLE = {"float32": 2.0**-36, "float64": 2.0**-70}
PRECISIONS = list(NEGLIGIBLE)


def distance_of(case, value):
    """The distance at which a kernel has this value."""
    name, parameters = case
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = 0.5 * (low + high)
        at = oracle.KERNELS[name](np.zeros((1, 1)), np.array([[middle]]), **parameters)[0, 0]
        low, high = (middle, high) if at > value else (low, middle)
    return high


def clustered(case, n, d, density, dtype=np.float64, seed=0, size=40):
    """Groups of close rows on a line; values of neighbouring groups are from 1e-5 to 1e-26."""
    rng = np.random.default_rng(seed)
    unit = distance_of(case, 1e-16)
    centres = np.cumsum(rng.uniform(0.3, 1.6, n // size + 1)) * unit
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    X *= distance_of(case, 0.3) / np.sqrt(d * density)
    X[:, d // 2] += (centres - centres.mean())[np.arange(n) // size]
    return X.astype(dtype)


def rows_of(X, case, precision, threads=1, offset=0.0, level="", starts=None):
    return _core.KernelRows(
        build.rows(X), build.core_kernel(case, offset), None, offset, starts or [0, len(X)],
        *(precision, 1 << 26, 1 << 22, threads, True, level),
    )  # fmt: skip


@each_kernel
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("density", [1.0, 0.1], ids=["dense", "compressed"])
def test_tiles(case, precision, density):
    for level, dtype, offset in itertools.product(LEVELS, cases.DTYPES, (0.0, 1.0)):
        A, B = clustered(case, 801, 20, density, dtype), clustered(case, 901, 20, density, dtype)
        K, error = expected(case, A, B, precision)
        error += offset * np.finfo(precision).eps + NEGLIGIBLE[precision]
        kernel, rows = build.core_kernel(case, offset), (build.rows(A), build.rows(B))
        tile = _core.tile(kernel, *rows, precision, 1, level)
        assert np.all(np.abs(tile.astype(float) - offset - K) <= error)
        if offset == 0.0:  # exactly zero where the value itself is not
            assert np.mean((tile == 0.0) & (K > 1e-37)) > 0.001
        for threads in (2, 3):
            same = _core.tile(kernel, *rows, precision, threads, level)
            np.testing.assert_array_equal(same, tile)


@each_kernel
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("density", [1.0, 0.1], ids=["dense", "compressed"])
def test_sums(case, precision, density):
    n, rng = 1500, np.random.default_rng(1)
    everything = np.arange(n)
    for level, offset in itertools.product(LEVELS, (0.0, 1.0)):
        X = clustered(case, n, 20, density)
        K, error = expected(case, X, X, precision)
        error += offset * np.finfo(precision).eps + NEGLIGIBLE[precision]
        coef = rng.standard_normal((n, 3))
        some = np.sort(rng.permutation(n)[:400])
        sums = {}
        for threads in (1, 2, 3):
            source = rows_of(X, case, precision, threads, offset, level)
            found = [
                source.multiply(some, coef[some], everything, False, 1e18)[0],
                source.multiply(everything, coef[:, :1], everything, False, 1e18)[0],
                source.block_sums(some, coef[some], 0).T,
            ]
            assert source.kernel_values < 0.7 * (2 * len(some) * n + n * n / 2)
            sums[threads] = found
        for a, b, c in zip(*sums.values(), strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)
        for got, rows, columns in zip(found, (some, everything, some), (3, 1, 3), strict=True):
            own = coef[rows, :columns]
            terms = (np.abs(K[:, rows]) + offset) @ np.abs(own)
            bound = error[:, rows] @ np.abs(own) + 20 * np.finfo(precision).eps * terms
            assert np.all(np.abs(got - (K[:, rows] + offset) @ own) <= bound)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_scores_of_rows_in_any_order(precision):
    """Prediction orders both sets of rows itself."""
    case, rng = ("rbf", {"gamma": 0.5}), np.random.default_rng(2)
    X = clustered(case, 2500, 10, 1.0)
    X, points = X[rng.permutation(len(X))], X[rng.permutation(len(X))]
    coef = rng.standard_normal((len(points), 2))
    K = oracle.KERNELS["rbf"](X, points, gamma=0.5)
    kernel, rows = build.core_kernel(case, 0.5), (build.rows(X), build.rows(points))
    answers = [_core.scores(kernel, *rows, coef, precision, threads) for threads in (1, 2, 3)]
    found, computed = zip(*answers, strict=True)
    assert 0 < computed[0] < 0.7 * len(X) * len(points) and len(set(computed)) == 1
    np.testing.assert_allclose(
        found[0], (K + 0.5) @ coef, rtol=0, atol=1e3 * np.finfo(precision).eps * np.abs(coef).sum()
    )
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_shards_count_what_they_compute():
    X = np.repeat([0.0, 50.0], 500)[:, None] + np.random.default_rng(4).random((1000, 1))
    problem = build.problem(X, np.ones(1000), 1.0, ("hinge", {}), ("rbf", {"gamma": 1.0}), None)
    block = KernelBlock(0, [problem], None, np.arange(1000), None, 0.0, 1 << 20, 1)
    block.rebuild(0, X, np.ones(1000), "float64")
    computed = block.figures(0, np.zeros((1, 1)))[1][2]
    K = np.exp(-((X - X.T) ** 2))
    assert np.count_nonzero(K > 1e-9) <= computed < 0.6 * K.size
    np.testing.assert_allclose(block.state()[0].scores, K.sum(axis=1), rtol=1e-9)


def test_counts():
    """All values that are computed are counted, and no others."""
    case, n = ("rbf", {"gamma": 0.5}), 1000
    near = np.random.default_rng(3).standard_normal((n, 5))
    some, everything, one = np.arange(90), np.arange(n), np.ones((n, 1))
    for precision in PRECISIONS:
        source = rows_of(near, case, precision)
        source.multiply(some, one[some], everything, False, 1e18)
        assert source.kernel_values == 90 * n
        source.multiply(some, one[some], everything, True, 1e18)
        assert source.kernel_values == 2 * 90 * n
        source.multiply(everything, one, everything, False, 1e18)
        assert 0.5 * n * n < source.kernel_values - 180 * n < 0.7 * n * n
        before = source.kernel_values
        for _ in range(30):
            source.block_sums(some, one[some], 0)
        assert source.cached_bytes > 0
        assert source.kernel_values - before < 30 * 90 * n
        # 25 groups that are infinitely far apart
        groups = np.repeat(np.arange(n // 40)[:, None] * 1e3, 40, axis=0)
        source = rows_of(groups, case, precision)
        source.multiply(everything[:120], one[:120], everything, False, 1e18)
        # a group of twelve may touch two groups of 40 rows, and a panel three
        assert 120 * 40 <= source.kernel_values <= 120 * 160


@pytest.mark.parametrize("leaf", [1, 7, 32])
def test_spatial_order(leaf):
    rng = np.random.default_rng(4)
    for n, d in ((1, 3), (31, 2), (32, 1), (33, 4), (1000, 3), (5000, 1)):
        for X in (rng.standard_normal((n, d)), rng.integers(0, 3, (n, d)).astype(np.float32)):
            orders = [_core.spatial_order(build.rows(X), leaf, t) for t in (1, 2, 3)]
            np.testing.assert_array_equal(np.sort(orders[0]), np.arange(n))
            np.testing.assert_array_equal(orders[0], orders[1])
            np.testing.assert_array_equal(orders[0], orders[2])
            fortran = _core.spatial_order(build.rows(np.asfortranarray(X)), leaf, 1)
            np.testing.assert_array_equal(fortran, orders[0])


def test_neighbours_in_spatial_order_are_close():
    X = np.random.default_rng(5).random((4096, 2))
    order = _core.spatial_order(build.rows(X), 32, 1)
    boxes = X[order].reshape(-1, 32, 2)
    # 128 boxes of a unit square: an area of 1/128 each
    assert np.mean(np.prod(boxes.max(axis=1) - boxes.min(axis=1), axis=1)) < 1 / 128


def test_share_of_negligible_values():
    X = np.arange(1000.0)[:, None]
    kernel, rows = _core.Kernel("rbf", gamma=1.0), build.rows(X)
    assert _core.negligible_share(kernel, rows, rows) > 0.98
    assert _core.negligible_share(_core.Kernel("rbf", gamma=1e-9), rows, rows) == 0.0
    assert _core.negligible_share(_core.Kernel("linear"), rows, rows) == 0.0
    assert kernel.negligible(single=False) == NEGLIGIBLE["float64"]
    assert _core.Kernel("linear").negligible(single=False) == 0.0


# --- certificates --------------------------------------------------------------------------


@each_kernel
@pytest.mark.parametrize("careful", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_bounds_on_errors_of_scores(case, careful, offset, monkeypatch):
    """The coefficients are such that all of a row's score may come from values that are skipped."""
    if not careful:
        monkeypatch.setattr(errors, "_CAREFUL", 0)
    n, (name, parameters) = 120, case
    X = clustered(case, n, 3, 1.0, size=16)
    data = Data(X, Kernel(name, **parameters), np.array([0, n]))
    beta = np.where(np.arange(n) // 16 == 1, 1e10, 1e-30) * np.resize([1.0, -0.7], n)
    source = data.kernel_rows("float64", 1 << 20, 1 << 20, 1, cache=False)
    everything = np.arange(n)
    scores, _ = source.multiply(everything, beta[:, None].copy(), everything, True, 1e18)
    assert source.kernel_values < 0.7 * n * n
    bounds = errors.Errors(data, beta)
    sharp, off = bounds.closely(everything, scores, 1)
    true = exact_gap.Gram(X, name, vars(data.kernel)).times(exact_gap.exact(beta))
    for i in range(n):
        assert abs(true[i] - mpmath.mpf(scores[i, 0])) <= bounds.quick()[i, 0]
        assert abs(true[i] - mpmath.mpf(sharp[i, 0])) <= off[i, 0]
    if not careful:  # the skipped values are most of what these rows are off by
        skipped = np.flatnonzero(scores[:, 0] ** 2 < 1e-40)
        assert any(abs(true[i]) > 1e-30 for i in skipped)


@pytest.mark.parametrize(("intercept", "tol"), [("free", 1e-3), ("regularized", 1e-8)])
@each_kernel
def test_certificates(case, intercept, tol):
    """Nearly all values are skipped, and the gap holds with 600 bits."""
    n, (name, parameters) = 100, case
    X = clustered(case, n, 2, 1.0, seed=3, size=16)
    y = np.random.default_rng(6).integers(0, 2, n)
    settings = {"kernel": name, **parameters, "intercept": intercept, "tol": tol}
    for C in (1.0, 100.0):
        model = SVC(C=C, **settings).fit(X, y)
        (found,) = exact_gap.exact_gaps(model, X, y, None)
        assert model.converged_
        assert found.gap <= 1.001 * model.gap_ + 1e-14
        assert found.gap <= 1.001 * model.certify(X, y) + 1e-14


# --- fits ----------------------------------------------------------------------------------


def problem_of(n=2100, classes=2, seed=7):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    y = (np.floor(4 * X[:, 0]) + np.floor(4 * X[:, 1]) + rng.integers(0, 8, n) // 7) % classes
    return X, y.astype(int)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SVC(gamma=3e3, tol=1e-4),
        lambda: SVC(gamma=3e3, tol=1e-4, solver="dc"),
        lambda: SVC(gamma=3e3, tol=1e-4, multi_class="ovr"),
        lambda: SVC(gamma=3e3, tol=1e-2, multi_class="crammer_singer"),
        lambda: SVR(gamma=3e3, tol=1e-4),
        lambda: KernelLogisticRegression(gamma=3e3, tol=1e-4),
        lambda: OneClassSVM(gamma=3e3, tol=1e-4, nu=0.2),
        lambda: NuSVC(gamma=3e3, tol=1e-4, nu=0.2),
        lambda: NuSVR(gamma=3e3, tol=1e-4, nu=0.2),
    ],
    ids=["svc", "dc", "ovr", "crammer_singer", "svr", "klr", "one_class", "nu", "nu_svr"],
)
def test_models_do_not_depend_on_the_order_of_rows(make):
    """The rows are ordered inside a fit: attributes are those of the rows as they were given."""
    X, y = problem_of(classes=3 if make().get_params().get("multi_class") else 2)
    shuffled = np.random.default_rng(8).permutation(len(X))
    models = [make().fit(X, y), make().fit(X[shuffled], y[shuffled])]
    for model, rows in zip(models, (X, X[shuffled]), strict=True):
        np.testing.assert_array_equal(model.support_vectors_, rows[model.support_])
        bounds = np.cumsum(model.n_support_)[:-1]
        assert all(np.all(np.diff(part) > 0) for part in np.split(model.support_, bounds))
        assert model.converged_
        if model.get_params()["solver"] == "dc":
            early = model.early_
            np.testing.assert_array_equal(early.support_vectors_, rows[early.support_])
            assert np.mean(early.predict(rows) == model.predict(rows)) > 0.9
    np.testing.assert_allclose(models[0].objective_, models[1].objective_, rtol=2 * make().tol)
    decide = "predict" if isinstance(models[0], (SVR, NuSVR)) else "decision_function"
    new = np.random.default_rng(9).random((3000, 2))
    first, second = (getattr(model, decide)(new) for model in models)
    np.testing.assert_allclose(first, second, atol=0.1 * np.abs(first).max())


def test_fits_compute_a_part_of_the_values(monkeypatch):
    X, y = problem_of(n=6000)
    computed = {}
    for worth in (0.5, 2.0):  # 2: rows are never ordered
        monkeypatch.setattr(order, "_WORTH", worth)
        model = SVC(gamma=3e3, solver="exact").fit(X, y)
        computed[worth] = model.history_[-1]["kernel_values"]
    assert computed[0.5] < 0.3 * computed[2.0]


def test_warm_starts_of_ordered_rows():
    X, y = problem_of()
    model = SVC(gamma=3e3, tol=1e-5, warm_start=True).fit(X, y)
    rounds = model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ < 0.5 * rounds


class EverySecond:
    """A partition by the rows' numbers."""

    def split(self, data, k, seed, among=None, y=None, threads=1):
        return Parts(np.arange(data.n_rows) % 2, Centres(np.array([[0.0, 0.0], [1.0, 1.0]])))


def test_partitions_by_number_see_the_rows_in_their_own_order():
    X, y = problem_of()
    solver = DivideAndConquer(levels=1, branching=2, early=1, partition=EverySecond())
    model = SVC(gamma=3e3, solver=solver).fit(X, y)
    halves = [SVC(gamma=3e3, intercept=None).fit(X[k::2], y[k::2]) for k in (0, 1)]
    expected = sum(half.objective_ for half in halves)
    assert model.objective_ == pytest.approx(expected, rel=5e-3)


def test_what_is_not_ordered(tmp_path):
    X, y = problem_of()
    data = Data(X, Kernel("rbf", gamma=3e3), np.array([0, len(X)]))

    def found(data, **changes):
        with Progress(1e-3) as progress:
            settings = replace(Settings(1e-3, 1 << 26, 1, 0, progress), **changes)
            problem = Problem(data, None, 2.0 * y - 1, np.ones(len(y)), Loss("hinge"), "free")
            return RowOrder.of([problem], settings).rows

    assert len(found(data)) == len(X)
    assert found(data, memory_limit=X.nbytes) is None
    assert found(data, engine="serial") is None
    assert found(replace(data, X=sparse.csr_array(X))) is None
    assert found(replace(data, kernel=Kernel("linear"))) is None
    assert found(replace(data, kernel=Kernel("rbf", gamma=1.0))) is None
    np.save(tmp_path / "rows.npy", X)
    assert found(replace(data, X=np.load(tmp_path / "rows.npy", mmap_mode="r"))) is None


def test_shards_recompute_rows_whose_loss_skipped_values_may_hide():
    """One far row, with a value of 1e-12, has so large a variable that it decides on a loss."""
    X, y = np.array([[0.0], [np.sqrt(-np.log(1e-12))]]), np.ones(2)
    problem = build.problem(X, y, 1e12, ("hinge", {}), ("rbf", {"gamma": 1.0}), None)
    beta = np.array([0.0, 5e11])
    truth = problem.data.kernel.values(X, X) @ beta  # 0.5 and 5e11
    claimed = truth + np.array([0.6, 0.0])  # no loss, as sums without the value say
    block = Point(0, [problem], [BlockState(beta, claimed)], np.arange(2), None, 0.0, 1 << 20, 1)
    block.certify(0, *block.support(0), np.zeros(1))
    np.testing.assert_allclose(block.states[0].scores, truth)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_the_sign_of_sums_too_small_for_single_precision(kernel):
    X, y = make_moons(1500, noise=0.1, random_state=0)
    new = np.random.default_rng(0).uniform(-0.8, 1.2, (400, 2))
    model = SVC(C=4.0, gamma=1024.0, kernel=kernel, intercept=None).fit(X, y)
    assert model._precision == "float32"
    values = getattr(oracle, kernel)(new, model.support_vectors_, gamma=1024.0)
    exact = values @ model.dual_coef_[0]
    assert np.count_nonzero(np.abs(exact) < 1e-44) > 20  # zero in single precision
    known = np.abs(exact) > 1e-300
    assert known.mean() > 0.9
    np.testing.assert_array_equal(model.predict(new)[known], exact[known] > 0)
