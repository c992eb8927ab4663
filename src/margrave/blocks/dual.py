"""Problems on some rows alone, solved as if there were no other rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from margrave import cuda
from margrave.problem import BaseProblem, Floats, Intercept, is_joint
from margrave.progress import left_until
from margrave.rounds import (
    ROUGH,
    Core,
    Limits,
    Watch,
    floor_for,
    precision_for,
    run_rounds,
    set_size,
)

_LARGEST_SET = 2048  # variables per round
_BUFFER = 1 << 20  # bytes for kernel rows that are being computed


@dataclass(frozen=True)
class PartResult:
    """The solution of one problem on the rows of one part alone.

    ``scores`` are those of the part's own rows, without the intercept.
    """

    beta: Floats
    scores: Floats
    intercept: Intercept
    objective: float
    dual: float
    kernel_values: int
    definite: bool


class DualBlock:
    """Some rows, and the problems that are to be solved on them alone.

    Parameters
    ----------
    problems : list of Problem and JointProblem
        On the same data: these rows. A joint problem's intercepts are not free.
    starts : list of float64 arrays and None
        Dual variables to begin with; None for zero.
    memory : int
        Bytes for the working set's kernel block and kernel rows.
    threads : int

    Examples
    --------
    >>> from margrave.kernels import Kernel
    >>> from margrave.losses import Loss
    >>> from margrave.problem import Data, Problem
    >>> data = Data(np.array([[-1.0], [1.0]]), Kernel("linear"), np.array([0, 2]))
    >>> problem = Problem(data, None, np.array([-1.0, 1.0]), np.ones(2), Loss("hinge"), None)
    >>> block = DualBlock([problem], [None], 1 << 20, 1)
    >>> block.solve(1e-6, True, time.time() + 10.0)
    >>> block.found()[0].scores.round(6).tolist()
    [-1.0, 1.0]
    """

    def __init__(
        self,
        problems: Sequence[BaseProblem],
        starts: Sequence[Floats | None],
        memory: int,
        threads: int,
    ) -> None:
        self.problems, self.starts = problems, starts
        self.memory, self.threads = memory, threads
        self.solved: list[PartResult | None] = [None] * len(problems)
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        """Ask the thread that works on this block to stop: its result is no longer needed."""
        self.cancelled.set()

    def solve(self, tol: float, thorough: bool, deadline: float) -> None:
        """Solve the problems to the relative gap `tol`, each from its start.

        Results that only serve as starts get a limited number of rounds. Those that are kept as
        models need a `thorough` solution: hardly limited, and certified in double precision. Ends
        at the `deadline` (seconds of ``time.time``).
        """
        rows: dict[tuple[str, float], cuda.AnyKernelRows] = {}  # shared by the problems
        for number, (problem, start) in enumerate(zip(self.problems, self.starts, strict=True)):
            if self.cancelled.is_set() or time.time() >= deadline:
                return
            precision = precision_for(tol, problem.data)
            core = self._core(problem, start, tol, precision, rows, self.memory)
            begun, figures = self._run(core, len(problem.y), tol, thorough, deadline)
            if begun or start is None:
                self.solved[number] = part_result(problem, core, figures)
            if thorough and precision == "float32" and figures["gap"] > tol and begun:
                # single precision is exhausted
                core = self._core(problem, core.beta, tol, "float64", rows, self.memory)
                begun, figures = self._run(core, len(problem.y), tol, thorough, deadline)
                if begun:
                    self.solved[number] = part_result(problem, core, figures)
            if core.interrupted:
                raise KeyboardInterrupt

    def found(self) -> list[PartResult | None]:
        """Return the solutions; without time for one, zero, or None if it had a start."""
        return [
            self._zero(problem) if solved is None and start is None else solved
            for problem, start, solved in zip(self.problems, self.starts, self.solved, strict=True)
        ]

    def _run(
        self, core: Core, n_rows: int, tol: float, thorough: bool, deadline: float
    ) -> tuple[bool, dict[str, Any]]:
        """Run rounds until the gap is reached; whether there was time to begin, and figures."""
        limits = Limits() if thorough else ROUGH
        watch = Watch(
            lambda: left_until(deadline),
            lambda records: limits.exceeded(core, n_rows) or self.cancelled.is_set(),
        )
        outcome = run_rounds(core, tol, watch, certify=thorough)
        return outcome.status != "stopped" or core.work[0] > 0, outcome.figures

    def _zero(self, problem: BaseProblem) -> PartResult:
        if has_zero(problem):
            return zero_result(problem)
        # no working memory: the allocator would not reuse the kernel blocks that parts free
        core = self._core(problem, None, 1.0, "float64", {}, memory=0)
        return part_result(problem, core, core.figures())

    def _core(
        self,
        problem: BaseProblem,
        start: Floats | None,
        tol: float,
        precision: str,
        rows: dict[tuple[str, float], cuda.AnyKernelRows],
        memory: int,
    ) -> Core:
        size = set_size(memory, _LARGEST_SET)
        left = max(0, memory - 8 * min(size, len(problem.y)) ** 2 - _BUFFER)
        key = (precision, problem.offset)
        if key not in rows:
            rows.clear()
            cache = not is_joint(problem)
            rows[key] = problem.data.kernel_rows(
                key[0], left, _BUFFER, self.threads, problem.offset, cache
            )
        core = problem.core(rows[key], start, size, floor_for(tol))
        core.stop_if(self.cancelled.is_set)
        return core


def has_zero(problem: BaseProblem) -> bool:
    """Whether zero variables are feasible, with intercepts of zero."""
    return problem.total == 0.0 and problem.intercept != "free"


def zero_result(problem: BaseProblem) -> PartResult:
    """The result of a part with zero variables, for which no kernel value is needed."""
    nothing, intercept = np.zeros(problem.shape), np.zeros(problem.shape[1:])
    primal, dual = problem.terms(nothing, nothing, intercept)
    return PartResult(nothing, nothing, intercept, primal, dual, 0, True)


class Point(Protocol):
    """Where a solver ended: dual variables, their scores, and what it took."""

    @property
    def beta(self) -> Floats:
        """Dual variables."""
        ...

    @property
    def scores(self) -> Floats:
        """Their scores, without a free intercept."""
        ...

    @property
    def work(self) -> tuple[int, int, int]:
        """Rounds, steps and kernel values."""
        ...


def part_result(problem: BaseProblem, core: Point, figures: dict[str, Any]) -> PartResult:
    """Turn the state of a compiled solver into the result of a part."""
    beta, scores, intercept = core.beta, core.scores, figures["intercept"]
    if problem.intercept == "regularized":  # the core's scores include it
        intercept = beta.sum(axis=0)
        scores = scores - intercept
    objective, dual = float(figures["objective"]), float(figures["dual"])
    scale = max(abs(objective), abs(dual), problem.least_scale)
    definite = problem.data.is_definite(beta, scores, scale, noise=1e-4)  # of single precision
    return PartResult(beta, scores, intercept, objective, dual, core.work[2], definite)
