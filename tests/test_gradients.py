"""Gradients of sums of kernel values against finite differences, for every kernel of a distance."""

import numpy as np
import pytest

from margrave import _core
from tests import build, cases, oracle

DISTANCES = [case for case in cases.KERNELS if _core.Kernel(case[0]).shift_invariant]
each_kernel = pytest.mark.parametrize("case", DISTANCES, ids=cases.name_of)
# rows, points, features, outputs
SHAPES = [(1, 1, 1, 1), (40, 33, 5, 2), (5, 130, 17, 1), (32, 800, 3, 3)]


def random_problem(n, m, d, outputs):
    """No feature of a row is within 0.005 of that of a point, where |x - z|_1 has a kink."""
    rng = np.random.default_rng(n + d)
    X, Z = rng.normal(size=(n, d)).round(2), rng.normal(size=(m, d)).round(2) + 0.005
    return X, Z, rng.normal(size=(m, outputs))


def naive(case, X, Z, coef, step=1e-5):
    """Central differences of the naive kernels, extrapolated: an error of order step^4."""
    found = np.empty((len(X), coef.shape[1], X.shape[1]))
    values = cases.oracle_kernel(case)
    for k in range(X.shape[1]):
        h = step * np.eye(X.shape[1])[k]
        near = (values(X + h, Z) - values(X - h, Z)) / (2 * step)
        far = (values(X + 2 * h, Z) - values(X - 2 * h, Z)) / (4 * step)
        found[:, :, k] = ((4 * near - far) / 3) @ coef
    return found


def computed(case, X, Z, coef, precision="float64", threads=1, level=""):
    kernel = build.core_kernel(case)
    return _core.gradients(kernel, build.rows(X), build.rows(Z), coef, precision, threads, level)


@each_kernel
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_finite_differences(case, shape):
    X, Z, coef = random_problem(*shape)
    expected = naive(case, X, Z, coef)
    scale = np.abs(coef).sum()
    for level in _core.isa_levels():
        for threads in (1, 2):
            found = computed(case, X, Z, coef, "float64", threads, level)
            assert np.abs(found - expected).max() <= 2e-9 * scale
            single = computed(case, X, Z, coef, "float32", threads, level)
            assert np.abs(single - found).max() <= 2e-5 * scale


@each_kernel
def test_points_that_coincide_have_no_slope(case):
    """Also where the slope of the kernel is infinite at zero, and far from the origin."""
    X = 1e3 + np.random.default_rng(0).normal(size=(40, 4))
    for precision in ("float32", "float64"):
        assert not computed(case, X[:1], X[:1], np.ones((1, 1)), precision).any()
        found = computed(case, X, X, np.ones((40, 1)), precision)
        assert np.isfinite(found).all()
        # k is symmetric: what a row does to another, that one does to it, with the other sign
        assert np.abs(found.sum(axis=0)).max() <= 1e-3 * np.abs(found).sum()


def test_other_kernels_and_sparse_rows_are_refused():
    X = np.ones((3, 2))
    for case in cases.KERNELS:
        if case not in DISTANCES:
            with pytest.raises(ValueError, match="distance"):
                computed(case, X, X, np.ones((3, 1)))
    rows, kernel = build.rows(X), build.core_kernel(DISTANCES[0])
    with pytest.raises(ValueError, match="dense"):
        _core.gradients(kernel, build.rows(X, "csr32"), rows, np.ones((3, 1)))
    with pytest.raises(ValueError, match="coefficients"):
        _core.gradients(kernel, rows, rows, np.ones((2, 1)))
    with pytest.raises(ValueError, match="unequal"):
        _core.gradients(kernel, rows, build.rows(np.ones((3, 4))), np.ones((3, 1)))
    with pytest.raises(_core.Stopped):
        _core.gradients(kernel, rows, rows, np.ones((3, 1)), seconds=0.0)


def test_every_kernel_of_a_distance_is_tested():
    assert {name for name, _ in DISTANCES} == {
        name for name in oracle.KERNELS if _core.Kernel(name).shift_invariant
    }
