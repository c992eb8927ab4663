"""Gibbs sampling: hidden scales, posteriors against integration, estimators with uncertainty."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy import integrate, sparse, stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from margrave import SVC, BayesianSVC, BayesianSVR, RowBlocks
from margrave.blocks.augmented import draw_scales, drawn_sums, sides_of, stream_of
from margrave.losses import Loss
from margrave.models import Posterior
from margrave.solvers import Gibbs
from margrave.solvers.bayes import gibbs
from margrave.solvers.bayes.mixing import Trace
from tests import oracle
from tests.data import load

QUICK = {"n_samples": 100, "burn_in": 20, "chains": 2}
LONG = {"n_samples": 1500, "burn_in": 100, "chains": 4}


def small(seed=0, n=12, d=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sign(X[:, 0] + 0.8 * rng.normal(size=n))


def quiet(model, *data, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(*data, **more)


# --- hidden scales -------------------------------------------------------------------------------


@pytest.mark.parametrize("a", [1e-9, 0.1, 1.0, 30.0, 1e6])
def test_scales_have_the_right_moments_and_distribution(a):
    draws = draw_scales(np.full(40_000, a), np.random.default_rng(3))
    assert np.isfinite(draws).all() and (draws > 0.0).all()
    assert draws.mean() == pytest.approx(1.0 + a, rel=0.03)
    if a >= 0.1:
        assert (1.0 / draws).mean() == pytest.approx(1.0 / a, rel=0.05)
        law = stats.invgauss(mu=1.0 / a, scale=1.0)  # mean 1/a, shape one
        assert stats.kstest(1.0 / draws, law.cdf).pvalue > 1e-4


def test_scales_of_rows_on_their_corner_are_finite():
    draws = draw_scales(np.zeros(10_000), np.random.default_rng(0))
    assert np.isfinite(draws).all() and (draws >= 1e-10).all()
    assert draws.mean() == pytest.approx(1.0, rel=0.1)  # half a squared normal twice over


def test_draws_do_not_depend_on_how_rows_are_dealt():
    rng = np.random.default_rng(0)
    n = 9000
    y, f, s = np.sign(rng.normal(size=n)), rng.normal(size=n), rng.uniform(0.5, 2.0, size=n)
    for loss in (Loss("hinge"), Loss("epsilon_insensitive", epsilon=0.1)):
        sides = sides_of(loss, y)
        whole = drawn_sums(sides, s, f, 0, (7, 1, 5))
        for cut in (1, 4095, 4096, 5000):
            parts = []
            for at, first in ((slice(0, cut), 0), (slice(cut, n), cut)):
                own = sides_of(loss, y[at])
                parts.append(drawn_sums(own, s[at], f[at], first, (7, 1, 5)))
            np.testing.assert_array_equal(np.concatenate([p[0] for p in parts]), whole[0])
            np.testing.assert_array_equal(np.concatenate([p[1] for p in parts]), whole[1])
        other = drawn_sums(sides, s, f, 0, (7, 2, 5))
        assert not np.array_equal(other[0], whole[0])
    assert stream_of(0, 0, 1, 0).random() != stream_of(0, 0, 0, 1).random()


# --- posteriors against integration --------------------------------------------------------------


def grid_moments(cost, ranges, count=121):
    """Mean and covariance of exp(-cost) on a grid in one or two dimensions."""
    axes = [np.linspace(*limits, count) for limits in ranges]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    J = np.array([cost(point) for point in points])
    p = np.exp(-(J - J.min()))
    p /= p.sum()
    mean = p @ points
    return mean, (points - mean).T @ ((points - mean) * p[:, None])


def close(model, mean, covariance):
    found = model.posterior_
    deviation = np.sqrt(np.diag(covariance))
    # some hundred independent draws know a mean to a tenth of its deviation
    np.testing.assert_allclose(found.mean[0], mean, atol=0.12 * deviation.max())
    np.testing.assert_allclose(found.covariance[0], covariance, atol=0.12 * deviation.max() ** 2)


def test_one_weight_against_integration():
    X, y = small(d=1)
    s = np.linspace(0.5, 1.5, len(y))
    model = BayesianSVC(lam=0.5, kernel="linear", intercept=None, **LONG)
    model.fit(X, y, sample_weight=s)

    def density(w, power=0):
        return w**power * np.exp(-0.25 * w * w - 2 * float(s @ np.maximum(0, 1 - y * X[:, 0] * w)))

    total, first, second = (
        integrate.quad(density, -20, 20, args=(k,), limit=200)[0] for k in range(3)
    )
    mean = first / total
    close(model, np.array([mean]), np.array([[second / total - mean**2]]))


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_two_weights_against_a_grid(task):
    X, y = small(1, d=1)
    if task == "regression":
        y = 0.7 * X[:, 0] + 0.5 + 0.4 * np.random.default_rng(5).normal(size=len(y))
    Z = np.hstack([X, np.ones((len(X), 1))])

    def cost(z):
        f = Z @ z
        paid = 1 - y * f if task == "classification" else np.abs(y - f) - 0.1
        return 0.5 * z @ z + 2 * np.maximum(0, paid).sum()

    mean, covariance = grid_moments(cost, [(-3, 6), (-4, 4)])
    form = BayesianSVC if task == "classification" else BayesianSVR
    model = form(lam=1.0, kernel="linear", **LONG).fit(X, y)
    close(model, mean, covariance)
    assert model.converged_ and np.isnan(model.gap_)
    assert model.objective_ == pytest.approx(cost(model.posterior_.mean[0]))


def test_several_classes_against_a_grid():
    """One feature, three classes: differences from the mean have two dimensions."""
    x, y = np.array([-1.0, -0.6, 0.1, 0.3, 1.0, 1.2]), np.array([0, 0, 1, 1, 2, 2])
    basis = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])

    def cost(z):
        w = basis.T @ z
        f = np.outer(x, w)
        ahead = f + 1.0
        ahead[np.arange(6), y] -= 1.0
        return 0.5 * z @ z + 2 * (ahead.max(axis=1) - f[np.arange(6), y]).sum()

    mean, covariance = grid_moments(cost, [(-6, 5), (-6, 5)])
    model = BayesianSVC(kernel="linear", intercept=None, **LONG).fit(x[:, None], y)
    expected = basis.T @ mean
    deviation = np.sqrt(np.diag(basis.T @ covariance @ basis))
    np.testing.assert_allclose(model.posterior_.mean[:, 0], expected, atol=0.1 * deviation.max())
    np.testing.assert_allclose(np.sqrt(model.posterior_.covariance[:, 0, 0]), deviation, rtol=0.1)


def test_more_weights_than_rows_have_the_same_posterior():
    """Draws by systems of rows and of weights are draws of the same density."""
    X, y = small(2, n=8, d=3)
    wide = np.hstack([X, np.zeros((8, 9))])
    by_weights = BayesianSVC(kernel="linear", **LONG).fit(X, y)
    by_rows = BayesianSVC(kernel="linear", **LONG).fit(wide, y)
    keep = [0, 1, 2, 12]
    mean = by_weights.posterior_.mean[0]
    deviation = np.sqrt(np.diag(by_weights.posterior_.covariance[0]))
    np.testing.assert_allclose(by_rows.posterior_.mean[0, keep], mean, atol=0.1 * deviation.max())
    own = by_rows.posterior_.covariance[0]
    np.testing.assert_allclose(
        own[np.ix_(keep, keep)], by_weights.posterior_.covariance[0], atol=0.1
    )
    # features that no row has keep their prior
    np.testing.assert_allclose(np.diag(own)[3:12], 1.0, atol=0.1)


def test_kernels_are_gaussian_processes():
    """Far from all rows the prior is left; the posterior of scores is that of the linear kernel."""
    X, y = small(4, n=20)
    model = quiet(BayesianSVC(2.0, gamma=1.0, intercept=None, **QUICK), X, y)
    mean, deviation = model.decision_function([[50.0, 50.0]], return_std=True)
    assert abs(mean[0]) < 1e-6 and deviation[0] == pytest.approx(np.sqrt(0.5), rel=1e-3)
    linear = BayesianSVC(kernel="linear", intercept=None, **LONG).fit(X, y)
    other = BayesianSVC(kernel="precomputed", intercept=None, **LONG).fit(X @ X.T, y)
    one, two = linear.decision_function(X, return_std=True)
    mean, deviation = other.decision_function(X @ X.T, return_std=True)
    np.testing.assert_allclose(mean, one, atol=0.15 * two.max())
    np.testing.assert_allclose(deviation, two, atol=0.15 * two.max())


# --- estimators ----------------------------------------------------------------------------------


def test_draws_cost_more_than_the_optimum():
    """E[J] is about J* + d/2: 65.8 for 30 features and a constant, where J* = 47.0."""
    X, y = load("breast")
    model = BayesianSVC(kernel="linear", n_samples=400, chains=2).fit(X, y)
    costs = [record["objective"] for record in model.history_[100:]]
    assert np.mean(costs) == pytest.approx(65.8, abs=1.5)
    assert model.objective_ > 46.96
    assert model.n_iter_ == 500 and model.n_draws_ == 800


def test_posterior_mean_predicts_as_well_as_the_optimum():
    X, y = load("breast")
    first, last, y_first, y_last = train_test_split(X, y, test_size=0.4, random_state=0)
    bayes = BayesianSVC(kernel="linear", n_samples=400, chains=2).fit(first, y_first)
    point = SVC(2.0, kernel="linear", intercept="regularized", solver="em").fit(first, y_first)
    assert abs(bayes.score(last, y_last) - point.score(last, y_last)) <= 0.02
    labels, deviation = bayes.predict(last, return_std=True)
    np.testing.assert_array_equal(labels, bayes.predict(last))
    mean, same = bayes.decision_function(last, return_std=True)
    np.testing.assert_array_equal(deviation, same)
    shares = bayes.predict_proba(last)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    np.testing.assert_array_equal(shares[:, 1] > 0.5, mean > 0.0)
    # it is less sure where it is wrong
    wrong = labels != y_last
    assert np.abs(mean / deviation)[wrong].mean() < np.abs(mean / deviation)[~wrong].mean()


def test_draws_are_kept_when_asked_for():
    X, y = small(n=40)
    model = quiet(BayesianSVC(kernel="linear", keep_draws=True, **QUICK), X, y)
    draws = model.posterior_.draws
    assert draws.shape == (200, 1, 3)
    np.testing.assert_allclose(draws.mean(axis=0), model.posterior_.mean, atol=1e-12)
    np.testing.assert_allclose(np.cov(draws[:, 0].T), model.posterior_.covariance[0], atol=1e-12)
    shares = model.predict_proba(X)[:, 1]
    Z = np.hstack([X, np.ones((40, 1))])
    second = ((Z @ draws[:, 0].T) > 0.0).mean(axis=1)
    up = model.decision_function(X) >= 0.0
    second = np.where(up, np.maximum(second, 0.5), np.minimum(second, 0.5))
    np.testing.assert_allclose(shares, second)
    without = quiet(BayesianSVC(kernel="linear", **QUICK), X, y)
    assert without.posterior_.draws is None
    np.testing.assert_array_equal(without.posterior_.mean, model.posterior_.mean)
    np.testing.assert_allclose(without.predict_proba(X)[:, 1], shares, atol=0.12)


@pytest.mark.parametrize("multi_class", ["crammer_singer", "ovr"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_several_classes(multi_class, kernel):
    X, y = load("iris3")
    model = BayesianSVC(0.3, kernel=kernel, gamma=0.3, features=25, multi_class=multi_class)
    quiet(model.set_params(**QUICK), X, y)
    point = SVC(2 / 0.3, kernel=kernel, gamma=0.3, multi_class=multi_class).fit(X, y)
    assert model.score(X, y) >= point.score(X, y) - 0.05
    mean, deviation = model.decision_function(X, return_std=True)
    assert mean.shape == deviation.shape == (150, 3) and (deviation > 0).all()
    shares = model.predict_proba(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert (shares.argmax(axis=1) == model.predict(X)).mean() > 0.9
    assert model.diagnostics_["r_hat"].shape == model.posterior_.mean.shape


@pytest.mark.parametrize("name", ["serial", "threads", "dask", "mpi"])
def test_draws_are_the_same_on_every_engine(name, engine_of, monkeypatch):
    monkeypatch.setattr("margrave.solvers.linear.shards._LEAST_ROWS", 1)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 2))
    y = X[:, 0] + rng.normal(size=9000) > 0
    settings = {"kernel": "linear", "n_samples": 4, "burn_in": 1, "chains": 2, "random_state": 3}
    expected = quiet(BayesianSVC(**settings, engine="serial", n_jobs=1), X, y)
    model = quiet(BayesianSVC(**settings, engine=engine_of(name)), X, y)
    np.testing.assert_array_equal(model.posterior_.mean, expected.posterior_.mean)
    classes = np.digitize(X[:, 0], [-0.5, 0.5])
    expected = quiet(BayesianSVC(**settings, engine="serial", n_jobs=1), X, classes)
    model = quiet(BayesianSVC(**settings, engine=engine_of(name)), X, classes)
    np.testing.assert_array_equal(model.posterior_.mean, expected.posterior_.mean)


@pytest.mark.parametrize("form", ["float32", "csr", "blocks"])
def test_rows_of_any_form(form):
    X, y = small(n=60)
    X = X.astype(np.float32).astype(np.float64)  # draws follow the last digit of every number
    expected = quiet(BayesianSVC(kernel="linear", **QUICK), X, y)
    given = {
        "float32": lambda: X.astype(np.float32),
        "csr": lambda: sparse.csr_array(X),
        "blocks": lambda: RowBlocks([X[:20], X[20:]]),
    }[form]()
    model = quiet(BayesianSVC(kernel="linear", **QUICK), given, y)
    np.testing.assert_allclose(model.posterior_.mean, expected.posterior_.mean, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(given), expected.predict_proba(X), atol=1e-3)
    mean, deviation = model.decision_function(given, return_std=True)
    assert mean.shape == deviation.shape == (60,)


def test_free_intercepts_have_no_prior():
    X, y = load("diabetes")
    model = quiet(BayesianSVR(100.0, kernel="linear", intercept="free", **QUICK), X, y + 50.0)
    assert model.intercept_[0] == pytest.approx(50.0, abs=0.3)
    held = quiet(BayesianSVR(100.0, kernel="linear", **QUICK), X, y + 50.0)
    assert held.intercept_[0] < model.intercept_[0]


def test_pickles_and_clones():
    from sklearn.base import clone

    X, y = small(n=30)
    for kernel in ("linear", "rbf"):
        model = quiet(BayesianSVC(kernel=kernel, **QUICK), X, y)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
        assert clone(model).get_params() == model.get_params()
    assert isinstance(model.posterior_, Posterior)
    np.testing.assert_array_equal(X[model.support_], model.support_vectors_)
    values = oracle.rbf(X, X, gamma=model._kernel.gamma)
    phi = model._landmarks.features(X)
    np.testing.assert_allclose(phi @ phi.T, values, atol=1e-8)


# --- mixing --------------------------------------------------------------------------------------


def test_chains_that_have_not_mixed_are_reported():
    X, y = small(n=30)
    with pytest.warns(
        ConvergenceWarning, match="have not mixed: there are too few samples for the diagnostics"
    ):
        BayesianSVC(kernel="linear", n_samples=3, burn_in=0).fit(X, y)
    with pytest.warns(ConvergenceWarning, match=r"have not mixed: split R-hat is up to"):
        BayesianSVC(1e-4, kernel="linear", n_samples=40, burn_in=0, chains=2).fit(X, y)


def test_diagnostics_know_good_chains_from_bad():
    rng = np.random.default_rng(0)
    good, apart, slow = (Trace((4, 1, 1), 2000, False) for _ in range(3))
    state = np.zeros((4, 1, 1))
    for _ in range(2000):
        noise = rng.standard_normal((4, 1, 1))
        good.add(noise, noise[:, 0, 0])
        apart.add(noise + np.arange(4).reshape(4, 1, 1), noise[:, 0, 0])
        state = 0.95 * state + np.sqrt(1 - 0.95**2) * noise
        slow.add(state, noise[:, 0, 0])
    assert good.diagnostics()["max_r_hat"] < 1.01 and good.diagnostics()["min_ess"] > 4000
    assert apart.diagnostics()["max_r_hat"] > 1.3
    # an autoregression with 0.95 has (1 - 0.95) / (1 + 0.95) of its draws' worth
    # (batches of 100 draws know of some more)
    worth = 8000 * 0.05 / 1.95
    assert 0.7 * worth < slow.diagnostics()["ess"][0, 0] < 1.8 * worth
    assert slow.diagnostics()["r_hat"][0, 0] < 1.05
    mean, covariance = slow.posterior().mean, slow.posterior().covariance
    assert abs(mean[0, 0]) < 0.3 and covariance[0, 0, 0] == pytest.approx(1.0, rel=0.3)


# --- budgets and bad input -----------------------------------------------------------------------


def test_budgets():
    X, y = load("breast")
    with pytest.warns(ConvergenceWarning, match="time_limit ended them early"):
        model = BayesianSVC(kernel="linear", time_limit=0.3, n_samples=10**6).fit(X, y)
    assert 0 < model.n_iter_ < 10**6 and np.isfinite(model.posterior_.mean).all()
    with pytest.warns(ConvergenceWarning, match="callback ended them early"):
        BayesianSVC(kernel="linear", callbacks=lambda record: record["round"] >= 5).fit(X, y)

    def interrupt(record):
        if record["round"] == 130:
            raise KeyboardInterrupt

    model = BayesianSVC(kernel="linear", callbacks=interrupt, chains=2)
    with pytest.raises(KeyboardInterrupt, match="keeps the posterior of"):
        model.fit(X, y)
    assert model.n_draws_ >= 2 * 29 and model.score(X, y) > 0.95


@pytest.mark.parametrize("n_features", [2, 40], ids=["by weights", "by rows"])
def test_ctrl_c_within_the_first_draw_leaves_the_start(n_features, monkeypatch):
    """Not half a draw: the chains that come later have no numbers yet."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, n_features)), np.arange(30) % 2
    drawn, dispersed, starts = gibbs._driver, gibbs._dispersed, []

    def keep(*args):
        starts.append(dispersed(*args))
        return starts[0].copy()

    def strike(seed, chain, iteration):
        if (chain, iteration) == (1, 1):
            raise KeyboardInterrupt
        return drawn(seed, chain, iteration)

    monkeypatch.setattr(gibbs, "_dispersed", keep)
    monkeypatch.setattr(gibbs, "_driver", strike)
    monkeypatch.setattr(np, "empty_like", lambda a: np.full(np.shape(a), np.nan))
    model = BayesianSVC(kernel="linear", intercept=None, chains=3, random_state=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    np.testing.assert_allclose(model.posterior_.mean, starts[0].mean(axis=0))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"lam": 0.0}, "lam"),
        ({"lam": -1.0}, "lam"),
        ({"n_samples": 0}, "n_samples"),
        ({"burn_in": -1}, "burn_in"),
        ({"chains": 0}, "chains"),
        ({"features": 0}, "features"),
        ({"solver": "em"}, "solver of .* must be 'gibbs' or a Gibbs object"),
        ({"solver": Gibbs(n_samples=0)}, "n_samples"),
        ({"memory_limit": 100}, "memory_limit"),
        ({"intercept": "maybe"}, "intercept"),
    ],
)
def test_bad_parameters(parameters, message):
    X, y = small(n=30)
    with pytest.raises(ValueError, match=message):
        BayesianSVC(**parameters).fit(X, y)


def test_bad_data():
    X, y = small(n=30)
    with pytest.raises(ValueError, match="class"):
        BayesianSVC().fit(X, np.ones(30))
    with pytest.raises(ValueError, match="class"):
        BayesianSVC().fit(X, y, sample_weight=(y > 0).astype(float))
    with pytest.raises(ValueError, match="NaN"):
        BayesianSVC().fit(np.where(X > 1.0, np.nan, X), y)
    with pytest.raises(ValueError, match="egative"):
        BayesianSVC().fit(X, y, sample_weight=-np.ones(30))
    with pytest.raises(ValueError, match="zero or negative weights"):
        BayesianSVR().fit(X, y, sample_weight=np.zeros(30))
    with pytest.raises(ValueError, match="epsilon"):
        BayesianSVR(epsilon=-1.0).fit(X, y)
    with pytest.raises(ValueError, match="samples: use BayesianSVC"):
        SVC(solver="gibbs").fit(X, y)


# --- how long it takes ---------------------------------------------------------------------------


def test_landmarks_are_few_by_default():
    X, y = small(n=300, d=5)
    model = quiet(BayesianSVC(gamma=1.0, n_samples=20, burn_in=5, chains=2), X, y)
    assert len(model.support_) == 200
    whole = BayesianSVC(gamma=1.0, features=None, n_samples=2, burn_in=0, chains=2)
    assert len(quiet(whole, X, y).support_) == 300
    with pytest.raises(ValueError, match="'features' parameter"):
        BayesianSVC(features="all").fit(X, y)


def test_long_sampling_is_announced(monkeypatch):
    from margrave.solvers.bayes import gibbs

    X, y = small(n=30)
    monkeypatch.setattr(gibbs, "_LONG", 0.0)
    with pytest.warns(UserWarning, match="about 0 minutes for 60 draws of 4 chains"):
        quiet(BayesianSVC(**QUICK | {"n_samples": 50, "burn_in": 10, "chains": 4}), X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        BayesianSVC(time_limit=60.0, n_samples=20, burn_in=5).fit(X, y)
