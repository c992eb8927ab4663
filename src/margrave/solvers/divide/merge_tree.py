"""SODM: parts that each resemble the whole, merged in a tree.

    part k of n_k rows:   beta_k = argmin of the problem on its rows, weights C scaled up by n / n_k
    merge p parts of n_k rows into one of n:   start from  (n_k / n) beta_k
    until the gap of the *whole* problem there is small enough, or one part is left

By convexity the scaled variables are at least as good for the merged part as its children were on
average, so each level starts better than the last. Concatenated without scaling, as printed in the
paper (which then stops at p parts), the model of a merged part would be the sum of p models, each
of the right size (Wang, Cao, Zhang, Shi, Jin: Scalable Optimal Margin Distribution Machine).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from sklearn.base import BaseEstimator

from margrave import _core
from margrave.models import Expansion
from margrave.partitions import Partition, Parts, check_count, resolve_partition
from margrave.problem import BaseProblem, Floats, Problem, Solution, is_single
from margrave.rows import loaded
from margrave.solvers.base import Settings, check_integer, unfinished
from margrave.solvers.divide.parts import Division, PartOptions
from margrave.solvers.whole import certify, solve_from

_PART_ROWS = 3000  # of the first level, about
_FEWEST_ROWS = 8
_LOCAL_TOL = 1e-2
_SAMPLE = 1000  # rows from which the gap of the whole problem is estimated
_MARGIN = 1.5  # estimated gap, in units of tol, up to which the exact one is computed


class MergeTree(BaseEstimator):  # type: ignore[misc]
    """Parts that resemble the whole, merged level by level.

    Parameters
    ----------
    levels : int, optional
        The first level has `branching` ** `levels` parts; by default parts of about 3,000 rows.
        Levels whose parts would have fewer than 8 rows are left out.
    branching : int
        Parts that are merged into one.
    partition : {"stratified", "random", "kmeans", "kernel_kmeans", "dip"} or Partition
        How the rows are split; with "kmeans" parts do not resemble the whole.
    as_published : bool
        Follow the paper literally: concatenate without scaling, and stop at `branching` parts. The
        model is returned with the gap that it has then.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from margrave import ODMClassifier
    >>> from margrave.solvers import MergeTree
    >>> X, y = make_moons(400, noise=0.2, random_state=0)
    >>> model = ODMClassifier(lam=100.0, gamma=1.0, solver=MergeTree(levels=2)).fit(X, y)
    >>> model.converged_
    True
    """

    def __init__(
        self,
        levels: int | None = None,
        branching: int = 4,
        partition: str | Partition = "stratified",
        as_published: bool = False,
    ) -> None:
        self.levels = levels
        self.branching = branching
        self.partition = partition
        self.as_published = as_published

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems."""
        division = Division(problems, settings, "sodm")
        parts = self._split(division)
        if starts is not None or parts is None:
            return solve_from(problems, settings, starts, "sodm", 0)
        options = PartOptions(
            max(_LOCAL_TOL, settings.tol), own_weights=True, as_published=self.as_published
        )
        betas, solutions, done = None, None, 0
        while len(parts) > 1:
            found = division.solve(parts, betas, options)
            if found is None:  # no time
                break
            done += 1
            solutions = [replace(one, combine="sum", n_iter=done) for one in found]
            betas = [solution.beta for solution in solutions]
            if division.keep(solutions, done, "merging"):
                return solutions
            if self.as_published and len(parts) <= self.branching:
                return _as_they_are(problems, settings, betas, done)
            if not self.as_published and _may_be_solved(problems, betas, settings):
                certified = _as_they_are(problems, settings, betas, done)
                if all(solution.gap <= settings.tol for solution in certified):
                    return certified
            parts = Parts(parts.label // self.branching)
        if solutions is not None and settings.is_over:
            division.keep(solutions, done, "stopped")
            return solutions
        return solve_from(problems, settings, betas, "sodm", done, solutions)

    def _split(self, division: Division[BaseProblem]) -> Parts | None:
        """Parts of the first level; None if the rows are too few for any, or the time is over."""
        check_integer("levels", self.levels, 1)
        check_integer("branching", self.branching, 2)
        partition, n_rows = resolve_partition(self.partition), division.data.n_rows
        levels = self.levels
        if levels is None:
            levels = max(1, round(math.log(max(1.0, n_rows / _PART_ROWS), self.branching)))
        elif levels > math.log(n_rows, self.branching):
            check_count(self.branching ** min(levels, 30), n_rows)
        while levels > 0 and self.branching**levels * _FEWEST_ROWS > n_rows:
            levels -= 1
        if levels == 0:
            return None
        return division.split(partition, self.branching**levels, division.settings.seed)


def _as_they_are(
    problems: Sequence[BaseProblem], settings: Settings, betas: list[Floats], done: int
) -> list[Solution]:
    """Certify the variables for the whole problem without improving them."""
    certified = certify(problems, settings, betas)
    for solution in certified:
        settings.progress.report(
            objective=solution.objective,
            dual=solution.dual,
            gap=solution.gap,
            support=int(np.count_nonzero(solution.beta)),
            where="all rows",
            round=done,
        )
    return [unfinished(one, settings, "sodm", done) for one in certified]


def _may_be_solved(
    problems: Sequence[BaseProblem], betas: list[Floats], settings: Settings
) -> bool:
    """Whether, estimated from a sample of rows, the whole problem's gap may be small enough."""
    return all(
        is_single(problem) and _guessed_gap(problem, beta, settings) <= _MARGIN * settings.tol
        for problem, beta in zip(problems, betas, strict=True)
    )


def _guessed_gap(problem: Problem, beta: Floats, settings: Settings) -> float:
    """The relative gap, with sums over all rows estimated from a sample."""
    rng = np.random.default_rng(settings.seed)
    n = problem.n_rows
    some = np.sort(rng.choice(n, min(n, _SAMPLE), replace=False))
    data, support = problem.data, np.flatnonzero(beta)
    at = problem.data_rows[support]
    points = at if data.kernel.is_precomputed else loaded(data.X[at])
    model = Expansion(points, beta[support, None], data.kernel, np.zeros(1), "float32")
    f = model.scores(loaded(data.X[problem.data_rows[some]]), settings.threads)[:, 0]
    f = f + (float(beta.sum()) if problem.intercept == "regularized" else 0.0)
    y, C = problem.y[some], problem.C[some]
    terms = _core.RowTerms(problem.loss.core(), y, C, _core.Team(1))
    b = terms.best_intercept(f, 0.0) if problem.intercept == "free" and problem.total == 0 else 0.0
    square, scale = float(beta[some] @ f), n / len(some)
    losses = float(problem.loss.core().value(y, C, f + b).sum())
    conjugate = float(problem.loss.core().conjugate(problem.y, problem.C, beta).sum())
    primal, dual = scale * (0.5 * square + losses), 0.5 * scale * square + conjugate
    return (primal + dual) / max(abs(primal), abs(dual), 1e-300)
