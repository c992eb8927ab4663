"""Solvers: one strategy per file, each `solve(problems, settings, starts) -> solutions`."""

from __future__ import annotations

from typing import Any

from margrave.problem import Solution
from margrave.solvers.base import Settings, Solver
from margrave.solvers.coordinate_descent import CoordinateDescent
from margrave.solvers.newton import Newton
from margrave.solvers.working_set import WorkingSet

SOLVERS: dict[str, type[Solver]] = {
    "exact": WorkingSet,
    "newton": Newton,
    "cd": CoordinateDescent,
}

__all__ = [
    "SOLVERS",
    "CoordinateDescent",
    "Newton",
    "Settings",
    "Solution",
    "Solver",
    "WorkingSet",
    "resolve_solver",
]


def resolve_solver(solver: Any) -> Solver:
    """Turn "auto", a name from SOLVERS or a solver object into a solver object."""
    if isinstance(solver, str):
        if solver == "auto":
            return WorkingSet()
        if solver not in SOLVERS:
            raise ValueError(
                f"unknown solver {solver!r}; known solvers: {', '.join(['auto', *SOLVERS])}"
            )
        return SOLVERS[solver]()
    if not callable(getattr(solver, "solve", None)):
        raise ValueError(f"a solver needs a method solve, got {solver!r}")
    chosen: Solver = solver
    return chosen
