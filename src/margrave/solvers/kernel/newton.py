"""Newton's method for smooth losses, its systems solved by conjugate gradients.

    P = 1/2 beta'K beta + sum_i loss_i(f_i),   f = K beta,   g = loss'(f),   c = loss''(f)

Near the present scores every row's optimality condition beta_i = -loss'(f_i) is linear. On the rows
A with c > 0 it asks for

    (K_AA + 1/c) beta_A = f_A - g_A / c - K_AN beta_N,      and beta_N = -g_N elsewhere;

then an exact line search towards it, along which P is convex. Conjugate gradients need
products with K_AA only, whose rows go to all cores at once, and a pivoted Cholesky factor L of the
kernel, K ~ LL', preconditions them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.base import BaseEstimator

from margrave import _core
from margrave.losses import SMOOTH_LOSSES
from margrave.problem import BaseProblem, Floats, Problem, Solution
from margrave.rounds import Core, Record
from margrave.solvers.base import Settings, refuse_remote, refuse_unless
from margrave.solvers.kernel.descent import Kernels, descend
from margrave.solvers.linear.solve import is_linear, newton_linear

Rows = NDArray[np.int64]

_MOST_PRODUCTS = 500  # of one system
_HALVINGS = 60


class Newton(BaseEstimator):  # type: ignore[misc]
    """Newton-CG for smooth losses, with a regularised intercept or none.

    With the linear kernel, every loss and intercept (`linear/newton.py`).

    Parameters
    ----------
    rank : int, default=60
        Columns of the pivoted Cholesky factor that preconditions the systems.

    Examples
    --------
    >>> from margrave import ODMClassifier
    >>> model = ODMClassifier(solver="newton").fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    >>> model.solver_
    'newton'
    """

    def __init__(self, rank: int = 60) -> None:
        self.rank = rank

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems."""
        refuse_remote("newton", problems)
        if self.rank < 0:
            raise ValueError(f"a preconditioner of rank {self.rank} does not exist")
        if is_linear(problems):
            return newton_linear(problems, settings, starts)
        problems = refuse_unless("newton", problems, ("regularized", None), SMOOTH_LOSSES)

        def core_of(
            problem: Problem, kernels: Kernels, precision: str, start: Floats | None, floor: float
        ) -> Core:
            rows = kernels.rows(precision, problem.offset, cache=False)
            assert isinstance(rows, _core.KernelRows)  # a card has Newton's method for linear rows
            return _NewtonPoint(problem, rows, start, self.rank)

        return descend(problems, settings, starts, core_of, "newton")


class _Stopped(Exception):
    """The time is over, or Ctrl-C was pressed, in the middle of a step."""


class _NewtonPoint:
    """A point of the primal that moves by Newton steps."""

    def __init__(
        self, problem: Problem, rows: _core.KernelRows, start: Floats | None, rank: int
    ) -> None:
        self.problem, self.rows, self.rank = problem, rows, rank
        self.loss = problem.loss.core()
        self.data_rows = problem.data_rows
        n = problem.n_rows
        self.beta: Floats = np.zeros(n) if start is None else start.copy()
        self.scores: Floats = np.zeros(n)
        self.started = start is None
        self.factor: Floats | None = None  # of the kernel, for the preconditioner
        self.sharpness = 1.0  # factor of the systems' tolerance
        self.steps = self.products = self.kernel_values = 0
        self.interrupted = False
        self.deadline = np.inf

    # --- the interface of a core -------------------------------------------------------------

    def advance(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        """Take Newton steps."""
        self.deadline = time.perf_counter() + time_left
        slice_end = time.perf_counter() + seconds
        records: list[Record] = []
        try:
            if not self.started:
                self.scores = self._product(np.flatnonzero(self.beta), self.beta, None)
                self.started = True
            while len(records) < max_rounds and time.perf_counter() < slice_end:
                record = self.figures()
                records.append(record)
                if record["gap"] <= target:
                    return "converged", records
                if not self._step(record["gap"]):
                    return "stalled", records
        except _Stopped:
            return "stopped", records
        return "running", records

    def certify(self, time_left: float) -> Record | None:
        """Figures from scores in double precision, at the nearest point of the box."""
        self.deadline = time.perf_counter() + time_left
        beta = np.clip(self.beta, *self.loss.box(self.problem.y, self.problem.C))
        try:
            self.scores = self._product(np.flatnonzero(beta), beta, None, exact=True)
        except _Stopped:
            return None
        self.beta = beta
        return self.figures()

    def figures(self) -> Record:
        """Figures from the running scores."""
        if not self.started:
            self.beta, self.started = np.zeros_like(self.beta), True
        y, C = self.problem.y, self.problem.C
        low, high = self.loss.box(y, C)
        beta = np.clip(self.beta, low, high)
        gap = float(self.loss.gap(y, C, beta, self.scores).sum())
        dual = 0.5 * float(beta @ self.scores) + float(self.loss.conjugate(y, C, beta).sum())
        rounds, steps, values = self.work
        return {
            "round": rounds,
            "objective": gap - dual,
            "dual": dual,
            "gap": gap / max(abs(dual), abs(gap - dual), 1e-300),
            "support": int(np.count_nonzero(beta)),
            "steps": steps,
            "kernel_values": values,
            "products": self.products,
            "intercept": 0.0,
        }

    @property
    def work(self) -> tuple[int, int, int]:
        """Newton steps (twice: a step is a round here) and kernel values so far."""
        return self.steps, self.steps, self.kernel_values

    # --- one step ------------------------------------------------------------------------------

    def _step(self, gap: float) -> bool:
        """Go to the minimum along Newton's direction; False if no progress is possible."""
        y, C, f = self.problem.y, self.problem.C, self.scores
        g, c = self.loss.slope(y, C, f), self.loss.second_derivative(y, C, f)
        active = np.flatnonzero(c > 1e-9 * c.max())
        goal = -g  # of beta; on the active rows from the system
        goal[active] = self._system(active, g[active], c[active], goal, gap)
        direction = goal - self.beta
        moved = np.flatnonzero(direction)
        if len(moved) == 0:
            return False
        along = self._product(moved, direction, None)
        t = self._line_search(direction, along)
        if t == 0.0:
            if self.sharpness < 1e-6:
                return False
            self.sharpness *= 0.1
            return True
        if t < 0.1:  # the system was not solved well enough
            self.sharpness *= 0.1
        self.beta = goal if t == 1.0 else self.beta + t * direction
        self.scores = f + t * along
        self.steps += 1
        return True

    def _system(self, A: Rows, g: Floats, c: Floats, goal: Floats, gap: float) -> Floats:
        """Solve for beta on the active rows A, from where it is now."""
        rest = goal.copy()
        rest[A] = 0.0
        others = np.flatnonzero(rest)
        right = self.scores[A] - g / c
        if len(others):
            right = right - self._product(others, rest, A)
        solve = self._preconditioner(A, c)
        x = self.beta[A]
        residual = right - x / c - (self._among(A, x) if x.any() else 0.0)
        limit = self.sharpness * min(0.1, np.sqrt(gap)) * float(np.linalg.norm(residual))
        z = solve(residual)
        p, rz = z, float(residual @ z)
        for _ in range(_MOST_PRODUCTS):
            if np.linalg.norm(residual) <= limit or rz <= 0.0:
                break
            q = self._among(A, p) + p / c
            step = rz / float(p @ q)
            x = x + step * p
            residual = residual - step * q
            z = solve(residual)
            rz, before = float(residual @ z), rz
            p = z + (rz / before) * p
        return x

    def _line_search(self, direction: Floats, along: Floats) -> float:
        """Return the t > 0 where P(beta + t direction) is least: its derivative rises in t."""
        y, C, f = self.problem.y, self.problem.C, self.scores
        linear, quadratic = float(direction @ f), float(direction @ along)

        def slope(t: float) -> float:
            return linear + t * quadratic + float(self.loss.slope(y, C, f + t * along) @ along)

        if not slope(0.0) < 0.0:
            return 0.0
        at_one, scale = slope(1.0), abs(slope(0.0))
        if abs(at_one) <= 1e-3 * scale:
            return 1.0
        low, high = (0.0, 1.0) if at_one > 0.0 else (1.0, 2.0)
        while at_one < 0.0 and slope(high) < 0.0 and high < 1e6:
            low, high = high, 2.0 * high
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if slope(middle) > 0.0 else (middle, high)
        return low

    # --- the preconditioner --------------------------------------------------------------------

    def _preconditioner(self, A: Rows, c: Floats) -> Any:
        """Inverse of LL' + 1/c on the rows A, by Woodbury's formula."""
        if self.factor is None:
            self.factor = self._pivoted_cholesky()
        L = self.factor[A]
        if L.shape[1] == 0:
            return lambda r: c * r
        weighted = c[:, None] * L
        inner = linalg.cho_factor(np.eye(L.shape[1]) + L.T @ weighted)
        return lambda r: c * r - weighted @ linalg.cho_solve(inner, weighted.T @ r)

    def _pivoted_cholesky(self) -> Floats:
        """Columns of a partial Cholesky factor, each at the row with the largest residual."""
        n = self.problem.n_rows
        everything = np.arange(n)
        left = self.rows.diagonal(self.data_rows)
        least = 1e-10 * float(left.max())
        columns: list[Floats] = []
        L = np.zeros((n, 0))
        for _ in range(min(self.rank, n)):
            pivot = int(left.argmax())
            if left[pivot] <= least:
                break
            one = np.zeros(n)
            one[pivot] = 1.0
            column = self._product(np.array([pivot]), one, everything) - L @ L[pivot]
            column /= np.sqrt(left[pivot])
            columns.append(column)
            L = np.stack(columns, axis=1)
            left = np.maximum(left - column**2, 0.0)
            left[pivot] = 0.0
        return L

    # --- products with the kernel ----------------------------------------------------------------

    def _among(self, A: Rows, x: Floats) -> Floats:
        """K_AA x."""
        return self._multiply(self.data_rows[A], x, self.data_rows[A], False)

    def _product(self, rows: Rows, x: Floats, points: Rows | None, exact: bool = False) -> Floats:
        """K[points, rows] x[rows], for all points if they are not given."""
        to = self.data_rows if points is None else self.data_rows[points]
        return self._multiply(self.data_rows[rows], x[rows], to, exact)

    def _multiply(self, rows: Rows, x: Floats, points: Rows, exact: bool) -> Floats:
        before = self.rows.kernel_values
        left = max(0.0, min(self.deadline - time.perf_counter(), 1e18))
        sums, interrupted = self.rows.multiply(
            rows, np.ascontiguousarray(x[:, None]), points, exact, left
        )
        self.interrupted |= interrupted
        if sums is None:
            raise _Stopped
        self.products += 1
        self.kernel_values += self.rows.kernel_values - before
        found: Floats = sums[:, 0]
        return found
