"""Models that were not finished: their best multiple, zero included."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from margrave import _core
from margrave.losses import JOINT_LOSSES
from margrave.problem import JointProblem, Problem, Solution
from margrave.solvers.base import Settings
from margrave.solvers.certificate.figures import interruptible
from margrave.solvers.certificate.single import PARALLEL


@interruptible()
def best_multiple(
    problem: Problem | JointProblem, solution: Solution, settings: Settings
) -> Solution:
    """The solution or, where a constant is better, its best multiple, zero included.

    A descent on the dual may pass through points whose model is worse than a constant. Multiples of
    a dual point by t in [0, 1] are feasible, their scores are known, and P is convex in t.
    """
    if isinstance(problem, Problem) and (problem.total != 0.0 or problem.shift is not None):
        return solution
    along = _Multiples(problem, solution, settings.threads)
    b, least = along.intercept(1.0), math.inf
    if along.is_finite:
        least = along.primal(1.0, b)
    zero = along.intercept(0.0)
    if least <= along.primal(0.0, zero):
        return solution if np.all(b == solution.intercept) else replace(solution, intercept=b)
    t = along.search(zero, b, 8 if settings.is_over else 30) if along.is_finite else 0.0
    return along.at(t) if t > 0.0 else replace(along.at(0.0), definite=True)


class _Multiples:
    """The models t w, each with its best intercept."""

    def __init__(self, problem: Problem | JointProblem, solution: Solution, threads: int) -> None:
        self.problem, self.solution = problem, solution
        self.f, self.b = solution.scores, solution.intercept
        w = solution.weights
        with np.errstate(invalid="ignore", over="ignore"):
            self.norm = float(((solution.beta * self.f) if w is None else w * w).sum())
        numbers = (solution.beta, self.f, self.b, self.norm)
        self.is_finite = all(bool(np.isfinite(number).all()) for number in numbers)
        self.terms: _core.RowTerms | None = None
        if isinstance(problem, JointProblem):
            self.weight = np.bincount(problem.y, problem.C, problem.n_classes)
        else:
            team = _core.Team(threads if problem.n_rows >= PARALLEL else 1)
            self.terms = _core.RowTerms(problem.loss.core(), problem.y, problem.C, team)
        if not self.is_finite:
            self.f, self.b, self.norm = np.zeros_like(self.f), np.zeros(np.shape(self.b))[()], 0.0

    def primal(self, t: float, b: Any) -> float:
        """Primal value of t w with the intercept b."""
        penalty = float(np.sum(b * b)) if self.problem.intercept == "regularized" else 0.0
        if isinstance(self.problem, JointProblem):
            value, k = JOINT_LOSSES[self.problem.loss].value, self.problem.n_classes
            if t > 0.0:
                losses = float(self.problem.C @ value(t * self.f + b, self.problem.y))
            else:  # the same for all rows of a class
                losses = float(self.weight @ value(np.zeros((k, k)) + b, np.arange(k)))
        else:
            assert self.terms is not None
            losses = self.terms.value(t * self.f, float(b))
        return 0.5 * (t * t * self.norm + penalty) + losses

    def intercept(self, t: float) -> Any:
        """The best intercept for t w if it is free, else t times that of the solution."""
        if self.problem.intercept != "free":
            return t * self.b
        if isinstance(self.problem, JointProblem):
            return self._of_classes(t)
        assert self.terms is not None
        b = self.terms.best_intercept(t * self.f, float(self.b))
        return b if self.primal(t, b) < self.primal(t, float(self.b)) else float(self.b)

    def _of_classes(self, t: float) -> Any:
        """The intercept of a constant model, from the class weights; else that of the solution."""
        problem = self.problem
        if t > 0.0 or not isinstance(problem, JointProblem):
            return self.b
        weight = self.weight
        with np.errstate(divide="ignore"):
            shares = np.maximum(np.log(weight / weight.sum()), -700.0)
        largest = (weight == weight.max()).astype(np.float64)
        candidates = (np.zeros(len(weight)), shares - shares.mean(), largest - largest.mean())
        return min(candidates, key=lambda b: self.primal(0.0, b))

    def search(self, zero: Any, b: Any, trials: int) -> float:
        """The t in [0, 1] of the least primal value, with the intercept moving along."""
        found = minimize_scalar(
            lambda t: self.primal(t, zero + t * (b - zero)),
            bounds=(0.0, 1.0),
            method="bounded",
            options={"xatol": 1e-3, "maxiter": trials},
        )
        t = float(found.x)
        return t if self.primal(t, self.intercept(t)) < self.primal(0.0, zero) else 0.0

    def at(self, t: float) -> Solution:
        """The model t w."""
        solution, b = self.solution, self.intercept(t)
        w, is_zero = solution.weights, t == 0.0  # zero times what is not finite is not zero
        beta = np.zeros_like(solution.beta) if is_zero else t * solution.beta
        if isinstance(self.problem, Problem) and is_zero:
            lo, hi = self.problem.loss.core().box(self.problem.y, self.problem.C)
            beta = np.clip(beta, lo, hi)  # as near to zero as the box allows
        return replace(
            solution,
            beta=beta,
            scores=t * self.f,
            intercept=b,
            weights=None if w is None else np.zeros_like(w) if is_zero else t * w,
        )
