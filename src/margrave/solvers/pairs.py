"""Pair swaps: points of two hulls as near to each other as can be.

    min over eta, xi   1/2 |A eta - B xi|^2,    sum eta = sum xi = 1,  0 <= eta_i, xi_i <= cap_i

A swap moves weight from one row of a class to another, the pair that violates optimality most:

    i = argmin over eta_i < cap_i of z'x_i,    j = argmax over eta_j > 0 of z'x_j
    t = z'(x_j - x_i) / |x_i - x_j|^2, or less where eta_i or eta_j reaches an end

It is the working-set solver with two sums to keep (``cpp/inner.hpp``, `swap`): thousands of rows at
a time on their own kernel block, kernel rows from the cache, many rows by way of the active ones,
and the bounds of `hull.py` in double precision at the end. nu-regression is the same on twice the
rows, once as points above the tube and once as points below, with the targets as a linear term.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.base import BaseEstimator

from margrave.problem import Floats, Solution
from margrave.solvers.base import Settings, check_integer, refuse_remote, refuse_unless
from margrave.solvers.block_minimization import is_elsewhere
from margrave.solvers.descent import descend
from margrave.solvers.hull import refuse_overlap
from margrave.solvers.working_set import core_of


class PairSwaps(BaseEstimator):  # type: ignore[misc]
    """Exact solver for hulls with any kernel: the machines with nu, and the hard margin.

    Parameters
    ----------
    size : int, optional
        Rows per round; by default up to 2048.

    Examples
    --------
    >>> from margrave import HardMarginSVC
    >>> from margrave.solvers import PairSwaps
    >>> model = HardMarginSVC(kernel="linear", solver=PairSwaps(size=2))
    >>> model.fit([[0.0], [1.0], [3.0], [4.0]], [0, 0, 1, 1]).solver_
    'pairs'
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = size

    def solve(
        self,
        problems: Sequence[Any],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems."""
        check_integer("size", self.size, 2)
        refuse_unless("pairs", problems, ("free",), ("hull",))
        refuse_remote("pairs", problems)
        if is_elsewhere(problems, settings):
            raise ValueError(
                "the solver 'pairs' works on this machine; on workers elsewhere hulls have"
                " solver='gilbert' and 'saddle' with the linear kernel"
            )
        solutions = descend(problems, settings, starts, core_of, "pairs", self.size)
        return refuse_overlap(problems, solutions)
