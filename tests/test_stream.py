"""Learning batch by batch: the certified optimum of the rows that are kept, within bounds."""

from __future__ import annotations

import gc
import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import balanced_accuracy_score

import margrave
from margrave import SVC, SVR, KernelLogisticRegression, NuSVC, ODMClassifier, OneClassSVM
from tests import exact_gap

TOL = 1e-5
MODELS = [
    SVC(C=2.0, gamma=1.0, tol=TOL),
    SVC(C=2.0, kernel="linear", tol=TOL),
    SVC(C=2.0, gamma=1.0, intercept="regularized", loss="squared_hinge", tol=TOL),
    KernelLogisticRegression(gamma=1.0, tol=TOL),
    ODMClassifier(gamma=1.0, tol=TOL),
    SVR(gamma=1.0, tol=TOL),
    SVR(kernel="linear", tol=TOL),
    OneClassSVM(nu=0.2, gamma=1.0, tol=TOL),
]
each = pytest.mark.parametrize("model", MODELS, ids=str)


def rows(n=300, seed=0, turn=0.0, share=0.5):
    """Two classes, on the sides of a line that turns; `share` is that of the second."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    f = X @ [np.cos(turn), np.sin(turn)] + 0.2 * rng.standard_normal(n)
    return X, (f > np.quantile(f, 1.0 - share)).astype(int)


def learn(model, X, y, size=30, classes=(0, 1)):
    given = {"classes": classes} if hasattr(model, "predict_proba") or is_classifier(model) else {}
    for first in range(0, len(y), size):
        at = slice(first, first + size)
        model.partial_fit(X[at], y[at], **given)
    return model


def is_classifier(model):
    return isinstance(model, (SVC, KernelLogisticRegression, ODMClassifier))


@each
def test_with_room_for_all_rows_it_is_the_fit_of_all_rows(model):
    X, y = rows()
    streamed, whole = learn(clone(model), X, y), clone(model).fit(X, y)
    assert streamed.converged_ and streamed.n_dropped_ == 0
    assert streamed.n_samples_seen_ == len(y)
    close = 2.0 * TOL * abs(whole.objective_)
    assert abs(streamed.objective_ - whole.objective_) <= close
    assert streamed.certify(X, y) <= 1.01 * TOL


@each
def test_the_bound_holds_and_the_optimum_is_that_of_the_kept_rows(model):
    X, y = rows(600)
    model = learn(clone(model).set_params(max_support=80), X, y)
    kept = model._memory
    assert len(kept.y) <= 80 and len(model.support_) <= 80
    assert model.converged_ and model.gap_ <= TOL
    cold = clone(model).set_params(gamma=model._kernel.gamma)
    cold.fit(kept.X, kept.y, kept.weight)
    assert abs(model.objective_ - cold.objective_) <= 2.0 * TOL * abs(cold.objective_)
    exact = exact_gap.exact_gaps(model, kept.X, kept.y, kept.weight)
    assert max(found.gap for found in exact) <= model.gap_
    # every row is stood for
    assert kept.weight.sum() == pytest.approx(600.0)


def test_rows_that_are_no_support_vectors_leave_without_a_change():
    X, y = rows(400)
    model = SVC(C=2.0, kernel="linear", tol=TOL, max_support=250)
    whole = SVC(C=2.0, kernel="linear", tol=TOL).fit(X, y)
    model.partial_fit(X, y, classes=[0, 1])
    assert len(whole.support_) < 180 and model.n_dropped_ == 0 and len(model._memory.y) == 250
    assert model.objective_ == pytest.approx(whole.objective_, rel=2 * TOL)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=0.02 * np.abs(whole.coef_).max())


def test_three_classes_and_labels_that_come_late():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = SVC(gamma=1.0, max_support=120)
    model.partial_fit(X[y == "a"], y[y == "a"], classes=["a", "b", "c"])
    assert np.isnan(model.progressive_score_)
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X[y == "b"], y[y == "b"])
    assert model.classes_.tolist() == ["a", "b"]
    model.partial_fit(X[y == "c"], y[y == "c"])
    assert model.classes_.tolist() == ["a", "b", "c"] and model.score(X, y) > 0.9


def test_no_class_is_forgotten_where_one_is_rare():
    """One row in fifty is positive."""
    X, y = rows(1500, share=0.02)
    model = learn(SVC(gamma=1.0, class_weight="balanced", max_support=60), X, y, 50)
    assert set(model._memory.y) == {0, 1}
    whole = SVC(gamma=1.0, class_weight="balanced").fit(X, y)
    new, labels = rows(2000, seed=1, share=0.02)
    of_class = [balanced_accuracy_score(labels, one.predict(new)) for one in (model, whole)]
    assert of_class[0] >= of_class[1] - 0.05, of_class
    total = {one: model._memory.weight[model._memory.y == one].sum() for one in (0, 1)}
    assert total[1] == pytest.approx(0.02 * 1500)  # the frequencies are known


def test_forgetting_follows_a_drift():
    """The line between the classes turns by half a circle: old rows are wrong."""
    scores = {}
    for forget in (0.0, 0.3):
        model = SVC(kernel="linear", max_support=150, forget=forget)
        for batch in range(40):
            X, y = rows(30, seed=batch, turn=np.pi * batch / 39)
            model.partial_fit(X, y, classes=[0, 1])
        scores[forget] = model.score(*rows(1000, seed=99, turn=np.pi))
        assert model._memory.weight.sum() == pytest.approx(
            sum(30 * (1.0 - forget) ** age for age in range(40))
        )
    assert scores[0.3] > scores[0.0] + 0.05, scores


def test_the_progressive_score_is_of_rows_not_seen():
    X, y = rows(300)
    model, right = SVC(gamma=1.0), []
    for first in range(0, 300, 30):
        at = slice(first, first + 30)
        if first:
            right.append(np.mean(model.predict(X[at]) == y[at]))
        model.partial_fit(X[at], y[at], classes=[0, 1])
    assert model.progressive_score_ == pytest.approx(np.mean(right))
    target = X[:, 0]
    model, errors = SVR(gamma=1.0), []
    for first in range(0, 300, 30):
        at = slice(first, first + 30)
        if first:
            errors.extend((model.predict(X[at]) - target[at]) ** 2)
        model.partial_fit(X[at], target[at])
    spread = np.var(target[30:])
    assert model.progressive_score_ == pytest.approx(1.0 - np.mean(errors) / spread)


def test_a_long_stream_keeps_memory_flat():
    """1,000 batches: neither the model nor the process grows."""
    resource = pytest.importorskip("resource")
    rng = np.random.default_rng(0)
    model, sizes = SVC(kernel="linear", max_support=20, n_jobs=1), []
    for batch in range(1000):
        X = rng.standard_normal((2, 2))
        model.partial_fit(X, X[:, 0] > 0.0, classes=[False, True])
        if batch in (199, 999):
            gc.collect()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB
            sizes.append((len(pickle.dumps(model)), len(gc.get_objects()), peak))
    (first, objects, peak), (last, more, higher) = sizes
    assert model.n_samples_seen_ == 2000 and len(model._memory.y) <= 20
    assert last <= 1.2 * first and more <= objects + 1000 and higher <= peak + 8192


@pytest.mark.parametrize("form", [sparse.csr_matrix, np.float32])
def test_forms_of_rows(form):
    X, y = rows(200)
    model = learn(SVC(gamma=1.0, max_support=60), form(X), y)
    assert model.converged_ and type(model._memory.X) is type(form(X))


def test_pickles_go_on_and_files_predict(tmp_path):
    X, y = rows(200)
    model = learn(SVC(gamma=1.0, max_support=60), X[:150], y[:150])
    model.save(tmp_path / "model")
    loaded = margrave.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.warns(UserWarning, match="begins anew"):
        loaded.partial_fit(X[150:], y[150:])
    assert loaded.n_samples_seen_ == 50
    again = pickle.loads(pickle.dumps(model)).partial_fit(X[150:], y[150:])
    model.partial_fit(X[150:], y[150:])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_fit_ends_a_stream():
    X, y = rows(200)
    model = learn(SVC(), X, y)
    gamma = model._kernel.gamma
    model.fit(10.0 * X, y)
    assert model._kernel.gamma < 0.1 * gamma and not hasattr(model, "n_samples_seen_")
    with pytest.warns(UserWarning, match="begins anew"):
        model.partial_fit(X, y)
    fresh = SVC().partial_fit(X, y, classes=[0, 1])
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))
    assert set(vars(model)) == set(vars(fresh))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": None}, "classes must be passed on the first call"),
        ({"classes": [0]}, "at least two classes"),
        ({"classes": [0, 2]}, "not in classes"),
        ({"max_support": 1}, "max_support"),
        ({"forget": 1.0}, "forget"),
    ],
)
def test_bad_input(change, message):
    X, y = rows(20)
    classes = {"classes": [0, 1], **change}.pop("classes")
    params = {name: value for name, value in change.items() if name != "classes"}
    with pytest.raises(ValueError, match=message):
        SVC(**params).partial_fit(X, y, classes=classes)


def test_a_failed_call_changes_nothing():
    X, y = rows(100)
    model = learn(SVC(gamma=1.0), X, y)
    before = dict(vars(model))
    for bad in ((X[:, :1], y), (X, y[:-1]), (X * np.nan, y), (X, y + 5)):
        with pytest.raises(ValueError):
            model.partial_fit(*bad)
        assert vars(model) == before
    with pytest.raises(ValueError, match="not the same as in the first call"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    assert not hasattr(NuSVC(), "partial_fit")


def test_kernel_matrices_have_no_rows_to_keep():
    model = SVC(kernel="precomputed")
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as error:
        model.partial_fit(np.eye(4), [0, 1, 0, 1], classes=[0, 1])
    assert "not a precomputed kernel matrix" in str(error.value.__cause__)


def test_ctrl_c_keeps_a_model_and_the_stream():
    X, y = rows(400)
    model = learn(SVC(gamma=1.0, max_support=100), X[:200], y[:200])
    seen = []

    def press(record):
        seen.append(record)
        raise KeyboardInterrupt

    model.callbacks = press
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[200:300], y[200:300])
    assert seen and model.score(X, y) > 0.8
    model.callbacks = None
    model.partial_fit(X[300:], y[300:])
    assert model.converged_ and len(model._memory.y) <= 100


def test_budgets_leave_the_stream_going():
    X, y = rows(400)
    model = SVC(gamma=1.0, tol=1e-9, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learn(model, X, y, 100)
    assert not model.converged_ and model.gap_ > 1e-9 and model.n_samples_seen_ == 400
