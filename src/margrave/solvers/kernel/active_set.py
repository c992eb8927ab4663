"""Shrinking: the working-set solver on an active set of rows, for many rows.

Once the scores f = K beta are roughly right, most rows satisfy the KKT conditions by a margin: they
are at a bound and would stay there. So

    1. solve the whole problem roughly, from its start;
    2. choose the active set: all rows with a KKT violation, 15 % more of those that are nearest
       to one, and some to spare;
    3. solve the problem on the active set alone (short kernel rows, a small cache);
    4. bring the scores of the other rows up to date; stop if the gap of the whole problem is
       reached, else go to 2.

The dual never rises, and no row is left out for good. From a start that is good enough to choose
the active set, moving blocks (`moving_blocks.py`) are the first rounds of step 3; then the active
set is chosen anew each time the gap has fallen to a tenth.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from margrave import _core, cuda
from margrave.blocks.active import active_rows
from margrave.problem import Floats, Problem, Solution
from margrave.progress import FOREVER
from margrave.rounds import Core, Record
from margrave.rows import loaded, size_in_bytes
from margrave.solvers.base import CHEAP
from margrave.solvers.kernel.copies import Copies
from margrave.solvers.kernel.descent import Kernels
from margrave.solvers.kernel.moving_blocks import BlockPlan, MovingBlocks

# the whole problem's gap, and its round, at which the active set is chosen
ROUGH_GAP, ROUGH_ROUNDS = 0.1, 30
LAST_ROUNDS = 10  # on all rows near the target, before another active set is chosen
SPARE_ROWS = 1000  # active rows beside those near a KKT violation
# every so many rounds the part's values are copied to the whole if the work since the last copy is
# more than so many kernel values, and so many times the cost of copying
_BETWEEN_CHECKS, _MUCH_WORK, _DEAR = 32, 5e9, 20
_STEP_COST = 1000  # kernel values that take as long as a step
_LOWER = 0.1  # of the gap: there moving blocks get another active set
NEAR = 3.0  # times the target: below this gap another active set costs more than it saves


class Whole(Core, Protocol):
    """The core of all rows, which knows how much each violates the KKT conditions."""

    def kkt_violations(self) -> Floats:
        """Positive for violators, for satisfied rows minus their distance from becoming one."""
        ...

    def fixed_part(self, active: NDArray[np.int64], time_left: float) -> _core.FixedPart | None:
        """What the other rows contribute to a problem on the active ones; None if stopped."""
        ...

    def adopt(
        self, active: NDArray[np.int64], beta: Floats, scores: Floats, time_left: float
    ) -> bool:
        """Take new values of the active rows and update the other scores; False if stopped."""
        ...


class KeptWhole(Whole, Protocol):
    """All rows with workers, where checkpoints hold `notes` from which shrinking continues."""

    notes: Record


class ActiveSet:
    """A `Core` with shrinking; it has the interface of the compiled WorkingSet.

    `plan` says how blocks move; without it they do not. `kept` is the core of all rows where they
    are with workers, by default the compiled solver.
    """

    def __init__(
        self,
        problem: Problem,
        kernels: Kernels,
        precision: str,
        start: Floats | None,
        floor: float,
        plan: BlockPlan | None = None,
        kept: KeptWhole | None = None,
    ) -> None:
        self.problem, self.kernels, self.precision = problem, kernels, precision
        self.floor, self.plan = floor, plan
        self.kept = kept
        self.copies: Copies | None = None
        if plan is not None:
            common = plan.engine, plan.recovery, precision, floor, plan.memory, plan.threads
            self.copies = Copies(*common)
        self.whole: Whole
        if kept is not None:
            self.whole = kept
        else:
            rows = kernels.rows(precision, problem.offset, cache=False)
            self.whole = problem.core(rows, start, kernels.size, floor)
        self.part: cuda.AnyWorkingSet | MovingBlocks | None = None
        self.active: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self.adopted = (0, 0, 0)  # the part's work when its values were last copied to the whole
        # of the whole problem, before rows are chosen
        self.goal, self.last_round = ROUGH_GAP, ROUGH_ROUNDS if plan is None else 0
        self.lower = 0.0  # the gap at which the next active set is chosen
        self.last_gap = np.inf  # of the whole, when the active set was chosen
        self.support_outside = 0  # support vectors among the rows that are not active
        self.past: tuple[int, ...] = (0, 0, 0)  # work of the parts that are done
        self.has_adopted = False  # and nothing since then
        self.was_interrupted = False  # in a part that is done
        if kept is not None and kept.notes:
            self._resume(kept.notes)

    # --- the interface of the compiled solver ----------------------------------------------

    def advance(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        """Run rounds on the whole or on the active rows; see the module's four steps."""
        if time_left <= 0.0:
            return "stopped", []
        whole = self.whole
        if self.part is not None:
            return self._advance_part(target, max_rounds, seconds, time_left)
        if self.has_adopted and self._reaches(target):
            return "converged", []
        goal, last_round = max(target, self.goal), self.last_round
        limit = min(max_rounds, max(0, last_round - whole.work[0]))
        status, records = whole.advance(goal, limit, seconds, time_left)
        records = [self._converted(record) for record in records]
        if status == "stopped" or (status == "converged" and goal <= target):
            return status, records
        if status == "converged" or whole.work[0] >= last_round:
            status = "running" if self._narrow(time_left) else "stopped"
        return status, records

    def _advance_part(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        part = self.part
        assert part is not None
        # rows outside, and rounding, add to the gap; a failed certificate is expensive
        goal = self.lower if self.lower > NEAR * target else 0.6 * target
        until_check = _BETWEEN_CHECKS - part.work[0] % _BETWEEN_CHECKS
        status, records = part.advance(goal, min(max_rounds, until_check), seconds, time_left)
        records = [self._converted(record) for record in records]
        if self.plan is not None and self.plan.show and any("step" in one for one in records):
            self.plan.show(self._present(records[-1]))
        if status == "stopped":
            return status, records
        if status == "running":
            if self.kept is None and self._is_adoption_due():
                self._adopt(time_left)  # so that little is lost on a stop
            return status, records
        self.has_adopted = True
        self._note()
        if not self._adopt(time_left):
            return "stopped", records
        self._close_part()
        if self._reaches(target):
            return "converged", records
        if status == "converged":
            # without a step only rounding tells the active rows from all rows, and would again
            status = "running" if part.work[1] > 0 else "stalled"
        return status, records

    def _reaches(self, target: float) -> bool:
        """Whether all rows reach the target with the part's values; if not, how to go on."""
        gap = self.whole.figures()["gap"]
        self.has_adopted = False
        if gap <= target:
            return True
        # near the target: rounds on all rows are faster than another active set
        self.goal = target
        near = gap < NEAR * target and (self.plan is None or self.plan.has_set)
        self.last_round = self.whole.work[0] + (LAST_ROUNDS if near else 0)
        self._note()
        return False

    def _note(self) -> None:
        """Write down what the next checkpoint needs to continue from there."""
        if self.kept is None or self.plan is None:
            return
        self.kept.notes = {
            "goal": self.goal,
            "last_round": self.last_round,
            "last_gap": self.last_gap,
            "has_adopted": self.has_adopted,
            "past": [a - b for a, b in zip(self.work, self.whole.work, strict=True)],
            "done": self.plan.done,
        }

    def _resume(self, notes: Record) -> None:
        self.goal, self.last_round = notes["goal"], notes["last_round"]
        self.last_gap, self.has_adopted = notes["last_gap"], notes["has_adopted"]
        self.past = tuple(notes["past"])
        if self.plan is not None:
            self.plan.done = notes["done"]

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
            self._adopt(FOREVER)
        self._close_part()
        return self._converted(self.whole.figures())

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        cores = (self.whole, self.part)
        return self.was_interrupted or any(core is not None and core.interrupted for core in cores)

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
        active = active_rows(whole.kkt_violations(), SPARE_ROWS)
        self.active = np.arange(self.problem.n_rows) if active is None else active
        fixed = whole.fixed_part(self.active, time_left)
        if fixed is None:
            return False
        part = self.problem.restrict(self.active)
        part = replace(part, data=replace(part.data, X=loaded(part.data.X)))
        beta = whole.beta
        # the copy of the active rows, and what the whole keeps packed, and its kernel block
        taken = (
            size_in_bytes(part.data.X)
            + size_in_bytes(self.problem.data.X)
            + 8 * self.kernels.size**2
            + (0 if self.plan is None else self.plan.memory)
        )
        rows = part.data.kernel_rows(
            self.precision,
            max(0, self.kernels.memory - taken),
            self.kernels.buffer,
            self.kernels.threads,
            part.offset,
        )
        core = part.core(rows, beta[self.active], self.kernels.size, self.floor, fixed)
        self.part, self.lower = core, 0.0
        if self.plan is not None and self.copies is not None:
            self.copies.choose(part, self.active)
            self.part = MovingBlocks(part, core, self.floor, self.plan, self.copies)
            gap = whole.figures()["gap"]
            self.lower = _LOWER * gap if gap < self.last_gap else 0.0
            self.last_gap = gap
        self.support_outside = int(np.count_nonzero(beta) - np.count_nonzero(beta[self.active]))
        self.adopted = self.part.work
        return True

    def _is_adoption_due(self) -> bool:
        """Whether so much work would be lost on a stop that copying it to the whole is cheap.

        By counted work, about five seconds of it: results must not depend on the clock.
        """
        assert self.part is not None
        if self.part.work[0] % _BETWEEN_CHECKS:
            return False
        _, steps, values = (a - b for a, b in zip(self.part.work, self.adopted, strict=True))
        done = values + _STEP_COST * steps
        return done > _MUCH_WORK and done > _DEAR * self._cost()

    def _adopt(self, time_left: float) -> bool:
        """Copy the part's values to the whole and update its scores; False if stopped."""
        assert self.part is not None
        self.adopted = self.part.work
        return self.whole.adopt(self.active, self.part.beta, self.part.scores, time_left)

    def _cost(self) -> float:
        """Kernel values needed to copy the part's values to the whole."""
        assert self.part is not None
        changed = np.count_nonzero(self.whole.beta[self.active] != self.part.beta)
        others = self.problem.n_rows - len(self.active)
        return float(changed + others if self.problem.data.is_linear else changed * others)

    def _present(self, record: Record) -> Solution:
        """The present point; rows that are not active have the scores last copied to them."""
        assert self.part is not None
        beta, scores = self.whole.beta.copy(), self.whole.scores.copy()
        beta[self.active], scores[self.active] = self.part.beta, self.part.scores
        intercept = record["intercept"]
        if self.problem.intercept == "regularized":  # the core's scores include it
            intercept = float(beta.sum())
            scores -= intercept
        return Solution(
            beta=beta,
            intercept=intercept,
            scores=scores,
            objective=record["objective"],
            dual=record["dual"],
            gap=record["gap"],
            converged=False,
            n_iter=record["round"],
            precision=self.precision,
            solver="pbm" if self.kept is not None else "dc",
            certificate="estimate",
        )

    # --- work of the whole and of all parts --------------------------------------------------

    @property
    def work(self) -> tuple[int, int, int]:
        """Rounds, steps and kernel values so far, on the whole and on active rows."""
        done = [core.work for core in (self.whole, self.part) if core is not None]
        rounds, steps, values = (sum(column) for column in zip(self.past, *done, strict=True))
        return rounds, steps, values

    def close(self) -> None:
        """Release copies of the active rows at workers."""
        if self.copies is not None:
            self.copies.close()

    def _close_part(self) -> None:
        if self.part is not None:
            whole = self.whole.work
            self.past = tuple(a - b for a, b in zip(self.work, whole, strict=True))
            self.was_interrupted |= self.part.interrupted
            if self.plan is not None and not self.plan.spreads:
                self.close()  # nothing is sent between threads
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
