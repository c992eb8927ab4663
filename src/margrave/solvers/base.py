"""The interface of solvers: the settings of a fit, the protocol, and common checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from numbers import Integral, Real
from typing import NoReturn, Protocol, TypeVar, runtime_checkable

import numpy as np

from margrave.engines import EngineLike, Recovery
from margrave.problem import BaseProblem, Floats, Problem, Solution, StopReason, is_single
from margrave.progress import FOREVER, Progress
from margrave.resources import in_words, parse_bytes
from margrave.rows import size_in_bytes

LARGE_GAP = 0.1  # with which a model of all rows predicts worse than those of clusters
CHEAP = 2e8  # kernel values that may still be computed after a stop: under a second

# bytes of vectors: the point, its solution, and work space of certificates; with shards, which hold
# states of their own, and their last checkpoint, twice as many
PER_ROW, PER_ROW_OF_SHARDS = 256, 512

_ALWAYS_ALLOWED = 8 << 20  # bytes; the process itself takes many times as much

T = TypeVar("T")
R = TypeVar("R")
Show = Callable[[int, Solution], None]  # number of the problem, and its present point


@dataclass(frozen=True)
class Settings:
    """Tolerance, budgets and progress of one fit.

    ``tol`` is the relative duality gap, ``memory_limit`` for caches and buffers beyond the data
    (None: half of what is free), ``engine`` where strategies with several workers run (None: the
    threads of this process). A ``rough`` solution ends with the running figures of the working set
    instead of a certificate; an ``exact`` one goes on below ``tol``, as far as double precision
    allows, for about as many rounds as it took to reach ``tol``.
    ``recovery`` repeats steps in which workers were lost.
    """

    tol: float
    memory_limit: int | str | None
    threads: int
    seed: int
    progress: Progress
    engine: EngineLike = None
    rough: bool = False
    exact: bool = False
    recovery: Recovery = field(default_factory=Recovery, repr=False, compare=False)

    @property
    def is_over(self) -> bool:
        """Whether every problem has to end: no time left, a callback, or Ctrl-C."""
        return self.progress.is_over or self.progress.remaining() <= 0.0

    @property
    def is_spent(self) -> bool:
        """Whether a budget is used up, if only the rounds of one problem."""
        return self.is_over or self.progress.stop_reason not in (None, "converged")

    def seconds_left(self) -> float:
        """Seconds until the time limit; zero after a stop."""
        return 0.0 if self.progress.is_over else max(0.0, min(self.progress.remaining(), FOREVER))

    def deadline(self) -> float:
        """The time limit for workers, in seconds of ``time.time``."""
        return time.time() + self.seconds_left()

    @cached_property
    def memory(self) -> int:
        """Bytes for caches and buffers; free memory is only looked up when needed."""
        return parse_bytes(self.memory_limit)


@runtime_checkable
class Solver(Protocol):
    """A strategy; its constructor's parameters are the strategy's own."""

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems, which share one data set, from `starts` if given."""
        ...


def stop_reason(progress: Progress, otherwise: StopReason | None = None) -> StopReason | None:
    """Why a solver stopped: Ctrl-C, or what it knows itself."""
    return "interrupted" if progress.stop_reason == "interrupted" else otherwise


def unfinished(solution: Solution, settings: Settings, solver: str, rounds: int) -> Solution:
    """A certified point that a strategy returns as it is, by its own parameters."""
    return replace(
        solution,
        solver=solver,
        n_iter=rounds,
        converged=bool(solution.gap <= settings.tol),
        stop_reason=solution.stop_reason or "unfinished",
    )


def present(problems: Sequence[BaseProblem], progress: Progress) -> Show | None:
    """Publish points of these problems: those of all rows once they predict better than blocks."""
    is_hull = is_single(problems[0]) and problems[0].is_hull
    if is_hull or len(problems) != progress.n_problems:  # they are no models yet, or some of them
        return None

    def show(number: int, solution: Solution) -> None:
        if solution.gap <= LARGE_GAP or solution.parts is not None:
            progress.show_latest(number, solution)

    return show


def side_by_side(
    run: Callable[[T], R], items: Sequence[T], workers: int, progress: Progress
) -> list[R]:
    """Call `run` for every item, `workers` at a time.

    Ctrl-C only reaches this thread: it is passed on through `progress`, and the runs end with the
    results so far.
    """
    if workers == 1:
        return [run(item) for item in items]
    futures: list[Future[R]] = []
    with ThreadPoolExecutor(workers) as pool:
        while True:
            try:
                for item in items[len(futures) :]:
                    futures.append(pool.submit(run, item))
                return [future.result() for future in futures]
            except KeyboardInterrupt:
                progress.interrupt()


def zero_solution(problem: BaseProblem, solver: str) -> Solution | None:
    """The model of zero weights if it is optimal because it has no loss, else None.

    Its relative gap is then 0 / 0, and that of every model nearby is one, so that no descent can
    converge. This happens if all targets fit into one tube, or all labels are equal.
    """
    if not is_single(problem) or problem.total != 0.0 or problem.shift is not None:
        return None
    free, y = problem.intercept == "free", problem.y
    b = float(y.min() / 2.0 + y.max() / 2.0) if free else 0.0
    if problem.loss.core().value(y[:1], problem.C[:1], np.full(1, b))[0] != 0.0:
        return None
    nothing = np.zeros(problem.n_rows)
    primal, dual = problem.terms(nothing, nothing, b)
    if primal != 0.0 or dual != 0.0:
        return None
    weights = np.zeros(problem.data.X.shape[1]) if problem.data.is_linear else None
    return Solution(
        *(nothing, b, nothing.copy(), 0.0, 0.0, 0.0, True, 0, "float64", solver),
        weights=weights,
        rounding=0.0,
    )


def check_integer(name: str, value: object, least: int) -> None:
    """Raise for a parameter that is not a whole number or too small; None is allowed."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, got {value!r}")


def check_positive(name: str, value: object) -> None:
    """Raise for a parameter that is not a positive, finite number."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < inf:
        raise ValueError(f"{name} must be a positive number, and finite, got {value!r}")


def check_switch(name: str, value: object) -> None:
    """Raise for a parameter that is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def check_memory(
    problems: Sequence[BaseProblem], settings: Settings, per_row: int = PER_ROW
) -> None:
    """Raise if vectors and copies of the rows alone do not fit into the memory limit.

    A card streams rows that do not fit into its own memory, which is what the limit is about there.
    """
    data = problems[0].data
    if data.device is not None:
        return
    needed = per_row * data.n_rows
    if data.is_native and not data.is_remote:  # in another order, and packed in single precision
        size = size_in_bytes(data.X)
        needed += size + 4 * size // data.X.dtype.itemsize
    if needed > max(settings.memory, _ALWAYS_ALLOWED):
        raise ValueError(
            f"{data.n_rows:,} rows need at least {in_words(needed)} for vectors and copies, and"
            f" memory_limit leaves {in_words(settings.memory)}; raise it, or fit a sample of the"
            " rows"
        )


def check_start(problem: BaseProblem, start: Floats) -> None:
    """Raise for a start of the wrong length or not finite; solvers project it into the box."""
    if len(start) != problem.n_rows:
        raise ValueError(f"a start for {problem.n_rows} rows has length {len(start)}")
    if not np.isfinite(start).all():
        raise ValueError("a start must be finite, got NaN or infinity")


def solver_of_all(problem: BaseProblem) -> str:
    """The solver that works with every loss, kernel and intercept, where the rows are."""
    return "auto" if problem.data.is_remote else "exact"


def refuse_remote(solver: str, problems: Sequence[BaseProblem]) -> None:
    """Raise for rows that are with the workers of an engine."""
    if not problems[0].data.is_remote:
        return
    if not is_single(problems[0]):
        refuse_joint(solver, problems[0])
    raise ValueError(
        f"the solver {solver!r} needs all rows in one array; for rows on the workers of an"
        " engine use solver='auto', 'pbm', 'dc' or 'cascade', or 'dsvrg' for linear models with"
        " a smooth loss"
    )


def refuse_joint(solver: str, problem: BaseProblem) -> NoReturn:
    where, cure = "", "use solver='exact', or multi_class='ovr'"
    if problem.data.is_remote:
        where = " with rows on the workers of an engine"
        cure = "use multi_class='ovr' with solver='auto', or pass the rows as one array"
    raise ValueError(
        f"the solver {solver!r} cannot solve the joint problem of several classes"
        f" ({problem.loss_name!r}){where}; {cure}"
    )


def refuse_unless(
    solver: str,
    problems: Sequence[BaseProblem],
    intercepts: tuple[str | None, ...] = ("free", "regularized", None),
    losses: tuple[str, ...] | None = None,
) -> list[Problem]:
    """Return the problems, or raise for one that the solver does not support.

    The message names what would work.
    """
    found = []
    for problem in problems:
        name = problem.loss_name
        if not is_single(problem):
            refuse_joint(solver, problem)
        found.append(problem)
        if losses is not None and name not in losses:
            raise ValueError(
                f"the solver {solver!r} cannot work with the loss {name!r}; it works with"
                f" {', '.join(map(repr, losses))}, and solver={solver_of_all(problem)!r} with every"
                " loss"
            )
        if problem.intercept not in intercepts:
            raise ValueError(
                f"the solver {solver!r} cannot work with intercept={problem.intercept!r}; it works"
                f" with {' and '.join(map(repr, intercepts))}, and"
                f" solver={solver_of_all(problem)!r} with every one"
            )
    return found
