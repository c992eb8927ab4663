"""Data sets: read from a folder outside the repository, prepared, given in any input form.

The environment variable MARGRAVE_DATA names a folder of ``numpy.savez`` archives. An archive holds
``X, y`` or ``X_train, y_train, X_test, y_test``; a sparse ``X`` is stored as its CSR parts
``X_data, X_indices, X_indptr, X_shape``. Nothing is ever copied into the repository.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

Matrix = Any  # numpy.ndarray or scipy.sparse.csr_matrix
Raw = dict[str, Any]  # the arrays of one archive, sparse ones put together

FORMS = ("float32-dense", "float64-dense", "float32-csr", "float64-csr")
SEED = 0  # of the shuffles; part of the definition of the problems


@dataclass(frozen=True)
class Data:
    """Rows to fit and, where a problem scores, further rows to score."""

    X: Matrix
    y: np.ndarray  # -1 or +1
    X_new: Matrix | None = None
    y_new: np.ndarray | None = None

    def in_form(self, form: str) -> Data:
        """The same rows with another element type and layout, e.g. ``"float32-csr"``."""
        X_new = None if self.X_new is None else convert(self.X_new, form)
        return replace(self, X=convert(self.X, form), X_new=X_new)

    def head(self, rows_per_class: int = 50) -> Data:
        """A few rows of both classes: enough to load libraries and start threads untimed."""
        rows = np.concatenate([np.flatnonzero(self.y == s)[:rows_per_class] for s in (-1, 1)])
        X_new = None if self.X_new is None else self.X_new[:rows_per_class]
        y_new = None if self.y_new is None else self.y_new[:rows_per_class]
        return Data(self.X[rows], self.y[rows], X_new, y_new)


def convert(X: Matrix, form: str) -> Matrix:
    dtype, layout = form.split("-")
    if layout == "csr":
        return sparse.csr_matrix(X, dtype=dtype)
    if sparse.issparse(X):
        X = X.toarray()
    return np.ascontiguousarray(X, dtype=dtype)


# --- reading -------------------------------------------------------------------------------------


def folder() -> Path:
    name = os.environ.get("MARGRAVE_DATA")
    if not name:
        raise SystemExit(
            "MARGRAVE_DATA is not set. Set it to the folder with the .npz data sets "
            "(see benchmarks/README.md), or pass --generated for made-up data."
        )
    if not Path(name).is_dir():
        raise SystemExit(f"MARGRAVE_DATA names {name!r}, which is not a folder.")
    return Path(name)


def read(name: str) -> Raw:
    path = folder() / f"{name}.npz"
    if not path.exists():
        raise SystemExit(f"the folder in MARGRAVE_DATA has no {path.name}")
    with np.load(path, allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    for key in ("X", "X_train", "X_test"):
        if f"{key}_data" in arrays:
            values, indices, indptr, shape = (
                arrays.pop(f"{key}_{part}") for part in ("data", "indices", "indptr", "shape")
            )
            arrays[key] = sparse.csr_matrix(
                (values, indices.astype(np.int32), indptr), shape=tuple(int(s) for s in shape)
            )
    return arrays


# name -> (features, stored type, labels, has a test part, sparse), as in the real archives
_STAND_INS: dict[str, tuple[int, type, tuple[int, ...], bool, bool]] = {
    "ijcnn1": (22, np.float32, (-1, 1), True, False),
    "covtype": (54, np.int16, (1, 2, 3, 4, 5, 6, 7), False, False),
    "mnist": (784, np.uint8, tuple(range(10)), True, False),
    "a9a": (123, np.uint8, (-1, 1), True, True),
}


def generate(name: str, rows: int = 600) -> Raw:
    """Made-up rows with the keys, types and labels of a real set: for tests of the harness."""
    features, dtype, labels, split, is_sparse = _STAND_INS[name]
    rng = np.random.default_rng(SEED)
    y = rng.choice(labels, size=rows)
    centres = rng.normal(size=(max(labels) + 2, features))
    X = centres[y + 1] + 2 * rng.normal(size=(rows, features))
    if is_sparse:
        X = sparse.csr_matrix((X > 2).astype(dtype))
    elif np.issubdtype(dtype, np.integer):
        X = np.clip(20 * X + 128, 0, 255).astype(dtype)
    else:
        X = X.astype(dtype)
    if not split:
        return {"X": X, "y": y}
    half = rows // 2
    return {"X_train": X[:half], "y_train": y[:half], "X_test": X[half:], "y_test": y[half:]}


# --- preparation: raw arrays, rows to fit, rows to score -> Data in float64 ----------------------


def _select(X: Matrix, y: np.ndarray, order: np.ndarray, rows: int | None, new: int) -> Data:
    rows = len(order) if rows is None else min(rows, len(order) - new)
    fit, score = order[:rows], order[rows : rows + new]
    y = y.astype(np.int64)
    if new == 0:
        return Data(X[fit].astype(np.float64), y[fit])
    return Data(X[fit].astype(np.float64), y[fit], X[score].astype(np.float64), y[score])


def _shuffle(rows: int) -> np.ndarray:
    return np.random.default_rng(SEED).permutation(rows)


def train_part(raw: Raw, rows: int | None, new: int) -> Data:
    """The official training rows in their own order (a part of them: shuffled), as stored."""
    count = len(raw["y_train"])
    order = np.arange(count) if rows is None else _shuffle(count)
    return _select(raw["X_train"], raw["y_train"], order, rows, new)


def covtype_binary(raw: Raw, rows: int | None, new: int) -> Data:
    """Class 2 against the rest; columns scaled to [0, 1] over the whole set; shuffled."""
    X, y = raw["X"], np.where(raw["y"] == 2, 1, -1)
    low, high = X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    width = np.where(high > low, high - low, 1.0)
    data = _select(X, y, _shuffle(len(y)), rows, new)
    X_new = None if data.X_new is None else (data.X_new - low) / width
    return replace(data, X=(data.X - low) / width, X_new=X_new)


def mnist_eight(raw: Raw, rows: int | None, new: int) -> Data:
    """The digit 8 against the rest; training part, shuffled, pixels divided by 255."""
    y = np.where(raw["y_train"] == 8, 1, -1)
    data = _select(raw["X_train"], y, _shuffle(len(y)), rows, new)
    X_new = None if data.X_new is None else data.X_new / 255
    return replace(data, X=data.X / 255, X_new=X_new)
