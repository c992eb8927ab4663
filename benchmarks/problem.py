"""The record of one benchmark problem: an estimator with its parameters on some rows of a data set.

The records themselves are in `problems.py` (rbf kernel) and `linear_problems.py` (linear kernel).
What each estimator minimises is in `objective.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import data
from benchmarks.data import FORMS, Data, Raw

ALL = ("margrave", "sklearn", "intelex")


@dataclass(frozen=True)
class Problem:
    """What is fitted, by whom, and what is timed."""

    name: str  # of the result file and of --only
    title: str  # in the table and the plot
    dataset: str  # of the archive
    prepare: Callable[[Raw, int | None, int], Data]
    parameters: Mapping[str, Any]  # of the estimator, for every library
    estimator: str = "SVC"  # name of the class
    kernel: str = "rbf"  # or "linear"
    rows: int | None = None  # None: all
    timed: str = "fit"  # or "score"
    new_rows: int = 0  # rows to score, or held out to see how well a fit predicts
    model: str = ""  # timed="score": the problem whose fitted models are used
    libraries: tuple[str, ...] = ALL
    forms: tuple[str, ...] = FORMS  # the fastest of these is found for each library
    # Extra parameters of one library.
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    repeats: Mapping[str, int] = field(
        default_factory=lambda: {"margrave": 5, "sklearn": 3, "intelex": 5}
    )
    limit: float = 1800.0  # seconds after which one fit is given up
    goals: Mapping[str, float] = field(default_factory=dict)  # times faster than the rival
    memory_goal: int | None = None  # bytes beyond the data

    def load(self, generated: bool = False) -> Data:
        raw = data.generate(self.dataset) if generated else data.read(self.dataset)
        return self.prepare(raw, self.rows, self.new_rows)

    def tiny(self) -> Problem:
        """The same problem on few rows: checks the harness, measures nothing."""
        options = {
            library: {**given, "time_limit": 1.0} if "time_limit" in given else given
            for library, given in self.options.items()
        }
        return replace(self, rows=200, new_rows=min(self.new_rows, 50), options=options)

    def describe(self) -> dict[str, Any]:
        """For the result file."""
        return {
            "name": self.name,
            "title": self.title,
            "dataset": self.dataset,
            "preparation": (self.prepare.__doc__ or self.prepare.__name__).strip(),
            "estimator": self.estimator,
            "kernel": self.kernel,
            **self.parameters,
            "rows": self.rows,
            "new_rows": self.new_rows,
            "timed": self.timed,
            "model": self.model,
            "options": {library: dict(o) for library, o in self.options.items()},
            "goals": dict(self.goals),
            "memory_goal": self.memory_goal,
        }
