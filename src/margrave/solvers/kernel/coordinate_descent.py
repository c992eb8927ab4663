"""Plain coordinate descent on the dual, as in the ODM paper and many before it.

    for every row i, in a new random order each pass:
        beta_i = argmin of 1/2 beta'K beta + sum_j h_j(beta_j) over beta_i alone;   f += K_i change

The simplest solver that converges, and the baseline for the others: it uses the same kernel rows,
cache, threads and stopping rule (``cpp/coordinate_descent.hpp``). With the linear kernel it keeps
the weights w = X'beta instead of scores, which is fast on sparse rows (``cpp/linear_descent.hpp``).
"""

from __future__ import annotations

from collections.abc import Sequence

from sklearn.base import BaseEstimator

from margrave import _core
from margrave.problem import BaseProblem, Floats, Problem, Solution
from margrave.rounds import Core
from margrave.solvers.base import Settings, refuse_remote, refuse_unless
from margrave.solvers.kernel.descent import Kernels, descend
from margrave.solvers.linear.solve import descend_linear, is_linear


class CoordinateDescent(BaseEstimator):  # type: ignore[misc]
    """Coordinate descent, one row at a time.

    A free intercept is supported with the linear kernel only.

    Examples
    --------
    >>> from margrave import ODMClassifier
    >>> model = ODMClassifier(solver="cd").fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> model.solver_
    'cd'
    """

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems."""
        refuse_remote("cd", problems)
        if is_linear(problems):
            return descend_linear(problems, settings, starts)
        problems = refuse_unless("cd", problems, intercepts=("regularized", None))

        def core_of(
            problem: Problem, kernels: Kernels, precision: str, start: Floats | None, floor: float
        ) -> Core:
            rows = kernels.rows(precision, problem.offset)
            assert isinstance(rows, _core.KernelRows)
            dual = _core.DualProblem(
                problem.block_list, problem.loss.core(floor), problem.y, problem.C, start=start
            )
            return _core.CoordinateDescent(rows, dual, settings.seed)

        return descend(problems, settings, starts, core_of, "cd")
