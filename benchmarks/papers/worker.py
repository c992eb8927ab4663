"""One measured fit in a process of its own.

    python -m benchmarks.papers.worker < task.json

The last line of the output is the measurement as JSON. A process of its own keeps thread pools and
memory apart, and a fit that does not come to an end takes nothing with it.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import warnings
from collections.abc import Sequence
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
# A short fit says little by itself: below so many seconds it is repeated, and the median counts.
SHORT = 1.0
SHORT_REPEATS = 5


@dataclass(frozen=True)
class Task:
    paper: str  # name of its module
    dataset: str
    method: str
    parameters: dict[str, Any]
    rows: float | None = None  # so many rows to fit, or this share of them; None: all
    limit: float | None = None  # seconds of the fit
    generated: bool = False


def measure(task: Task) -> dict[str, Any]:
    paper: Paper = importlib.import_module(f"benchmarks.papers.{task.paper}").PAPER
    method, dataset = paper.methods[task.method], paper.datasets[task.dataset]
    whole, form = dataset.load(task.generated), dataset.forms[method.library]
    data = _first(whole, task.rows).in_form(form)
    # A machine of ours looks at the clock itself and keeps its model; others have to be ended.
    own_limit = {} if task.limit is None else _own_limit(method.make(task.parameters), task.limit)
    patience = None if task.limit is None else (2.0 if own_limit else 1.0) * task.limit

    def fit() -> tuple[Any, Cost]:
        model = method.make(task.parameters).set_params(**own_limit)
        return timed(lambda: model.fit(data.X, data.y), patience)

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        # A first fit of a few rows loads what is loaded lazily and starts the threads.
        head = data.head()
        method.make(task.parameters).fit(head.X, head.y).predict(head.X_new)
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
        "accuracy": 100.0 * float(np.mean(predicted == data.y_new)),
        "support_vectors": len(model.support_) if hasattr(model, "support_") else None,
        "memory_beyond_data": fits[0][1].memory_beyond,
        "warnings": sorted({str(warning.message) for warning in caught}),
        "versions": {package: _version(package) for package in adapter(method.library).PACKAGES},
    }
    if hasattr(model, "certificate_"):
        found |= facts(model)
        if method.certified:
            found["full_gap"] = found["gap"]
            if model.certificate_ != "full":
                gap, _ = timed(lambda: model.certify(data.X, data.y), patience)
                found["full_gap"] = _finite(gap)
    return found


def facts(model: Any) -> dict[str, Any]:
    """What a model of ours says of its fit."""
    history = model.history_
    counted = [record for record in history if "kernel_values" in record]
    # The parts of a strategy share one counter; the rounds on the whole problem, which tell their
    # steps, have their own.
    of_parts = [{**record, "where": ""} for record in counted if "steps" not in record]
    of_whole = [record for record in counted if "steps" in record]
    return {
        "objective": _finite(model.objective_),
        "gap": _finite(model.gap_),
        "certificate": str(model.certificate_),
        "converged": bool(model.converged_),
        "iterations": int(model.n_iter_),
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
    """How many numbers had gone to and from the parts of a problem by then, where that is told."""
    if all("numbers" in record for record in kept):
        return [int(record["numbers"]) for record in kept]
    if not any("bytes" in record for record in kept):
        return None
    sums = np.cumsum([record.get("bytes", 0) for record in history]) // 8
    return [int(sums[at]) for at, record in enumerate(history) if any(record is k for k in kept)]


def _first(data: Data, rows: float | None) -> Data:
    if rows is None:
        return data
    count = min(len(data.y), int(rows * len(data.y)) if rows < 1 else int(rows))
    return replace(data, X=data.X[:count], y=data.y[:count])


def _own_limit(model: Any, limit: float) -> dict[str, float]:
    """The parameter, of the model or of the end of a pipeline, that takes a limit of seconds."""
    return {name: limit for name in model.get_params() if name.endswith("time_limit")}


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return float(value) if math.isfinite(value) else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    print(json.dumps(measure(Task(**json.load(sys.stdin)))))
