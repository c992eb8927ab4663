"""Rows that come and go: a warm start from a fit on other rows.

    beta_i     that of the row in the last fit; zero for a new row
    sum beta   where it is fixed, and removed rows have changed it: the variables of as few other
               rows as possible make up for that, inside their box, where the dual rises least
    f = K beta the scores of the last fit, corrected by the variables that differ,

        f_i += sum_j (beta_j - last beta_j) k(x_j, x_i)          removed rows are among the j

Rows are recognised by `row_ids`, or else by their contents: only support vectors need to be found,
since all other variables are zero. Where none is found (columns were scaled anew, or there is only
a matrix of kernel values) row i counts as the same row as before.

For the scores a model with ``warm_start=True`` keeps eight bytes per row, and eight more per row
and problem.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.blocks.hull import fill
from margrave.kernels import Kernel
from margrave.models import Expansion
from margrave.problem import BaseProblem, Floats, Problem, Solution, StartedProblem, is_single
from margrave.progress import forever
from margrave.rows import AnyRows, Matrix, in_memory, is_csr
from margrave.typing import VectorLike

Rows = NDArray[np.intp]
Keys = NDArray[Any]

_MOST_FITS = 10  # then scores are computed anew, because rounding errors of corrections add up
_BALANCED = 1e-12  # of sum |beta_i|: nothing is missing


@dataclass(frozen=True)
class KeptRows:
    """What a fit remembers of its rows: the given ids, digests, and scores per problem.

    `members` are the rows of each problem, `fits` the fits since the scores were computed anew.
    """

    ids: Keys | None
    digests: Keys | None = None
    members: tuple[Rows, ...] = ()
    scores: tuple[Floats, ...] = ()
    fits: int = 0


def check_ids(row_ids: VectorLike | None, n_rows: int) -> Keys | None:
    """Ids as an array of numbers or strings; raises unless there is one per row, each once."""
    if row_ids is None:
        return None
    ids: NDArray[Any] = np.asarray(row_ids)
    if ids.ndim != 1 or len(ids) != n_rows:
        raise ValueError(f"row_ids must have one entry for each of {n_rows} rows, got {ids.shape}")
    if ids.dtype.kind == "O" and {type(one) for one in ids} in ({int}, {str}):
        ids = np.asarray(ids.tolist())
    if ids.dtype.kind not in "iuU":
        raise ValueError(f"row_ids must be integers or strings, got {ids.dtype}")
    values, counts = np.unique(ids, return_counts=True)
    if len(values) < len(ids):
        twice = values[np.argmax(counts)].item()
        raise ValueError(f"row_ids must be unique, but {twice!r} occurs twice")
    return ids


def digests(X: AnyRows) -> Keys | None:
    """A number per row that depends on its entries; None for rows that are not in memory."""
    if not in_memory(X) or X.dtype == object:
        return None
    if is_csr(X):
        ends = X.indptr
        entries = (
            X.indices[a:b].astype(np.int64).tobytes() + X.data[a:b].tobytes()
            for a, b in pairwise(ends)
        )
    else:
        rows = np.ascontiguousarray(X) + X.dtype.type(0)  # -0.0 becomes 0.0
        entries = (row.tobytes() for row in rows)
    found = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in entries)
    return np.frombuffer(found, dtype=np.uint64)


@dataclass(frozen=True)
class RowNames:
    """What the rows of a fit are recognised by: the given ids, and digests."""

    X: AnyRows
    ids: Keys | None

    @cached_property
    def digests(self) -> Keys | None:
        """A number per row that depends on its entries; None for rows that are not in memory."""
        return digests(self.X)


def places(old: Keys, new: Keys) -> Rows:
    """Where each old row is among the new ones, -1 if nowhere; equal rows in their order."""
    _, code = np.unique(np.concatenate([old, new]), return_inverse=True)
    first, second = _numbered(code[: len(old)]), _numbered(code[len(old) :])
    _, here, there = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    found = np.full(len(old), -1)
    found[here] = there
    return found


def _numbered(code: Rows) -> Rows:
    """A different number for each row: its code, and how many rows before it have the same."""
    order = np.argsort(code, kind="stable")
    is_first = np.diff(code[order], prepend=-1) != 0
    begin = np.maximum.accumulate(np.where(is_first, np.arange(len(code)), 0))
    before = np.empty_like(code)
    before[order] = np.arange(len(code)) - begin
    found: Rows = code + (before << 32)
    return found


@dataclass(frozen=True)
class LastFit:
    """The solution of the last fit, and where its support vectors are among the new rows.

    `support` are its rows, `points` their features if they are known, `at` the new row of each
    (-1: removed). For the scores, `of_row` is the last row with the contents of each new row (-1:
    none), and `same` says which support vectors have the contents that they had.
    """

    support: Rows
    points: Matrix | None
    at: Rows
    of_row: Rows | None
    same: NDArray[np.bool_] | None
    kernel: Kernel
    kept: KeptRows
    left: Callable[[], float] = forever  # seconds

    @classmethod
    def find(
        cls,
        names: RowNames,
        support: Rows,
        points: Matrix | None,
        kernel: Kernel,
        kept: KeptRows | None,
        left: Callable[[], float] = forever,
    ) -> LastFit:
        """Find the support vectors of the last fit among the rows of these names."""
        kept = kept or KeptRows(None)
        # sparse rows have the same digests in matrices with other numbers of columns
        columns = None if points is None else points.shape[1]
        own = names.digests if columns == names.X.shape[1] else None
        by_contents: Rows | None = None  # of all rows, or of the support vectors
        of_row = same = None
        if own is not None and kept.digests is not None:
            found = places(kept.digests, own)
            of_row = np.full(len(own), -1)
            of_row[found[found >= 0]] = np.flatnonzero(found >= 0)
            by_contents = found[support]
        elif own is not None and points is not None:
            by_contents = places(digests(points), own)  # type: ignore[arg-type]
        if names.ids is not None and kept.ids is not None:
            at = places(kept.ids[support], names.ids)
        elif by_contents is not None and (by_contents >= 0).any():
            at = by_contents
        else:
            at, of_row = np.where(support < names.X.shape[0], support, -1), None
        if of_row is not None and own is not None and kept.digests is not None:
            same = (at >= 0) & (own[at] == kept.digests[support])
        return cls(support, points, at, of_row, same, kernel, kept, left)

    def begin(
        self, problem: Problem, number: int, rows: Rows, coef: Floats, threads: int
    ) -> tuple[Problem, Floats]:
        """The problem, with known scores where that saves work, and its start.

        `rows` are the rows of X behind the rows of the problem, `number` that of the problem,
        `coef` the coefficients of all support vectors in it.
        """
        here = self.places_in(rows)
        last = np.zeros(problem.n_rows)
        last[here[here >= 0]] = coef[here >= 0]
        try:
            return self._with_scores(problem, number, rows, coef, threads, here, last)
        except _core.Stopped:
            return problem, settled(problem, last)

    def _with_scores(
        self,
        problem: Problem,
        number: int,
        rows: Rows,
        coef: Floats,
        threads: int,
        here: Rows,
        last: Floats,
    ) -> tuple[Problem, Floats]:
        """The problem and its start; `here` are the support vectors, `last` their variables."""
        f = self._last_scores(problem, number, rows)
        if f is None or self.points is None or self.same is None:
            return problem, settled(problem, last)

        X, own, kernel = problem.data.X, problem.data_rows, problem.data.kernel

        def sums(to: Rows, points: Matrix, by: Floats) -> Floats:
            model = Expansion(points, by[:, None], kernel, np.zeros(1))
            return model.scores(X[own[to]], threads, left=self.left)[:, 0]

        new, support = np.flatnonzero(np.isnan(f)), int(np.count_nonzero(coef))
        if 2 * len(new) > problem.n_rows:
            return problem, settled(problem, last)
        if len(new):
            f[new] = sums(new, self.points, coef)
        start = settled(problem, last, f)
        stayed = (here >= 0) & self.same
        before = np.zeros(problem.n_rows)
        before[here[stayed]] = coef[stayed]
        moved, gone = np.flatnonzero(start != before), np.flatnonzero(~stayed & (coef != 0.0))
        values = len(new) * support + problem.n_rows * (len(moved) + len(gone))
        if values >= problem.n_rows * support:  # nothing is saved
            return problem, start
        everything = np.arange(problem.n_rows)
        f += sums(everything, X[own[moved]], (start - before)[moved])
        f -= sums(everything, self.points[gone], coef[gone])
        if problem.intercept == "regularized":
            f += start.sum()
        return StartedProblem.of(problem, start, f, values), start

    def places_in(self, rows: Rows) -> Rows:
        """Where each support vector is among these rows, -1 for nowhere."""
        place = np.full(max(rows.max(), self.at.max(initial=0)) + 2, -1)
        place[rows] = np.arange(len(rows))
        found: Rows = place[self.at]
        return found

    def _last_scores(self, problem: Problem, number: int, rows: Rows) -> Floats | None:
        """Scores of the rows in the last fit, NaN where they are not known; None if useless."""
        kept, data = self.kept, problem.data
        if self.of_row is None or number >= len(kept.scores):
            return None
        fits = kept.fits < _MOST_FITS and data.kernel == self.kernel
        if not (fits and data.is_native and not data.is_linear and not problem.is_hull):
            return None
        assert kept.digests is not None
        last = np.full(len(kept.digests) + 1, np.nan)
        last[kept.members[number]] = kept.scores[number]
        found: Floats = last[self.of_row[rows]]
        return found


def settled(problem: BaseProblem, beta: Floats, f: Floats | None = None) -> Floats:
    """A feasible point near beta: in the box, with the required sum; as few rows as possible move.

    With scores f these are the rows where the dual rises least.
    """
    if not is_single(problem):
        return problem.feasible(beta)  # the solver's own projection
    loss, y, C = problem.loss.core(), problem.y, problem.C
    low, high = loss.box(y, C)
    # coefficients of hulls are known up to a factor
    beta = problem.feasible(beta) if problem.is_hull else np.clip(beta, low, high)
    if problem.intercept != "free":
        return beta
    sides = [(y > 0, problem.total), (y < 0, -problem.total)]
    for side, total in sides if problem.is_hull else [(np.full(len(y), True), problem.total)]:
        rows = np.flatnonzero(side)
        missing = total - float(beta[rows].sum())
        if abs(missing) <= _BALANCED * max(float(np.abs(beta).sum()), abs(total)):
            continue
        up = missing > 0.0
        sign = 1.0 if up else -1.0
        room = sign * ((high if up else low) - beta)[rows]
        room = np.minimum(room, max(abs(missing), float(np.abs(beta).max(initial=0.0))))
        if room.sum() < abs(missing):
            return problem.feasible(beta)
        # without scores: the variables that are nonzero already
        slope = -np.abs(beta[rows])
        if f is not None:
            derivative = loss.right_derivative if up else loss.left_derivative
            slope = sign * (f[rows] + derivative(y, C, beta)[rows])
            slope = np.where(np.isfinite(slope), slope, np.inf)
        beta[rows] += sign * fill(slope, room, abs(missing))
    return np.clip(beta, low, high)


def remember(
    names: RowNames,
    members: Sequence[Rows],
    problems: Sequence[BaseProblem],
    solutions: Sequence[Solution],
    before: KeptRows | None,
) -> KeptRows:
    """What to keep of a fit for the next one: `members` are the rows of X in each problem."""
    exact = all(
        s.certificate == "full" and s.definite and s.weights is None and s.parts is None
        for s in solutions
    )
    plain = all(is_single(p) and p.data.in_memory and p.data.is_native for p in problems)
    kept = KeptRows(names.ids)
    if not (exact and plain) or any(p.is_hull for p in problems):
        return kept
    corrected = any(p.start_values for p in problems)
    return replace(
        kept,
        digests=names.digests,
        members=tuple(members),
        scores=tuple(solution.scores for solution in solutions),
        fits=1 + (before.fits if corrected and before is not None else 0),
    )
