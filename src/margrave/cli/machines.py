"""From command-line options to estimators: create, train, evaluate, save and load them."""

from __future__ import annotations

import ast
import math
import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from margrave.estimators import load_libsvm_model, save_libsvm_model
from margrave.estimators._files import estimators, load_with_notes, save
from margrave.io.libsvm_model import is_libsvm_model
from margrave.io.model_file import is_model

# in the order of LIBSVM's numbers
TYPES = ("SVC", "NuSVC", "OneClassSVM", "SVR", "NuSVR")
KERNELS = ("linear", "poly", "rbf", "sigmoid", "precomputed")
NO_PROBABILITIES = (
    "-b 1 is not supported: for probabilities use margrave train -s KernelLogisticRegression, or"
    " calibrate with sklearn.calibration.CalibratedClassifierCV in Python"
)


def make(kind: str, given: dict[str, Any], strict: bool = True) -> Any:
    """Create an estimator by LIBSVM's number or by name; parameters that are None were not given.

    A parameter that the estimator does not have is an error, or ignored if not `strict`.
    """
    listed = estimators()
    name = TYPES[int(kind)] if kind in {"0", "1", "2", "3", "4"} else kind
    names = {key.lower(): key for key in listed}
    if name.lower() not in names:
        raise ValueError(f"unknown estimator {name!r}; available are {', '.join(listed)}")
    model = listed[names[name.lower()]]()
    known = model.get_params(deep=False)
    wanted = {key: value for key, value in given.items() if value is not None}
    foreign = [key for key in wanted if key not in known]
    if foreign and strict:
        raise ValueError(
            f"{type(model).__name__} has no parameter {foreign[0]!r}; it has {', '.join(known)}"
        )
    model.set_params(**{key: value for key, value in wanted.items() if key in known})
    model._validate_params()
    return model


def kernel_name(kernel: str) -> str:
    """A kernel by LIBSVM's number or by name."""
    return KERNELS[int(kernel)] if kernel in {"0", "1", "2", "3", "4"} else kernel


def word_or_number(text: str) -> Any:
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


def class_weights(weights: list[str], y: Any) -> dict[Any, float] | None:
    """Parse weights LABEL=NUMBER, with labels of the type that they have in the data."""
    labels = {_text(label): label for label in np.unique(y).tolist()}
    found = {}
    for text in weights:
        label, value = assignment(text, "-w")
        number = word_or_number(value)
        if not isinstance(number, (int, float)) or not math.isfinite(number) or number <= 0:
            raise ValueError(f"the weight of label {label} must be positive, got {value!r}")
        as_number = word_or_number(label)
        known = _text(float(as_number)) if isinstance(as_number, (int, float)) else label
        if known not in labels:
            raise ValueError(f"there is a weight for label {label}, which is not in the data")
        found[labels[known]] = float(number)
    return found or None


def _text(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def make_scaler(scale: str, X: Any) -> Any:
    """Create a scaler by name, None for "none"; sparse rows keep their zeros."""
    if scale not in ("none", "minmax", "standard"):
        raise ValueError(f"--scale must be minmax, standard or none, got {scale!r}")
    if scale == "none":
        return None
    if sparse.issparse(X):
        return MaxAbsScaler() if scale == "minmax" else StandardScaler(with_mean=False)
    return MinMaxScaler((-1.0, 1.0)) if scale == "minmax" else StandardScaler()


@dataclass
class Trained:
    """A trained estimator, alone and in a pipeline with its scaler."""

    model: Any
    estimator: Any
    seconds: float
    interrupted: bool


def train(estimator: Any, scaler: Any, X: Any, y: Any) -> Trained:
    """Fit an estimator to scaled rows; Ctrl-C keeps the model reached so far."""
    rows = X if scaler is None else scaler.fit_transform(X)
    begin, interrupted = time.perf_counter(), False
    try:
        estimator.fit(rows, y)
    except KeyboardInterrupt:
        if not hasattr(estimator, "gap_"):
            raise
        interrupted = True
    seconds = time.perf_counter() - begin
    estimator.set_params(verbose=0, engine=None)  # progress bar and workers were for this fit only
    return Trained(behind(scaler, estimator), estimator, seconds, interrupted)


def behind(scaler: Any, estimator: Any) -> Any:
    """A pipeline of scaler and estimator, or the estimator alone."""
    return estimator if scaler is None else Pipeline([("scale", scaler), ("model", estimator)])


def cross_validate(estimator: Any, scaler: Any, X: Any, y: Any, folds: int, seed: int = 0) -> Any:
    """Cross-validated predictions of every row."""
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict

    if folds < 2:
        raise ValueError(f"cross-validation needs at least 2 folds, got {folds}")
    kind = StratifiedKFold if is_classifier(estimator) else KFold
    splits = kind(folds, shuffle=True, random_state=seed)
    quiet = clone(estimator).set_params(verbose=0)
    return cross_val_predict(behind(scaler, quiet), X, y, cv=splits)


# --- model files ---------------------------------------------------------------------------


def check_output(path: str) -> None:
    """Raise if a file cannot be written, before a long computation."""
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        raise IsADirectoryError(21, "is a directory", path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(2, "no such directory", folder)
    place = path if os.path.exists(path) and not os.path.isfile(path) else folder
    if not os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(13, "Permission denied", path)


def chosen_format(path: str, format: str, scale: str) -> str:
    """Format of a model file: as given, or according to the file name."""
    if format not in ("auto", "margrave", "libsvm", "liblinear"):
        raise ValueError(f"--format must be margrave, libsvm or liblinear, got {format!r}")
    if format == "auto":
        format = "libsvm" if path.endswith((".libsvm", ".model")) else "margrave"
    if format != "margrave" and scale != "none":
        raise ValueError(
            f"a {format} model file cannot contain a scaler: use --scale none or --format margrave"
        )
    return format


def write(model: Any, path: str, format: str, notes: dict[str, Any]) -> None:
    """Write a model file."""
    if format == "margrave":
        save(model, path, notes)
    else:
        save_libsvm_model(model, path, format="auto" if format == "libsvm" else format)


def read(path: str) -> tuple[Any, dict[str, Any], str]:
    """Read a model file of any format: the model, its notes, the name of the format."""
    if is_libsvm_model(path):
        model = load_libsvm_model(path)
        kind = "LIBSVM" if model._weights is None else "LIBLINEAR"
        return model, {"zero_based": False}, kind
    if not is_model(path):
        raise ValueError(f"{path}: not a model file of margrave, LIBSVM or LIBLINEAR")
    model, notes = load_with_notes(path)
    return model, notes, "margrave"


def final_estimator(model: Any) -> Any:
    """The estimator at the end of a pipeline, or the estimator itself."""
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


# --- figures -------------------------------------------------------------------------------


def figures(estimator: Any, y: Any, predicted: Any) -> dict[str, float]:
    """Metrics of predictions, by name."""
    from sklearn import metrics

    if is_classifier(estimator):
        return {
            "accuracy": float(metrics.accuracy_score(y, predicted)),
            "balanced accuracy": float(metrics.balanced_accuracy_score(y, predicted)),
            "F1 (mean of classes)": float(
                metrics.f1_score(y, predicted, average="macro", zero_division=0)
            ),
        }
    if hasattr(estimator, "offset_"):
        share = float(np.mean(np.asarray(predicted) == np.asarray(y)))
        return {"accuracy": share, "inliers": float(np.mean(np.asarray(predicted) > 0))}
    return {
        "mean squared error": float(metrics.mean_squared_error(y, predicted)),
        "mean absolute error": float(metrics.mean_absolute_error(y, predicted)),
        "R2": float(metrics.r2_score(y, predicted)) if len(y) > 1 else math.nan,
    }


def in_terms(estimator: Any, y: Any) -> Any:
    """Labels of a file, converted to the type of the model's classes."""
    classes = getattr(estimator, "classes_", None)
    if classes is None or classes.dtype.kind not in "US" or y.dtype.kind in "US":
        return y
    return np.array([_text(label) for label in y.tolist()])
