"""The tuner against scikit-learn's grid search, and what its fits share."""

import pickle
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.random_projection import GaussianRandomProjection

from margrave import (
    SVC,
    SVR,
    BayesianSVC,
    BayesianSVR,
    KernelLogisticRegression,
    NuSVC,
    NuSVR,
    ODMClassifier,
    OneClassSVM,
    Tuner,
)
from margrave.estimators._base import KernelEstimator
from margrave.kernels import Kernel
from margrave.problem import Data, StartedProblem
from margrave.solvers import WorkingSet
from margrave.tuning.folds import SharedData, lay_out
from margrave.tuning.starts import Start
from tests.systems import posix

X, LABELS = make_classification(240, 10, n_informative=6, n_classes=3, random_state=0)
TWO = np.where(LABELS == 1, "yes", "no")
TARGETS = X[:, 0] ** 2 + X[:, 1] + 0.1 * np.random.default_rng(0).standard_normal(len(X))
GRID = {"C": [0.1, 1.0, 10.0], "gamma": [0.02, 0.1]}
TOL = 1e-6


def gaussian(A, B):
    return np.exp(-0.05 * ((A[:, None] - B[None]) ** 2).sum(axis=2))


def mean_density(model, X, y=None):
    return float(model.score_samples(X).mean())


# estimator, grid, rows, targets, scoring; scores that move with every digit where there are some
CASES = {
    "two classes": (SVC(), GRID, X, TWO, "roc_auc"),
    "pairs": (SVC(), GRID, X, LABELS, "accuracy"),
    "one against the rest": (SVC(multi_class="ovr"), GRID, X, LABELS, "accuracy"),
    "joint": (
        SVC(multi_class="crammer_singer", intercept=None, tol=1e-3),
        {"C": [0.1, 1.0]},
        *(X, LABELS, "accuracy"),
    ),
    "gamma of each fold": (SVC(), {"C": [1.0, 10.0], "gamma": ["scale", 0.1]}, X, TWO, "roc_auc"),
    "intercepts": (
        *(SVC(), {"C": [1.0, 10.0], "intercept": ["free", "regularized", None]}),
        *(X, TWO, "roc_auc"),
    ),
    "class weights": (
        *(SVC(), {"C": [1.0, 10.0], "class_weight": ["balanced", None]}),
        *(X, TWO, "roc_auc"),
    ),
    "losses": (
        *(SVC(), {"C": [1.0, 10.0], "loss": ["hinge", "squared_hinge"]}),
        *(X, TWO, "roc_auc"),
    ),
    "kernels": (
        SVC(),
        [
            {"kernel": ["linear"], "C": [0.1, 1.0]},
            {"kernel": ["poly", "laplacian"], "gamma": [0.05], "C": [0.1, 1.0]},
        ],
        *(X, TWO, "roc_auc"),
    ),
    "sparse": (SVC(), GRID, sparse.csr_matrix(X), TWO, "roc_auc"),
    "python kernel": (SVC(kernel=gaussian), {"C": [0.1, 1.0]}, X, TWO, "roc_auc"),
    "precomputed": (SVC(kernel="precomputed"), {"C": [1.0, 9.0]}, gaussian(X, X), TWO, "roc_auc"),
    "data frame": (SVC(), GRID, pd.DataFrame(X).add_prefix("x"), pd.Series(TWO), "roc_auc"),
    "regression": (SVR(), {"C": [0.1, 1.0, 10.0], "epsilon": [0.01, 0.1]}, X, TARGETS, None),
    "linear regression": (SVR(kernel="linear"), {"C": [0.01, 1.0]}, X, TARGETS, None),
    "margin distribution": (
        ODMClassifier(),
        {"lam": [1.0, 10.0], "upsilon": [0.3, 0.7], "theta": [0.1, 0.3]},
        *(X, TWO, "roc_auc"),
    ),
    "newton": (ODMClassifier(solver="newton"), {"lam": [1.0, 10.0]}, X, TWO, "roc_auc"),
    "logistic": (KernelLogisticRegression(), GRID, X, LABELS, "neg_log_loss"),
    "one class": (OneClassSVM(), {"nu": [0.1, 0.3], "gamma": [0.02, 0.1]}, X, None, mean_density),
    "nu": (NuSVC(), {"nu": [0.3, 0.2, 0.4], "gamma": [0.02, 0.1]}, X, TWO, "roc_auc"),
    "nu of three classes": (NuSVC(), {"nu": [0.3, 0.2], "gamma": [0.1]}, X, LABELS, None),
    "nu regression": (NuSVR(), {"nu": [0.2, 0.6], "C": [0.1, 1.0]}, X, TARGETS, None),
    "divided": (SVC(solver="dc"), {"C": [1.0, 10.0]}, X, TWO, "roc_auc"),
    "solver object": (SVC(solver=WorkingSet(size=32)), {"solver__size": [32, 64]}, X, TWO, None),
    "pipeline": (
        make_pipeline(StandardScaler(), SVC(tol=TOL)),
        {"svc__C": [0.1, 1.0], "svc__gamma": [0.1], "standardscaler__with_mean": [True, False]},
        *(X, TWO, "roc_auc"),
    ),
    "foreign": (LogisticRegression(), {"C": [0.1, 1.0]}, X, TWO, "roc_auc"),
}


def sharp(estimator):
    """The estimator at a tolerance at which its scores are settled."""
    if isinstance(estimator, KernelEstimator) and estimator.tol == 1e-3:
        joint = getattr(estimator, "multi_class", None) == "crammer_singer"
        return clone(estimator).set_params(tol=1e-4 if joint else TOL)
    return estimator


def split_scores(search, name="score"):
    n = search.n_splits_
    return np.stack([search.cv_results_[f"split{k}_test_{name}"] for k in range(n)], axis=1)


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_a_grid_search(name):
    estimator, grid, rows, targets, scoring = CASES[name]
    estimator = sharp(estimator)
    ours = Tuner(estimator, grid, 4, scoring, prune=False).fit(rows, targets)
    theirs = GridSearchCV(estimator, grid, cv=4, scoring=scoring).fit(rows, targets)
    assert list(ours.cv_results_["params"]) == list(theirs.cv_results_["params"])
    # one pair of rows of 60 makes 1 / (20 * 40) of the area under a curve
    np.testing.assert_allclose(split_scores(ours), split_scores(theirs), atol=2e-3)
    assert abs(ours.best_score_ - theirs.best_score_) < 2e-3
    if name != "foreign":
        assert (ours.cv_results_["gap"] <= estimator.get_params().get("tol", TOL)).all()
    assert not ours.cv_results_["pruned"].any()
    some = rows[:9]
    np.testing.assert_array_equal(ours.predict(some), ours.best_estimator_.predict(some))


@pytest.mark.parametrize(
    "cv",
    [
        3,
        KFold(3, shuffle=True, random_state=0),
        RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0),
        ShuffleSplit(3, test_size=0.3, random_state=0),
        ShuffleSplit(3, train_size=0.5, test_size=0.2, random_state=0),
        TimeSeriesSplit(3),
        GroupKFold(3),
        PredefinedSplit(np.arange(len(X)) % 3 - 1),
        [(np.arange(100), np.arange(100, 150)), (np.arange(200, 100, -1), np.arange(60))],
        [(np.r_[0:150, 0:50], np.arange(150, 240))],
    ],
    ids=lambda cv: str(cv)[:25],
)
def test_every_splitter(cv):
    groups = {"groups": np.arange(len(X)) // 10} if isinstance(cv, GroupKFold) else {}
    estimator, scorer = SVC(tol=TOL), "roc_auc"
    ours = Tuner(estimator, GRID, cv, scorer, prune=False).fit(X, TWO, **groups)
    theirs = GridSearchCV(estimator, GRID, cv=cv, scoring=scorer).fit(X, TWO, **groups)
    np.testing.assert_allclose(split_scores(ours), split_scores(theirs), atol=2e-3)
    assert ours.n_splits_ == theirs.n_splits_


def test_results_have_the_layout_of_scikit_learn():
    grid = [{"kernel": ["linear"], "C": [1.0]}, {"gamma": [0.1, "scale"], "C": [1, 2.0]}]
    ours = Tuner(SVC(), grid, 3, prune=False, return_train_score=True).fit(X, TWO)
    theirs = GridSearchCV(SVC(), grid, cv=3, return_train_score=True).fit(X, TWO)
    assert set(ours.cv_results_) - set(theirs.cv_results_) == {"gap", "pruned"}
    for name, column in theirs.cv_results_.items():
        mine = ours.cv_results_[name]
        assert type(mine) is type(column)
        if name.startswith("param_"):
            assert mine.dtype == column.dtype
            np.testing.assert_array_equal(mine.mask, column.mask)
        elif "time" not in name and name != "params":
            assert mine.dtype == column.dtype
            np.testing.assert_allclose(mine, column, atol=0.03)
    for name in ("best_params_", "best_index_", "multimetric_", "n_splits_", "n_features_in_"):
        assert getattr(ours, name) == getattr(theirs, name)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    assert ours.refit_time_ > 0.0
    assert ours.score(X, TWO) == ours.best_estimator_.score(X, TWO)


def big(n=1200, d=6, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d))
    return rows, np.sign(rows[:, 0] * rows[:, 1] + 0.3 * rng.standard_normal(n))


WIDE = {"C": [0.01, 0.1, 1.0, 10.0, 100.0], "gamma": [1e-3, 1e-2, 0.1, 1.0, 10.0]}


def test_pruned_settings_say_so_and_the_best_is_as_good():
    rows, labels = big(1500)  # splits whose fits end at the tolerance
    ours = Tuner(SVC(), WIDE).fit(rows, labels)
    theirs = GridSearchCV(SVC(), WIDE).fit(rows, labels)
    error = np.sqrt(theirs.best_score_ * (1.0 - theirs.best_score_) / len(rows))
    assert ours.best_score_ >= theirs.best_score_ - 0.5 * error
    table = ours.cv_results_
    pruned, scores = table["pruned"], split_scores(ours)
    assert 5 <= (~pruned).sum() <= 12
    # the best third of the first split was run on the second, the best third of those on all
    run = (~np.isnan(scores)).sum(axis=1)
    assert set(run) == {1, 2, 5}
    np.testing.assert_array_equal(run < 5, pruned)
    np.testing.assert_allclose(table["mean_test_score"], np.nanmean(scores, axis=1))
    np.testing.assert_allclose(table["std_test_score"], np.nanstd(scores, axis=1), atol=1e-12)
    assert table["rank_test_score"][~pruned].max() < table["rank_test_score"][pruned].min()
    assert table["gap"][~pruned].max() <= 1e-3 < table["gap"][pruned].max() <= 1e-2
    # those that were finished have the scores of a grid search, up to the tolerance
    np.testing.assert_allclose(scores[~pruned], split_scores(theirs)[~pruned], atol=0.01)


def test_few_rows_have_the_scores_of_a_grid_search_where_both_are_exact():
    """The fits of a search end at `tol`; those of the grid search go on below it."""
    rows, labels = big(400)
    grid = {"C": [1.0, 100.0], "gamma": [0.1, 1.0]}
    ours = Tuner(SVC(tol=1e-9), grid, prune=False).fit(rows, labels)
    theirs = GridSearchCV(SVC(), grid).fit(rows, labels)
    np.testing.assert_array_equal(split_scores(ours), split_scores(theirs))
    assert ours.best_params_ == theirs.best_params_


def test_few_settings_few_rows_and_no_deciding_metric_are_not_pruned():
    rows, labels = big()
    few = {"C": [0.01, 0.1, 1.0, 10.0, 100.0]}
    two = ["accuracy", "roc_auc"]
    assert not Tuner(SVC(), few).fit(rows, labels).cv_results_["pruned"].any()
    assert not Tuner(SVC(), WIDE, 3).fit(X, TWO).cv_results_["pruned"].any()
    several = Tuner(SVC(), WIDE, 2, two, False).fit(rows, labels)
    assert not several.cv_results_["pruned"].any()
    assert not hasattr(several, "best_params_")
    chosen = Tuner(SVC(), WIDE, 2, None, lambda table: 7).fit(rows, labels)
    assert not chosen.cv_results_["pruned"].any()
    named = Tuner(SVC(), WIDE, 2, two, "roc_auc").fit(rows, labels)
    assert named.cv_results_["pruned"].any()
    assert named.best_score_ == named.cv_results_["mean_test_roc_auc"][named.best_index_]


def test_fits_that_were_not_rough_are_not_repeated(monkeypatch):
    rows, labels = big()
    fits, fit = [], LogisticRegression.fit

    def counting(self, *args, **kwargs):
        fits.append(self.C)
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(LogisticRegression, "fit", counting)
    grid = {"C": list(np.logspace(-4, 2, 18))}
    tuner = Tuner(LogisticRegression(), grid, 4, None, False).fit(rows, labels)
    assert len(fits) == np.isfinite(split_scores(tuner)).sum() < 4 * 18


# --- what is shared: counted, not timed ---------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """Kernel values and rounds of all fits, and how they started."""
    counts = {"kernel_values": 0, "rounds": 0, "fits": 0, "stores": 0, "known scores": 0}
    conclude, core, kernel_rows = (
        KernelEstimator._conclude,
        StartedProblem.core,
        Data.kernel_rows,
    )

    def counting(self, solutions, progress):
        for problem in {record.get("where") for record in progress.history}:
            own = [record for record in progress.history if record.get("where") == problem]
            counts["kernel_values"] += own[-2]["kernel_values"]  # before the certificate
        counts["rounds"] += sum(solution.n_iter for solution in solutions)
        counts["fits"] += 1
        conclude(self, solutions, progress)

    def started(self, rows, start, size, floor, fixed=None):
        counts["known scores"] += start is self.start
        return core(self, rows, start, size, floor, fixed)

    def made(self, *args, **kwargs):
        counts["stores"] += 1
        return kernel_rows(self, *args, **kwargs)

    monkeypatch.setattr(KernelEstimator, "_conclude", counting)
    monkeypatch.setattr(StartedProblem, "core", started)
    monkeypatch.setattr(Data, "kernel_rows", made)
    return counts


# kernel rows of so many features are kept from the first time on
LONG = np.random.default_rng(1).standard_normal((1200, 200))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_folds_and_settings_share_kernel_values_and_starts(counted, n_classes):
    labels = np.digitize(LONG[:, 0], [0.0] if n_classes == 2 else [-0.5, 0.5])
    grid = {"C": [0.5, 1.0, 2.0, 4.0], "gamma": [0.002, 0.005]}
    search = GridSearchCV(SVC(n_jobs=1), grid, cv=4, refit=False).fit(LONG, labels)
    alone = dict(counted)
    counted.update(dict.fromkeys(counted, 0))
    tuner = Tuner(SVC(), grid, 4, None, False, prune=False, n_jobs=1).fit(LONG, labels)
    np.testing.assert_allclose(split_scores(tuner), split_scores(search), atol=0.02)
    assert counted["fits"] == alone["fits"] == 32
    assert counted["stores"] == 2  # one per gamma
    assert counted["known scores"] >= 24  # all but the first C of each gamma and fold
    assert counted["kernel_values"] < alone["kernel_values"] / 3
    assert counted["rounds"] < 0.85 * alone["rounds"]


def test_test_scores_come_from_kept_values(monkeypatch):
    """No model evaluates its kernel on rows left out, and the scores are right all the same."""
    rows, labels = LONG[:800], LONG[:800, 0] > 0
    estimator, grid = SVC(gamma=0.005), {"C": [1.0, 2.0], "intercept": ["free", "regularized"]}
    wanted = GridSearchCV(estimator, grid, cv=4, scoring="roc_auc", refit=False).fit(rows, labels)
    monkeypatch.setattr("margrave.models.Expansion.scores", None)
    found = Tuner(estimator, grid, 4, "roc_auc", False).fit(rows, labels)
    np.testing.assert_allclose(split_scores(found), split_scores(wanted), atol=2e-3)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_sums_of_a_block_by_kept_values(rng, precision, memory):
    rows = rng.standard_normal((90, 200))
    data = SharedData(rows, Kernel("rbf", gamma=0.01), np.array([0, 30, 50, 90]))
    kernel_rows = data.kernel_rows(precision, memory, 1 << 20, 2)
    assert data.kernel_rows(precision, memory, 1 << 20, 2) is kernel_rows
    some, coef = np.array([3, 88, 40]), rng.standard_normal((3, 2))
    distance = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    wanted = coef.T @ np.exp(-0.01 * distance)[some][:, 30:50]
    for _ in range(3):
        np.testing.assert_allclose(kernel_rows.block_sums(some, coef, 1), wanted, atol=1e-5)
    assert (kernel_rows.cached_bytes > 0) == (memory > 0)
    with pytest.raises(ValueError, match="block"):
        kernel_rows.block_sums(some, coef, 3)
    with pytest.raises(ValueError, match="coefficients"):
        kernel_rows.block_sums(some[:2], coef, 1)
    with pytest.raises(ValueError, match="row"):
        kernel_rows.block_sums(np.array([0, 1, 90]), coef, 1)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_layout_has_all_rows_and_every_test_set_in_blocks(data):
    n = data.draw(st.integers(4, 40))
    tests = data.draw(st.lists(st.sets(st.integers(0, n - 1), min_size=1), min_size=1, max_size=5))
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    everything = np.arange(n)
    splits = [(np.setdiff1d(everything, list(t)), np.array(sorted(t))) for t in tests]
    if data.draw(st.booleans()):  # a split that leaves rows out
        splits.append((everything[: n // 3], everything[n // 2 :]))
    for number, layout in enumerate(lay_out(splits, n, labels)):
        train, test = splits[number]
        if len(train) + len(test) < n:
            assert layout is None
            continue
        np.testing.assert_array_equal(np.sort(layout.order), everything)
        np.testing.assert_array_equal(np.sort(layout.order[layout.trained(number)]), train)
        blocks = [
            layout.order[layout.starts[b] : layout.starts[b + 1]] for b in layout.blocks(number)
        ]
        np.testing.assert_array_equal(np.sort(np.concatenate(blocks)), test)
        for first, last in zip(layout.starts[:-1], layout.starts[1:], strict=True):
            assert len(np.unique(labels[layout.order[first:last]])) == 1


def test_a_start_is_the_best_multiple_of_the_last_solution():
    """For the hinge loss: s = sum |beta| / beta'f, within the box."""
    model = SVC(C=1.0, gamma=0.1, tol=1e-8)
    caught = {}

    class Context:
        rough = False

        def watch(self, progress):
            pass

        def share(self, problems, rows):
            caught["problems"] = problems
            return problems, None

        def keep(self, solutions):
            caught["solutions"] = solutions

        def sums(self, X, support, coef):
            return None

    model._context = Context()
    model.fit(X, TWO)
    start = Start.of(caught["problems"], caught["solutions"])
    for C in (0.5, 1.0, 1.2, 50.0):
        wanted = clone(model).set_params(C=C)
        wanted._context = Context()
        wanted.fit(X, TWO)
        (problem,), (beta,) = start.begin(caught["problems"])
        old, f = start.betas[0], start.scores[0]
        s = min(np.abs(old).sum() / (old @ f), C, max(1.0, C))
        np.testing.assert_allclose(beta, s * old, rtol=0.02, atol=1e-9)
        np.testing.assert_allclose(problem.scores / f, beta[0] / old[0], rtol=1e-9)


def test_many_rows_share_no_values_but_start_from_each_other(monkeypatch):
    """Where solvers look at active rows only: same scores."""
    wanted = Tuner(SVC(tol=TOL), GRID, 4, "roc_auc", prune=False).fit(X, TWO)
    monkeypatch.setattr("margrave.tuning.search._MANY_ROWS", 100)
    monkeypatch.setattr("margrave.solvers.kernel.working_set._MANY_ROWS", 100)
    monkeypatch.setattr("margrave.solvers.divide.divide_and_conquer._MANY_ROWS", 100)
    found = Tuner(SVC(tol=TOL), GRID, 4, "roc_auc", prune=False).fit(X, TWO)
    np.testing.assert_allclose(split_scores(found), split_scores(wanted), atol=2e-3)


def test_memory_that_does_not_suffice_changes_nothing():
    estimator = SVC(tol=TOL, memory_limit="1MB")
    ours = Tuner(estimator, GRID, 4, "roc_auc", prune=False).fit(X, TWO)
    theirs = Tuner(SVC(tol=TOL), GRID, 4, "roc_auc", prune=False).fit(X, TWO)
    np.testing.assert_allclose(split_scores(ours), split_scores(theirs), atol=2e-3)


# --- the face of scikit-learn -------------------------------------------------------------------


def test_samplers_are_searched_too():
    """Their draws depend on the order of the rows, so scores agree up to their noise."""
    grid = {"lam": [0.1, 1.0], "gamma": [0.02, 0.1]}
    for estimator, targets in ((BayesianSVC(), TWO), (BayesianSVR(), TARGETS)):
        estimator.set_params(n_samples=60, burn_in=20, chains=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = Tuner(estimator, grid, 3).fit(X, targets)
            theirs = GridSearchCV(estimator, grid, cv=3).fit(X, targets)
        np.testing.assert_allclose(split_scores(ours), split_scores(theirs), atol=0.1)
        assert np.isnan(ours.cv_results_["gap"]).all()


@pytest.mark.parametrize("state", [0, None])
def test_a_pipeline_whose_steps_are_random_shares_what_is_the_same(counted, state):
    pipeline = make_pipeline(GaussianRandomProjection(8, random_state=state), SVC(tol=TOL))
    grid = {"svc__C": [0.1, 1.0, 10.0], "svc__gamma": [0.05]}
    tuner = Tuner(pipeline, grid, 3, None, False, n_jobs=1)
    tuner.fit(X, TWO, svc__sample_weight=np.ones(len(X)))  # with weights every fit has all steps
    assert (tuner.cv_results_["gap"] <= TOL).all()
    assert counted["stores"] == (3 if state == 0 else 9)
    assert counted["known scores"] == (6 if state == 0 else 0)


def test_weights_reach_fits_and_scores_as_in_scikit_learn():
    weight = np.random.default_rng(0).uniform(0.0, 2.0, len(X))
    weight[::7] = 0.0
    for labels in (TWO, LABELS):
        ours = Tuner(SVC(tol=TOL), GRID, 4, prune=False).fit(X, labels, sample_weight=weight)
        theirs = GridSearchCV(SVC(tol=TOL), GRID, cv=4).fit(X, labels, sample_weight=weight)
        np.testing.assert_allclose(split_scores(ours), split_scores(theirs), atol=2e-2)
        assert ours.best_params_ == theirs.best_params_


def test_metadata_are_routed():
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    groups = np.arange(len(X)) // 10
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = SVC(tol=TOL).set_fit_request(sample_weight=True)
        scorer = make_scorer(roc_auc_score, response_method="decision_function")
        scorer = scorer.set_score_request(sample_weight=True)
        searches = [
            Tuner(estimator, GRID, GroupKFold(3), scorer, prune=False),
            GridSearchCV(estimator, GRID, cv=GroupKFold(3), scoring=scorer),
        ]
        ours, theirs = (s.fit(X, TWO, sample_weight=weight, groups=groups) for s in searches)
    np.testing.assert_allclose(split_scores(ours), split_scores(theirs), atol=2e-3)


def test_several_metrics():
    metrics = {"area": "roc_auc", "hits": "accuracy"}
    ours = Tuner(SVC(tol=TOL), GRID, 4, metrics, "area", prune=False).fit(X, TWO)
    theirs = GridSearchCV(SVC(tol=TOL), GRID, cv=4, scoring=metrics, refit="area").fit(X, TWO)
    for name in metrics:
        np.testing.assert_allclose(split_scores(ours, name), split_scores(theirs, name), atol=2e-2)
    assert ours.best_params_ == theirs.best_params_
    assert set(ours.scorer_) == set(metrics)
    assert ours.multimetric_ is True
    with pytest.raises(ValueError, match="refit must be set to a scorer key"):
        Tuner(SVC(), GRID, 4, metrics).fit(X, TWO)
    assert Tuner(SVC(), GRID, 3, metrics, lambda table: 2).fit(X, TWO).best_index_ == 2
    one = Tuner(SVC(), GRID, 3, "roc_auc", "any name").fit(X, TWO)  # is as good as True
    assert one.best_score_ == one.cv_results_["mean_test_score"].max()

    def both(model, X, y):
        return {"area": 0.5, "hits": model.score(X, y)}

    found = Tuner(SVC(), GRID, 3, both, "hits").fit(X, TWO)
    assert found.best_score_ == found.cv_results_["mean_test_hits"].max()


def test_it_is_an_estimator():
    tuner = Tuner(SVC(C=2.0), GRID, 3)
    copy = clone(tuner).set_params(estimator__C=3.0, prune=False)
    assert (copy.estimator.C, copy.prune, tuner.estimator.C) == (3.0, False, 2.0)
    assert sklearn.base.is_classifier(tuner)
    assert "param_grid" in repr(tuner)
    tuner.fit(X, TWO)
    loaded = pickle.loads(pickle.dumps(tuner))
    np.testing.assert_array_equal(loaded.decision_function(X), tuner.decision_function(X))
    assert not hasattr(Tuner(SVC(), GRID, refit=False).fit(X, TWO), "predict")
    frame = pd.DataFrame(X).add_prefix("x")
    assert list(clone(tuner).fit(frame, TWO).feature_names_in_) == list(frame.columns)
    nested = Pipeline([("scale", StandardScaler()), ("tune", clone(tuner))]).fit(X, TWO)
    assert nested.score(X, TWO) > 0.8
    assert sklearn.base.is_regressor(Tuner(SVR(), GRID))


def test_threads_change_nothing_but_the_time():
    one, two = (Tuner(SVC(), GRID, 4, "roc_auc", n_jobs=n).fit(X, TWO) for n in (1, 3))
    np.testing.assert_allclose(split_scores(one), split_scores(two), atol=2e-3)
    assert one.best_params_ == two.best_params_


def test_verbose_shows_a_table_and_silence_nothing(capsys):
    Tuner(SVC(), GRID, 3).fit(X, TWO)
    assert capsys.readouterr() == ("", "")
    Tuner(SVC(), GRID, 3, verbose=1).fit(X, TWO)
    shown = capsys.readouterr().err
    assert "gamma" in shown
    assert "mean score" in shown


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"D": [1.0]}, "Invalid parameter 'D'"),
        ({"C": []}, "empty"),
        ({"C": 1.0}, "needs to be a list"),
        ({"C": "12"}, "needs to be a list"),
    ],
)
def test_a_grid_that_is_none(grid, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Tuner(SVC(), grid).fit(X, TWO)


def test_bad_rows_are_told_before_or_by_all_fits():
    bad = X.copy()
    bad[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"All the .* fits failed[\s\S]*NaN"):
        Tuner(SVC(), GRID, 3).fit(np.where(np.arange(240)[:, None] % 2, np.nan, X), TWO)
    with pytest.raises(ValueError, match="NaN"):
        Tuner(SVC(), GRID, 3, error_score="raise").fit(bad, TWO)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        Tuner(SVC(), GRID, 3).fit(X, TWO[1:])
    with pytest.raises(ValueError, match="number of splits n_splits=7"):
        Tuner(SVC(), GRID, 7).fit(X[:6], TWO[:6])
    with pytest.raises(ValueError, match="only 1 class"):
        Tuner(SVC(), GRID, KFold(2), error_score="raise").fit(X, np.sort(TWO))
    with pytest.raises(ValueError, match="prune"):
        Tuner(SVC(), GRID, prune="yes").fit(X, TWO)
    with pytest.raises(ValueError, match="time_limit"):
        Tuner(SVC(), GRID, time_limit=0).fit(X, TWO)


def test_settings_that_fail_get_the_error_score():
    grid = {"C": [1.0, -1.0]}
    with pytest.warns(FitFailedWarning, match="4 fits failed out of a total of 8"):
        tuner = Tuner(SVC(), grid, 4, error_score=-7.0).fit(X, TWO)
    np.testing.assert_array_equal(split_scores(tuner)[1], -7.0)
    assert tuner.best_params_ == {"C": 1.0}
    with (
        pytest.warns(FitFailedWarning),
        pytest.warns(UserWarning, match="non-finite"),
    ):
        assert Tuner(SVC(), grid, 4).fit(X, TWO).best_params_ == {"C": 1.0}
    rows, labels = big()
    one_fails = {"C": [1.0, -1.0, 2.0, 4.0, 8.0, 16.0, 32.0]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert Tuner(SVC(), one_fails, 3).fit(rows, labels).best_params_["C"] > 0
    # a class that one fold has none of
    lonely = np.r_[np.zeros(80), np.ones(160)]
    splits = [(np.arange(80, 200), np.arange(40)), (np.arange(160), np.arange(160, 240))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tuner = Tuner(SVC(), {"C": [1.0]}, splits).fit(X, lonely)
    assert np.isnan(split_scores(tuner)[0, 0])
    assert np.isfinite(split_scores(tuner)[0, 1])


# --- budgets -------------------------------------------------------------------------------------

SLOW = textwrap.dedent("""
    import os, signal, sys, threading, time
    import numpy as np
    from margrave import SVC, Tuner
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 12))
    y = np.digitize(X[:, 0] + rng.standard_normal(6000), [0.0])
    # the first settings take a moment, the others minutes
    grid = [{"C": [0.01, 0.02], "tol": [1e-2]}, {"C": [1e6, 1e7], "gamma": [0.05], "tol": [1e-12]}]
    tuner = Tuner(SVC(gamma=0.01), grid, 3, n_jobs=2, verbose=1)
""")


@posix
def test_ctrl_c_keeps_the_results_so_far():
    script = SLOW + textwrap.dedent("""
        pressed = []
        def press():
            time.sleep(2.0)
            pressed.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=press, daemon=True).start()
        try:
            tuner.fit(X, y)
        except KeyboardInterrupt:
            took = time.perf_counter() - pressed[0]
            assert took < 1.0, took
            table = tuner.cv_results_
            assert table["pruned"].tolist()[2:] == [True, True], table["pruned"]
            assert tuner.best_params_["tol"] == 1e-2
            assert np.isfinite(tuner.best_score_)
            assert not hasattr(tuner, "best_estimator_")
            print("kept")
    """)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=90)
    assert run.stdout == "kept\n", run.stderr


def test_time_limit_keeps_the_best_so_far():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((4000, 12))
    labels = np.digitize(rows[:, 0] + rng.standard_normal(4000), [0.0])
    grid = [{"C": [0.01], "tol": [1e-2]}, {"C": [1e7], "gamma": [0.05], "tol": [1e-12]}]
    tuner = Tuner(SVC(gamma=0.01), grid, 2, n_jobs=2, time_limit=1.5)
    with pytest.warns(ConvergenceWarning, match="time_limit=1.5 s was reached"):
        tuner.fit(rows, labels)
    assert tuner.best_params_ == {"C": 0.01, "tol": 1e-2}
    assert tuner.cv_results_["pruned"].tolist() == [False, True]
    assert tuner.best_estimator_.converged_
    with pytest.raises(ValueError, match="no fit was finished"):
        Tuner(SVC(tol=1e-12), {"C": [1e7], "gamma": [0.05]}, 2, time_limit=0.3).fit(rows, labels)


# --- random settings, growing rows ----------------------------------------------------------------


def test_settings_are_drawn_from_distributions():
    X, y = make_classification(300, 5, random_state=0)
    ranges = {"C": stats.loguniform(1e-2, 1e3), "gamma": stats.loguniform(1e-3, 1.0)}
    tuners = [
        Tuner(SVC(), ranges, cv=3, n_iter=7, random_state=seed).fit(X, y) for seed in (0, 0, 1)
    ]
    params = [tuner.cv_results_["params"] for tuner in tuners]
    assert params[0] == params[1] != params[2]
    assert len(params[0]) == 7 and tuners[0].best_params_ in params[0]
    with pytest.raises(ValueError, match="n_iter"):
        Tuner(SVC(), ranges).fit(X, y)
    some = Tuner(SVC(), {"C": [1, 2, 4, 8]}, cv=3, n_iter=2).fit(X, y)
    assert len(some.cv_results_["params"]) == 2


def test_rows_grow():
    X, y = make_classification(2000, 5, n_classes=3, n_informative=4, n_redundant=0, random_state=0)
    grid = {"C": [0.1, 1.0, 10.0, 100.0], "gamma": [1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0]}
    rows = []

    class Counted(SVC):
        def fit(self, X, y, sample_weight=None):
            rows.append(X.shape[0])
            return super().fit(X, y, sample_weight)

    grown = Tuner(Counted(), grid, cv=4, rows="grow", n_jobs=1).fit(X, y)
    assert [(n, rows.count(n)) for n in sorted(set(rows))] == [
        *[(167, 24), (500, 8), (1500, 20), (2000, 1)]
    ]
    whole = Tuner(SVC(), grid, cv=4, prune=False).fit(X, y)
    place = whole.cv_results_["params"].index(grown.best_params_)
    assert whole.cv_results_["mean_test_score"][place] >= whole.best_score_ - 0.01
    assert grown.best_score_ == pytest.approx(whole.cv_results_["mean_test_score"][place], abs=5e-3)
    assert grown.cv_results_["pruned"].sum() == 19
    assert np.isfinite(grown.cv_results_["mean_test_score"]).all()
