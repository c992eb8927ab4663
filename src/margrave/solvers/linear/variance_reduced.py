"""Stochastic gradients with reduced variance for linear models, on one node or on several.

    min over z   P(z) = 1/2 |z|^2 + sum_i loss_i(x_i'z) = mean of p_i(z),
                 p_i(z) = 1/2 |z|^2 + n loss_i(x_i'z),        the intercept last in z, one in x_i

Every epoch computes the full gradient at z0 and corrects the gradients of single rows with it:

    h = grad P(z0)                                                      all nodes, side by side
    z <- z - eta (grad p_i(z) - grad p_i(z0) + h)     for rows i of node 1, then of node 2, ...

svrg   one node, n rows drawn with replacement (Johnson and Zhang, 2013)
dsvrg  node after node, all rows of each once in a new random order: algorithm 2 of Wang, Cao,
       Zhang, Shi and Jin, "Scalable Optimal Margin Distribution Machine", after Lee et al., 2017.
       As printed, the nodes' rows are stratified, and a node takes a single row per epoch and never
       the same again, which stops far from the optimum; `as_published` runs it
csvrg  each row replaced by the nearest of a few landmarks, svrg on these weighted points. That is
       another problem: its optimum is returned with its gap in the true one, which it cannot close.
       The definition is this library's own: the method of this name (Tan, Zhang and Wang, 2019) is
       only cited there

With beta_i = -loss_i'(x_i'z0) the gradient is z0 - X'beta, beta is feasible in the dual, and the
duality gap is 1/2 |grad P(z0)|^2: every epoch begins with its certificate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from margrave import _core
from margrave.blocks import GradientBlock
from margrave.blocks.passes import Passes
from margrave.engines import Engine, Shards, resolve_engine
from margrave.losses import SMOOTH_LOSSES
from margrave.partitions import Partition, resolve_partition, split
from margrave.problem import BaseProblem, Floats, Problem, Solution
from margrave.rows import Matrix, RemoteRows
from margrave.solvers.base import (
    Settings,
    check_start,
    refuse_remote,
    refuse_unless,
    solver_of_all,
    stop_reason,
)
from margrave.solvers.published.landmarks import compressed

Rows = NDArray[np.int64]


METHODS = ("svrg", "csvrg", "dsvrg")
_EXPLODED = 1e6  # times the first objective: the steps are too long
_PATIENCE = 20  # epochs without a gap smaller by 1% or an objective smaller by 0.01%


class VarianceReduced(BaseEstimator):  # type: ignore[misc]
    """SVRG on one node, on several, or on landmarks, for smooth losses and the linear kernel.

    With a regularised intercept or none. Few epochs suffice where regularisation is strong; where
    it is weak, Newton's method needs far fewer passes. The history counts gradients of all rows as
    ``passes``: an epoch takes two, one for the whole and one for the steps.

    Parameters
    ----------
    method : {"dsvrg", "svrg", "csvrg"}, default="dsvrg"
        See the module.
    step : float, default=0.25
        Length of the steps over the longest that is safe for a single row, 1 / max_i L_i, where L_i
        bounds the second derivative of p_i. Up to 1 for random partitions.
    partitions : int, optional
        Nodes of "dsvrg"; by default as many as the engine has workers.
    partition : str or Partition, optional
        How "dsvrg" assigns the rows to its nodes: "random", "stratified" or another of
        :mod:`margrave.partitions`, or an object with a method `split`. By default at random, and
        stratified as published.
    landmarks : int, optional
        Landmarks of "csvrg"; by default the square root of the number of rows.
    as_published : bool, default=False
        Run algorithm 2 as printed.

    Examples
    --------
    >>> from margrave import ODMClassifier
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.5]], [0, 0, 1, 1]
    >>> model = ODMClassifier(kernel="linear", solver=VarianceReduced(partitions=2)).fit(X, y)
    >>> model.solver_, model.converged_
    ('dsvrg', True)
    """

    def __init__(
        self,
        method: str = "dsvrg",
        step: float = 0.25,
        partitions: int | None = None,
        partition: str | Partition | None = None,
        landmarks: int | None = None,
        as_published: bool = False,
    ) -> None:
        self.method = method
        self.step = step
        self.partitions = partitions
        self.partition = partition
        self.landmarks = landmarks
        self.as_published = as_published

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems, one after the other."""
        for problem, start in zip(problems, starts or [], strict=bool(starts)):
            check_start(problem, start)
        engine = resolve_engine(settings.engine, settings.threads)
        solutions = []
        for number, problem in enumerate(self._checked(problems)):
            where = f"problem {number + 1} of {len(problems)}" if len(problems) > 1 else ""
            begin = None if starts is None else starts[number]

            def solve(
                problem: Problem = problem, where: str = where, begin: Floats | None = begin
            ) -> Solution:
                return _Run(self, problem, settings, engine, where).solve(begin)

            # after a loss from the start, with bitwise the same result: epochs are short
            solutions.append(settings.recovery.steadily(solve))
        return solutions

    def _checked(self, problems: Sequence[BaseProblem]) -> list[Problem]:
        """Return the problems, or raise for them or for invalid parameters."""
        if self.method not in METHODS:
            raise ValueError(f"unknown method {self.method!r}; known: {', '.join(METHODS)}")
        if not 0.0 < self.step < math.inf:
            raise ValueError(f"step must be a number > 0, got {self.step!r}")
        for name in ("partitions", "landmarks"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, got {count!r}")
        if self.partition is not None:
            resolve_partition(self.partition)
        if self.as_published and self.method != "dsvrg":
            raise ValueError(f"as_published belongs to 'dsvrg', got method={self.method!r}")
        found = refuse_unless(self.method, problems, ("regularized", None), SMOOTH_LOSSES)
        if self.method != "dsvrg":
            refuse_remote(self.method, problems)
        for problem in problems:
            if not problem.data.is_linear:
                raise ValueError(
                    f"the solver {self.method!r} cannot work with the kernel"
                    f" {problem.data.kernel.name!r}; it works with 'linear', and"
                    f" solver={solver_of_all(problem)!r} with every kernel"
                )
            if problem.data.in_blocks:
                raise ValueError(
                    f"the solver {self.method!r} needs all rows in one array (it may be"
                    " memory-mapped); rows in blocks need solver='newton'"
                )
            if (self.partitions or 1) > problem.n_rows:
                raise ValueError(
                    f"{problem.n_rows} rows cannot be split into {self.partitions} partitions"
                )
        return found


class _Run:
    """The epochs of one problem, with the best point so far."""

    def __init__(
        self,
        solver: VarianceReduced,
        problem: Problem,
        settings: Settings,
        engine: Engine,
        where: str,
    ) -> None:
        self.solver, self.problem, self.settings, self.engine = solver, problem, settings, engine
        self.progress, self.where = settings.progress, where
        self.team = _core.Team(settings.threads)
        # the best primal and dual points so far, initially zero
        zero = np.zeros(problem.n_rows)
        self.z, self.scores = np.zeros(problem.data.X.shape[1] + 1), zero
        self.beta = zero.copy()
        self.primal = float(problem.loss.core().value(problem.y, problem.C, zero).sum())
        self.dual, self.gap, self.support = 0.0, 1.0, 0
        self.highest = _EXPLODED * self.primal
        self.better = (self.gap, self.primal, 0)  # the last clear improvement, and its epoch
        self.epoch, self.passes, self.passes_of_steps = 0, 0.0, 1.0
        self.has_ended = False

    def solve(self, start: Floats | None) -> Solution:
        """Run epochs on shards until the gap is certified or a budget is used up."""
        if self.progress.is_over:
            self._report()
            return self._solution()
        try:
            parts = self._parts()
        except _core.Stopped:
            self._report()
            return self._solution()
        pieces = [self._piece(self.problem, rows, start) for rows in parts]
        with self.engine.scatter(GradientBlock, pieces) as whole:
            with self._stoppable(), self._nodes(whole) as nodes:
                self._epochs(whole, nodes, is_warm=start is not None)
            for rows, (scores, beta) in zip(parts, whole.map("kept"), strict=True):
                self.scores[rows], self.beta[rows] = scores, beta
        return self._solution()

    # --- the loop --------------------------------------------------------------------------

    def _epochs(self, whole: Shards, nodes: Shards, is_warm: bool) -> None:
        """Run epochs; `nodes` take the steps, `whole` has the gap: the same except for csvrg."""
        left = self._seconds_left
        if is_warm and self._is_good_start(whole):
            return
        z = self.z
        eta = self.solver.step / (1.0 + max(nodes.map("steepness", left())))
        for self.epoch in itertools.count():
            # 1. the gradient, as the centre z - grad P(z) = X'beta, and with it the gap
            centre, figures = whole.reduce("gradient", z, left())
            if self._update_best(whole, z, centre, figures):
                return
            if nodes is not whole:
                centre, _ = nodes.reduce("gradient", z, left())
            # 2. the steps, relative to the centre: they shrink u = z - centre and add rows to it
            nodes.map("aim", centre, left())
            u = z - centre
            for node in range(len(nodes)):
                seed = np.array([self.settings.seed, self.epoch + 1, node])
                u = nodes.call(node, "steps", u, eta, seed, left())
            z = centre + u
            self.passes += self.passes_of_steps

    # --- shards ----------------------------------------------------------------------------

    def _parts(self) -> Sequence[Rows]:
        """Rows of each shard."""
        problem, solver = self.problem, self.solver
        n = problem.n_rows
        if solver.method != "dsvrg":
            return [np.arange(n)]
        rows, data = problem.data_rows, problem.data
        default = "stratified" if solver.as_published else "random"
        parts = split(
            resolve_partition(solver.partition or default),
            data if n == data.n_rows else data.restrict(rows),
            solver.partitions or min(n, self.engine.n_workers),
            self.settings.seed,
            y=problem.y,
            threads=self.settings.threads,
            left=self._seconds_left,
        ).rows
        if solver.as_published:
            self.passes_of_steps = len(parts) / n
        return parts

    def _piece(self, problem: Problem, rows: Rows, start: Floats | None) -> dict[str, Any]:
        """Arguments of the block of these rows."""
        sampling = "each" if self.solver.method == "dsvrg" else "draws"
        beta = np.zeros(len(rows)) if start is None else start[rows]
        y, C = problem.y[rows], problem.C[rows]
        return {
            "X": _taken(problem.data.X, problem.data_rows[rows]),
            "y": y,
            "C": C,
            "loss": problem.loss,
            "constant": problem.intercept == "regularized",
            "n_rows": problem.n_rows,
            "sampling": "single" if self.solver.as_published else sampling,
            "beta": np.clip(beta, *problem.loss.core().box(y, C)),
        }

    def _nodes(self, whole: Shards) -> AbstractContextManager[Shards]:
        """The shards that take the steps."""
        if self.solver.method != "csvrg":
            return nullcontext(whole)
        problem, n = self.problem, self.problem.n_rows
        passes = Passes(problem.data, problem.block_list, self.team, self._seconds_left)
        few = compressed(problem, self.solver.landmarks or math.isqrt(n), passes)
        self.passes += passes.count
        self.passes_of_steps = 2.0 * few.n_rows / n
        piece = self._piece(few, np.arange(few.n_rows), None)
        return self.engine.scatter(GradientBlock, [piece])

    # --- the certificate -------------------------------------------------------------------

    def _update_best(self, whole: Shards, z: Floats, combined: Floats, figures: Floats) -> bool:
        """Compare z and its dual point with the best so far, and report; True to stop."""
        self.passes += 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            primal = 0.5 * float(z @ z) + float(figures[0])
            dual = 0.5 * float(combined @ combined) + float(figures[1])
            gap = 0.5 * float((z - combined) @ (z - combined))
        has_exploded = not primal <= self.highest
        if not has_exploded:
            self._compare(whole, z, primal, dual, gap, int(figures[2]))
        return self._report() or has_exploded or self._has_stalled()

    def _is_good_start(self, whole: Shards) -> bool:
        """Whether z = X'beta is good enough together with the beta that it is made from."""
        z = whole.reduce("start", self._seconds_left())
        figures, gap = whole.reduce("evaluate", z, self._seconds_left())
        self.passes += 2.0
        norm = 0.5 * float(z @ z)
        primal, dual = norm + float(figures[0]), norm + float(figures[1])
        self._compare(whole, z, primal, dual, gap, int(figures[2]))
        return self.gap <= self.settings.tol and self._report()

    def _compare(
        self, whole: Shards, z: Floats, primal: float, dual: float, gap: float, support: int
    ) -> None:
        """Keep z if its objective is the best so far, the dual point likewise."""
        # the gap of one point has no cancellation; that of the best pair may be smaller
        gap = gap / _scale(primal, dual)
        gap_of_best = _relative(min(primal, self.primal), min(dual, self.dual))
        both = gap <= max(gap_of_best, self.settings.tol)
        better, better_dual = both or primal <= self.primal, both or dual <= self.dual

        def change() -> None:
            whole.map("keep", better, better_dual)
            if better:
                self.z, self.primal = z, primal
            if better_dual:
                self.dual, self.support = dual, support
            self.gap = gap if both else gap_of_best

        try:
            change()
        except KeyboardInterrupt:  # an incomplete update would not match its certificate
            change()
            raise

    def _has_stalled(self) -> bool:
        """Whether nothing has become clearly better for a while."""
        gap, primal, when = self.better
        if self.gap < 0.99 * gap or self.primal < primal - 1e-4 * abs(primal):
            self.better = (self.gap, self.primal, self.epoch)
            return False
        return self.epoch - when >= _PATIENCE

    def _report(self) -> bool:
        """Report the epoch; True if it was the last."""
        self.has_ended = self.progress.report(
            round=self.epoch,
            objective=self.primal,
            dual=self.dual,
            gap=self.gap,
            support=self.support,
            intercept=float(self.z[-1]),
            passes=self.passes,
            where=self.where,
        )
        return self.has_ended

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Ctrl-C and the time limit end the epochs; the best point so far is kept."""
        try:
            yield
        except (_core.Stopped, KeyboardInterrupt) as stop:
            if self.team.interrupted or isinstance(stop, KeyboardInterrupt):
                self.progress.interrupt()
            if not self.has_ended:
                self._report()

    def _seconds_left(self) -> float:
        return max(0.0, min(self.progress.remaining(), 1e18))

    def _solution(self) -> Solution:
        loss, problem = self.problem.loss.core(), self.problem
        return Solution(
            beta=np.clip(self.beta, *loss.box(problem.y, problem.C)),
            intercept=float(self.z[-1]),
            scores=self.scores,
            objective=self.primal,
            dual=self.dual,
            gap=self.gap,
            converged=self.gap <= self.settings.tol,
            n_iter=self.epoch,
            precision="float64",
            solver=self.solver.method,
            stop_reason=stop_reason(self.progress, "stochastic"),
            weights=self.z[:-1],
        )


def _scale(primal: float, dual: float) -> float:
    return max(abs(primal), abs(dual), 1e-300)


def _relative(primal: float, dual: float) -> float:
    """The relative gap of a primal and a dual value, within rounding."""
    return max((primal + dual) / _scale(primal, dual), 1e-16)


def _taken(X: Matrix | RemoteRows, rows: Rows) -> Matrix | RemoteRows:
    """Some rows of X: a view where they are contiguous."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    is_contiguous = last - first == len(rows) and bool((np.diff(rows) == 1).all())
    some: Matrix | RemoteRows = X[first:last] if is_contiguous else X[rows]
    return some
