"""Forked and parallel processes, and every form in which rows and labels may come."""

import ast
import importlib
import multiprocessing
import pickle
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score

import margrave
from margrave import SVC
from tests.data import load
from tests.systems import ELSEWHERE, linux

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_every_module_of_tests_can_be_imported(name):
    """Doctests of modules that need an extra are left out; tests must not vanish that way."""
    if name.removeprefix("test_") in ELSEWHERE:
        pytest.skip("not on this system")
    importlib.import_module(f"tests.{name}")


def test_private_parts_of_scikit_learn_are_used_in_one_place():
    package = Path(margrave.__file__).parent
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                names = [*node.module.split("."), *(alias.name for alias in node.names)]
                private = [name for name in names if name.startswith("_")]
                assert not private or path.name == "_sklearn.py", (path, private)


def _fit_in_child(queue):
    X, y = load("moons")
    queue.put(SVC(n_jobs=2, tol=1e-6).fit(X, y).objective_)


@linux
def test_fork_after_threads():
    """The thread pool of the parent does not exist in a forked child: it is made anew."""
    X, y = load("moons")
    parent = SVC(n_jobs=2, tol=1e-6).fit(X, y).objective_
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads: the point here
        children = [context.Process(target=_fit_in_child, args=(queue,)) for _ in range(2)]
        for child in children:
            child.start()
    found = [queue.get(timeout=30) for _ in children]
    for child in children:
        child.join(timeout=30)
        assert child.exitcode == 0
    np.testing.assert_allclose(found, parent, rtol=1e-5)
    assert SVC(n_jobs=2, tol=1e-6).fit(X, y).objective_ == pytest.approx(parent, rel=1e-6)


def test_grid_search_in_processes():
    X, y = load("moons")
    grid = {"C": [0.1, 10.0], "gamma": [0.1, 1.0]}
    alone = GridSearchCV(SVC(), grid, cv=3).fit(X, y)
    parallel = GridSearchCV(SVC(), grid, cv=3, n_jobs=2).fit(X, y)
    assert parallel.best_params_ == alone.best_params_
    for name in ("mean_test_score", "std_test_score"):
        np.testing.assert_allclose(parallel.cv_results_[name], alone.cv_results_[name])
    assert cross_val_score(SVC(C=10.0, gamma=1.0), X, y, n_jobs=2).mean() > 0.9


def test_threads_of_python():
    """Fits in several Python threads at once do not disturb each other."""
    from concurrent.futures import ThreadPoolExecutor

    X, y = load("moons")
    parameters = [{"C": C, "gamma": g} for C in (0.1, 1.0, 10.0) for g in (0.3, 3.0)]

    def objective(p):
        return SVC(n_jobs=2, tol=1e-6, **p).fit(X, y).objective_

    serial = [objective(p) for p in parameters]
    with ThreadPoolExecutor(4) as pool:
        np.testing.assert_allclose(list(pool.map(objective, parameters * 3)), serial * 3, rtol=2e-6)


def test_n_jobs_does_not_change_the_result():
    X, y = load_wine(return_X_y=True)
    models = [SVC(n_jobs=n, tol=1e-8).fit(X, y) for n in (1, 2, 3, -1, None)]
    for model in models[1:]:
        np.testing.assert_allclose(
            model.decision_function(X), models[0].decision_function(X), rtol=1e-6, atol=1e-6
        )


def test_interrupt_handler_is_left_as_it_was():
    before = signal.getsignal(signal.SIGINT)
    X, y = load("moons")
    SVC().fit(X, y)
    assert signal.getsignal(signal.SIGINT) is before


def test_pickle_and_clone():
    X, y = load("moons")
    model = SVC(C=3.0, gamma=0.7, kernel="laplacian").fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.decision_function(X), model.decision_function(X))
    assert copy.gap_ == model.gap_ and copy.history_ == model.history_
    fresh = clone(model)
    assert fresh.get_params() == model.get_params() and not hasattr(fresh, "support_")
    np.testing.assert_array_equal(fresh.fit(X, y).dual_coef_, model.dual_coef_)


def test_same_input_same_result():
    X, y = load("moons")
    first, second = (SVC(n_jobs=2).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.dual_coef_, second.dual_coef_)
    assert [r["gap"] for r in first.history_] == [r["gap"] for r in second.history_]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_mapped_read_only_rows(tmp_path, dtype, order):
    X, y = load("moons")
    np.save(tmp_path / "X.npy", np.asarray(X, dtype=dtype, order=order))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert not mapped.flags.writeable
    model, plain = SVC(tol=1e-8).fit(mapped, y), SVC(tol=1e-8).fit(X.astype(dtype), y)
    np.testing.assert_allclose(
        model.decision_function(mapped), plain.decision_function(X.astype(dtype)), atol=1e-4
    )


def test_input_is_not_changed():
    X, y = (a.copy() for a in load("moons"))
    weight = np.linspace(0.0, 2.0, len(y))
    before = X.copy(), y.copy(), weight.copy()
    SVC().fit(X, y, sample_weight=weight).predict(X)
    for array, kept in zip((X, y, weight), before, strict=True):
        np.testing.assert_array_equal(array, kept)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library):
    frames = pytest.importorskip(library)
    X, y = load("moons")
    frame = frames.DataFrame({"left": X[:, 0], "right": X[:, 1]})
    labels = frames.Series(np.where(y > 0, "up", "down"))
    model = SVC().fit(frame, labels)
    np.testing.assert_array_equal(model.feature_names_in_, ["left", "right"])
    plain = SVC().fit(X, np.asarray(labels))
    np.testing.assert_array_equal(model.decision_function(frame), plain.decision_function(X))
    np.testing.assert_array_equal(model.predict(frame), plain.predict(X))
    swapped = frame[["right", "left"]]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(swapped)


def test_integers_lists_and_single_precision():
    X = [[0, 0], [1, 1], [2, 0], [0, 2], [3, 3], [4, 4]]
    y = ["a", "a", "b", "b", "a", "b"]
    reference = SVC(gamma=0.5, tol=1e-8).fit(np.array(X, dtype=float), y)
    for form in (X, np.array(X), np.array(X, dtype=np.float32), np.array(X, dtype=np.int8)):
        model = SVC(gamma=0.5, tol=1e-8).fit(form, y)
        np.testing.assert_allclose(
            model.decision_function(form), reference.decision_function(X), atol=1e-6
        )
    half = SVC(gamma=0.5).fit(np.array(X, dtype=np.float32), y)
    assert half.support_vectors_.dtype == np.float32


def test_silence(capfd):
    X, y = load("moons")
    SVC(verbose=0).fit(X, y).predict(X)
    assert capfd.readouterr() == ("", "")
