"""Sparse rows with more features than entries are solved on the columns that have an entry.

A column of zeros changes no kernel value, and its weight is zero. Solvers keep dense vectors and
matrices with a number per feature; without such columns these are no larger than the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from margrave.partitions import Centres, KernelCentres
from margrave.problem import BaseProblem, Solution
from margrave.resources import in_words, parse_bytes
from margrave.rows import Matrix, is_csr

P = TypeVar("P", bound=BaseProblem)


@dataclass(frozen=True)
class Columns:
    """The columns in `used`, and how many there are in all; None where all of them are used."""

    used: NDArray[Any] | None = None
    count: int = 0

    @classmethod
    def of(cls, problems: Sequence[BaseProblem]) -> Columns:
        """Find the columns that have an entry, if there are more columns than entries."""
        if not problems or not sparse.issparse(problems[0].data.X):
            return cls()
        X = problems[0].data.X
        wide = problems[0].data.is_native and X.shape[1] > X.nnz
        return cls(np.unique(X.indices), X.shape[1]) if wide else cls()

    def narrow(self, problems: Sequence[P]) -> list[P]:
        """The same problems on the columns that occur."""
        if self.used is None:
            return list(problems)
        data = problems[0].data
        X, width = data.X, max(1, len(self.used))
        indices = np.searchsorted(self.used, X.indices).astype(X.indices.dtype)
        same = type(X)((X.data, indices, X.indptr), shape=(X.shape[0], width))
        same.has_canonical_format = True
        narrow = replace(data, X=same)
        return [problem.with_data(narrow) for problem in problems]

    def widen(self, solution: Solution) -> Solution:
        """The solution in terms of all columns."""
        if self.used is None:
            return solution
        if solution.weights is not None:
            solution = replace(solution, weights=self._spread(solution.weights))
        parts = solution.parts
        if parts is not None and isinstance(parts.places, (Centres, KernelCentres)):
            places = replace(parts.places, points=self._spread(parts.places.points))
            solution = replace(solution, parts=replace(parts, places=places))
        return solution

    def _spread(self, rows: Matrix) -> Any:
        assert self.used is not None
        if is_csr(rows):
            entries = rows.data, self.used[rows.indices], rows.indptr
            return sparse.csr_matrix(entries, shape=(rows.shape[0], self.count))
        wide = np.zeros((*rows.shape[:-1], self.count), rows.dtype)
        wide[..., self.used] = rows[..., : len(self.used)]
        return wide

    def check(self, problems: Sequence[BaseProblem], memory_limit: int | str | None) -> None:
        """Raise if the weights of linear models do not fit into `memory_limit`."""
        if self.used is None or not problems[0].data.is_linear:
            return
        needed = 8 * self.count * sum(problem.n_outputs for problem in problems)
        if needed > parse_bytes(memory_limit):
            raise ValueError(
                f"the weights of {self.count} features take {in_words(needed)}, above the"
                f" memory_limit of {in_words(parse_bytes(memory_limit))}; raise it, leave out"
                " features that do not occur, or use solver='exact', whose model is the support"
                " vectors"
            )
