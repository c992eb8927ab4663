"""Rows in an order in which neighbours are close, so that distant ones can be skipped together.

The kernel values of rows that are far apart are negligible where the kernel is narrow, and tiles
skip those of whole groups of rows. In the order of a k-d tree groups of consecutive rows are small.
Solvers see the rows in this order, estimators in their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from margrave import _core, cuda
from margrave.kernels import core_rows
from margrave.problem import BaseProblem, Data, Floats, RowNumbers, Solution
from margrave.rows import Matrix, is_csr, is_mapped
from margrave.solvers.base import Settings

P = TypeVar("P", bound=BaseProblem)

_FEWEST = 2000  # rows; with fewer there is nothing to gain
_WORTH = 0.5  # share of values that are negligible
_MEMORY = 0.25  # share of the memory that the copy of the rows may take


@dataclass(frozen=True)
class RowOrder:
    """The row of the data at each place, and for each problem the row of the problem.

    None where rows keep their order.
    """

    rows: RowNumbers | None = None
    members: tuple[RowNumbers, ...] = ()
    size: int = 0  # bytes of the copy

    @classmethod
    def of(cls, problems: Sequence[BaseProblem], settings: Settings) -> RowOrder:
        """Find the order, if it is worth a copy of the rows; it never crosses blocks."""
        data = problems[0].data
        if not _is_worth_it(data, settings):
            return cls()
        try:
            found = [
                first + _order(data, data.X[first:last], settings)
                for first, last in zip(data.starts[:-1], data.starts[1:], strict=True)
            ]
        except _core.Stopped:
            return cls()
        members = tuple(_members(problem, found) for problem in problems)
        return cls(np.concatenate(found), members, data.X.nbytes)

    def arrange(self, problems: Sequence[P]) -> list[P]:
        """The same problems with their rows in this order."""
        if self.rows is None:
            return list(problems)
        data = problems[0].data
        ordered = replace(data, X=np.ascontiguousarray(data.X[self.rows]))
        found = (
            problem.on(ordered, own) for problem, own in zip(problems, self.members, strict=True)
        )
        return [problem for problem in found if problem is not None]

    def arrange_starts(self, starts: Sequence[Floats] | None) -> list[Floats] | None:
        """Dual variables in this order."""
        if self.rows is None or starts is None:
            return None if starts is None else list(starts)
        return [start[own] for start, own in zip(starts, self.members, strict=True)]

    def within(self, settings: Settings) -> Settings:
        """Settings without the memory that the copy of the rows takes."""
        return (
            replace(settings, memory_limit=settings.memory - self.size) if self.size else settings
        )

    def restore(self, solutions: Sequence[Solution]) -> list[Solution]:
        """The solutions for the rows in their own order."""
        if self.rows is None:
            return list(solutions)
        return [
            self._restore(solution, own)
            for solution, own in zip(solutions, self.members, strict=True)
        ]

    def _restore(self, solution: Solution, own: RowNumbers) -> Solution:
        def back(values: Floats, rows: RowNumbers) -> Floats:
            found = np.empty_like(values)
            found[rows] = values
            return found

        parts, point = solution.parts, solution.dual_point
        if parts is not None and self.rows is not None:
            parts = replace(parts, label=back(parts.label, self.rows))
        return replace(
            solution,
            beta=back(solution.beta, own),
            scores=back(solution.scores, own),
            dual_point=None if point is None else back(point, own),
            shared=None if solution.shared is None else back(solution.shared, own),
            parts=parts,
        )


def _order(data: Data, X: Matrix, settings: Settings) -> RowNumbers:
    """The order of some rows, by a graphics card if there is one."""
    if data.device is not None:
        return cuda.spatial_order(data.device, X)
    return _core.spatial_order(
        core_rows(X), threads=settings.threads, seconds=settings.seconds_left()
    )


def _members(problem: BaseProblem, found: Sequence[RowNumbers]) -> RowNumbers:
    """The row of a problem at each place; a block may take part more than once."""
    own, begin = [], 0
    for block in problem.block_list:
        own.append(found[block] - problem.data.starts[block] + begin)
        begin += len(found[block])
    return np.concatenate(own)


def _is_worth_it(data: Data, settings: Settings) -> bool:
    """Whether most kernel values are negligible, and there is memory for a copy of the rows."""
    X = data.X
    if not (data.in_memory and data.is_native) or is_csr(X) or is_mapped(X):
        return False
    kernel = data.kernel.core()
    if data.n_rows < _FEWEST or not kernel.shift_invariant:
        return False
    if settings.engine is not None and data.device is None:
        return False
    if _core.negligible_share(kernel, core_rows(X), core_rows(X)) < _WORTH:
        return False
    return bool(X.nbytes <= _MEMORY * settings.memory)
