"""Rows outside memory: memory-mapped, or in blocks of which one at a time is read."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest

from margrave import SVC, SVR, KernelLogisticRegression, ODMClassifier, OneClassSVM, RowBlocks
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
    model = SVR(kernel="linear", tol=1e-8).fit(RowBlocks(paths), y)
    reference = SVR(kernel="linear", tol=1e-8).fit(X.astype(np.float32), y)
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
    with pytest.raises(ValueError, match="kernel='linear'"):
        SVC().fit(blocks, y)
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
