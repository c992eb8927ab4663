"""The oracle against golden numbers and against itself: nothing of the library is imported here."""

import numpy as np
import pytest

from tests import cases
from tests.data import load
from tests.golden import RECORDS
from tests.oracle import KERNELS, LOSSES, certify, solve, solve_with_block_sums

each_loss = pytest.mark.parametrize("case", cases.ZERO_SUM, ids=cases.name_of)
each_intercept = pytest.mark.parametrize("intercept", cases.INTERCEPTS)


@pytest.fixture(params=cases.LOSSES, ids=cases.name_of)
def terms(request):
    """Random rows (y, C, beta, f, k) with beta inside the box, away from rounding limits."""
    rng = np.random.default_rng(3)
    loss = cases.oracle_loss(request.param)
    n = 500
    y = np.sign(rng.standard_normal(n)) if loss.labels else 2 * rng.standard_normal(n)
    C = 10.0 ** rng.uniform(-3, 3, n)
    low, high = (np.clip(bound, -5 * C, 5 * C) for bound in loss.box(y, C))
    beta = low + (high - low) * rng.uniform(0.01, 0.99, n)
    return loss, y, C, beta, 3 * rng.standard_normal(n), 10.0 ** rng.uniform(-4, 3, n)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_golden(record):
    X, y = record.arrays()
    K = cases.oracle_kernel(record.kernel_case)(X, X)
    found = solve(K, y, record.C, cases.oracle_loss(record.loss_case), record.intercept)
    assert -1e-14 <= found.gap <= 1e-12
    assert found.primal == pytest.approx(record.objective, rel=1e-12)
    rows = list(record.rows)
    np.testing.assert_allclose(found.decisions[rows], record.decisions, atol=1e-5)


def test_conjugate_is_the_supremum(terms):
    loss, y, C, beta, _, _ = terms
    h = loss.h(y, C, beta)
    scale = np.abs(h) + np.abs(beta) * (1 + np.abs(y)) + C
    assert np.all(np.abs(h - loss.brute_h(y, C, beta)) <= 1e-11 * scale)


def test_derivatives_are_difference_quotients(terms):
    loss, y, C, beta, f, _ = terms
    step = 1e-6 * C * np.minimum(1.0, loss.upsilon or 1.0)
    left, right = loss.derivatives(y, C, beta)
    quotient = (loss.h(y, C, beta + step) - loss.h(y, C, beta - step)) / (2 * step)
    assert np.all(quotient >= left - 1e-4) and np.all(quotient <= right + 1e-4)
    assert np.all((right - left < 1e-12) | (np.abs(beta) <= 2 * step))
    quotient = (loss.value(y, C, f + 1e-6) - loss.value(y, C, f - 1e-6)) / 2e-6
    np.testing.assert_allclose(loss.slope(y, C, f), quotient, atol=1e-4 * C.max())


def test_step_is_the_brute_force_minimiser(terms):
    loss, y, C, beta, f, k = terms
    closed, brute = loss.step(y, C, beta, f, k), loss.brute_step(y, C, beta, f, k)
    np.testing.assert_allclose(closed, brute, rtol=1e-10, atol=1e-12)
    at_kink = loss.step(y, C, 0 * beta, y + 0.0, k)
    assert np.all(np.isfinite(at_kink))
    closed, brute = loss.step(y, C, beta, f, 0 * k), loss.brute_step(y, C, beta, f, 0 * k)
    np.testing.assert_allclose(closed, brute, rtol=1e-9, atol=1e-12)


def test_parts_add_up_to_the_conjugate(terms):
    loss, y, C, beta, _, _ = terms
    if loss.parts is None:
        pytest.skip("not piecewise quadratic: solved by Newton's method")
    h = 0.0
    for sign, upper, quadratic, cost in loss.parts(y, C):
        x = np.maximum(0.0, sign * beta)
        assert np.all(x <= upper)
        h = h + quadratic * x**2 / 2 + cost * x
    np.testing.assert_allclose(h, loss.h(y, C, beta), rtol=1e-12, atol=1e-12)


def test_gap_terms_vanish_at_the_slope(terms):
    loss, y, C, beta, f, _ = terms
    magnitude = np.abs(loss.value(y, C, f)) + np.abs(loss.h(y, C, beta)) + np.abs(beta * f)
    assert np.all(loss.gap(y, C, beta, f) >= -1e-14 * magnitude)
    best = -loss.slope(y, C, f)
    magnitude = np.abs(loss.value(y, C, f)) + np.abs(loss.h(y, C, best)) + np.abs(best * f) + C
    assert np.all(np.abs(loss.gap(y, C, best, f)) <= 1e-13 * magnitude)


@each_loss
@pytest.mark.parametrize("intercept", [None, "regularized"])
def test_solve_agrees_with_plain_coordinate_descent(case, intercept):
    """Sweep after sweep of the loss's own exact step, the most naive method there is."""
    X, y = load("moons200" if LOSSES[case[0]].labels else "diabetes")
    X, y = X[:200:8], y[:200:8]
    loss, C = cases.oracle_loss(case), np.full(len(y), 0.7)
    K = KERNELS["rbf"](X, X, gamma=1.0)
    Q = K + 1.0 if intercept else K
    low, high = loss.box(y, C)
    beta = (low + high) / 2 if loss.parts is None else 0.0 * y
    f = Q @ beta
    for sweep in range(2000):
        for i in range(len(y)):
            one = slice(i, i + 1)
            moved = loss.step(y[one], C[one], beta[one], f[one], Q[i, one])[0] - beta[i]
            beta[i] += moved
            f += moved * Q[i]
        if sweep % 10 == 0 and certify(K, y, C, loss, intercept, beta).gap < 1e-11:
            break
    descended = certify(K, y, C, loss, intercept, beta)
    found = solve(K, y, C, loss, intercept)
    assert descended.gap < 1e-11 and found.gap < 1e-13
    assert found.primal == pytest.approx(descended.primal, rel=1e-11)
    np.testing.assert_allclose(found.decisions, descended.decisions, atol=1e-5)


@each_loss
@each_intercept
@pytest.mark.parametrize("C", [1e-6, 1e-2, 1e3, 1e6])
def test_solve_is_certain_for_extreme_weights(case, intercept, C):
    X, y = load("moons200" if LOSSES[case[0]].labels else "diabetes")
    K = KERNELS["rbf"](X[:150], X[:150], gamma=1.0)
    weights = C * np.linspace(0.5, 2.0, 150)
    y = np.roll(y, 50)[:150]  # both classes
    found = solve(K, y, weights, cases.oracle_loss(case), intercept)
    # what rounding of the scores alone can add to the primal
    size = 1 + np.abs(y) + np.abs(K) @ np.abs(found.beta) + abs(found.b)
    floor = 4 * np.finfo(float).eps * (weights * size).sum()
    assert -1e-13 <= found.gap <= 1e-12 + floor / found.primal
    if intercept == "free":
        assert abs(found.beta.sum()) <= 1e-13 * np.abs(found.beta).sum()


def test_block_sums_are_not_the_optimum():
    """Equality constraints per block keep mass from crossing blocks; see test_properties."""
    X, y = load("moons")
    K = KERNELS["rbf"](X, X, gamma=1.0)
    block = np.random.default_rng(0).integers(4, size=len(y))
    stuck = solve_with_block_sums(K, y, 1.0, LOSSES["hinge"](), block)
    sums = np.bincount(block, weights=stuck.beta)
    np.testing.assert_allclose(sums, 0.0, atol=1e-9)
    best = solve(K, y, 1.0, LOSSES["hinge"](), "free")
    assert stuck.dual - best.dual > 1e-4 * best.primal
