"""One measurement in a process of its own.

    python -m benchmarks.worker < task.json

The task names problem, library and form; the last line of the output is the measurement as JSON.
A fresh process per measurement keeps thread pools, memory peaks and caches apart.
"""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import held_out
from benchmarks.adapters import Result, adapter, fit, score
from benchmarks.data import Data
from benchmarks.linear_objective import linear_objective
from benchmarks.objective import objective, score_error
from benchmarks.problem import Problem
from benchmarks.problems import PROBLEMS


@dataclass(frozen=True)
class Task:
    problem: str
    library: str
    form: str
    limit: float | None = None  # seconds of the timed part; beyond it the process is ended
    model_file: str | None = None  # where the fitted model is kept for a problem that scores
    options: dict[str, Any] = field(default_factory=dict)  # further parameters of the estimator
    checked: bool = True  # whether objective and predictions are checked after the timed part
    tiny: bool = False
    generated: bool = False


def measure(task: Task) -> dict[str, Any]:
    problem = PROBLEMS[task.problem].tiny() if task.tiny else PROBLEMS[task.problem]
    data = problem.load(task.generated)
    # A first fit of a few rows loads what is loaded lazily and starts the threads.
    first = fit(task.library, problem, data.head(), task.form)
    if problem.timed == "fit":
        result = fit(task.library, problem, data, task.form, task.limit, task.options)
        model = result.value
        _keep(model, task.model_file)
        checks = _checks_of_fit(problem, model, data, task.form) if task.checked else {}
    else:
        score(first.value, data.head(), task.form)
        model = _kept_or_fitted(problem, data, task)
        result = score(model, data, task.form, task.limit)
        checks = _checks_of_scores(problem, model, data, result.value) if task.checked else {}
    packages = adapter(task.library).PACKAGES
    return {
        "form": task.form,
        "seconds": result.cost.seconds,
        "memory_beyond_data": result.cost.memory_beyond,
        "cost": asdict(result.cost),
        "support_vectors": len(model.support_) if hasattr(model, "support_") else None,
        "checks": checks,
        "extras": result.extras,
        "versions": {package: _version(package) for package in packages},
    }


def _checks_of_fit(problem: Problem, model: Any, data: Data, form: str) -> dict[str, Any]:
    checks: dict[str, Any] = {}
    if problem.kernel == "linear" and problem.estimator != "NuSVC":
        checks |= linear_objective(model, data, problem.estimator, problem.parameters)
    elif hasattr(model, "dual_coef_"):  # else it is another kind of model, without this objective
        checks |= objective(model, data, problem.estimator, problem.parameters)
    if data.X_new is not None:
        checks["held_out"] = held_out.figure(model, data.in_form(form), problem.estimator)
    return checks


def _checks_of_scores(
    problem: Problem, model: Any, data: Data, scores: np.ndarray
) -> dict[str, Any]:
    assert data.y_new is not None
    labels = np.where(np.ravel(scores) > 0, 1, -1)
    return {
        "test_accuracy": float(np.mean(labels == data.y_new)),
        "score_error": score_error(model, data.X_new, scores, problem.parameters["gamma"]),
    }


def _keep(model: Any, file: str | None) -> None:
    if file is not None and not Path(file).exists():
        Path(file).write_bytes(pickle.dumps(model))


def _kept_or_fitted(problem: Problem, data: Data, task: Task) -> Any:
    """The model of an earlier fit in this run (a scratch file of our own), else a new one."""
    if task.model_file is not None and Path(task.model_file).exists():
        return pickle.loads(Path(task.model_file).read_bytes())
    # The limit of the task is for the scores.
    fitted: Result = fit(task.library, problem, data, task.form, problem.limit)
    _keep(fitted.value, task.model_file)
    return fitted.value


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def main() -> None:
    measurement = measure(Task(**json.load(sys.stdin)))
    print(json.dumps(measurement))


if __name__ == "__main__":
    main()
