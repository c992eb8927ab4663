"""Parallel block minimization (PBM): workers solve for their own variables, then a joint step.

    repeat
        every block S    d_S = argmin of the problem in its own variables, the others fixed
        jointly          t = argmin of the objective along d,   0 <= t <= the nearest bound
                         beta <- beta + t d,    f <- f + t K d

The step is exact, with each variable's own bound, so that the objective falls in every round, with
any partition (Hsieh, Si, Dhillon: Communication-Efficient Distributed Block Minimization for
Nonlinear Kernel Machines, KDD 2017; with the bounds of its equation 13 the step stays zero once a
variable is at its bound). With fixed blocks (`fixed_blocks.py`) the method slows down long before
the optimum. So after the first round every worker gets a copy of the active rows, and blocks move
(`solvers/kernel/moving_blocks.py`), with rounds of the working set between them; the shards keep
all rows, and update the scores of those that are not active. Where the copy does not fit into
memory, the distributed working set (`working_set.py`) continues on the shards.

Hulls (NuSVC, NuSVR, HardMarginSVC) have no first round of fixed blocks, because a block may have no
feasible variables of its own: their blocks move from a start on (`solvers/hull/starts.py`), and the
variables of each class keep their sum in every block.

Joint problems have no shards, whose sums are those of one variable per row: their blocks move on
the threads of this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from margrave import _core
from margrave.engines import Engine, resolve_engine
from margrave.partitions import Partition, Parts, Random, clustering, resolve_partition
from margrave.problem import (
    BaseProblem,
    Floats,
    JointProblem,
    Problem,
    Solution,
    is_joint,
    is_single,
)
from margrave.progress import Progress
from margrave.resources import in_words
from margrave.rounds import Core
from margrave.rows import size_in_bytes
from margrave.solvers.base import (
    Settings,
    check_integer,
    check_memory,
    check_positive,
    check_switch,
    present,
    refuse_joint,
    refuse_unless,
    unfinished,
)
from margrave.solvers.distributed.checkpoint import Checkpoint, identity, warned
from margrave.solvers.distributed.cluster import Cluster, bytes_per_row, memory_left
from margrave.solvers.distributed.fixed_blocks import FixedBlocks
from margrave.solvers.distributed.working_set import DistributedSet
from margrave.solvers.divide.parts import Division
from margrave.solvers.hull.distance import HullCore, first_rows, refuse_overlap
from margrave.solvers.hull.starts import hull_starts
from margrave.solvers.kernel.active_set import ActiveSet
from margrave.solvers.kernel.descent import Kernels, descend
from margrave.solvers.kernel.joint import joint_core
from margrave.solvers.kernel.moving_blocks import BlockPlan
from margrave.solvers.kernel.sample_start import start_from_sample
from margrave.solvers.kernel.working_set import core_of

_BLOCK_ROWS = 6000  # about: solving a larger block costs more time than it saves later
FINISHES = ("working_set", None)
_MOST_SHARDS = 500  # a call of all costs about a tenth of a millisecond for each


class BlockMinimization(BaseEstimator):  # type: ignore[misc]
    """Rounds of blocks solved in parallel and an exact step along all their directions.

    Parameters
    ----------
    blocks : int, optional
        Blocks of rows; by default as many as the engine has workers, or a multiple of that, so that
        no block has many more than 6,000 rows. With `moving`, the first round has at most 500.
    partition : str or Partition, optional
        How rows are assigned to blocks: "kmeans", "kernel_kmeans", "random" or another of
        :mod:`margrave.partitions`, or an object with a method `split`. By default clusters for
        kernels that decay with the distance, else at random. Rows that are with the workers already
        stay where they are.
    rounds : int, optional
        Of blocks; by default as many as are useful.
    inner_tol : float
        Relative duality gap to which fixed blocks are solved in the first round; in later rounds
        this tolerance falls with the gap.
    finish : {"working_set", None}
        What runs between and after the rounds of blocks.
    moving : bool
        Whether every round has blocks of its own, of about 2,000 active rows, or as many as
        `blocks`. Without it, as published, blocks are fixed, with one round by default if the
        working-set solver follows; finish=None then needs an intercept that is not free. The
        blocks of NuSVC, NuSVR, HardMarginSVC and joint problems of several classes have to move;
        the last are solved on the threads of one process, without checkpoints.
    as_published : bool, default=False
        The printed rounds alone: blocks are fixed, and the step is that of equation 13 for the
        hinge loss, which stays zero once a variable is at its bound, and of Armijo's rule for the
        others.
    size : int, optional
        Variables per round of the working set; by default up to 2048.
    checkpoint : str or path, optional
        Folder (or an address that fsspec knows) for checkpoints. A run that finds one of its own
        there continues from it; it is removed when the fit is complete.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from margrave import SVC
    >>> from margrave.solvers import BlockMinimization
    >>> X, y = make_moons(400, noise=0.2, random_state=0)
    >>> model = SVC(gamma=2.0, solver=BlockMinimization(blocks=4)).fit(X, y)
    >>> model.solver_, model.converged_, model.certificate_
    ('pbm', True, 'full')
    """

    def __init__(
        self,
        blocks: int | None = None,
        partition: str | Partition | None = None,
        rounds: int | None = None,
        inner_tol: float = 1e-2,
        finish: str | None = "working_set",
        moving: bool = True,
        as_published: bool = False,
        size: int | None = None,
        checkpoint: str | PathLike[str] | None = None,
    ) -> None:
        self.blocks = blocks
        self.partition = partition
        self.rounds = rounds
        self.inner_tol = inner_tol
        self.finish = finish
        self.moving = moving
        self.as_published = as_published
        self.size = size
        self.checkpoint = checkpoint

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems: rounds for all of them, then one after the other."""
        if is_joint(problems[0]):
            self._check_joint(problems[0], settings)
            return descend(problems, settings, starts, self._core_here, "pbm", self.size)
        solvable = self._checked(problems)
        if solvable[0].data.device is not None:
            solutions = descend(solvable, settings, starts, self._core_here, "pbm", self.size)
        else:
            solutions = self._in_shards(solvable, settings, starts)
        return refuse_overlap(solvable, solutions, settings)

    def _in_shards(
        self, problems: list[Problem], settings: Settings, starts: Sequence[Floats] | None
    ) -> list[Solution]:
        """Solve the problems with their rows in shards on an engine."""
        division = Division(problems, settings, "pbm")
        check_memory(problems, settings, bytes_per_row(division.engine))
        moves = self._moves(problems, settings, division.engine)
        kept = found = None
        if self.checkpoint is not None:
            kept = Checkpoint(self.checkpoint, identity(problems, solver="pbm"))
            found = kept.load()
        parts = Parts(found[0]["label"]) if found else self._parts(division, problems)
        exchanged = 0
        if problems[0].is_hull and starts is None and not found:
            try:
                begins = hull_starts(problems, settings, self.size)
            except KeyboardInterrupt:
                settings.progress.interrupt()
                starts = [first_rows(problem) for problem in problems]
                return descend(problems, settings, starts, core_of, "pbm", self.size)
            starts = [begin.beta for begin in begins]
            exchanged = sum(begin.exchanged(len(parts)) for begin in begins)
        with_rounds = starts is None and not problems[0].is_hull
        begun = division.problems if with_rounds else problems
        with Cluster(begun, parts, settings, division.engine, kept) as cluster:
            cluster.exchanged += exchanged
            run = _Run(self, cluster, division, problems, settings, moves, with_rounds)
            if found:
                run.resume(*found)
            elif starts is not None:
                run.start(starts)
            with closing(run):
                solutions = run.solve()
        if kept is not None and all(solution.converged for solution in solutions):
            with warned("the checkpoint was not removed"):
                kept.remove()
        return solutions

    def _core_here(
        self,
        problem: BaseProblem,
        kernels: Kernels,
        precision: str,
        start: Floats | None,
        floor: float,
    ) -> Core:
        """All rows in this process, or on a graphics card, which solves blocks side by side."""
        if not self.moving or self.checkpoint is not None:
            raise ValueError("engine='cuda' has moving blocks, without checkpoints")
        plan = BlockPlan(
            engine=resolve_engine(kernels.settings.engine, kernels.threads),
            seed=kernels.seed,
            memory=kernels.share // 4,
            threads=kernels.threads,
            blocks=self.blocks,
            partition=None if self.partition is None else resolve_partition(self.partition),
            rounds=self.rounds,
            has_set=self.finish is not None,
        )
        if is_joint(problem):
            return joint_core(problem, kernels, precision, start, plan)
        assert is_single(problem)
        if start is None and problem.is_hull:
            start = start_from_sample(problem, kernels, precision, floor)
        core: Core = ActiveSet(problem, kernels, precision, start, floor, plan)
        return HullCore(core, problem) if problem.is_hull else core

    def _moves(self, problems: Sequence[Problem], settings: Settings, engine: Engine) -> bool:
        """Whether blocks move; not where copies of the rows might not fit into memory."""
        if self._stays(problems):
            return False
        data = problems[0].data
        times = max(1.0, *(problem.n_rows / data.n_rows for problem in problems))
        # the rows, packed, and packed for all rows
        copies = int(3 * times * size_in_bytes(data.X))
        workers = engine.n_workers if engine.is_remote else 1
        memory = min(
            settings.memory // 2,
            memory_left(data, settings, engine),
            engine.share(workers, settings.threads, settings.memory)[1],
        )
        if copies > memory and self.finish is None:
            raise ValueError(
                f"finish=None needs copies of the rows, which take {in_words(copies)} where there"
                f" is room for {in_words(memory)}; use finish='working_set', or raise memory_limit"
            )
        return copies <= memory

    def _stays(self, problems: Sequence[Problem]) -> bool:
        """Whether no round is left for blocks that move; the first is one of fixed blocks.

        Hulls have none, because a block may have no feasible solution of its own.
        """
        only_fixed = (0,) if problems[0].is_hull else (0, 1)
        return not self.moving or self.rounds in only_fixed

    def _parts(self, division: Division[Problem], problems: Sequence[Problem]) -> Parts:
        """Assign rows to blocks."""
        data, settings = division.data, division.settings
        if data.is_remote and self.partition is None and self.blocks is None:
            return Parts(np.unique(data.X.piece, return_inverse=True)[1].astype(np.int64))
        n = data.n_rows
        count = self.blocks or min(n, _blocks(n, division.engine.n_workers))
        if count > n:
            raise ValueError(f"{n} rows cannot be split into {count} blocks")
        if self.moving:
            count = min(count, _MOST_SHARDS)
        partition = self.partition
        if count == 1:
            return Parts(np.zeros(n, dtype=np.int64))
        if partition is None:
            by_distance = data.kernel.is_shift_invariant and not problems[0].is_hull
            partition = clustering(data.kernel) if by_distance else "random"
        parts = division.split(resolve_partition(partition), count, settings.seed)
        return parts or Random().split(data, count, settings.seed)

    def _check_joint(self, problem: JointProblem, settings: Settings) -> None:
        """Raise for what joint problems cannot have, and for invalid parameters."""
        self._check_parameters()
        if problem.data.is_remote:
            refuse_joint("pbm", problem)
        if resolve_engine(settings.engine, settings.threads).is_remote:
            raise ValueError(
                f"the solver 'pbm' solves the joint problem of several classes ({problem.loss!r})"
                " on the threads of this process alone, because workers' shards have one variable"
                " per row; use engine=None, or multi_class='ovr'"
            )
        if not self.moving or self.checkpoint is not None:
            raise ValueError("joint problems have moving blocks, without checkpoints")
        if self.blocks is not None and self.blocks > problem.n_rows:
            raise ValueError(f"{problem.n_rows} rows cannot be split into {self.blocks} blocks")

    def _checked(self, problems: Sequence[BaseProblem]) -> list[Problem]:
        """Return the problems, or raise for invalid parameters and problems."""
        found = refuse_unless("pbm", problems)
        self._check_parameters()
        free = any(p.intercept == "free" for p in problems)
        if problems[0].is_hull and not self.moving:
            raise ValueError(
                "the blocks of NuSVC, NuSVR and HardMarginSVC have to move; use moving=True"
            )
        if self.finish is None and free and self._stays(found):
            raise ValueError(
                "without moving blocks finish=None cannot find a free intercept, which no block can"
                " move by itself; use intercept='regularized' or None, or finish='working_set'"
            )
        return found

    def _check_parameters(self) -> None:
        """Raise for invalid parameters."""
        check_integer("blocks", self.blocks, 1)
        check_integer("rounds", self.rounds, 0)
        check_integer("size", self.size, 2)
        check_positive("inner_tol", self.inner_tol)
        check_switch("moving", self.moving)
        if self.partition is not None:
            resolve_partition(self.partition)
        if self.checkpoint is not None and not isinstance(self.checkpoint, (str, PathLike)):
            raise ValueError(
                f"checkpoint must be a folder, as a string or path, got {self.checkpoint!r}"
            )
        check_switch("as_published", self.as_published)
        if self.as_published and (self.moving or self.finish is not None):
            raise ValueError("as_published needs moving=False and finish=None: rounds alone")
        if self.finish not in FINISHES:
            raise ValueError(f"finish must be 'working_set' or None, got {self.finish!r}")


class _Run:
    """Rounds of fixed blocks for all problems of a fit, then moving blocks and the working set."""

    def __init__(
        self,
        solver: BlockMinimization,
        cluster: Cluster,
        division: Division[Problem],
        problems: list[Problem],
        settings: Settings,
        moves: bool,
        with_rounds: bool,
    ) -> None:
        self.moves = moves  # whether blocks move, after any rounds of fixed blocks
        self.with_rounds = with_rounds  # of fixed blocks
        self.solver, self.cluster, self.division = solver, cluster, division
        self.problems, self.settings = problems, settings
        self.show = present(problems, settings.progress)
        self.kept: dict[str, Any] = {}  # of a checkpoint in the working set's phase
        self.finished = 0  # problems that were complete at that checkpoint
        self.plans: dict[int, BlockPlan] = {}  # of the problems, in any precision
        self.core: ActiveSet | None = None  # with copies of the active rows at the workers
        self.is_inconsistent = False  # some blocks have applied a step, and others have not
        limit = solver.rounds
        if limit is None and (solver.moving or solver.finish is not None):
            limit = 1
        elif solver.moving and limit is not None:
            limit = min(limit, 1)
        self.fixed = FixedBlocks(
            *(cluster, division, settings, solver.inner_tol, limit),
            *(solver.as_published, self.show),
        )

    def start(self, starts: Sequence[Floats]) -> None:
        """Start from given variables."""
        for p, (problem, beta) in enumerate(zip(self.problems, starts, strict=True)):
            begin = problem.feasible(beta)

            def take(p: int = p, problem: Problem = problem, begin: Floats = begin) -> None:
                self.cluster.become(p, problem, begin, "float64")
                self.cluster.save(phase="rounds", done=0)

            try:
                self.cluster.steadily(take)
            except _core.Stopped:  # without scores the starts cannot be evaluated
                self.is_inconsistent = True
                return

    def resume(self, arrays: dict[str, Any], numbers: dict[str, Any]) -> None:
        """Continue from a checkpoint of an earlier run."""
        if numbers["phase"] == "set":
            for p in range(numbers["p"] + 1):  # the working set had begun with these
                self.cluster.problems[p] = self.problems[p]
            self.kept, self.finished = numbers, numbers["p"]
        if self.with_rounds:
            in_rounds = numbers["phase"] == "rounds"
            self.fixed.done = numbers["done"] if in_rounds else self.fixed.limit or 0
        self.fixed.idle = numbers.get("idle", 0)
        self.cluster.resume(arrays, numbers)

    def solve(self) -> list[Solution]:
        """Rounds, then the working set."""
        try:
            has_rounds = self.with_rounds and not self.kept
            if has_rounds and self.fixed.run() and self.fixed.early is not None:
                return self.fixed.early
        except KeyboardInterrupt:  # some blocks may have made a step, and others not
            self.settings.progress.interrupt()
            self.is_inconsistent = True
            if self.fixed.early is not None:
                return self.fixed.early
        return self._finish()

    # --- the end ---------------------------------------------------------------------------

    def _finish(self) -> list[Solution]:
        """Run the working set or, without one, certify the present point."""
        progress, limit = self.settings.progress, self.settings.progress.max_iter
        if self.solver.finish is None and not self.moves:
            solutions = self._descend(self.settings, len(self.problems))
            if self.fixed.done == self.fixed.limit or self.solver.as_published:
                solutions = [
                    unfinished(s, self.settings, "pbm", self.fixed.done) for s in solutions
                ]
            for solution in solutions:
                progress.report(
                    objective=solution.objective,
                    dual=solution.dual,
                    gap=solution.gap,
                    support=int(np.count_nonzero(solution.beta)),
                    round=self.fixed.done,
                )
            return solutions
        if limit >= 0:  # the rounds count
            progress.max_iter = max(0, limit - self.fixed.done)
        try:
            return self._descend(self.settings, self.finished)
        finally:
            progress.max_iter = limit

    def _descend(self, settings: Settings, finished: int) -> list[Solution]:
        """Solve the problems; only certify those that are `finished`."""
        solutions = []
        for p, problem in enumerate(self.problems):
            where = f"problem {p + 1} of {len(self.problems)}" if len(self.problems) > 1 else ""
            arguments = (None, self._core, "pbm", self.solver.size)
            if p < finished:
                left = settings.progress.time_left()
                with Progress(settings.tol, max_iter=0, time_limit=left) as alone:
                    certain = replace(settings, progress=alone)
                    (one,) = descend([problem], certain, *arguments, where=where)
            else:
                (one,) = descend([problem], settings, *arguments, where=where)
            if self.show is not None:
                self.show(p, one)
            solutions.append(replace(one, n_iter=self.fixed.done + one.n_iter))
        return solutions

    def _core(
        self,
        problem: Problem,
        kernels: Kernels,
        precision: str,
        start: Floats | None,
        floor: float,
    ) -> Core:
        """The working set of one problem, from the present state of the shards."""
        p = next(i for i, one in enumerate(self.problems) if one is problem)
        core = DistributedSet(self.cluster, p, problem, precision, kernels.given_size)
        plan = self._plan(p) if self.moves else None
        if self.kept.get("p") == p and self.kept["precision"] == precision:
            core.resume(self.kept)
            core.notes = self.kept["notes"]
            self.kept = {}
        core.is_inconsistent = self.is_inconsistent
        if plan is None:
            return HullCore(core, problem) if problem.is_hull else core
        core.has_shrinking = False
        whole = ActiveSet(problem, kernels, precision, None, floor, plan, core)
        self.close()
        self.core = whole
        return HullCore(whole, problem) if problem.is_hull else whole

    def _plan(self, p: int) -> BlockPlan:
        """How blocks move; in another precision the rounds so far count."""
        solver, settings = self.solver, self.settings
        if p not in self.plans:
            self.plans[p] = BlockPlan(
                engine=self.division.engine,
                seed=settings.seed,
                memory=self.cluster.memory // 4,
                threads=settings.threads,
                blocks=solver.blocks,
                partition=None if solver.partition is None else resolve_partition(solver.partition),
                rounds=None if solver.rounds is None else solver.rounds - self.fixed.done,
                has_set=solver.finish is not None,
                spreads=True,
                show=None if self.show is None else partial(self.show, p),
                recovery=settings.recovery,
            )
        return self.plans[p]

    def close(self) -> None:
        """Release copies of the active rows, however the fit has ended."""
        if self.core is not None:
            self.core.close()


def _blocks(n_rows: int, workers: int) -> int:
    """As many blocks as workers, or a multiple of that where they would be too large."""
    return workers * max(1, round(n_rows / workers / _BLOCK_ROWS))


def is_elsewhere(problems: Sequence[BaseProblem], settings: Settings) -> bool:
    """Whether the rows are, or are to be, with workers of other processes."""
    if problems[0].data.is_remote:
        return True
    if is_joint(problems[0]) or problems[0].data.in_blocks:
        return False
    if settings.is_over:  # the little that is left is faster in this process
        return False
    return bool(resolve_engine(settings.engine, settings.threads).is_remote)
