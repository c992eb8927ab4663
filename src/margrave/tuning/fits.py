"""Fit one setting to the training rows of one split, and score it on the test rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from traceback import format_exc
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from margrave._sklearn import _check_method_params, _MultimetricScorer, _score
from margrave.estimators._base import KernelEstimator
from margrave.progress import Progress
from margrave.solvers import WorkingSet
from margrave.tuning.context import SplitContext
from margrave.tuning.folds import Rows, Store
from margrave.tuning.plan import Setting, final_estimator
from margrave.tuning.samples import Sample, Scores, Task, model_of
from margrave.tuning.starts import Start
from margrave.typing import MatrixLike, VectorLike

# solvers that accept problems on some blocks of the data; the others divide the rows themselves
_SHARING = ("auto", "exact", "newton", "cd")

Result = dict[str, Any]


@dataclass(frozen=True)
class Resources:
    """What a worker provides for a fit: kernel values, threads, memory, and a way to stop it."""

    store: Store
    threads: int
    memory: int | None
    running: Callable[[Progress], None]


def fit_and_score(
    task: Task,
    setting: Setting,
    split: int,
    sample: Sample | None,
    resources: Resources,
    start: Start | None,
    coarse: float,
) -> tuple[Result, Sample | None, Start | None]:
    """Fit to a gap of `coarse` or the estimator's own `tol`, if larger, and score.

    Also returns the sample and the solution, which the next fit can use.
    A fit that fails gets the error score, as in scikit-learn.
    """
    begin = time.perf_counter()
    found = None
    result: Result = {"fit_error": None, "gap": np.nan, "score_time": 0.0, "rough": False}
    result["n_test_samples"] = len(task.splits[split][1])
    try:
        if sample is None or sample.split != split or sample.group != setting.kernel:
            sample = task.sample(split, setting, resources.running)
        model = model_of(task, setting)
        final, context = final_estimator(model), None
        if final is not None:
            context = _attach_context(final, sample, resources, start, coarse)
            result["rough"] = context.rough
        if sample.before is not None and final is not None:
            _fit(final, sample.final_train, sample.y_train, {})
            model.steps[:-1] = sample.before.steps
        else:
            _fit(model, sample.X_train, sample.y_train, sample.fit_params)
        found = None if context is None else context.found
        result["gap"] = np.nan if final is None else final.gap_
    except Exception:
        if task.error_score == "raise":
            raise
        result["fit_error"], result["fit_time"] = format_exc(), time.perf_counter() - begin
        result.update(_error_scores(task))
        return result, sample, None
    result["fit_time"] = time.perf_counter() - begin
    begin = time.perf_counter()
    result["test_scores"] = _scores(task, model, sample.X_test, sample.y_test, sample.test)
    result["score_time"] = time.perf_counter() - begin
    if task.return_train_score:
        result["train_scores"] = _scores(task, model, sample.X_train, sample.y_train, sample.train)
    task.fitted(setting, sample, model, result["test_scores"])
    return result, sample, found


def _attach_context(
    final: KernelEstimator, sample: Sample, resources: Resources, start: Start | None, coarse: float
) -> SplitContext:
    """Give an estimator its threads and memory, kernel values, and a start."""
    own = final.get_params(deep=False)
    tol = max(own.get("tol", 0.0), coarse)
    given = {"tol": tol, "n_jobs": resources.threads, "memory_limit": resources.memory}
    final.set_params(**{name: value for name, value in given.items() if name in own})
    solver = own.get("solver")
    store = resources.store if isinstance(solver, WorkingSet) or solver in _SHARING else None
    context = SplitContext(sample, store, start, resources.running, rough=tol > own.get("tol", tol))
    final._context = context
    return context


def _fit(model: BaseEstimator, X: MatrixLike, y: VectorLike | None, params: dict[str, Any]) -> None:
    if y is None:
        model.fit(X, **params)
    else:
        model.fit(X, y, **params)


def _scores(
    task: Task, model: BaseEstimator, X: MatrixLike, y: VectorLike | None, rows: Rows
) -> Scores:
    params = _check_method_params(task.X, params=task.score_params, indices=rows)
    scores: Scores = _score(model, X, y, task.scorer, params, task.error_score)
    return scores


def _error_scores(task: Task) -> Result:
    assert isinstance(task.error_score, Real)
    error: Scores = task.error_score
    if isinstance(task.scorer, _MultimetricScorer):
        error = dict.fromkeys(task.scorer._scorers, task.error_score)
    return {"test_scores": error, **({"train_scores": error} if task.return_train_score else {})}
