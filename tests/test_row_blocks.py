"""Rows outside memory: memory-mapped, or in blocks of which one at a time is read."""

from __future__ import annotations

import itertools
import pickle
import time

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import is_regressor
from sklearn.exceptions import ConvergenceWarning

from margrave import SVC, SVR, KernelLogisticRegression, ODMClassifier, OneClassSVM, RowBlocks
from margrave.kernels import Kernel
from margrave.partitions import KMeans
from margrave.problem import Data
from margrave.rows import runs_of, sample_rows
from margrave.solvers import DivideAndConquer
from margrave.solvers.divide import parts
from tests import cases
from tests.data import load


def in_blocks(X, sizes=(100, 1, 250)):
    ends = np.cumsum([0, *sizes, X.shape[0] - sum(sizes)])
    return [X[a:b] for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize("layout", ["C", "csr32"])
@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
def test_blocks_equal_one_array(layout, intercept):
    X, y = load("bc")
    X = cases.LAYOUTS[layout](X)
    parts = in_blocks(X)
    blocks = RowBlocks([lambda part=part: part for part in parts])
    assert blocks.shape == X.shape and blocks.sizes == [part.shape[0] for part in parts]
    for loss in ("hinge", "squared_hinge"):
        model = SVC(kernel="linear", loss=loss, intercept=intercept, solver="newton", tol=1e-8)
        whole = model.fit(X, y).coef_
        inside = model.predict(X)
        np.testing.assert_allclose(model.fit(blocks, y).coef_, whole, atol=1e-6)
        assert model.certify(blocks, y) <= 1.01e-8
        np.testing.assert_array_equal(model.predict(blocks), inside)


def test_blocks_are_read_one_at_a_time():
    rng = np.random.default_rng(0)
    alive, most = [0], [0]

    class Block(np.ndarray):
        def __del__(self):
            if self.base is None:
                alive[0] -= 1

    def make(seed):
        def read():
            alive[0] += 1
            most[0] = max(most[0], alive[0])
            block = np.ndarray.__new__(Block, (1000, 5))
            block[:] = np.random.default_rng(seed).standard_normal((1000, 5))
            return block

        return read

    blocks = RowBlocks([make(seed) for seed in range(8)])
    y = np.concatenate([b[:, 0] + 0.5 * rng.standard_normal(1000) for b in blocks])
    model = SVR(kernel="linear").fit(blocks, y)
    assert model.converged_ and model.certify(blocks, y) <= 1e-3
    assert most[0] <= 2  # one in use, and the one before it on its way out


def test_blocks_from_files(tmp_path):
    X, y = load("diabetes")
    paths = []
    for number, part in enumerate(in_blocks(X.astype(np.float32))):
        paths.append(tmp_path / f"{number}.npy")
        np.save(paths[-1], part)
    model = SVR(kernel="linear", tol=1e-11).fit(RowBlocks(paths), y)
    reference = SVR(kernel="linear", tol=1e-11).fit(X.astype(np.float32), y)
    assert model.converged_ and reference.converged_
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-6)


def test_models_of_rows_outside_memory_hold_no_rows(tmp_path):
    X, y = load("bc")
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for rows in (mapped, RowBlocks(in_blocks(X))):
        model = SVC(kernel="linear").fit(rows, y)
        again = pickle.loads(pickle.dumps(model))
        assert len(pickle.dumps(model)) < X.nbytes // 4
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        with pytest.raises(AttributeError, match="support_ of the training data"):
            _ = again.support_vectors_
        assert again.certify(X, y) == pytest.approx(model.gap_, abs=1e-9)


def test_labels_of_blocks_are_certified():
    X, y = load("breast")
    model = ODMClassifier(kernel="linear").fit(X, y)
    blocks = RowBlocks([X[:100], X[100:]])
    np.testing.assert_array_equal(model.certified(blocks), model.certified(X))


def test_blocks_are_refused_where_they_cannot_work():
    X, y = load("bc")
    blocks = RowBlocks(in_blocks(X))
    for model in (SVC(), SVC(solver="dc"), SVC(solver=DivideAndConquer(levels=2))):
        with pytest.raises(ValueError, match=r"kernel='linear' or solver=.*early.*in one array"):
            model.fit(blocks, y)
    with pytest.raises(ValueError, match="'cd' needs all rows in one array"):
        SVC(kernel="linear", solver="cd").fit(blocks, y)
    with pytest.raises(ValueError, match="multi_class='ovr'"):
        SVC(kernel="linear").fit(blocks, np.arange(len(y)) % 3)
    with pytest.raises(ValueError, match="weights of zero"):
        SVC(kernel="linear").fit(blocks, y, sample_weight=np.arange(len(y)) > 5)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        SVC(kernel="linear").fit(blocks, y[:-1])
    with pytest.raises(ValueError, match="at least one block"):
        RowBlocks([])
    with pytest.raises(ValueError, match="different numbers of columns"):
        RowBlocks([X[:5], X[:5, :3]])
    with pytest.raises(ValueError, match="dimensions"):
        RowBlocks([X[0]])
    with pytest.raises(ValueError, match="rows and"):
        SVC(kernel="linear").fit(RowBlocks([X[:0]]), y[:0])
    bad = X.copy()
    bad[200, 3] = np.nan
    with pytest.raises(ValueError, match="block 2 of X contains NaN"):
        SVC(kernel="linear").fit(RowBlocks(in_blocks(bad)), y)
    with pytest.raises(ValueError, match="NaN"):
        SVR(kernel="linear").fit(blocks, np.where(np.arange(len(y)) == 3, np.nan, y))
    model = SVC(kernel="linear").fit(blocks, y)
    with pytest.raises(ValueError, match="expecting 30 features"):
        model.predict(RowBlocks([X[:, :3]]))


@pytest.mark.parametrize(
    "later",
    [lambda X: X[:40], lambda X: np.vstack([X, X]), lambda X: X[:, 1:]],
    ids=["fewer rows", "more rows", "fewer columns"],
)
def test_a_block_that_changes_is_named(later):
    X, y = load("bc")
    for reads in range(1, 4):
        for solver, kernel in ((DivideAndConquer(early=1), "rbf"), ("newton", "linear")):
            count = itertools.count()

            def read(count=count, reads=reads):
                return X[50:] if next(count) < reads else later(X[50:])

            blocks = RowBlocks([X[:50], read])
            with pytest.raises(ValueError, match=f"block 1 of X had {len(y) - 50} rows and"):
                SVC(kernel=kernel, solver=solver).fit(blocks, y)


@pytest.mark.parametrize(
    "model",
    [
        OneClassSVM(kernel="linear"),
        SVC(kernel="linear", multi_class="crammer_singer"),
        SVC(kernel="linear", solver="exact"),
        KernelLogisticRegression(kernel="linear", multi_class="softmax"),
    ],
)
def test_problems_that_need_one_array(model):
    X = np.random.default_rng(0).standard_normal((30, 2))
    rows = RowBlocks([X[:20], X[20:]])
    with pytest.raises(ValueError, match="all rows in one array"):
        model.fit(rows, np.arange(30) % (2 if model.get_params().get("solver") == "exact" else 3))


# --- kernels: early models of clusters, and predictions ------------------------------------------


def rings(n=3000):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4)).astype(np.float32)
    return X, np.where((X**2).sum(axis=1) + 0.5 * rng.standard_normal(n) > 3.3, 1, -1)


def fitted(model):
    """All numbers of a model of parts."""
    places = model._local.assign.args[0]
    found = [model.support_, model.dual_coef_, model.support_vectors_, model._local.intercept]
    found += [*model._part_support, *(getattr(places, n) for n in ("points", "half_squares"))]
    return [one.toarray() if sparse.issparse(one) else np.asarray(one) for one in found]


EARLY = [
    SVC(gamma=0.5),
    SVC(gamma=0.5, multi_class="crammer_singer", intercept=None),
    SVC(kernel="linear"),
    SVC(kernel="poly", gamma=0.5),
    SVC(kernel=lambda A, B: np.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(axis=2))),
    SVR(gamma=0.5),
    OneClassSVM(gamma=0.5, nu=0.2),
    KernelLogisticRegression(gamma=0.5),
    ODMClassifier(gamma=0.5),
]


@pytest.mark.parametrize("model", EARLY, ids=lambda model: type(model).__name__)
def test_early_models_are_the_same_wherever_rows_are(model, tmp_path, monkeypatch):
    n = 300 if callable(model.kernel) else 3000
    X, y = rings(n)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    sizes = (n // 7, 1, n // 3)
    blocks = RowBlocks([lambda part=part: part for part in in_blocks(X, sizes)])
    y = y.astype(float) if is_regressor(model) else y
    model.set_params(solver=DivideAndConquer(early=1, levels=2), n_jobs=2, random_state=3)
    reference, scores = (
        fitted(model.fit(X, y)),
        model.decision_function if hasattr(model, "decision_function") else model.predict,
    )
    inside = scores(X)
    for rows, share in ((mapped, 8), (blocks, 8), (blocks, 1 << 62), (X, 1 << 62)):
        monkeypatch.setattr(parts, "_COPIES", share)  # one part at a time, or all at once
        model.fit(rows, y)
        assert model.certificate_ == "blocks"
        for one, other in zip(fitted(model), reference, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(scores(X), inside)
        found, alone = scores(blocks), n // 7  # a row by itself is added up in another order
        assert abs(found[alone] - inside[alone]) < 1e-6 * np.abs(inside).max()
        found[alone] = inside[alone]
        np.testing.assert_allclose(found, inside, rtol=1e-6, atol=1e-12)
    again = pickle.loads(pickle.dumps(model)) if not callable(model.kernel) else model
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_early_models_of_sparse_blocks():
    X, y = rings()
    X = sparse.csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0))
    model = SVC(gamma=0.5, solver=DivideAndConquer(early=2))
    reference = fitted(model.fit(X, y))
    for one, other in zip(
        fitted(model.fit(RowBlocks(in_blocks(X, (5, 900))), y)), reference, strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("partition", ["kmeans", "kernel_kmeans", KMeans(balanced=True)], ids=str)
def test_clusters_are_the_same_wherever_rows_are(partition, monkeypatch):
    X, y = rings()
    strategy = DivideAndConquer(early=2, partition=partition)
    model = SVC(gamma=0.5, solver=strategy).fit(X, y)
    other = SVC(gamma=0.5, solver=strategy).fit(RowBlocks(in_blocks(X, (7, 7, 2000))), y)
    for one, same in zip(fitted(model), fitted(other), strict=True):
        np.testing.assert_array_equal(one, same)


def test_every_kernel_model_predicts_blocks():
    X, y = rings(600)
    blocks = RowBlocks(in_blocks(X, (100, 1)))
    for model in (SVC(gamma=0.5), KernelLogisticRegression(gamma=0.5, multi_class="softmax")):
        model.fit(X, y)
        np.testing.assert_array_equal(model.predict(blocks), model.predict(X))
    with pytest.raises(ValueError, match="the gap needs all rows in one array"):
        model.certify(blocks, y)


def test_the_budget_of_an_early_model_of_blocks():
    X, y = rings()
    blocks = RowBlocks([lambda part=part: (time.sleep(0.02), part)[1] for part in in_blocks(X)])
    model = SVC(C=1e6, gamma=5.0, solver=DivideAndConquer(early=1, level_tol=1e-12))
    for seconds in (1e-3, 1.0):  # during the assignment of rows to clusters, and of the solution
        begin = time.perf_counter()
        with pytest.warns(ConvergenceWarning, match="time_limit"):
            model.set_params(time_limit=seconds).fit(blocks, y)
        assert time.perf_counter() - begin < seconds + 3.0
        assert model.certificate_ == "blocks" and 0.0 < model.gap_ <= 1.0
        assert model.predict(blocks).shape == y.shape
    with pytest.raises(ValueError, match="above the memory_limit of 100000 bytes"):
        model.set_params(memory_limit=100_000).fit(blocks, y)
    with pytest.raises(ValueError, match="too few for clusters"):
        SVC(solver=DivideAndConquer(early=1)).fit(RowBlocks([X[:20]]), y[:20])
    with pytest.raises(ValueError, match="'stratified' needs all rows in one array"):
        SVC(solver=DivideAndConquer(early=1, partition="stratified")).fit(blocks, y)


def test_rows_of_parts_are_copied_by_few_passes(monkeypatch):
    X, y = rings()
    reads = []
    blocks = RowBlocks([lambda: (reads.append(1), X)[1]])
    model = SVC(gamma=0.5, solver=DivideAndConquer(early=3, levels=3), memory_limit="1GB")
    model.fit(blocks, y)
    assert model.history_[-1]["parts"] > 30
    assert len(reads) < 10  # construction, checks, sample, clusters, parts, support vectors


def test_rows_are_found_in_any_order(tmp_path):
    X = np.arange(40.0).reshape(20, 2)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    some = np.array([17, 3, 3, 0, 19, 8])
    for rows in (X, mapped, RowBlocks([X[:4], X[4:9], X[9:]])):
        np.testing.assert_array_equal(sample_rows(rows, some), X[some])
        assert sample_rows(rows, some[:0]).shape == (0, 2)
        found = [(first, np.asarray(run)) for first, run in runs_of(rows, 6)]
        np.testing.assert_array_equal(np.vstack([run for _, run in found]), X)
        assert all(len(run) % 6 == 0 for _, run in found[:-1])
    csr = sparse.csr_matrix(X)
    found = sample_rows(RowBlocks([csr[:4], csr[4:9], csr[9:]]), some)
    np.testing.assert_array_equal(found.toarray(), X[some])
    data = Data(RowBlocks([X[:4], X[4:]]), Kernel("linear"), np.array([0, 10, 20]))
    assert data.fits_float32 and data.mean_diagonal() > 0.0
    np.testing.assert_array_equal(data.restrict(np.array([2, 12])).starts, [0, 1, 2])
