"""LIBSVM's text format: a label and index:value pairs per line.

    -1 3:0.5 7:1e-3 # a comment

The parser is compiled (``cpp/libsvm_text.hpp``) and uses all threads. Indices begin at one, or at
zero if there is an index of zero anywhere in the file; ``qid:`` numbers are skipped. Errors name
the file and the line.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse

from margrave import _core
from margrave.io.files import PathLike, read_bytes, replacing
from margrave.kernels import core_rows
from margrave.resources import thread_count
from margrave.rows import CSR, Matrix, is_csr
from margrave.typing import SparseLike

logger = logging.getLogger("margrave")

_LARGEST = (1 << 31) - 2  # largest index that the compiled code supports
_BLOCK = 1 << 24  # entries that are converted to text at a time


@dataclass(frozen=True)
class LibsvmRows:
    """Contents of a file: rows, the numbers before them, and whether indices begin at zero."""

    X: CSR
    heads: NDArray[np.float64]  # labels, or several coefficients per line in model files
    zero_based: bool
    has_qid: bool


def load_libsvm(
    path: PathLike,
    *,
    n_features: int | None = None,
    zero_based: bool | str = "auto",
    dtype: DTypeLike = np.float64,
    n_jobs: int | None = None,
) -> tuple[Any, NDArray[np.float64]]:
    """Read rows and labels from a file in LIBSVM's text format, compressed (.gz, .bz2, .xz) or not.

    Parameters
    ----------
    path : path
        The file.
    n_features : int, default=None
        Number of features; None for the largest index. A larger index is an error.
    zero_based : bool or "auto", default="auto"
        Whether indices begin at zero; "auto": if there is an index of zero.
    dtype : {float64, float32}, default=float64
        Type of the values, which are parsed in double precision and then rounded.
    n_jobs : int, default=None
        Number of threads; None for all cores available to the process.

    Returns
    -------
    X : CSR matrix of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)

    Raises
    ------
    ValueError
        For an invalid line, with file and line number, and for a file without rows.

    Examples
    --------
    >>> import os, tempfile
    >>> from margrave.io import load_libsvm, save_libsvm
    >>> path = os.path.join(tempfile.mkdtemp(), "data.txt")
    >>> save_libsvm(path, [[0.5, 0.0], [0.0, 0.25]], [1, -1])
    >>> X, y = load_libsvm(path)
    >>> X.toarray().tolist(), y.tolist()
    ([[0.5, 0.0], [0.0, 0.25]], [1.0, -1.0])
    """
    found = read_libsvm(
        path, n_features=n_features, zero_based=zero_based, dtype=dtype, n_jobs=n_jobs
    )
    if found.has_qid:
        logger.warning("%s: query ids (qid) are ignored", os.fspath(path))
    return found.X, found.heads[:, 0]


def read_libsvm(
    path: PathLike,
    *,
    n_features: int | None = None,
    zero_based: bool | str = "auto",
    dtype: DTypeLike = np.float64,
    n_jobs: int | None = None,
) -> LibsvmRows:
    """Read rows as `load_libsvm` does, with further information about the file."""
    found = parse(read_bytes(path), path, 1, n_features, zero_based, dtype, n_jobs)
    if found.X.shape[0] == 0:
        raise ValueError(f"{os.fspath(path)}: the file contains no rows")
    return found


def parse(
    text: NDArray[np.uint8],
    path: PathLike,
    heads: int,
    n_features: int | None = None,
    zero_based: bool | str = "auto",
    dtype: DTypeLike = np.float64,
    n_jobs: int | None = None,
    first_line: int = 1,
) -> LibsvmRows:
    """Parse text that begins at `first_line` of a file and has `heads` numbers before each row."""
    name, based = os.fspath(path), None if zero_based == "auto" else bool(zero_based)
    if n_features is not None and not 0 < n_features <= _LARGEST:
        raise ValueError(f"n_features must be from 1 to {_LARGEST}, got {n_features}")
    most = _LARGEST if n_features is None else n_features - int(based is True)
    kind = np.dtype(dtype).name
    try:
        found = _core.read_libsvm(text, heads, based, most, kind, thread_count(n_jobs))
    except _core.BadText as error:
        line, _, what = str(error).partition(": ")
        raise ValueError(f"{name}:{int(line) + first_line - 1}: {what}") from None
    except _core.Stopped:
        raise KeyboardInterrupt from None
    width = found["n_features"] if n_features is None else n_features
    if found["n_features"] > width:
        raise ValueError(
            f"{name}: the indices begin at 0 and end at {found['n_features'] - 1}: these are more"
            f" than {width} features"
        )
    columns, starts = found["columns"], found["starts"]
    if len(columns) <= np.iinfo(np.int32).max:
        starts = starts.astype(np.int32)  # otherwise SciPy would convert the columns to int64
    X = sparse.csr_matrix((found["values"], columns, starts), shape=(len(starts) - 1, width))
    X.has_sorted_indices = X.has_canonical_format = True  # the parser guarantees it
    return LibsvmRows(X, found["heads"], found["zero_based"], found["has_qid"])


def save_libsvm(
    path: PathLike, X: ArrayLike | SparseLike, y: ArrayLike, *, zero_based: bool = False
) -> None:
    """Write rows and labels in LIBSVM's text format; numbers read back unchanged.

    Parameters
    ----------
    path : path
        The file to write, compressed if its name ends in .gz, .bz2 or .xz; an existing one is
        replaced only when the new one is complete.
    X : {array-like, sparse} of shape (n_samples, n_features)
        Rows; entries that are zero are left out.
    y : array-like of shape (n_samples,)
        Numeric labels or targets.
    zero_based : bool, default=False
        Whether indices begin at zero.
    """
    rows: Matrix = sparse.csr_matrix(X) if sparse.issparse(X) else np.asarray(X)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    heads = np.asarray(y, dtype=np.float64).reshape(-1, 1)
    if len(rows.shape) != 2 or len(heads) != rows.shape[0]:
        raise ValueError(f"X has shape {rows.shape}, which does not match {len(heads)} labels")
    entries = rows.data if is_csr(rows) else np.asarray(rows)
    if not np.isfinite(heads).all() or not np.isfinite(entries).all():
        raise ValueError("X and y must be finite, but contain NaN or infinity")
    with replacing(path) as file:
        for piece in lines(rows, heads, zero_based):
            file.write(piece)


def lines(X: Matrix, heads: NDArray[np.float64], zero_based: bool = False) -> Iterator[bytes]:
    """LIBSVM's text for rows and the numbers before them, in pieces."""
    rows, heads = core_rows(X), np.ascontiguousarray(heads)
    per_row = max(1, (X.nnz // max(1, X.shape[0])) if is_csr(X) else X.shape[1])
    step = max(1, _BLOCK // per_row)
    for first in range(0, X.shape[0], step):
        last = min(X.shape[0], first + step)
        yield _core.libsvm_lines(rows, heads, first, last, zero_based, thread_count())
