"""The task of a search, and the rows of one split."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline

from margrave._sklearn import _check_method_params, _safe_split
from margrave.progress import Progress
from margrave.tuning.folds import Layout, Rows, Split
from margrave.tuning.plan import Setting, final_estimator
from margrave.typing import MatrixLike, VectorLike

Scores = float | dict[str, float]  # by one metric, or by several
Scorer = Callable[..., Scores]
Running = Callable[[Progress], None]


@dataclass(frozen=True)
class Task:
    """What all fits have in common: estimator, data, splits and scoring."""

    estimator: BaseEstimator
    X: MatrixLike
    y: VectorLike | None
    splits: list[Split]
    layouts: list[Layout | None]
    fit_params: dict[str, Any]
    score_params: dict[str, Any]
    scorer: Scorer
    error_score: float | str
    return_train_score: bool

    def sample(self, split: int, setting: Setting, running: Running) -> Sample:
        """The rows of a split for settings like this one; `running` gets the progress of fits."""
        del running  # of which this one needs none
        return take_sample(self, split, setting)

    def fitted(self, setting: Setting, sample: Sample, model: BaseEstimator, score: Scores) -> None:
        """Called with every model after it was scored."""


@dataclass
class Sample:
    """The rows of one split, prepared for settings with the same kernel and preceding steps."""

    split: int
    group: Hashable
    train: Rows
    test: Rows
    layout: Layout | None
    X_train: MatrixLike
    y_train: VectorLike | None
    X_test: MatrixLike
    y_test: VectorLike | None
    fit_params: dict[str, Any]
    before: Pipeline | None  # fitted steps before the kernel estimator
    final_train: MatrixLike  # the rows, transformed by these steps
    final_test: MatrixLike


def take_sample(task: Task, split: int, setting: Setting) -> Sample:
    """Take the rows of a split, and fit the steps before the kernel estimator to them."""
    layout = task.layouts[split]
    train, test = task.splits[split]
    if layout is not None:
        train = layout.order[layout.trained(split)]
    model = model_of(task, setting)
    X_train, y_train = _safe_split(model, task.X, task.y, train)
    X_test, y_test = _safe_split(model, task.X, task.y, test, train)
    fit_params = _check_method_params(task.X, params=task.fit_params, indices=train)
    before, final_train, final_test = None, X_train, X_test
    if isinstance(model, Pipeline):
        layout = None  # the steps transform the rows differently in every fold
        if final_estimator(model) is not None and len(model.steps) > 1 and not fit_params:
            before = Pipeline(model.steps[:-1])
            final_train = before.fit_transform(X_train, y_train)
            final_test = before.transform(X_test)
    return Sample(
        *(split, setting.kernel, train, test, layout, X_train, y_train, X_test, y_test),
        *(fit_params, before, final_train, final_test),
    )


def model_of(task: Task, setting: Setting) -> BaseEstimator:
    """Return the estimator with the parameters of a setting."""
    return clone(task.estimator).set_params(**clone(setting.params, safe=False))
