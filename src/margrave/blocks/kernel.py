"""Some rows of problems that are solved on all rows together.

A block has the dual variables of its rows and their scores from everybody's variables,

    f_i = sum over all rows j of beta_j k(x_i, x_j)        (k + 1 if the intercept is regularised)

Changes elsewhere reach it as rows with coefficients; nothing as long as the number of all rows ever
comes or goes but for checkpoints.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from margrave import _core
from margrave.blocks.dual import Local, local_of
from margrave.kernels import core_rows
from margrave.models import Expansion
from margrave.problem import Floats, Problem

Rows = NDArray[np.int64]
Change = tuple[Any, Floats]  # rows (their numbers, of a precomputed kernel), and a coefficient each

_LARGEST_SET = 1024  # variables per round of a block's own problem
_BUFFER = 1 << 20  # bytes for kernel rows on their way
_KEPT = 1 << 26  # bytes for kernel rows of a block's own problem
# a rough solution need not be good: a block that crawls is left as it is
_ROUNDS = 30
_STEPS_PER_ROW = 20
_MOST_STEPS_PER_ROW = 100_000  # of any other: more is a descent without end
_MARGIN = 1.15  # active rows per row that is not content
_NEARLY_ALL = 0.8  # share of rows from which on leaving out the rest does not pay
_SAFETY = 10.0  # times the drift seen so far: how far scores may be off


@dataclass(frozen=True)
class Share:
    """One problem's variables on the rows of a block: all that a checkpoint needs.

    ``own`` is the part of the scores that comes from the block's own variables, where it is known.
    ``active`` are the rows that rounds look at, None for all.
    """

    beta: Floats
    scores: Floats
    own: Floats | None = None
    active: Rows | None = None


@dataclass(frozen=True)
class Candidates:
    """What a block offers for the next working set.

    ``top`` and ``bottom`` are the extremes of the rates -f - h' over all its rows. The rows that
    would rise, with their rates, largest first; those that would fall, smallest first. Without a
    free intercept both are in the first list, by how much they violate.
    """

    top: float
    bottom: float
    up: Floats
    up_places: Rows
    low: Floats
    low_places: Rows


@dataclass(frozen=True)
class Fresh:
    """New members of the working set: rows, the block and the place that they are from."""

    points: Any
    owner: NDArray[np.int32]
    place: Rows
    beta: Floats


@dataclass(frozen=True)
class _Aim:
    """A direction d of the own variables; K d of them alone, and (where known) of everybody's."""

    direction: Floats
    own: Floats
    reach: Floats | float = 0.0


class KernelBlock:
    """Some rows, and their share of problems on all rows.

    Parameters
    ----------
    number : int
        Of this block among all.
    problems : list of Problem or None
        On the same data: these rows. None for a problem that none of them is in.
    shares : list of Share or None
        Where to begin, for every problem; None for zero.
    numbers : int64 array
        Numbers of these rows among all.
    across : ndarray, optional
        Of a precomputed kernel: the values of these rows with all rows.
    floor : float
        The least share of C that counts, for losses whose variables never reach their bounds.
    memory : int
        Bytes for the kernel rows of the block's own problem.
    threads : int

    Examples
    --------
    >>> from margrave.kernels import Kernel
    >>> from margrave.losses import Loss
    >>> from margrave.problem import Data
    >>> data = Data(np.array([[-1.0], [1.0]]), Kernel("linear"), np.array([0, 2]))
    >>> problem = Problem(data, None, np.array([-1.0, 1.0]), np.ones(2), Loss("hinge"), None)
    >>> block = KernelBlock(0, [problem], None, np.arange(2), None, 0.0, 1 << 20, 1)
    >>> points, change = block.propose(0, 1e-9, False, 0.0, 2.0, time.time() + 10.0)
    >>> (points.T @ change).round(6).tolist()  # the weight of the only feature
    [1.0]
    """

    def __init__(
        self,
        number: int,
        problems: Sequence[Problem | None],
        shares: Sequence[Share] | None,
        numbers: Rows,
        across: Any,
        floor: float,
        memory: int,
        threads: int,
    ) -> None:
        self.number, self.problems = number, list(problems)
        self.numbers, self.across = numbers, across
        self.floor, self.memory, self.threads = floor, memory, threads
        self.shares = list(shares) if shares is not None else [_zero(p) for p in problems]
        self.cancelled = threading.Event()
        self.rows_of: tuple[int, Any] = (-1, None)  # the rows of the problem at hand
        self.found: list[Local | None] = [None] * len(self.problems)
        self.kernel_values = 0
        self._store: tuple[Any, _core.ForeignRows] | None = None
        self._log = _Log()
        self._disband()
        self.aims: dict[int, _Aim] = {}  # directions that are still to be followed

    def cancel(self) -> None:
        """End the work of another thread: nobody waits for it any longer."""
        self.cancelled.set()

    def state(self) -> list[Share]:
        """Return what a block needs to go on from here; its arrays are never changed in place."""
        self._catch_up()
        return list(self.shares)

    # --- the point -------------------------------------------------------------------------

    def adopt(self, p: int, intercept: str | None, y: Floats, beta: Floats) -> None:
        """Begin with other variables, another intercept or other targets; scores are to come."""
        problem = self.problems[p]
        if problem is not None:
            self.problems[p] = replace(problem, intercept=intercept, y=y)
        self.shares[p] = Share(beta, np.zeros(len(beta)))

    def support(self, p: int) -> Change:
        """Return the rows that have a variable, and their variables."""
        beta = self.shares[p].beta
        rows = np.flatnonzero(beta)
        return self._points(p, rows), beta[rows]

    def rebuild(self, p: int, points: Any, coef: Floats, precision: str) -> None:
        """Compute the scores anew, from all variables there are."""
        self._log = _Log()
        scores = self._sums(p, points, coef, precision, slice(None))
        self.shares[p] = Share(self.shares[p].beta, scores)

    def certify(self, p: int, points: Any, coef: Floats, bias: float) -> None:
        """Compute in double precision the scores that can matter, from all variables there are.

        First those of rows with a variable or a loss, then of those that the error seen so far
        could give a loss.
        """
        share, problem = self.shares[p], self.problems[p]
        if problem is None:
            return
        y, C, value = problem.y, problem.C, self._loss(problem).value
        scores, drift, fresh = share.scores.copy(), 0.0, np.zeros(len(y), dtype=bool)
        for _ in range(2):
            f, far = scores + bias, _SAFETY * drift
            pays = (value(y, C, f - far) > 0.0) | (value(y, C, f + far) > 0.0)
            needed = np.flatnonzero(((share.beta != 0.0) | pays) & ~fresh)
            exact = self._sums(p, points, coef, "float64", needed)
            drift = float(np.max(np.abs(exact - scores[needed]), initial=drift))
            scores[needed], fresh[needed] = exact, True
        self.shares[p] = replace(share, scores=scores, own=None)

    def figures(self, p: int, biases: Floats) -> tuple[Floats, Floats]:
        """Sums of gap terms, one per bias; share of the dual, number of variables, kernel values.

        Rows that are not active have no part in the gap.
        """
        problem, share = self.problems[p], self.shares[p]
        if problem is None:
            return np.zeros(len(biases)), np.zeros(3)
        loss, y, C = self._loss(problem), problem.y, problem.C
        rows = slice(None) if share.active is None else share.active
        some = y[rows], C[rows], share.beta[rows]
        gaps = [float(loss.gap(*some, share.scores[rows] + b).sum()) for b in biases]
        dual = 0.5 * _dot(share.beta, share.scores)
        dual += float(loss.conjugate(y, C, share.beta).sum())
        return np.array(gaps), np.array([dual, np.count_nonzero(share.beta), self.kernel_values])

    def slopes(self, p: int, biases: Floats) -> Floats:
        """Derivatives of the sum of losses with respect to the bias."""
        problem, f = self.problems[p], self.shares[p].scores
        if problem is None:
            return np.zeros(len(biases))
        slope = self._loss(problem).slope
        return np.array([float(slope(problem.y, problem.C, f + b).sum()) for b in biases])

    # --- a direction from the block's own problem, and a step along everybody's ------------

    def propose(
        self, p: int, tol: float, rough: bool, dual: float, bound: float, deadline: float
    ) -> Change:
        """Solve the block's own problem, all other variables as they are: rows and their changes.

            min over d   1/2 d'K d + f'd + sum_i h_i(beta_i + d_i)        d zero outside the block

        to `tol` of the whole problem's objective. `dual` is the whole problem's value, `bound` that
        of zero scores. Ends at the `deadline` (seconds of ``time.time``).
        """
        problem, share = self.problems[p], self.shares[p]
        if problem is None:
            return self._points(p, np.empty(0, dtype=np.int64)), np.empty(0)
        precision = "float32" if rough and problem.data.fits_float32 else "float64"
        size = max(2, min(_LARGEST_SET, math.isqrt(self.memory // 32)))
        # the same on all engines, whatever their memory: what is kept decides about rounding
        left = min(_KEPT, max(0, self.memory - 8 * min(size, len(problem.y)) ** 2 - _BUFFER))
        rows = problem.data.kernel_rows(precision, left, _BUFFER, self.threads, problem.offset)
        cold = not (share.beta.any() or share.scores.any())
        own = share.own if share.own is not None else self._own(p, rows)
        around = None
        if not cold:
            rest = share.scores - own
            h = float(self._loss(problem).conjugate(problem.y, problem.C, share.beta).sum())
            part = 0.5 * _dot(share.beta, share.scores + rest) + h
            around = _core.Surroundings(rest, share.scores, dual - part, 0.0, bound)
        core = problem.core(rows, None if cold else share.beta, size, self.floor, around)
        most = _STEPS_PER_ROW if rough else _MOST_STEPS_PER_ROW
        status = "running"
        while status == "running" and not self.cancelled.is_set():
            status, _ = core.advance(tol, 1, 1e18, max(0.0, deadline - time.time()))
            rounds, steps, _ = core.work
            enough = max(_ROUNDS, 4 * len(problem.y) // size)
            if steps > most * len(problem.y) or (rough and rounds >= enough):
                break
        if core.interrupted:
            raise KeyboardInterrupt
        self.found[p] = local_of(problem, core, core.figures()) if cold else None
        self.shares[p] = replace(share, own=own)
        direction = core.beta - share.beta
        self.aims[p] = _Aim(direction, core.scores - share.scores)
        moved = np.flatnonzero(direction)
        return self._points(p, moved), direction[moved]

    def local(self) -> list[Local | None]:
        """Return the block's own solutions, from where nothing else was known."""
        return [one for one, p in zip(self.found, self.problems, strict=True) if p is not None]

    def probe(self, p: int, points: Any, coef: Floats, precision: str) -> Floats:
        """Take everybody's direction d: f'd, d'K d (own rows' part of both), and the largest step.

        The largest step is that of each variable to its own bound, the least of them.
        """
        share, problem = self.shares[p], self.problems[p]
        if problem is None:
            return np.array([0.0, 0.0, np.inf])
        d, reach = self.aims[p].direction, self._sums(p, points, coef, precision, slice(None))
        self.aims[p] = replace(self.aims[p], reach=reach)
        lo, hi = self._box(problem, share.beta)
        with np.errstate(all="ignore"):
            room = np.where(d > 0.0, (hi - share.beta) / d, (lo - share.beta) / d)
        largest = float(np.min(room[d != 0.0], initial=np.inf))
        return np.array([_dot(share.scores, d), _dot(reach, d), largest])

    def rates(self, p: int, steps: Floats) -> Floats:
        """Derivatives of sum_i h_i(beta_i + t d_i) to the right, one per step t."""
        problem, beta = self.problems[p], self.shares[p].beta
        if problem is None:
            return np.zeros(len(steps))
        d = self.aims[p].direction
        loss, y, C = self._loss(problem), problem.y, problem.C
        low, high = self._box(problem, beta)
        found = []
        for t in steps:
            at = np.clip(beta + t * d, low, high)
            rise, fall = loss.right(y, C, at), loss.left(y, C, at)
            # at a bound h goes on as it came
            rise, fall = np.where(np.isinf(rise), fall, rise), np.where(np.isinf(fall), rise, fall)
            found.append(float((np.where(d > 0.0, rise, fall) * d).sum()))
        return np.array(found)

    def commit(self, p: int, step: float) -> None:
        """Make a step along the direction."""
        problem, share = self.problems[p], self.shares[p]
        if problem is None:
            return
        aim = self.aims.pop(p)
        own = None if share.own is None else share.own + step * aim.own
        beta = np.clip(share.beta + step * aim.direction, *self._box(problem, share.beta))
        self.shares[p] = Share(beta, share.scores + step * aim.reach, own)

    # --- a working set from all blocks -----------------------------------------------------

    def step(
        self,
        p: int,
        keep: Rows,
        fresh: Fresh | None,
        values: Floats | None,
        bias: float,
        count: int,
        negligible: float,
        precision: str,
    ) -> tuple[Floats, Floats, Candidates, Floats]:
        """One round: members join and move; what the block then has to say.

        Of the members before, those at `keep` stay, `fresh` ones follow them, and all take the new
        `values` (None: the set is empty or stays where it is). Returns the figures at the bias,
        `count` candidates per side, and the scores of the members from this block.
        """
        if fresh is not None:
            self._join(keep, fresh)
        if values is not None:
            self._move(p, values, precision)
        gaps, figures = self.figures(p, np.array([bias]))
        mine = self.place[self.owner == self.number]
        scores = self.shares[p].scores[mine]
        return gaps, figures, self._candidates(p, count, bias, negligible), scores

    def take(self, p: int, places: Rows) -> tuple[Any, Floats, Floats, Floats, Floats]:
        """Return rows with their targets, weights, variables and scores."""
        problem, share = self.problems[p], self.shares[p]
        if problem is None or len(places) == 0:
            empty = np.empty(0)
            return self._points(p, np.empty(0, dtype=np.int64)), empty, empty, empty, empty
        y, C = problem.y[places], problem.C[places]
        return self._points(p, places), y, C, share.beta[places], share.scores[places]

    def disband(self) -> None:
        """Begin with an empty working set."""
        self._disband()

    def narrow(self, p: int, bias: float, spare: int) -> tuple[int, float]:
        """Leave out rows that are content and far from leaving it.

        All that are not content stay, a seventh more of those that nearly are not, and `spare`.
        Returns how many are left, and the sum of the others' gap terms.
        """
        problem, share = self.problems[p], self.shares[p]
        if problem is None:
            return 0, 0.0
        up, low = self._rates(p)
        discontent = np.maximum(up - bias, bias - low)
        wanted = int(_MARGIN * np.count_nonzero(discontent > 0.0)) + spare
        active = None
        if wanted < _NEARLY_ALL * len(discontent):
            mine = self.place[self.owner == self.number]
            active = np.union1d(np.argpartition(-discontent, wanted)[:wanted], mine)
        before = self.figures(p, np.array([bias]))[0][0]
        self.shares[p] = replace(share, active=active)
        left_out = before - self.figures(p, np.array([bias]))[0][0]
        return len(discontent) if active is None else len(active), float(left_out)

    def widen(self, p: int) -> None:
        """Look at all rows again."""
        self._catch_up()
        self.shares[p] = replace(self.shares[p], active=None)

    def _disband(self) -> None:
        self.points: Any = None
        self.owner, self.place = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
        self.values = np.empty(0)

    def _join(self, keep: Rows, fresh: Fresh) -> None:
        self.owner = np.concatenate([self.owner[keep], fresh.owner])
        self.place = np.concatenate([self.place[keep], fresh.place])
        self.values = np.concatenate([self.values[keep], fresh.beta])
        kept = [] if self.points is None else [self.points[keep]]
        self.points = stack([*kept, fresh.points])

    def _move(self, p: int, values: Floats, precision: str) -> None:
        change = values - self.values
        moved, share = np.flatnonzero(change), self.shares[p]
        beta, mine = share.beta.copy(), self.owner == self.number
        beta[self.place[mine]] = values[mine]
        scores, active = share.scores, share.active
        if len(moved) and self.problems[p] is not None:
            points, numbers = self.points[moved], _numbers(self.owner[moved], self.place[moved])
            sums = self._foreign_sums(p, points, numbers, change[moved], precision)
            if active is None:
                scores = scores + sums
            else:
                scores = scores.copy()
                scores[active] += sums
                self._log.add(p, points, numbers, change[moved], precision)
        self.shares[p], self.values = Share(beta, scores, active=active), values

    def _catch_up(self) -> None:
        """Bring the scores of rows that are not active up to date."""
        log, self._log = self._log, _Log()
        if len(log.numbers) == 0:
            return
        share = self.shares[log.p]
        assert share.active is not None
        points, change = log.all()
        scores = share.scores.copy()
        others = np.setdiff1d(np.arange(len(scores)), share.active)
        scores[others] += self._sums(log.p, points, change, log.precision, others)
        self.shares[log.p] = replace(share, scores=scores)

    def _candidates(self, p: int, count: int, bias: float, negligible: float) -> Candidates:
        problem, share = self.problems[p], self.shares[p]
        nothing, none = np.empty(0), np.empty(0, dtype=np.int64)
        if problem is None:
            return Candidates(-np.inf, np.inf, nothing, none, nothing, none)
        up, low = self._rates(p)
        loss = self._loss(problem)
        content = np.zeros(len(up), dtype=bool)
        if share.active is not None:
            content[:] = True
            content[share.active] = False
        if not loss.quadratic:  # a violation of any size may be worth nothing
            gaps = loss.gap(problem.y, problem.C, share.beta, share.scores + bias)
            content |= gaps <= negligible
        up[content], low[content] = -np.inf, np.inf
        top, bottom = float(up.max()), float(low.min())
        inside = self.place[self.owner == self.number]
        up[inside], low[inside] = -np.inf, np.inf
        if problem.intercept == "free":
            rising, falling = _most(up, count), _most(-low, count)
            return Candidates(top, bottom, up[rising], rising, low[falling], falling)
        worst = np.maximum(up, -low)
        worst[worst <= 0.0] = -np.inf
        rising = _most(worst, count)
        return Candidates(top, bottom, worst[rising], rising, nothing, none)

    def _rates(self, p: int) -> tuple[Floats, Floats]:
        """Rates -f - h' to the right and to the left."""
        problem, share = self.problems[p], self.shares[p]
        assert problem is not None
        loss, y, C = self._loss(problem), problem.y, problem.C
        return (
            -share.scores - loss.right(y, C, share.beta),
            -share.scores - loss.left(y, C, share.beta),
        )

    # --- kernel values ---------------------------------------------------------------------

    def _loss(self, problem: Problem) -> _core.Loss:
        return problem.loss.core(self.floor)

    def _box(self, problem: Problem, beta: Floats) -> tuple[Floats, Floats]:
        """Bounds of the variables; zero may be a little outside where there is a floor."""
        lo, hi = self._loss(problem).box(problem.y, problem.C)
        return np.minimum(lo, beta), np.maximum(hi, beta)

    def _rows(self, p: int) -> Any:
        """Rows of the problem; of a precomputed kernel their values with all rows."""
        problem = self.problems[p]
        if self.rows_of[0] != p and problem is not None:
            X = problem.data.X if self.across is None else self.across
            self.rows_of = (p, X if problem.blocks is None else X[problem.data_rows])
        return self.rows_of[1]

    def _points(self, p: int, rows: Rows) -> Any:
        problem = self.problems[p]
        if self.across is not None:
            return self.numbers[rows if problem is None else problem.data_rows[rows]]
        if problem is None:  # no rows, of the right width
            return next(q for q in self.problems if q is not None).data.X[:0]
        return self._rows(p)[rows]

    def _sums(self, p: int, points: Any, coef: Floats, precision: str, rows: Any) -> Floats:
        """Sums over rows from anywhere of coefficients times kernel values, for own rows."""
        problem = self.problems[p]
        if problem is None:
            return np.empty(0)
        X = self._rows(p)
        X = X if isinstance(rows, slice) else X[rows]
        total = np.array([problem.offset * coef.sum()])
        model = Expansion(points, coef[:, None], problem.data.kernel, total, precision)
        self.kernel_values += X.shape[0] * len(coef)
        return model.scores(X, self.threads)[:, 0]

    def _foreign_sums(
        self, p: int, points: Any, numbers: Rows, change: Floats, precision: str
    ) -> Floats:
        """The same for the active rows, with the kernel rows of points that come again kept."""
        problem, active = self.problems[p], self.shares[p].active
        assert problem is not None
        if not problem.data.is_native:
            rows = slice(None) if active is None else active
            return self._sums(p, points, change, precision, rows)
        key = (p, precision, active is None, id(active))
        if self._store is None or self._store[0] != key:
            X = self._rows(p) if active is None else self._rows(p)[active]
            kernel = problem.data.kernel.core(problem.offset)
            self._store = None  # frees its memory before the next one grows
            # kernel rows over all rows are soon given up for shorter ones: only packed rows stay
            packed = 4 * 8 * X.shape[0] * X.shape[1]
            memory = self.memory if active is not None else min(self.memory, packed)
            store = _core.ForeignRows(core_rows(X), kernel, precision, memory, self.threads)
            self._store = (key, store)
            self._kept_active = active  # so that no other array gets its identity
        store = self._store[1]
        before = store.kernel_values
        sums = store.add(core_rows(points), numbers, change)
        self.kernel_values += store.kernel_values - before
        return sums

    def _own(self, p: int, rows: _core.KernelRows) -> Floats:
        """Scores of the own rows from the own variables."""
        problem, beta = self.problems[p], self.shares[p].beta
        assert problem is not None
        used, where = np.flatnonzero(beta), problem.data_rows
        if len(used) == 0:
            return np.zeros(len(beta))
        sums, _ = rows.multiply(where[used], beta[used][:, None], where, False, 1e18)
        if sums is None:
            raise KeyboardInterrupt
        own: Floats = sums[:, 0]
        return own


class _Log:
    """Changes that rows which are not active have not heard of."""

    def __init__(self) -> None:
        self.p, self.precision = -1, "float64"
        self.numbers: Rows = np.empty(0, dtype=np.int64)  # of the points, ascending
        self.at: Rows = np.empty(0, dtype=np.int64)  # where each of them is
        self.points: list[Any] = []
        self.change = np.empty(0)

    def add(self, p: int, points: Any, numbers: Rows, change: Floats, precision: str) -> None:
        """Note changes of points, some of which may be known."""
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
            self.points.append(points[new])
            self.change = np.concatenate([self.change, change[new]])
            self.at = np.insert(self.at, place[new], first + np.arange(len(new)))
            self.numbers = np.insert(self.numbers, place[new], numbers[new])

    def all(self) -> Change:
        """Return all points with the sums of their changes."""
        return stack(self.points), self.change


def _numbers(owner: NDArray[np.int32], place: Rows) -> Rows:
    """A number for each row of all blocks."""
    return (owner.astype(np.int64) << 40) + place


def _dot(a: Floats, b: Floats) -> float:
    """Inner product, the same with any number of threads, which that of a library is not."""
    return float((a * b).sum())


def _zero(problem: Problem | None) -> Share:
    nothing = np.zeros(0 if problem is None else problem.n_rows)
    return Share(nothing, nothing, nothing)


def _most(values: Floats, count: int) -> Rows:
    """Places of the largest values that are not -inf, largest first, of equals the first."""
    if count < len(values):
        places = np.argpartition(-values, count)[:count]
        places.sort()
    else:
        places = np.arange(len(values))
    places = places[np.argsort(-values[places], kind="stable")]
    return places[values[places] > -np.inf].astype(np.int64)


def stack(parts: Sequence[Any]) -> Any:
    """Rows below each other."""
    if sparse.issparse(parts[0]):
        return sparse.vstack(list(parts), format="csr")
    return np.concatenate(list(parts))
