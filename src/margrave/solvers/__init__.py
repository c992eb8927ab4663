"""Solvers: one strategy per file, each `solve(problems, settings, starts) -> solutions`.

auto.py       the choice behind solver="auto"; whole.py  solves all rows at once
base.py       the interface: Settings, Solver, checks of arguments
kernel/       exact solvers for any kernel
linear/       solvers for the linear kernel
divide/       parts of the rows first: DC-SVM, SODM
distributed/  rows on workers: PBM, the distributed working set
hull/         nu-SVM and hard margin
bayes/        Gibbs sampling
published/    methods kept for comparison
certificate/  rigorous bounds on the gap
columns.py    drops features that never occur;  order.py  puts rows that are close side by side
line_search.py  the exact step along a direction
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from margrave.problem import Solution
from margrave.solvers.auto import Auto
from margrave.solvers.base import Settings, Solver
from margrave.solvers.bayes.gibbs import Gibbs
from margrave.solvers.distributed.block_minimization import BlockMinimization
from margrave.solvers.divide.divide_and_conquer import DivideAndConquer
from margrave.solvers.divide.merge_tree import MergeTree
from margrave.solvers.hull.frank_wolfe import FrankWolfe
from margrave.solvers.hull.pairs import PairSwaps
from margrave.solvers.hull.saddle import Saddle
from margrave.solvers.kernel.coordinate_descent import CoordinateDescent
from margrave.solvers.kernel.newton import Newton
from margrave.solvers.kernel.working_set import WorkingSet
from margrave.solvers.linear.expectation_maximization import ExpectationMaximization
from margrave.solvers.linear.variance_reduced import VarianceReduced
from margrave.solvers.published.cascade import Cascade
from margrave.solvers.published.distribution import DistributionPreserving

SOLVERS: dict[str, Callable[[], Solver]] = {
    "exact": WorkingSet,
    "newton": Newton,
    "cd": CoordinateDescent,
    "dc": DivideAndConquer,
    "cascade": Cascade,
    "pbm": BlockMinimization,
    "sodm": MergeTree,
    "dip": DistributionPreserving,
    "svrg": partial(VarianceReduced, method="svrg"),
    "csvrg": partial(VarianceReduced, method="csvrg"),
    "dsvrg": partial(VarianceReduced, method="dsvrg"),
    "em": ExpectationMaximization,
    "gibbs": Gibbs,
    "pairs": PairSwaps,
    "gilbert": FrankWolfe,
    "saddle": Saddle,
}
# those that solve hull problems: NuSVC, NuSVR and HardMarginSVC
HULL_SOLVERS = {name: SOLVERS[name] for name in ("pairs", "pbm", "gilbert", "saddle", "exact")}

__all__ = [
    "HULL_SOLVERS",
    "SOLVERS",
    "BlockMinimization",
    "Cascade",
    "CoordinateDescent",
    "DistributionPreserving",
    "DivideAndConquer",
    "ExpectationMaximization",
    "FrankWolfe",
    "Gibbs",
    "MergeTree",
    "Newton",
    "PairSwaps",
    "Saddle",
    "Settings",
    "Solution",
    "Solver",
    "VarianceReduced",
    "WorkingSet",
    "resolve_solver",
]


def resolve_solver(solver: str | Solver) -> Solver:
    """Turn "auto", a name from SOLVERS or a solver object into a solver object."""
    if isinstance(solver, str):
        if solver == "auto":
            return Auto()
        if solver not in SOLVERS:
            raise ValueError(
                f"unknown solver {solver!r}; known solvers: {', '.join(['auto', *SOLVERS])}"
            )
        return SOLVERS[solver]()
    if not isinstance(solver, Solver):
        raise ValueError(f"a solver needs a method solve, got {solver!r}")
    return solver
