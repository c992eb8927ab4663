"""Problems solved part by part, in parallel on an engine.

    P_blocks = sum over parts of P_part,    D_blocks = sum over parts of D_part

is the problem whose kernel matrix has zeros between the parts; its gap is the certificate of a
model of parts. A part has no free intercept, whose equality constraint would fix the part's sum:
the intercept of a part is zero, or regularised for kernels that do not decay with the distance.
Only one-class problems, whose sum is given, split it in proportion to the parts' penalties C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.blocks import DualBlock, PartResult, has_zero, zero_result
from margrave.blocks.card import solve_together
from margrave.engines import resolve_engine
from margrave.partitions import Centres, Partition, Parts, split
from margrave.problem import BaseProblem, Data, Floats, RowNumbers, Solution, is_single
from margrave.resources import in_words
from margrave.rounds import precision_for
from margrave.rows import is_csr, sample_rows, size_in_bytes
from margrave.solvers.base import Settings

Rows = NDArray[np.int64]
Task = tuple[BaseProblem, Floats | None]  # a problem, and its start
Tasks = Sequence[Task]  # of the same rows

P = TypeVar("P", bound=BaseProblem)

_COPIES = 8  # fraction of the memory for copies of rows; packed for the core they take it twice
# bytes of a fit beside the rows: labels, weights, parts and their order; targets, variables and
# scores. Of a binary problem, 115 bytes per row were measured.
_PER_ROW, _PER_OUTPUT = 56, 64


@dataclass(frozen=True)
class PartOptions:
    """How parts are to be solved.

    ``tol`` is the relative gap of a part's own problem; a solution that is kept as a model has to
    be ``thorough``. With ``own_weights`` a part treats its rows as the whole data set: their
    penalties C_i are divided by the part's share of the sum of all C_i, and its variables are
    multiplied by that share in the whole problem, unless ``as_published``.
    """

    tol: float
    thorough: bool = False
    own_weights: bool = False
    as_published: bool = False

    def task(self, problem: BaseProblem, data: Data, rows: Rows, begin: Floats | None) -> Task:
        """A problem on a part of the data, and its start."""
        part = problem.on(data, rows)
        assert part is not None  # parts without a row of the problem are left out
        start = None if begin is None else begin[rows]
        if not self.own_weights and part.total == 0.0:
            return part, start
        share = _share(problem, rows)
        if self.own_weights:
            start = start if start is None or self.as_published else start / share
            return part.with_weights(part.C / share), start
        return part.with_total(share * part.total), start


class Division(Generic[P]):
    """Problems of one fit, which share their rows, and where their parts are solved.

    Only a strategy that never needs all rows at once may have them `in_blocks`. The rows of a part
    are copied when it is its turn: of as many parts at a time as an eighth of the memory holds, by
    one pass over the blocks.
    """

    def __init__(
        self,
        problems: Sequence[P],
        settings: Settings,
        solver: str,
        boxed: bool = True,
        in_blocks: bool = False,
    ) -> None:
        self.settings, self.solver = settings, solver
        self.engine = resolve_engine(settings.engine, settings.threads)
        self.data: Data = problems[0].data
        if self.data.in_blocks and not in_blocks:
            raise ValueError(
                f"the solver {solver!r} needs all rows in one array; rows in blocks have"
                " solver=DivideAndConquer(early=...), and, with kernel='linear', 'auto' or 'newton'"
            )
        self.shifts = [_level(problem) if boxed else 0.0 for problem in problems]
        self.problems = [
            _boxed(problem, shift) if boxed else problem
            for problem, shift in zip(problems, self.shifts, strict=True)
        ]
        self.classes = classes_of(problems)
        self.kernel_values = 0

    def split(
        self, partition: Partition, k: int, seed: int, among: Rows | None = None
    ) -> Parts | None:
        """Split the rows into parts; None if the time is over before that."""
        settings = self.settings
        try:
            return split(
                *(partition, self.data, k, seed, among),
                y=self.classes,
                threads=settings.threads,
                left=settings.seconds_left,
            )
        except _core.Stopped:
            return None

    def run(self, tasks: Sequence[Tasks], options: PartOptions) -> list[list[PartResult | None]]:
        """Solve each part's problems, which share its rows, from their starts.

        None instead of a solution if there was no time to evaluate its start.
        """
        # the longest first, for an even load
        order = np.argsort([-sum(len(p.y) for p, _ in part) for part in tasks], kind="stable")
        at_work = min(self.engine.n_workers, len(tasks))
        # the parts' rows, and packed for the core
        copies = 2 * sum(size_in_bytes(part[0][0].data.X) for part in tasks if part)
        # half: memory freed by one part is not available to the next at once
        memory = max(self.settings.memory // 4, self.settings.memory // 2 - copies)
        threads, memory = self.engine.share(at_work, self.settings.threads, memory)
        pieces = [
            {
                "problems": [problem for problem, _ in tasks[number]],
                "starts": [start for _, start in tasks[number]],
                "memory": memory,
                "threads": threads,
            }
            for number in order
        ]
        deadline = self.settings.deadline()
        found = self._solved(pieces, (options.tol, options.thorough, deadline))
        for local in (local for part in found for local in part if local is not None):
            self.kernel_values += local.kernel_values
        return [found[place] for place in np.argsort(order)]

    def _solved(self, pieces: list[Any], how: tuple[Any, ...]) -> list[list[PartResult | None]]:
        """Solve the parts on the engine; all of them again if a worker is lost."""
        if self.data.device is not None:
            return solve_together(pieces, *how)
        recovery = self.settings.recovery
        before = recovery.losses

        def solve() -> list[list[PartResult | None]]:
            if recovery.losses > before and self.settings.is_over:
                # Ctrl-C may have ended the workers too
                return [[None] * len(piece["problems"]) for piece in pieces]
            with self.engine.scatter(DualBlock, pieces) as shards:
                try:
                    shards.map("solve", *how)
                except KeyboardInterrupt:
                    self.settings.progress.interrupt()
                found: list[list[PartResult | None]] = shards.map("found")
            return found

        return recovery.steadily(solve)

    def solve(
        self, parts: Parts, starts: Sequence[Floats] | None, options: PartOptions
    ) -> list[Solution] | None:
        """Solve all problems on every part alone.

        None if the time was over before every start was evaluated: then the starts are better.
        """
        begins: list[Floats | None] = list(starts) if starts else [None] * len(self.problems)
        found: list[list[PartResult | None]] = [[]] * len(parts)
        for batch in self._batches(parts):
            late = self.settings.is_over and all(map(has_zero, self.problems))
            if late and starts:
                return None
            pieces = self._outlines(parts, batch) if late else self._copies(parts, batch)
            tasks = [
                [
                    options.task(problem, data, members, begin)
                    for problem, begin in zip(self.problems, begins, strict=True)
                    if len(members := problem.members(parts.rows[c]))
                ]
                for c, data in zip(batch, pieces, strict=True)
            ]
            solved = _zeros(tasks) if late else self.run(tasks, options)
            for c, local in zip(batch, solved, strict=True):
                found[c] = local
        return self.collect(parts, found, options)

    def _batches(self, parts: Parts) -> Iterator[Rows]:
        """Yield the parts whose rows are copied at a time, those of most rows first."""
        order = np.argsort(-parts.sizes, kind="stable")
        if self.data.is_remote:  # these rows stay where they are
            yield order
            return
        size = size_in_bytes(self.data.X) / self.data.n_rows
        batch = np.cumsum(parts.sizes[order] * size) // max(1, self.settings.memory // _COPIES)
        yield from np.split(order, np.flatnonzero(np.diff(batch)) + 1)

    def _copies(self, parts: Parts, batch: Rows) -> list[Data]:
        """Data of some parts, with copies of their rows."""
        X = self.data.X
        if self.data.kernel.is_precomputed or self.data.is_remote or is_csr(X):
            return [self.data.restrict(parts.rows[c]) for c in batch]
        rows = sample_rows(X, np.concatenate([parts.rows[c] for c in batch]))
        ends = np.cumsum(parts.sizes[batch])
        return [
            replace(self.data, X=rows[end - size : end], starts=self._starts(parts.rows[c]))
            for c, size, end in zip(batch, parts.sizes[batch], ends, strict=True)
        ]

    def _outlines(self, parts: Parts, batch: Rows) -> list[Data]:
        """Data of some parts without columns, where there is no time to solve them."""
        return [
            replace(self.data, X=np.empty((parts.sizes[c], 0)), starts=self._starts(parts.rows[c]))
            for c in batch
        ]

    def _starts(self, rows: Rows) -> Rows:
        return np.searchsorted(rows, self.data.starts).astype(np.int64)

    def check_memory(self) -> None:
        """Raise if the numbers that a fit has per row do not fit into the memory limit."""
        outputs = sum(problem.n_outputs for problem in self.problems)
        needed = self.data.n_rows * (_PER_ROW + _PER_OUTPUT * outputs)
        if needed > self.settings.memory:
            raise ValueError(
                f"the labels, dual variables and scores of {self.data.n_rows:,} rows take"
                f" {in_words(needed)}, above the memory_limit of {in_words(self.settings.memory)};"
                " raise it, or fit a sample of the rows"
            )

    def nothing(self) -> list[Solution]:
        """The model of zeros, as one part, where there was no time for any other."""
        if not self.settings.is_over:
            raise ValueError(
                f"{self.data.n_rows} rows are too few for clusters; pass them in one array"
            )
        if not all(map(has_zero, self.problems)):
            raise ValueError("the time_limit was over before the rows were clustered; raise it")
        origin = Centres(np.zeros((1, self.data.n_features)))
        parts = Parts(np.zeros(self.data.n_rows, dtype=np.int64), origin)
        found = _zeros([[(problem, None) for problem in self.problems]])
        return self.collect(parts, found, PartOptions(self.settings.tol)) or []

    def collect(
        self, parts: Parts, found: Sequence[Sequence[PartResult | None]], options: PartOptions
    ) -> list[Solution] | None:
        """Combine the results of the parts; None if one of them has not begun."""
        gathered = [_Gathered(problem, len(parts), options) for problem in self.problems]
        for c, (rows, locals_) in enumerate(zip(parts.rows, found, strict=True)):
            present = [(one, one.problem.members(rows)) for one in gathered]
            taking = [(one, members) for one, members in present if len(members)]
            for (one, members), local in zip(taking, locals_, strict=True):
                if local is None:
                    return None
                one.add(c, members, local)
        return [
            one.solution(parts, shift, self.solver)
            for one, shift in zip(gathered, self.shifts, strict=True)
        ]

    def keep(self, solutions: list[Solution], number: int, where: str) -> bool:
        """Keep the model of the parts, and report their problem; True if the fit is to stop."""
        parts: Parts = solutions[0].parts
        self.settings.progress.show_early(solutions)
        return self.settings.progress.report(
            objective=sum(solution.objective for solution in solutions),
            dual=sum(solution.dual for solution in solutions),
            gap=max(solution.gap for solution in solutions),
            support=len(self.support([solution.beta for solution in solutions])),
            where=f"{where}, {len(parts)} parts",
            certified=False,
            certificate="blocks",
            round=number,
            kernel_values=self.kernel_values,
            parts=len(parts),
            largest_part=int(parts.sizes.max()),
            smallest_part=int(parts.sizes.min()),
            one_class_parts=self._one_class(parts),
        )

    def _one_class(self, parts: Parts) -> int:
        """Number of parts whose rows all belong to one class."""
        if self.classes is None:
            return 0
        classes, number = np.unique(self.classes, return_inverse=True)
        pairs = np.unique(parts.label * len(classes) + number)
        return int(np.count_nonzero(np.bincount(pairs // len(classes)) == 1))

    def support(self, betas: Sequence[Floats]) -> Rows:
        """Rows of the data with a nonzero dual variable in any of the problems."""
        used = np.zeros(self.data.n_rows, dtype=bool)
        for problem, beta in zip(self.problems, betas, strict=True):
            used[problem.data_rows] |= beta.reshape(len(beta), -1).any(axis=1)
        return np.flatnonzero(used)


class _Gathered:
    """One problem, and its solutions on all parts."""

    def __init__(self, problem: BaseProblem, n_parts: int, options: PartOptions) -> None:
        self.problem, self.options = problem, options
        self.beta, self.scores = np.zeros(problem.shape), np.zeros(problem.shape)
        self.intercept = np.zeros((n_parts, *problem.shape[1:]))
        self.objective = self.dual = 0.0
        self.definite = True

    def add(self, number: int, rows: Rows, local: PartResult) -> None:
        """Add the result of a part."""
        weight = _share(self.problem, rows) if self.options.own_weights else 1.0
        self.objective += weight * local.objective
        self.dual += weight * local.dual
        self.scores[rows] = local.scores
        self.beta[rows] = local.beta * (1.0 if self.options.as_published else weight)
        self.intercept[number] = weight * local.intercept
        self.definite = self.definite and local.definite

    def solution(self, parts: Parts, shift: float, solver: str) -> Solution:
        """The results of all parts as one solution."""
        scale = max(abs(self.objective), abs(self.dual), float(np.finfo(np.float64).tiny))
        return Solution(
            beta=self.beta,
            intercept=self.intercept,
            scores=self.scores,
            objective=self.objective,
            dual=self.dual,
            gap=(self.objective + self.dual) / scale if self.definite else np.inf,
            converged=False,
            n_iter=0,
            precision=precision_for(self.options.tol, self.problem.data),
            solver=solver,
            definite=self.definite,
            certificate="blocks",
            parts=parts,
            level=shift,
            goal=self.options.tol,
        )


def _zeros(tasks: Sequence[Tasks]) -> list[list[PartResult | None]]:
    """Solutions of zeros."""
    return [[zero_result(problem) for problem, _ in own] for own in tasks]


def _share(problem: BaseProblem, rows: Rows) -> float:
    """A part's share of the sum of all penalties C_i."""
    return float(problem.C[rows].sum() / problem.C.sum())


def classes_of(problems: Sequence[BaseProblem]) -> NDArray[Any] | None:
    """Class of each row of the data, from the problems; None if there are no classes."""
    first = problems[0]
    if not first.has_labels or first.total > 0.0:
        return None
    if (
        is_single(first) and first.blocks is not None
    ):  # pairs of classes, each of which is a block of rows
        every = np.arange(first.data.n_rows)
        return np.searchsorted(first.data.starts, every, side="right")
    if len(problems) == 1:
        return first.y
    best: RowNumbers = np.argmax([problem.y for problem in problems], axis=0)
    return best


def _level(problem: BaseProblem) -> float:
    """Median of the targets in place of a free intercept, which parts do not have."""
    if not is_single(problem) or problem.has_labels:
        return 0.0
    is_free = problem.intercept == "free" and problem.total == 0.0
    return float(np.quantile(problem.y, problem.loss.quantile)) if is_free else 0.0


def _boxed(problem: P, shift: float) -> P:
    """The problem without a free intercept, unless its sum is given."""
    if problem.intercept != "free" or problem.total > 0.0:
        return problem
    boxed = problem.with_intercept(
        None if problem.data.kernel.is_shift_invariant else "regularized"
    )
    return boxed.with_targets(boxed.y - shift) if shift else boxed
