"""Parallel block minimization: a block's own direction, and a step along the sum of all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from margrave import cuda
from margrave.blocks.dual import PartResult, has_zero, part_result, zero_result
from margrave.blocks.point import (
    BlockState,
    Change,
    Point,
    Points,
    dot,
    fixed_part,
    own_scores,
    rate_along,
)
from margrave.problem import Floats
from margrave.progress import FOREVER, left_until
from margrave.rounds import ROUGH, Limits, Watch, run_rounds, set_size

_LARGEST_SET = 1024  # variables per round of a block's own problem
_BUFFER = 1 << 20  # bytes for kernel rows that are being computed
_KEPT = 1 << 26  # bytes for kernel rows of a block's own problem


@dataclass(frozen=True)
class _Aim:
    """A direction d; K d for the block's own d, and (where known) for the d of all blocks."""

    direction: Floats
    own: Floats
    reach: Floats | float = 0.0


class Directions(Point):
    """Solve the block's own problem with all other variables fixed; step jointly."""

    def _begin(self) -> None:
        super()._begin()
        self.found: list[PartResult | None] = [None] * len(self.problems)
        self.aims: dict[int, _Aim] = {}  # directions that are not committed yet

    def propose(
        self, p: int, tol: float, rough: bool, dual: float, bound: float, deadline: float
    ) -> Change:
        """Solve the block's own problem, all other variables fixed: rows and their changes.

            min over d   1/2 d'K d + f'd + sum_i h_i(beta_i + d_i)        d zero outside the block

        to `tol` of the whole problem's objective. `dual` is the whole problem's value, `bound` that
        of zero scores. Ends at the `deadline` (seconds of ``time.time``).
        """
        problem, state = self.problems[p], self.states[p]
        if problem is None:
            return self._points(p, np.empty(0, dtype=np.int64)), np.empty(0)
        cold = not (state.beta.any() or state.scores.any())
        if left_until(deadline) <= 0.0 and (has_zero(problem) or not cold):
            nothing, none = np.zeros(len(problem.y)), np.empty(0, dtype=np.int64)
            self.found[p] = zero_result(problem) if cold else None
            self.aims[p] = _Aim(nothing, nothing)
            return self._points(p, none), np.empty(0)
        precision = "float32" if rough and problem.data.fits_float32 else "float64"
        size = set_size(self.memory, _LARGEST_SET)
        # the same on all engines, whatever their memory: the cache affects rounding
        left = min(_KEPT, max(0, self.memory - 8 * min(size, len(problem.y)) ** 2 - _BUFFER))
        rows = problem.data.kernel_rows(precision, left, _BUFFER, self.threads, problem.offset)
        own = state.own if state.own is not None else self._own(p, rows)
        fixed = None
        if not cold:
            terms = (self._loss(problem), problem.y, problem.C, state.beta)
            fixed = fixed_part(*terms, state.scores, state.scores - own, dual, bound=bound)
        core = problem.core(rows, None if cold else state.beta, size, self.floor, fixed)
        core.stop_if(self.cancelled.is_set)
        limits, n = Limits(), len(problem.y)
        if rough:
            limits = replace(ROUGH, rounds=max(ROUGH.rounds, 4 * n // size))
        watch = Watch(
            lambda: left_until(deadline),
            lambda records: limits.exceeded(core, n) or self.cancelled.is_set(),
        )
        run_rounds(core, tol, watch, certify=False)
        if core.interrupted:
            raise KeyboardInterrupt
        self.found[p] = part_result(problem, core, core.figures()) if cold else None
        self.states[p] = replace(state, own=own)
        direction = core.beta - state.beta
        self.aims[p] = _Aim(direction, core.scores - state.scores)
        moved = np.flatnonzero(direction)
        return self._points(p, moved), direction[moved]

    def local(self) -> list[PartResult | None]:
        """Return the block's own solutions, computed while all other variables were zero."""
        return [one for one, p in zip(self.found, self.problems, strict=True) if p is not None]

    def aim(self, p: int) -> tuple[Floats, Floats]:
        """Return the block's variables, and those that `propose` has found for them."""
        beta = self.states[p].beta
        return beta, beta + self.aims[p].direction if p in self.aims else beta

    def probe(
        self, p: int, points: Points, coef: Floats, precision: str, deadline: float = FOREVER
    ) -> Floats:
        """Set the direction d of all blocks: f'd and d'K d (own rows' part), and bounds of steps.

        The largest step is the one at which the first variable reaches its bound. The last two
        numbers are the published bounds: the least room that any variable has upwards and
        downwards, in terms of alpha = y beta.
        """
        state, problem = self.states[p], self.problems[p]
        if problem is None:
            return np.array([0.0, 0.0, np.inf, np.inf, np.inf])
        d = self.aims[p].direction
        reach = self._sums(p, points, coef, precision, slice(None), deadline)
        self.aims[p] = replace(self.aims[p], reach=reach)
        lo, hi = self._box(problem, state.beta)
        with np.errstate(all="ignore"):
            room = np.where(d > 0.0, (hi - state.beta) / d, (lo - state.beta) / d)
        largest = float(np.min(room[d != 0.0], initial=np.inf))
        up, down = hi - state.beta, state.beta - lo
        rooms = np.where(problem.y > 0.0, (up, down), (down, up)).min(axis=1, initial=np.inf)
        return np.array([dot(state.scores, d), dot(reach, d), largest, *rooms])

    def rates(self, p: int, steps: Floats) -> Floats:
        """Derivatives of sum_i h_i(beta_i + t d_i) to the right, one per step t."""
        problem, beta = self.problems[p], self.states[p].beta
        if problem is None:
            return np.zeros(len(steps))
        d = self.aims[p].direction
        loss, y, C = self._loss(problem), problem.y, problem.C
        low, high = self._box(problem, beta)
        points = (np.clip(beta + t * d, low, high) for t in steps)
        return np.array([rate_along(loss, y, C, at, d) for at in points])

    def conjugates(self, p: int, steps: Floats) -> Floats:
        """Values of sum_i h_i(beta_i + t d_i), one per step t."""
        problem, beta = self.problems[p], self.states[p].beta
        if problem is None:
            return np.zeros(len(steps))
        d, loss = self.aims[p].direction, self._loss(problem)
        low, high = self._box(problem, beta)
        points = (np.clip(beta + t * d, low, high) for t in steps)
        return np.array([float(loss.conjugate(problem.y, problem.C, at).sum()) for at in points])

    def commit(self, p: int, step: float) -> None:
        """Make a step along the direction."""
        problem, state = self.problems[p], self.states[p]
        if problem is None:
            return
        aim = self.aims.pop(p)
        own = None if state.own is None else state.own + step * aim.own
        beta = np.clip(state.beta + step * aim.direction, *self._box(problem, state.beta))
        self.states[p] = BlockState(beta, state.scores + step * aim.reach, own)

    def _own(self, p: int, rows: cuda.AnyKernelRows) -> Floats:
        """Contribution of the block's own variables to its scores."""
        problem, beta = self.problems[p], self.states[p].beta
        assert problem is not None
        own = own_scores(rows, beta, problem.data_rows)
        assert own is not None  # there is no time limit
        return own
