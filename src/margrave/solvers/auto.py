"""The choice behind ``solver="auto"``, from measurements of `benchmarks`.

NuSVC, NuSVR and HardMarginSVC (hull problems) are solved by pair swaps. With many rows and a narrow
kernel moving blocks come first, or block minimization is used if workers are in other processes.

Other problems with many rows and a narrow kernel, or with very many rows and a kernel that decays
with the distance, are solved by divide and conquer; a warm start continues with moving blocks.
Joint problems of several classes with many rows and a narrow kernel are solved with moving blocks.
Otherwise workers in other processes use block minimization, and a single process solves the whole
problem at once (`whole.py` chooses how).
"""

from __future__ import annotations

from collections.abc import Sequence

from margrave.problem import BaseProblem, Floats, Solution, is_joint
from margrave.solvers.base import Settings
from margrave.solvers.distributed.block_minimization import BlockMinimization, is_elsewhere
from margrave.solvers.divide.divide_and_conquer import DivideAndConquer, is_local, is_worthwhile
from margrave.solvers.hull.pairs import PairSwaps
from margrave.solvers.whole import solve_whole


class Auto:
    """Choose a solver by the kernel, the loss and the shape of the data."""

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems."""
        if problems[0].is_hull:
            on_card = problems[0].data.device is not None  # where neither is measured
            moving = starts is None and not on_card and is_local(problems)
            if moving and is_elsewhere(problems, settings):
                return BlockMinimization().solve(problems, settings)
            return PairSwaps().solve_after(problems, settings, starts, moving)
        is_remote = problems[0].data.is_remote  # these rows stay where they are
        divided = not is_remote and is_worthwhile(problems)
        if divided and starts is None:
            return DivideAndConquer().solve(problems, settings)
        if is_elsewhere(problems, settings):
            return BlockMinimization().solve(problems, settings, starts)
        joint = starts is None and is_joint(problems[0]) and not is_remote and is_local(problems)
        return solve_whole(problems, settings, starts, moving=divided or joint)
