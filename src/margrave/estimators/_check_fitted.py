"""Check that a model from a file is valid: types, shapes, finite numbers, sizes.

Each check applies to every estimator that has the attribute; finally the model must be able to
predict a row of zeros.
"""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline

from margrave.estimators._base import KernelEstimator
from margrave.estimators._margin import MarginClassifier, Sigmoids
from margrave.kernels import Kernel
from margrave.models import Committee, LocalModels, Posterior
from margrave.rows import Matrix, is_csr


def check_fitted(model: BaseEstimator) -> None:
    """Raise ValueError for a model with invalid or inconsistent attributes."""
    if isinstance(model, Pipeline):
        for name, step in model.steps:
            if not isinstance(name, str) or not isinstance(step, BaseEstimator):
                raise ValueError("a step of the pipeline is not an estimator")
        for _, scaler in model.steps[:-1]:
            _check_scaler(scaler)
        model = model.steps[-1][1]
    if not isinstance(model, KernelEstimator) or not hasattr(model, "_kernel"):
        raise ValueError(f"it contains a {type(model).__name__}, not an estimator of margrave")
    _Fitted(model).check()


def _check_scaler(scaler: BaseEstimator) -> None:
    d = _integer(scaler, "n_features_in_", 1)
    if isinstance(scaler, ColumnTransformer):
        for _, part, places in scaler.transformers_:
            _expect(isinstance(part, (Pipeline, str)), "the columns")
            _expect(all(isinstance(k, int) and 0 <= k < d for k in places), "the columns")
        return
    for name, value in vars(scaler).items():
        if isinstance(value, np.ndarray) and name != "feature_names_in_":
            shapes = [(d,), (d, d)] if name in ("root_", "metric_") else [(d,)]
            _expect(value.shape in shapes and _finite(value), name)


class _Fitted:
    def __init__(self, model: KernelEstimator) -> None:
        self.model = model

    def check(self) -> None:
        model = self.model
        model._validate_params()
        self.d = _integer(model, "n_features_in_", 1)
        if hasattr(model, "feature_names_in_"):
            _expect(np.shape(model.feature_names_in_) == (self.d,), "feature_names_in_")
        _expect(isinstance(model._kernel, Kernel), "the kernel")
        _expect(model._kernel.name == model.kernel, "the kernel")
        if hasattr(model, "posterior_"):
            self._check_posterior()
        elif hasattr(model, "support_"):
            self._check_expansion()
        if hasattr(model, "classes_"):
            self._check_classes()
        self._check_history()
        self._check_prediction()

    def _check_expansion(self) -> None:
        model, d = self.model, self.d
        n_rows = _integer(model, "_n_rows", 1)
        support = model.support_
        _expect(_integers(support) and support.ndim == 1, "support_")
        _expect(bool(((support >= 0) & (support < n_rows)).all()), "support_")
        n, dual = len(support), model.dual_coef_
        _expect(_numbers(dual) and dual.shape[1] == n and _finite(dual), "dual_coef_")
        vectors, precomputed = model._support_vectors, model._kernel.is_precomputed
        _expect(not precomputed or n_rows <= d, "n_features_in_")
        if vectors is not None and not precomputed:
            _expect(_numbers(vectors) and _finite(vectors), "the support vectors")
            _expect(vectors.shape == (n, d), "the support vectors")
        weights = model._weights
        _expect(vectors is not None or weights is not None, "the support vectors")
        if weights is not None:
            _expect(_numbers(weights) and _finite(weights), "the weights")
            _expect(weights.shape[1:] == (d,), "the weights")
        b, counts = model.intercept_, model.n_support_
        _expect(_numbers(b, 1) and _finite(b), "intercept_")
        _expect(_integers(counts) and bool((counts >= 0).all()), "n_support_")
        _expect(int(counts.sum()) == n, "n_support_")
        _expect(model._precision in ("float32", "float64"), "the precision")
        if model._local is not None:
            self._check_parts(n)

    def _check_posterior(self) -> None:
        model, found, width = self.model, self.model.posterior_, self.d
        _expect(isinstance(found, Posterior) and _numbers(found.mean), "the posterior")
        marks = model._landmarks
        _expect((marks is None) == (model._kernel.name == "linear"), "the landmarks")
        if marks is not None:
            width = len(marks.factor)
            _expect(_numbers(marks.factor) and _finite(marks.factor), "the landmarks")
            _expect(marks.factor.shape == (width, width), "the landmarks")
            _expect(bool((np.diag(marks.factor) > 0.0).all()), "the landmarks")
            expected = (width,) if model._kernel.is_precomputed else (width, self.d)
            _expect(marks.points.shape == expected, "the landmarks")
        k, width = len(found.mean), width + (model.intercept is not None)
        _expect(found.mean.shape == (k, width) and _finite(found.mean), "the posterior")
        _expect(found.covariance.shape == (k, width, width), "the posterior")
        _expect(_finite(found.covariance), "the posterior")
        draws = found.draws
        _expect(draws is None or draws.shape[1:] == (k, width), "the posterior")
        _expect(draws is None or _finite(draws), "the posterior")

    def _check_parts(self, n: int) -> None:
        local, parts = self.model._local, self.model._part_support
        if not isinstance(local, (LocalModels, Committee)) or not isinstance(parts, list):
            raise _wrong("parts")
        for part in parts:
            _expect(_integers(part) and part.ndim == 1, "parts")
            _expect(bool(((part >= 0) & (part < n)).all()), "parts")
        _expect(_numbers(local.intercept) and _finite(local.intercept), "parts")
        _expect(local.intercept.shape[0] == len(parts), "parts")
        shared, dual = self.model._shared, self.model.dual_coef_
        if shared is not None:
            _expect(_numbers(shared) and shared.shape == dual.shape and _finite(shared), "parts")
        if isinstance(local, Committee):
            _expect(len(local.points) == len(parts), "parts")
            return
        _expect(local.known.shape == local.intercept.shape, "parts")
        if not isinstance(local.assign, partial):
            raise _wrong("parts")
        places = local.assign.args[0]
        for field in dataclasses.fields(places):
            value = getattr(places, field.name)
            _expect(isinstance(value, Kernel) or _finite(value), "parts")
        _expect(len(places.half_squares) == len(parts), "parts")

    def _check_classes(self) -> None:
        model = self.model
        classes = model.classes_
        _expect(isinstance(classes, np.ndarray) and classes.ndim == 1, "classes_")
        _expect(len(classes) >= 2 and len(np.unique(classes)) == len(classes), "classes_")
        if hasattr(model, "n_support_"):
            _expect(len(model.n_support_) == len(classes), "n_support_")
        k = len(classes)
        scheme = model._scheme
        _expect(scheme in ("binary", "ovo", "ovr", "crammer_singer", "softmax"), "the scheme")
        _expect(scheme != "binary" or k == 2, "the scheme")
        _expect(scheme not in ("ovo", "ovr") or k > 2, "the scheme")
        problems = {"binary": 1, "ovo": k * (k - 1) // 2}.get(str(scheme), k)
        _expect(len(model.intercept_) == problems, "intercept_")
        if hasattr(model, "dual_coef_"):
            rows = k - 1 if scheme in ("binary", "ovo") else k
            _expect(model.dual_coef_.shape[0] == rows, "dual_coef_")
        weights = model._weights
        _expect(weights is None or len(weights) == problems, "the weights")
        if hasattr(model, "posterior_"):
            _expect(len(model.posterior_.mean) == problems, "the posterior")
        found = model._sigmoids if isinstance(model, MarginClassifier) else None
        if found is not None:
            columns = 1 if k == 2 else problems
            _expect(isinstance(found, Sigmoids), "the probabilities")
            for numbers in (found.slope, found.offset):
                _expect(_numbers(numbers, 1) and _finite(numbers), "the probabilities")
                _expect(numbers.shape == (columns,), "the probabilities")

    def _check_history(self) -> None:
        """Attributes that describe the fit: certificate, history, tuning."""
        model = self.model
        for name in ("gap_", "objective_"):
            _expect(_is_number(getattr(model, name)), name)
        if not hasattr(model, "posterior_"):
            shape = np.shape(model.gaps_)
            for name in ("gaps_", "objectives_", "_absolute_gaps"):
                found = getattr(model, name)
                _expect(_numbers(found, 1) and found.shape == shape and found.size > 0, name)
        else:
            _integer(model, "n_draws_", 0)
            for name in ("max_r_hat", "min_ess", "r_hat_objective", "ess_objective"):
                _expect(_is_number(model.diagnostics_[name]), "diagnostics_")
        _expect(isinstance(model.history_, list), "history_")
        wanted = ("round", "seconds", "objective", "gap", "support")
        for record in model.history_:
            _expect(isinstance(record, dict), "history_")
            _expect(all(_is_number(record.get(name)) for name in wanted), "history_")
            for name in ("parts", "largest_part", "smallest_part"):
                _expect(_is_number(record.get(name, 0)), "history_")
        if hasattr(model, "tuning_"):
            self._check_tuning(model.tuning_)

    def _check_tuning(self, found: dict[str, Any]) -> None:
        names, settings = found["names"], found["settings"]
        _expect(isinstance(names, list) and isinstance(settings, list), "tuning_")
        _expect(len(settings) > 0, "tuning_")
        for setting in settings:
            _expect(isinstance(setting, list) and len(setting) == len(names), "tuning_")
        for name in ("mean", "deviation"):
            _expect(_numbers(found[name], 1) and len(found[name]) == len(settings), "tuning_")
        splits = found["splits"]
        _expect(_integers(splits) and splits.shape == (len(settings),), "tuning_")
        _expect(isinstance(found["metric"], str), "tuning_")
        for record in found.get("course", []):
            _expect(isinstance(record, list) and len(record) == 3, "tuning_")
            _expect(all(_is_number(value) for value in record), "tuning_")

    def _check_prediction(self) -> None:
        """Predict a row of zeros."""
        row: Any = sparse.csr_matrix((1, self.d))
        if self.model._kernel.is_precomputed or self.d < 1000:
            row = np.zeros((1, self.d))
        nameless = copy.copy(self.model)  # the row has no feature names
        nameless.__dict__.pop("feature_names_in_", None)
        _expect(np.shape(nameless.predict(row)) == (1,), "a prediction")


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise _wrong(what)


def _wrong(what: str) -> ValueError:
    return ValueError(f"something is wrong with {what}")


def _integer(model: BaseEstimator, name: str, least: int) -> int:
    value = getattr(model, name)
    _expect(isinstance(value, int) and not isinstance(value, bool) and value >= least, name)
    return int(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _integers(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "iu"


def _numbers(array: object, dimensions: int = 2) -> bool:
    if not (isinstance(array, np.ndarray) or is_csr(array)):
        return False
    return len(array.shape) == dimensions and array.dtype.kind == "f"


def _finite(array: ArrayLike | Matrix) -> bool:
    return bool(np.isfinite(array.data if is_csr(array) else np.asarray(array)).all())
