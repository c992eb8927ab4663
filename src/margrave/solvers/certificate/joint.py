"""The gap of a joint problem, which has one score per class."""

from __future__ import annotations

import numpy as np

from margrave import _core
from margrave.blocks.passes import Passes
from margrave.losses import JOINT_LOSSES
from margrave.problem import Floats, JointProblem, Solution
from margrave.solvers.certificate.errors import Errors, audit, off_by
from margrave.solvers.certificate.figures import UNIT, Certificate, relative


class JointGap:
    """The certificate of a problem with a score per class."""

    def __init__(self, problem: JointProblem, threads: int) -> None:
        self.problem, self.threads = problem, threads

    def by_scores(self, solution: Solution, closely: bool) -> Certificate:
        """Of the model with the coefficients beta, whose scores are in the solution."""
        beta, f = solution.beta, solution.scores
        # the solver's scores are those of the kernel K + multiplier, less the multiplier's part
        bounds = Errors(self.problem.data, beta, self.problem.offset)
        errors = bounds.quick()
        if closely:
            f, errors = bounds.closely(np.arange(len(beta)), f, self.threads)
        norm = 0.5 * float((beta * f).sum())
        error = 0.5 * float((np.abs(beta) * errors).sum())
        error += UNIT * beta.size * float(np.abs(beta * f).sum())
        return self._certificate(solution, f, errors, norm, norm, 2.0 * error)

    def by_weights(self, solution: Solution, compensated: bool) -> Certificate:
        """Of the model of these weights, by a pass over the rows for each class."""
        problem, W, beta = self.problem, solution.weights, solution.beta
        assert W is not None
        passes = Passes(problem.data, [0], _core.Team(1), lambda: 1e18)
        f, errors = np.empty(beta.shape), np.empty(beta.shape)
        norms, error = [0.0, 0.0], 0.0
        for c, w in enumerate(W):
            column = np.ascontiguousarray(beta[:, c])
            f[:, c], errors[:, c], v, low, size = audit(passes, w, column, compensated)
            length = float(np.linalg.norm(v + low))
            off = off_by(length, size, len(beta), compensated)
            norms[0] += 0.5 * float(w @ w)
            norms[1] += 0.5 * length**2
            error += length * off + 0.5 * off**2
            error += UNIT * len(w) * (float(w @ w) + length**2)
        return self._certificate(solution, f, errors, norms[0], norms[1], error)

    def _certificate(
        self,
        solution: Solution,
        f: Floats,
        errors: Floats,
        primal: float,
        dual: float,
        error: float,
    ) -> Certificate:
        """Add the rows' losses to both norms; a loss is largest if its own class is too low."""
        problem, b = self.problem, np.asarray(solution.intercept)
        loss, shares = JOINT_LOSSES[problem.loss], problem.shares(solution.beta)
        shares /= shares.sum(axis=1, keepdims=True)  # in the simplex, where a solver may leave it
        beta = problem.variables(shares)
        at = f + b
        own = np.arange(len(at)), problem.y
        losses = float(problem.C @ loss.value(at, problem.y))
        worst = at.copy()
        worst[own] -= 2.0 * (errors + UNIT * (np.abs(f) + np.abs(b))).max(axis=1)
        most = float(problem.C @ loss.value(worst, problem.y))
        conjugate = problem.C * loss.conjugate(shares, problem.y)
        total = beta.sum(axis=0)
        n = at.size
        if problem.intercept == "regularized":
            primal += 0.5 * float(b @ b)
            dual += 0.5 * float(total @ total)
            error += UNIT * n * float(np.abs(beta).sum()) * float(np.abs(total).sum())
        elif problem.intercept == "free":
            # the effect of a nonzero sum of beta, with intercepts as large as any score
            error += float(np.abs(total).sum()) * float(np.abs(at).max() + np.abs(b).max() + 1.0)
        primal, dual = primal + losses, dual + float(conjugate.sum())
        # rounding of beta = C (e_y - p), in units of C
        moved = solution.beta.any(axis=1)
        most_of = np.abs(at[moved]).max(axis=1, initial=0.0) + 1.0
        error += 4.0 * UNIT * problem.n_classes * float(problem.C[moved] @ most_of)
        error += self._cost_of_moving(np.abs(solution.beta - beta).sum(axis=1), f)
        error += UNIT * n * (abs(primal) + abs(dual) + float(np.abs(conjugate).sum()))
        plain = max(0.0, primal + dual)
        return relative(plain, plain + max(0.0, most - losses) + error, dual, error)

    def _cost_of_moving(self, distance: Floats, f: Floats) -> float:
        """Bound on the change of 1/2 beta'K beta if each row's variables move by this much."""
        moved = np.flatnonzero(distance)
        if len(moved) == 0:
            return 0.0
        root = self.problem.data.rounding[2]
        far = float(distance @ root)
        return float(distance[moved] @ np.abs(f[moved]).max(axis=1)) + 0.5 * far * far
