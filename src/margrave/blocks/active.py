"""Active rows: which they are; problems on blocks of them, and what their changes add to scores.

Every worker has the same copy, so that a block is a list of row numbers and moving a block moves no
rows. Nothing depends on which worker solves which block.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core, cuda
from margrave.blocks.card import Block, solve_blocks
from margrave.blocks.point import columns, fixed_part, nonzero_rows, own_scores, stack
from margrave.problem import AnyProblem, Floats, is_single
from margrave.progress import left_until
from margrave.rounds import Watch, run_rounds, set_size

Rows = NDArray[np.int64]

_MARGIN = 1.15  # active rows per row with a KKT violation
_NEARLY_ALL = 0.8  # fraction of rows above which shrinking is not worthwhile
_LARGEST_SET = 1024  # variables per round of a block's own problem
_MOST_ROUNDS = 40  # of a block, so that none keeps the others waiting for long
_BUFFER = 1 << 20  # bytes for kernel rows that are being computed, the same on all engines
_SLICE = 512  # rows: slices that begin at multiples of it have the same sums as all rows at once


def active_rows(violations: Floats, spare: int) -> Rows | None:
    """Rows with a KKT violation, 15 % more of those nearest to one, and `spare`; None for all."""
    wanted = int(_MARGIN * np.count_nonzero(violations > 0.0)) + spare
    if wanted >= _NEARLY_ALL * len(violations):
        return None
    return np.sort(np.argpartition(-violations, wanted)[:wanted])


@dataclass(frozen=True)
class BlockChange:
    """Rows of a block whose variables change, their new values, and the work that it took."""

    rows: Rows
    values: Floats
    steps: int
    kernel_values: int


class ActiveRows:
    """A copy of the rows of a problem, from `hold` on.

    Parameters
    ----------
    number, count : int
        This copy among all, which each compute the sums for a slice of the rows.
    precision : {"float32", "float64"}
    floor : float
        The smallest fraction of C that counts as nonzero, for losses whose variables never reach
        their bounds.
    memory : int
        Bytes for kernel rows and buffers of all blocks that are solved at a time.
    threads : int
    at_work : int
        Blocks that are solved at a time.
    """

    def __init__(
        self,
        number: int,
        count: int,
        precision: str,
        floor: float,
        memory: int,
        threads: int,
        at_work: int,
    ) -> None:
        self.number, self.count = number, count
        self.precision, self.floor = precision, floor
        self.memory, self.threads = memory // at_work, max(1, threads // at_work)
        self.all_memory, self.all_threads = memory, threads
        self.cancelled = threading.Event()

    def hold(self, problem: AnyProblem, places: NDArray[np.int32] | None = None) -> None:
        """Set the problem, on these rows alone, which is the same for all copies.

        With `places`, those of the rows in the last problem, the data hold only new rows, whose
        place is -1. Scores that other rows contribute are part of the scores of the blocks.
        """
        if places is not None:
            is_new = places < 0
            rows = stack([self.problem.data.X[places[~is_new]], problem.data.X])
            order = np.argsort(np.concatenate([np.flatnonzero(~is_new), np.flatnonzero(is_new)]))
            problem = replace(problem, data=replace(problem.data, X=rows[order]))
        self.problem: AnyProblem = problem
        number, count = self.number, self.count
        ends = _SLICE * np.linspace(0, -(-problem.n_rows // _SLICE), count + 1).round().astype(int)
        first, last = np.minimum(ends[number : number + 2], problem.n_rows)
        self.slice = np.arange(first, last)
        self.kernel_rows = problem.data.kernel_rows(
            self.precision,
            self.all_memory // 2,
            8 * _BUFFER,
            self.all_threads,
            problem.offset,
            cache=False,
        )

    def cancel(self) -> None:
        """Ask the threads that work on this copy to stop."""
        self.cancelled.set()

    def many(self, method: str, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method several times."""
        rows = self.kernel_rows
        if method == "solve" and isinstance(rows, cuda.KernelRows) and rows.stay(rows.dtype):
            return self._on_card(calls)
        return [getattr(self, method)(*call) for call in calls]

    def _on_card(self, calls: Sequence[tuple[Any, ...]]) -> list[BlockChange]:
        """Solve several blocks side by side on the graphics card."""
        assert isinstance(self.kernel_rows, cuda.KernelRows) and is_single(self.problem)
        found = solve_blocks(self.problem, self.kernel_rows, self.floor, calls, _MOST_ROUNDS)
        return [BlockChange(*one) for one in found]

    def solve(self, block: Block, dual: float, deadline: float) -> BlockChange:
        """Solve the problem in the variables of a block, all others fixed.

            min over d   1/2 d'K d + f'd + sum_i h_i(beta_i + d_i)        d zero outside the block

        until its share of the relative gap or its KKT violation is small enough. A free intercept
        keeps the sum of the block's variables; the intercepts of a joint problem are fixed, and
        included in the scores. `dual` is the dual value of all rows. Ends at the `deadline` (in
        seconds of ``time.time``).
        """
        rows, beta, scores = block.rows, block.beta, block.scores
        part = self.problem.restrict(rows)
        size = set_size(self.memory, _LARGEST_SET)
        # no cache: fresh memory costs more than the kernel values of so few rows
        kernel_rows = part.data.kernel_rows(
            self.precision, self.memory, _BUFFER, self.threads, self.problem.offset, cache=False
        )
        own = own_scores(kernel_rows, beta, np.arange(len(rows)), left_until(deadline))
        if own is None:
            return BlockChange(rows[:0], beta[:0], 0, 0)
        terms = (part.dual_terms(self.floor), part.y, part.C, beta)
        fixed = fixed_part(*terms, scores, scores - own, dual)
        core = part.core(kernel_rows, beta, size, self.floor, fixed)
        core.stop_if(self.cancelled.is_set)
        watch = Watch(
            lambda: left_until(deadline),
            lambda records: (
                core.work[0] >= _MOST_ROUNDS
                or self.cancelled.is_set()
                or (len(records) > 0 and records[-1]["violation"] <= block.violation)
            ),
        )
        run_rounds(core, block.gap, watch, certify=False)
        if core.interrupted or self.cancelled.is_set():
            raise KeyboardInterrupt
        values = core.beta
        moved = nonzero_rows(values != beta)
        return BlockChange(rows[moved], values[moved], core.work[1], kernel_rows.kernel_values)

    def spread(self, rows: Rows, change: Floats, deadline: float) -> tuple[Floats, int]:
        """What changes of some variables add to the scores of this copy's slice of the rows.

        Also the number of kernel values; raises ``_core.Stopped`` at the `deadline`.
        """
        before = self.kernel_rows.kernel_values
        sums, interrupted = self.kernel_rows.multiply(
            rows, columns(change), self.slice, False, left_until(deadline)
        )
        if interrupted or self.cancelled.is_set():
            raise KeyboardInterrupt
        if sums is None:
            raise _core.Stopped
        added = sums.reshape(len(sums), *change.shape[1:])
        return added, self.kernel_rows.kernel_values - before
