"""The gap of a problem with one score per row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from margrave import _core
from margrave.blocks.passes import Passes
from margrave.problem import Floats, Problem, Solution
from margrave.rows import sample_rows
from margrave.solvers.certificate.errors import Errors, audit, off_by
from margrave.solvers.certificate.figures import UNIT, Certificate, relative

PARALLEL = 50_000  # rows from which a second thread is faster


@dataclass(frozen=True)
class Norms:
    """Numbers that bound the rounding errors of the running figures of a linear model."""

    longest: float  # length of the longest row
    drift: float  # bound on the error of a score, in units of rounding times |x_i|
    combined: float  # |X'beta|
    zero: float  # sum_i C_i loss_i(0)


class SingleGap:
    """The certificate of a score per row; `more` is added to the gap, and to the dual value."""

    def __init__(
        self, problem: Problem, threads: int, more: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        self.problem, self.threads, self.more = problem, threads, more
        team = _core.Team(threads if problem.n_rows >= PARALLEL else 1)
        self.terms = _core.RowTerms(problem.loss.core(), problem.y, problem.C, team)
        self.passes = Passes(problem.data, problem.block_list, team, lambda: 1e18)

    def by_scores(self, solution: Solution, closely: bool) -> Certificate:
        """Of the model sum_j beta_j k(x_j, x) + b, whose scores are in the solution."""
        problem, beta = self.problem, solution.beta
        f, errors = self.scores_of(solution, closely)
        sums = self.terms.audit(beta, f, errors, float(solution.intercept), closely)
        plain, upper = sums["gap"], sums["upper"]
        dual, error = 0.5 * sums["product"] + sums["conjugate"], 0.5 * sums["product_error"]
        if problem.intercept == "regularized":
            apart = abs(float(solution.intercept) - sums["sum"])
            plain += 0.5 * apart**2
            upper += 0.5 * (apart + UNIT * sums["sum_size"]) ** 2
            dual += 0.5 * sums["sum"] ** 2
            error += UNIT * sums["sum_size"] ** 2
        row, cost, change = self._absorb(solution, f, errors, sums["sum"])
        before = upper
        if change != 0.0:
            upper += max(0.0, cost) + 0.5 * change**2 * self._square(row)
            dual -= float(solution.intercept) * change  # of the point whose sum is right
        error += UNIT * len(beta) * sums["size"]
        return self._relative(plain, upper, dual, error, upper - before)

    def by_weights(self, solution: Solution, compensated: bool) -> Certificate:
        """Of the model w'x + b, by a pass over the rows."""
        problem, w, b = self.problem, solution.weights, float(solution.intercept)
        assert w is not None
        f, errors, v, low, size = audit(self.passes, w, solution.beta, compensated)
        n = problem.n_rows
        length = float(np.linalg.norm(v + low))
        off = off_by(length, size, n, compensated)
        apart = float(np.linalg.norm((w - v) - low))
        sums = self.terms.audit(solution.beta, f, errors, b, compensated)
        row, cost, change = self._absorb(solution, f, errors, sums["sum"])
        far = apart + off + 2.0 * UNIT * float(np.linalg.norm(w))
        upper, off_balance = sums["upper"], 0.0
        upper += 0.5 * far**2
        before = upper
        if change != 0.0:
            length_of = abs(change) * math.sqrt(self._square(row))
            upper += max(0.0, cost) + length_of * (far + 0.5 * length_of)
            off_balance = b * change
        moved = upper - before
        plain = sums["gap"] + 0.5 * apart**2
        # of the point whose sum is right
        dual = 0.5 * length**2 + sums["conjugate"] - off_balance
        error = length * off + 0.5 * off**2
        error += UNIT * (len(w) * length**2 + n * sums["size"])
        if problem.intercept == "regularized":
            between = abs(b - sums["sum"])
            plain += 0.5 * between**2
            upper += 0.5 * (between + UNIT * sums["sum_size"]) ** 2
            dual += 0.5 * sums["sum"] ** 2
            error += UNIT * sums["sum_size"] ** 2
        return self._relative(plain, upper, dual, error, moved)

    def by_norms(self, solution: Solution, norms: Norms) -> Certificate:
        """Of the model w'x + b, by P + D as they were computed and the largest errors of both."""
        problem, w, b = self.problem, solution.weights, float(solution.intercept)
        assert w is not None
        n, d, P, D = problem.n_rows, len(w), solution.objective, solution.dual
        longest, combined, length = norms.longest, norms.combined, float(np.linalg.norm(w))
        total, size = self.terms.total(solution.beta)
        score = UNIT * longest * (norms.drift + 4.0 * length)
        of_primal = self.terms.value_error(solution.scores, b, score) + UNIT * (n + d + 8.0) * P
        off = off_by(combined, longest * size, n, False)
        # the negative terms of sum_i h_i are as large as those of zero weights, at most
        terms = abs(D) + combined**2 + total**2 + 2.0 * norms.zero
        of_dual = combined * off + 0.5 * off**2 + UNIT * (d * combined**2 + (n + 8.0) * terms)
        if problem.intercept == "regularized":
            of_dual += UNIT * n * size * (abs(total) + UNIT * n * size)
        upper = before = P + D + of_primal + of_dual
        row, cost, change = self._absorb(solution, solution.scores, np.array([score]), total)
        if change != 0.0:
            change = abs(change) if row >= 0 else math.inf
            far = longest * (length + combined + 0.5 * change * longest)
            upper += max(0.0, cost) + change * (abs(b) + far)
        return self._relative(P + D, upper, D, of_dual, upper - before)

    def _absorb(
        self, solution: Solution, f: Floats, errors: Floats, total: float
    ) -> tuple[int, float, float]:
        """The row that corrects the sum of beta most cheaply, its cost, and the change."""
        problem = self.problem
        change = problem.total - total if problem.intercept == "free" else 0.0
        if change == 0.0:
            return -1, 0.0, 0.0
        b = float(solution.intercept)
        row, cost = self.terms.absorb(solution.beta, f, errors, b, change)
        return row, cost, change

    def _square(self, row: int) -> float:
        """k(x, x) of a row of the problem; infinite for none."""
        if row < 0:
            return math.inf
        data, at = self.problem.data, int(self.problem.data_rows[row])
        if data.is_remote:
            return float(data.rounding[2][0]) ** 2
        if data.kernel.is_precomputed:
            return float(abs(data.X[at, at]))
        return float(abs(data.kernel.diagonal(sample_rows(data.X, np.array([at])))[0]))

    def _relative(
        self, plain: float, upper: float, dual: float, error: float, moved: float
    ) -> Certificate:
        """The gap of these figures; correcting the sum of beta raises D by `moved` at most."""
        plain, upper, dual = plain + self.more[0], upper + self.more[0], dual + self.more[1]
        return relative(plain, upper, dual, error + moved, self.problem.least_scale)

    def closer(self, solution: Solution) -> Floats:
        """The scores of a solution by compensated sums."""
        if solution.weights is None:
            return self.scores_of(solution, True)[0]
        return audit(self.passes, solution.weights, solution.beta, True)[0]

    def scores_of(self, solution: Solution, closely: bool) -> tuple[Floats, Floats]:
        """Scores K beta and bounds on their errors."""
        problem, rows = self.problem, self.problem.data_rows
        whole = np.zeros(problem.data.n_rows)
        whole[rows] = solution.beta
        bounds, f = Errors(problem.data, whole, problem.offset), solution.scores
        if not closely:
            return f, bounds.quick()[rows, 0]
        found = bounds.closely(rows, f[:, None], self.threads)
        return np.ascontiguousarray(found[0][:, 0]), np.ascontiguousarray(found[1][:, 0])
