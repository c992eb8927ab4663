"""The compiled parts of linear machines: passes over rows, terms of rows, small systems."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from margrave import _core
from tests import build, cases

each_loss = pytest.mark.parametrize("loss", cases.MACHINES, ids=cases.name_of)


@pytest.mark.parametrize("isa", _core.isa_levels())
@pytest.mark.parametrize("layout", cases.LAYOUTS)
@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (600, 17), (300, 70)])
@pytest.mark.parametrize("threads", [1, 3])
def test_passes(isa, layout, dtype, shape, threads):
    rng = np.random.default_rng(0)
    n, d = shape
    X = (rng.standard_normal(shape) * (rng.random(shape) < 0.4)).astype(dtype)
    exact = X.astype(np.float64)
    team = _core.Team(threads, isa)
    firsts, lasts = [n // 2, 0], [n, n // 3]  # two ranges, in this order
    rows = np.r_[n // 2 : n, 0 : n // 3]
    view = _core.LinearRows(build.rows(X, layout), firsts, lasts, team)
    A, m = exact[rows], len(rows)
    W, B, D = rng.standard_normal((3, d)), rng.standard_normal((2, m)), rng.random(m)
    D[::3] = 0.0
    scores, sums = np.empty((3, m)), np.ones((2, d))
    view.multiply(W, scores)
    view.transposed(B, sums)
    matrix, border, diagonal = np.ones((d, d)), np.ones(d), np.ones(d)
    view.gram(D, matrix, border)
    view.diagonal(D, diagonal)
    np.testing.assert_allclose(scores, W @ A.T, atol=1e-12 * d)
    np.testing.assert_allclose(sums, 1 + B @ A, atol=1e-12 * n)
    np.testing.assert_allclose(matrix, 1 + A.T @ (D[:, None] * A), atol=1e-12 * n)
    matrix[:], border[:] = 1.0, 1.0
    view.gram(D, matrix, border, single=True)
    np.testing.assert_allclose(matrix, 1 + A.T @ (D[:, None] * A), atol=1e-6 * n)
    np.testing.assert_allclose(border, 1 + D @ A, atol=1e-12 * n)
    np.testing.assert_allclose(diagonal, 1 + D @ A**2, atol=1e-12 * n)
    np.testing.assert_allclose(view.squares(), (A**2).sum(axis=1), atol=1e-12 * d)


@each_loss
def test_envelope(loss):
    """Its slope is -beta, its bend the derivative of that, and it lies below the loss."""
    rng = np.random.default_rng(4)
    n, delta = 300, 0.3
    naive, core = cases.oracle_loss(loss), build.core_loss(loss)
    y = rng.choice([-1.0, 1.0], n) if naive.labels else rng.standard_normal(n)
    C, f = rng.uniform(0.5, 2.0, n), 2.0 * rng.standard_normal(n)
    low, high = (np.clip(bound, -C, C) for bound in naive.box(y, C))
    centre = rng.uniform(low, high)
    terms = _core.RowTerms(core, y, C, _core.Team(1))
    if core.smooth:
        beta, bend = terms.respond(None, 0.0, f)
        np.testing.assert_allclose(beta, -core.slope(y, C, f))
        np.testing.assert_allclose(bend, core.second_derivative(y, C, f))
        return
    beta, bend = terms.respond(centre, delta, f)

    def envelope(x):
        answer, _ = terms.respond(centre, delta, x)
        return -(answer * x + naive.h(y, C, answer) + delta / (2 * C) * (answer - centre) ** 2)

    step = 1e-6
    np.testing.assert_allclose((envelope(f + step) - envelope(f - step)) / 2e-6, -beta, atol=1e-4)
    ahead, behind = (
        terms.respond(centre, delta, f + step)[0],
        terms.respond(centre, delta, f - step)[0],
    )
    inside = (np.abs(ahead - beta) > 0) == (np.abs(beta - behind) > 0)  # no corner in between
    np.testing.assert_allclose(((behind - ahead) / 2e-6)[inside], bend[inside], atol=1e-4)
    assert np.all(envelope(f) <= core.value(y, C, f) + 1e-12)
    assert terms.gap(beta, f, 0.0) == pytest.approx(naive.gap(y, C, beta, f).sum())
    assert terms.conjugate(beta) == pytest.approx(naive.h(y, C, beta).sum())


@each_loss
def test_line_search_and_intercept(loss):
    rng = np.random.default_rng(5)
    n = 200
    naive, core = cases.oracle_loss(loss), build.core_loss(loss)
    y = rng.choice([-1.0, 1.0], n) if naive.labels else rng.standard_normal(n)
    C, f = rng.uniform(0.5, 2.0, n), rng.standard_normal(n)
    terms = _core.RowTerms(core, y, C, _core.Team(1))
    delta = 0.0 if core.smooth else 0.2
    for length in (1e-3, 1.0, 1e3):
        df = -length * terms.respond(None, delta, f)[0] * -1.0 / C  # downhill in every row

        def slope(t, df=df):
            return 1e-3 * t * float(df @ df) - float(terms.respond(None, delta, f + t * df)[0] @ df)

        t = terms.line_search(None, delta, f, df, 0.0, 1e-3 * float(df @ df))
        assert t > 0.0 and abs(slope(t)) <= 0.2 * abs(slope(0.0)) * (1 + 1e-9)
    b = terms.best_intercept(f, 0.7)
    grid = b + np.linspace(-0.5, 0.5, 41)
    least = min(float(core.value(y, C, f + x).sum()) for x in grid)
    assert terms.value(f, b) <= least + 1e-9 * abs(least)


def test_small_systems():
    rng = np.random.default_rng(6)
    for n in (1, 2, 5, 40):
        A = rng.standard_normal((n, n))
        A = A @ A.T + np.eye(n)
        b = rng.standard_normal(n)
        np.testing.assert_allclose(_core.solve_positive(A, b), np.linalg.solve(A, b), rtol=1e-9)
    assert _core.solve_positive(-np.eye(2), np.ones(2)) is None
    with pytest.raises(ValueError, match="wrong shape"):
        _core.solve_positive(np.eye(2), np.ones(3))


def test_wrong_arguments_of_the_core():
    X = np.ones((4, 2))
    team = _core.Team(1)
    with pytest.raises(ValueError, match="range of rows"):
        _core.LinearRows(build.rows(X), [0], [5], team)
    rows = _core.LinearRows(build.rows(X), [0], [4], team)
    with pytest.raises(ValueError, match="shape"):
        rows.multiply(np.ones((1, 3)), np.empty((1, 4)))
    with pytest.raises(ValueError, match="columns"):
        rows.transposed(np.ones((2, 4)), np.empty((1, 2)))
    with pytest.raises(ValueError, match="length"):
        rows.gram(np.ones(3), np.zeros((2, 2)), np.zeros(2))
    terms = _core.RowTerms(_core.Loss("hinge"), np.ones(4), np.ones(4), team)
    with pytest.raises(ValueError, match="length"):
        terms.respond(None, 1.0, np.ones(3))


def test_a_team_can_be_stopped():
    X = np.ones((200_000, 4))
    team = _core.Team(2)
    rows = _core.LinearRows(build.rows(X), [0], [len(X)], team)
    team.limit(0.0)
    with pytest.raises(_core.Stopped):
        rows.multiply(np.ones((1, 4)), np.empty((1, len(X))))
    team.limit(1e18)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows.multiply(np.ones((1, 4)), np.empty((1, len(X))))
    assert not team.interrupted
