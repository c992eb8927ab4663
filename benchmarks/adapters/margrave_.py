"""margrave's SVC: default tolerance (relative duality gap 1e-3), all cores."""

from __future__ import annotations

from typing import Any

from benchmarks.adapters import Result
from benchmarks.data import Data
from benchmarks.measure import timed
from benchmarks.problems import Problem
from margrave import SVC

PACKAGES = ("margrave", "numpy", "scipy", "scikit-learn")


def fit(problem: Problem, data: Data, form: str, limit: float | None = None) -> Result:
    data = data.in_form(form)
    options = problem.options.get("margrave", {})
    model = SVC(
        kernel="rbf", C=problem.C, gamma=problem.gamma, n_jobs=None, random_state=0, **options
    )
    model, cost = timed(lambda: model.fit(data.X, data.y), limit)
    return Result(model, cost, _certificate(model))


def score(
    problem: Problem, data: Data, form: str, model: Any, limit: float | None = None
) -> Result:
    X_new = data.in_form(form).X_new
    scores, cost = timed(lambda: model.decision_function(X_new), limit)
    return Result(scores, cost)


def _certificate(model: Any) -> dict[str, Any]:
    last = model.history_[-1] if model.history_ else {}
    return {
        "gap": float(model.gap_),
        "converged": bool(model.converged_),
        "iterations": int(model.n_iter_),
        "solver": str(model.solver_),
        "objective": float(model.objective_),
        # Counters of the solver, such as kernel_values.
        "last_round": {
            key: value.item() if hasattr(value, "item") else value
            for key, value in last.items()
            if not hasattr(value, "__len__") or isinstance(value, str)
        },
    }
