"""LIBLINEAR's shortest run that ends near the optimum.

By default LIBLINEAR stops at its own tolerance, or after 1,000 iterations: often long after it is
close enough to the optimum, sometimes before. So it is timed twice: with its defaults, and with the
smallest ``max_iter`` whose primal objective lies within 1e-3 of the optimum, of which margrave's
dual value is a certified lower bound.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from benchmarks.results import Entry, certified_bound

MAX_ITER = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
NEAR = 1e-3  # of the primal objective; the tables name it


def search(
    measure: Callable[[int], Entry], default: Entry | None, certified: list[Entry]
) -> list[Entry]:
    """Runs of growing length, up to the first that is near the optimum, or to the end.

    ``measure`` makes a run of so many iterations. The path is always the same, so that runs of no
    fewer iterations than ``default``, the run with the default parameters, are that run.
    ``certified`` are the measurements whose dual values bound the optimum.
    """
    bound = certified_bound(certified)
    runs: list[Entry] = []
    if bound is None:
        return runs
    iterations = inf if default is None else default["extras"]["iterations"]
    for max_iter in MAX_ITER:
        run = default if default is not None and max_iter >= iterations else measure(max_iter)
        runs.append({**run, "max_iter": max_iter})
        if "error" in run:
            break
        primal = run["checks"]["primal"]
        runs[-1]["excess"] = (primal - bound) / primal
        if runs[-1]["excess"] <= NEAR or max_iter >= iterations:
            break
    return runs


def near(runs: list[Entry]) -> int | None:
    """The ``max_iter`` of the run that was searched; None if no run came near the optimum."""
    return next((run["max_iter"] for run in runs if run.get("excess", inf) <= NEAR), None)
