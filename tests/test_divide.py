"""Strategies that divide the rows: block problems, early models, and the whole at the end."""

import copy
import json
import pickle
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from margrave import SVC, SVR, KernelLogisticRegression, ODMClassifier, OneClassSVM
from margrave.partitions import Centres, KMeans, Parts, Random
from margrave.progress import Progress
from margrave.rows import RowBlocks
from margrave.solvers import (
    Cascade,
    DistributionPreserving,
    DivideAndConquer,
    MergeTree,
    Settings,
)
from margrave.solvers.divide import levels
from margrave.solvers.divide.parts import Division, PartOptions
from margrave.solvers.kernel import working_set
from tests import build, cases, golden

RECORDS = json.loads((Path(__file__).parent / "golden" / "blocks.json").read_text())
STRATEGIES = [
    DivideAndConquer(levels=2),
    DivideAndConquer(levels=1, refine=False, adaptive=False, partition="kernel_kmeans"),
    DivideAndConquer(levels=2, branching=3, partition=KMeans(balanced=True)),
    Cascade(leaves=4),
    Cascade(leaves=5),
    MergeTree(levels=2),
    MergeTree(levels=1, partition="random"),
    MergeTree(levels=2, branching=2, partition="kmeans"),
    MergeTree(levels=1, partition="dip"),
    DistributionPreserving(parts=4),
]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


@dataclass(frozen=True)
class Given:
    """Parts named beforehand, each with a place far from the others."""

    label: object
    centres: object = None
    seconds: float = 0.0

    def split(self, data, k, seed, among=None, y=None, threads=1):
        time.sleep(self.seconds)
        far = 100.0 * np.arange(self.label.max() + 1.0)[:, None] * np.ones(data.X.shape[1])
        return Parts(self.label, Centres(far if self.centres is None else self.centres))


def moons(C=1.0, gamma=1.0, loss=("hinge", {}), intercept=None, n=400):
    X, y = golden.load("moons")
    at = np.random.default_rng(0).permutation(400)[:n] if n < 400 else np.arange(400)
    return build.problem(X[at], y[at], C, loss, ("rbf", {"gamma": gamma}), intercept)


def blocks(record):
    if record["part"].startswith("contiguous"):
        return np.arange(400) // 100
    rank = np.argsort(np.argsort(golden.load("moons")[0][:, 0], kind="stable"), kind="stable")
    return rank // 100


# --- block problems ------------------------------------------------------------------------------


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: f"{r['gamma']}-{r['part'][:4]}")
def test_golden_blocks(record):
    problem, label = moons(record["C"], record["gamma"]), blocks(record)
    strategy = DivideAndConquer(levels=1, early=1, partition=Given(label), level_tol=1e-12)
    solution, _ = build.run(problem, solver=strategy)
    assert solution.certificate == "blocks" and not solution.converged
    assert 0.0 <= solution.gap <= 1e-12
    np.testing.assert_allclose(solution.scores[[0, 199, 399]], record["early_dec"], rtol=1e-7)
    # D of the blocks' variables for the whole problem, between the optimum and the paper's bound
    f = np.exp(-record["gamma"] * _squares(problem.data.X)) @ solution.beta
    dual = problem.terms(solution.beta, f, 0.0)[1]
    assert dual == pytest.approx(record["Dbar"], rel=1e-9)
    assert 0.0 <= dual - record["Dstar"] <= record["bound"]
    whole, _ = build.run(problem, solver=DivideAndConquer(levels=1, partition=Given(label)))
    assert whole.converged and whole.dual == pytest.approx(record["Dstar"], rel=1e-9)


def _squares(X):
    return ((X[:, None] - X[None]) ** 2).sum(axis=2)


def test_far_clusters_are_the_whole_problem():
    X, y = golden.load("moons")
    label = np.arange(400) % 4
    X = X + 1e3 * label[:, None]
    for loss in cases.ZERO_SUM:
        problem = build.problem(X, y, 1.0, loss, ("rbf", {"gamma": 1.0}), None)
        strategy = DivideAndConquer(levels=1, early=1, partition=Given(label), level_tol=1e-10)
        early, _ = build.run(problem, solver=strategy)
        exact, _ = build.run(problem, tol=1e-10)
        assert early.dual == pytest.approx(exact.dual, rel=1e-8)


def test_permuting_rows_permutes_the_blocks():
    problem, label = moons(10.0, 4.0), np.arange(400) // 100
    order = np.random.default_rng(0).permutation(400)
    other = replace(problem.restrict(order), data=problem.restrict(order).data)
    first, second = (
        build.run(p, solver=DivideAndConquer(early=1, partition=Given(at), level_tol=1e-12))[0]
        for p, at in ((problem, label), (other, label[order]))
    )
    np.testing.assert_allclose(second.beta, first.beta[order], atol=1e-6)


def test_a_block_keeps_no_equality_constraint():
    """With a free intercept a part whose sum were kept could never give what others need."""
    problem = moons(10.0, 4.0, intercept="free")
    label = np.where(problem.y > 0, 1, 0)  # parts of one class each
    strategy = DivideAndConquer(levels=1, early=1, branching=2, partition=Given(label))
    early, _ = build.run(problem, solver=strategy)
    assert np.abs(early.beta[label == 0].sum()) > 1.0
    whole, _ = build.run(
        problem, tol=1e-9, solver=DivideAndConquer(levels=1, branching=2, partition=Given(label))
    )
    assert whole.converged and abs(whole.beta.sum()) < 1e-9 * np.abs(whole.beta).sum()


# --- the whole -----------------------------------------------------------------------------------


@each_strategy
@pytest.mark.parametrize("loss", cases.ZERO_SUM, ids=cases.name_of)
@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
def test_every_strategy_ends_at_the_optimum(strategy, loss, intercept):
    problem = moons(4.0, 2.0, loss, intercept, n=240)
    solution, progress = build.run(problem, tol=1e-8, solver=strategy)
    exact, _ = build.run(problem, tol=1e-8)
    assert solution.converged and solution.certificate == "full" and solution.gap <= 1e-8
    assert solution.objective == pytest.approx(exact.objective, rel=2e-8)
    assert solution.dual == pytest.approx(exact.dual, rel=2e-8)
    told = [record for record in progress.history if "parts" in record]
    assert told and all("parts" in record["where"] for record in told)


@each_strategy
@pytest.mark.parametrize("kernel", [*cases.KERNELS, "precomputed", "callable"], ids=cases.name_of)
def test_every_kernel(strategy, kernel):
    X, y = golden.load("moons")
    X, y = X[::3], y[::3]
    if kernel in ("precomputed", "callable"):
        if getattr(strategy, "partition", None) in ("kmeans", KMeans(balanced=True)):
            strategy = DivideAndConquer(levels=1)
        K = np.exp(-0.5 * _squares(X))
        rows = K if kernel == "precomputed" else X
        if kernel == "callable":
            kernel = lambda A, B: np.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(axis=2))  # noqa: E731
        problem = build.problem(rows, y, 1.0, ("hinge", {}), kernel, None)
    elif kernel[0] == "sigmoid":
        return  # not positive semidefinite
    else:
        problem = build.problem(sparse.csr_array(X), y, 1.0, ("hinge", {}), kernel, None)
    solution, _ = build.run(problem, tol=1e-7, solver=strategy)
    exact, _ = build.run(problem, tol=1e-7)
    assert solution.converged
    assert solution.objective == pytest.approx(exact.objective, rel=2e-7)


@each_strategy
def test_serial_and_threads_are_equal(strategy):
    problem = moons(10.0, 4.0, intercept="free")

    def run(engine, threads):
        with Progress(1e-3) as progress:
            settings = Settings(1e-3, 1 << 28, threads, 7, progress, engine)
            return strategy.solve([problem], settings)[0]

    first = run("serial", 1)
    for engine, threads in (("threads", 1), ("threads", 2), (None, 2)):
        np.testing.assert_array_equal(run(engine, threads).beta, first.beta)


def test_early_zero_is_the_whole():
    problem = moons(10.0, 4.0)
    early, _ = build.run(problem, tol=1e-9, solver=DivideAndConquer(early=0))
    exact, _ = build.run(problem, tol=1e-9)
    assert early.certificate == "full" and early.converged
    np.testing.assert_allclose(early.beta, exact.beta, atol=1e-5)


# --- the merge tree ------------------------------------------------------------------------------

ODM = ("margin_distribution", {"theta": 0.1, "upsilon": 0.5})


@pytest.mark.parametrize("lam", [1.0, 10.0, 1000.0])
@pytest.mark.parametrize("loss", [ODM, ("hinge", {}), ("logistic", {})], ids=cases.name_of)
def test_scaled_variables_are_as_good_as_the_parts_on_average(lam, loss):
    """-d(scaled) >= sum_k (n_k / n) p_k*, and plain concatenation has no such bound."""
    problem = moons(lam / (0.81 * 400), 1.0, loss)
    parts = Random().split(problem.data, 4, seed=0)
    with Progress(1e-9) as progress:
        division = Division([problem], Settings(1e-9, 1 << 26, 1, 0, progress), "sodm")
        (scaled,) = division.solve(parts, None, PartOptions(1e-9, thorough=True, own_weights=True))
        (plain,) = division.solve(
            parts, None, PartOptions(1e-9, thorough=True, own_weights=True, as_published=True)
        )
    np.testing.assert_allclose(scaled.beta, plain.beta / 4)
    K = np.exp(-_squares(problem.data.X))
    dual = problem.terms(scaled.beta, K @ scaled.beta, 0.0)[1]
    assert -dual >= scaled.objective - 1e-7 * abs(scaled.objective)
    if loss is ODM:  # four models of the right size in the place of one
        bad = problem.terms(plain.beta, K @ plain.beta, 0.0)[1]
        assert -bad < 0.0 < -dual


@pytest.mark.parametrize("lam", [1.0, 16.0, 256.0])
def test_the_published_merge_tree_is_far_from_the_optimum(lam):
    """It stops at p parts and concatenates them as they are; the corrected one certifies."""
    X, y = golden.load("moons")
    model = ODMClassifier(lam=lam, gamma=1.0, solver=MergeTree(levels=2, as_published=True))
    with pytest.warns(Warning, match="gap"):
        model.fit(X, y)
    assert model.gap_ > 0.9 and not model.converged_ and model.certificate_ == "full"
    assert model.gap_ == pytest.approx(model.certify(X, y), rel=1e-6)
    right = ODMClassifier(lam=lam, gamma=1.0, solver=MergeTree(levels=2)).fit(X, y)
    assert right.converged_ and right.gap_ <= 1e-3


def test_the_merge_tree_stops_when_the_whole_certifies():
    X, y = golden.load("moons")
    model = ODMClassifier(lam=1.0, gamma=1.0, tol=0.05, solver=MergeTree(levels=1)).fit(X, y)
    assert model.converged_ and model.certify(X, y) <= 0.05
    assert "all rows" in model.history_[-1]["where"] and model.n_iter_ == 1


def test_one_part_is_the_direct_solution():
    X, y = golden.load("moons")
    few = ODMClassifier(lam=10.0, solver=MergeTree(levels=2), tol=1e-9).fit(X[190:215], y[190:215])
    exact = ODMClassifier(lam=10.0, solver="exact", tol=1e-9).fit(X[190:215], y[190:215])
    assert few.objective_ == pytest.approx(exact.objective_, rel=1e-9)


# --- the cascade ---------------------------------------------------------------------------------


def test_a_single_pass_is_not_a_solution_and_feedback_is():
    X, y = golden.load("moons")
    once = SVC(C=100.0, gamma=4.0, tol=1e-6, solver=Cascade(leaves=8, passes=1))
    with pytest.warns(Warning, match="gap"):
        once.fit(X, y)
    assert once.gap_ > 1e-6 and not once.converged_
    assert once.gap_ == pytest.approx(once.certify(X, y), rel=1e-6)
    model = SVC(C=100.0, gamma=4.0, tol=1e-6, solver=Cascade(leaves=8)).fit(X, y)
    assert model.converged_ and model.gap_ <= 1e-6 and model.n_iter_ >= 2
    tops = [r["dual"] for r in model.history_ if "all rows" in r.get("where", "")]
    assert len(tops) >= 2 and np.all(np.diff(tops) <= 1e-9 * abs(tops[-1]))


def test_a_pass_of_distribution_preserving_parts_tells_its_gap():
    X, y = golden.load("moons")
    model = ODMClassifier(lam=1e4, solver=DistributionPreserving(parts=8, finish=False), tol=1e-9)
    with pytest.warns(Warning, match="gap"):
        model.fit(X, y)
    assert model.gap_ == pytest.approx(model.certify(X, y), rel=1e-6) and model.gap_ > 1e-9


# --- early models --------------------------------------------------------------------------------


def blobs(n=600, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, (np.floor(X[:, 0]) + np.floor(X[:, 1])).astype(int) % classes


@pytest.mark.parametrize(
    "model",
    [
        SVC(C=10.0, gamma=2.0),
        SVC(C=10.0, gamma=2.0, intercept="regularized", loss="squared_hinge"),
        SVC(C=10.0, gamma=2.0, multi_class="ovr"),
        SVC(C=10.0, gamma=2.0, multi_class="crammer_singer"),
        KernelLogisticRegression(C=10.0, gamma=2.0),
        KernelLogisticRegression(C=10.0, gamma=2.0, multi_class="softmax"),
        ODMClassifier(lam=1000.0, gamma=2.0),
    ],
    ids=lambda m: f"{type(m).__name__}-{m.multi_class}-{m.get_params().get('loss', '')}",
)
@pytest.mark.parametrize("classes", [2, 4])
def test_early_classifiers(model, classes):
    X, y = blobs(800, classes)
    X_new, y_new = blobs(400, classes, seed=1)
    exact = model.set_params(solver="exact").fit(X, y)
    accuracy = exact.score(X_new, y_new)
    early = model.set_params(solver=DivideAndConquer(early=1)).fit(X, y)
    assert early.certificate_ == "blocks" and not early.converged_
    assert 0.0 <= early.gap_ <= 1e-2 and early.solver_ == "dc"
    assert early.history_[-1]["parts"] == 4
    assert early.score(X_new, y_new) > accuracy - 0.03
    assert early.certify(X, y) > early.gap_  # as a model of the whole it is only a start
    again = pickle.loads(pickle.dumps(early))
    np.testing.assert_array_equal(again.decision_function(X_new), early.decision_function(X_new))
    np.testing.assert_allclose(
        again.decision_function(sparse.csr_array(X_new)),
        early.decision_function(X_new),
        atol=1e-4,
    )
    for combine in ("sum", "committee"):
        other = model.set_params(solver=DivideAndConquer(early=1, combine=combine)).fit(X, y)
        assert other.certificate_ == "blocks" and other.score(X_new, y_new) > 1.0 / classes


def test_early_regression_and_novelty():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (500, 2))
    y = 50.0 + np.sin(X[:, 0]) + 0.05 * rng.standard_normal(500)
    early = SVR(C=10.0, gamma=1.0, solver=DivideAndConquer(early=2)).fit(X, y)
    assert early.certificate_ == "blocks" and early.score(X, y) > 0.95
    committee = DivideAndConquer(early=2, combine="committee")
    assert SVR(C=10.0, gamma=1.0, solver=committee).fit(X, y).score(X, y) > 0.95
    for strategy in (DivideAndConquer(early=2, combine="sum"), MergeTree(), "dip"):
        model = SVR(C=10.0, gamma=1.0, solver=strategy, callbacks=lambda record: True)
        with pytest.warns(Warning, match="callback"):
            model.fit(X, y)
        assert model.certificate_ == "blocks"
        assert abs(np.mean(model.predict(X)) - 50.0) < 1.0  # the level counts once
    novelty = OneClassSVM(nu=0.2, gamma=1.0, solver=DivideAndConquer(early=1)).fit(X)
    assert novelty.certificate_ == "blocks" and 0.1 < np.mean(novelty.predict(X) < 0) < 0.3


def test_early_models_of_a_precomputed_kernel():
    """Rows may be sorted by class or left out before they are clustered."""
    X, y = blobs(400, 3)
    new = X[::3] + 0.01
    K, K_new = (np.exp(-2.0 * ((A[:, None] - X[None]) ** 2).sum(axis=2)) for A in (X, new))
    weight = np.where(np.arange(400) < 150, 0.0, 1.0)
    strategy = DivideAndConquer(early=1, partition="kernel_kmeans", level_tol=1e-9)
    for given in (None, weight):
        for scheme in ("ovo", "ovr"):
            options = {"C": 10.0, "intercept": None, "multi_class": scheme, "solver": strategy}
            model = SVC(kernel="precomputed", **options)
            same = SVC(gamma=2.0, **options)
            model.fit(K, y, sample_weight=given)
            same.fit(X, y, sample_weight=given)
            expected = same.decision_function(new)
            np.testing.assert_allclose(model.decision_function(K_new), expected, atol=1e-4)


def test_early_models_that_cannot_be():
    X, y = blobs(400)
    K = np.exp(-2.0 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    committee = DivideAndConquer(early=1, combine="committee")
    with pytest.raises(ValueError, match=r"committee.*precomputed"):
        SVC(kernel="precomputed", solver=committee).fit(K, y)
    for combine in ("sum", "committee"):
        with pytest.raises(ValueError, match="one-class"):
            OneClassSVM(solver=DivideAndConquer(early=1, combine=combine)).fit(X)
    with pytest.warns(Warning, match="positive semidefinite"):
        model = SVC(C=10.0, kernel="sigmoid", gamma=0.5, solver=DivideAndConquer(early=1))
        model.fit(X, y)
    assert np.isinf(model.gap_)


def test_parts_that_single_precision_cannot_solve():
    X, y = blobs(400)
    for C in (1e4, 1e6):  # solved, or said to be not
        model = SVC(C=C, gamma=0.1, solver=DivideAndConquer(early=1))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y)
        assert (model.gap_ > 1e-2) == any("gap" in str(w.message) for w in caught)
    # numbers that single precision does not hold
    early = DivideAndConquer(early=1)
    far = SVC(kernel="poly", degree=10, gamma=1.0, coef0=1.0, solver=early, time_limit=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        far.fit(100.0 * X, y)
        SVC(C=5.0, gamma=1e39, solver="cascade", time_limit=20.0).fit(X, y)
    assert np.isfinite(far.decision_function(100.0 * X)).all()


def test_a_part_speaks_for_the_classes_that_it_has():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0], [50.0, 50.0]])
    label = np.repeat(np.arange(4), 50)
    X = centres[label] + rng.standard_normal((200, 2))
    y = 2 * label + (X[:, 0] > centres[label][:, 0])  # two of eight classes in each part
    strategy = DivideAndConquer(levels=1, early=1, partition=Given(label, centres))
    for scheme in ("ovo", "ovr", "crammer_singer"):
        model = SVC(gamma=10.0, C=10.0, multi_class=scheme, solver=strategy).fit(X, y)
        far = centres[label] + 5.0 * rng.standard_normal((200, 2))  # where the kernel is zero
        assert np.all(model.predict(far) // 2 == label)
        if scheme != "ovo":
            assert np.all(np.isneginf(model.decision_function(far)).sum(axis=1) == 6)
    one_sided = SVC(gamma=10.0, solver=strategy).fit(X, label % 2)
    assert one_sided.history_[-1]["one_class_parts"] == 4
    assert model.history_[-1]["one_class_parts"] == 0
    assert np.all(one_sided.predict(far) == label % 2)


def test_the_early_model_is_there_while_the_exact_one_is_trained():
    X, y = blobs(800)
    seen = []

    def look(record):
        if "parts" in record:
            seen.append((record["parts"], model.early_.score(X, y), model.early_.certificate_))

    model = SVC(C=10.0, gamma=2.0, solver=DivideAndConquer(levels=2), callbacks=look)
    model.fit(X, y)
    assert [parts for parts, _, _ in seen] == [16, 4]
    assert all(score > 0.9 and kind == "blocks" for _, score, kind in seen)
    assert model.certificate_ == "full" and model.early_.certificate_ == "blocks"
    assert not hasattr(model.early_, "early_")
    model.set_params(solver="exact", callbacks=None).fit(X, y)
    assert not hasattr(model, "early_")


def test_every_level_has_its_own_early_model(monkeypatch):
    """Made when it is read, once per level; if it never is, once at the end."""
    X, y = blobs(800)
    made, seen = [], []
    original = SVC._store_certificate

    def counted(self, *args):
        made.append(self)
        original(self, *args)

    def look(record):
        if "parts" in record:
            copied = copy.deepcopy(model).early_
            seen.append((record["parts"], len(model.early_._part_support), model.early_))
            np.testing.assert_array_equal(copied.predict(X), model.early_.predict(X))

    monkeypatch.setattr(SVC, "_store_certificate", counted)
    model = SVC(C=10.0, gamma=2.0, solver=DivideAndConquer(levels=2)).fit(X, y)
    assert len(made) == 2 and made[0] is model.early_
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.early_.predict(X), model.early_.predict(X))
    assert not hasattr(clone(model), "early_")
    made.clear()
    model = SVC(C=10.0, gamma=2.0, solver=DivideAndConquer(levels=2)).set_params(callbacks=look)
    model.fit(X, y)
    assert [(wanted, found) for wanted, found, _ in seen] == [(16, 16), (4, 4)]
    assert len(made) == 3 and seen[0][2] is made[0] and seen[1][2] is made[1] is model.early_


def test_several_classes_are_clustered_once(monkeypatch):
    X, y = blobs(600, 4)
    splits = []
    original = KMeans.split

    def counted(self, *args, **kwargs):
        splits.append(args[1])
        return original(self, *args, **kwargs)

    monkeypatch.setattr(KMeans, "split", counted)
    for scheme in ("ovo", "ovr"):
        splits.clear()
        SVC(gamma=2.0, multi_class=scheme, solver=DivideAndConquer(levels=2)).fit(X, y)
        assert splits == [16, 4]


def test_a_callback_or_the_clock_ends_the_levels():
    X, y = blobs(800)
    model = SVC(gamma=2.0, solver=DivideAndConquer(levels=2), callbacks=lambda record: True)
    with pytest.warns(Warning, match="callback asked to stop"):
        model.fit(X, y)
    assert model.certificate_ == "blocks" and model.n_iter_ == 1
    slow = Given(np.arange(800) % 4, seconds=0.3)
    model = SVC(gamma=2.0, solver=DivideAndConquer(levels=2, partition=slow), time_limit=0.2)
    with pytest.warns(Warning, match="time_limit"):
        model.fit(X, y)
    assert model.certificate_ == "blocks" and model.predict(X).shape == (800,)
    model.set_params(time_limit=0.5)
    with pytest.warns(Warning, match="time_limit"):
        model.fit(X, y)  # in the second level, whose starts are better than nothing
    assert model.certificate_ == "blocks" and model.gap_ <= 1e-2 and model.n_iter_ == 1


def test_a_stop_loses_no_model():
    """Wherever the time ends: what is returned is not worse than what was there before."""
    X, y = blobs(4000)
    for strategy in (DivideAndConquer(levels=2), Cascade(leaves=8), MergeTree(), "dip"):
        for limit in (0.03, 0.06, 0.09, 0.12):
            model = SVC(gamma=1.0, C=100.0, tol=1e-9, solver=strategy, n_jobs=1, time_limit=limit)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(X, y)
            if hasattr(model, "early_") and len(model.early_.support_):
                assert len(model.support_) > 0, (strategy, limit)
    model = SVC(gamma=1.0, C=100.0, solver=Cascade(leaves=8), callbacks=lambda record: True)
    with pytest.warns(Warning, match="callback"):
        model.fit(X, y)
    assert model.score(X, y) > 0.9


def test_time_ends_while_support_vectors_are_solved_alone(monkeypatch):
    def too_late(problem, beta, rows, settings, *_):
        while not settings.is_over:
            time.sleep(0.01)
        return np.zeros_like(beta), 0

    monkeypatch.setattr("margrave.solvers.divide.divide_and_conquer.solve_rows", too_late)
    X, y = blobs(800)
    model = SVC(gamma=2.0, solver=DivideAndConquer(levels=2), time_limit=1.0)
    with pytest.warns(Warning, match="time_limit"):
        model.fit(X, y)
    assert len(model.support_) > 0 and model.score(X, y) > 0.9


def test_a_budget_of_rounds_is_per_problem():
    X, y = blobs(600, 3)
    for max_iter in (2, 5):
        model = SVC(gamma=1.0, C=100.0, tol=1e-9, max_iter=max_iter, solver=Cascade(leaves=4))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y)
        assert model.gaps_.max() < 0.9 and model.max_iter == max_iter


def test_a_stop_in_clusters_of_the_exact_solver_is_no_interrupt(monkeypatch):
    monkeypatch.setattr(working_set, "_MANY_ROWS", 300)
    X, y = blobs(900, 3)
    seen = []
    model = SVC(gamma=1.0, solver="exact", multi_class="ovr")
    model.set_params(callbacks=lambda record: seen.append(record) or len(seen) == 2)
    with pytest.warns(Warning, match="callback"):
        model.fit(X, y)


def test_small_classes_and_models_without_support():
    X, y = blobs(606)
    y = np.repeat([0, 1, 2, 3], [300, 300, 3, 3])
    assert SVC(gamma=1.0, solver=Cascade(leaves=8)).fit(X, y).converged_
    for name in ("dc", "cascade", "sodm", "dip"):
        assert SVR(solver=name).fit(X, np.full(606, 7.0)).predict(X[:1])[0] == pytest.approx(7.0)


def test_auto_divides_many_rows(monkeypatch):
    from margrave.solvers.divide import divide_and_conquer

    X, y = blobs(800)
    assert SVC(gamma=2.0).fit(X, y).solver_ == "exact"
    monkeypatch.setattr(divide_and_conquer, "_MANY_ROWS", 500)
    monkeypatch.setattr(divide_and_conquer, "_VERY_MANY_ROWS", 500)
    model = SVC(gamma=2.0).fit(X, y)
    assert model.solver_ == "dc" and model.converged_ and hasattr(model, "early_")
    assert SVC(kernel="poly").fit(X, y).solver_ == "exact"
    assert SVC(gamma=2.0, warm_start=True).fit(X, y).fit(X, y).solver_ == "exact"


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (DivideAndConquer(levels=0), "levels must be a whole number, at least 1"),
        (DivideAndConquer(levels=1.5), "levels must be a whole number, at least 1"),
        (DivideAndConquer(levels="2"), "levels must be a whole number, at least 1"),
        (DivideAndConquer(branching=1), "branching must be a whole number, at least 2"),
        (DivideAndConquer(early=-1), "early must be a whole number, at least 0"),
        (DivideAndConquer(level_tol="a"), "level_tol must be a positive number"),
        (DivideAndConquer(levels=1, early=2), "early=2 is a finer level than levels=1"),
        (DivideAndConquer(level_tol=0.0), "level_tol must be a positive number"),
        (DivideAndConquer(level_tol=np.inf), "level_tol must be a positive number, and finite"),
        (DivideAndConquer(adaptive=1), "adaptive must be True or False, got 1"),
        (DivideAndConquer(refine="no"), "refine must be True or False, got 'no'"),
        (DivideAndConquer(moving=None), "moving must be True or False, got None"),
        (DivideAndConquer(partition=dict), "got the class dict"),
        (DivideAndConquer(sample=0), "sample must be a whole number, at least 1"),
        (DivideAndConquer(combine="vote"), "combine must be one of 'nearest', 'sum', 'committee'"),
        (DivideAndConquer(partition="voronoi"), "unknown partition 'voronoi'"),
        (DivideAndConquer(partition="random"), "'random'.*no centres"),
        (Cascade(leaves=0), "leaves must be a whole number, at least 1"),
        (Cascade(leaves=1000), "600 rows cannot be split into 1000 parts"),
        (Cascade(passes=0), "passes must be a whole number, at least 1"),
        (MergeTree(levels=0), "levels must be a whole number, at least 1"),
        (MergeTree(branching=1), "branching must be a whole number, at least 2"),
        (MergeTree(levels=8), "600 rows cannot be split into 65536 parts"),
        (MergeTree(partition=7), "needs a method split"),
        (MergeTree(levels=10_000), "600 rows cannot be split into"),
        (DistributionPreserving(parts=0), "parts must be a whole number, at least 1"),
        (DistributionPreserving(parts=2.5), "parts must be a whole number, at least 1"),
        (DistributionPreserving(parts=601), "600 rows cannot be split into 601 parts"),
        (DistributionPreserving(clusters=0), "clusters must be a whole number, at least 1"),
    ],
    ids=str,
)
def test_bad_parameters(strategy, message):
    X, y = blobs()
    with pytest.raises(ValueError, match=message):
        SVC(solver=strategy).fit(X, y)


def test_levels_of_too_few_rows_are_left_out(caplog):
    X, y = blobs(100)
    with caplog.at_level("INFO", logger="margrave"):
        model = SVC(gamma=2.0, solver=DivideAndConquer(levels=5)).fit(X, y)
    assert model.converged_ and model.history_[0]["parts"] == 4
    assert "fewer than 8" in caplog.text
    few = SVC(gamma=2.0, solver=DivideAndConquer(early=2)).fit(X[:50], y[:50])
    assert few.certificate_ == "full"  # too few rows for any level: the whole problem
    deep = SVC(gamma=2.0, solver=DivideAndConquer(early=3)).fit(X, y)
    assert deep.certificate_ == "blocks" and deep.history_[-1]["parts"] == 4


def test_equal_rows_and_rows_in_blocks():
    y = np.arange(200) % 2
    for strategy in STRATEGIES:
        model = SVC(gamma=1.0, solver=strategy).fit(np.ones((200, 2)), y)
        assert model.converged_
    X, _ = blobs(200)
    for name in ("dc", "cascade", "sodm", "dip"):
        with pytest.raises(ValueError, match=f"{name}.*rows in blocks"):
            SVC(kernel="linear", solver=name).fit(RowBlocks([X[:100], X[100:]]), y)


def test_parameters_of_a_strategy_are_reached_through_the_estimator():
    model = SVC(solver=DivideAndConquer())
    model.set_params(solver__early=2, solver__levels=2)
    assert model.get_params()["solver__early"] == 2
    assert levels.Levels(finest=2, coarsest=2).finest == model.solver.levels
