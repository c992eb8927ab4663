"""The libraries that are compared, each behind the same few names.

The adapter of library ``name`` is the module ``benchmarks.adapters.<name>_`` with

    PACKAGES                       distributions whose versions are recorded
    make(estimator, parameters)    an estimator that is not fitted yet, e.g. of "SVC"; the kernel is
                                   among the parameters
    facts(model)                   what the library says about the fit

`fit` and `score` here are the same for all: they convert the data to a form first and time only the
library's own work. Only the measuring process imports an adapter, and only one, so libraries cannot
influence each other.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from benchmarks.data import Data
from benchmarks.measure import Cost, timed
from benchmarks.problem import Problem


@dataclass(frozen=True)
class Library:
    title: str
    module: str  # what must be importable
    adapter: str  # the name of its adapter; variants of a library share one
    options: Mapping[str, Any] = field(default_factory=dict)  # what makes it a variant
    one_of: str = ""  # the library that the fastest of several variants represents


def _own(solver: str) -> Library:
    return Library(f'margrave, solver="{solver}"', "margrave", "margrave", {"solver": solver})


def _of_sklearn(solver: str) -> Library:
    title = f'scikit-learn, solver="{solver}"'
    return Library(title, "sklearn", "sklearn", {"solver": solver}, one_of="sklearn")


# LIBLINEAR cut short as soon as it is near the optimum: `shortest.py` finds the max_iter.
SHORTEST = "sklearn-shortest"

LIBRARIES = {
    "margrave": Library("margrave", "margrave", "margrave"),
    "sklearn": Library("scikit-learn", "sklearn", "sklearn"),
    "intelex": Library("scikit-learn-intelex", "sklearnex", "intelex"),
    **{f"margrave-{solver}": _own(solver) for solver in ("cd", "newton", "svrg", "dsvrg")},
    **{
        f"sklearn-{solver}": _of_sklearn(solver)
        for solver in ("lbfgs", "newton-cholesky", "newton-cg")
    },
    SHORTEST: Library("scikit-learn, shortest run within 1e-3", "sklearn", "sklearn"),
    "nystroem": Library("Nystroem(1000) + LogisticRegression", "sklearn", "nystroem"),
}
# Other libraries with the same estimators. The others are alternatives with a similar purpose.
RIVALS = ("sklearn", "intelex")


@dataclass(frozen=True)
class Result:
    value: Any  # the fitted model, or the scores
    cost: Cost
    extras: dict[str, Any] = field(default_factory=dict)  # what the library says about the fit


class Adapter(Protocol):
    PACKAGES: tuple[str, ...]

    def make(self, estimator: str, parameters: Mapping[str, Any]) -> Any: ...

    def facts(self, model: Any) -> dict[str, Any]: ...


def adapter(library: str) -> Adapter:
    name = LIBRARIES[library].adapter
    return cast(Adapter, importlib.import_module(f"benchmarks.adapters.{name}_"))


def is_installed(library: str) -> bool:
    return importlib.util.find_spec(LIBRARIES[library].module) is not None


def fit(
    library: str,
    problem: Problem,
    data: Data,
    form: str,
    limit: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> Result:
    """A fitted model; ``options`` are further parameters of this one fit."""
    data = data.in_form(form)
    parameters = {
        "kernel": problem.kernel,
        **problem.parameters,
        **LIBRARIES[library].options,
        **problem.options.get(library, {}),
        **(options or {}),
    }
    chosen = adapter(library)
    model = chosen.make(problem.estimator, parameters)
    with warnings.catch_warnings(record=True) as caught:  # kept instead of shown
        model, cost = timed(
            lambda: model.fit(data.X, data.y), limit, anonymous=form.endswith("mapped")
        )
    extras = chosen.facts(model)
    if caught:
        extras["warnings"] = sorted({str(warning.message) for warning in caught})
    return Result(model, cost, extras)


def score(model: Any, data: Data, form: str, limit: float | None = None) -> Result:
    """Scores of data.X_new."""
    X_new = data.in_form(form).X_new
    scores, cost = timed(lambda: model.decision_function(X_new), limit)
    return Result(scores, cost)
