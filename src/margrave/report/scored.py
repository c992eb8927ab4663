"""One pass over the rows, which collects all numbers that the sections need.

Rows are scored in blocks, so that only a few numbers per row are in memory: label, prediction,
margin, and with few classes the scores. A row of weight two counts as two rows in every figure.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline

from margrave.models import LocalModels
from margrave.report.estimator import DualModel, Model, has_posterior, model_of_parts
from margrave.report.features import Features
from margrave.report.input import Floats, Input, numbers_of
from margrave.resources import thread_count
from margrave.typing import MatrixLike, VectorLike

MOST_CURVES = 8  # classes up to which each has its own curve


class Scored(Input):
    """A model, rows with their labels, and the predictions of the model.

    Parameters
    ----------
    model, X, y, sample_weight, names
        See :class:`~margrave.report.input.Input`.
    """

    def __init__(
        self,
        model: Model | Pipeline,
        X: MatrixLike,
        y: VectorLike | None = None,
        sample_weight: VectorLike | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(model, X, y, sample_weight, names)
        kind = np.float64 if self.is_regressor else np.int64
        self.predicted: NDArray[Any] = np.empty(self.n_rows, dtype=kind)  # class indices, or values
        self.log_loss = 0.0
        self.features = Features()
        self.parts: NDArray[np.int64] | None = None  # part of each row, for models of parts
        self._stored: dict[str, Floats] = {}
        self._score()

    @property
    def margins(self) -> Floats:
        """Margins of labelled rows, for classifiers."""
        return self._stored["margins"]

    @property
    def scores(self) -> Floats:
        """Scores: one column per class (if there are few), or for two classes one."""
        return self._stored["scores"]

    @property
    def probabilities(self) -> Floats | None:
        """Probabilities of the second, or best, class."""
        return self._stored.get("probabilities")

    @property
    def means(self) -> Floats:
        """Means of the scores of the predicted class over a posterior."""
        return self._stored["means"]

    @property
    def deviations(self) -> Floats:
        """Standard deviations of these scores."""
        return self._stored["deviations"]

    @property
    def divided(self) -> DualModel | None:
        """The model of parts: the estimator itself, or its early model, or None."""
        return model_of_parts(self.estimator)

    def _score(self) -> None:
        for at, block in self.blocks():
            rows = self.transformed(block)
            predicted = self.call("predict", rows)  # also raises for invalid rows
            self.features.add(numbers_of(block))
            if self.is_regressor:
                self.predicted[at] = predicted
            else:
                self.predicted[at] = np.searchsorted(self.classes, predicted)
                self._score_classes(at, rows)
            if has_posterior(self.estimator):
                self._store_deviations(at, rows)
            self._store_parts(at, rows)
        for name in self._stored.keys() & {"margins", "scores"}:
            _make_finite(self._stored[name])

    def call(self, method: str, rows: MatrixLike) -> NDArray[Any]:
        """Call a method of the estimator, without warnings about missing feature names."""
        return np.asarray(self._result(method, rows))

    def _result(self, method: str, rows: MatrixLike, **more: bool) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            return getattr(self._per_class, method)(rows, **more)

    @cached_property
    def _per_class(self) -> Model:
        """The estimator, with decision functions of shape "ovr"."""
        given = self.estimator.get_params(deep=False)
        if given.get("decision_function_shape", "ovr") == "ovr":
            return self.estimator
        return copy.copy(self.estimator).set_params(decision_function_shape="ovr")

    def _score_classes(self, at: slice, rows: MatrixLike) -> None:
        """Store margins and, if there are few classes, scores."""
        scores = self.call("decision_function", rows)
        if scores.ndim == 1 or scores.shape[1] <= MOST_CURVES:
            self._store("scores", at, scores.reshape(len(scores), -1))
        if hasattr(self.estimator, "predict_proba"):
            self._store_probabilities(at, rows)
        if self.has_truth:
            self._store("margins", at, margins_of(scores, self.truth[at]))

    def _store_probabilities(self, at: slice, rows: MatrixLike) -> None:
        probabilities = self.call("predict_proba", rows)
        two = probabilities.shape[1] == 2
        self._store("probabilities", at, probabilities[:, 1] if two else probabilities.max(axis=1))
        given = probabilities[np.arange(len(probabilities)), self.truth[at]]
        self.log_loss -= float(self.weight[at] @ np.log(np.maximum(given, 1e-15)))

    def _store_deviations(self, at: slice, rows: MatrixLike) -> None:
        """Store mean and standard deviation of the score of the predicted class."""
        method = "predict" if self.is_regressor else "decision_function"
        mean, deviation = self._result(method, rows, return_std=True)
        if mean.ndim == 2:
            pick = np.arange(len(mean)), self.predicted[at]
            mean, deviation = mean[pick], deviation[pick]
        self._store("means", at, mean)
        self._store("deviations", at, deviation)

    def _store_parts(self, at: slice, rows: MatrixLike) -> None:
        """Store the part that each row belongs to, for a model of parts."""
        divided = self.divided
        if divided is None or not isinstance(divided._local, LocalModels):
            return
        checked = divided._check_rows(rows, reset=False)
        if self.parts is None:
            self.parts = np.empty(self.n_rows, dtype=np.int64)
        self.parts[at] = divided._local.assign(checked, thread_count(divided.n_jobs))

    def _store(self, name: str, at: slice, values: Floats) -> None:
        if name not in self._stored:
            self._stored[name] = np.empty((self.n_rows, *values.shape[1:]))
        self._stored[name][at] = values

    def share(self, which: NDArray[np.bool_]) -> float:
        """Fraction of the rows, by weight."""
        return float(self.weight @ which) / float(self.weight.sum())

    def quantiles(
        self,
        values: NDArray[Any],
        shares: ArrayLike,
        among: NDArray[np.bool_] | slice = slice(None),
    ) -> list[float]:
        """Weighted quantiles."""
        found, weight = values[among], self.weight[among]
        order = np.argsort(found)
        below = np.cumsum(weight[order])
        at = np.searchsorted(below, np.asarray(shares) * below[-1])
        return [float(v) for v in found[order][np.minimum(at, len(found) - 1)]]


def margins_of(scores: NDArray[Any], own: NDArray[np.integer[Any]]) -> Floats:
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


def _make_finite(values: Floats) -> None:
    """Replace missing scores, of classes that a part has no rows of, by one below all others."""
    known = values[np.isfinite(values)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    np.nan_to_num(values, copy=False, nan=low - 1.0, neginf=low - 1.0, posinf=high + 1.0)
