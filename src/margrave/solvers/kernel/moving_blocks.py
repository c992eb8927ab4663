"""Moving blocks: blocks of rows solved side by side, on a new partition in every round.

    repeat
        blocks   a new partition of the rows into clusters
        every block S in parallel   d_S = argmin of the problem in its own variables
        jointly                     t = argmin of the objective along d,   0 <= t <= 1
                                    beta <- beta + t d,    f <- f + t K d
        a few rounds of the working set on all rows

One step for all blocks is as good as one for each: on covtype.binary (100,000 rows) a step per
block gains 2 % more in the first round and nothing afterwards. With fixed blocks, rows on both
sides of a border push each other back and forth for ever; a border of one round is inside a block
of the next. The few rounds between them settle what no block can: with a free intercept a block
keeps the sum of its variables (of hulls that of each class), and only a working set with rows of
several blocks moves a sum from one to the other. Joint problems have one variable per row and
class; their intercepts are fixed while blocks move. `MovingBlocks.round` is one round of blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core, cuda
from margrave.blocks.card import Block
from margrave.blocks.point import box_around, nonzero_rows, rate_along
from margrave.engines import Engine, Recovery
from margrave.partitions import Partition, Random, clustering, split
from margrave.problem import AnyProblem, Data, Floats, Intercept, Solution, is_joint
from margrave.progress import FOREVER
from margrave.rounds import Record
from margrave.solvers.kernel.copies import Copies
from margrave.solvers.line_search import best_step

Rows = NDArray[np.int64]

# Seconds in comments: covtype.binary, 464,810 rows, 32 workers (benchmarks/scaling.py).
_BLOCK_ROWS = 2000  # about
# Of the mean: larger blocks are halved, since a round lasts as long as its largest (13.2 s; 13.7 s
# with 2).
_LARGEST = 1.3
SET_ROUNDS = 6  # of the working set after each round of blocks; 3 are as fast
_ENOUGH = 1024  # rows that violate the KKT conditions: fewer are left to the working set
# Of the violation and the gap of all active rows, to which blocks are solved (12.5 s; with 0.3 they
# soon gain nothing, and the working set ends the fit alone after 41 s).
_INNER_SHARE = 0.15
_SAMPLE, _MEANS = 2000, 3  # rows from which centres are computed, and rounds of k-means
# after a round in which no block has changed anything: of the tolerance to which blocks are solved,
# and how many such rounds in a row there may be (another partition may help)
SHARPER, MOST_IDLE = 0.3, 10
_SMALLEST_STEP = 1e-6  # with a smaller one a round of blocks has gained nothing


@dataclass
class BlockPlan:
    """How blocks are chosen and where they are solved, and how often that was done."""

    engine: Engine
    seed: int
    memory: int
    threads: int
    blocks: int | None = None  # by default of about 2,000 rows each
    partition: Partition | None = None  # by default clusters, if the kernel decays with distance
    rounds: int | None = None  # by default as long as more rows violate the KKT conditions
    has_set: bool = True  # whether rounds of the working set follow
    spreads: bool = False  # whether what these add to the scores is also computed by the workers
    show: Callable[[Solution], None] | None = None  # gets the point after each round of blocks
    done: int = 0  # rounds of blocks so far
    recovery: Recovery = field(default_factory=Recovery)

    def is_over(self, violators: int) -> bool:
        """Whether the rest is left to the working set."""
        if self.rounds is not None:
            return self.done >= self.rounds or violators == 0
        return violators <= (_ENOUGH if self.has_set else 0)


class MovingBlocks:
    """A `Core` around a compiled working set, which does rounds of blocks before its own."""

    def __init__(
        self,
        problem: AnyProblem,
        core: cuda.AnyWorkingSet | _core.Joint,
        floor: float,
        plan: BlockPlan,
        copies: Copies,
        set_first: int = 0,
    ) -> None:
        self.problem, self.core, self.plan = problem, core, plan
        self.floor, self.copies = floor, copies
        self.bias: Intercept = 0.0  # a given number, which is no part of the core's scores
        self.rounds = self.steps = self.kernel_values = 0
        self.set_left = set_first  # rounds of the working set until the next round of blocks
        self.is_useful = True  # until a round of blocks gains nothing
        self.idle = 0  # rounds of blocks in a row in which no variable has changed

    # --- a round of blocks -------------------------------------------------------------------

    def round(self, figures: Record, deadline: float) -> Record | None:
        """Solve all blocks of a new partition and step along their directions.

        Takes the core's `figures` and returns those after the round; None if the rest is left to
        the working set.
        """
        core, moved = self.core, self.copies.moved
        violations = core.kkt_violations()
        share = _INNER_SHARE * SHARPER**self.idle
        # of joint problems they are gap terms, which grow with the square of a distance
        least = (share**2 if is_joint(self.problem) else share) * figures["violation"]
        if self.plan.is_over(int(np.count_nonzero(violations > least))):
            return None
        beta, scores = core.beta, core.scores
        f = scores + self.bias
        # 1. a direction from every block
        blocks = [rows for rows in self._blocks(beta) if violations[rows].max() > least]
        gap = share * figures["gap"] / len(violations)
        limits = figures["dual"], deadline
        tasks = [
            (Block(rows, beta[rows], f[rows], gap * len(rows), least), *limits) for rows in blocks
        ]
        changes = self.copies.ask(
            lambda shards: shards.deal("solve", tasks, [len(rows) for rows in blocks])
        )
        rows = np.concatenate([one.rows for one in changes])
        values = np.concatenate([one.values for one in changes])
        order = np.argsort(rows)
        rows, values = rows[order], values[order]
        change = values - beta[rows]
        # 2. what they add to all scores
        added = self._added(rows, change, deadline)
        # 3. the step
        step = self._step(beta[rows], f[rows], rows, change, added[rows])
        self.rounds += 1
        self.plan.done += 1
        self.steps += sum(one.steps for one in changes)
        self.kernel_values += sum(one.kernel_values for one in changes)
        if step > 0.0:
            beta = beta.copy()
            inside = self._inside(rows, beta[rows], change, step)
            beta[rows] = inside if step < 1.0 else values  # rounding would miss the bounds
            core.adopt(np.arange(len(beta)), beta, scores + step * added, FOREVER)
        self.idle = 0 if len(rows) else self.idle + 1
        self.is_useful = step > _SMALLEST_STEP and self.idle < MOST_IDLE
        sent = {"bytes": self.copies.moved - moved} if self.plan.spreads else {}
        return {**core.figures(), "step": step, "parts": len(blocks), **sent}

    def _added(self, rows: Rows, change: Floats, deadline: float) -> Floats:
        """What changes of some variables add to all scores."""
        found = self.copies.ask(lambda shards: shards.map("spread", rows, change, deadline))
        self.kernel_values += sum(number for _, number in found)
        return np.concatenate([part for part, _ in found])

    def _blocks(self, beta: Floats) -> list[Rows]:
        """A new partition of the rows; blocks that are too large are halved."""
        data, plan = self.problem.data, self.plan
        k = min(plan.blocks or max(1, round(data.n_rows / _BLOCK_ROWS)), data.n_rows)
        seed = plan.seed + plan.done + 1
        if k == 1:
            return [np.arange(data.n_rows)]
        partition = plan.partition
        if partition is None:
            # without a working set, only blocks of random rows move sums between distant ones
            mixed = self.problem.intercept == "free" and not plan.has_set and plan.done % 2
            local = data.kernel.is_shift_invariant and not mixed
            partition = _roughly(data, k) if local else Random()
        y = self.problem.y if self.problem.has_labels and self.problem.total == 0.0 else None
        parts = split(partition, data, k, seed, nonzero_rows(beta), y, plan.threads)
        return _halved(data, parts.rows, seed)

    def _step(self, beta: Floats, f: Floats, rows: Rows, change: Floats, added: Floats) -> float:
        """The step at which the dual is least along the direction, at most 1."""
        slope, curvature = float((f * change).sum()), float((added * change).sum())

        def rate(steps: Floats) -> Floats:
            h = np.array([self._rate(rows, beta, change, step) for step in steps])
            return h + (slope + steps * max(curvature, 0.0))

        return best_step(rate, 1.0)

    def _rate(self, rows: Rows, beta: Floats, change: Floats, step: float) -> float:
        """Derivative of sum_i h_i(beta_i + t d_i) at a step t, to the right."""
        problem, at = self.problem, self._inside(rows, beta, change, step)
        loss = problem.dual_terms(self.floor)
        return rate_along(loss, problem.y[rows], problem.C[rows], at, change)

    def _inside(self, rows: Rows, beta: Floats, change: Floats, step: float) -> Floats:
        """A point on the line, inside the box but for rounding."""
        problem = self.problem
        loss = problem.dual_terms(self.floor)
        box = box_around(loss, problem.y[rows], problem.C[rows], beta)
        moved: Floats = np.clip(beta + step * change, *box)
        return moved

    # --- the interface of the compiled solver ------------------------------------------------

    def advance(
        self, target: float, max_rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        """A round of blocks if one is due, else some rounds of the working set."""
        if max_rounds < 1:
            return self.core.advance(target, 0, seconds, time_left)
        if self.set_left == 0 and (self.is_useful or not self.plan.has_set):
            begin = time.time()
            status, _ = self.core.advance(target, 0, seconds, time_left)  # the scores of a start
            if status == "stopped":
                return status, []
            figures = self.core.figures()
            if figures["gap"] <= target:
                return self._set_rounds(target, 1, seconds, time_left)
            try:
                record = self.round(figures, begin + time_left)
            except _core.Stopped:
                return "stopped", []
            if not self.plan.has_set:
                stalls = record is None or not self.is_useful
                return ("stalled" if stalls else "running"), self._listed(record)
            self.set_left = SET_ROUNDS
            if record is not None:
                return "running", self._listed(record)
        allowed = self.set_left if self.is_useful and self.set_left else max_rounds
        before = self.core.work[0]
        status, records = self._set_rounds(target, min(max_rounds, allowed), seconds, time_left)
        self.set_left = max(0, self.set_left - (self.core.work[0] - before))
        return status, records

    def _set_rounds(
        self, target: float, rounds: int, seconds: float, time_left: float
    ) -> tuple[str, list[Record]]:
        """Rounds of the working set, whose records count the work of blocks, too."""
        if not self.plan.spreads:
            status, records = self.core.advance(target, rounds, seconds, time_left)
            return status, [self._with_work(record) for record in records]
        assert isinstance(self.core, _core.WorkingSet)
        deadline, moved = time.time() + time_left, self.copies.moved
        try:
            status, records = self.core.advance_with(
                lambda rows, change: self._added(rows, change, deadline),
                *(target, rounds, seconds, time_left),
            )
        except _core.Stopped:
            return "stopped", []
        per_round = (self.copies.moved - moved) // max(1, len(records))
        return status, [{**self._with_work(record), "bytes": per_round} for record in records]

    def _listed(self, record: Record | None) -> list[Record]:
        return [] if record is None else [self._with_work(record)]

    def set_bias(self, bias: Floats) -> None:
        """Set the intercepts of a joint problem."""
        assert isinstance(self.core, _core.Joint)
        self.bias = bias
        self.core.set_bias(bias)

    def certify(self, time_left: float) -> Record | None:
        """Figures from scores recomputed in double precision; None if stopped."""
        record = self.core.certify(time_left)
        return None if record is None else self._with_work(record)

    def figures(self) -> Record:
        """Figures from the running scores."""
        return self._with_work(self.core.figures())

    @property
    def work(self) -> tuple[int, int, int]:
        """Rounds, steps and kernel values so far, of blocks and of the working set."""
        rounds, steps, values = self.core.work
        return rounds + self.rounds, steps + self.steps, values + self.kernel_values

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.core.interrupted

    @property
    def beta(self) -> Floats:
        """Dual variables."""
        return self.core.beta

    @property
    def scores(self) -> Floats:
        """Scores K beta."""
        return self.core.scores

    def _with_work(self, record: Record) -> Record:
        return {
            **record,
            "round": record["round"] + self.rounds,
            "steps": record["steps"] + self.steps,
            "kernel_values": record["kernel_values"] + self.kernel_values,
        }


def _roughly(data: Data, k: int) -> Partition:
    """Clusters that need not be good, since the next round has others."""
    return replace(clustering(data.kernel, max(_SAMPLE, 10 * k)), rounds=_MEANS)


def _halved(data: Data, parts: Sequence[Rows], seed: int) -> list[Rows]:
    """Blocks, with those that are much larger than the mean halved until they are not."""
    rng, most = np.random.default_rng(seed), _LARGEST * data.n_rows / len(parts)
    left, blocks = list(parts), []
    while left:
        rows = left.pop()
        if len(rows) <= max(most, 2):
            blocks.append(rows)
            continue
        below = _lowest(_along(data, rows, rng), len(rows) // 2)
        left += [rows[below], rows[~below]]
    return blocks


def _lowest(places: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Which are the lowest `count`; of equals, the first."""
    last = np.partition(places, count)[count]
    below: NDArray[np.bool_] = places < last
    below[np.flatnonzero(places == last)[: count - np.count_nonzero(below)]] = True
    return below


def _along(data: Data, rows: Rows, rng: np.random.Generator) -> NDArray[Any]:
    """Places of some rows along a random direction."""
    if data.kernel.is_precomputed:
        return rng.random(len(rows))
    X = data.X[rows]
    direction = rng.standard_normal(X.shape[1]).astype(X.dtype)
    return np.asarray(X @ direction)
