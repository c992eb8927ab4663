"""The libraries that are compared, each behind the same two functions.

The adapter of library ``name`` is the module ``benchmarks.adapters.<name>_`` with

    PACKAGES                                          distributions whose versions are recorded
    fit(problem, data, form, limit=None) -> Result    a fitted model
    score(problem, data, form, model, limit=None) -> Result    scores of data.X_new

Both convert ``data`` to ``form`` first and time only the library's own work. Only the measuring
process imports an adapter, and only one, so libraries cannot influence each other.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from benchmarks.data import Data
from benchmarks.measure import Cost
from benchmarks.problems import Problem


@dataclass(frozen=True)
class Library:
    title: str
    module: str  # what must be importable


LIBRARIES = {
    "margrave": Library("margrave", "margrave"),
    "sklearn": Library("scikit-learn", "sklearn"),
    "intelex": Library("scikit-learn-intelex", "sklearnex"),
}


@dataclass(frozen=True)
class Result:
    value: Any  # the fitted model, or the scores
    cost: Cost
    extras: dict[str, Any] = field(default_factory=dict)  # what the library says about the fit


class Adapter(Protocol):
    PACKAGES: tuple[str, ...]

    def fit(
        self, problem: Problem, data: Data, form: str, limit: float | None = None
    ) -> Result: ...

    def score(
        self, problem: Problem, data: Data, form: str, model: Any, limit: float | None = None
    ) -> Result: ...


def adapter(library: str) -> Adapter:
    return cast(Adapter, importlib.import_module(f"benchmarks.adapters.{library}_"))


def is_installed(library: str) -> bool:
    return importlib.util.find_spec(LIBRARIES[library].module) is not None
