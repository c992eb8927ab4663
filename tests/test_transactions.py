"""Fits are transactions: a fit that ends early leaves a complete model, or all as it was before.

Ctrl-C comes at every callback, at calls spread over all of a fit, and as a signal at random times;
errors come late. `verify` says what has to hold after each of them.
"""

import copy
import inspect
import os
import pickle
import random
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import margrave
from margrave import (
    SVC,
    SVR,
    AutoClassifier,
    AutoRegressor,
    BayesianSVC,
    BayesianSVR,
    HardMarginSVC,
    KernelLogisticRegression,
    MetricLearner,
    NuSVC,
    NuSVR,
    ODMClassifier,
    OneClassSVM,
    RowBlocks,
    Tuner,
)
from margrave._core import Stopped
from margrave.solvers import (
    Cascade,
    DivideAndConquer,
    ExpectationMaximization,
    MergeTree,
    WorkingSet,
)
from tests.pressing import press

GRID = {"C": [1.0, 2.0]}
CHAINS = {"n_samples": 8, "burn_in": 3, "chains": 2}
# every estimator, and ways to solve that have steps of their own
ESTIMATORS = [
    SVC(),
    SVC(kernel="linear"),
    SVC(solver=DivideAndConquer(levels=2)),
    SVC(solver=Cascade(leaves=4)),
    SVC(solver=ExpectationMaximization(), intercept="regularized"),
    SVC(solver="dip"),
    SVC(solver="pbm"),
    SVC(multi_class="crammer_singer", intercept=None),
    SVR(),
    KernelLogisticRegression(),
    ODMClassifier(),
    ODMClassifier(solver=MergeTree()),
    ODMClassifier(kernel="linear", solver="svrg"),
    OneClassSVM(),
    NuSVC(0.5),
    NuSVC(0.5, solver="gilbert"),
    NuSVR(),
    HardMarginSVC(kernel="linear"),
    BayesianSVC(**CHAINS),
    BayesianSVC(kernel="linear", **CHAINS),
    BayesianSVR(**CHAINS),
    Tuner(SVC(), GRID, 2, n_jobs=1),
]
# the tests of these three interrupt them and let them fail
SEARCHES = {AutoClassifier, AutoRegressor, MetricLearner}
posix = pytest.mark.skipif(os.name != "posix", reason="signals as of POSIX")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)


def rows(d, n=120):
    """Two classes apart from each other; their labels serve as targets too."""
    rng = np.random.default_rng(d)
    X, y = rng.standard_normal((n, d)), np.repeat([0, 1], n // 2)
    X[y == 1, 0] += 8.0
    return X, y


OLD, NEW = rows(3), rows(5)
# attributes that not every fit to the end has: of models of parts, and of searches without the last
SOMETIMES = {"_early", "_part_support", "best_estimator_", "refit_time_"}


def test_every_estimator_is_here():
    public = {getattr(margrave, name) for name in margrave.__all__}
    here = {type(model) for model in ESTIMATORS} | SEARCHES
    assert {cls for cls in public if hasattr(cls, "fit")} == here


# --- what has to hold ----------------------------------------------------------------------------


class Before:
    """An estimator before a fit that will not end well, and what it could do."""

    def __init__(self, model):
        self.model, self.state = model, dict(vars(model))
        self.predictions = predictions(model, OLD[0]) if is_fitted(model) else None

    def is_there(self):
        """Whether the estimator has the same attributes as before, the very same objects."""
        now = vars(self.model)
        return now.keys() == self.state.keys() and all(
            now[name] is value for name, value in self.state.items()
        )

    def verify(self):
        assert self.is_there(), vars(self.model).keys() ^ self.state.keys()
        if self.predictions is None:
            with pytest.raises(NotFittedError):
                self.model.predict(NEW[0])
        else:
            np.testing.assert_array_equal(predictions(self.model, OLD[0]), self.predictions)


def is_fitted(model):
    return any(name.endswith("_") for name in vars(model))


def predictions(model, X):
    """The finest that a model says of rows."""
    return (model.decision_function if hasattr(model, "decision_function") else model.predict)(X)


def verify(before, names, folder):
    """Either nothing has happened, or there is a complete model of the new rows; True if so.

    `names` are the attributes that a fit leaves if nothing comes in between.
    """
    if before.is_there():
        before.verify()
        return False
    model, (X, y) = before.model, NEW
    assert set(vars(model)) ^ names <= SOMETIMES
    if isinstance(model, Tuner):
        assert model.cv_results_["params"][model.best_index_] == model.best_params_
        if not hasattr(model, "best_estimator_"):
            with pytest.raises(NotFittedError):
                model.predict(X)
            return True
        model = model.best_estimator_
    assert model.n_features_in_ == X.shape[1]
    expected = predictions(model, X)
    assert len(expected) == len(X) and np.isfinite(expected).all()
    with pytest.raises(ValueError, match="3 features"):
        model.predict(OLD[0])
    if model.certificate_ == "full":
        assert model.certify(X, y) <= 1.1 * model.gap_ + 1e-3
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(predictions(again, X), expected)
    model.save(folder / "model")
    np.testing.assert_array_equal(predictions(margrave.load(folder / "model"), X), expected)
    return True


def starts(estimator):
    """The estimator as it comes, and fitted to rows with another number of features."""
    yield clone(estimator)
    yield clone(estimator).fit(*OLD)


def names_after_fit(estimator):
    return set(vars(clone(estimator).fit(*NEW)))


# --- Ctrl-C at callbacks -------------------------------------------------------------------------


class Calls:
    """A callback that counts, and raises when it is called for the `last` time."""

    def __init__(self, last=0, error=KeyboardInterrupt):
        self.count, self.last, self.error = 0, last, error

    def __deepcopy__(self, memo):
        return self

    def __call__(self, record):
        self.count += 1
        if self.count == self.last:
            raise self.error


def called_back(model, callback):
    """Give the estimator, or the one that a tuner searches with, a callback."""
    name = "estimator__callbacks" if isinstance(model, Tuner) else "callbacks"
    return model.set_params(**{name: callback})


@each_estimator
def test_ctrl_c_at_every_callback(estimator, tmp_path):
    names, counter = names_after_fit(estimator), Calls()
    called_back(clone(estimator), counter).fit(*NEW)
    complete = []
    for last in range(1, counter.count + 1):
        for model in starts(estimator):
            before = Before(called_back(model, callback := Calls(last)))
            with pytest.raises(KeyboardInterrupt):
                model.fit(*NEW)
            assert callback.count >= last
            complete.append(verify(before, names, tmp_path))
    assert complete[-1]


# --- Ctrl-C at calls all over a fit --------------------------------------------------------------

PACKAGE = str(Path(margrave.__file__).parent)


class Strike:
    """Ctrl-C when the package calls its `last`-th function.

    Not in generators: Python calls them once more to close them, and ignores what they raise then.
    """

    def __init__(self, last=0):
        self.count, self.last = 0, last

    def __enter__(self):
        self.outer = sys.gettrace()
        sys.settrace(self._look)
        return self

    def __exit__(self, *error):
        sys.settrace(self.outer)

    def _look(self, frame, event, arg):
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE) and not code.co_flags & inspect.CO_GENERATOR:
            self.count += 1
            if self.count == self.last:
                raise KeyboardInterrupt


def was_interrupted(model):
    try:
        model.fit(*NEW)
    except KeyboardInterrupt:
        return True
    return False


@each_estimator
def test_ctrl_c_at_calls_all_over_a_fit(estimator, tmp_path):
    names = names_after_fit(estimator)
    with Strike() as strike:
        clone(estimator).fit(*NEW)
    fitted = pickle.dumps(clone(estimator).fit(*OLD))
    complete = []
    for number, last in enumerate(np.unique(np.linspace(1, strike.count, 60).astype(int))):
        before = Before(pickle.loads(fitted) if number % 2 else clone(estimator))
        with Strike(last) as strike:
            interrupted = was_interrupted(before.model)
        assert interrupted == (strike.count >= last)  # a clock may have saved it a call
        complete.append(verify(before, names, tmp_path))
    assert not complete[0]
    # Which call is the last depends on the clock, at which slow computers look more often.
    before = Before(clone(estimator))
    with Strike(10 * strike.count):
        assert not was_interrupted(before.model)
    assert verify(before, names, tmp_path)


# --- Ctrl-C as a signal at random times ----------------------------------------------------------

# one of each estimator, so that a fit to many rows takes some time
MANY = rows(5, 6000)
MANY[0][:, 0] -= 7.5 * MANY[1]
FIRST = {type(estimator): estimator for estimator in reversed(ESTIMATORS)}
LONG = {
    FIRST[SVC]: {"C": 1e4, "gamma": 5.0, "tol": 1e-9},
    FIRST[SVR]: {"C": 1e4, "gamma": 5.0, "tol": 1e-9},
    FIRST[KernelLogisticRegression]: {"C": 1e4, "gamma": 5.0, "tol": 1e-9},
    FIRST[ODMClassifier]: {"lam": 1e9, "gamma": 5.0, "tol": 1e-12},
    FIRST[OneClassSVM]: {"gamma": 5.0, "tol": 1e-12},
    FIRST[NuSVC]: {"nu": 0.9, "gamma": 5.0, "tol": 1e-12},
    FIRST[NuSVR]: {"gamma": 5.0, "tol": 1e-12},
    FIRST[HardMarginSVC]: {"kernel": "rbf", "gamma": 5.0, "tol": 1e-12},
    FIRST[BayesianSVC]: {"features": 300, "n_samples": 10_000},
    FIRST[BayesianSVR]: {"features": 300, "n_samples": 10_000},
    FIRST[Tuner]: {"estimator": SVC(gamma=5.0, tol=1e-9), "param_grid": {"C": [1e3, 1e4]}},
}
assert len(LONG) == len(FIRST)


def press_at_random(folder, seed):
    """In a process of its own: a signal ends fits at any time from their begin to their end."""
    delays = random.Random(seed)
    for estimator in ESTIMATORS:
        begin = time.perf_counter()
        names = names_after_fit(estimator)
        seconds = time.perf_counter() - begin
        for model in [*starts(estimator)] * 3:
            before = Before(model := copy.copy(model))
            late = press(model, NEW, delays.uniform(0.0, 1.1 * seconds))
            assert late < 2.0, (estimator, late)  # a second on an idle machine
            verify(before, names, folder)


def press_early(folder, seed):
    """In a process of its own: a signal ends long fits soon after their begin."""
    delays = random.Random(seed)
    for estimator, parameters in LONG.items():
        for model in starts(estimator):
            before = Before(model.set_params(**parameters))
            late = press(model, MANY, delays.uniform(0.0, 0.6))
            assert late < 2.0, (estimator, late)
            if not before.is_there() and hasattr(model, "n_features_in_"):
                assert len(predictions(model, MANY[0])) == len(MANY[0])


@posix
@pytest.mark.parametrize(
    ("press", "seed"), [("press_at_random", 0), ("press_at_random", 1), ("press_early", 2)]
)
def test_signals(press, seed, tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-m", "tests.test_transactions"),
            *(press, str(tmp_path), str(seed)),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr[-4000:]


# --- errors --------------------------------------------------------------------------------------


@each_estimator
def test_an_error_leaves_all_as_it_was(estimator):
    X, y = NEW
    for model in starts(estimator):
        before = Before(loud(model))
        for weight in (np.full(len(y), -1.0), np.ones(7)):
            with pytest.raises(ValueError, match="weight"):
                model.fit(X, y, sample_weight=weight)
            before.verify()
        with pytest.raises(ValueError, match="NaN"):
            model.fit(np.full_like(X, np.nan), y)
        before.verify()


@each_estimator
def test_a_callback_that_fails_leaves_all_as_it_was(estimator):
    counter = Calls()
    called_back(clone(estimator), counter).fit(*NEW)
    for last in {1, (counter.count + 1) // 2, counter.count}:
        for model in starts(estimator):
            before = Before(called_back(loud(model), Calls(last, OSError)))
            with pytest.raises(OSError):
                model.fit(*NEW)
            before.verify()


def loud(model):
    """Let a tuner raise what its fits raise."""
    return model.set_params(error_score="raise") if isinstance(model, Tuner) else model


def mixed(d):
    """Rows of two classes that no hyperplane separates."""
    X, _ = rows(d)
    return X, np.arange(len(X)) % 2


@pytest.mark.parametrize(
    ("estimator", "data", "message"),
    [
        (SVC(), (NEW[0], np.zeros(120)), "two classes"),
        (BayesianSVC(**CHAINS), (NEW[0], np.zeros(120)), "two classes"),
        (SVC(kernel="linear"), (RowBlocks([NEW[0], NEW[0] * np.nan]), np.tile(NEW[1], 2)), "NaN"),
        (NuSVC(0.9), (NEW[0], np.arange(120) < 10), "infeasible"),
        (HardMarginSVC(kernel="linear"), mixed(5), "overlap"),
        (
            BayesianSVC(features=None, **CHAINS),
            (np.tile(NEW[0], (40, 1)), np.tile(NEW[1], 40)),
            "memory_limit",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_is_found_late_leaves_all_as_it_was(estimator, data, message):
    for model in starts(estimator):
        before = Before(model.set_params(memory_limit="20MiB"))
        with pytest.raises(ValueError, match=message):
            model.fit(*data)
        before.verify()


def test_a_search_whose_last_fit_fails_leaves_all_as_it_was():
    def kernel(A, B):
        if len(A) > 60:  # more than the rows of a split
            raise ValueError("too many rows")
        return A @ B.T

    for model in starts(Tuner(SVC(kernel="linear"), GRID, 2)):
        before = Before(loud(model).set_params(estimator__kernel=kernel))
        with pytest.raises(ValueError, match="too many rows"):
            model.fit(*NEW)
        before.verify()


# --- what else an estimator has ------------------------------------------------------------------


def test_callbacks_see_the_old_model_until_the_new_one_is_there():
    seen = []

    def look(record):
        seen.append((model.n_features_in_, hasattr(model, "early_")))
        np.testing.assert_array_equal(model.predict(OLD[0]), expected)
        model.rounds = len(seen)

    strategy = DivideAndConquer(levels=2)
    model = SVC(solver=strategy).fit(*OLD)
    model.rounds, expected, first = 0, model.predict(OLD[0]), model.early_
    model.set_params(callbacks=look).fit(*NEW)
    assert {width for width, _ in seen} == {3} and seen[-1][1]
    assert model.n_features_in_ == 5 and model.early_ is not first
    assert model.rounds == len(seen)  # what a callback has set is not lost
    assert not any(name == "_draft" for part in (model, model.early_) for name in vars(part))


def test_an_early_model_goes_with_its_fit():
    def fail(record):
        if hasattr(model, "early_"):
            seen.append(model.early_)
            raise OSError

    for fitted in (False, True):
        seen = []
        model = SVC(solver=DivideAndConquer(levels=2))
        if fitted:
            model.fit(*OLD)
        before = Before(model.set_params(callbacks=fail))
        with pytest.raises(OSError):
            model.fit(*NEW)
        assert seen[0].n_features_in_ == 5
        before.verify()  # `early_` included


def test_an_interrupted_fit_goes_on_with_warm_start():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4))
    y = X[:, 0] + rng.standard_normal(400) > 0
    whole = SVC(C=100.0, solver=WorkingSet(size=8), callbacks=(calls := Calls())).fit(X, y)
    model = clone(whole).set_params(warm_start=True)
    with pytest.raises(KeyboardInterrupt, match="keeps the model reached so far, with gap"):
        model.set_params(callbacks=Calls(calls.count // 4)).fit(X, y)  # before `tol` is reached
    assert not model.converged_ and model.gap_ > model.tol
    model.set_params(callbacks=None).fit(X, y)
    assert model.converged_ and model.n_iter_ < whole.n_iter_


def test_a_core_that_ctrl_c_has_stopped(monkeypatch):
    def stop(*args):
        raise Stopped

    model = SVC(kernel="linear").fit(*OLD)
    before = Before(model)
    monkeypatch.setattr("margrave.solvers.linear.solve.NewtonRun", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*NEW)
    before.verify()


def test_ctrl_c_in_a_lock_is_ctrl_c(monkeypatch):
    """Struck inside the standard library, it may leave a lock that cannot be released."""

    def struck(*arguments):
        try:
            raise KeyboardInterrupt
        finally:
            threading.Lock().release()

    X = np.arange(40.0).reshape(20, 2)
    model = SVC().fit(X, X[:, 0] > 20)
    before = model.dual_coef_
    monkeypatch.setattr("margrave.estimators._base.resolve_solver", struck)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, X[:, 0] > 10)
    assert model.dual_coef_ is before


def test_nothing_does_not_replace_a_model():
    def interrupt(A, B):
        raise KeyboardInterrupt

    model = SVC().fit(*OLD)
    before = Before(model.set_params(kernel=interrupt))
    with pytest.raises(KeyboardInterrupt):
        model.fit(*NEW)
    assert before.is_there()


UNFINISHED = [SVC(C=100.0, solver=WorkingSet(size=2), max_iter=3), BayesianSVC(**CHAINS)]


@pytest.mark.parametrize("estimator", UNFINISHED, ids=repr)
def test_a_warning_that_is_an_error_loses_no_model(estimator):
    (X, y), model = mixed(5), clone(estimator)
    with warnings.catch_warnings(), pytest.raises(ConvergenceWarning):
        warnings.simplefilter("error")
        model.fit(X, y)
    assert model.predict(X).shape == (120,) and not model.converged_


def test_warnings_are_those_of_the_caller():
    calls, last = Calls(), Calls()
    Tuner(SVC(callbacks=calls), GRID, 2, refit=False).fit(*NEW)

    def sleepy(record):
        last(record)
        if last.count == calls.count:  # in the last of four fits
            time.sleep(2.0)

    slow = Tuner(SVC(callbacks=sleepy), GRID, 2, refit=False, time_limit=1.5, n_jobs=1)
    for model, data in [*((clone(one), mixed(3)) for one in UNFINISHED), (slow, NEW)]:
        with pytest.warns(ConvergenceWarning) as caught:
            model.fit(*data)
        assert {one.filename for one in caught} == {__file__}


def test_attributes_of_subclasses_and_settings_of_scikit_learn_stay():
    class Scaled(SVC):
        def fit(self, X, y, sample_weight=None):
            self.scale_ = X.std(axis=0)
            super().fit(X / self.scale_, y, sample_weight)
            self.n_fits_ = getattr(self, "n_fits_", 0) + 1
            return self

    with sklearn.config_context(enable_metadata_routing=True):
        model = Scaled().set_fit_request(sample_weight=True)
    model.remark = "mine"
    assert model.fit(*OLD) is model and model.fit(*NEW) is model
    assert model.n_fits_ == 2 and model.scale_.shape == (5,) and model.remark == "mine"
    assert model._metadata_request.fit.requests["sample_weight"] is True
    assert copy.copy(model).predict(NEW[0]).shape == (120,)


def test_nothing_of_an_earlier_fit_is_left():
    model = BayesianSVC(**CHAINS).fit(*OLD)
    assert hasattr(model, "support_")
    assert not hasattr(model.set_params(kernel="linear").fit(*NEW), "support_")
    tuner = Tuner(SVC(), GRID, 2).fit(*OLD)
    tuner.set_params(refit=False).fit(*NEW)
    assert not hasattr(tuner, "best_estimator_") and not hasattr(tuner, "refit_time_")


def test_a_fit_takes_the_same_random_numbers():
    first, second = (
        SVC(solver="dc", random_state=np.random.RandomState(0)).fit(*NEW) for _ in range(2)
    )
    np.testing.assert_array_equal(first.dual_coef_, second.dual_coef_)
    assert first.random_state.randint(100) == second.random_state.randint(100)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
    print("fine")
