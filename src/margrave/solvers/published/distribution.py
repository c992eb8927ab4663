"""Parts with the same distribution of each class, and one solve of what they keep: DiP.

    clusters of each class, split evenly:   every part has the distribution of the whole
    part k:   solve it alone, keep its support vectors
    solve what all parts have kept;   all rows, from there

The published method is one pass without the last step (Singh, Roy, Mohan: DiP-SVM:
Distribution Preserving Kernel Support Vector Machine for Big Data, IEEE Transactions on Big Data,
2017); its gap on all rows then shows how far that is from a solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.base import BaseEstimator

from margrave.partitions import DistributionPreserving as Dealt
from margrave.problem import BaseProblem, Floats, Solution
from margrave.solvers.base import Settings, check_integer, refuse_unless, unfinished
from margrave.solvers.divide.parts import Division, PartOptions
from margrave.solvers.kernel.working_set import solve_rows
from margrave.solvers.whole import certify, solve_from

_PART_ROWS = 5000  # about
_LOCAL_TOL = 1e-2
_FEWEST_ROWS = 8


class DistributionPreserving(BaseEstimator):  # type: ignore[misc]
    """Parts of the same distribution, whose support vectors are solved together.

    Parameters
    ----------
    parts : int, optional
        Number of parts; by default parts of about 5,000 rows.
    clusters : int
        Of each class, each split evenly among the parts.
    finish : bool
        Whether all rows are solved at the end; else the model is that of the support vectors of the
        parts, with its gap on all rows.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from margrave import SVC
    >>> from margrave.solvers import DistributionPreserving
    >>> X, y = make_moons(400, noise=0.2, random_state=0)
    >>> SVC(solver=DistributionPreserving(parts=4)).fit(X, y).converged_
    True
    """

    def __init__(self, parts: int | None = None, clusters: int = 8, finish: bool = True) -> None:
        self.parts = parts
        self.clusters = clusters
        self.finish = finish

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems."""
        problems = refuse_unless("dip", problems)
        check_integer("clusters", self.clusters, 1)
        check_integer("parts", self.parts, 1)
        division = Division(problems, settings, "dip")
        count, n_rows = self.parts, division.data.n_rows
        if count is None:
            count = min(max(2, n_rows // _PART_ROWS), max(1, n_rows // _FEWEST_ROWS))
        if starts is not None:
            return solve_from(problems, settings, starts, "dip", 0)
        parts = division.split(Dealt(self.clusters), count, settings.seed)
        if parts is None:  # no time
            return solve_from(problems, settings, None, "dip", 0)
        averaged = all(problem.loss.is_averaged for problem in problems)
        options = PartOptions(max(_LOCAL_TOL, settings.tol), own_weights=averaged)
        found = division.solve(parts, None, options)
        assert found is not None  # a cold start needs no time
        solutions = [replace(one, combine="sum", n_iter=1) for one in found]
        if division.keep(solutions, 1, "parts"):
            return solutions
        betas = []
        for problem, one in zip(problems, solutions, strict=True):
            rows, tol = np.flatnonzero(one.beta), 0.5 * settings.tol
            kept = len(rows) and not settings.is_over
            betas.append(
                solve_rows(problem, one.beta, rows, settings, tol)[0] if kept else one.beta
            )
        if self.finish or settings.is_over:
            return solve_from(problems, settings, betas, "dip", 2, solutions)
        return [unfinished(one, settings, "dip", 2) for one in certify(problems, settings, betas)]
