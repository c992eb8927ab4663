"""What a report is about: a fitted model, and rows with labels and weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from margrave._sklearn import _check_sample_weight, _safe_indexing
from margrave.engines import is_collection
from margrave.report.estimator import Model, feature_names, final_estimator, has_posterior
from margrave.report.features import row_ranges
from margrave.rows import Matrix, RowBlocks, blocks_of, in_blocks, is_csr
from margrave.typing import MatrixLike, VectorLike

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Floats = NDArray[np.float64]

_DECISIONS = 1 << 24  # decision values in a block of rows: one-vs-one has many


class Frame(Protocol):
    """A data frame of pandas or polars."""

    shape: tuple[int, int]
    columns: Sequence[str]

    def __array__(self) -> NDArray[Any]: ...


Table: TypeAlias = Matrix | RowBlocks | Frame


class Input:
    """A model, and rows with labels and weights, all of them checked.

    Parameters
    ----------
    model : estimator of this package, or pipeline that ends with one
    X, y, sample_weight
        Rows, labels or targets (None only for a one-class SVM), and weights of the rows.
    names : names of the features, if X has none
    """

    def __init__(
        self,
        model: Model | Pipeline,
        X: MatrixLike,
        y: VectorLike | None = None,
        sample_weight: VectorLike | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.model, self.names = model, names
        self.estimator: Model = final_estimator(model)
        check_is_fitted(self.estimator)
        if not hasattr(self.estimator, "_kernel"):
            found = type(self.estimator).__name__
            raise ValueError(f"a report needs an estimator of margrave, got {found}")
        self.X = _checked(X)
        self.n_rows = n = self.X.shape[0]
        if n == 0:
            raise ValueError("X has no rows, a report needs at least one")
        if y is None and (self.is_classifier or self.is_regressor):
            raise ValueError(f"a report on {type(self.estimator).__name__} needs y")
        anything = np.empty((n, 1))
        self.has_weights = sample_weight is not None
        self.weight: Floats = _check_sample_weight(
            sample_weight, anything, dtype=np.float64, ensure_non_negative=True
        )
        # class indices, or targets; empty if there are no labels, or none that can be used
        self.truth: NDArray[Any] = np.empty(0, dtype=np.int64)
        if y is not None:
            labels: NDArray[Any] = column_or_1d(np.asarray(y))
            check_consistent_length(anything, labels)
            read = self._targets if self.is_regressor else self._class_indices
            self.truth = read(labels)

    @property
    def has_truth(self) -> bool:
        """Whether there are labels or targets to compare with."""
        return len(self.truth) > 0

    @property
    def steps(self) -> list[str]:
        """Names of the pipeline's steps before the estimator."""
        if not isinstance(self.model, Pipeline):
            return []
        return [type(step).__name__ for _, step in self.model.steps[:-1]]

    @cached_property
    def is_classifier(self) -> bool:
        """Whether the estimator is a classifier."""
        return bool(is_classifier(self.estimator))

    @cached_property
    def is_regressor(self) -> bool:
        """Whether the estimator is a regressor."""
        return bool(is_regressor(self.estimator))

    @cached_property
    def classes(self) -> NDArray[Any]:
        """Sorted labels; for a one-class SVM, -1 (outliers) and 1 (inliers)."""
        return self.estimator.classes_ if self.is_classifier else np.array([-1, 1])

    @property
    def precomputed(self) -> bool:
        """Whether X contains kernel values instead of features."""
        return self.estimator._kernel.is_precomputed

    def _targets(self, y: NDArray[Any]) -> Floats:
        targets: Floats = y.astype(np.float64)
        if not np.isfinite(targets).all():
            raise ValueError("y contains NaN or infinity")
        return targets

    def _class_indices(self, y: NDArray[Any]) -> NDArray[np.int64]:
        """Class indices; none for labels that a one-class SVM ignores."""
        try:
            unknown = np.setdiff1d(y, self.classes)
        except TypeError:  # numbers and strings cannot be sorted together
            unknown = y[:3]
        if unknown.size == 0:
            return np.searchsorted(self.classes, y).astype(np.int64)
        if not self.is_classifier:
            return np.empty(0, dtype=np.int64)
        shown = ", ".join(repr(label) for label in unknown[:5].tolist())
        raise ValueError(f"y contains labels that were not in training: {shown}")

    def blocks(self) -> Iterator[tuple[slice, MatrixLike]]:
        """The rows in blocks, each with its range of row numbers."""
        if in_blocks(self.X):
            yield from blocks_of(self.X)
            return
        n, d = self.X.shape
        numbers = self.X.nnz if is_csr(self.X) else n * d
        for at in row_ranges(n, numbers, _DECISIONS // len(self.estimator.intercept_)):
            yield at, _safe_indexing(self.X, np.arange(at.start, at.stop))

    def transformed(self, block: MatrixLike) -> MatrixLike:
        """Rows after the pipeline's steps before the estimator."""
        if not isinstance(self.model, Pipeline):
            return block
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            rows: MatrixLike = self.model[:-1].transform(block)
            return rows

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the columns of X."""
        d = self.X.shape[1]
        own = self.X.columns if is_frame(self.X) else None
        for names in (self.names, own, feature_names(self.model)):
            if names is not None and len(names) == d:
                return [str(name) for name in names]
        return [f"feature {i}" for i in range(d)]

    @cached_property
    def estimator_names(self) -> list[str]:
        """Names of the estimator's features, which may differ from those of X in a pipeline."""
        d = self.estimator.n_features_in_
        if len(self.feature_names) == d:
            return self.feature_names
        return [f"column {i}" for i in range(d)]

    @cached_property
    def of_the_fit(self) -> bool | None:
        """Whether the rows seem to be the training rows; None if unknown."""
        estimator = self.estimator
        if estimator.certificate_ == "none" and not has_posterior(estimator):
            return None  # a model loaded from another program
        if estimator._n_rows != self.n_rows:
            return False
        try:
            known: Matrix = estimator.support_vectors_[:50]
        except AttributeError:
            return None
        some = estimator.support_[:50]
        if in_blocks(self.X) or not len(some):
            return None
        rows = numbers_of(self.transformed(_safe_indexing(self.X, some)))
        if self.precomputed:  # the kernel matrix of the fit is symmetric
            values = np.asarray(rows)[:, some]
            return _are_close(values, values.T)
        return _are_close(rows, known)


def numbers_of(rows: MatrixLike) -> Matrix:
    """Rows of any kind of table as a numeric matrix."""
    return rows if is_csr(rows) else np.asarray(rows, dtype=np.float64)


def _checked(X: MatrixLike) -> Table:
    if in_blocks(X):
        return X
    if is_collection(X):
        raise ValueError("a report needs all rows in one array, got a Dask collection")
    found: Any = X if hasattr(X, "shape") else np.asarray(X)
    table: Table = found.tocsr() if sparse.issparse(found) else found
    if len(table.shape) != 2:
        raise ValueError(f"X has {len(table.shape)} dimensions instead of 2")
    return table


def is_frame(X: object) -> TypeIs[Frame]:
    """Whether X is a data frame, with names of its columns."""
    return hasattr(X, "columns")


def _are_close(rows: Matrix, known: Matrix) -> bool:
    """Whether rows are equal up to rounding errors."""
    convert = sparse.csr_matrix if is_csr(rows) or is_csr(known) else np.asarray
    a, b = convert(rows), convert(known)
    return bool(abs(a - b).max() <= 1e-6 * max(1e-300, abs(b).max()))
