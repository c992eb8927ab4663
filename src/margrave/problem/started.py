"""Problems that are solved from a point whose scores are known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from margrave import _core, cuda
from margrave.problem.data import Data, Floats, RowNumbers
from margrave.problem.single import Problem


@dataclass(frozen=True)
class StartedProblem(Problem):
    """A problem with a start whose scores are known (with a regularised intercept, if any).

    `start_values` kernel values were computed for these scores.
    """

    start: Floats | None = None
    scores: Floats | None = None
    start_values: int = 0

    @classmethod
    def of(cls, problem: Problem, start: Floats, scores: Floats, values: int = 0) -> StartedProblem:
        """The problem with its start and the scores of all rows there."""
        fields = {name: getattr(problem, name) for name in Problem.__dataclass_fields__}
        return cls(**fields, start=start, scores=scores, start_values=values)

    def core(
        self,
        rows: cuda.AnyKernelRows,
        start: Floats | None,
        size: int,
        floor: float,
        fixed: _core.FixedPart | None = None,
    ) -> cuda.AnyWorkingSet:
        """Create the compiled solver; where it begins at this start, it is given the scores."""
        scores, here = self.scores, self.start
        is_here = start is not None and here is not None and np.array_equal(start, here)
        if fixed is None and scores is not None and is_here:
            nothing = np.zeros(self.n_rows)
            bound = float(self.loss.core().value(self.y, self.C, nothing).sum())
            fixed = _core.FixedPart(nothing, scores, 0.0, 0.0, bound)
        return super().core(rows, start, size, floor, fixed)

    def on(self, part: Data, members: RowNumbers) -> StartedProblem | None:
        """Return the problem on a part of the data; `members` are its rows there, possibly none."""
        found = super().on(part, members)
        if not isinstance(found, StartedProblem) or self.start is None or self.scores is None:
            return None
        return replace(found, start=self.start[members], scores=self.scores[members])
