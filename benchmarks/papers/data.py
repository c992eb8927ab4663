"""The papers' data sets: rows to fit and rows to test, from the archives of `benchmarks.data`.

A preparation takes the arrays of one archive. Rows to fit are always shuffled, so that the first so
many of them are a fair sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, minmax_scale

from benchmarks import data
from benchmarks.data import SEED, Data, Matrix, Raw

# Sets that `benchmarks.data` cannot make up, and one there whose archive looks alike.
_LIKE = {
    "census_income": "ijcnn1",
    "svmguide1": "ijcnn1",
    "phishing": "a9a",
    "a8a": "a9a",
    "skin_nonskin": "susy30k",
    "mushrooms": "a9a",
    "madelon": "ijcnn1",
}


@dataclass(frozen=True)
class DataSet:
    title: str
    archive: str
    prepare: Callable[[Raw], Data]
    forms: Mapping[str, str]  # the form that is fastest with each library
    parameters: Mapping[str, Any] = field(default_factory=dict)  # none: they are searched for
    sizes: tuple[int | None, ...] = ()  # rows for methods that cannot have all; None: all

    def load(self, generated: bool = False) -> Data:
        return self.prepare(generate(self.archive) if generated else data.read(self.archive))


def generate(archive: str) -> Raw:
    """Made-up rows for tests of the harness."""
    raw = data.generate(_LIKE.get(archive, archive))
    return {**raw, "cat_cols": np.arange(3)} if archive == "census_income" else raw


def official_split(raw: Raw) -> Data:
    """The official training and test rows, as stored."""
    return data.both_parts(raw, len(raw["y_train"]), len(raw["y_test"]))


def covtype_binary(raw: Raw) -> Data:
    """Class 2 against the rest; columns scaled to [0, 1]; 80 % of the rows to fit."""
    test = len(raw["y"]) // 5
    return data.covtype_binary(raw, len(raw["y"]) - test, test)


def mnist_eight(raw: Raw) -> Data:
    """The digit 8 against the rest; official training and test rows; pixels divided by 255."""
    found = data.mnist_digits(raw, len(raw["y_train"]), len(raw["y_test"]))
    assert found.y_new is not None
    return replace(found, y=_against_rest(found.y, 8), y_new=_against_rest(found.y_new, 8))


def census(raw: Raw) -> Data:
    """Training part; categories as indicators, the other columns scaled to [0, 1]; 80 % of the rows
    to fit."""
    return _split(_indicators(raw["X_train"], raw["cat_cols"]), raw["y_train"])


def kddcup_binary(raw: Raw) -> Data:
    """Normal against attack; protocol, service and flag as indicators, the other columns scaled to
    [0, 1]; 80 % of the rows to fit."""
    return _split(_indicators(raw["X"], np.array([1, 2, 3])), _against_rest(raw["y"], 11))


def pooled(raw: Raw) -> Data:
    """All rows together; columns scaled to [0, 1]; 80 % of the rows to fit."""
    if "X" in raw:
        X, y = raw["X"], raw["y"]
    else:
        parts = [raw["X_train"], raw["X_test"]]
        X = sparse.vstack(parts, "csr") if sparse.issparse(parts[0]) else np.concatenate(parts)
        y = np.concatenate([raw["y_train"], raw["y_test"]])
    if sparse.issparse(X):  # no entry is negative, and zero stays zero
        return _split(MaxAbsScaler().fit_transform(X.astype(np.float64)), y)
    return _split(minmax_scale(X.astype(np.float64)), y)


def _split(X: Matrix, y: np.ndarray) -> Data:
    order = np.random.default_rng(SEED).permutation(len(y))
    test, fit = np.split(order, [len(y) // 5])
    y = y.astype(np.int64)
    return Data(X[fit], y[fit], X[test], y[test])


def _indicators(X: np.ndarray, categories: np.ndarray) -> Matrix:
    """Columns of category codes as zeros and ones, then the others scaled to [0, 1], as CSR."""
    codes = OneHotEncoder().fit_transform(X[:, categories].astype(np.int64))
    numbers = np.delete(X, categories, axis=1).astype(np.float64)
    return sparse.hstack([codes, sparse.csr_matrix(minmax_scale(numbers))], "csr")


def _against_rest(y: np.ndarray, label: int) -> np.ndarray:
    return np.where(y == label, 1, -1)
