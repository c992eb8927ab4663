"""Cascade: only support vectors go up a binary tree, and from its top back to all leaves.

    leaves:   the rows, assigned at random
    node:     solve the support vectors of two nodes below; rows with a zero variable are dropped
    top:      certify on all rows; if that fails, every leaf gets the top's support vectors as well

One pass is not a solution of the whole problem: a row that a leaf dropped may be needed at the top.
With the feedback it comes back, each pass starts where the last one ended, and the dual never rises
(Graf, Cosatto, Bottou, Dourdanovic, Vapnik: Parallel Support Vector Machines: The Cascade SVM, NIPS
2004). For losses with hardly any zero variables (logistic, margin distribution) the top is as large
as the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from margrave.partitions import check_count, deal
from margrave.problem import BaseProblem, Floats, Problem, Solution
from margrave.solvers.base import Settings, check_integer, refuse_unless, unfinished
from margrave.solvers.divide.parts import Division, PartOptions, Rows
from margrave.solvers.whole import certify, solve_from

_LEAF_ROWS = 5000  # about
_MOST_LEAVES = 64
_ROUGH = 1e-2  # gap of the nodes of the first pass


class Cascade(BaseEstimator):  # type: ignore[misc]
    """A binary tree through which support vectors pass, with feedback until all rows certify.

    Parameters
    ----------
    leaves : int, optional
        Number of parts at the bottom; by default parts of about 5,000 rows.
    passes : int, optional
        Largest number of passes; the model is then returned with its gap on all rows. By default as
        many as the tolerance needs.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from margrave import SVC
    >>> from margrave.solvers import Cascade
    >>> X, y = make_moons(400, noise=0.2, random_state=0)
    >>> model = SVC(solver=Cascade(leaves=4)).fit(X, y)
    >>> model.converged_, model.certificate_
    (True, 'full')
    """

    def __init__(self, leaves: int | None = None, passes: int | None = None) -> None:
        self.leaves = leaves
        self.passes = passes

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems, one after the other."""
        problems = refuse_unless("cascade", problems)
        check_integer("leaves", self.leaves, 1)
        check_integer("passes", self.passes, 1)
        check_count(self.leaves or 1, problems[0].data.n_rows)
        solutions = []
        for number, problem in enumerate(problems):
            start = None if starts is None else starts[number]
            where = f"problem {number + 1} of {len(problems)}, " if len(problems) > 1 else ""
            solutions.append(self._solve(problem, settings, start, where))
        return solutions

    def _solve(
        self, problem: Problem, settings: Settings, start: Floats | None, where: str
    ) -> Solution:
        leaves = self._leaves(problem.n_rows, settings.seed)
        tree = _Tree(problem, settings, where)
        top, done, stop = None, 0, settings.is_over
        if start is not None:
            (top,) = certify([problem], settings, [start])
        while not stop and (top is None or top.gap > settings.tol):
            if self.passes is not None and done >= self.passes:
                break
            before, done = top, done + 1
            (top,) = certify([problem], settings, [tree.climb(leaves, top, done)])
            stop = tree.report(top, done) or settings.is_over
            if before is not None and top.dual >= before.dual - 1e-13 * abs(before.dual):
                break  # no further change: the whole problem is solved directly
        if top is None or (self.passes is None and top.gap > settings.tol and not stop):
            best = None if top is None else [top.beta]
            return solve_from([problem], settings, best, "cascade", done)[0]
        return unfinished(top, settings, "cascade", done)

    def _leaves(self, n_rows: int, seed: int) -> list[Rows]:
        leaves = self.leaves
        if leaves is None:
            wanted = min(_MOST_LEAVES, max(2, n_rows // _LEAF_ROWS))
            leaves = 2 ** round(np.log2(wanted))
        # a pair of small classes may have fewer rows than there are leaves
        return deal(np.zeros(n_rows, dtype=np.int64), min(leaves, n_rows), seed).rows


class _Tree:
    """One problem's nodes, level by level."""

    def __init__(self, problem: Problem, settings: Settings, where: str) -> None:
        self.problem, self.settings, self.where = problem, settings, where
        self.division = Division([problem], settings, "cascade", boxed=False)

    def climb(self, leaves: list[Rows], top: Solution | None, number: int) -> Floats:
        """From the leaves, which get the last top's support vectors, to the next top.

        If stopped on the way, returns the mean of the nodes' solutions.
        """
        beta = np.zeros(self.problem.n_rows) if top is None else top.beta
        support = np.flatnonzero(beta)
        nodes = [np.union1d(leaf, support) for leaf in leaves]
        starts = [None if top is None else beta[rows] for rows in nodes]
        shares = [float(self.problem.C[rows].sum() / self.problem.C.sum()) for rows in leaves]
        rough = top is None
        while True:
            last = len(nodes) == 1
            tol = self.settings.tol if last or not rough else max(_ROUGH, self.settings.tol)
            tasks = [
                [(self._node(rows, share if rough else 1.0), start)]
                for rows, share, start in zip(nodes, shares, starts, strict=True)
            ]
            # slightly better than required, so that rounding does not cost another pass
            found = self.division.run(tasks, PartOptions(0.5 * tol, thorough=last or not rough))
            locals_ = [local for (local,) in found if local is not None]
            complete = len(locals_) == len(found)
            if complete:
                betas = [local.beta for local in locals_]
            else:  # no time to evaluate all starts, which then are better
                betas = [start for start in starts if start is not None]
            if complete and not last:
                self._report_level(number, nodes, locals_)
            if last or self.settings.is_over or not complete:
                beta = np.zeros(self.problem.n_rows)
                for rows, values, share in zip(nodes, betas, shares, strict=True):
                    beta[rows] += share / sum(shares) * values
                return beta
            nodes, starts, shares = _merged(nodes, betas, shares)

    def _node(self, rows: Rows, share: float) -> Problem:
        """The problem on some rows that represent a share of all."""
        node = self.problem.restrict(rows)
        if self.problem.loss.is_averaged:  # a mean over rows: scale C up to all rows
            return replace(node, C=node.C / share)
        return replace(node, total=node.total * share) if node.total > 0.0 else node

    def _report_level(self, number: int, nodes: list[Rows], locals_: list[Any]) -> None:
        objective = sum(local.objective for local in locals_)
        dual = sum(local.dual for local in locals_)
        self.settings.progress.report(
            objective=objective,
            dual=dual,
            gap=(objective + dual) / max(abs(objective), abs(dual), 1e-300),
            support=int(sum(np.count_nonzero(local.beta) for local in locals_)),
            where=f"{self.where}pass {number}, {len(nodes)} parts",
            certified=False,
            certificate="blocks",
            round=number - 1,
            kernel_values=self.division.kernel_values,
            parts=len(nodes),
        )

    def report(self, top: Solution, number: int) -> bool:
        """Report the figures of the whole problem; True to stop."""
        return self.settings.progress.report(
            objective=top.objective,
            dual=top.dual,
            gap=top.gap,
            support=int(np.count_nonzero(top.beta)),
            where=f"{self.where}pass {number}, all rows",
            round=number,
            kernel_values=self.division.kernel_values,
        )


def _merged(
    nodes: list[Rows], betas: list[Floats], shares: list[float]
) -> tuple[list[Rows], list[Floats | None], list[float]]:
    """Pairs of nodes without the rows of zero variables, and the mean of their variables.

    The mean is a point of the box with the sum that both have, and by convexity no worse than they
    are on average.
    """
    rows, starts, together = [], [], []
    for first in range(0, len(nodes), 2):
        pair = range(first, min(first + 2, len(nodes)))
        kept = [nodes[k][betas[k] != 0.0] for k in pair]
        union = np.unique(np.concatenate(kept))
        if len(union) == 0:  # no variable is nonzero: any row will do
            union = nodes[first][:1]
        share = sum(shares[k] for k in pair)
        start = np.zeros(len(union))
        for k, own in zip(pair, kept, strict=True):
            start[np.searchsorted(union, own)] += shares[k] / share * betas[k][betas[k] != 0.0]
        rows.append(union)
        starts.append(start)
        together.append(share)
    return rows, list(starts), together
