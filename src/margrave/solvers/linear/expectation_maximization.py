"""Expectation maximization for piecewise linear losses: repeated least squares.

    min over z   P(z) = 1/2 |z|^2 + sum_i 2 s_i max(0, a_i),   a_i = b_i (r_i - x_i'z),  C_i = 2 s_i

"em"    c_i = |a_i|; parabolas a + a^2 / (2 c) + c / 2 touch the losses from above, and z goes to
        their minimum (Polson and Scott, 2011; Perkins, Xu, Zhu and Zhang, "Fast parallel SVM using
        data augmentation", 2015), or where P is least on the way to it: P never rises. c_i is at
        least 1e-8, which adds at most half of that to the loss of a row at its kink.
"fast"  c_i = e for rows with |a_i| < e, the others linear: parabolas of far rows only slow down the
        steps. Near the minimum e shrinks to a quarter. The same sums, over few rows, and fewer
        iterations.

The dual point beta_i = b_i s_i (1 + a_i / c_i), clipped to its bounds, certifies the duality gap.
`augmentation.py` solves the least squares in weights or in coefficients of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from scipy import linalg
from sklearn.base import BaseEstimator

from margrave import _core
from margrave.engines import Engine, resolve_engine
from margrave.problem import BaseProblem, Floats, Problem, RowNumbers, Solution, is_joint, is_single
from margrave.progress import Progress
from margrave.solvers.base import (
    Settings,
    check_integer,
    check_start,
    refuse_remote,
    refuse_unless,
    stop_reason,
)
from margrave.solvers.linear.augmentation import Coefficients, Figures, Weights, featured
from margrave.solvers.linear.joint_maximization import JointWeights

LOSSES = ("hinge", "epsilon_insensitive")
MODES = ("fast", "em")
_PATIENCE = 300  # iterations without a gap that is a hundredth or an objective 1e-9 better
_SAMPLED = 20_000  # rows from which a sample of them is solved first
_SHARE, _SAMPLE_TOL = 10, 1e-2


class ExpectationMaximization(BaseEstimator):  # type: ignore[misc]
    """Iteratively reweighted least squares, for the hinge and the epsilon-insensitive loss.

    Linear models only need sums over the rows: one pass per iteration, on any engine, of rows
    that may also come in blocks. Other kernels, and linear ones with more features than rows, need
    the whole kernel matrix in memory: 24 bytes per pair of rows.

    Parameters
    ----------
    mode : {"fast", "em"}, default="fast"
        See the module.
    features : int, optional
        Approximate the kernel by this many landmarks, chosen by a pivoted Cholesky factor: a
        linear model on as many features, optimal among the functions spanned by the landmarks.
        The gap is then that of the restricted problem (``certificate_`` is "features"; `certify`
        computes that of the whole one), and the landmarks are its only support vectors.
    as_published : bool, default=False
        The published algorithm: mode "em" with full steps, and class after class where there
        are several, which stops short of the optimum. With a kernel the model is what the steps
        lead to, and not their dual point; both are computed in as many features as rows, and
        ``certificate_`` is "features".

    Examples
    --------
    >>> from margrave import SVC
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.5]], [0, 0, 1, 1]
    >>> model = SVC(kernel="linear", solver=ExpectationMaximization()).fit(X, y)
    >>> model.solver_, model.converged_
    ('em', True)
    """

    def __init__(
        self, mode: str = "fast", features: int | None = None, as_published: bool = False
    ) -> None:
        self.mode = mode
        self.features = features
        self.as_published = as_published

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems, one after the other."""
        self._check(problems)
        for problem, given in zip(problems, starts or [], strict=bool(starts)):
            check_start(problem, given)
        engine = resolve_engine(settings.engine, settings.threads)
        solutions = []
        for number, problem in enumerate(problems):
            where = f"problem {number + 1} of {len(problems)}" if len(problems) > 1 else ""
            start: Floats | None = None if starts is None else starts[number]
            features = self.features
            if features is None and self.as_published and not problem.data.is_linear:
                features = problem.n_rows
            if features is None:
                solutions.append(_Run(self, problem, settings, engine, where).with_retries(start))
                continue
            restricted, marks, factor = featured(problem, features, settings)
            found = _Run(self, restricted, settings, engine, where).with_retries(start)
            solutions.append(_of_landmarks(found, problem, marks, factor))
        return solutions

    def _check(self, problems: Sequence[BaseProblem]) -> None:
        """Raise for invalid parameters and for problems that need another solver."""
        if self.mode not in MODES:
            raise ValueError(f"unknown mode {self.mode!r}; known: {', '.join(MODES)}")
        check_integer("features", self.features, 1)
        for problem in problems:
            if not (is_joint(problem) and problem.loss == "crammer_singer"):
                refuse_unless("em", [problem], losses=LOSSES)
        if not problems[0].data.is_linear or self.features is not None:
            refuse_remote("em", problems)


def _of_landmarks(
    found: Solution, problem: BaseProblem, marks: RowNumbers, factor: Floats
) -> Solution:
    """The solution in features as a model of the landmarks."""
    beta = np.zeros(problem.shape)
    assert found.weights is not None
    beta[marks] = linalg.solve_triangular(factor, found.weights.T, trans="T", lower=True)
    return replace(found, beta=beta, weights=None, certificate="features", dual_point=found.beta)


class Space(Protocol):
    """Where the least-squares problems of one problem are solved."""

    width: float  # of the parabolas, at present
    dual_model: bool  # whether the model is the dual point itself

    def begin(self, start: Floats) -> Figures:
        """Start from dual variables."""
        ...

    def iterations(self, mode: str) -> Iterator[Figures | None]:
        """Iterate; returns the figures of the point, not in every iteration."""
        ...

    def keep(self, primal: bool, dual: bool) -> None:
        """Keep the model, the dual point, or both."""
        ...

    def point(self) -> dict[str, Any]:
        """What is kept, as a solution has it."""
        ...

    def close(self) -> None:
        """Release memory."""
        ...


class _Run:
    """Iterations of one problem, with the best point so far."""

    def __init__(
        self,
        solver: ExpectationMaximization,
        problem: BaseProblem,
        settings: Settings,
        engine: Engine,
        where: str,
    ) -> None:
        self.solver, self.problem, self.settings, self.engine = solver, problem, settings, engine
        self.progress, self.where = settings.progress, where

    def with_retries(self, start: Floats | None) -> Solution:
        """Solve; when a worker is lost, start again, with bitwise the same result."""
        return self.settings.recovery.steadily(lambda: self.solve(start))

    def solve(self, start: Floats | None) -> Solution:
        """Iterate until the gap is certified or a budget used up."""
        self.round, self.has_ended = 0, False
        problem = self.problem
        nothing, none = np.zeros(problem.shape), np.zeros(problem.shape[1:])
        self.primal = problem.terms(nothing, nothing, none)[0]
        self.dual, self.support, self.gap = 0.0, 0, 1.0
        self.better = (math.inf, math.inf, 0)  # the last clear improvement, and its iteration
        space = self._space()
        try:
            self._iterate(space, start)
        except (_core.Stopped, KeyboardInterrupt) as stop:
            if isinstance(stop, KeyboardInterrupt):
                self.progress.interrupt()
            if not self.has_ended:
                self._report(space)
        finally:
            found = space.point()
            space.close()
        return Solution(
            **found,
            objective=self.primal,
            dual=self.dual,
            gap=self.gap,
            converged=self.gap <= self.settings.tol,
            n_iter=self.round,
            precision="float64",
            solver="em",
            stop_reason=stop_reason(self.progress),
        )

    def _space(self) -> Space:
        """Where the least-squares problems are solved."""
        if is_joint(self.problem):
            return JointWeights(self.problem, self.settings, self.engine)
        assert is_single(self.problem)
        in_weights = self.solver.as_published or is_small_in_weights(self.problem)
        form = Weights if in_weights else Coefficients
        return form(self.problem, self.settings, self.engine)

    # --- the loop --------------------------------------------------------------------------

    def _iterate(self, space: Space, start: Floats | None) -> None:
        if start is not None:
            self._update_best(space, space.begin(start))
            if self.gap <= self.settings.tol and self._report(space):
                return
        mode = "published" if self.solver.as_published else self.solver.mode
        if start is None and mode == "fast" and isinstance(space, Weights):
            space.start_at(self._weights_of_a_sample())
        for self.round, figures in enumerate(space.iterations(mode)):
            if figures is not None:
                self._update_best(space, figures)
            if self._report(space) or self._has_stalled():
                return

    def _weights_of_a_sample(self) -> Floats | None:
        """Weights and intercept of a sample of the rows, weighted up; None for few rows.

        Most iterations are then made on a tenth of the rows.
        """
        problem, progress = self.problem, self.progress
        n = problem.n_rows
        few = n < max(_SAMPLED, _SHARE * problem.data.n_features)
        if few or self.engine.is_remote or not problem.data.in_memory:
            return None
        assert is_single(problem)
        rows = np.sort(np.random.default_rng(self.settings.seed).choice(n, n // _SHARE, False))
        part = problem.restrict(rows)
        part = replace(part, C=part.C * float(problem.C.sum() / part.C.sum()))
        if problem.loss.core().labels and abs(float(part.y.mean())) == 1.0:
            return None  # only one class in the sample
        tol = max(self.settings.tol, _SAMPLE_TOL)
        with Progress(tol, time_limit=progress.time_left()) as silent:
            settings = replace(self.settings, tol=tol, progress=silent)
            found = _Run(self.solver, part, settings, self.engine, "").solve(None)
        if found.stop_reason == "interrupted":
            raise KeyboardInterrupt
        assert found.weights is not None
        b = [] if problem.intercept is None else [float(found.intercept)]
        return np.append(found.weights, b)

    # --- the certificate -------------------------------------------------------------------

    def _update_best(self, space: Space, figures: Figures) -> None:
        """Keep the point if it is the best so far, the dual point likewise."""
        better, better_dual = figures.primal <= self.primal, figures.dual <= self.dual
        if space.dual_model:  # kept or left as one
            better = better_dual = relative(figures.primal, figures.dual) <= self.gap
        space.keep(better, better_dual)
        if better:
            self.primal = figures.primal
        if better_dual:
            self.dual, self.support = figures.dual, figures.support
        self.gap = relative(self.primal, self.dual)

    def _report(self, space: Space) -> bool:
        """Report the iteration; True if it was the last."""
        self.has_ended = self.progress.report(
            round=self.round,
            objective=self.primal,
            dual=self.dual,
            gap=self.gap,
            support=self.support,
            width=space.width,
            where=self.where,
        )
        return self.has_ended

    def _has_stalled(self) -> bool:
        """Whether nothing has become clearly better for a while."""
        gap, primal, when = self.better
        if self.gap < 0.99 * gap or self.primal < primal - 1e-9 * abs(primal):
            self.better = (self.gap, self.primal, self.round)
            return False
        return self.round - when >= _PATIENCE


def is_small_in_weights(problem: Problem) -> bool:
    """Whether weights are the smaller system: a linear kernel with no more features than rows."""
    if not problem.data.is_linear:
        return False
    return not problem.data.in_memory or problem.data.n_features <= problem.n_rows


def relative(primal: float, dual: float) -> float:
    """The relative gap of a primal and a dual value, within rounding."""
    return max((primal + dual) / max(abs(primal), abs(dual), 1e-300), 1e-16)
