"""Several classes in one problem, with free intercepts.

The compiled solver (``cpp/joint.hpp``) handles fixed intercepts b. Free ones require
sum_i beta_ic = 0 in every class, which is reached by the method of multipliers:

    beta = argmin of the problem with the kernel K + rho and the intercepts b;    b += rho sum beta

With given variables they begin at the best b for these (`best_biases`), else at zero.

Before a certificate the small remainders of the sums are removed, in the rows where this changes
the objective least.
"""

from __future__ import annotations

import time

import numpy as np
from scipy.optimize import minimize

from margrave import _core, cuda
from margrave.losses import JOINT_LOSSES
from margrave.problem import Floats, JointProblem
from margrave.rounds import Core, Record
from margrave.solvers.kernel.copies import Copies
from margrave.solvers.kernel.descent import Kernels
from margrave.solvers.kernel.moving_blocks import SET_ROUNDS, BlockPlan, MovingBlocks

_MOST_UPDATES = 200
_SHARPEST = 1e-9  # smallest width of a smooth maximum, in margins


def joint_core(
    problem: JointProblem,
    kernels: Kernels,
    precision: str,
    start: Floats | None,
    plan: BlockPlan | None = None,
) -> Core:
    """Make the solver of a joint problem; `plan` says how blocks move, without it they do not."""
    spare = 0 if plan is None else plan.memory
    rows = kernels.rows(precision, problem.offset, cache=False, spare=spare)
    joint = problem.core(rows, start, kernels.size, 0.0)
    core: _core.Joint | MovingBlocks = joint
    if plan is not None:
        common = plan.engine, plan.recovery, precision, 0.0, plan.memory, plan.threads
        copies = Copies(*common)
        copies.choose(problem, np.arange(problem.n_rows))  # no rows are left out
        # the first round of blocks is the longest: a stop there leaves what these have found
        set_first = SET_ROUNDS if start is None and plan.has_set else 0
        core = MovingBlocks(problem, joint, 0.0, plan, copies, set_first)
    if problem.intercept == "free":
        return _FreeIntercepts(problem, rows, core, kernels.settings.tol, start is not None)
    return core


class _FreeIntercepts:
    """The method of multipliers around a solver for given intercepts."""

    def __init__(
        self,
        problem: JointProblem,
        rows: cuda.AnyKernelRows,
        core: _core.Joint | MovingBlocks,
        tol: float,
        has_start: bool,
    ) -> None:
        self.problem, self.rows, self.core, self.tol = problem, rows, core, tol
        self.rho = problem.multiplier
        self.b = np.zeros(problem.n_classes)
        self.has_biases = not has_start  # those of a start follow from its scores
        self.inner = 1e-2  # relative gap of the problem with given intercepts
        self.updates = 0
        self.stopped_by_user = False
        self.point: tuple[Floats, Floats] | None = None  # beta and scores of the last figures

    def advance(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        """Run rounds; when the problem with the present intercepts is solved, move them."""
        if not self.has_biases:
            status, _ = self.core.advance(0.0, 0, seconds, time_left)  # computes the scores
            if status == "stopped":
                return status, []
            self.b = best_biases(self.problem, self.core.scores, self.tol, time_left)
            self.core.set_bias(self.b)
            self.has_biases = True
        status, _ = self.core.advance(max(self.inner, 1e-14), max_rounds, seconds, time_left)
        if status in ("running", "stopped"):
            return status, []
        self.b = self.b + self.rho * self.core.beta.sum(axis=0)
        self.core.set_bias(self.b)
        self.updates += 1
        record = self._evaluate(exact=False, time_left=time_left)
        if record is None:
            return "stopped", []
        if record["gap"] <= target:
            return "converged", [record]
        self.inner = min(self.inner, 0.2 * record["gap"])
        exhausted = status == "stalled" or self.updates >= _MOST_UPDATES
        return ("stalled" if exhausted else "running"), [record]

    def certify(self, time_left: float) -> Record | None:
        """Figures from scores in double precision, with sums of zero."""
        if self.core.certify(time_left) is None:
            return None
        return self._evaluate(exact=True, time_left=time_left)

    def figures(self) -> Record:
        """Figures from the running scores, with sums of zero."""
        self.core.figures()
        record = self._evaluate(exact=False, time_left=1e18)
        if record is None:  # Ctrl-C a second time
            self.point = np.zeros_like(self.core.beta), np.zeros_like(self.core.scores)
            record = self._figures_of(*self.point)
        return record

    @property
    def work(self) -> tuple[int, int, int]:
        """Rounds, steps and kernel values so far."""
        return self.core.work

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.stopped_by_user or self.core.interrupted

    @property
    def beta(self) -> Floats:
        """Dual variables, one column per class, each of sum zero."""
        assert self.point is not None
        return self.point[0]

    @property
    def scores(self) -> Floats:
        """Scores K beta."""
        assert self.point is not None
        return self.point[1]

    def _evaluate(self, exact: bool, time_left: float) -> Record | None:
        """Figures of the point whose sums have been brought to zero; None if stopped."""
        problem, beta, scores = self.problem, self.core.beta, self.core.scores
        shift = balancing(problem, beta, scores + (self.b - self.rho * beta.sum(axis=0)))
        rows = np.flatnonzero(shift.any(axis=1))
        sums, interrupted = self.rows.multiply(
            rows, np.ascontiguousarray(shift[rows]), np.arange(len(beta)), exact, time_left
        )
        self.stopped_by_user |= interrupted
        if sums is None:
            return None
        balanced = beta + shift
        self.point = balanced, scores + sums - self.rho * balanced.sum(axis=0)
        return self._figures_of(*self.point)

    def _figures_of(self, beta: Floats, scores: Floats) -> Record:
        primal, dual = self.problem.terms(beta, scores, self.b)
        rounds, steps, values = self.work
        return {
            "round": rounds,
            "objective": primal,
            "dual": dual,
            "gap": max(0.0, primal + dual) / max(abs(primal), abs(dual), 1e-300),
            "support": int(beta.any(axis=1).sum()),
            "steps": steps,
            "kernel_values": values,
            "intercept": self.b,
        }


def best_biases(problem: JointProblem, f: Floats, tol: float, time_left: float) -> Floats:
    """Intercepts whose sum of losses is the least for given scores, to about a relative `tol`.

    The largest score of a row is replaced by a smooth maximum, t log sum_c exp(f_c / t), which is
    minimised for smaller and smaller t; with t = 1 it is the loss of the softmax. If the time is
    over, the best intercepts so far.
    """
    end, n, k = time.monotonic() + time_left, *f.shape
    own, weight = (np.arange(n), problem.y), problem.C / problem.C.sum()
    wanted = np.bincount(problem.y, weight, k)
    is_smooth = problem.is_smooth
    ahead = f if is_smooth else f + 1.0
    if not is_smooth:
        ahead[own] -= 1.0
    ahead = np.ascontiguousarray((ahead - f[own][:, None]).T)  # faster than many short rows

    def loss(b: Floats) -> float:
        return float(weight @ JOINT_LOSSES[problem.loss].value(f + b, problem.y))

    shares = np.empty_like(ahead)  # of the classes in the smooth maximum of each row

    def smooth(b: Floats, t: float) -> tuple[float, Floats]:
        if time.monotonic() > end:
            raise _core.Stopped
        np.add(ahead, b[:, None], out=shares)
        largest = shares.max(axis=0)
        np.exp((shares - largest) / t, out=shares)
        total = shares.sum(axis=0)
        np.divide(shares, total, out=shares)
        value = float(weight @ (largest + t * np.log(total)) - wanted @ b)
        return value, shares @ weight - wanted

    def curvature(_: Floats, t: float) -> Floats:  # where `smooth` was called last
        found: Floats = (np.diag(shares @ weight) - (shares * weight) @ shares.T) / t
        return found

    best = b = np.zeros(k)
    least = loss(b)
    t, last = max(1.0, float(weight @ np.abs(ahead).max(axis=0))), 1.0 if is_smooth else _SHARPEST
    while True:
        radii = {"initial_trust_radius": t, "max_trust_radius": 64.0 * t}
        options = {**radii, "gtol": tol, "maxiter": 60}
        arguments = {"jac": True, "hess": curvature, "method": "trust-exact", "options": options}
        try:
            b = minimize(smooth, b, (t,), **arguments).x
        except (_core.Stopped, ValueError):  # or scores that overflow: the kernel is indefinite
            return best
        b = b - b.mean()  # the same for all classes changes nothing
        value = loss(b)
        if value < least:
            best, least = b, value
        if t <= last or (not is_smooth and t * np.log(k) <= 0.1 * tol * least):
            return best
        t = max(last, 0.25 * t)


def balancing(problem: JointProblem, beta: Floats, f: Floats) -> Floats:
    """Return a small change of beta that brings the sum of every column to zero.

    Weight goes from a class whose sum is too large to one whose sum is too small, in the rows whose
    scores of the two are nearest to each other: there it matters least.
    """
    shift = np.zeros_like(beta)
    left = beta.sum(axis=0)
    ahead = f + 1.0
    ahead[np.arange(len(f)), problem.y] -= 1.0
    while np.abs(left).max() > 1e-15 * np.abs(beta).sum():
        a, b = int(left.argmax()), int(left.argmin())
        wanted = min(left[a], -left[b])
        share = problem.shares(beta + shift)[:, b] * problem.C
        order = np.argsort(np.abs(ahead[:, a] - ahead[:, b]))
        # half of what is there: softmax shares must stay positive
        taken = np.diff(np.minimum(np.cumsum(0.5 * share[order]), wanted), prepend=0.0)
        if taken.sum() <= 0.5 * wanted and taken.sum() <= 1e-15 * np.abs(beta).sum():
            break
        shift[order, a] -= taken
        shift[order, b] += taken
        left[a] -= taken.sum()
        left[b] += taken.sum()
    return shift
