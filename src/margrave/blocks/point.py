"""Some rows of problems that are solved on all rows together.

A block holds the dual variables of its rows, and their scores from the variables of all blocks,

    f_i = sum over all rows j of beta_j k(x_i, x_j)        (k + 1 if the intercept is regularised)

Changes in other blocks arrive as rows with coefficients. Except for checkpoints, no vector of the
length of the whole data set is ever sent.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from margrave import _core, cuda
from margrave.losses import DualTerms
from margrave.models import Expansion
from margrave.problem import Floats, Problem
from margrave.progress import FOREVER, left_until
from margrave.rows import Matrix, is_csr

Rows = NDArray[np.int64]
Points: TypeAlias = Matrix  # rows; of a precomputed kernel an array of their numbers
Change = tuple[Points, Floats]  # and a coefficient each

_TOGETHER = 1 << 14  # derivatives at a time
_SAFETY = 10.0  # scores are assumed to be off by this multiple of the largest error seen so far


@dataclass(frozen=True)
class BlockState:
    """One problem's variables on the rows of a block: all that a checkpoint needs.

    The scores include the linear term of the problem, if it has one.
    ``own`` is the contribution of the block's own variables to the scores, where it is known.
    ``active`` is the active set (shrinking); None if it is all rows.
    """

    beta: Floats
    scores: Floats
    own: Floats | None = None
    active: Rows | None = None


class Point:
    """Some rows, and their part of problems on all rows.

    Parameters
    ----------
    number : int
        Of this block among all.
    problems : list of Problem or None
        On the same data: these rows. None for a problem that has none of them.
    states : list of BlockState or None
        Where to begin, for every problem; None for zero.
    numbers : int64 array
        Numbers of these rows among all.
    across : ndarray, optional
        Of a precomputed kernel: the values of these rows with all rows.
    floor : float
        The smallest fraction of C that counts as nonzero, for losses whose variables never reach
        their bounds.
    memory : int
        Bytes for the kernel rows of the block's own problem.
    threads : int
    """

    def __init__(
        self,
        number: int,
        problems: Sequence[Problem | None],
        states: Sequence[BlockState] | None,
        numbers: Rows,
        across: NDArray[Any] | None,
        floor: float,
        memory: int,
        threads: int,
    ) -> None:
        self.number, self.problems = number, list(problems)
        self.numbers, self.across = numbers, across
        self.floor, self.memory, self.threads = floor, memory, threads
        self.states = list(states) if states is not None else [_zero(p) for p in problems]
        self.cancelled = threading.Event()
        self.rows_of: tuple[int, Matrix] = (-1, np.empty((0, 0)))  # the rows of the problem at hand
        self.kernel_values = 0
        self._begin()

    def _begin(self) -> None:
        """Set up what a subclass adds."""

    def cancel(self) -> None:
        """Ask the thread that works on this block to stop: its result is no longer needed."""
        self.cancelled.set()

    def state(self) -> list[BlockState]:
        """Return what a block needs to continue from here; arrays are never changed in place."""
        return list(self.states)

    def adopt(self, p: int, intercept: str | None, y: Floats, beta: Floats) -> None:
        """Begin with other variables, intercept or targets; `rebuild` then computes the scores."""
        problem = self.problems[p]
        if problem is not None:
            self.problems[p] = replace(problem, intercept=intercept, y=y)
        self.states[p] = replace(_zero(self.problems[p]), beta=beta, own=None)

    def support(self, p: int) -> Change:
        """Return the rows with a nonzero variable, and their variables."""
        beta = self.states[p].beta
        rows = np.flatnonzero(beta)
        return self._points(p, rows), beta[rows]

    def rebuild(
        self, p: int, points: Points, coef: Floats, precision: str, deadline: float = FOREVER
    ) -> None:
        """Recompute the scores from the nonzero variables of all blocks."""
        fixed = _zero(self.problems[p]).scores
        scores = fixed + self._sums(p, points, coef, precision, slice(None), deadline)
        self.states[p] = BlockState(self.states[p].beta, scores)

    def certify(
        self, p: int, points: Points, coef: Floats, bias: Floats, deadline: float = FOREVER
    ) -> None:
        """Recompute in double precision the scores that matter, from the variables of all blocks.

        First those of rows with a nonzero variable or loss, then of those whose loss could be
        nonzero given the error seen so far and the kernel values that were left out. Hulls have one
        bias for each sign of y.
        """
        state, problem = self.states[p], self.problems[p]
        if problem is None:
            return
        y, C, value = problem.y, problem.C, self._loss(problem).value
        scores, drift, fresh = state.scores.copy(), 0.0, np.zeros(len(y), dtype=bool)
        left_out = problem.data.negligible(single=True) * float(np.abs(coef).sum())
        for safety in (0.0, _SAFETY):
            f, far = scores + row_biases(problem.y, bias), safety * (drift + left_out)
            has_loss = (value(y, C, f - far) > 0.0) | (value(y, C, f + far) > 0.0)
            needed = np.flatnonzero(((state.beta != 0.0) | has_loss) & ~fresh)
            exact = self._sums(p, points, coef, "float64", needed, deadline)
            exact += problem.zero_scores[needed]
            drift = float(np.max(np.abs(exact - scores[needed]), initial=drift))
            scores[needed], fresh[needed] = exact, True
        self.states[p] = replace(state, scores=scores, own=None)

    def figures(self, p: int, biases: Floats) -> tuple[Floats, Floats]:
        """Sums of gap terms; these rows' part of the dual, nonzero variables, kernel values.

        The sums are one per bias, which are rows of `biases`, and of hulls one for each sign of y.
        Rows that are not active do not count in the gap.
        """
        problem, state = self.problems[p], self.states[p]
        if problem is None:
            return np.zeros(biases.shape), np.zeros(3)
        loss, y, C = self._loss(problem), problem.y, problem.C
        rows = slice(None) if state.active is None else state.active
        some, scores = (y[rows], C[rows], state.beta[rows]), state.scores[rows]
        gaps = [
            _sums_of_sides(y[rows], loss.gap(*some, scores + row_biases(y[rows], b)), b)
            for b in biases
        ]
        dual = 0.5 * dot(state.beta, state.scores + problem.zero_scores)
        dual += float(loss.conjugate(y, C, state.beta).sum())
        return np.array(gaps), np.array([dual, np.count_nonzero(state.beta), self.kernel_values])

    def slopes(self, p: int, biases: Floats) -> Floats:
        """Derivatives of the sum of losses with respect to the biases, laid out as in `figures`."""
        problem, f = self.problems[p], self.states[p].scores
        if problem is None:
            return np.zeros(biases.shape)
        y, slope, found = problem.y, self._loss(problem).slope, []
        together = min(len(biases), max(1, _TOGETHER // max(1, len(y))))  # few rows: fewer calls
        labels, weights = np.tile(y, together), np.tile(problem.C, together)
        for first in range(0, len(biases), together):
            some = biases[first : first + together]
            at = np.concatenate([f + row_biases(y, b) for b in some])
            values = slope(labels[: len(at)], weights[: len(at)], at)
            found += [
                _sums_of_sides(y, *one)
                for one in zip(values.reshape(-1, len(y)), some, strict=True)
            ]
        return np.array(found)

    # --- kernel values ---------------------------------------------------------------------

    def _loss(self, problem: Problem) -> _core.Loss:
        return problem.loss.core(self.floor)

    def _box(self, problem: Problem, beta: Floats) -> tuple[Floats, Floats]:
        return box_around(self._loss(problem), problem.y, problem.C, beta)

    def _rows(self, p: int) -> Matrix:
        """Rows of the problem; of a precomputed kernel their values with all rows."""
        problem = self.problems[p]
        if self.rows_of[0] != p and problem is not None:
            X = problem.data.X if self.across is None else self.across
            self.rows_of = (p, X if problem.blocks is None else X[problem.data_rows])
        return self.rows_of[1]

    def _points(self, p: int, rows: Rows) -> Points:
        problem = self.problems[p]
        if self.across is not None:
            return self.numbers[rows if problem is None else problem.data_rows[rows]]
        if problem is None:  # an empty matrix of the right width
            points: Points = next(q for q in self.problems if q is not None).data.X[:0]
        else:
            points = self._rows(p)[rows]
        return points

    def _sums(
        self,
        p: int,
        points: Points,
        coef: Floats,
        precision: str,
        rows: Rows | slice | NDArray[np.bool_],
        deadline: float = FOREVER,
    ) -> Floats:
        """Sums over rows of any block of coefficients times kernel values, for this block's rows.

        Raises ``_core.Stopped`` at the `deadline` (seconds of ``time.time``), and
        ``KeyboardInterrupt`` soon after `cancel`.
        """
        problem = self.problems[p]
        if problem is None:
            return np.empty(0)
        X = self._rows(p)
        X = X if isinstance(rows, slice) else X[rows]
        total = np.array([problem.offset * coef.sum()])
        model = Expansion(points, coef[:, None], problem.data.kernel, total, precision)
        left, device = left_until(deadline), problem.data.device
        found, computed = model.counted_scores(
            X, self.threads, left=lambda: left, device=device, stop_if=self.cancelled.is_set
        )
        self.kernel_values += computed
        return found[:, 0]


def _zero(problem: Problem | None) -> BlockState:
    nothing = np.zeros(0 if problem is None else problem.n_rows)
    return BlockState(nothing, nothing if problem is None else problem.zero_scores, nothing)


def sides_of(y: Floats, bias: Floats) -> list[slice | NDArray[np.bool_]]:
    """Rows that each bias belongs to: all, or those of one sign of y."""
    return [slice(None)] if len(bias) == 1 else [y > 0, y < 0]


def row_biases(y: Floats, bias: Floats) -> Floats:
    """The bias of every row."""
    return bias if len(bias) == 1 else np.where(y > 0, bias[0], bias[1])


def _sums_of_sides(y: Floats, values: Floats, bias: Floats) -> list[float]:
    return [float(values[side].sum()) for side in sides_of(y, bias)]


def box_around(loss: DualTerms, y: NDArray[Any], C: Floats, beta: Floats) -> tuple[Floats, Floats]:
    """Bounds of the variables, widened to hold beta: with a floor, zero is slightly outside."""
    lo, hi = loss.box(y, C)
    return np.minimum(lo, beta), np.maximum(hi, beta)


def rate_along(loss: DualTerms, y: NDArray[Any], C: Floats, at: Floats, direction: Floats) -> float:
    """Derivative of sum_i h_i along a direction, to the right; at a bound, to the left."""
    rise, fall = loss.right_derivative(y, C, at), loss.left_derivative(y, C, at)
    rise, fall = np.where(np.isinf(rise), fall, rise), np.where(np.isinf(fall), rise, fall)
    return float((np.where(direction > 0.0, rise, fall) * direction).sum())


def own_scores(
    kernel_rows: cuda.AnyKernelRows, beta: Floats, rows: Rows, seconds: float = FOREVER
) -> Floats | None:
    """What the variables of some rows contribute to their own scores; None if time is over."""
    used = nonzero_rows(beta)
    if len(used) == 0:
        return np.zeros(beta.shape)
    sums, interrupted = kernel_rows.multiply(rows[used], columns(beta[used]), rows, False, seconds)
    if interrupted:
        raise KeyboardInterrupt
    own: Floats | None = None if sums is None else sums.reshape(beta.shape)
    return own


def columns(values: NDArray[Any]) -> NDArray[Any]:
    """One column per class of a joint problem; else one."""
    return values[:, None] if values.ndim == 1 else values


def nonzero_rows(values: NDArray[Any]) -> Rows:
    """Rows of which a value is not zero."""
    return np.flatnonzero(columns(values).any(axis=1))


def fixed_part(
    loss: DualTerms,
    y: NDArray[Any],
    C: Floats,
    beta: Floats,
    scores: Floats,
    others: Floats,
    dual: float,
    outside: float = 0.0,
    bound: float = np.inf,
) -> _core.FixedPart:
    """What stays fixed while a problem is solved in some of its variables, from `beta` on.

    `scores` are those of their rows, of which all other variables contribute `others`. `dual` is
    the value of the whole problem, `outside` the gap terms of its other rows.
    """
    share = 0.5 * dot(beta, scores + others) + float(loss.conjugate(y, C, beta).sum())
    return _core.FixedPart(others.ravel(), scores.ravel(), dual - share, outside, bound)


def dot(a: Floats, b: Floats) -> float:
    """Inner product whose rounding, unlike that of BLAS, does not depend on threads."""
    return float((a * b).sum())


def stack(parts: Sequence[Matrix]) -> Matrix:
    """Stack rows, dense or CSR."""
    if is_csr(parts[0]):
        rows: Matrix = sparse.vstack(list(parts), format="csr")
        return rows
    return np.concatenate([np.asarray(part) for part in parts])
