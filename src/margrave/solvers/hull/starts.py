"""Where the blocks of hull problems begin: no block alone has a feasible solution of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from margrave.engines.base import size_of
from margrave.problem import Floats, Problem
from margrave.solvers.base import Settings
from margrave.solvers.hull.distance import first_rows
from margrave.solvers.kernel.descent import Kernels
from margrave.solvers.kernel.sample_start import SampleStart, has_sample_start, sample_start


@dataclass(frozen=True)
class HullStart:
    """Feasible variables: those of a model of a sample, or without one of the first rows."""

    problem: Problem
    sample: SampleStart | None

    @property
    def beta(self) -> Floats:
        """Dual variables."""
        return first_rows(self.problem) if self.sample is None else self.sample.beta

    def exchanged(self, shards: int) -> int:
        """Bytes that are sent for a start from a sample where the rows are in shards.

        Rows and labels of the sample go to the driver, its model to all shards, and scores back.
        """
        if self.sample is None:
            return 0
        X, at = self.problem.data.X, self.problem.data_rows
        sample, model = (
            size_of(X[at[rows]]) + 8 * len(rows) for rows in (self.sample.sample, self.sample.model)
        )
        scores = 8 * self.problem.n_rows if len(self.sample.model) else 0
        return sample + shards * model + scores


def hull_starts(
    problems: Sequence[Problem], settings: Settings, size: int | None
) -> list[HullStart]:
    """A start of each problem, from a sample where there are many rows; `size` as in `Kernels`."""
    kernels, found = Kernels(problems[0].data, settings, 1, size), []
    for problem in problems:
        has_sample = has_sample_start(problem, kernels)
        found.append(
            HullStart(
                problem, sample_start(problem, kernels, "float64", 0.0) if has_sample else None
            )
        )
    return found
