"""From command-line options to estimators: create, scale, train and cross-validate them."""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from margrave.cli.data import word_of
from margrave.estimators._base import KernelEstimator
from margrave.estimators._files import estimators
from margrave.estimators._margin import add_probabilities
from margrave.rows import Matrix, is_csr

Scaler: TypeAlias = MinMaxScaler | MaxAbsScaler | StandardScaler

# in the order of LIBSVM's numbers
TYPES = ("SVC", "NuSVC", "OneClassSVM", "SVR", "NuSVR")
KERNELS = ("linear", "poly", "rbf", "sigmoid", "precomputed")


def make(kind: str, given: Mapping[str, object], strict: bool = True) -> KernelEstimator:
    """Create an estimator by LIBSVM's number or by name; parameters that are None were not given.

    A parameter that the estimator does not have is an error, or ignored if not `strict`.
    """
    listed = estimators()
    name = TYPES[int(kind)] if kind in {"0", "1", "2", "3", "4"} else kind
    names = {key.lower(): key for key in listed}
    if name.lower() not in names:
        raise ValueError(f"unknown estimator {name!r}; available are {', '.join(listed)}")
    estimator: KernelEstimator = listed[names[name.lower()]]()
    known = estimator.get_params(deep=False)
    wanted = {key: value for key, value in given.items() if value is not None}
    foreign = [key for key in wanted if key not in known]
    if foreign and strict:
        raise ValueError(
            f"{type(estimator).__name__} has no parameter {foreign[0]!r}; it has {', '.join(known)}"
        )
    estimator.set_params(**{key: value for key, value in wanted.items() if key in known})
    estimator._validate_params()
    return estimator


def kernel_name(kernel: str) -> str:
    """A kernel by LIBSVM's number or by name."""
    return KERNELS[int(kernel)] if kernel in {"0", "1", "2", "3", "4"} else kernel


def word_or_number(text: str) -> str | float | None:
    """The value of a Python literal, or the text itself.

    >>> word_or_number("0.5"), word_or_number("scale"), word_or_number("None")
    (0.5, 'scale', None)
    """
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if value is None or isinstance(value, (bool, int, float, str)) else text


def assignment(text: str, option: str) -> tuple[str, str]:
    """Split NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"{option} needs NAME=VALUE, got {text!r}")
    return name, value


def class_weights(weights: list[str], y: NDArray[Any]) -> dict[Any, float] | None:
    """Parse weights LABEL=NUMBER, with labels of the type that they have in the data."""
    labels = {word_of(label): label for label in np.unique(y).tolist()}
    found = {}
    for text in weights:
        label, value = assignment(text, "-w")
        number = word_or_number(value)
        if not isinstance(number, (int, float)) or not math.isfinite(number) or number <= 0:
            raise ValueError(f"the weight of label {label} must be positive, got {value!r}")
        as_number = word_or_number(label)
        known = word_of(float(as_number)) if isinstance(as_number, (int, float)) else label
        if known not in labels:
            raise ValueError(f"there is a weight for label {label}, which is not in the data")
        found[labels[known]] = float(number)
    return found or None


def make_scaler(scale: str, X: Matrix) -> Scaler | None:
    """Create a scaler by name, None for "none"; sparse rows keep their zeros."""
    if scale not in ("none", "minmax", "standard"):
        raise ValueError(f"--scale must be minmax, standard or none, got {scale!r}")
    if scale == "none":
        return None
    if is_csr(X):
        return MaxAbsScaler() if scale == "minmax" else StandardScaler(with_mean=False)
    return MinMaxScaler((-1.0, 1.0)) if scale == "minmax" else StandardScaler()


@dataclass
class Trained:
    """A trained estimator, alone and in a pipeline with its scaler."""

    model: KernelEstimator | Pipeline
    estimator: KernelEstimator
    seconds: float
    interrupted: bool


def train(
    estimator: KernelEstimator,
    scaler: Scaler | None,
    X: Matrix,
    y: NDArray[Any],
    probabilities: bool = False,
) -> Trained:
    """Fit an estimator to scaled rows; Ctrl-C keeps the model reached so far."""
    rows = X if scaler is None else scaler.fit_transform(X)
    begin, interrupted = time.perf_counter(), False
    try:
        estimator.fit(rows, y)
    except KeyboardInterrupt:
        if not hasattr(estimator, "gap_"):
            raise
        interrupted = True
    model = with_scaler(scaler, estimator)
    if probabilities and not interrupted:
        try:
            add_probabilities(model, X, y)
        except KeyboardInterrupt:
            interrupted = True
    seconds = time.perf_counter() - begin
    estimator.set_params(verbose=0, engine=None)  # progress bar and workers were for this fit only
    return Trained(model, estimator, seconds, interrupted)


def check_probabilities(estimator: KernelEstimator) -> None:
    """Raise for an estimator that cannot be calibrated."""
    if not is_classifier(estimator):
        raise ValueError(f"{type(estimator).__name__} has no classes, and so no probabilities")


def with_scaler(scaler: Scaler | None, estimator: KernelEstimator) -> KernelEstimator | Pipeline:
    """A pipeline of scaler and estimator, or the estimator alone."""
    return estimator if scaler is None else Pipeline([("scale", scaler), ("model", estimator)])


def cross_validate(
    estimator: KernelEstimator,
    scaler: Scaler | None,
    X: Matrix,
    y: NDArray[Any],
    folds: int,
    seed: int = 0,
) -> NDArray[Any]:
    """Cross-validated predictions of every row."""
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict

    if folds < 2:
        raise ValueError(f"cross-validation needs at least 2 folds, got {folds}")
    kind = StratifiedKFold if is_classifier(estimator) else KFold
    splits = kind(folds, shuffle=True, random_state=seed)
    quiet = clone(estimator).set_params(verbose=0)
    predicted: NDArray[Any] = cross_val_predict(with_scaler(scaler, quiet), X, y, cv=splits)
    return predicted
