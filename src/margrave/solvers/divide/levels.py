"""Levels of clusters, from many small ones to few large ones.

    for level l = finest .. coarsest:    branching^l clusters
        beta_c = argmin of the problem on cluster c alone, from beta_c     (in parallel)

With a kernel that decays with the distance, kernel values between clusters are nearly zero, so that
the clusters' solutions together are close to that of the whole problem, and each level starts from
the solution of the last (Hsieh, Si, Dhillon: A Divide-and-Conquer Solver for Kernel Support Vector
Machines, ICML 2014).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from margrave.partitions import Partition, clustering, resolve_partition
from margrave.problem import BaseProblem, Floats, Solution
from margrave.solvers.divide.parts import Division, PartOptions

logger = logging.getLogger("margrave")

_FINEST_SIZE = 2000  # rows of a cluster of the finest level, about
_COARSEST_SIZE = 30_000  # largest rows of a cluster, about; then the whole problem follows
_FEWEST_ROWS = 8  # of a cluster
_FEWEST_IN_ALL = 64
_MOST_PARTS = 10_000  # every row is compared with the centres of all of them


@dataclass(frozen=True)
class Levels:
    """Which levels there are, and how clusters are found; see `DivideAndConquer`."""

    finest: int | None = None
    coarsest: int | None = None
    branching: int = 4
    partition: str | Partition | None = None
    sample: int | None = None
    adaptive: bool = True
    tol: float = 1e-2

    def climb(
        self, division: Division[BaseProblem], starts: Sequence[Floats] | None = None
    ) -> Iterator[tuple[int, list[Solution]]]:
        """Yield the solutions of each level, finest first; ends early when the time is over."""
        data, settings = division.data, division.settings
        if self.coarsest:
            division.check_memory()
        partition, betas = self._partition(division), starts
        numbers = self._numbers(data.n_rows, partition)
        for level in numbers:
            if settings.is_over:
                return
            among = division.support(betas) if betas and self._adapts(division) else None
            parts = division.split(partition, self.branching**level, settings.seed + level, among)
            if parts is None:
                return
            if parts.places is None:
                raise ValueError(
                    f"the parts of partition {self.partition!r} have no centres, so that new rows"
                    " cannot be assigned to them; use 'kmeans' or 'kernel_kmeans'"
                )
            kept = self.coarsest is not None and level == numbers[-1]
            solutions = division.solve(parts, betas, PartOptions(self.tol, thorough=kept))
            if solutions is None:
                return
            yield level, solutions
            betas = [solution.beta for solution in solutions]

    def _numbers(self, n_rows: int, partition: Partition) -> range:
        """Levels from the finest to the coarsest, without those of too few rows per cluster."""
        sample = getattr(partition, "sample", n_rows)
        most = min(n_rows // _FEWEST_ROWS, _MOST_PARTS if sample is None else sample)
        deepest = 0
        while n_rows >= _FEWEST_IN_ALL and self.branching ** (deepest + 1) <= most:
            deepest += 1
        finest = self.finest
        if finest is None:
            finest = max(1, round(_log(max(1.0, n_rows / _FINEST_SIZE), self.branching)))
            finest = max(finest, self.coarsest or 0)
        coarsest = self.coarsest
        if coarsest is None:
            coarsest = min(
                finest, math.ceil(_log(max(1.0, n_rows / _COARSEST_SIZE), self.branching))
            )
        if max(finest, coarsest) > deepest:
            logger.info(
                "level %d has clusters of fewer than %d of %d rows: starting from level %d",
                *(max(finest, coarsest), _FEWEST_ROWS, n_rows, deepest),
            )
        finest, coarsest = min(finest, deepest), max(1, min(coarsest, deepest))
        return range(finest, coarsest - 1, -1)

    def _partition(self, division: Division[BaseProblem]) -> Partition:
        if self.partition is not None:
            return resolve_partition(self.partition)
        return clustering(division.data.kernel, self.sample)

    def _adapts(self, division: Division[BaseProblem]) -> bool:
        """Whether to place centres among the support vectors: not where every row is one."""
        return self.adaptive and not any(problem.is_dense for problem in division.problems)


def _log(number: float, base: int) -> float:
    return math.log(number) / math.log(base)
