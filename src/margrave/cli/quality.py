"""Quality of predictions: metrics and confusion matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from sklearn import metrics
from sklearn.base import is_classifier, is_outlier_detector

from margrave.cli.data import text_of, word_of
from margrave.estimators._base import KernelEstimator


def figures(
    estimator: KernelEstimator, y: NDArray[Any], predicted: NDArray[Any]
) -> dict[str, float]:
    """Metrics of predictions, by name."""
    if is_classifier(estimator):
        return {
            "accuracy": float(metrics.accuracy_score(y, predicted)),
            "balanced accuracy": float(metrics.balanced_accuracy_score(y, predicted)),
            "F1 (mean of classes)": float(
                metrics.f1_score(y, predicted, average="macro", zero_division=0)
            ),
        }
    if is_outlier_detector(estimator):
        share = float(np.mean(predicted == y))
        return {"accuracy": share, "inliers": float(np.mean(predicted > 0))}
    return {
        "mean squared error": float(metrics.mean_squared_error(y, predicted)),
        "mean absolute error": float(metrics.mean_absolute_error(y, predicted)),
        "R2": float(metrics.r2_score(y, predicted)) if len(y) > 1 else math.nan,
    }


def labels_for(estimator: KernelEstimator, y: NDArray[Any]) -> NDArray[Any]:
    """Labels of a file, converted to the type of the model's classes."""
    has_names = is_classifier(estimator) and estimator.classes_.dtype.kind in "US"
    if has_names and y.dtype.kind not in "US":
        return np.array([word_of(label) for label in y.tolist()])
    return y


def confusion(y: NDArray[Any], predicted: NDArray[Any], most: int = 20) -> Table | str:
    """Confusion matrix as a table; for many classes, a report per class instead."""
    names = np.unique(np.concatenate([y, predicted]))
    texts = text_of(names).decode().splitlines()
    if len(names) > most:
        report: str = metrics.classification_report(y, predicted, zero_division=0)
        return report
    table = Table()
    table.add_column("true \\ predicted")
    for name in texts:
        table.add_column(name, justify="right")
    for name, row in zip(texts, metrics.confusion_matrix(y, predicted, labels=names), strict=True):
        table.add_row(name, *(f"{count:,}" for count in row))
    return table
