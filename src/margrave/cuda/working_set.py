"""The working-set solver on a card: the counterpart of the core's WorkingSet for one problem."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.cuda.batch import CONVERGED, LARGEST_SET, RUNNING, Batch, Outline
from margrave.cuda.device import deferred_interrupt
from margrave.cuda.kernel_rows import KernelRows
from margrave.cuda.rows import Rows

Floats = NDArray[np.float64]
Record = dict[str, Any]

_NEAR, _NOW_AND_THEN = 3.0, 8  # the best bias: near the target, and every so many rounds


class WorkingSet:
    """A solver of one problem, with the interface of the compiled one.

    Parameters
    ----------
    kernel_rows : KernelRows
    loss : compiled loss
    rows : int array
        Those of the problem, among the data.
    y, C : float64 arrays
    start : float64 array or None
    has_free_intercept : bool
    total : float
        Sum of beta with a free intercept.
    scale : float
        Least scale of relative gaps.
    fixed : FixedPart or None
    size : int
        Variables per round.
    """

    def __init__(
        self,
        kernel_rows: KernelRows,
        loss: _core.Loss,
        rows: Rows,
        y: Floats,
        C: Floats,
        start: Floats | None,
        has_free_intercept: bool,
        total: float,
        scale: float,
        fixed: _core.FixedPart | None,
        size: int,
    ) -> None:
        self.kernel_rows, self.loss, self.rows = kernel_rows, loss, rows
        self.device = kernel_rows.device
        self.y, self.C, self.scale, self.free = y, C, scale, has_free_intercept
        nothing = np.zeros(len(y))
        self.shift = nothing if fixed is None else fixed.shift
        known = None if fixed is None or len(fixed.scores) == 0 else fixed.scores
        beta = start_of(loss, y, C, start, has_free_intercept and known is None, total)
        sums = (total, -total) if loss.sides else (total, 0.0)
        if known is not None:  # a part of a larger problem keeps its sums
            up = y > 0 if loss.sides else np.ones(len(y), dtype=bool)
            sums = (float(beta[up].sum()), float(beta[~up].sum()))
        self.sums = sums
        self.bound = fixed.bound if fixed is not None else float(loss.value(y, C, nothing).sum())
        self.started = known is not None or not beta.any()
        self.unknown = False
        self.interrupted = False
        self.is_over: Callable[[], bool] = lambda: False
        self.rounds = self.steps = self.kernel_values = 0
        capacity = min(len(y), size, LARGEST_SET)
        self.stall = _core.StallRule(
            10 + 8 * len(y) // capacity, kernel_rows.dtype == "float32", loss.sides
        )
        with self.device.at_work():
            self.batch = Batch(
                *(self.device, kernel_rows.rows(kernel_rows.dtype), kernel_rows.kernel),
                *(kernel_rows.dtype, loss, has_free_intercept),
                [
                    Outline(
                        *(rows, y, C, beta),
                        scores=known if known is not None else self.shift,
                        shift=None if fixed is None else fixed.shift,
                        sums=sums,
                        scale=scale,
                        fixed_dual=0.0 if fixed is None else fixed.dual,
                        fixed_gap=0.0 if fixed is None else fixed.gap,
                    )
                ],
                capacity,
            )

    def stop_if(self, is_over: Callable[[], bool]) -> None:
        """Ask a function before every round whether to stop."""
        self.is_over = is_over

    # --- rounds --------------------------------------------------------------------------------

    def advance(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        """Run rounds: "running", "converged", "stalled" or "stopped", and a record for each."""
        begin, records = time.monotonic(), list[Record]()
        with self.device.at_work(), deferred_interrupt() as pressed:
            if not self._begin(time_left):
                return "stopped", records
            self.batch.write("target", target)
            self.batch.write("status", RUNNING)
            for _ in range(max(0, max_rounds)):
                spent = time.monotonic() - begin
                is_over = pressed[0] or self.is_over()
                if is_over or spent >= time_left:
                    self.interrupted |= is_over
                    return "stopped", records
                if spent > seconds:
                    break
                status = self._round(target, records)
                if status != "running":
                    return status, records
        self.interrupted |= pressed[0]
        return ("stopped" if pressed[0] else "running"), records

    def _round(self, target: float, records: list[Record]) -> str:
        """One round; see `working_set.hpp`."""
        batch = self.batch
        batch.measure()
        at = self._figures()
        near = at["own_gap"] < _NEAR * target
        if at["own_gap"] > target and (near or self.rounds % _NOW_AND_THEN == 0) and self.free:
            batch.improve_bias()
            at = self._figures()
        if at["status"] != RUNNING:
            records.append(self._record(at))
            return "converged" if at["status"] == CONVERGED else "stalled"
        figures = at["primal"], at["dual"], at["gap"]
        if self.stall.check(self.rounds, *figures, self._dual_size()) or (
            -at["dual"] > 1.001 * self.bound + 1e-3 * self.scale + 1e-300  # indefinite
        ):
            records.append(self._record(at))
            return "stalled"
        batch.improve()
        self.rounds += 1
        records.append(self._record(at))
        return "running"

    def _dual_size(self) -> float:
        """The size of the terms behind the dual value, where a sum is given; see the core."""
        if self.rounds == 0 or not any(self.sums):
            return 0.0
        members = self.device.cupy.asnumpy(self.batch.set_rows[: self.batch.set_count[0].item()])
        diagonal = self.kernel_rows.diagonal(members.astype(np.int64))
        return self.sums[0] ** 2 * float(np.abs(diagonal).max(initial=0.0))

    def _begin(self, time_left: float) -> bool:
        """The scores of a start that is not zero."""
        if not self.started:
            beta = self.beta
            used = np.flatnonzero(beta)
            sums = self._sums(used, beta[used], np.arange(len(beta)), False, time_left)
            if sums is None:
                return False
            self._set_scores(sums + self.shift)
        self.started = True
        return True

    def _figures(self) -> Record:
        found = {name: values[0].item() for name, values in self.batch.read().items()}
        self.steps = found["steps"]
        return found

    def _sums(
        self, rows: Rows, coef: Floats, points: Rows, exact: bool, time_left: float
    ) -> Floats | None:
        """K[points, rows] coef, for rows of the problem; None if the time is over."""
        before = self.kernel_rows.kernel_values
        sums, _ = self.kernel_rows.multiply(
            self.rows[rows], coef[:, None], self.rows[points], exact, time_left
        )
        self.batch.count_values(self.kernel_rows.kernel_values - before)
        return None if sums is None else sums[:, 0]

    def _record(self, at: Record) -> Record:
        bias = (at["bias"] + at["other_bias"]) / 2 if self.loss.sides else at["bias"]
        gap = np.inf if self.unknown else at["gap"]
        self.kernel_values = at["values"]
        return {
            "round": self.rounds,
            "objective": at["primal"],
            "dual": at["dual"],
            "gap": gap,
            "violation": at["violation"],
            "support": at["support"],
            "steps": at["steps"],
            "kernel_values": at["values"],
            "intercept": bias if self.free else 0.0,
            "ago": 0.0,
        }

    def advance_with(
        self,
        sums_of: Any,
        target: float,
        max_rounds: int,
        seconds: float,
        time_left: float,
    ) -> tuple[str, list[Record]]:
        """As `advance`: a card computes sums faster than workers could send them."""
        return self.advance(target, max_rounds, seconds, time_left)

    # --- figures and the certificate -----------------------------------------------------------

    def figures(self) -> Record:
        """Figures of the present point from the running scores, with the best bias."""
        with self.device.at_work():
            if not self.started:
                self._forget()
            self.started = True
            return self._record(self._measured())

    def _measured(self) -> Record:
        self.batch.write("status", RUNNING)
        self.batch.measure()
        self.batch.improve_bias()
        return self._figures()

    def _forget(self) -> None:
        """Back to zero, where the scores of a start could not be computed in time."""
        if self.free and any(self.sums):
            self.unknown = True
            return
        cupy = self.device.cupy
        self.batch.beta[:] = cupy.asarray(np.clip(0.0, *self.loss.box(self.y, self.C)))
        self._set_scores(self.shift)

    def certify(self, time_left: float) -> Record | None:
        """Figures from scores recomputed in double precision; None if the time is over.

        Recomputed are the scores of the rows with a coefficient, then of those with a loss, then of
        those that the drift seen so far could give one.
        """
        deadline = time.monotonic() + time_left
        with self.device.at_work():
            at = self._measured()
            beta, scores = self.beta, self.scores
            bias = np.full(len(beta), at["bias"])
            if self.loss.sides:
                bias[self.y < 0] = at["other_bias"]
            used = np.flatnonzero(beta)
            fresh, drift = np.zeros(len(beta), dtype=bool), 0.0
            negligible = self.kernel_rows.kernel.negligible[self.kernel_rows.dtype]
            skipped = negligible * float(np.abs(beta).sum())
            for reach in (None, 0.0, 10.0):
                if reach is None:
                    wanted = beta != 0.0
                else:
                    off = reach * (drift + skipped)
                    wanted = (self.loss.value(self.y, self.C, scores + bias - off) > 0.0) | (
                        self.loss.value(self.y, self.C, scores + bias + off) > 0.0
                    )
                rows = np.flatnonzero(wanted & ~fresh)
                fresh[rows] = True
                sums = self._sums(used, beta[used], rows, True, deadline - time.monotonic())
                if sums is None:
                    return None
                exact = sums + self.shift[rows]
                drift = max(drift, float(np.abs(scores[rows] - exact).max(initial=0.0)))
                scores[rows] = exact
            self._set_scores(scores)
            return self._record(self._measured())

    # --- the whole problem and its active rows -------------------------------------------------

    def kkt_violations(self) -> Floats:
        """How much each row violates the KKT conditions: positive for violators."""
        with self.device.at_work():
            self._begin(1e18)
            self.batch.measure()
            return self.batch.violations()

    def fixed_part(self, active: Rows, time_left: float) -> _core.FixedPart | None:
        """The contribution of all other rows to a problem on the active ones; None if stopped."""
        beta, scores = self.beta, self.scores
        outside = np.ones(len(beta), dtype=bool)
        outside[active] = False
        inner, outer = (
            np.flatnonzero(~outside & (beta != 0.0)),
            np.flatnonzero(outside & (beta != 0.0)),
        )
        within = len(inner) < len(outer)
        used = inner if within else outer
        with self.device.at_work():
            own = self._sums(used, beta[used], active, False, time_left)
            if own is None:
                return None
            at = self._measured()
        y, C = self.y, self.C
        shift = scores[active] - own if within else own + self.shift[active]
        terms = 0.5 * beta[active] * (scores[active] + shift)
        conjugate = self.loss.conjugate(y[active], C[active], beta[active])
        bias = np.where(y < 0, at["other_bias"], at["bias"]) if self.loss.sides else at["bias"]
        gaps = self.loss.gap(y, C, beta, scores + bias)
        dual = at["dual"] - float(terms.sum()) - float(conjugate.sum())
        return _core.FixedPart(shift, scores[active], dual, float(gaps[outside].sum()), self.bound)

    def adopt(self, active: Rows, beta: Floats, scores: Floats, time_left: float) -> bool:
        """Take new values of the active rows and update the other scores; False if stopped."""
        before, all_scores = self.beta, self.scores
        changed = np.flatnonzero(before[active] != beta)
        others = np.ones(len(before), dtype=bool)
        others[active] = False
        rest = np.flatnonzero(others)
        with self.device.at_work():
            change = beta[changed] - before[active[changed]]
            sums = self._sums(active[changed], change, rest, False, time_left)
            if sums is None:
                return False
            all_scores[rest] += sums
            all_scores[active] = scores
            before[active] = beta
            self._set_scores(all_scores)
            self.batch.beta[:] = self.device.cupy.asarray(before)
        return True

    def _set_scores(self, scores: Floats) -> None:
        self.batch.scores[:] = self.device.cupy.asarray(scores)

    @property
    def work(self) -> tuple[int, int, int]:
        """Rounds, steps and kernel values so far."""
        return self.rounds, self.steps, self.kernel_values

    @property
    def beta(self) -> Floats:
        """Dual variables."""
        with self.device.at_work() as cupy:
            return np.asarray(cupy.asnumpy(self.batch.beta))

    @property
    def scores(self) -> Floats:
        """Scores K beta."""
        with self.device.at_work() as cupy:
            return np.asarray(cupy.asnumpy(self.batch.scores))


def start_of(
    loss: _core.Loss, y: Floats, C: Floats, start: Floats | None, is_balanced: bool, total: float
) -> Floats:
    """A start inside the box; where it is to be balanced, with the sums that a bias requires.

    The variables of the sign that is too heavy are scaled down; if that does not suffice, all move
    by the same fraction of the distance to their bounds.
    """
    lo, hi = loss.box(y, C)
    beta = loss.start(y, C) if start is None else np.clip(start, lo, hi)
    if not is_balanced:
        return beta
    groups = [(np.ones(len(y), dtype=bool), total)]
    if loss.sides:
        groups = [(y > 0, total), (y <= 0, -total)]
    for own, wanted in groups:
        plus, minus = own & (beta > 0), own & (beta < 0)
        positive, negative = float(beta[plus].sum()), -float(beta[minus].sum())
        excess = positive - negative - wanted
        if abs(excess) <= 1e-12 * max(positive, negative):
            continue
        if excess < -negative:
            room = hi[own] - beta[own]
            beta[own] += room * min(1.0, -excess / float(room.sum()))
        elif excess > positive:
            room = beta[own] - lo[own]
            beta[own] -= room * min(1.0, excess / float(room.sum()))
        elif excess > 0:
            beta[plus] *= 1.0 - excess / positive
        else:
            beta[minus] *= 1.0 + excess / negative
    return beta
