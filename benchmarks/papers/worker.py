"""One measured fit in a process of its own.

    python -m benchmarks.papers.worker < task.json

The last line of the output is the measurement as JSON, those before it are early fits. A separate
process keeps thread pools and memory apart, and a fit that does not end can be killed.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from statistics import median
from typing import Any

import numpy as np

from benchmarks.adapters import adapter
from benchmarks.adapters.margrave_ import kernel_values, passes
from benchmarks.data import Data
from benchmarks.measure import Cost, timed
from benchmarks.papers.common import Paper

MOST_RECORDS = 60  # of a history, evenly spread
# A single short fit is noisy: below so many seconds it is repeated, and the median is used.
SHORT = 1.0
SHORT_REPEATS = 5
EARLY_SHARE = 0.5  # of the time limit: when early fits have had as much, there are no more


@dataclass(frozen=True)
class Task:
    paper: str  # name of its module
    dataset: str
    method: str
    parameters: dict[str, Any]
    rows: float | None = None  # so many rows to fit, or this share of them; None: all
    limit: float | None = None  # seconds of the fit, and of the prediction
    new_rows: int | None = None  # so many of the rows to test
    generated: bool = False


def _ignore(point: dict[str, Any]) -> None:
    """Ignore an early fit."""


def measure(task: Task, tell: Callable[[dict[str, Any]], None] = _ignore) -> dict[str, Any]:
    """Fit, and return the cost; `tell` is called with every early fit."""
    paper: Paper = importlib.import_module(f"benchmarks.papers.{task.paper}").PAPER
    method, dataset = paper.methods[task.method], paper.datasets[task.dataset]
    whole, form = dataset.load(task.generated), dataset.forms[method.library]
    data = first(whole, task.rows).in_form(form)
    data = replace(data, X_new=data.X_new[: task.new_rows], y_new=data.y_new[: task.new_rows])
    # Our estimators have time limits and keep their models; other processes have to be killed.
    own_limit = _ends(method.make(task.parameters), "time_limit", task.limit)
    patience = None if task.limit is None else (2.0 if own_limit else 1.0) * task.limit

    def fit(rounds: int | None = None) -> tuple[Any, Cost]:
        model = method.make(task.parameters).set_params(**own_limit)
        model.set_params(**_ends(model, "max_iter", rounds))
        return timed(lambda: model.fit(data.X, data.y), patience)

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        # A first fit of a few rows loads what is loaded lazily and starts the threads.
        head = data.head()
        method.make(task.parameters).fit(head.X, head.y).predict(head.X_new)
        points = []
        for point in _early(fit, method.early, data, task.limit):
            points.append(point)
            tell(point)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fits = [fit()]
        while fits[0][1].seconds < SHORT and len(fits) < SHORT_REPEATS:
            fits.append(fit())
    model = fits[-1][0]
    predicted, predict_cost = timed(lambda: model.predict(data.X_new), patience)
    found = {
        "rows": len(data.y),
        "whole_rows": len(whole.y),
        "test_rows": len(predicted),
        "features": int(data.X.shape[1]),
        "form": form,
        "seconds": median(each.seconds for _, each in fits),
        "repeats": [each.seconds for _, each in fits],
        "predict_seconds": predict_cost.seconds,
        "accuracy": _accuracy(predicted, data),
        "support_vectors": len(model.support_) if hasattr(model, "support_") else None,
        "memory_beyond_data": fits[0][1].memory_beyond,
        "warnings": sorted({str(warning.message) for warning in caught}),
        "versions": {package: _version(package) for package in adapter(method.library).PACKAGES},
        "early": points,
        **_state(model),
    }
    if hasattr(model, "certificate_"):
        found |= facts(model)
        if method.certified:
            found["full_gap"] = found["gap"]
            if model.certificate_ != "full":
                gap, _ = timed(lambda: model.certify(data.X, data.y), patience)
                found["full_gap"] = _finite(gap)
    return found


def _early(
    fit: Callable[[int], tuple[Any, Cost]],
    ladder: Sequence[int],
    data: Data,
    limit: float | None,
) -> Iterator[dict[str, Any]]:
    """Fits of so many rounds: seconds, accuracy and where the method is by then."""
    spent = 0.0
    for rounds in ladder:
        try:
            model, cost = fit(rounds)
        except ValueError:
            return  # there is nothing to be found, which the whole fit is going to say
        state = _state(model)
        if (state["iterations"] or 0) < rounds:
            return  # it needs no more
        accuracy = _accuracy(model.predict(data.X_new), data)
        yield {"seconds": cost.seconds, "accuracy": accuracy, **state}
        spent += cost.seconds
        if limit is not None and spent > EARLY_SHARE * limit:
            return


def _state(model: Any) -> dict[str, Any]:
    """Rounds, the objective where there is one, and the numbers sent where nodes send them."""
    sent = getattr(model, "numbers_", None)
    if hasattr(model, "history_"):
        sums = _numbers(model.history_[-1:], model.history_)
        sent = None if sums is None else sums[-1]
    objective = getattr(model, "objective_", None)
    return {
        "iterations": int(np.max(model.n_iter_)) if hasattr(model, "n_iter_") else None,
        "objective": None if objective is None else _finite(objective),
        "numbers": sent,
    }


def _accuracy(predicted: Any, data: Data) -> float:
    return 100.0 * float(np.mean(predicted == data.y_new))


def facts(model: Any) -> dict[str, Any]:
    """What a model of ours says of its fit."""
    history = model.history_
    counted = [record for record in history if "kernel_values" in record]
    # The parts of a strategy share one counter; the rounds on the whole problem, which tell their
    # steps, have their own.
    of_parts = [{**record, "where": ""} for record in counted if "steps" not in record]
    of_whole = [record for record in counted if "steps" in record]
    return {
        "gap": _finite(model.gap_),
        "certificate": str(model.certificate_),
        "converged": bool(model.converged_),
        "kernel_values": kernel_values(of_parts) + kernel_values(of_whole),
        "passes": passes(history),
        "history": some(history),
    }


def some(history: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Seconds, gap and place of a few records, always with the last; where there are `parts`, the
    gap is that of the parts by themselves."""
    step = max(1, math.ceil(len(history) / MOST_RECORDS))
    kept = list(reversed(history[::-1][::step]))
    return {
        "seconds": [round(float(record["seconds"]), 6) for record in kept],
        "gap": [_finite(record["gap"]) for record in kept],
        "objective": [_finite(record["objective"]) for record in kept],
        "where": [str(record.get("where", "")) for record in kept],
        "parts": [record.get("parts") for record in kept],
        "numbers": _numbers(kept, history),
    }


def _numbers(kept: Sequence[dict[str, Any]], history: Sequence[dict[str, Any]]) -> list[Any] | None:
    """How many numbers the parts of a problem had sent and received by then, if recorded."""
    if all("numbers" in record for record in kept):
        return [int(record["numbers"]) for record in kept]
    if not any("bytes" in record for record in history):
        return None
    sums = np.cumsum([record.get("bytes", 0) for record in history]) // 8
    return [int(sums[at]) for at, record in enumerate(history) if any(record is k for k in kept)]


def first(data: Data, rows: float | None) -> Data:
    """So many rows to fit, or this share of them; None: all."""
    if rows is None:
        return data
    count = min(len(data.y), int(rows * len(data.y)) if rows < 1 else int(rows))
    return replace(data, X=data.X[:count], y=data.y[:count])


def _ends(model: Any, name: str, value: float | None) -> dict[str, float]:
    """The parameter of this name, of the model or of the end of a pipeline, with a value."""
    if value is None:
        return {}
    return {each: value for each in model.get_params() if each.split("__")[-1] == name}


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return float(value) if math.isfinite(value) else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    done = measure(
        Task(**json.load(sys.stdin)), tell=lambda point: print(json.dumps(point), flush=True)
    )
    print(json.dumps(done))
