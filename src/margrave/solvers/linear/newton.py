"""Newton's method on the primal of a linear model.

    min over w, b   1/2 |w|^2 + sum_i loss_i(x_i'w + b)            (+ b^2 / 2 if regularised)

A smooth loss is used directly. One with kinks is replaced by its envelope of width delta around a
dual point c,

    loss_i(f) ~ max over beta of  -beta f - h_i(beta) - delta/(2 C_i) (beta - c_i)^2,

which is smooth, and whose slope -beta(f) is feasible in the dual of the loss itself: with
beta = beta(Xw + b) the duality gap of the true problem is

    P(w, b) + D(beta) = 1/2 |w - X'beta|^2 + sum_i (gap term of row i at beta_i, f_i).

The first part vanishes with Newton's steps, the second shrinks with delta, and at the end, when few
rows are left between their bounds, by moving c to the present beta (the proximal point method,
which is exact for any delta). A step solves

    (1 + X'DX) dw = -(w - X'beta),     D_i = -beta_i'(f_i), zero on the flat parts,

with b as one more unknown, by Cholesky up to some thousand features and by conjugate gradients
beyond, followed by a line search. Many rows start from the optimum of a sample of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
from scipy import linalg

from margrave import _core
from margrave.blocks.passes import (
    Asking,
    Combination,
    Passes,
    Products,
    Scores,
    Squares,
    Wish,
    weighted_products,
)
from margrave.problem import Floats, Problem, Solution
from margrave.solvers.certificate import Norms, certified_by_norms

DIRECT = 2000  # features up to which the system is solved by Cholesky factorisation
_ROWS = (
    3000  # rows between their bounds up to which, with more features, a system in rows is solved
)
_SMALL = 256  # unknowns up to which the core solves the system itself
_WIDEST, _WARM = 2.0, 0.1  # first width of the envelope, in units of the targets; from a good start
_NARROWER = 0.5  # factor of the width, at most
_FEW = 10  # times the features: rows between their bounds below which the centre moves
_CLOSER = 0.5  # factor of the width when the centre moves
_SETTLED = 0.1  # of the envelope's part of the gap: gain of a step below which the width shrinks
_DAMPING = 1e-3  # initial damping: fraction of the largest curvature added to the diagonal
_SINGLE_TOL, _SINGLE_WEIGHT = 1e-4, 1e7
_MOST_ROUNDS = 1000
_DIGITS = 1e-6  # tolerance below which w = X'beta is required
_PATIENCE = 100  # rounds without a better gap


class NewtonRun:
    """Newton's method on one problem; the generator `steps` requests passes over the rows."""

    def __init__(
        self, problem: Problem, passes: Passes, report: Callable[..., bool], tol: float
    ) -> None:
        self.problem, self.passes, self.report, self.tol = problem, passes, report, tol
        self.terms = _core.RowTerms(problem.loss.core(), problem.y, problem.C, passes.team)
        self.free = problem.intercept == "free"
        self.penalty = 1.0 if problem.intercept == "regularized" else 0.0
        self.has_intercept = problem.intercept is not None
        self.w, self.b = np.zeros(passes.n_features), 0.0
        self.drift = 0.0  # accumulated rounding error of the scores: see Norms
        self.start: Floats | None = None
        self.warm = self.converged = self.has_ended = self.agreed = False
        self.round = 0
        # the best primal and dual points so far, initially zero
        f = np.zeros(problem.n_rows)
        self.best = (self.w, 0.0, f, 0.0)
        self.beta, self.combined = np.zeros(problem.n_rows), 0.0  # and the length of X'beta
        self.primal, self.dual = self.terms.value(f, 0.0), self.terms.conjugate(self.beta)
        self.zero = self.primal
        self.gap = relative(self.primal + self.dual, self.primal, self.dual)

    def begin(self, w: Floats, b: float, beta: Floats | None) -> None:
        """Begin with these weights, and dual variables if there are any, instead of zero."""
        self.w, self.b, self.start, self.warm = w, b, beta, True

    # --- the loop --------------------------------------------------------------------------

    def steps(self) -> Asking:
        """Newton's steps until the gap is certified or a budget used up."""
        problem, terms = self.problem, self.terms
        f = (yield Scores(self.w)) if self.warm else np.zeros(problem.n_rows)
        terms_of_score = self.passes.n_features + 8.0
        self.drift = terms_of_score * float(np.linalg.norm(self.w))
        if self.start is not None:  # perhaps it is good enough already
            beta = terms.feasible(self.start, self.free)
            self._update_best(f, beta, (yield Combination(beta)), self._primal(f + self.b))
            if self.gap <= self.tol and self._report(0, True):
                return
        unit = unit_of(problem)
        largest, largest_b = np.zeros(self.passes.n_features), float(problem.C.sum())
        if not problem.loss.is_dense:  # of which all rows have curvature, so that every feature has
            largest = yield Squares(problem.C)
        centre: Floats | None = None
        width = 0.0 if problem.is_smooth else unit * (_WARM if self.warm else _WIDEST)
        damping, settled, fall = _DAMPING, False, 0.0
        still, best, lowest = 0, math.inf, math.inf
        while True:
            # 1. the dual variables at the scores
            at = f + self.b
            beta, bend = terms.respond(centre, width, at)
            primal = self._primal(at)
            flat = terms.gap(beta, at, 0.0) if width > 0.0 else 0.0
            if settled and fall < _SETTLED * flat and flat > self.tol * abs(primal) / 3:
                centre, width = self._narrow(beta, bend, centre, width, flat / abs(primal))
                beta, bend = terms.respond(centre, width, at)
                flat = terms.gap(beta, at, 0.0)
            # 2. the gradient, and with it the gap
            feasible = terms.feasible(beta, True) if self.free else beta
            v, v_feasible = yield from self._combine(beta, feasible)
            gradient = self.w - v
            gradient_b = self.penalty * self.b - float(beta.sum()) if self.has_intercept else 0.0
            known = flat if feasible is beta else None
            self._update_best(f, feasible, v_feasible, primal, known)
            if self.gap <= self.tol and not self.agreed:
                yield from self._agree(feasible, v_feasible)
            done = self.gap <= self.tol and (self.agreed or self.tol >= _DIGITS)
            if self._report(int(np.count_nonzero(bend)), done) or self.round >= _MOST_ROUNDS:
                return
            better = self.gap < 0.99 * best or self.primal < lowest - 1e-9 * abs(lowest)
            still = 0 if better else still + 1
            best, lowest = min(best, self.gap), self.primal
            if still >= _PATIENCE:
                return
            # 3. the step
            dw, db = yield from self._direction(
                bend, gradient, gradient_b, damping * largest / unit, damping * largest_b / unit
            )
            df = yield Scores(dw)
            along = df + db
            start = float(self.w @ dw) + self.penalty * self.b * db
            square = float(dw @ dw) + self.penalty * db * db
            t = terms.line_search(centre, width, at, along, start, square)
            fall = -(float(gradient @ dw) + gradient_b * db)
            self.w, self.b, f = self.w + t * dw, self.b + t * db, f + t * df
            self.drift += terms_of_score * t * float(np.linalg.norm(dw))
            self.drift += 4.0 * float(np.linalg.norm(self.w))
            self.round += 1
            settled = t >= 0.5 or fall <= 1e-15 * abs(primal)
            damping = min(1e3, max(1e-16, damping * (0.1 if t >= 0.9 else 4.0 if t < 0.2 else 1.0)))
            # 4. where a loss has no kinks, the linear prediction of beta may be a better point
            if problem.is_smooth and t == 1.0 and fall <= 10.0 * self.tol * abs(primal):
                yield from self._try_forecast(f, beta - bend * along)

    def _narrow(
        self,
        beta: Floats,
        bend: Floats,
        centre: Floats | None,
        width: float,
        gap: float,
    ) -> tuple[Floats | None, float]:
        """The next envelope: narrower, or centred at beta if few rows are between bounds."""
        if np.count_nonzero(bend) < _FEW * max(self.passes.n_features, 20):
            return beta, max(width * _CLOSER, 1e-6 * unit_of(self.problem))
        return centre, width * max(_NARROWER, math.sqrt(self.tol / (4.0 * gap)))

    # --- the certificate -------------------------------------------------------------------

    def _primal(self, at: Floats) -> float:
        norm = float(self.w @ self.w) + self.penalty * self.b * self.b
        return 0.5 * norm + self.terms.value(at, 0.0)

    def _combine(
        self, beta: Floats, feasible: Floats
    ) -> Generator[Wish, Any, tuple[Floats, Floats]]:
        """X'beta of both, in one pass."""
        if feasible is beta:
            v = yield Combination(beta)
            return v, v
        both = yield Combination(np.vstack([beta, feasible]))
        return both[0], both[1]

    def _update_best(
        self, f: Floats, beta: Floats, v: Floats, primal: float, rows: float | None = None
    ) -> None:
        """Compare weights and beta with the best so far; the gap is that of the best pair.

        `rows` is the sum of the rows' gap terms where it is known already.
        """
        if self.agreed:
            return
        apart, total = self.w - v, float(beta.sum())
        dual = 0.5 * float(v @ v) + 0.5 * self.penalty * total**2 + self.terms.conjugate(beta)
        if rows is None and self.tol >= _DIGITS:
            gap = max(0.0, primal + dual)  # at this tolerance cancellation does no harm
        else:
            rows = self.terms.gap(beta, f, self.b) if rows is None else rows
            gap = rows + 0.5 * float(apart @ apart) + 0.5 * self.penalty * (self.b - total) ** 2
        if primal <= self.primal:
            self.primal, self.best = primal, (self.w, self.b, f, self.drift)
        if dual <= self.dual:
            self.dual, self.beta, self.combined = dual, beta, float(np.linalg.norm(v))
        self.gap = relative(self.primal + self.dual, self.primal, self.dual)
        found = relative(gap, primal, dual)
        if found <= max(self.gap, self.tol):  # gap of a single point, without cancellation
            self.gap, self.primal, self.dual = found, primal, dual
            self.best, self.beta = (self.w, self.b, f, self.drift), beta
            self.combined = float(np.linalg.norm(v))

    def _agree(self, beta: Floats, w: Floats) -> Asking:
        """Take w = X'beta itself as the model if it is good enough.

        With a small tolerance all attributes should be accurate. (Otherwise the model is the better
        of the weights and the dual variables, and the two differ by as much as the gap.)
        """
        if self.tol >= _DIGITS:
            return
        f = yield Scores(w)
        b = float(beta.sum()) * self.penalty
        if self.free:
            b = self.terms.best_intercept(f, self.b)
        gap = self.terms.gap(beta, f, b)
        norm = float(w @ w) + self.penalty * b * b
        dual = 0.5 * norm + self.terms.conjugate(beta)
        found = relative(gap, gap - dual, dual)
        if found > self.tol:
            return
        self.dual, self.primal, self.gap = dual, gap - dual, found
        self.best, self.beta = (w, b, f, math.inf), beta
        self.agreed = True

    def _try_forecast(self, f: Floats, forecast: Floats) -> Asking:
        beta = self.terms.feasible(forecast, self.free)
        rows = self.terms.gap(beta, f, self.b)
        if rows <= 0.5 * self.tol * abs(self.primal):
            v = yield Combination(beta)
            self._update_best(f, beta, v, self._primal(f + self.b), rows)
            if self.gap <= self.tol:
                yield from self._agree(beta, v)

    def report_last(self) -> None:
        """Report the best point when the work is stopped from outside."""
        if not self.has_ended:
            self._report(0, self.gap <= self.tol)

    def _report(self, between: int, done: bool) -> bool:
        """Report the round; True if it was the last."""
        self.converged = self.gap <= self.tol
        stop: bool = self.report(
            round=self.round,
            objective=self.primal,
            dual=self.dual,
            gap=self.gap,
            support=int(np.count_nonzero(self.beta)),
            intercept=self.best[1],
            passes=self.passes.count,
            between=between,
            certified=done,
        )
        self.has_ended = stop or done
        return self.has_ended

    def solution(self, interrupted: bool) -> Solution:
        """The best weights, the best dual point, and the gap between them."""
        w, b, f, _ = self.best
        return Solution(
            beta=self.beta,
            intercept=float(b),
            scores=f,
            objective=self.primal,
            dual=self.dual,
            gap=self.gap,
            converged=self.converged,
            n_iter=self.round,
            precision="float64",
            solver="newton",
            stop_reason="interrupted" if interrupted else None,
            weights=w,
        )

    def certified(self, solution: Solution, threads: int) -> Solution:
        """The solution with its certificate, if that needs no pass over the rows."""
        if not self.converged or self.tol < _DIGITS or self.passes.longest == 0.0:
            return solution
        norms = Norms(self.passes.longest, self.best[3], self.combined, self.zero)
        return certified_by_norms(self.problem, solution, norms, threads, self.tol)

    # --- the step --------------------------------------------------------------------------

    def _direction(
        self, D: Floats, g: Floats, g_b: float, damping: Floats, damping_b: float
    ) -> Generator[Wish, Any, tuple[Floats, float]]:
        """Solve the Newton system, with damping on its diagonal."""
        if self.passes.n_features > DIRECT:
            if np.count_nonzero(D) <= _ROWS and self.passes.in_one_array:
                return self._by_rows(D, g, g_b, damping, damping_b)
            return (yield from self._conjugate_gradients(D, g, g_b, damping, damping_b))
        d = len(g)
        # the next step corrects errors of single precision, unless they exceed the ridge term 1
        single = self.tol >= _SINGLE_TOL and float(D.sum()) < _SINGLE_WEIGHT
        products, border = yield Products(D, single)
        size = d + 1 if self.has_intercept else d
        H = np.empty((size, size))
        H[:d, :d] = products
        H[np.arange(d), np.arange(d)] += 1.0 + damping
        right = np.empty(size)
        right[:d] = -g
        if self.has_intercept:
            H[d, :d] = H[:d, d] = border
            H[d, d] = self.penalty + float(D.sum()) + damping_b
            right[d] = -g_b
        step = solve_positive(H, right)
        return step[:d], float(step[d]) if self.has_intercept else 0.0

    def _by_rows(
        self, D: Floats, g: Floats, g_b: float, damping: Floats, damping_b: float
    ) -> tuple[Floats, float]:
        """The same where few rows count: a system in them instead of the features.

        With M the diagonal part, (M + X'DX)^-1 = M^-1 - M^-1 X'(D^-1 + X M^-1 X')^-1 X M^-1.
        """
        rows = np.flatnonzero(D)
        X = self.passes.take(rows)
        inverse = 1.0 / (1.0 + damping)
        # a negligible ridge on a free intercept keeps the system regular
        held = max(self.penalty + damping_b, 1e-8 * float(D.sum()))
        inverse_b = 1.0 / held if self.has_intercept else 0.0
        system = weighted_products(X, inverse) + inverse_b
        system[np.arange(len(rows)), np.arange(len(rows))] += 1.0 / D[rows]
        first, first_b = -inverse * g, -inverse_b * g_b
        change = solve_positive(system, np.asarray(X @ first).ravel() + first_b)
        dw = first - inverse * np.asarray(X.T @ change).ravel()
        return dw, first_b - inverse_b * float(change.sum())

    def _conjugate_gradients(
        self, D: Floats, g: Floats, g_b: float, damping: Floats, damping_b: float
    ) -> Generator[Wish, Any, tuple[Floats, float]]:
        """The same by conjugate gradients with the diagonal as preconditioner."""
        d = len(g)
        diagonal = np.append(
            1.0 + damping + (yield Squares(D)), self.penalty + float(D.sum()) + damping_b
        )
        diagonal[diagonal <= 0.0] = 1.0
        damped = np.append(1.0 + damping, self.penalty + damping_b)
        residual = -np.append(g, g_b)
        x, direction = np.zeros(d + 1), residual / diagonal
        weight = float(residual @ direction)
        enough = min(0.1, math.sqrt(max(self.gap, 1e-20)))
        first = math.sqrt(weight)
        for _ in range(500):
            if math.sqrt(max(weight, 0.0)) <= enough * first or weight <= 0.0:
                break
            along = D * ((yield Scores(np.ascontiguousarray(direction[:d]))) + direction[d])
            product = damped * direction
            product[:d] += yield Combination(along)
            if self.has_intercept:
                product[d] += float(along.sum())
            else:
                product[d] = 0.0
            alpha = weight / float(direction @ product)
            x += alpha * direction
            residual -= alpha * product
            scaled = residual / diagonal
            weight, before = float(residual @ scaled), weight
            direction = scaled + (weight / before) * direction
        return np.ascontiguousarray(x[:d]), float(x[d]) if self.has_intercept else 0.0


def relative(gap: float, primal: float, dual: float) -> float:
    """The relative gap of a point, within rounding."""
    scale = max(abs(primal), abs(dual), 1e-300)
    return max(gap, 1e-16 * scale) / scale if gap != 0.0 else 0.0


def unit_of(problem: Problem) -> float:
    """Size of a typical score: one for labels, the spread of the targets for numbers."""
    if problem.loss.core().labels:
        return 1.0
    share = problem.C / problem.C.sum()
    middle = float(share @ problem.y) if problem.intercept is not None else 0.0
    spread = float(share @ np.abs(problem.y - middle))
    return (spread if spread > 1e-9 * abs(middle) else abs(middle)) or 1.0


def solve_positive(H: Floats, right: Floats) -> Floats:
    """Solve a system that is positive definite up to rounding."""
    ridge = 0.0
    for _ in range(20):
        if len(H) <= _SMALL:
            found = _core.solve_positive(H + ridge * np.eye(len(H)), right)
            if found is not None:
                return found
            ridge = max(10.0 * ridge, 1e-15 * float(np.trace(H)))
            continue
        try:
            factor = linalg.cho_factor(H + ridge * np.eye(len(H)), lower=True, check_finite=False)
            step: Floats = linalg.cho_solve(factor, right, check_finite=False)
            return step
        except linalg.LinAlgError:
            ridge = max(10.0 * ridge, 1e-15 * float(np.trace(H)))
    return right / np.diag(H)
