"""What holds for every estimator of the family, each tested by being listed."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics import log_loss, mean_pinball_loss
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR as LibsvmSVR
from sklearn.svm import OneClassSVM as LibsvmOneClass

from margrave import SVC, SVR, KernelLogisticRegression, ODMClassifier, OneClassSVM
from margrave.kernels import KERNELS
from margrave.plots import margins
from margrave.solvers import DivideAndConquer
from tests import oracle
from tests.data import load

ESTIMATORS = [
    SVC(C=2.0),
    SVC(C=2.0, loss="squared_hinge", intercept="regularized"),
    SVC(C=2.0, multi_class="crammer_singer"),
    SVR(C=2.0),
    SVR(C=2.0, loss="squared_epsilon_insensitive", intercept="regularized"),
    SVR(C=2.0, loss="huber", epsilon=0.4, intercept=None),
    SVR(C=2.0, loss="pinball", quantile=0.8),
    SVR(C=2.0, kernel="exponential", power=0.7),
    KernelLogisticRegression(C=2.0),
    KernelLogisticRegression(C=2.0, intercept="regularized"),
    KernelLogisticRegression(C=2.0, multi_class="softmax"),
    ODMClassifier(lam=20.0),
    ODMClassifier(lam=20.0, theta=0.3, upsilon=0.0, intercept="regularized"),
    ODMClassifier(lam=20.0, intercept="free"),
    OneClassSVM(nu=0.2),
]
each = pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)


def with_(estimator, **parameters):
    return clone(estimator).set_params(**parameters)


def rows(estimator, n=120, classes=2, seed=0):
    """Rows and targets for this estimator: labels, or real numbers."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    signal = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.4 * rng.standard_normal(n)
    if isinstance(estimator, SVR):
        return X, signal
    return X, np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes))


def output(model, X):
    return model.predict(X) if isinstance(model, SVR) else model.decision_function(X)


@each
@pytest.mark.parametrize("classes", [2, 4])
def test_certificate(estimator, classes):
    if classes > 2 and isinstance(estimator, SVR | OneClassSVM):
        pytest.skip("has no classes")
    X, y = rows(estimator, classes=classes)
    model = with_(estimator, tol=1e-6).fit(X, y)
    assert model.converged_ and 0 <= model.gap_ <= 1e-6
    assert model.certify(X, y) <= 1.1e-6
    assert model.certificate_ == "full" and model.solver_ == "exact"
    with pytest.raises(ValueError, match="certify needs the rows"):
        model.certify(X[::-1], y[::-1])


@each
def test_permutation(estimator):
    X, y = rows(estimator)
    order = np.random.default_rng(1).permutation(len(y))
    a = with_(estimator, tol=1e-8).fit(X, y)
    b = with_(estimator, tol=1e-8).fit(X[order], y[order])
    assert abs(a.objective_ - b.objective_) <= 1e-7 * abs(a.objective_)
    np.testing.assert_allclose(output(a, X), output(b, X), atol=2e-3)


@each
def test_weights_are_repeated_rows(estimator):
    X, y = rows(estimator)
    weight = np.random.default_rng(2).integers(0, 4, size=len(y))
    a = with_(estimator, tol=1e-9).fit(X, y, sample_weight=weight)
    b = with_(estimator, tol=1e-9).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    assert abs(a.objective_ - b.objective_) <= 1e-8 * abs(a.objective_)
    np.testing.assert_allclose(output(a, X), output(b, X), atol=1e-3)
    assert not np.isin(np.flatnonzero(weight == 0), a.support_).any()
    assert a.certify(X, y, sample_weight=weight) <= 1.1e-9


@each
def test_flip(estimator):
    """Swapped labels, or targets with the other sign, turn the sign of the model."""
    if isinstance(estimator, OneClassSVM):
        pytest.skip("has no targets")
    X, y = rows(estimator)
    a = with_(estimator, tol=1e-8).fit(X, y)
    other = with_(estimator, tol=1e-8)
    if isinstance(estimator, SVR):
        other.set_params(quantile=1.0 - estimator.quantile)
    b = other.fit(X, -y if isinstance(estimator, SVR) else 1 - y)
    np.testing.assert_allclose(output(a, X), -output(b, X), atol=2e-3)
    np.testing.assert_allclose(a.objective_, b.objective_, rtol=1e-7)


@each
def test_input_forms(estimator):
    X, y = rows(estimator)
    X = np.where(X > 0, X, 0.0)
    model = with_(estimator, tol=1e-7, gamma=0.5).fit(X, y)
    f = output(model, X)
    for form in (sparse.csr_array(X), sparse.csr_matrix(X), X.astype(np.float32), X.tolist()):
        other = with_(estimator, tol=1e-7, gamma=0.5).fit(form, y)
        np.testing.assert_allclose(output(other, form), f, atol=5e-3)
        assert abs(other.objective_ - model.objective_) <= 1e-4 * abs(model.objective_)
    numbers = {name: getattr(model, name) for name in KERNELS[model.kernel]}
    kernel = partial(oracle.KERNELS[model.kernel], **numbers)
    gram = kernel(X, X)
    other = with_(estimator, tol=1e-7, kernel="precomputed").fit(gram, y)
    np.testing.assert_allclose(output(other, gram), f, atol=5e-3)
    called = with_(estimator, tol=1e-7, kernel=kernel).fit(X, y)
    np.testing.assert_allclose(output(called, X), f, atol=5e-3)
    linear = with_(estimator, kernel="linear").fit(X, y)
    assert linear.coef_.shape[1] == 3
    with pytest.raises(AttributeError, match="linear kernel"):
        model.coef_  # noqa: B018


@each
def test_pickle_clone_and_warm_start(estimator):
    X, y = rows(estimator)
    model = with_(estimator, warm_start=True).fit(X, y)
    kept = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(output(kept, X), output(model, X))
    first = output(model, X)
    model.fit(X, y)
    if getattr(estimator, "multi_class", "") not in ("crammer_singer", "softmax"):
        assert model.n_iter_ == 0
    np.testing.assert_allclose(output(model, X), first, atol=0.3)
    model.fit(X[:-1], y[:-1])  # another number of rows
    assert model.converged_


@each
def test_budgets(estimator):
    X, y = rows(estimator)
    seen = []
    model = with_(estimator, callbacks=lambda record: seen.append(record) or True, tol=1e-9)
    with pytest.warns(ConvergenceWarning, match="callback"):
        model.fit(X, y)
    assert seen and not model.converged_
    model = with_(estimator, time_limit=1e-9, tol=1e-9)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model.fit(X, y)
    assert not model.converged_ and model.gap_ > 0
    output(model, X)


@each
def test_bad_input(estimator):
    X, y = rows(estimator)
    for bad, message in ((np.nan, "NaN"), (np.inf, "infinity")):
        spoilt = X.copy()
        spoilt[3, 1] = bad
        with pytest.raises(ValueError, match=message):
            clone(estimator).fit(spoilt, y)
    if not isinstance(estimator, OneClassSVM):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            clone(estimator).fit(X, y[:-1])
    with pytest.raises(ValueError, match="Negative values"):
        clone(estimator).fit(X, y, sample_weight=np.where(np.arange(len(y)) == 3, -1.0, 1.0))
    with pytest.raises(ValueError, match="all samples have zero or negative weights"):
        clone(estimator).fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match="square"):
        with_(estimator, kernel="precomputed").fit(X, y)
    with pytest.raises(ValueError, match=r"unknown|must be"):
        with_(estimator, solver="simplex").fit(X, y)


BAD_PARAMETERS = [
    (SVR(C=0.0), "C"),
    (SVR(epsilon=-0.1), "epsilon"),
    (SVR(loss="huber", epsilon=0.0), "epsilon > 0"),
    (SVR(loss="absolute"), "loss"),
    (SVR(quantile=0.0), "quantile"),
    (SVR(quantile=1.0), "quantile"),
    (SVR(power=0.0), "power"),
    (SVR(power=1.5), "power"),
    (KernelLogisticRegression(C=-1.0), "C"),
    (KernelLogisticRegression(multi_class="ovo"), "multi_class"),
    (ODMClassifier(lam=0.0), "lam"),
    (ODMClassifier(upsilon=-0.5), "upsilon"),
    (ODMClassifier(theta=1.0), "theta"),
    (ODMClassifier(theta=-0.1), "theta"),
    (OneClassSVM(nu=0.0), "nu"),
    (OneClassSVM(nu=1.5), "nu"),
    (SVC(multi_class="joint"), "multi_class"),
]


@pytest.mark.parametrize(("estimator", "name"), BAD_PARAMETERS, ids=str)
def test_bad_parameters(estimator, name):
    X, y = rows(estimator)
    with pytest.raises(ValueError, match=name):
        estimator.fit(X, y)


# --- regression --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "C"), [("rbf", 1.0), ("rbf", 20.0), ("linear", 1.0)])
def test_svr_is_libsvms(kernel, C):
    X, y = load("diabetes")
    ours = SVR(C=C, epsilon=0.2, kernel=kernel, gamma=0.05, tol=1e-7).fit(X, y)
    theirs = LibsvmSVR(C=C, epsilon=0.2, kernel=kernel, gamma=0.05, tol=1e-8).fit(X, y)
    K = oracle.rbf(X, X, 0.05) if kernel == "rbf" else X @ X.T
    beta = np.zeros(len(y))
    beta[theirs.support_] = theirs.dual_coef_[0]
    excess = np.maximum(0, np.abs(y - theirs.predict(X)) - 0.2)
    objective = 0.5 * beta @ K @ beta + C * excess.sum()
    assert abs(ours.objective_ - objective) <= 1e-5 * objective
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=3e-3)


def test_svr_of_a_flat_target():
    X, _ = load("diabetes")
    for y in (np.full(len(X), 3.0), 3.0 + 0.05 * np.sin(np.arange(len(X)))):
        model = SVR(epsilon=0.1).fit(X, y)
        assert len(model.support_) == 0 and model.converged_
        np.testing.assert_allclose(model.predict(X), y, atol=0.1 + 1e-9)


def test_huber_between_square_and_absolute():
    """A wide zone is least squares up to its factor; a narrow one the absolute error."""
    X, y = load("diabetes")
    wide = SVR(C=50.0, epsilon=50.0, loss="huber", gamma=0.05, tol=1e-9).fit(X, y)
    square = SVR(C=0.5, epsilon=0.0, loss="squared_epsilon_insensitive", gamma=0.05, tol=1e-9)
    np.testing.assert_allclose(wide.predict(X), square.fit(X, y).predict(X), atol=1e-3)
    narrow = SVR(C=1.0, epsilon=1e-6, loss="huber", gamma=0.05, tol=1e-7).fit(X, y)
    absolute = SVR(C=1.0, epsilon=0.0, gamma=0.05, tol=1e-7).fit(X, y)
    assert abs(narrow.objective_ - absolute.objective_) <= 1e-5 * absolute.objective_


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("solver", ["auto", "exact", "newton", "cd"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_pinball_is_quantile_regression(quantile, solver, form):
    """P(w) <= P(w of QuantileRegressor), which has no penalty here, nor a lower pinball loss."""
    X, y = load("diabetes")
    X, y, C = X[:150], y[:150], 100.0
    tol = 1e-3 if solver == "cd" else 1e-6
    weight = np.random.default_rng(0).integers(1, 4, size=150).astype(float)
    theirs = QuantileRegressor(quantile=quantile, alpha=0.0).fit(X, y, sample_weight=weight)
    ours = SVR(C, loss="pinball", quantile=quantile, kernel="linear", solver=solver, tol=tol)
    ours.fit(form(X), y, sample_weight=weight)

    def paid(predicted):
        return weight.sum() * mean_pinball_loss(y, predicted, alpha=quantile, sample_weight=weight)

    least, found = paid(theirs.predict(X)), paid(ours.predict(form(X)))
    penalty = 0.5 * float(theirs.coef_ @ theirs.coef_)
    assert ours.converged_
    assert ours.objective_ == pytest.approx(0.5 * np.sum(ours.coef_**2) + C * found, rel=1e-9)
    assert least * (1 - 1e-9) <= found
    assert ours.objective_ <= (penalty + C * least) * (1 + tol)
    assert penalty <= 0.01 * C * least  # or this would say little
    assert abs(np.average(y <= ours.predict(form(X)), weights=weight) - quantile) <= 0.07


def test_pinball_of_one_half_is_half_the_absolute_error():
    X, y = load("diabetes")
    pinball = SVR(C=2.0, loss="pinball", gamma=0.05, tol=1e-7).fit(X, y)
    absolute = SVR(C=1.0, epsilon=0.0, gamma=0.05, tol=1e-7).fit(X, y)
    assert abs(pinball.objective_ - absolute.objective_) <= 1e-6 * absolute.objective_
    np.testing.assert_allclose(pinball.predict(X), absolute.predict(X), atol=1e-2)


@pytest.mark.parametrize("quantile", [0.2, 0.9])
def test_early_models_have_the_quantile(quantile):
    """Where no row is near, a model of parts predicts the quantile and not the median."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2))
    y = 10.0 + rng.exponential(size=400)
    solver = DivideAndConquer(early=1)
    model = SVR(loss="pinball", quantile=quantile, gamma=1.0, C=0.1, solver=solver).fit(X, y)
    assert model.predict([[1e3, 1e3]])[0] == pytest.approx(np.quantile(y, quantile))


# --- one class -----------------------------------------------------------------------------------


@pytest.mark.parametrize("nu", [0.01, 0.1, 0.5, 0.95])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
def test_one_class_is_libsvms(nu, kernel):
    X = load("breast")[0] + 3.0  # a linear model needs rows on one side of zero
    parameters = {"nu": nu, "kernel": kernel, "gamma": 0.02, "coef0": 1.0}
    ours = OneClassSVM(**parameters, tol=1e-7).fit(X)
    theirs = LibsvmOneClass(**parameters, tol=1e-7, max_iter=10**6).fit(X)
    beta = np.zeros(len(X))
    beta[theirs.support_] = theirs.dual_coef_[0]
    dual = 0.5 * beta @ theirs.score_samples(X)
    assert abs(-ours.objective_ - dual) <= 1e-5 * dual
    assert ours.dual_coef_.sum() == pytest.approx(nu * len(X))
    scale = np.abs(theirs.score_samples(X)).max()
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=2e-3 * scale)
    np.testing.assert_allclose(
        ours.score_samples(X) - ours.offset_, ours.decision_function(X), atol=1e-8 * scale
    )
    assert set(ours.predict(X)) <= {-1, 1}
    clear = np.abs(theirs.decision_function(X)) > 5e-3 * scale
    np.testing.assert_array_equal(ours.predict(X)[clear], theirs.predict(X)[clear])


def test_one_class_at_its_ends():
    """nu = 1 leaves no choice; a linear model on centred rows is the zero model."""
    X, _ = load("breast")
    model = OneClassSVM(nu=1.0, tol=1e-7).fit(X)
    np.testing.assert_array_equal(model.dual_coef_, np.ones((1, len(X))))
    assert model.converged_
    for nu in (0.01, 0.5, 0.95):
        model = OneClassSVM(nu=nu, kernel="linear").fit(X)
        assert model.converged_ and np.abs(model.coef_).max() < 1e-2 * nu * len(X)


def test_one_class_from_a_sample():
    """With many rows the start comes from a sample; the optimum is the same."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((4500, 2)), rng.uniform(-6, 6, (500, 2))])
    model = OneClassSVM(nu=0.1, gamma=0.5).fit(X)
    assert model.converged_ and model.certify(X) <= 1e-3
    theirs = LibsvmOneClass(nu=0.1, gamma=0.5).fit(X)
    dual = 0.5 * theirs.dual_coef_[0] @ theirs.score_samples(X[theirs.support_])
    assert abs(-model.objective_ - dual) <= 2e-3 * dual
    clear = np.abs(theirs.decision_function(X)) > 0.02 * theirs.offset_
    assert clear.mean() > 0.05  # the score is nearly level inside
    assert np.mean((model.predict(X) == theirs.predict(X))[clear]) > 0.999


# --- probabilities -------------------------------------------------------------------------------


@pytest.mark.parametrize("multi_class", ["ovr", "softmax"])
@pytest.mark.parametrize("classes", [2, 5])
def test_probabilities(multi_class, classes):
    estimator = KernelLogisticRegression(C=30.0, multi_class=multi_class)
    X, y = rows(estimator, n=400, classes=classes)
    model = estimator.fit(X[:200], y[:200])
    p = model.predict_proba(X)
    assert p.shape == (400, classes)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.log(p), model.predict_log_proba(X), atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])
    assert log_loss(y[200:], p[200:]) < log_loss(y[200:], np.full_like(p[200:], 1 / classes))
    if classes == 2 and multi_class == "ovr":
        f = model.decision_function(X)
        np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-f)), rtol=1e-12)
    far = model.predict_proba(1e6 * X)  # nothing overflows
    assert np.isfinite(far).all()


def test_logistic_variables_stay_inside():
    X, y = load("breast")
    model = KernelLogisticRegression(C=3.0, gamma=0.05).fit(X, y)
    alpha = np.abs(model.dual_coef_[0])
    assert len(model.support_) == len(y) and np.all(alpha > 0) and np.all(alpha < 3.0)


# --- margin distributions ----------------------------------------------------------------------


def test_duplicated_rows_change_nothing():
    X, y = load("moons200")
    once = ODMClassifier(lam=16.0, gamma=1.0, tol=1e-9).fit(X, y)
    twice = ODMClassifier(lam=16.0, gamma=1.0, tol=1e-9).fit(np.r_[X, X], np.r_[y, y])
    assert abs(once.objective_ - twice.objective_) <= 1e-8 * once.objective_
    np.testing.assert_allclose(once.decision_function(X), twice.decision_function(X), atol=1e-3)


def test_special_case_is_the_squared_hinge():
    X, y = load("moons200")
    odm = ODMClassifier(lam=20.0, upsilon=0.0, theta=0.0, gamma=1.0, tol=1e-9).fit(X, y)
    svc = SVC(C=20.0 / (2 * len(y)), loss="squared_hinge", intercept=None, gamma=1.0, tol=1e-9)
    np.testing.assert_allclose(
        odm.decision_function(X), svc.fit(X, y).decision_function(X), atol=1e-4
    )


@pytest.mark.parametrize("intercept", [None, "regularized"])
@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
@pytest.mark.parametrize("classes", [2, 3])
def test_certified_labels_are_final(intercept, multi_class, classes):
    estimator = ODMClassifier(lam=50.0, intercept=intercept, multi_class=multi_class)
    X, y = rows(estimator, n=300, classes=classes)
    final = with_(estimator, tol=1e-9).fit(X, y)
    shares = []
    for tol in (0.3, 1e-2, 1e-4):
        model = with_(estimator, tol=tol).fit(X, y)
        sure = model.certified(X)
        assert sure.dtype == bool and sure.shape == (300,)
        np.testing.assert_array_equal(model.predict(X)[sure], final.predict(X)[sure])
        shares.append(sure.mean())
    assert shares[-1] > 0.8
    radius = np.sqrt(model._absolute_gaps[0] * (1 + (intercept is not None)))
    change = model._decisions(X)[:, 0] - final._decisions(X)[:, 0]
    assert np.abs(change).max() <= radius + 1e-4


def test_certified_refusals():
    X, y = load("moons200")
    with pytest.raises(ValueError, match="intercept=None"):
        ODMClassifier(intercept="free").fit(X, y).certified(X)
    gram = X @ X.T
    with pytest.raises(ValueError, match="precomputed"):
        ODMClassifier(kernel="precomputed").fit(gram, y).certified(gram)
    stopped = ODMClassifier(kernel=lambda A, B: A @ B.T).fit(X, y)
    assert stopped.certified(X).any()


def test_odm_narrows_the_margins():
    """The point of the model: it draws the margins together, where an SVM lets them go."""
    X, y = load("moons")
    svm = SVC(C=10.0, gamma=1.0).fit(X, y)
    odm = ODMClassifier(lam=1000.0, gamma=1.0, upsilon=1.0).fit(X, y)
    a, b = margins(svm, X, y), margins(odm, X, y)
    assert np.mean(np.abs(b - 1) < 0.3) > 2 * np.mean(np.abs(a - 1) < 0.3)


def test_indefinite_kernels_are_not_certified():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 40))
    gram = A + A.T
    y = rng.integers(2, size=40)
    for estimator in ESTIMATORS:
        model = with_(estimator, kernel="precomputed", time_limit=5.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(gram, y)
        assert not model.converged_
        if getattr(model, "multi_class", "") not in ("crammer_singer", "softmax"):
            assert model.history_[-1]["seconds"] < 4.0  # what cannot be solved is noticed


# --- the default of the margin distribution machine ----------------------------------------------


def test_the_default_penalty_of_margins_grows_with_the_rows():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = ODMClassifier().fit(X[:400], y[:400])
    same = ODMClassifier(lam=400.0).fit(X[:400], y[:400])
    np.testing.assert_array_equal(model.dual_coef_, same.dual_coef_)
    assert model.score(X[400:], y[400:]) > 0.95
    # the penalty of a row does not depend on how many others there are
    given = {"gamma": 0.03, "tol": 1e-8}
    twice = ODMClassifier(**given).fit(np.vstack([X, X]), np.tile(y, 2))
    weighted = ODMClassifier(**given).fit(X, y, sample_weight=np.full(len(y), 2.0))
    np.testing.assert_allclose(twice.decision_function(X), weighted.decision_function(X), atol=1e-4)
    with pytest.raises(ValueError, match="'lam' parameter"):
        ODMClassifier(lam="auto").fit(X, y)
