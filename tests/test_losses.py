"""Every loss functor of the core against the oracle's formulas and against brute force."""

import numpy as np
import pytest

from margrave import _core
from tests import build, cases, oracle

EPS = np.finfo(float).eps
KINDS = ("ordinary", "extreme", "bounds")


def rows_of(loss, kind, n=2000, seed=0):
    """Random (y, C, beta, f, k), beta in the box; a tenth of the diagonals k are zero."""
    rng = np.random.default_rng(seed)
    wide = 1 if kind == "ordinary" else 6
    y = np.sign(rng.standard_normal(n)) if loss.labels else 3 * rng.standard_normal(n)
    C = 10.0 ** rng.uniform(-wide, wide, n)
    f = rng.standard_normal(n) * 10.0 ** rng.uniform(-2, wide / 2, n)
    k = np.where(rng.random(n) < 0.1, 0.0, 10.0 ** rng.uniform(-wide, 4, n))
    low, high = (np.clip(bound, -9 * C, 9 * C) for bound in loss.box(y, C))
    beta = low + (high - low) * rng.uniform(0.001, 0.999, n)
    if kind == "bounds":
        edge = rng.integers(3, size=n)
        beta = np.choose(edge, [low, high, np.clip(0.0, low, high)])
        if loss.parts is None:  # an open box: as near as the core may store it
            share = np.choose(edge, [1e-300 / C, 1 - 2.3e-16, 1e-12])
            beta = y * C * share
        at_kink = rng.random(n) < 0.3
        kink = y * (1 - loss.theta) if loss.labels else y + loss.epsilon
        f = np.where(at_kink, kink, f)
    return y, C, beta, f, k


def assert_close(actual, expected, scale, factor):
    worst = np.max(np.abs(actual - expected) / scale)
    assert worst <= factor, f"off by {worst:.1e} of the size of the terms"


def sizes(loss, y, beta, *terms):
    """Sum of the sizes of all that is added up, so that errors count against it."""
    return np.abs(beta) * (np.abs(y) + loss.epsilon) + sum(np.abs(t) for t in terms) + 1e-290


@pytest.fixture(params=cases.LOSSES, ids=cases.name_of)
def case(request):
    return request.param


@pytest.fixture(params=KINDS)
def terms(case, request):
    return (
        cases.oracle_loss(case),
        build.core_loss(case),
        *rows_of(cases.oracle_loss(case), request.param),
    )


def test_every_compiled_loss_is_listed():
    assert set(_core.LOSSES) == set(oracle.LOSSES) == {name for name, _ in cases.LOSSES}
    for name, parameters in cases.LOSSES:
        assert set(_core.LOSSES[name]) == set(parameters)


def test_value(terms):
    naive, core, y, C, _, f, _ = terms
    expected = naive.value(y, C, f)
    np.testing.assert_allclose(core.value(y, C, f), expected, rtol=1e-12, atol=1e-300)


def test_conjugate(terms):
    naive, core, y, C, beta, _, _ = terms
    expected = naive.h(y, C, beta)
    assert_close(core.conjugate(y, C, beta), expected, sizes(naive, y, beta, expected), 1e-12)


def test_conjugate_is_a_supremum(terms):
    naive, core, y, C, beta, _, _ = terms
    brute = naive.brute_h(y, C, beta)
    scale = np.abs(brute) + np.abs(beta) * (1 + np.abs(y)) + C
    assert_close(core.conjugate(y, C, beta), brute, scale, 1e-11)


def test_box(terms):
    naive, core, y, C, _, _, _ = terms
    for actual, expected in zip(core.box(y, C), naive.box(y, C), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-15, atol=1e-299)


def test_step_is_optimal(terms):
    """Zero lies between the one-sided derivatives of the one-variable problem at the step."""
    naive, core, y, C, beta, f, k = terms
    moved = core.step(y, C, beta, f, k)
    low, high = core.box(y, C)
    assert np.all(moved >= low) and np.all(moved <= high)
    left, right = naive.derivatives(y, C, moved)
    slope = k * (moved - beta) + f
    terms_of_h = np.abs(np.where(np.isfinite(left), left, right))
    scale = k * (np.abs(moved) + np.abs(beta)) + np.abs(f) + np.abs(y) + 1 + terms_of_h
    if naive.parts is None:
        # rounding of alpha moves log(alpha) - log(C - alpha)
        share = y * moved / C
        with np.errstate(divide="ignore"):
            scale = scale + 1 / (1 - share)
    rising = (slope + left) / scale
    falling = (slope + right) / scale
    assert np.all((rising <= 1e-12) | (moved <= low))
    assert np.all((falling >= -1e-12) | (moved >= high))


def test_step_beats_brute_force(terms):
    naive, core, y, C, beta, f, k = terms

    def objective(x):
        return k * (x - beta) ** 2 / 2 + f * (x - beta) + naive.h(y, C, x)

    moved, brute = core.step(y, C, beta, f, k), naive.brute_step(y, C, beta, f, k)
    scale = np.zeros_like(y)
    for x in (moved, brute):
        scale = scale + k * (x - beta) ** 2 + np.abs(f) * (np.abs(x) + np.abs(beta))
        scale = scale + np.abs(naive.h(y, C, x)) + np.abs(y * x)
    scale = np.maximum(scale, 1e-280)  # below, the open box ends at the smallest alpha stored
    assert np.all(objective(moved) <= objective(brute) + 1e-13 * scale)


def test_gap_terms(terms):
    """G = C loss(f) + h(beta) + beta f, never negative, not even by rounding."""
    naive, core, y, C, beta, f, _ = terms
    gap = core.gap(y, C, beta, f)
    assert np.all(gap >= 0)
    parts = core.value(y, C, f), core.conjugate(y, C, beta), beta * f
    scale = sizes(naive, y, beta, *parts) + 1e-3 * C * (1 + np.abs(y) + np.abs(f))
    assert_close(gap, sum(parts), scale, 1e-12)
    assert_close(gap, naive.gap(y, C, beta, f), scale, 1e-12)


def test_gap_vanishes_at_the_slope(terms):
    """beta = -C loss'(f) is optimal for the score f: no gap is left there."""
    naive, core, y, C, _, f, _ = terms
    beta = np.clip(-naive.slope(y, C, f), *core.box(y, C))
    scale = C + np.abs(core.value(y, C, f)) + np.abs(beta * f)
    assert np.all(core.gap(y, C, beta, f) <= 1e-14 * scale)


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="needs extended precision")
def test_gap_keeps_its_digits_near_the_optimum(case):
    """A gap far below rounding of its terms is still right: no cancellation in the core's form."""
    naive, core = cases.oracle_loss(case), build.core_loss(case)
    y, C, _, f, _ = rows_of(naive, "ordinary")
    best = np.clip(-naive.slope(y, C, f), *core.box(y, C))
    low, high = (np.clip(bound, -9 * C, 9 * C) for bound in core.box(y, C))
    beta = best + 1e-5 * ((low + high) / 2 - best)  # a step inwards
    gap = core.gap(y, C, beta, f)
    exact = extended_gap(naive, y, C, beta, f)
    keep = exact > 1e-13 * (C + np.abs(core.value(y, C, f)))
    assert keep.mean() > 0.2
    np.testing.assert_allclose(gap[keep], exact[keep], rtol=1e-3)


def extended_gap(naive, y, C, beta, f):
    """The oracle's three terms in extended precision."""
    wide = [np.asarray(a, dtype=np.longdouble) for a in (y, C, beta, f)]
    return naive.gap(*wide).astype(float)


def test_slope_and_second_derivative(case):
    """The slope is the oracle's; where the loss is smooth, its derivative is the core's."""
    naive, core = cases.oracle_loss(case), build.core_loss(case)
    y, C, _, f, _ = rows_of(naive, "ordinary")
    slope = core.slope(y, C, f)
    np.testing.assert_allclose(slope, naive.slope(y, C, f), rtol=1e-12, atol=1e-300)
    step = 1e-6 * (1 + np.abs(f))
    ahead, behind = core.slope(y, C, f + step), core.slope(y, C, f - step)
    second = core.second_derivative
    if not core.smooth:
        assert np.all(second(y, C, f) == 0)
        assert jump(core, y[:20], C[:20]) >= 0.9
        return
    near = second(y, C, f - step) == second(y, C, f + step)  # no kink in between
    near |= case[0] == "logistic"
    assert near.mean() > 0.9
    rate = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(second(y, C, f)[near], rate[near], rtol=1e-5, atol=1e-6 * C.max())


def jump(core, y, C):
    """The largest jump of the slope, over C: that of straight lines that meet is no less than 1."""
    far = 3.0 + np.abs(y)
    low, high = y - far, y + far
    for _ in range(60):  # half of the interval over which the slope changes more
        middle = (low + high) / 2
        at = [core.slope(y, C, f) for f in (low, middle, high)]
        left = np.abs(at[1] - at[0]) >= np.abs(at[2] - at[1])
        low, high = np.where(left, low, middle), np.where(left, middle, high)
    return np.max(np.abs(core.slope(y, C, high) - core.slope(y, C, low)) / C)


def test_functors_take_read_only_input_of_any_float_type(case):
    naive, core = cases.oracle_loss(case), build.core_loss(case)
    y, C, beta, f, k = rows_of(naive, "ordinary", n=50)
    for array in (y, C, beta, f, k):
        array.flags.writeable = False
    strided = np.repeat(f, 2)[::2]
    np.testing.assert_array_equal(core.value(y, C, strided), core.value(y, C, f))
    np.testing.assert_array_equal(core.step(y, C, beta, strided, k), core.step(y, C, beta, f, k))


def test_arrays_of_different_length_are_refused():
    y = np.ones(4)
    with pytest.raises(ValueError, match="length"):
        _core.Loss("hinge").value(y, y, y[:3])


def test_unknown_loss_is_refused_by_name():
    with pytest.raises(ValueError, match=r"unknown loss.*cauchy"):
        _core.Loss("cauchy")
