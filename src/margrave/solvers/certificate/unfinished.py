"""Models of fits that were stopped: their best multiple, zero included."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize_scalar

from margrave import _core
from margrave.losses import JOINT_LOSSES
from margrave.problem import (
    BaseProblem,
    Floats,
    Intercept,
    JointProblem,
    Problem,
    Solution,
    is_joint,
    is_single,
)
from margrave.solvers.base import Settings
from margrave.solvers.certificate.figures import interruptible
from margrave.solvers.certificate.single import PARALLEL


@interruptible()
def best_multiple(problem: BaseProblem, solution: Solution, settings: Settings) -> Solution:
    """The solution or, where a constant is better, its best multiple, zero included.

    A descent on the dual may pass through points whose model is worse than a constant. Multiples of
    a dual point by t in [0, 1] are feasible, their scores are known, and P is convex in t.
    """
    if problem.total != 0.0 or problem.shift is not None:
        return solution
    along = _multiples(problem, solution, settings.threads)
    b, least = along.intercept(1.0), math.inf
    if along.is_finite:
        least = along.primal(1.0, b)
    zero = along.intercept(0.0)
    if least <= along.primal(0.0, zero):
        return solution if np.all(b == solution.intercept) else replace(solution, intercept=b)
    t = along.search(zero, b, 8 if settings.is_over else 30) if along.is_finite else 0.0
    return along.at(t) if t > 0.0 else replace(along.at(0.0), definite=True)


def _multiples(problem: BaseProblem, solution: Solution, threads: int) -> _Multiples:
    if is_joint(problem):
        return _JointMultiples(problem, solution)
    assert is_single(problem)
    return _SingleMultiples(problem, solution, threads)


class _Multiples(ABC):
    """The models t w, each with its best intercept."""

    problem: BaseProblem

    def __init__(self, solution: Solution) -> None:
        self.solution = solution
        self.f: Floats = solution.scores
        self.b: Intercept = solution.intercept
        w = solution.weights
        with np.errstate(invalid="ignore", over="ignore"):
            self.norm = float(((solution.beta * self.f) if w is None else w * w).sum())
        numbers = (solution.beta, self.f, self.b, self.norm)
        self.is_finite = all(bool(np.isfinite(number).all()) for number in numbers)
        if not self.is_finite:
            self.f, self.b, self.norm = np.zeros_like(self.f), np.zeros(np.shape(self.b))[()], 0.0

    @abstractmethod
    def losses(self, t: float, b: Intercept) -> float:
        """Sum of the losses of t w with the intercept b."""

    @abstractmethod
    def best_intercept(self, t: float) -> Intercept:
        """The best free intercept for t w that is known."""

    @abstractmethod
    def nothing(self) -> Floats:
        """Dual variables of the model zero."""

    def primal(self, t: float, b: Intercept) -> float:
        """Primal value of t w with the intercept b."""
        penalty = float(np.sum(b * b)) if self.problem.intercept == "regularized" else 0.0
        return 0.5 * (t * t * self.norm + penalty) + self.losses(t, b)

    def intercept(self, t: float) -> Intercept:
        """The best intercept for t w if it is free, else t times that of the solution."""
        return self.best_intercept(t) if self.problem.intercept == "free" else t * self.b

    def search(self, zero: Intercept, b: Intercept, trials: int) -> float:
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
        return replace(
            solution,
            beta=self.nothing() if is_zero else t * solution.beta,
            scores=t * self.f,
            intercept=b,
            weights=None if w is None else np.zeros_like(w) if is_zero else t * w,
        )


class _SingleMultiples(_Multiples):
    """Of a problem with one score per row."""

    def __init__(self, problem: Problem, solution: Solution, threads: int) -> None:
        super().__init__(solution)
        self.problem: Problem = problem
        team = _core.Team(threads if problem.n_rows >= PARALLEL else 1)
        self.terms = _core.RowTerms(problem.loss.core(), problem.y, problem.C, team)

    def losses(self, t: float, b: Intercept) -> float:
        """Sum of the losses of t w with the intercept b."""
        return self.terms.value(t * self.f, float(b))

    def best_intercept(self, t: float) -> Intercept:
        """The intercept of the least primal value."""
        known = float(self.b)
        b = self.terms.best_intercept(t * self.f, known)
        return b if self.primal(t, b) < self.primal(t, known) else known

    def nothing(self) -> Floats:
        """The point of the box that is nearest to zero."""
        box = self.problem.loss.core().box(self.problem.y, self.problem.C)
        return np.clip(np.zeros_like(self.solution.beta), *box)


class _JointMultiples(_Multiples):
    """Of a problem with one score per row and class."""

    def __init__(self, problem: JointProblem, solution: Solution) -> None:
        super().__init__(solution)
        self.problem: JointProblem = problem
        self.weight = np.bincount(problem.y, problem.C, problem.n_classes)

    def losses(self, t: float, b: Intercept) -> float:
        """Sum of the losses of t w with the intercepts b."""
        value, k = JOINT_LOSSES[self.problem.loss].value, self.problem.n_classes
        if t > 0.0:
            return float(self.problem.C @ value(t * self.f + b, self.problem.y))
        # the same for all rows of a class
        return float(self.weight @ value(np.zeros((k, k)) + b, np.arange(k)))

    def best_intercept(self, t: float) -> Intercept:
        """Those of a constant model from the class weights, else those of the solution."""
        if t > 0.0:
            return self.b
        weight = self.weight
        with np.errstate(divide="ignore"):
            shares = np.maximum(np.log(weight / weight.sum()), -700.0)
        largest = (weight == weight.max()).astype(np.float64)
        candidates = (np.zeros(len(weight)), shares - shares.mean(), largest - largest.mean())
        best: Floats = min(candidates, key=lambda b: self.primal(0.0, b))
        return best

    def nothing(self) -> Floats:
        """Zero."""
        return np.zeros_like(self.solution.beta)
