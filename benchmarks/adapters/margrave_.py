"""margrave's estimators: default tolerance (relative duality gap 1e-3), all cores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import margrave

PACKAGES = ("margrave", "numpy", "scipy", "scikit-learn")


def make(estimator: str, parameters: Mapping[str, Any]) -> Any:
    return getattr(margrave, estimator)(n_jobs=None, random_state=0, **parameters)


def facts(model: Any) -> dict[str, Any]:
    last = model.history_[-1] if model.history_ else {}
    return {
        "gap": float(model.gap_),
        "converged": bool(model.converged_),
        "iterations": int(np.sum(model.n_iter_)),
        "solver": str(model.solver_),
        "objective": float(model.objective_),
        "kernel_values": kernel_values(model.history_),
        "passes": passes(model.history_),
        # Counters of the solver.
        "last_round": {
            key: value.item() if hasattr(value, "item") else value
            for key, value in last.items()
            if not hasattr(value, "__len__") or isinstance(value, str)
        },
    }


def passes(history: Sequence[Mapping[str, Any]]) -> float | None:
    """Passes of a linear solver over the data; None for other solvers."""
    found = [float(record["passes"]) for record in history if "passes" in record]
    return found[-1] if found else None


def kernel_values(history: Iterable[Mapping[str, Any]]) -> int:
    """All that a fit computed. Each problem of the fit has a counter of its own, which starts anew
    when the solver goes from single to double precision."""
    total = 0
    counters: dict[str, int] = {}
    for record in history:
        problem = str(record.get("where", ""))
        now, before = int(record.get("kernel_values", 0)), counters.get(problem, 0)
        total += now - before if now >= before else now
        counters[problem] = now
    return total
