"""Shrinking: the working-set solver on an active set of rows, for many rows.

Once the scores f = K beta are roughly right, most rows satisfy the KKT conditions by a margin: they
are at a bound and would stay there. So

    1. solve the whole problem roughly, from its start;
    2. choose the active set: all rows with a KKT violation, and 15 % more of those that are
       nearest to one;
    3. solve the problem on the active set alone (short kernel rows, a small cache);
    4. bring the scores of the other rows up to date; stop if the gap of the whole problem is
       reached, else go to 2.

The dual never rises, and no row is left out for good.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.problem import Floats, Problem
from margrave.rows import size_in_bytes
from margrave.solvers.base import CHEAP
from margrave.solvers.kernel.descent import Kernels

Record = dict[str, Any]

_ROUGH_GAP = 0.1  # of the whole problem, at which the active set is chosen
_ROUGH_ROUNDS = 30
_LAST_ROUNDS = 10
_MARGIN = 1.15  # active rows per row with a KKT violation
_SPARE_ROWS = 1000
_NEARLY_ALL = 0.8  # fraction of rows above which shrinking is not worthwhile


class ActiveSet:
    """A `Core` with shrinking; it has the interface of the compiled WorkingSet."""

    def __init__(
        self, problem: Problem, kernels: Kernels, precision: str, start: Floats | None, floor: float
    ) -> None:
        self.problem, self.kernels, self.precision = problem, kernels, precision
        self.floor = floor
        rows = kernels.rows(precision, problem.offset, cache=False)
        self.whole = problem.core(rows, start, kernels.size, floor)
        self.part: _core.WorkingSet | None = None
        self.active: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.adopted = time.perf_counter()  # when the part's values were last copied to the whole
        self.adopting = 0.0  # seconds that it took
        # of the whole problem, before rows are chosen
        self.goal, self.last_round = _ROUGH_GAP, _ROUGH_ROUNDS
        self.support_outside = 0  # support vectors among the rows that are not active
        self.past: tuple[int, ...] = (0, 0, 0)  # work of the parts that are done

    # --- the interface of the compiled solver ----------------------------------------------

    def advance(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        """Run rounds on the whole or on the active rows; see the module's four steps."""
        whole = self.whole
        if self.part is not None:
            return self._advance_part(target, max_rounds, seconds, time_left)
        goal, last_round = max(target, self.goal), self.last_round
        limit = min(max_rounds, max(0, last_round - whole.work[0]))
        status, records = whole.advance(goal, limit, seconds, time_left)
        records = [self._converted(record) for record in records]
        if status == "converged" and goal <= target:
            return status, records
        if status == "converged" or whole.work[0] >= last_round:
            status = "running" if self._narrow(time_left) else "stopped"
        return status, records

    def _advance_part(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        whole, part = self.whole, self.part
        assert part is not None
        # rows outside, and rounding, add to the gap; a failed certificate is expensive
        status, records = part.advance(0.6 * target, max_rounds, seconds, time_left)
        records = [self._converted(record) for record in records]
        if status == "stopped":
            return status, records
        if status == "running":
            if time.perf_counter() - self.adopted > max(5.0, 20 * self.adopting):
                self._adopt(time_left)  # so that little is lost on a stop
            return status, records
        if not self._adopt(time_left):
            return "stopped", records
        self._close_part()
        gap = whole.figures()["gap"]
        if gap <= target:
            return "converged", records
        # near the target: rounds on all rows are faster than another active set
        self.goal = target
        self.last_round = whole.work[0] + (_LAST_ROUNDS if gap < 3 * target else 0)
        return ("running" if status == "converged" else status), records

    def certify(self, time_left: float) -> Record | None:
        """Certificate of the whole problem in double precision; None if it was stopped."""
        if self.part is not None and not self._adopt(time_left):
            return None
        self._close_part()  # the certificate changes the scores: choose a new active set
        figures = self.whole.certify(time_left)
        return None if figures is None else self._converted(figures)

    def figures(self) -> Record:
        """Figures of the whole problem at the last point copied from the part."""
        if self.part is not None and self._cost() < CHEAP:
            self._adopt(1e18)
        self._close_part()
        return self._converted(self.whole.figures())

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return any(core is not None and core.interrupted for core in (self.whole, self.part))

    @property
    def beta(self) -> Floats:
        """Dual variables."""
        return self.whole.beta

    @property
    def scores(self) -> Floats:
        """Scores K beta."""
        return self.whole.scores

    # --- the four steps ----------------------------------------------------------------------

    def _narrow(self, time_left: float) -> bool:
        """Choose the active rows and set up their problem; False if stopped."""
        self._close_part()
        whole = self.whole
        violations = whole.kkt_violations()
        n = len(violations)
        wanted = int(_MARGIN * np.count_nonzero(violations > 0.0)) + _SPARE_ROWS
        if wanted < _NEARLY_ALL * n:
            self.active = np.sort(np.argpartition(-violations, wanted)[:wanted])
        else:
            self.active = np.arange(n)
        fixed = whole.fixed_part(self.active, time_left)
        if fixed is None:
            return False
        part = self.problem.restrict(self.active)
        beta = whole.beta
        # the copy of the active rows, and what the whole keeps packed, and its kernel block
        taken = (
            size_in_bytes(part.data.X)
            + size_in_bytes(self.problem.data.X)
            + 8 * self.kernels.size**2
        )
        rows = part.data.kernel_rows(
            self.precision,
            max(0, self.kernels.memory - taken),
            self.kernels.buffer,
            self.kernels.threads,
            part.offset,
        )
        self.part = part.core(rows, beta[self.active], self.kernels.size, self.floor, fixed)
        self.support_outside = int(np.count_nonzero(beta) - np.count_nonzero(beta[self.active]))
        self.adopted = time.perf_counter()
        return True

    def _adopt(self, time_left: float) -> bool:
        """Copy the part's values to the whole and update its scores; False if stopped."""
        assert self.part is not None
        begin = time.perf_counter()
        whole = self.whole
        done = whole.adopt(self.active, self.part.beta, self.part.scores, time_left)
        self.adopted = time.perf_counter()
        self.adopting = self.adopted - begin
        return done

    def _cost(self) -> float:
        """Kernel values needed to copy the part's values to the whole."""
        assert self.part is not None
        changed = np.count_nonzero(self.whole.beta[self.active] != self.part.beta)
        others = self.problem.n_rows - len(self.active)
        return float(changed + others if self.problem.data.is_linear else changed * others)

    # --- work of the whole and of all parts --------------------------------------------------

    @property
    def work(self) -> tuple[int, int, int]:
        """Rounds, steps and kernel values so far, on the whole and on active rows."""
        done = [core.work for core in (self.whole, self.part) if core is not None]
        rounds, steps, values = (sum(column) for column in zip(self.past, *done, strict=True))
        return rounds, steps, values

    def _close_part(self) -> None:
        if self.part is not None:
            whole = self.whole.work
            self.past = tuple(a - b for a, b in zip(self.work, whole, strict=True))
            self.part = None  # frees its cache before the next one grows

    def _converted(self, record: Record) -> Record:
        """Convert a record to the whole problem, with the work of all parts."""
        rounds, steps, values = self.work
        own = (self.part or self.whole).work
        record["round"] += rounds - own[0]
        record["steps"] += steps - own[1]
        record["kernel_values"] += values - own[2]
        if self.part is not None:
            record["support"] += self.support_outside
            record["active"] = len(self.active)
        return record
