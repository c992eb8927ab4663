"""Data sets: read from a folder outside the repository, prepared, given in any input form.

The environment variable MARGRAVE_DATA names a folder of ``numpy.savez`` archives. An archive holds
``X, y`` or ``X_train, y_train, X_test, y_test``; a sparse ``X`` is stored as its CSR parts
``X_data, X_indices, X_indptr, X_shape``. Nothing is ever copied into the repository.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.preprocessing import minmax_scale

Matrix = Any  # numpy.ndarray or scipy.sparse.csr_matrix
Raw = dict[str, Any]  # the arrays of one archive, sparse ones put together

FORMS = ("float32-dense", "float64-dense", "float32-csr", "float64-csr")
MAPPED = "float32-mapped"  # dense rows in a file, of which memory holds what is being read
SEED = 0  # of the shuffles; part of the definition of the problems


@dataclass(frozen=True)
class Data:
    """Rows to fit and, where a problem scores, further rows to score."""

    X: Matrix
    y: np.ndarray  # integers: labels (1 for every row of a single class); real numbers: targets
    X_new: Matrix | None = None
    y_new: np.ndarray | None = None

    def in_form(self, form: str) -> Data:
        """The same rows with another element type and layout, e.g. ``"float32-csr"``."""
        X_new = None if self.X_new is None else convert(self.X_new, form)
        return replace(self, X=convert(self.X, form), X_new=X_new)

    @property
    def labels(self) -> np.ndarray:
        """The distinct labels; none of a regression."""
        return np.unique(self.y) if np.issubdtype(self.y.dtype, np.integer) else np.empty(0)

    def head(self, rows_per_class: int = 50) -> Data:
        """A few rows of every class: enough to load libraries and start threads untimed."""
        if len(self.labels):
            found = [np.flatnonzero(self.y == label)[:rows_per_class] for label in self.labels]
            rows = np.concatenate(found)
        else:
            rows = np.arange(min(2 * rows_per_class, len(self.y)))
        X_new = None if self.X_new is None else self.X_new[:rows_per_class]
        y_new = None if self.y_new is None else self.y_new[:rows_per_class]
        return Data(self.X[rows], self.y[rows], X_new, y_new)


def convert(X: Matrix, form: str) -> Matrix:
    dtype, layout = form.split("-")
    if layout == "csr":
        return sparse.csr_matrix(X, dtype=dtype)
    if sparse.issparse(X):
        X = X.toarray()
    X = np.ascontiguousarray(X, dtype=dtype)
    return _mapped(X) if layout == "mapped" else X


def _mapped(X: np.ndarray) -> np.ndarray:
    """The same rows in a temporary file, mapped into memory. The file loses its name at once, so
    that nothing is left behind, whatever becomes of this process."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, X)
        file.flush()
        os.fsync(file.fileno())  # else it would be written to the disk while a fit is timed
        rows: np.ndarray = np.load(file.name, mmap_mode="r")
    return rows


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


@dataclass(frozen=True)
class _StandIn:
    """Layout of a real archive."""

    features: int  # of text some hundreds instead of thousands
    dtype: type
    labels: tuple[int, ...] = ()  # none: a regression
    split: bool = False  # has a test part
    is_sparse: bool = False


_STAND_INS = {
    "ijcnn1": _StandIn(22, np.float32, (-1, 1), split=True),
    "covtype": _StandIn(54, np.int16, tuple(range(1, 8))),
    "mnist": _StandIn(784, np.uint8, tuple(range(10)), split=True),
    "a9a": _StandIn(123, np.uint8, (-1, 1), split=True, is_sparse=True),
    "cadata": _StandIn(8, np.float32),
    "kin40k": _StandIn(8, np.float32),
    "shuttle": _StandIn(9, np.int16, tuple(range(1, 8)), split=True),
    "kddcup99_10pct": _StandIn(41, np.float32, tuple(range(23))),
    "pendigits": _StandIn(16, np.uint8, tuple(range(10)), split=True),
    "reuters_moneyfx": _StandIn(300, np.float32, (-1, 1), split=True, is_sparse=True),
    "news20_18k": _StandIn(300, np.int16, tuple(range(1, 21)), is_sparse=True),
    "susy30k": _StandIn(18, np.float32, (-1, 1)),
    "magic04": _StandIn(10, np.float32, (-1, 1)),
    "skin_nonskin": _StandIn(18, np.int16, (1, 2)),
    "protein": _StandIn(9, np.float32),
    "nycflights13": _StandIn(8, np.int16),
    "flights_3m": _StandIn(7, np.int16),
}


def generate(name: str, rows: int = 600) -> Raw:
    """Made-up rows with the keys, types and labels of a real set: for tests of the harness."""
    layout = _STAND_INS[name]
    rng = np.random.default_rng(SEED)
    X, y = (_clusters if layout.labels else _curve)(layout, rows, rng)
    if layout.is_sparse:
        X = sparse.csr_matrix((X > 2).astype(layout.dtype))
    elif np.issubdtype(layout.dtype, np.integer):
        X = np.clip(20 * X + 128, 0, 255).astype(layout.dtype)
    else:
        X = X.astype(layout.dtype)
    if not layout.split:
        return {"X": X, "y": y}
    half = rows // 2
    return {"X_train": X[:half], "y_train": y[:half], "X_test": X[half:], "y_test": y[half:]}


def _clusters(
    layout: _StandIn, rows: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A cloud of points around a centre per label."""
    y = rng.choice(layout.labels, size=rows)
    centres = rng.normal(size=(max(layout.labels) + 2, layout.features))
    return centres[y + 1] + 2 * rng.normal(size=(rows, layout.features)), y


def _curve(layout: _StandIn, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A noisy smooth function of the features."""
    X = rng.normal(size=(rows, layout.features))
    y = np.sin(X @ rng.normal(size=layout.features)) + 0.1 * rng.normal(size=rows)
    return X, (100 * y).astype(layout.dtype)  # as whole numbers for some sets


# --- preparation: raw arrays, rows to fit, rows to score -> Data in float64 ----------------------


def _select(X: Matrix, y: np.ndarray, order: np.ndarray, rows: int | None, new: int) -> Data:
    rows = len(order) if rows is None else min(rows, len(order) - new)
    fit, score = order[:rows], order[rows : rows + new]
    y = y.astype(np.int64 if np.issubdtype(y.dtype, np.integer) else np.float64)
    if new == 0:
        return Data(X[fit].astype(np.float64), y[fit])
    return Data(X[fit].astype(np.float64), y[fit], X[score].astype(np.float64), y[score])


def _shuffle(rows: int) -> np.ndarray:
    return np.random.default_rng(SEED).permutation(rows)


def _scaled(data: Data, low: np.ndarray | float, width: np.ndarray | float) -> Data:
    X_new = None if data.X_new is None else (data.X_new - low) / width
    return replace(data, X=(data.X - low) / width, X_new=X_new)


def _standardised(data: Data) -> Data:
    """Columns of mean 0 and deviation 1 over the rows to fit; constant ones become 0."""
    deviation = data.X.std(axis=0)
    return _scaled(data, data.X.mean(axis=0), np.where(deviation > 0, deviation, 1.0))


def train_part(raw: Raw, rows: int | None, new: int) -> Data:
    """The official training rows in their own order (a part of them: shuffled), as stored."""
    count = len(raw["y_train"])
    order = np.arange(count) if rows is None else _shuffle(count)
    return _select(raw["X_train"], raw["y_train"], order, rows, new)


def all_rows(raw: Raw, rows: int | None, new: int) -> Data:
    """All rows, shuffled, as stored."""
    return _select(raw["X"], raw["y"], _shuffle(len(raw["y"])), rows, new)


def scaled(raw: Raw, rows: int | None, new: int) -> Data:
    """All rows, shuffled; columns scaled to [0, 1]; the first label against the rest."""
    found = all_rows({**raw, "X": minmax_scale(raw["X"].astype(np.float64))}, rows, new)
    return replace(found, y=np.where(found.y == raw["y"].min(), 1, -1))


def standardised(raw: Raw, rows: int | None, new: int) -> Data:
    """Shuffled; features of mean 0 and deviation 1 over the rows to fit."""
    return _standardised(all_rows(raw, rows, new))


def both_parts(raw: Raw, rows: int | None, new: int) -> Data:
    """The official training rows (a part of them: shuffled) and test rows, as stored."""
    test = _select(raw["X_test"], raw["y_test"], np.arange(len(raw["y_test"])), new, 0)
    return replace(train_part(raw, rows, 0), X_new=test.X, y_new=test.y)


def covtype_binary(raw: Raw, rows: int | None, new: int) -> Data:
    """Class 2 against the rest; columns scaled to [0, 1] over the whole set; shuffled."""
    return covtype({"X": raw["X"], "y": np.where(raw["y"] == 2, 1, -1)}, rows, new)


def covtype(raw: Raw, rows: int | None, new: int) -> Data:
    """All classes; columns scaled to [0, 1] over the whole set; shuffled."""
    X, y = raw["X"], raw["y"]
    low, high = X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    width = np.where(high > low, high - low, 1.0)
    return _scaled(_select(X, y, _shuffle(len(y)), rows, new), low, width)


def covtype_standardised(raw: Raw, rows: int | None, new: int) -> Data:
    """Class 2 against the rest; shuffled; features of mean 0 and deviation 1 in the rows to fit."""
    return standardised({"X": raw["X"], "y": np.where(raw["y"] == 2, 1, -1)}, rows, new)


def mnist_eight(raw: Raw, rows: int | None, new: int) -> Data:
    """The digit 8 against the rest; training part, shuffled, pixels divided by 255."""
    y = np.where(raw["y_train"] == 8, 1, -1)
    return _scaled(_select(raw["X_train"], y, _shuffle(len(y)), rows, new), 0.0, 255.0)


def mnist_digits(raw: Raw, rows: int | None, new: int) -> Data:
    """All digits; training part, shuffled, and test part; pixels divided by 255."""
    return _scaled(both_parts(raw, rows, new), 0.0, 255.0)


def pendigits(raw: Raw, rows: int | None, new: int) -> Data:
    """The official training and test rows, features divided by 100."""
    return _scaled(both_parts(raw, rows, new), 0.0, 100.0)


def regression(raw: Raw, rows: int | None, new: int) -> Data:
    """Shuffled; features and target of mean 0 and deviation 1 over the rows to fit."""
    data = standardised(raw, rows, new)
    mean, deviation = data.y.mean(), data.y.std()
    y_new = None if data.y_new is None else (data.y_new - mean) / deviation
    return replace(data, y=(data.y - mean) / deviation, y_new=y_new)


def one_class(raw: Raw, rows: int | None, new: int) -> Data:
    """All classes (of the training part) as one; shuffled; features of mean 0 and deviation 1."""
    X = raw["X_train" if "X_train" in raw else "X"]
    y = np.ones(X.shape[0], dtype=np.int64)
    return _standardised(_select(X, y, _shuffle(len(y)), rows, new))
