"""AutoClassifier and AutoRegressor: tables of all kinds, budgets, and what is stored."""

import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris

from margrave import SVC, SVR, AutoClassifier, AutoRegressor, load
from margrave.auto.columns import checked_table, column, kinds_of
from margrave.auto.splits import folds_of
from margrave.auto.views import Watched
from margrave.cli import main

FITS = 25


def wave(n=300, d=3, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) + 0.1 * X[:, 1]


def signs(n=300, d=3, seed=0):
    X, y = wave(n, d, seed)
    return X, np.where(y > 0, "up", "down")


@pytest.fixture(scope="module")
def regression():
    X, y = wave()
    return AutoRegressor(max_fits=60).fit(X, y)


@pytest.fixture(scope="module")
def classification():
    X, y = signs()
    return AutoClassifier(max_fits=60).fit(X, y)


def table(n=400, seed=0, pandas=None):
    """Numbers with gaps, categories of both sizes, a constant and an empty column."""
    rng = np.random.default_rng(seed)
    few, many = rng.integers(3, size=n), rng.integers(60, size=n)
    number = rng.normal(size=n)
    y = number + 2.0 * (few == 1) + 0.05 * many
    number[rng.random(n) < 0.1] = np.nan
    frame = pandas.DataFrame(
        {
            "number": number,
            "few": np.array(["red", "green", "blue"])[few],
            "many": pandas.Categorical([f"level {k}" for k in many]),
            "constant": 1.0,
            "empty": np.nan,
            "flag": rng.random(n) > 0.5,
            "heavy": np.exp(3 * rng.normal(size=n)),
        }
    )
    return frame, y


# --- what is found ------------------------------------------------------------------------------


def test_regression(regression):
    X, y = wave(seed=1)
    assert regression.score(X, y) > 0.95
    assert isinstance(regression.best_, SVR)
    assert regression.gap_ == regression.best_.gap_ <= 1e-3
    assert regression.best_.converged_ and regression.best_.certificate_ == "full"
    assert regression.best_._n_rows == 300  # of all rows
    assert regression.feature_importances_[0] > regression.feature_importances_[2]
    assert (regression.pipeline_.predict(X) == regression.predict(X)).all()


def test_classification(classification):
    X, y = signs(seed=1)
    assert classification.score(X, y) > 0.93
    assert isinstance(classification.best_, SVC)
    assert classification.classes_.tolist() == ["down", "up"]
    probabilities = classification.predict_proba(X)
    assert probabilities.sum(axis=1) == pytest.approx(1.0)
    sure = probabilities.max(axis=1) > 0.9
    assert (classification.predict(X) == y)[sure].mean() > 0.95
    assert ((classification.decision_function(X) > 0) == (classification.predict(X) == "up")).all()


def test_leaderboard(regression):
    board = regression.leaderboard_
    assert [row["rank"] for row in board] == list(range(1, len(board) + 1))
    best = board[0]
    assert best["score"] == regression.best_score_
    assert {name: best[name] for name in regression.best_params_} == regression.best_params_
    assert len({row["kernel"] for row in board}) >= 4
    assert sum(row["folds"] for row in board) == regression.n_fits_
    assert max(row["rows"] for row in board) == 240  # four fifths, the rest validates


def test_results_repeat_when_fits_are_counted(regression):
    X, y = wave()
    again = AutoRegressor(max_fits=60, n_jobs=1).fit(X, y)
    assert again.best_params_ == regression.best_params_
    assert [row["score"] for row in again.leaderboard_] == pytest.approx(
        [row["score"] for row in regression.leaderboard_], abs=1e-3
    )
    other = AutoRegressor(max_fits=60, random_state=1).fit(X, y)
    assert [row["score"] for row in other.leaderboard_] != [
        row["score"] for row in regression.leaderboard_
    ]


def test_targets_in_other_units(regression):
    X, y = wave()
    scaled = AutoRegressor(max_fits=60).fit(X, 1e6 * y + 1e7)
    assert scaled.best_params_ == regression.best_params_
    more = wave(seed=1)[0]
    assert (scaled.predict(more) - 1e7) / 1e6 == pytest.approx(regression.predict(more), abs=1e-2)


def test_ensemble():
    X, y = wave()
    model = AutoRegressor(max_fits=FITS, ensemble=3).fit(X, y)
    assert len(model.pipelines_) == 3
    means = np.mean([one.predict(X) for one in model.pipelines_], axis=0)
    assert (model.predict(X) == means).all()
    X, y = load_iris(return_X_y=True)
    model = AutoClassifier(max_fits=FITS, ensemble=3).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.predict_proba(X).shape == (150, 3)


@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc", "f1_macro", "balanced_accuracy"])
def test_scoring(scoring):
    X, y = signs()
    model = AutoClassifier(max_fits=FITS, scoring=scoring).fit(X, (y == "up").astype(int))
    assert np.isfinite(model.best_score_)
    model.predict_proba(X)


# --- tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames(library):
    pandas = pytest.importorskip("pandas")
    frame, y = table(pandas=pandas)
    new, truth = table(seed=1, pandas=pandas)
    new.loc[:20, "few"] = "unseen"
    new["many"] = new["many"].astype(object)
    new.loc[:20, "many"] = "unseen"
    if library == "polars":
        polars = pytest.importorskip("polars")
        frame = polars.DataFrame({name: polars.Series(frame[name].tolist()) for name in frame})
        new = polars.DataFrame({name: polars.Series(new[name].tolist()) for name in new})
    model = AutoRegressor(max_fits=40).fit(frame, y)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    predicted = model.predict(new)
    known = np.arange(400) > 20
    error = ((predicted - truth)[known] ** 2).mean() / truth[known].var()
    assert error < 0.35 and np.isfinite(predicted).all()
    importances = dict(zip(frame.columns, model.feature_importances_, strict=True))
    assert len(importances) == 7
    if "metric" in model.pipeline_.named_steps:
        assert importances["constant"] == importances["empty"] == 0.0


def test_kinds_of_columns():
    pandas = pytest.importorskip("pandas")
    frame, _ = table(pandas=pandas)
    kinds = kinds_of(checked_table(frame), None)
    names = [[frame.columns[k] for k in places] for places in vars(kinds).values()]
    assert names == [["number", "constant", "empty", "flag"], ["heavy"], ["few"], ["many"]]
    assert kinds_of(checked_table(frame), ["flag"]).few == [1, 5]
    assert kinds_of(checked_table(frame), [5]).few == [1, 5]
    assert kinds_of(checked_table(frame), np.arange(7) == 5).few == [1, 5]
    assert column(frame, 5).dtype == np.float64
    for wrong in (["nothing"], [7], [-1]):
        with pytest.raises(ValueError, match="no column"):
            kinds_of(checked_table(frame), wrong)


def test_arrays_of_strings_and_gaps():
    X, y = wave()
    X[::7, 1] = np.nan
    assert AutoRegressor(max_fits=FITS).fit(X, y).score(X, y) > 0.5
    rows = X.astype(object)
    rows[:, 2] = np.where(X[:, 2] > 0, "plus", "minus")
    model = AutoRegressor(max_fits=FITS).fit(rows, y)
    rows[:5, 2] = "unseen"
    assert np.isfinite(model.predict(rows)).all()


def test_sparse_rows():
    X, y = signs()
    X[np.abs(X) < 0.3] = 0.0
    model = AutoClassifier(max_fits=FITS).fit(sparse.csr_array(X), y)
    assert model.score(sparse.csr_array(X), y) > 0.9


def test_no_validation_row_is_seen_by_encoders():
    """A level whose rows all validate has no column, and means are those of training rows."""
    pandas = pytest.importorskip("pandas")
    frame, y = table(pandas=pandas)
    fold = folds_of(y, False, np.random.RandomState(0))[0]
    frame["few"] = frame["few"].where(~frame.index.isin(fold.test), "only in validation")
    seen = []

    class Spy(AutoRegressor):
        def _chosen(self, search):
            seen.append(search.views.columns(search.folds[0], "standard")[0])
            assert set(search.folds[0].test) == set(fold.test)
            return super()._chosen(search)

    Spy(max_fits=FITS).fit(frame, y)
    levels = seen[0].named_transformers_["categories"][0].categories_[0]
    assert "only in validation" not in levels
    numbers = seen[0].named_transformers_["numbers"]
    known = frame["number"].iloc[fold.train]
    assert numbers[0].statistics_[0] == pytest.approx(known.median())


def test_one_row_per_class_and_rare_classes():
    X = np.arange(6.0)[:, None]
    labels = np.array(list("abcdef"))
    model = AutoClassifier(max_fits=FITS).fit(X, labels)
    assert set(model.predict(X)) <= set(labels)
    X, y = signs()
    y[0] = "once"
    model = AutoClassifier(max_fits=FITS).fit(X, y)
    assert model.classes_.tolist() == ["down", "once", "up"]
    assert model.score(X, y) > 0.9


def test_weights():
    X, y = wave(400)
    weight = np.ones(400)
    y[200:], weight[200:] = 100.0, 0.0
    model = AutoRegressor(max_fits=FITS).fit(X, y, weight)
    assert model.best_._n_rows == 200
    assert model.score(X[:200], y[:200]) > 0.8


def test_constant_targets_and_columns():
    X = np.ones((50, 2))
    assert AutoRegressor(max_fits=5).fit(X, np.full(50, 3.0)).predict(X) == pytest.approx(3.0)
    model = AutoClassifier(max_fits=5).fit(X, np.arange(50) % 2)
    assert set(model.predict(X)) <= {0, 1}


BAD = [
    (AutoClassifier(time_limit=0.0), signs(), "'time_limit' parameter"),
    (AutoClassifier(max_fits=0), signs(), "'max_fits' parameter"),
    (AutoClassifier(ensemble=0), signs(), "'ensemble' parameter"),
    (AutoClassifier(scoring="nothing"), signs(), "scoring"),
    (AutoClassifier(), (np.ones((5, 1)), ["a"] * 5), "1 class"),
    (AutoClassifier(), wave(), "continuous"),
    (AutoRegressor(), signs(), "must be numbers"),
    (AutoRegressor(), (wave()[0], np.full(300, np.nan)), "NaN"),
    (AutoRegressor(), (np.full((300, 3), np.inf), wave()[1]), "infinity"),
    (AutoRegressor(), (np.ones((3, 2)), np.ones(2)), "inconsistent"),
    (AutoRegressor(categorical_features=[9]), wave(), "no column 9"),
]


@pytest.mark.parametrize("model, data, message", BAD)
def test_bad_input(model, data, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*data)
    assert not hasattr(model, "pipeline_")


def test_rows_with_other_columns(regression):
    with pytest.raises(ValueError, match="features"):
        regression.predict(np.ones((2, 5)))


# --- budgets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.5, 3.0])
def test_time_limit(seconds):
    X, y = wave(5000, 10)
    begin = time.perf_counter()
    model = AutoRegressor(time_limit=seconds).fit(X, y)
    assert time.perf_counter() - begin < seconds + 2.0
    assert np.isfinite(model.predict(X[:10])).all()


def test_fits_do_not_warn_of_the_time_of_the_search():
    """They have no `time_limit` of their own that could be raised."""

    def running(progress):
        progress.time_limit = 1e-9

    X, y = wave(2000, 4)
    machine = SVR(C=100.0)
    machine._context = Watched(running)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        machine.fit(X, y)
    assert not machine.converged_


def test_a_last_fit_that_was_cut_short_is_not_used(monkeypatch):
    """The model of the search is, where it is better than one of all rows without a solution."""
    X, y = wave(3000, 4)
    whole, fit = [], SVR.fit

    def cut(self, X, y, sample_weight=None):
        if X.shape[0] == 3000:
            whole.append(self.time_limit)
            self.set_params(max_iter=1, C=1e-6)
        return fit(self, X, y, sample_weight)

    monkeypatch.setattr(SVR, "fit", cut)
    model = AutoRegressor(max_fits=20).fit(X, y)
    assert len(whole) == 1
    assert model.best_._n_rows < 3000
    assert model.score(X, y) > 0.9


def test_ctrl_c_keeps_the_best_so_far():
    X, y = wave(4000, 8)
    model = AutoRegressor(time_limit=None)

    def press() -> None:
        time.sleep(2.0)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    thread.join()
    assert model.score(X, y) > 0.5
    assert model.leaderboard_[0]["score"] == model.best_score_


def test_a_failed_fit_leaves_the_model_unchanged(classification):
    X, y = signs()
    model = clone(classification).set_params(max_fits=5).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError):
        model.fit(X, np.full(300, "same"))
    assert (model.predict(X) == before).all()


# --- files, and the command line ------------------------------------------------------------------


def test_model_files(classification, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame, y = table(pandas=pandas)
    model = AutoRegressor(max_fits=40).fit(frame, y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.predict(frame) == model.predict(frame)).all()
    classification.save(tmp_path / "classes")
    again, X = load(tmp_path / "classes"), signs(seed=3)[0]
    assert (again.predict_proba(X) == classification.predict_proba(X)).all()
    several = AutoRegressor(max_fits=FITS, ensemble=2).fit(*wave())
    with pytest.raises(ValueError, match="ensemble"):
        several.save(tmp_path / "several")


def test_command_line(tmp_path, monkeypatch, capsys):
    pandas = pytest.importorskip("pandas")
    frame, y = table(200, pandas=pandas)
    frame["y"] = np.where(y > np.median(y), "high", "low")
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["margrave", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 0
        return capsys.readouterr().out

    assert "best: kernel=" in run("auto", "rows.csv", "--time-limit", "4", "-o", "model")
    frame.loc[:3, "few"] = "unseen"
    frame.drop(columns="y").to_csv(tmp_path / "new.csv", index=False)
    run("predict", "-q", "model", "new.csv", "-o", "labels")
    labels = (tmp_path / "labels").read_text().split()
    assert len(labels) == 200 and set(labels) == {"high", "low"}
    assert "accuracy" in run("evaluate", "model", "rows.csv")
    numbers = frame.drop(columns="y").assign(target=y)
    numbers.to_csv(path, index=False)
    run("auto", "-q", "rows.csv", "--label", "target", "--time-limit", "2")
    assert isinstance(load(tmp_path / "rows.csv.margrave")[-1], SVR)


def test_report(regression, classification, tmp_path):
    page = regression.report(*wave(seed=1))
    for title in ("Features in the metric", "Course of the search", "Tuning"):
        assert title in page
    assert "held-out rows whenever it rose" in page
    classification.report(*signs(seed=1)).save(tmp_path / "report.html")
    turned = AutoRegressor(max_fits=60).fit(
        X := wave(400, 4)[0], np.sin(2 * X @ np.array([1.0, -1.0, 1.0, 0.5]))
    )
    if turned.best_params_["metric"] == "full":
        assert "which features act together" in turned.report(X, turned.predict(X))
    pandas = pytest.importorskip("pandas")
    frame, y = table(pandas=pandas)
    assert "number" in AutoRegressor(max_fits=40).fit(frame, y).report(frame, y)
