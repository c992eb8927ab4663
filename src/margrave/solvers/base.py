"""What a solver gets besides the problems, and what it has to offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from margrave.problem import Floats, Problem, Solution
from margrave.progress import Progress


@dataclass(frozen=True)
class Settings:
    """Tolerance, budgets and progress of one fit.

    ``tol`` is the relative duality gap, ``memory`` the bytes for caches and buffers beyond the
    data.
    """

    tol: float
    memory: int
    threads: int
    seed: int
    progress: Progress


class Solver(Protocol):
    """A strategy; its constructor's parameters are the strategy's own."""

    def solve(
        self,
        problems: Sequence[Problem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems, which share one data set, from `starts` if given."""
        ...


def check_start(problem: Problem, start: Floats) -> None:
    """Raise for a start that is no point; one outside the box is projected by the solvers."""
    if len(start) != problem.n_rows:
        raise ValueError(f"a start for {problem.n_rows} rows has length {len(start)}")
    if not np.isfinite(start).all():
        raise ValueError("a start must be finite, got NaN or infinity")
