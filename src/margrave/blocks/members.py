"""A working set across all blocks: its members, their effect on scores, and new candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.blocks.active import active_rows
from margrave.blocks.point import (
    BlockState,
    Change,
    Point,
    Points,
    Rows,
    row_biases,
    sides_of,
    stack,
)
from margrave.kernels import core_rows
from margrave.problem import Floats
from margrave.progress import FOREVER
from margrave.rows import is_csr


@dataclass(frozen=True)
class Candidates:
    """A block's candidates for the next working set; of a hull problem, those of one class.

    ``top`` and ``bottom`` are the extremes of the rates -f - h' over all its rows. ``up`` are the
    rates of the rows whose variables would rise, largest first, ``low`` of those that would fall,
    smallest first. Without a free intercept both are in ``up``, sorted by KKT violation.
    """

    top: float
    bottom: float
    up: Floats
    up_places: Rows
    low: Floats
    low_places: Rows


@dataclass(frozen=True)
class Fresh:
    """New members of the working set: rows, the block they are from and their places there."""

    points: Points
    owner: NDArray[np.int32]
    place: Rows
    beta: Floats


class Members(Point):
    """Apply the changes of a working set across all blocks, and propose candidates for it."""

    def _begin(self) -> None:
        super()._begin()
        self._store: tuple[Any, _core.ForeignRows] | None = None
        self._log = _Log()
        self._disband()

    def state(self) -> list[BlockState]:
        """Return what a block needs to continue from here."""
        self._catch_up()
        return super().state()

    def rebuild(
        self, p: int, points: Points, coef: Floats, precision: str, deadline: float = FOREVER
    ) -> None:
        """Recompute the scores, which makes all rows active."""
        self._log = _Log()
        super().rebuild(p, points, coef, precision, deadline)

    def step(
        self,
        p: int,
        leave: int,
        fresh: Fresh | None,
        values: Floats | None,
        bias: Floats,
        count: int,
        negligible: float,
        precision: str,
    ) -> tuple[Floats, Floats, list[Candidates], Floats]:
        """One round: update the working set and the scores, and return figures and candidates.

        The first `leave` members leave, `fresh` ones join, and all take the new `values` (None if
        the set is empty or unchanged). Returns the figures at the bias, candidates
        (`count` that rise, as many that fall), and the scores of the members from this block.
        """
        if fresh is not None:
            self._join(leave, fresh)
        if values is not None:
            self._move(p, values, precision)
        gaps, figures = self.figures(p, bias[None])
        mine = self.place[self.owner == self.number]
        scores = self.states[p].scores[mine]
        return gaps, figures, self._candidates(p, count, bias, negligible), scores

    def take(self, p: int, places: Rows) -> tuple[Any, Floats, Floats, Floats, Floats]:
        """Return rows with their targets, weights, variables and scores."""
        problem, state = self.problems[p], self.states[p]
        if problem is None or len(places) == 0:
            empty = np.empty(0)
            return self._points(p, np.empty(0, dtype=np.int64)), empty, empty, empty, empty
        y, C = problem.y[places], problem.C[places]
        return self._points(p, places), y, C, state.beta[places], state.scores[places]

    def disband(self) -> None:
        """Begin with an empty working set."""
        self._disband()

    def narrow(self, p: int, bias: Floats, spare: int) -> tuple[int, float]:
        """Shrink: leave out rows that satisfy the KKT conditions by a margin.

        Active are those of `active_rows` and the members of the working set. Returns the number of
        active rows, and the sum of the gap terms of the others.
        """
        problem, state = self.problems[p], self.states[p]
        if problem is None:
            return 0, 0.0
        active = active_rows(self.violations(p, bias), spare)
        if active is not None:
            active = np.union1d(active, self.place[self.owner == self.number])
        before = self.figures(p, bias[None])[0].sum()
        self.states[p] = replace(state, active=active)
        left_out = before - self.figures(p, bias[None])[0].sum()
        return problem.n_rows if active is None else len(active), float(left_out)

    def violations(self, p: int, bias: Floats) -> Floats:
        """How much each row violates the KKT conditions; negative where it satisfies them."""
        problem = self.problems[p]
        if problem is None:
            return np.empty(0)
        (up, low), own = self._rates(p), row_biases(problem.y, bias)
        found: Floats = np.maximum(up - own, own - low)
        return found

    def sums_for(
        self,
        p: int,
        chosen: Sequence[Rows],
        points: Points,
        coef: Floats,
        precision: str,
        deadline: float,
    ) -> Floats:
        """What variables of any rows contribute to the scores of some rows of each block."""
        return self._sums(p, points, coef, precision, chosen[self.number], deadline)

    def take_over(
        self,
        p: int,
        chosen: Sequence[tuple[Rows, Floats, Floats]],
        points: Points,
        change: Floats,
        precision: str,
        deadline: float,
    ) -> None:
        """Set variables and scores of some rows of each block.

        Scores of the others are updated with `points` and their `change`.
        """
        if self.problems[p] is None:
            return
        rows, *values = chosen[self.number]
        beta, scores = (vector.copy() for vector in (self.states[p].beta, self.states[p].scores))
        others = np.setdiff1d(np.arange(len(beta)), rows)
        scores[others] += self._sums(p, points, change, precision, others, deadline)
        beta[rows], scores[rows] = values
        self.states[p] = BlockState(beta, scores)

    def widen(self, p: int) -> None:
        """Make all rows active again."""
        self._catch_up()
        self.states[p] = replace(self.states[p], active=None)

    def _disband(self) -> None:
        self.points: Points = np.empty((0, 0))
        self._buffers = [np.empty((0, 0))] * 2
        self.owner, self.place = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
        self.values = np.empty(0)

    def _join(self, leave: int, fresh: Fresh) -> None:
        kept = self.points[leave:]
        self.owner = np.concatenate([self.owner[leave:], fresh.owner])
        self.place = np.concatenate([self.place[leave:], fresh.place])
        self.values = np.concatenate([self.values[leave:], fresh.beta])
        if len(self.values) == len(fresh.beta):
            self.points = fresh.points
        elif is_csr(fresh.points):
            self.points = stack([kept, fresh.points])
        else:  # two buffers in turn: fresh memory costs more than the copy
            shape = (len(self.values), *fresh.points.shape[1:])
            buffer = self._buffers.pop(0)
            if buffer.shape != shape or buffer.dtype != kept.dtype:
                buffer = np.empty(shape, kept.dtype)
            self._buffers.append(buffer)
            both = [np.asarray(kept), np.asarray(fresh.points)]
            self.points = np.concatenate(both, out=buffer)

    def _move(self, p: int, values: Floats, precision: str) -> None:
        change = values - self.values
        moved, state = np.flatnonzero(change), self.states[p]
        beta, mine = state.beta.copy(), self.owner == self.number
        beta[self.place[mine]] = values[mine]
        scores, active = state.scores, state.active
        if len(moved) and self.problems[p] is not None:
            numbers = _numbers(self.owner[moved], self.place[moved])
            sums = self._foreign_sums(p, moved, numbers, change[moved], precision)
            if active is None:
                scores = scores + sums
            else:
                scores = scores.copy()
                scores[active] += sums
                self._log.add(p, self.points, moved, numbers, change[moved], precision)
        self.states[p], self.values = BlockState(beta, scores, active=active), values

    def _catch_up(self) -> None:
        """Bring the scores of rows that are not active up to date."""
        log, self._log = self._log, _Log()
        if len(log.numbers) == 0:
            return
        state = self.states[log.p]
        assert state.active is not None
        points, change = log.all()
        scores = state.scores.copy()
        others = np.setdiff1d(np.arange(len(scores)), state.active)
        scores[others] += self._sums(log.p, points, change, log.precision, others)
        self.states[log.p] = replace(state, scores=scores)

    def _candidates(self, p: int, count: int, bias: Floats, negligible: float) -> list[Candidates]:
        problem, state = self.problems[p], self.states[p]
        nothing, none = np.empty(0), np.empty(0, dtype=np.int64)
        if problem is None:
            return [Candidates(-np.inf, np.inf, nothing, none, nothing, none)] * len(bias)
        up, low = self._rates(p)
        loss = self._loss(problem)
        satisfied = np.zeros(len(up), dtype=bool)
        if state.active is not None:
            satisfied[:] = True
            satisfied[state.active] = False
        if not loss.quadratic:  # even a large violation may hardly matter for the gap
            at = state.scores + row_biases(problem.y, bias)
            satisfied |= loss.gap(problem.y, problem.C, state.beta, at) <= negligible
        up[satisfied], low[satisfied] = -np.inf, np.inf
        sides = sides_of(problem.y, bias)
        ends = [
            (np.max(up[side], initial=-np.inf), np.min(low[side], initial=np.inf)) for side in sides
        ]
        inside = self.place[self.owner == self.number]
        up[inside], low[inside] = -np.inf, np.inf
        if problem.intercept != "free":
            worst = np.maximum(up, -low)
            worst[worst <= 0.0] = -np.inf
            rising = _most(worst, count)
            return [Candidates(*ends[0], worst[rising], rising, nothing, none)]
        found = []
        for side, end in zip(sides, ends, strict=True):
            rows = np.arange(len(up))[side]
            rising, falling = rows[_most(up[side], count)], rows[_most(-low[side], count)]
            found.append(Candidates(*end, up[rising], rising, low[falling], falling))
        return found

    def _rates(self, p: int) -> tuple[Floats, Floats]:
        """Rates -f - h' to the right and to the left."""
        problem, state = self.problems[p], self.states[p]
        assert problem is not None
        loss, y, C = self._loss(problem), problem.y, problem.C
        return (
            -state.scores - loss.right_derivative(y, C, state.beta),
            -state.scores - loss.left_derivative(y, C, state.beta),
        )

    def _foreign_sums(
        self, p: int, moved: Rows, numbers: Rows, change: Floats, precision: str
    ) -> Floats:
        """Sums over some members of changes times kernel values, for the active rows.

        Kernel rows are kept for members that change again.
        """
        problem, active = self.problems[p], self.states[p].active
        assert problem is not None
        if not problem.data.is_native:
            rows = slice(None) if active is None else active
            return self._sums(p, self.points[moved], change, precision, rows)
        key = (p, precision, active is None, id(active))
        if self._store is None or self._store[0] != key:
            X = self._rows(p) if active is None else self._rows(p)[active]
            kernel = problem.data.kernel.core(problem.offset)
            self._store = None  # frees its memory before the next one grows
            # kernel rows over all rows are soon replaced by shorter ones: keep only packed rows
            packed = 4 * 8 * X.shape[0] * X.shape[1]
            memory = self.memory if active is not None else min(self.memory, packed)
            store = _core.ForeignRows(core_rows(X), kernel, precision, memory, self.threads)
            self._store = (key, store)
            self._kept_active = active  # a reference, so that no other array can have its id
        store = self._store[1]
        before = store.kernel_values
        sums = store.add(core_rows(self.points), moved, numbers, change)
        self.kernel_values += store.kernel_values - before
        return sums


class _Log:
    """Changes that the scores of rows outside the active set do not include yet."""

    def __init__(self) -> None:
        self.p, self.precision = -1, "float64"
        self.numbers: Rows = np.empty(0, dtype=np.int64)  # of the points, ascending
        self.at: Rows = np.empty(0, dtype=np.int64)  # where each of them is
        self.points: list[Points] = []
        self.change = np.empty(0)

    def add(
        self, p: int, points: Points, which: Rows, numbers: Rows, change: Floats, precision: str
    ) -> None:
        """Record changes of some points, new ones or points recorded before."""
        self.p, self.precision = p, precision
        place = np.searchsorted(self.numbers, numbers)
        known = np.zeros(len(numbers), dtype=bool)
        inside = place < len(self.numbers)
        known[inside] = self.numbers[place[inside]] == numbers[inside]
        self.change[self.at[place[known]]] += change[known]
        new = np.flatnonzero(~known)
        if len(new):
            new = new[np.argsort(numbers[new])]
            first = len(self.change)
            self.points.append(points[which[new]])
            self.change = np.concatenate([self.change, change[new]])
            self.at = np.insert(self.at, place[new], first + np.arange(len(new)))
            self.numbers = np.insert(self.numbers, place[new], numbers[new])

    def all(self) -> Change:
        """Return all points with the sums of their changes."""
        return stack(self.points), self.change


def _numbers(owner: NDArray[np.int32], place: Rows) -> Rows:
    """A unique number for each row of all blocks."""
    return (owner.astype(np.int64) << 40) + place


def _most(values: Floats, count: int) -> Rows:
    """Places of the largest finite values, largest first; ties in order of place."""
    if count < len(values):
        places = np.argpartition(-values, count)[:count]
        places.sort()
    else:
        places = np.arange(len(values))
    places = places[np.argsort(-values[places], kind="stable")]
    return places[values[places] > -np.inf].astype(np.int64)
