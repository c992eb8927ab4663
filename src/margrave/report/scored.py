"""One pass over the rows, which collects all numbers that the sections need.

Rows are scored in blocks, so that only a few numbers per row are in memory: label, prediction,
margin, and with few classes the scores. A row of weight two counts as two rows in every figure.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import is_classifier, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted

from margrave._sklearn import _check_sample_weight, _safe_indexing
from margrave.engines import is_collection
from margrave.resources import thread_count
from margrave.rows import RowBlocks

Floats = NDArray[np.float64]

MOST_CURVES = 8  # classes up to which each has its own curve
_FEATURES = 1 << 22  # feature values in a block of rows
_DECISIONS = 1 << 24  # decision values in a block of rows: one-vs-one has many


@dataclass
class Features:
    """Minimum, mean, maximum and standard deviation of each feature, updated block by block."""

    count: int = 0
    mean: Any = 0.0
    apart: Any = 0.0  # sum of the squared distances from the mean
    low: Any = np.inf
    high: Any = -np.inf
    filled: Any = 0  # rows in which a feature is not zero

    def add(self, rows: Any) -> None:
        """Include more rows."""
        for at in _row_ranges(rows, 1):
            with np.errstate(over="ignore", invalid="ignore"):
                self._add(rows[at])

    def _add(self, rows: Any) -> None:
        n = rows.shape[0]
        mean = np.asarray(rows.mean(axis=0, dtype=np.float64)).ravel()
        if sparse.issparse(rows):
            apart = np.asarray(rows.multiply(rows).sum(axis=0)).ravel() - n * mean**2
            low, high = (side.toarray().ravel() for side in (rows.min(axis=0), rows.max(axis=0)))
        else:
            apart = np.square(rows - mean).sum(axis=0)
            low, high = rows.min(axis=0), rows.max(axis=0)
        total, step = self.count + n, mean - self.mean
        self.apart = self.apart + apart + step**2 * self.count * n / total
        self.mean = self.mean + step * n / total
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        self.filled = self.filled + np.asarray((rows != 0).sum(axis=0)).ravel()
        self.count = total

    @property
    def deviation(self) -> Floats:
        """Standard deviation of each feature."""
        found: Floats = np.sqrt(np.maximum(self.apart / self.count, 0.0))
        return found


@dataclass
class Scored:
    """A model, rows with their labels, and the predictions of the model.

    Parameters
    ----------
    model : estimator of this package, or pipeline that ends with one
    X, y, sample_weight
        Rows, labels or targets (None only for a one-class SVM), and weights of the rows.
    names : names of the features, if X has none
    """

    model: Any
    X: Any
    y: Any = None
    sample_weight: Any = None
    names: Any = None
    predicted: Any = field(init=False)  # class indices, or values
    margins: Any = field(init=False, default=None)
    scores: Any = field(init=False, default=None)  # one column per class, or for two classes one
    chances: Any = field(init=False, default=None)  # probability of the second, or best, class
    log_loss: float = field(init=False, default=0.0)
    means: Any = field(init=False, default=None)  # of a posterior
    deviations: Any = field(init=False, default=None)
    parts: Any = field(init=False, default=None)
    features: Features = field(init=False, default_factory=Features)

    def __post_init__(self) -> None:
        check_is_fitted(self.estimator)
        if not hasattr(self.estimator, "_kernel"):
            found = type(self.estimator).__name__
            raise ValueError(f"a report needs an estimator of margrave, got {found}")
        self._check()
        self._score()

    # --- input -----------------------------------------------------------------------------

    @property
    def estimator(self) -> Any:
        """The estimator at the end of a pipeline, or the model itself."""
        return self.model.steps[-1][1] if isinstance(self.model, Pipeline) else self.model

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
    def classes(self) -> Any:
        """Sorted labels; for a one-class SVM, -1 (outliers) and 1 (inliers)."""
        return self.estimator.classes_ if self.is_classifier else np.array([-1, 1])

    @property
    def precomputed(self) -> bool:
        """Whether X contains kernel values instead of features."""
        return bool(self.estimator._kernel.is_precomputed)

    def _check(self) -> None:
        if not isinstance(self.X, RowBlocks):
            if is_collection(self.X):
                raise ValueError("a report needs all rows in one array, got a Dask collection")
            if not hasattr(self.X, "shape"):
                self.X = np.asarray(self.X)
            if sparse.issparse(self.X):
                self.X = self.X.tocsr()
            if len(self.X.shape) != 2:
                raise ValueError(f"X has {len(self.X.shape)} dimensions instead of 2")
        self.n_rows = n = int(self.X.shape[0])
        if n == 0:
            raise ValueError("X has no rows, a report needs at least one")
        if self.y is None and (self.is_classifier or self.is_regressor):
            raise ValueError(f"a report on {type(self.estimator).__name__} needs y")
        anything = np.empty((n, 1))
        self.weight = _check_sample_weight(
            self.sample_weight, anything, dtype=np.float64, ensure_non_negative=True
        )
        self.truth: Any = None
        if self.y is not None:
            self.y = column_or_1d(np.asarray(self.y))
            check_consistent_length(anything, self.y)
            self.truth = self._truth()

    def _truth(self) -> Any:
        """Class indices, or targets; None for labels that a one-class SVM ignores."""
        if self.is_regressor:
            targets = self.y.astype(np.float64)
            if not np.isfinite(targets).all():
                raise ValueError("y contains NaN or infinity")
            return targets
        try:
            unknown = np.setdiff1d(self.y, self.classes)
        except TypeError:  # numbers and strings cannot be sorted together
            unknown = self.y[:3]
        if unknown.size == 0:
            return np.searchsorted(self.classes, self.y).astype(np.int64)
        if not self.is_classifier:
            return None
        shown = ", ".join(repr(label) for label in unknown[:5].tolist())
        raise ValueError(f"y contains labels that were not in training: {shown}")

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """The rows in blocks, each with its range of row numbers."""
        if isinstance(self.X, RowBlocks):
            first = 0
            for block in self.X:
                yield slice(first, first + block.shape[0]), block
                first += block.shape[0]
            return
        for at in _row_ranges(self.X, len(self.estimator.intercept_)):
            yield at, _safe_indexing(self.X, np.arange(at.start, at.stop))

    # --- the pass --------------------------------------------------------------------------

    def _score(self) -> None:
        n, k = self.n_rows, len(self.classes)
        self.predicted = np.empty(n, dtype=np.float64 if self.is_regressor else np.int64)
        for at, block in self.blocks():
            rows = self._rows(block)
            predicted = self.ask("predict", rows)  # also raises for invalid rows
            self.features.add(_numbers(block))
            if self.is_regressor:
                self.predicted[at] = predicted
            else:
                self.predicted[at] = np.searchsorted(self.classes, predicted)
                self._score_classes(at, rows, n, k)
            if hasattr(self.estimator, "posterior_"):
                self._spread(at, rows, n)
            self._place(at, rows, n)
        for values in (self.margins, self.scores):
            if values is not None:
                _make_finite(values)

    def _rows(self, block: Any) -> Any:
        """Rows after the pipeline's steps before the estimator."""
        if not isinstance(self.model, Pipeline):
            return block
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            return self.model[:-1].transform(block)

    def ask(self, method: str, rows: Any, **more: Any) -> Any:
        """Call a method of the estimator, without warnings about missing feature names."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            found = getattr(self._per_class, method)(rows, **more)
        return found if isinstance(found, tuple) else np.asarray(found)

    @cached_property
    def _per_class(self) -> Any:
        """The estimator, with decision functions of shape "ovr"."""
        if getattr(self.estimator, "decision_function_shape", "ovr") == "ovr":
            return self.estimator
        estimator = copy.copy(self.estimator)
        estimator.decision_function_shape = "ovr"
        return estimator

    def _score_classes(self, at: slice, rows: Any, n: int, k: int) -> None:
        """Store margins and, if there are few classes, scores."""
        scores = self.ask("decision_function", rows)
        if scores.ndim == 1:
            self._keep("scores", at, scores[:, None], (n, 1))
        elif k <= MOST_CURVES:
            self._keep("scores", at, scores, (n, k))
        if hasattr(self.estimator, "predict_proba"):
            self._chance(at, rows, n)
        if self.truth is None:
            return
        self._keep("margins", at, margins_of(scores, self.truth[at]), (n,))

    def _chance(self, at: slice, rows: Any, n: int) -> None:
        chances = self.ask("predict_proba", rows)
        kept = chances[:, 1] if chances.shape[1] == 2 else chances.max(axis=1)
        self._keep("chances", at, kept, (n,))
        given = chances[np.arange(len(chances)), self.truth[at]]
        self.log_loss -= float(self.weight[at] @ np.log(np.maximum(given, 1e-15)))

    def _spread(self, at: slice, rows: Any, n: int) -> None:
        """Store mean and standard deviation of the score of the predicted class."""
        method = "predict" if self.is_regressor else "decision_function"
        mean, deviation = self.ask(method, rows, return_std=True)
        if mean.ndim == 2:
            pick = np.arange(len(mean)), self.predicted[at]
            mean, deviation = mean[pick], deviation[pick]
        self._keep("means", at, mean, (n,))
        self._keep("deviations", at, deviation, (n,))

    def _place(self, at: slice, rows: Any, n: int) -> None:
        """Store the part that each row belongs to, for a model of parts."""
        divided = self.divided
        assign = None if divided is None else getattr(divided._local, "assign", None)
        if assign is None:
            return
        checked = divided._check_rows(rows, reset=False)
        if self.parts is None:
            self.parts = np.empty(n, dtype=np.int64)
        self.parts[at] = assign(checked, thread_count(divided.n_jobs))

    @property
    def divided(self) -> Any:
        """The model of parts: the estimator itself, or its early model, or None."""
        for estimator in (self.estimator, getattr(self.estimator, "early_", None)):
            if estimator is not None and getattr(estimator, "_local", None) is not None:
                return estimator
        return None

    def _keep(self, name: str, at: slice, values: Any, shape: tuple[int, ...]) -> None:
        if getattr(self, name) is None:
            setattr(self, name, np.empty(shape))
        getattr(self, name)[at] = values

    # --- properties of the rows ------------------------------------------------------------

    @cached_property
    def feature_names(self) -> list[str]:
        """Names of the columns of X."""
        d = self.X.shape[1]
        for names in (
            self.names,
            getattr(self.X, "columns", None),
            getattr(self.model, "feature_names_in_", None),
        ):
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
        if estimator.certificate_ == "none" and not hasattr(estimator, "posterior_"):
            return None  # a model loaded from another program
        if estimator._n_rows != self.n_rows:
            return False
        some = getattr(estimator, "support_", np.empty(0))[:50]
        try:
            known = estimator.support_vectors_[:50]
        except AttributeError:
            return None
        if isinstance(self.X, RowBlocks) or not len(some):
            return None
        rows = _numbers(self._rows(_safe_indexing(self.X, some)))
        if self.precomputed:  # the kernel matrix of the fit is symmetric
            rows = rows[:, some]
            known = rows.T
        return bool(abs(rows - known).max() <= 1e-6 * max(1e-300, abs(known).max()))

    def share(self, which: Any) -> float:
        """Fraction of the rows, by weight."""
        return float(self.weight @ which) / float(self.weight.sum())

    def quantiles(self, values: Any, shares: Any, among: Any = slice(None)) -> list[float]:
        """Weighted quantiles."""
        found, weight = np.asarray(values)[among], self.weight[among]
        order = np.argsort(found)
        below = np.cumsum(weight[order])
        at = np.searchsorted(below, np.asarray(shares) * below[-1])
        return [float(v) for v in found[order][np.minimum(at, len(found) - 1)]]


def margins_of(scores: Any, own: Any) -> Floats:
    """Margin of each row: y f(x), or for several classes own score minus best other score."""
    if scores.ndim == 1:
        signed: Floats = np.where(own == 1, scores, -scores)
        return signed
    rows = np.arange(len(own))
    mine: Floats = scores[rows, own].astype(np.float64)
    others = scores.astype(np.float64)
    others[rows, own] = -np.inf
    with np.errstate(invalid="ignore"):
        mine -= others.max(axis=1)
    return mine


def _numbers(rows: Any) -> Any:
    """Rows of any kind of table as a numeric matrix."""
    return rows if sparse.issparse(rows) else np.asarray(rows, dtype=np.float64)


def _row_ranges(X: Any, decisions: int) -> Iterator[slice]:
    """Ranges of rows so small that neither rows nor decision values take much memory."""
    n = X.shape[0]
    numbers = X.nnz if sparse.issparse(X) else n * X.shape[1]
    step = max(1, min(_FEATURES * n // max(1, numbers), _DECISIONS // decisions))
    for first in range(0, n, step):
        yield slice(first, min(first + step, n))


def _make_finite(values: Floats) -> None:
    """Replace missing scores, of classes that a part has no rows of, by one below all others."""
    known = values[np.isfinite(values)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    np.nan_to_num(values, copy=False, nan=low - 1.0, neginf=low - 1.0, posinf=high + 1.0)
