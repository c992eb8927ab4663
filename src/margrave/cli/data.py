"""Rows and labels from files: LIBSVM's text format, CSV, Parquet, NumPy arrays.

In LIBSVM's text format the label comes first in each line; in a table it is a column, given by name
or position (0 is the first, -1 the last). Every error names the file and, where there is one, the
line.
"""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from margrave.cli.columns import ArrayColumn, Column, read_csv, read_parquet
from margrave.io.libsvm import read_libsvm
from margrave.rows import CSR, Matrix

STANDARD_INPUT = "-"
_PACKED = (".gz", ".bz2", ".xz")
_DENSE = 0.25  # from this fraction of nonzero entries on, rows are converted to dense
_LABELS = ("label", "target", "class", "y")  # names of columns that are labels by default


@dataclass
class Table:
    """Rows, labels (None if there are none), and notes about the file to store with a model."""

    X: Matrix
    y: NDArray[Any] | None
    notes: dict[str, Any] = field(default_factory=dict)

    def labels(self, path: str) -> NDArray[Any]:
        """The labels, which the file must have."""
        if self.y is None:
            raise ValueError(f"{path}: there are no labels to compare with")
        return self.y


def read_table(
    path: str,
    label: str | None = None,
    expected: int | None = None,
    notes: dict[str, Any] | None = None,
    mixed: bool = False,
) -> Table:
    """Read a file for training or, with a model's number of features and notes, for prediction.

    A table that is `mixed` (or whose model's was) may have text and missing values. Standard input
    is a table if there is a comma in its first line, and LIBSVM's text otherwise.
    """
    if path == STANDARD_INPUT:
        return _standard_input(label, expected, notes, mixed)
    known = {**(notes or {}), **({"mixed": True} if mixed else {})}
    suffixes = [s.lower() for s in Path(path).suffixes]
    while suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    kind = suffixes[-1] if suffixes else ""
    if kind in (".csv", ".tsv"):
        names, columns = read_csv(path, "\t" if kind == ".tsv" else None)
        table = _split(path, names, columns, label, known, expected)
    elif kind in (".parquet", ".pq"):
        names, columns = read_parquet(path)
        table = _split(path, names, columns, label, known, expected)
    elif kind in (".npy", ".npz"):
        table = _numpy(path, label, known, expected)
    else:
        table = _libsvm(path, known, expected)
    if table.X.shape[0] == 0:
        raise ValueError(f"{path}: the file contains no rows")
    if expected is not None:
        _check_columns(path, table, known, expected)
    return table


def _standard_input(
    label: str | None, expected: int | None, notes: dict[str, Any] | None, mixed: bool
) -> Table:
    """Read what arrives at standard input, through a file."""
    content = sys.stdin.buffer.read()
    first = content.partition(b"\n")[0]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.csv" if b"," in first else "rows")
        Path(path).write_bytes(content)
        try:
            return read_table(path, label, expected, notes, mixed)
        except ValueError as error:
            raise ValueError(str(error).replace(path, "standard input")) from None


def _check_columns(path: str, table: Table, known: dict[str, Any], expected: int) -> None:
    if table.X.shape[1] != expected:
        raise ValueError(
            f"{path}: the rows have {table.X.shape[1]} features, the model expects {expected}"
        )
    names, wanted = table.notes.get("names"), known.get("names")
    for mine, theirs in zip(names or [], wanted or [], strict=False):
        if mine != theirs:
            raise ValueError(f"{path}: a column is named {mine!r}, the model expects {theirs!r}")


def dense_enough(X: CSR) -> Matrix:
    """Sparse rows as a dense array if many entries are nonzero, which is then faster."""
    cells = X.shape[0] * X.shape[1]
    return X.toarray() if cells and X.nnz >= _DENSE * cells else X


def _libsvm(path: str, known: dict[str, Any], expected: int | None) -> Table:
    based = known.get("zero_based", "auto")
    found = read_libsvm(path, n_features=expected, zero_based=based)
    notes = {"zero_based": found.zero_based}
    if found.has_qid:
        notes["qid"] = True
    X = found.X if found.X.shape[1] else sparse.csr_matrix((found.X.shape[0], 1))
    return Table(dense_enough(X), found.heads[:, 0], notes)


# --- tables --------------------------------------------------------------------------------


def _split(
    path: str,
    names: list[str] | None,
    columns: Sequence[Column],
    label: str | None,
    known: dict[str, Any],
    expected: int | None,
) -> Table:
    """Separate the label column from the features."""
    count = len(columns)
    at = _label_column(path, names, count, label, known, expected)
    shown = names or [f"column {c}" for c in range(count)]
    features = [c for c in range(count) if c != at]
    if not features:
        raise ValueError(f"{path}: the label is the only column")
    notes: dict[str, Any] = {"label": None if at is None else names[at] if names else at}
    if names:
        notes["names"] = [names[c] for c in features]
    if known.get("mixed"):
        notes["mixed"] = True
        cells = [columns[c].values(path, shown[c]) for c in features]
        X = np.column_stack(cells)
    else:
        X = np.column_stack([columns[c].numbers(path, shown[c]) for c in features])
    return Table(X, None if at is None else columns[at].labels(path, shown[at]), notes)


def _label_column(
    path: str,
    names: list[str] | None,
    count: int,
    label: str | None,
    known: dict[str, Any],
    expected: int | None,
) -> int | None:
    wanted: Any = label if label is not None else known.get("label")
    if label is None and names and wanted not in names:
        wanted = next((name for name in names if name.lower() in _LABELS), wanted)
    if expected is not None and count == expected and label is None:
        return None  # rows to predict, without labels
    if names and wanted in names:
        return names.index(wanted)
    try:
        position = int(wanted)
    except (TypeError, ValueError):
        if wanted is not None:
            raise ValueError(f"{path}: there is no column {wanted!r}") from None
        raise ValueError(
            f"{path}: which column is the label? Use --label NAME or --label POSITION (0 is the"
            " first, -1 the last)"
        ) from None
    if not -count <= position < count:
        raise ValueError(f"{path}: there is no column {position}, only {count} columns")
    return position % count


# --- NumPy ---------------------------------------------------------------------------------


def _numpy(path: str, label: str | None, known: dict[str, Any], expected: int | None) -> Table:
    try:
        found = np.load(path, allow_pickle=False)
        arrays = {name: found[name] for name in found} if hasattr(found, "files") else None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        what = str(error).splitlines()[0] if str(error) else "it ends too early"
        raise ValueError(f"{path}: not a file of NumPy arrays: {what}") from None
    if arrays is None:
        if found.ndim != 2:
            raise ValueError(f"{path}: the array has {found.ndim} dimensions instead of 2")
        _check_numbers(path, "the array", found)
        columns = [ArrayColumn(found[:, c]) for c in range(found.shape[1])]
        return _split(path, None, columns, label, known, expected)
    X = _npz_rows(path, arrays)
    y = arrays.get("y", arrays.get("target"))
    if y is None and expected is None:
        raise ValueError(f"{path}: there is no array 'y' of labels, only {', '.join(arrays)}")
    if y is not None and y.shape != (X.shape[0],):
        raise ValueError(f"{path}: y has shape {y.shape}, X has {X.shape[0]} rows")
    if y is not None and y.dtype.kind in "biuf":
        _check_numbers(path, "y", y)
    return Table(X, y, {})


def _npz_rows(path: str, arrays: dict[str, NDArray[Any]]) -> Matrix:
    """Rows 'X', or the parts of a sparse matrix as SciPy writes them."""
    if "X" in arrays:
        X = arrays["X"]
        if X.ndim != 2:
            raise ValueError(f"{path}: X has {X.ndim} dimensions instead of 2")
        _check_numbers(path, "X", X)
        return X if X.dtype == np.float32 else X.astype(np.float64)
    parts = ("data", "indices", "indptr", "shape")
    if not set(parts) <= set(arrays):
        raise ValueError(f"{path}: there is no array 'X', only {', '.join(arrays)}")
    data, indices, indptr, shape = (arrays[name] for name in parts)
    _check_numbers(path, "data", data)
    try:
        matrix = sparse.csr_matrix((data, indices, indptr), shape=tuple(map(int, shape)))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: the sparse matrix is damaged: {error}") from None
    return dense_enough(matrix.astype(np.float64))


def _check_numbers(path: str, name: str, array: NDArray[Any]) -> None:
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{path}: {name} is not numeric but {array.dtype}")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(f"{path}: {name}: row {where[0] + 1} is not a finite number")


def text_of(values: NDArray[Any]) -> bytes:
    """Labels or numbers, one row per line, in the shortest form that reads back unchanged."""
    rows = values.tolist()
    if values.ndim == 1:
        rows = [[value] for value in rows]
    return "".join(" ".join(map(word_of, row)) + "\n" for row in rows).encode()


def word_of(value: str | float) -> str:
    """A label or number as text; whole numbers have no decimal point."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))
    return str(value)


def name_of(path: str | os.PathLike[str]) -> str:
    """The last part of a path, as LIBSVM names its models."""
    return os.fspath(path).rpartition("/")[2]
