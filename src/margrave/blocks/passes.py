"""Passes over the rows of a linear model, shared by all problems on these rows.

A method that needs products with the rows is written as a generator: it yields a request and is
sent the answer. Several of them, say one per class, run side by side, and their requests are
answered together in one pass over the data, block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from margrave import _core, cuda
from margrave.kernels import core_rows
from margrave.problem import Data, Floats, RowNumbers
from margrave.rows import Matrix, is_csr


@dataclass(frozen=True)
class Scores:
    """Ask for X w."""

    w: Floats


@dataclass(frozen=True)
class Combination:
    """Ask for X'beta."""

    beta: Floats


@dataclass(frozen=True)
class Products:
    """Ask for (X'DX, X'D 1), D a diagonal matrix; products in `single` precision are faster."""

    D: Floats
    single: bool = False


@dataclass(frozen=True)
class Squares:
    """Ask for the diagonal of X'DX."""

    D: Floats


Wish = Scores | Combination | Products | Squares
Answer = Floats | tuple[Floats, Floats]
Asking = Generator[Wish, Any, None]


class Passes:
    """The rows of some blocks of the data, and the number of passes over them."""

    def __init__(
        self,
        data: Data,
        blocks: Sequence[int],
        team: _core.Team,
        seconds_left: Callable[[], float],
    ) -> None:
        self.data, self.team, self.seconds_left = data, team, seconds_left
        self.firsts = [int(data.starts[b]) for b in blocks]
        self.lasts = [int(data.starts[b + 1]) for b in blocks]
        self.n_rows = sum(self.lasts) - sum(self.firsts)
        self.n_features = int(data.X.shape[1])
        self.count = 0.0
        self.longest = 0.0  # bound on the length of every row, once scores have been asked for
        self._kept: _core.LinearRows | None = None

    def rows(self) -> _core.LinearRows:
        """All rows in the core, which must be in one array."""
        if self._kept is None:
            self._kept = _core.LinearRows(
                core_rows(self.data.X), self.firsts, self.lasts, self.team
            )
        return self._kept

    @property
    def in_one_array(self) -> bool:
        """Whether the rows are in one array."""
        return not self.data.in_blocks

    def take(self, rows: RowNumbers) -> Matrix:
        """A copy of some rows, in double precision."""
        starts = np.cumsum([0, *(b - a for a, b in zip(self.firsts, self.lasts, strict=True))])
        block = np.searchsorted(starts, rows, side="right") - 1
        at = rows - starts[block] + np.array(self.firsts)[block]
        taken: Matrix = self.data.X[at].astype(np.float64)
        return taken

    def parts(self) -> Iterator[tuple[cuda.AnyLinearRows, slice]]:
        """Iterate over the rows: blocks, each with its slice of all rows."""
        device = self.data.device
        if self.in_one_array:
            rows: cuda.AnyLinearRows = self.rows()
            if device is not None:
                rows = cuda.LinearRows(device, self.data.X, self.firsts, self.lasts, self.rows())
            yield rows, slice(0, self.n_rows)
            return
        first = 0
        for block in self.data.X:
            last = first + block.shape[0]
            yield (
                _core.LinearRows(core_rows(block), [0], [last - first], self.team),
                slice(first, last),
            )
            first = last

    def scores(self, W: Floats) -> Floats:
        """X W', one row per row of W."""
        (found,) = self.answer([Scores(W)])
        scores: Floats = found
        return scores

    def combinations(self, B: Floats) -> Floats:
        """B X, one row per row of B."""
        (found,) = self.answer([Combination(B)])
        combined: Floats = found
        return combined

    def answer(self, wishes: Sequence[Wish]) -> list[Any]:
        """Answer all requests in one pass."""
        self.team.limit(self.seconds_left())
        d, n = self.n_features, self.n_rows
        by_kind = {
            kind: [i for i, wish in enumerate(wishes) if isinstance(wish, kind)]
            for kind in (Scores, Combination, Products, Squares)
        }
        answers: list[Any] = [None] * len(wishes)
        W = _stacked([wishes[i].w for i in by_kind[Scores]], d)  # type: ignore[union-attr]
        B = _stacked([wishes[i].beta for i in by_kind[Combination]], n)  # type: ignore[union-attr]
        F, V = np.empty((len(W), n)), np.zeros((len(B), d))
        for i in by_kind[Products]:
            answers[i] = (np.zeros((d, d)), np.zeros(d))
        for i in by_kind[Squares]:
            answers[i] = np.zeros(d)
        for rows, at in self.parts():
            if len(W):
                rows.multiply(W, F[:, at])
                self.longest = max(self.longest, rows.longest)
            if len(B):
                rows.transposed(B[:, at], V)
            for i in by_kind[Products]:
                wish: Any = wishes[i]
                matrix, border = answers[i]
                rows.gram(wish.D[at], matrix, border, wish.single)
            for i in by_kind[Squares]:
                rows.diagonal(wishes[i].D[at], answers[i])  # type: ignore[union-attr]
        self.count += 1.0
        _hand_out(answers, wishes, by_kind[Scores], F)
        _hand_out(answers, wishes, by_kind[Combination], V)
        return answers

    def run(self, methods: Sequence[Asking]) -> None:
        """Run methods side by side to their ends."""
        wishes: dict[int, Wish] = {}
        for number, method in enumerate(methods):
            _advance(method, number, None, wishes)
        while wishes:
            numbers = list(wishes)
            answers = self.answer([wishes.pop(number) for number in numbers])
            for number, answer in zip(numbers, answers, strict=True):
                _advance(methods[number], number, answer, wishes)


@contextmanager
def within(team: _core.Team, seconds: float) -> Iterator[None]:
    """Limit the time; Ctrl-C in the core raises KeyboardInterrupt here."""
    team.limit(seconds)
    try:
        yield
    except _core.Stopped:
        if team.interrupted:
            raise KeyboardInterrupt from None
        raise


def weighted_products(X: Matrix, weight: Floats) -> Floats:
    """X diag(weight) X' as a dense matrix; small sparse matrices are made dense."""
    if is_csr(X) and X.shape[0] * X.shape[1] > 1 << 24:
        dense: Floats = (X.multiply(weight[None]).tocsr() @ X.T).toarray()
        return dense
    rows = X.toarray() if is_csr(X) else np.asarray(X)
    found: Floats = (rows * weight) @ rows.T
    return found


def entries_per_row(X: Matrix) -> float:
    """Stored entries of a row of an array or a sparse matrix."""
    return X.nnz / max(1, X.shape[0]) if is_csr(X) else float(X.shape[1])


def _advance(method: Asking, number: int, answer: Answer | None, wishes: dict[int, Wish]) -> None:
    """Send an answer and store the next request, if there is one."""
    try:
        wishes[number] = method.send(answer)
    except StopIteration:
        wishes.pop(number, None)


def _stacked(rows: Sequence[Floats], width: int) -> Floats:
    """One matrix of all vectors and matrices; no copy of a single one."""
    if len(rows) == 1:
        return np.ascontiguousarray(np.atleast_2d(rows[0]))
    return np.vstack(rows) if len(rows) else np.empty((0, width))


def _hand_out(
    answers: list[Any], wishes: Sequence[Wish], numbers: Sequence[int], rows: Floats
) -> None:
    """Give each request its rows of the result: one for a vector, several for a matrix."""
    at = 0
    for i in numbers:
        wish = wishes[i]
        asked = wish.w if isinstance(wish, Scores) else wish.beta  # type: ignore[union-attr]
        if asked.ndim == 1:
            answers[i] = rows[at]
            at += 1
        else:
            answers[i] = rows[at : at + len(asked)]
            at += len(asked)
