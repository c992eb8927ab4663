"""Tiles and scores against plain numpy kernels: every kernel, layout, type and machine level."""

import itertools

import numpy as np
import pytest

from margrave import _core
from margrave.kernels import Kernel
from tests import build, cases, oracle

LAYOUTS = list(cases.LAYOUTS)
LEVELS = _core.isa_levels()
# (rows of A, rows of B, columns)
SHAPES = [(1, 1, 1), (1, 33, 5), (33, 1, 3), (33, 34, 17), (130, 70, 64), (12, 32, 1), (5, 7, 1000)]

# values alone can be tested where the solver could not certify: these need not be semidefinite
KERNELS = [
    *cases.KERNELS,
    ("sigmoid", {"gamma": 2.0, "coef0": -0.7}),
    ("poly", {"gamma": 1.3, "degree": 5, "coef0": -0.5}),
    ("poly", {"gamma": 1.3, "degree": 1, "coef0": -0.5}),
    ("poly", {"gamma": 1.3, "degree": 0, "coef0": 0.0}),
    ("rbf", {"gamma": 0.0}),
    ("rbf", {"gamma": 40.0}),
]
SHIFT_INVARIANT = [name for name in _core.KERNELS if _core.Kernel(name).shift_invariant]
each_kernel = pytest.mark.parametrize("case", KERNELS, ids=cases.name_of)


def random_rows(n, d, dtype, seed=0, density=0.6):
    """Rows of about unit length, some entries zero; every seventh row from the fourth is zero."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density) / np.sqrt(density * d)
    X[3::7] = 0.0
    return X.astype(dtype)


def expected(case, A, B, precision):
    """Kernel values, and how far rounding in `precision` may carry them from these."""
    A, B = A.astype(float), B.astype(float)
    name, p = case
    K, eps = oracle.KERNELS[name](A, B, **p), np.finfo(precision).eps
    dot = np.abs(A) @ np.abs(B).T
    if name == "linear":
        moved = dot
    elif name == "poly":
        base = p["gamma"] * dot + abs(p["coef0"])
        moved = p["degree"] * base ** p["degree"]
    elif name == "sigmoid":
        moved = p["gamma"] * dot + abs(p["coef0"])
    elif name == "rbf":
        moved = p["gamma"] * ((A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1)) * K
    elif name in ("matern32", "matern52"):
        moved = 3 * p["gamma"] * ((A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1)) * K
    elif name == "laplacian":
        size = p["gamma"] * (np.abs(A).sum(axis=1)[:, None] + np.abs(B).sum(axis=1))
        moved = power_moves(size, K, p["power"], eps) * K
    elif name == "exponential":
        lengths = np.linalg.norm(A, axis=1)[:, None] + np.linalg.norm(B, axis=1)
        moved = power_moves(np.sqrt(p["gamma"]) * lengths, K, p["power"], eps) * K
    return K, (8 + np.sqrt(A.shape[1])) * eps * (moved + np.abs(K) + 1e-3)


def power_moves(size, K, power, eps):
    """What errors of eps times size in a distance a do to a^power = -log K, over eps."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.maximum(-np.log(K), 0.0)
        smooth = exponent * (4 + power * size / exponent ** (1 / power))
    return np.where(exponent > 0, np.fmin(smooth, (size * eps) ** power / eps), 0.0)


def assert_within(actual, K, error):
    assert actual.shape == K.shape
    worst = np.max(np.abs(actual - K) / error)
    assert worst <= 1.0, f"{worst:.1f} times the error that rounding explains"


def test_every_compiled_kernel_is_listed():
    assert set(_core.KERNELS) == set(oracle.KERNELS) == {name for name, _ in cases.KERNELS}
    for name, parameters in cases.KERNELS:
        assert set(_core.KERNELS[name]) == set(parameters)


def test_levels():
    assert len(LEVELS) == len(set(LEVELS)) >= 1


@each_kernel
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tile(case, level, precision, shape):
    n, m, d = shape
    for dtype, threads, offset in itertools.product(cases.DTYPES, (1, 2), (0.0, 1.0)):
        A, B = random_rows(n, d, dtype, 1), random_rows(m, d, dtype, 2)
        K, error = expected(case, A, B, precision)
        kernel = build.core_kernel(case, offset)
        tile = _core.tile(kernel, build.rows(A), build.rows(B), precision, threads, level)
        assert tile.dtype == precision
        assert_within(
            tile - np.dtype(precision).type(offset), K, error + offset * np.finfo(precision).eps
        )


@each_kernel
@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, LAYOUTS)), ids="-".join)
def test_tile_of_every_layout(case, layouts):
    """Dense and CSR rows of either type meet in every combination, on every machine level."""
    for types in itertools.product(cases.DTYPES, cases.DTYPES):
        A, B = random_rows(33, 19, types[0], 3), random_rows(14, 19, types[1], 4)
        a, b = build.rows(A, layouts[0]), build.rows(B, layouts[1])
        for level, precision in itertools.product(LEVELS, ("float32", "float64")):
            K, error = expected(case, A, B, precision)
            assert_within(_core.tile(build.core_kernel(case), a, b, precision, 1, level), K, error)


@each_kernel
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_dense_rows_that_are_mostly_zero(case, level, precision):
    """They are packed as compressed rows, and a column that is never zero is centred even so."""
    for density, dtype, threads in itertools.product((0.02, 0.1, 0.25), cases.DTYPES, (1, 2)):
        A = random_rows(70, 40, dtype, 11, density)
        B = random_rows(45, 40, dtype, 12, density)
        A[:, 5] += 0.5
        B[:, 5] += 0.5
        K, error = expected(case, A, B, precision)
        kernel, rows = build.core_kernel(case), (build.rows(A), build.rows(B))
        assert_within(_core.tile(kernel, *rows, precision, threads, level), K, error)
        own = _core.tile(kernel, rows[0], rows[0], precision, threads, level)
        if kernel.shift_invariant:
            np.testing.assert_array_equal(np.diag(own), 1.0)


@each_kernel
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_without_entries(case, layout):
    A, B = np.zeros((5, 6)), random_rows(9, 6, np.float64)
    for first, second in ((A, B), (B, A), (A, A)):
        K, error = expected(case, first, second, "float64")
        rows = build.rows(first, layout), build.rows(second, layout)
        assert_within(_core.tile(build.core_kernel(case), *rows), K, error)


@each_kernel
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("layouts", [("C", "C"), ("csr32", "csr32"), ("C", "csr64")], ids="-".join)
def test_scores(case, level, precision, layouts):
    rng = np.random.default_rng(5)
    shapes = [(1, 1, 1, 1), (33, 70, 17, 1), (200, 257, 9, 3), (7, 40, 1000, 2)]
    for (n, m, d, outputs), dtype, threads in itertools.product(shapes, cases.DTYPES, (1, 2)):
        X, points = random_rows(n, d, dtype, 6), random_rows(m, d, dtype, 7)
        coef = rng.standard_normal((m, outputs))
        coef[rng.random(m) < 0.3] = 0.0  # dropped by the core
        K, error = expected(case, X, points, precision)
        rows = build.rows(X, layouts[0]), build.rows(points, layouts[1])
        scores, _ = _core.scores(build.core_kernel(case), *rows, coef, precision, threads, level)
        assert scores.dtype == np.float64
        sum_error = error @ np.abs(coef) + 8 * np.finfo(float).eps * np.abs(K) @ np.abs(coef)
        assert_within(scores, K @ coef, sum_error + 1e-300)


@each_kernel
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["C", "csr32"])
def test_scores_of_many_points_repeat_with_any_threads(case, precision, layout):
    """Also where a kernel lets the points be added up first, in chunks, each with its offset."""
    X, points = random_rows(70, 12, np.float64, 6), random_rows(3000, 12, np.float64, 7)
    K, error = expected(case, X, points, precision)
    rows = build.rows(X, layout), build.rows(points, layout)
    kernel = build.core_kernel(case, offset=0.7)
    rounding = 16 * np.finfo(precision).eps * (np.abs(K) + 0.7)
    for outputs in (2, 2500):  # the sums of so many are no longer small
        coef = np.random.default_rng(5).standard_normal((3000, outputs))
        scores = [_core.scores(kernel, *rows, coef, precision, threads)[0] for threads in (1, 2, 3)]
        for one in scores:
            np.testing.assert_array_equal(one, scores[0])
        assert_within(scores[0], (K + 0.7) @ coef, (error + rounding) @ np.abs(coef))


def test_scores_without_coefficients_are_zero():
    X, points = random_rows(5, 4, np.float64), random_rows(6, 4, np.float64)
    kernel = build.core_kernel(("rbf", {"gamma": 1.0}))
    scores, computed = _core.scores(kernel, build.rows(X), build.rows(points), np.zeros((6, 2)))
    np.testing.assert_array_equal(scores, np.zeros((5, 2)))
    assert computed <= 30


@each_kernel
def test_levels_and_threads_agree(case):
    """Every instruction set gives the same numbers up to rounding, whatever the threads."""
    A = random_rows(150, 40, np.float32, 8)
    rows = build.rows(A)
    K, error = expected(case, A, A, "float64")
    for level, threads in itertools.product(LEVELS, (1, 2, 3)):
        tile = _core.tile(build.core_kernel(case), rows, rows, "float64", threads, level)
        assert_within(tile, K, error)
        np.testing.assert_allclose(tile, tile.T, rtol=0, atol=2 * error.max())


def test_far_from_the_origin():
    """Distances do not drown in |x|^2 + |z|^2 - 2 x.z when all rows share a large offset."""
    for columns, density in ((slice(None), 0.6), ([2], 0.1)):
        A = random_rows(40, 6, np.float64, 9, density)
        K = oracle.rbf(A, A, gamma=2.0)
        for offset, precision, error in ((1e3, "float64", 1e-9), (100.0, "float32", 2e-4)):
            far = A.copy()
            far[:, columns] += offset
            rows = build.rows(far)
            tile = _core.tile(build.core_kernel(("rbf", {"gamma": 2.0})), rows, rows, precision)
            np.testing.assert_allclose(tile, K, atol=error)
            assert np.all(tile <= 1.0 + 1e-6)


def test_shift_invariance_is_what_it_says():
    X = random_rows(20, 5, np.float64, 13)
    for name in _core.KERNELS:
        kernel, (near, far) = _core.Kernel(name, gamma=0.5), (build.rows(X), build.rows(X + 1.0))
        moved = np.abs(_core.tile(kernel, far, far) - _core.tile(kernel, near, near)).max()
        assert (moved < 1e-12) == kernel.shift_invariant == (name in SHIFT_INVARIANT)
        assert Kernel(name).is_shift_invariant == kernel.shift_invariant
    assert {"rbf", "laplacian"} < set(SHIFT_INVARIANT) and "poly" not in SHIFT_INVARIANT
    assert not Kernel("precomputed").is_shift_invariant
    assert not Kernel(oracle.linear).is_shift_invariant


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SHIFT_INVARIANT)
@pytest.mark.parametrize("layout", ["C", "csr32", "csr64"])
@pytest.mark.parametrize("width", [6, 3000])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_near_duplicates(level, name, layout, width, offset):
    """Kernels that are steep at zero tell close rows apart, and equal rows have the value one."""
    rng = np.random.default_rng(14)
    X = np.zeros((60, width))
    X[:, :6] = rng.standard_normal((60, 6)) + offset
    X[:, rng.permutation(np.arange(6, width))[:50]] = 0.1
    for precision, apart in (("float64", 1e-7), ("float32", 1e-3)):
        Z = X.copy()
        Z[::2, 0] += apart
        Z[1::4, -1] = apart  # a feature that the other one lacks
        Z = Z.astype(precision)
        case = (name, dict.fromkeys(_core.KERNELS[name], 1.0))
        A, B = build.rows(X.astype(precision), layout), build.rows(Z, layout)
        K = oracle.KERNELS[name](X.astype(precision).astype(float), Z.astype(float), **case[1])
        for first, second, true in ((A, B, K), (B, A, K.T)):
            tile = _core.tile(build.core_kernel(case), first, second, precision, 1, level)
            error = 300 * np.finfo(precision).eps
            np.testing.assert_allclose(tile, true, rtol=0, atol=error)
        own = _core.tile(build.core_kernel(case), B, B, precision, 1, level)
        np.testing.assert_array_equal(np.diag(own), 1.0)


def test_large_exponents_underflow_to_zero():
    A = np.array([[0.0], [1e3], [1e6]])
    for case in [(name, {"gamma": 1e4}) for name in SHIFT_INVARIANT]:
        for precision in ("float32", "float64"):
            for level in LEVELS:
                rows = build.rows(A)
                tile = _core.tile(build.core_kernel(case), rows, rows, precision, 1, level)
                np.testing.assert_array_equal(tile, np.eye(3))


def test_columns_must_agree():
    rows = build.rows(np.ones((2, 3))), build.rows(np.ones((2, 4)))
    with pytest.raises(ValueError, match="unequal length"):
        _core.tile(build.core_kernel(("linear", {})), *rows)


def test_unknown_names_are_refused():
    rows = build.rows(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"unknown kernel.*cosine"):
        _core.Kernel("cosine")
    kernel = build.core_kernel(("linear", {}))
    with pytest.raises(ValueError, match="float16"):
        _core.tile(kernel, rows, rows, "float16")
    with pytest.raises(ValueError, match="v9"):
        _core.tile(kernel, rows, rows, "float64", 1, "v9")


def test_views_keep_their_arrays_alive():
    rows = build.rows(random_rows(50, 8, np.float64, 10))  # the array has no other owner
    K, error = expected(("linear", {}), *[random_rows(50, 8, np.float64, 10)] * 2, "float64")
    np.random.default_rng(0).standard_normal((50, 8))  # would reuse freed memory
    assert_within(_core.tile(build.core_kernel(("linear", {})), rows, rows), K, error)
    assert (rows.n_rows, rows.n_columns) == (50, 8)
