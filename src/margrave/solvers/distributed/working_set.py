"""The distributed working-set solver, with the rows in shards.

    every shard    propose the rows with the largest KKT violations, by their rates -f - h'
    driver         the worst of all join the working set W, the oldest half leaves; solve on W alone
    every shard    scores f += K(own rows, W) (change of beta on W)

A round sends a few numbers per candidate, the new rows of W, and one number per member of W, but
never a number per row. The result does not depend on the number of workers or on which of them is
faster. `DistributedSet._round` is one round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.blocks import Candidates, Fresh
from margrave.blocks.point import fixed_part, own_scores, row_biases, stack
from margrave.problem import Data, Floats, Problem
from margrave.progress import FOREVER
from margrave.rounds import Record, Watch, floor_for, run_rounds, set_size
from margrave.rows import loaded
from margrave.solvers.distributed.biases import enclose_biases
from margrave.solvers.distributed.cluster import Cluster
from margrave.solvers.distributed.membership import Members, worst_pairs, worst_rows
from margrave.solvers.kernel.active_set import (
    LAST_ROUNDS,
    NEAR,
    ROUGH_GAP,
    ROUGH_ROUNDS,
    SPARE_ROWS,
)

Rows = NDArray[np.int64]
T = TypeVar("T")

_LARGEST_SET = 2048
_INNER_ROUNDS = 20
_INNER_SHARE = 0.1  # tolerance on W, as a fraction of the largest KKT violation
_BUFFER = 1 << 22
_FEW_ROWS = 5000  # up to which there is no shrinking
_BETWEEN_CHECKPOINTS = 40  # rounds: a count, so that a run is the same however long they take
_ROUGHLY, _EXACTLY = 1e-7, 1e-12  # widths of the interval that holds the best bias


@dataclass
class RoundState:
    """The state of one problem's rounds in a checkpoint, besides the variables of its rows."""

    bias: Floats  # hulls have one for each sign of y
    violation: float = 0.0
    rounds: int = 0
    steps: int = 0
    kernel_values: int = 0
    last: Record = field(default_factory=dict)  # figures of the last round
    dual: float = 0.0
    inner_share: float = _INNER_SHARE
    is_narrow: bool = False  # whether only active rows take part (shrinking)
    narrow_round: int = -1  # when that began
    active: int = 0  # rows that take part
    outside: float = 0.0  # gap terms of the other rows
    goal: float = ROUGH_GAP  # gap of all rows at which shrinking begins
    last_whole: int = ROUGH_ROUNDS  # or the round in which it does


class DistributedSet:
    """A `Core` for one problem of a cluster, with the interface of the compiled WorkingSet."""

    def __init__(
        self, cluster: Cluster, p: int, problem: Problem, precision: str, size: int | None
    ) -> None:
        self.cluster, self.p, self.problem, self.precision = cluster, p, problem, precision
        self.has_free_intercept = problem.intercept == "free"
        least = 8 if problem.is_hull else 2  # so that a pair of each class can join
        largest = size or set_size(cluster.memory, _LARGEST_SET)
        self.capacity = min(max(largest, least), problem.n_rows)
        self.members = Members()
        self.state = RoundState(np.zeros(2 if problem.is_hull else 1))
        self.answers: tuple[Any, ...] | None = None  # of the shards to the last step
        self.stall = self._new_stall_rule()
        self.saved_round = -1
        self.target = self.waited = 0.0
        self.has_ended = False  # whether the last round made no step
        self.bytes = self.computed = 0
        self.interrupted = self.has_begun = False
        self.notes: Record = {}  # of shrinking, for checkpoints
        self.is_settled = False  # whether the last figures are of the last checkpoint
        self.has_shrinking = True  # unless `ActiveSet` does it
        self.is_inconsistent = False  # some shards have applied a step, and others have not
        self.version = 0  # of the shards to which this state belongs

    # --- a round -----------------------------------------------------------------------------

    def _round(self, target: float) -> str:
        """Choose the working set, solve on it, and apply the step on all shards."""
        self.is_settled = False
        # 1. the KKT violations and the gap, from the shards' last answers
        if self.answers is None:
            self.answers = self._step(0, None, None)
        gap, dual, support, offers = self.answers
        self._measure(offers)
        self._record(gap, dual, support)
        near = target < self.state.last["own_gap"] < 3.0 * target
        if (
            self.has_free_intercept
            and self.state.last["gap"] > target
            and self.state.rounds % (2 if near else 8) == 0
        ):
            self._evaluate()
        # 2. whether to stop, and on which rows to continue (shrinking)
        stalls = self._has_stalled() or self._is_indefinite()
        solved = not self.state.violation > 0.0
        if self.state.is_narrow:
            # inactive rows, and rounding, add to the gap
            if self.state.last["own_gap"] <= 0.6 * target or solved or stalls:
                return self._widen(target, stalls)
        elif self.state.last["gap"] <= target:
            return "converged"
        elif solved or stalls:
            return "stalled"
        elif (
            self.state.last["gap"] <= self.state.goal or self.state.rounds >= self.state.last_whole
        ):
            self._narrow()
            offers = self.answers[3]
        # 3. the worst violators join the working set, 4. which the driver solves
        leave, fresh = self._choose(offers)
        if len(self.members) == 0:
            return "stalled"
        values = self._solve(dual)
        if len(fresh.beta) == 0 and np.array_equal(values, self.members.beta):
            # the set holds the worst rows and nothing moves: solve more accurately
            if self.state.inner_share < 1e-3:
                return self._widen(target, False) if self.state.is_narrow else "stalled"
            self.state.inner_share *= 0.1
        # 5. the shards update their scores
        self.answers = self._step(leave, fresh, values)
        self.state.rounds += 1
        return "running"

    def _step(self, leave: int, fresh: Fresh | None, values: Floats | None) -> tuple[Any, ...]:
        """Apply a step on all shards: sums of gap terms, dual, support, and candidates."""
        before = self.cluster.moved
        negligible = 0.0
        if self.state.last:
            scale = max(abs(self.state.last["objective"]), abs(self.state.last["dual"]))
            negligible = 1e-3 * self.target * scale / self.problem.n_rows
        count = (
            -(-self._newcomers // (2 * len(self.state.bias)))
            if self.has_free_intercept
            else self._newcomers
        )
        begin = time.perf_counter()
        replies = self.cluster.map(
            *(
                "step",
                self.p,
                leave,
                fresh,
                values,
                self.state.bias,
                count,
                negligible,
                self.precision,
            )
        )
        self.waited = time.perf_counter() - begin
        if values is not None:
            self.members.beta = values
        for number, (_, _, _, scores) in enumerate(replies):
            self.members.scores[self.members.owner == number] = scores
        gap = float(sum(reply[0].sum() for reply in replies))
        dual, support, computed = sum(reply[1] for reply in replies)
        if not self.state.is_narrow:
            self.state.dual = float(dual)
        self.computed = int(computed)
        self.bytes = self.cluster.moved - before
        return gap, self.state.dual, int(support), [reply[2] for reply in replies]

    def _narrow(self) -> None:
        """Shrink to the rows with a KKT violation, or nearly one."""
        if self.problem.n_rows < _FEW_ROWS or not self.has_shrinking:
            return
        spare = SPARE_ROWS // len(self.cluster.parts) + 1
        self.state.active, self.state.outside = self.cluster.reduce(
            "narrow", self.p, self.state.bias, spare
        )
        self.state.is_narrow, self.state.narrow_round = (
            self.state.active < self.problem.n_rows,
            self.state.rounds,
        )
        self.answers = self._step(0, None, None)

    def _update_inactive(self) -> None:
        """Bring the scores of inactive rows up to date."""
        if self.state.is_narrow:
            self.cluster.map("widen", self.p)
            self.state.is_narrow, self.state.outside = False, 0.0

    def _widen(self, target: float, stalls: bool) -> str:
        """Make all rows active again, and compute the figures for them."""
        self._update_inactive()
        self.stall = self._new_stall_rule()
        self.answers = self._step(0, None, None)
        gap, dual, support, offers = self.answers
        self._measure(offers)
        self._record(gap, dual, support)
        if self.has_free_intercept:
            self._evaluate()
        if self.state.last["gap"] <= target:
            return "converged"
        # near the target: rounds on all rows are faster than another active set
        if self.state.rounds == self.state.narrow_round:  # shrinking gains nothing
            self.state.goal, self.state.last_whole = 0.0, 1 << 60
            return "stalled" if stalls else "running"
        self.state.goal = target
        self.state.last_whole = self.state.rounds + (
            LAST_ROUNDS if self.state.last["gap"] < NEAR * target else 0
        )
        return "stalled" if stalls else "running"

    def _measure(self, offers: Sequence[Sequence[Candidates]]) -> None:
        tops = np.array([[o.top for o in part] for part in offers]).max(axis=0)
        bottoms = np.array([[o.bottom for o in part] for part in offers]).min(axis=0)
        if not self.has_free_intercept:
            self.state.violation = max(0.0, float(tops[0]), -float(bottoms[0]))
            return
        self.state.violation = float(np.max(tops - bottoms))
        self.middle = self.state.bias
        if self.problem.loss.core().quadratic:
            self.middle = self.state.bias = np.array(
                [_middle(*ends) for ends in zip(tops, bottoms, self.state.bias, strict=True)]
            )

    @property
    def _newcomers(self) -> int:
        """How many rows may join: half of the set, all of an empty one."""
        return max(1, self.capacity // 2) if len(self.members) else self.capacity

    def _choose(self, offers: Sequence[Sequence[Candidates]]) -> tuple[int, Fresh]:
        """Add the candidates with the largest KKT violations; the oldest members leave."""
        count = self._newcomers
        if self.has_free_intercept:
            count = max(1, count // len(self.state.bias))
            chosen = [
                worst_pairs(side, middle, count)
                for side, middle in zip(zip(*offers, strict=True), self.middle, strict=True)
            ]
        else:
            chosen = [worst_rows([part[0] for part in offers], count)]
        owner = np.concatenate([owners for owners, _ in chosen])
        place = np.concatenate([places for _, places in chosen])
        leave = max(0, len(owner) + len(self.members) - self.capacity)
        order = np.argsort(owner, kind="stable")  # as the shards send them: shard by shard
        return leave, self._admit(leave, owner[order].astype(np.int32), place[order])

    def _admit(self, leave: int, owner: NDArray[np.int32], place: Rows) -> Fresh:
        """Add rows of the shards to the working set, in this order."""
        wanted = [(self.p, place[owner == c]) for c in range(len(self.cluster.parts))]
        taken = self.cluster.each("take", wanted)
        back = np.argsort(np.argsort(owner, kind="stable"), kind="stable")
        points = stack([part[0] for part in taken])[back]
        y, C, beta, scores = (
            np.concatenate([part[i] for part in taken])[back] for i in range(1, 5)
        )
        fresh = Fresh(points, owner, place, beta)
        self.members = self.members.replaced(leave, fresh, (y, C, scores))
        return fresh

    def _solve(self, dual: float) -> Floats:
        """Solve on the working set alone, all other variables fixed."""
        w, settings = self.members, self.cluster.settings
        problem, n = self.problem, len(self.members)
        if problem.data.kernel.is_precomputed:
            X = problem.data.X[np.ix_(w.points, w.points)]
        else:
            X = w.points
        data = Data(X, problem.data.kernel, np.array([0, n], dtype=np.int64))
        part = Problem(data, None, w.y, w.C, problem.loss, problem.intercept, problem.total)
        memory = min(self.cluster.memory // 4, 32 * n * n + _BUFFER)
        rows = data.kernel_rows(self.precision, memory, _BUFFER, settings.threads, part.offset)
        own = own_scores(rows, w.beta, np.arange(n))
        assert own is not None  # there is no time limit
        computed = rows.kernel_values
        floor, bound = floor_for(settings.tol), self.cluster.bound(self.p)
        terms = (problem.loss.core(floor), w.y, w.C, w.beta)
        fixed = fixed_part(*terms, w.scores, w.scores - own, dual, bound=bound)
        core = part.core(rows, w.beta, max(2, n), floor, fixed)
        enough = self.state.inner_share * self.state.violation
        watch = Watch(
            lambda: FOREVER,
            lambda records: (
                core.work[0] >= _INNER_ROUNDS
                or (len(records) > 0 and records[-1]["violation"] <= enough)
            ),
        )
        run_rounds(core, 0.0, watch, certify=False)
        if core.interrupted:
            raise KeyboardInterrupt
        self.state.steps += core.work[1]
        self.state.kernel_values += core.work[2] + computed
        self.state.dual = float(core.figures()["dual"])
        return core.beta

    # --- the interface of the compiled solver ----------------------------------------------

    def advance(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        """Run rounds; return how they ended and a record for each."""
        self.target = target
        records: list[Record] = []
        if self.is_inconsistent:
            return "stopped", records
        begin, status = time.perf_counter(), "running"
        while status == "running" and len(records) < max_rounds:
            elapsed = time.perf_counter() - begin
            if elapsed > seconds and records:
                break
            if elapsed >= time_left:
                return "stopped", records
            try:
                status = self._steadily(lambda: self._round(target))
                self.has_ended = status != "running"
                records.append({**self.state.last, "ago": 0.0})
            except _core.Stopped:  # before the scores of the start were computed
                self.is_inconsistent = True
                return "stopped", records
            except KeyboardInterrupt:
                return "stopped", records
        return status, records

    def certify(self, time_left: float) -> Record | None:
        """Figures from scores in double precision; None if there is no time."""
        if time_left <= 0.0:
            return None
        rounds, version, is_safe = self.state.rounds, self.version, False

        def ask() -> Record:
            nonlocal is_safe
            while self.state.rounds < rounds:  # rounds lost with a worker
                self._round(self.target)
            if not is_safe:
                if self.version != version and self.has_ended:  # the last one, which made no step
                    self._round(self.target)
                self._update_inactive()
                self._save()
                is_safe = True
            points, coef = self.cluster.support(self.p)
            self.cluster.map(
                *("certify", self.p, points, coef, self.state.bias), time.time() + time_left
            )
            self.answers = None
            return self._settled()  # the certified point is the one that is returned

        try:
            return self._steadily(ask)
        except _core.Stopped:  # some shards have recomputed their scores
            return None
        except KeyboardInterrupt:
            return None

    def figures(self) -> Record:
        """Figures from the running scores, or of the last checkpoint after Ctrl-C in a step."""
        if self.is_inconsistent:
            return self._saved_figures()
        if self.is_settled:
            return {**self.state.last, "ago": 0.0}
        rounds = self.state.rounds

        def ask() -> Record:
            if self.state.rounds < rounds:  # lost with a worker: there is no time to repeat them
                raise _core.Stopped
            self._update_inactive()  # the gap is that of all rows
            return self._settled()

        try:
            return self._steadily(ask)
        except (KeyboardInterrupt, _core.Stopped):
            self.is_inconsistent = True
            return self._saved_figures()

    # --- for shrinking by `ActiveSet` ------------------------------------------------------

    def kkt_violations(self) -> Floats:
        """How much each row violates the KKT conditions; negative where it satisfies them."""
        violations: Floats = np.zeros(self.problem.n_rows)

        def ask() -> list[Any]:
            if not self.is_settled:  # the bias is the best, and the point the last checkpoint
                self._settled()
            return self.cluster.map("violations", self.p, self.state.bias)

        found = self._steadily(ask)
        for rows, own in zip(self.cluster.members[self.p], found, strict=True):
            violations[rows] = own
        return violations

    def fixed_part(self, active: Rows, time_left: float) -> _core.FixedPart | None:
        """What the other rows contribute to a problem on the active ones; None if stopped."""
        if self.is_inconsistent:
            return None
        problem, deadline = self.problem, time.time() + time_left
        beta, scores = self._point()
        is_active = np.zeros(problem.n_rows, dtype=bool)
        is_active[active] = True
        inside, outside = (np.flatnonzero((beta != 0.0) & side) for side in (is_active, ~is_active))
        fewer = inside if len(inside) < len(outside) else outside

        def ask() -> list[Any]:
            chosen = [places for places, _ in self._places(is_active)]
            return self.cluster.map(  # all chosen rows to all: few bytes beside the points
                *("sums_for", self.p, chosen, self._rows(fewer), beta[fewer]),
                *(self.precision, deadline),
            )

        try:
            found = self._steadily(ask)
        except _core.Stopped:
            return None
        sums = np.zeros(problem.n_rows)
        for (_, rows), own in zip(self._places(is_active), found, strict=True):
            sums[rows] = own
        others = scores - sums if fewer is inside else sums + problem.zero_scores
        loss = problem.loss.core(floor_for(self.cluster.settings.tol))
        gaps = loss.gap(problem.y, problem.C, beta, scores + row_biases(problem.y, self.state.bias))
        return fixed_part(
            *(loss, problem.y[active], problem.C[active], beta[active]),
            *(scores[active], others[active], self.state.dual),
            outside=float(gaps[~is_active].sum()),
            bound=self.cluster.bound(self.p),
        )

    def adopt(self, active: Rows, beta: Floats, scores: Floats, time_left: float) -> bool:
        """Take new values of the active rows and update the other scores; False if stopped."""
        if self.is_inconsistent:
            return False
        deadline, before = time.time() + time_left, self._point()[0]
        changed = np.flatnonzero(beta != before[active])
        change = beta[changed] - before[active[changed]]
        is_active, at = np.zeros(len(before), dtype=bool), np.zeros(len(before), dtype=np.int64)
        is_active[active], at[active] = True, np.arange(len(active))

        def ask() -> None:
            chosen = [
                (places, beta[at[rows]], scores[at[rows]])
                for places, rows in self._places(is_active)
            ]
            points = self._rows(active[changed])
            self.is_settled = False
            self.cluster.map("take_over", self.p, chosen, points, change, self.precision, deadline)
            self.members, self.answers = Members(), None
            self.stall = self._new_stall_rule()
            self.cluster.map("disband")
            self._settled()

        try:
            self._steadily(ask)
        except _core.Stopped:
            self.is_inconsistent = True
            return False
        return True

    def _settled(self) -> Record:
        """Figures with the best bias, and a checkpoint of the point that they belong to."""
        figures = self._evaluate(finally_=True)
        self._save()
        self.is_settled = True
        return figures

    def _places(self, chosen: NDArray[np.bool_]) -> list[tuple[Rows, Rows]]:
        """For every shard the places of chosen rows there, and their numbers in the problem."""
        members = self.cluster.members[self.p]
        return [(places := np.flatnonzero(chosen[rows]), rows[places]) for rows in members]

    def _rows(self, rows: Rows) -> Any:
        """Rows of the problem, for the shards."""
        data, at = self.problem.data, self.problem.data_rows[rows]
        return at if data.kernel.is_precomputed else loaded(data.X[at])

    def _steadily(self, ask: Callable[[], T]) -> T:
        """Ask the shards, again from the last checkpoint if a worker is lost."""

        def from_here() -> T:
            self._begin()
            return ask()

        try:
            return self.cluster.steadily(from_here)
        except KeyboardInterrupt:  # some shards may have made a step, and others not
            self.interrupted = self.is_inconsistent = True
            raise

    @property
    def work(self) -> tuple[int, int, int]:
        """Rounds, steps and kernel values so far."""
        return self.state.rounds, self.state.steps, self.state.kernel_values + self.computed

    @property
    def beta(self) -> Floats:
        """Dual variables."""
        return self._point()[0]

    @property
    def scores(self) -> Floats:
        """Scores K beta."""
        return self._point()[1]

    def _point(self) -> tuple[Floats, Floats]:
        """The point of the last figures, which is the last checkpoint.

        Zero if that is of another problem: with another intercept, its variables may not be
        feasible for this one.
        """
        if self.cluster.saved[1][self.p] is self.problem:
            return self.cluster.last(self.p)
        return np.zeros(self.problem.n_rows), self.problem.zero_scores

    # --- figures -----------------------------------------------------------------------------

    def _record(self, gap: float, dual: float, support: int) -> None:
        own, gap = gap, gap + self.state.outside
        primal = gap - dual
        scale = max(abs(primal), abs(dual), self.problem.least_scale, 1e-300)
        self.state.last = {
            "round": self.state.rounds,
            "objective": primal,
            "dual": dual,
            "gap": gap / scale,
            "own_gap": own / scale,
            "violation": self.state.violation,
            "support": support,
            "steps": self.state.steps,
            "kernel_values": self.state.kernel_values + self.computed,
            "intercept": float(self.state.bias[0]) if len(self.state.bias) == 1 else 0.0,
            "bytes": self.bytes,
            "numbers": self.cluster.numbers,
            "waited": self.waited,  # seconds, for the shards to apply their step
            "active": self.state.active if self.state.is_narrow else self.problem.n_rows,
        }

    def _evaluate(self, finally_: bool = False) -> Record:
        """Figures of the current scores with the best bias."""
        biases = self.state.bias[None]
        if self.has_free_intercept:
            width = (
                max(1e-3, abs(self.state.violation)) if np.isfinite(self.state.violation) else 1.0
            )
            wanted = _EXACTLY if finally_ else _ROUGHLY
            biases = enclose_biases(self._slopes, self.state.bias, width, wanted)
        gaps, (dual, support, computed) = self.cluster.reduce("figures", self.p, biases)
        best = np.argmin(gaps, axis=0), np.arange(len(self.state.bias))
        self.state.bias, self.computed = biases[best], int(computed)
        if not self.state.is_narrow:
            self.state.dual = float(dual)
        self._record(float(gaps[best].sum()), self.state.dual, int(support))
        return {**self.state.last, "ago": 0.0}

    def _slopes(self, biases: Floats) -> Floats:
        """Derivatives of the primal with respect to the biases."""
        found: Floats = self.cluster.reduce("slopes", self.p, biases)
        return found + self.problem.total * np.array([1.0, -1.0])[: len(self.state.bias)]

    def _has_stalled(self) -> bool:
        """Whether this precision is exhausted, by the rule of the compiled solver."""
        primal = self.state.last["objective"] - self.state.outside
        return self.stall.check(
            self.state.rounds, primal, self.state.last["dual"], self.state.last["own_gap"]
        )

    def _new_stall_rule(self) -> _core.StallRule:
        window = 10 + 8 * self.problem.n_rows // self.capacity
        return _core.StallRule(window, self.precision == "float32", self.problem.is_hull)

    def _is_indefinite(self) -> bool:
        """Whether weak duality is violated: the kernel is not positive semidefinite."""
        slack = 1e-3 * self.problem.least_scale
        return bool(-self.state.last["dual"] > 1.001 * self.cluster.bound(self.p) + slack + 1e-300)

    def _saved_figures(self) -> Record:
        """Figures of the last checkpoint, computed by the driver."""
        beta, scores = self._point()
        problem, b = self.problem, row_biases(self.problem.y, self.state.bias)
        loss = problem.loss.core(floor_for(self.cluster.settings.tol))
        gap = float(loss.gap(problem.y, problem.C, beta, scores + b).sum())
        dual = 0.5 * float(beta @ (scores + problem.zero_scores))
        dual += float(loss.conjugate(problem.y, problem.C, beta).sum())
        self.bytes = 0
        self._record(gap, dual, int(np.count_nonzero(beta)))
        return {**self.state.last, "ago": 0.0}

    # --- checkpoints -------------------------------------------------------------------------

    def _begin(self) -> None:
        """Set up the problem, with its own intercept; save a checkpoint where one is due.

        If the shards were built anew, they have the state of the last checkpoint.
        """
        if self.version != self.cluster.version:
            self._restore()
        if not self.has_begun:
            if self.cluster.problems[self.p] is not self.problem:
                beta = self.problem.feasible(self.cluster.gather(self.p))
                self.cluster.become(self.p, self.problem, beta, self.precision)
            if self.precision == "float32":
                self.cluster.single.add(self.p)
            elif self.p in self.cluster.single:
                self.cluster.rebuild(self.p, "float64")
            self.cluster.map("disband")
            self.members, self.answers = Members(), None
        is_due = self.state.rounds >= self.saved_round + _BETWEEN_CHECKPOINTS
        have_come = self.cluster.arrivals.have_come()
        if not self.has_begun or is_due or have_come:
            self._save()
        self.has_begun = True
        if have_come:
            self.cluster.spread()
            self._restore()

    def _save(self) -> None:
        own = {**vars(self.state), "precision": self.precision, "stall": np.array(self.stall.state)}
        members = {"owner": self.members.owner, "place": self.members.place}
        self.cluster.save(phase="set", p=self.p, notes=self.notes, **own, **members)
        self.saved_round = self.state.rounds

    def _restore(self) -> None:
        """Continue from the last checkpoint: fetch the working set's rows again."""
        version, kept = self.cluster.version, self.cluster.saved[2]
        mine = {"phase": "set", "p": self.p, "precision": self.precision}
        if all(kept.get(name) == value for name, value in mine.items()):
            self.resume(kept)
            self.cluster.map("disband")
            owner = np.asarray(kept["owner"], dtype=np.int32)
            place = np.asarray(kept["place"], dtype=np.int64)
            if len(owner):
                self.answers = self._step(0, self._admit(0, owner, place), None)
        else:
            self.has_begun = False
        self.version = version

    def resume(self, kept: dict[str, Any]) -> None:
        """Take the state of a checkpoint, except what the shards have."""
        self.state = RoundState(**{field.name: kept[field.name] for field in fields(RoundState)})
        self.state.bias = np.asarray(kept["bias"])
        self.stall = self._new_stall_rule()
        self.stall.state = np.asarray(kept["stall"]).tolist()
        self.has_begun = True
        self.members, self.answers, self.saved_round = Members(), None, self.state.rounds


def _middle(top: float, bottom: float, otherwise: float) -> float:
    ends = [end for end in (top, bottom) if np.isfinite(end)]
    return float(np.mean(ends)) if ends else otherwise
