"""The whole problem at once, by the solver that suits it according to `benchmarks`.

Workers in other processes use the distributed working set, kernels the working-set solver, both
with moving blocks first where these are asked for. Linear problems use Newton's method where the
loss is smooth or the rows are dense, which costs little for up to some thousand features, and
otherwise coordinate descent, which is faster on sparse rows unless it stalls. When it stalls it
falls back to Newton's method; if the loss has kinks, the working-set solver is tried first on the
rows with a loss or near one, since its steps take the dependence between rows into account. Where
Newton's method does not converge either, the working-set solver follows, unless there are too many
rows for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from margrave.blocks.passes import entries_per_row
from margrave.problem import BaseProblem, Floats, Problem, RowNumbers, Solution
from margrave.progress import Progress
from margrave.rounds import EXACT
from margrave.solvers.base import LARGE_GAP, Settings, side_by_side
from margrave.solvers.certificate import certified
from margrave.solvers.distributed.block_minimization import BlockMinimization, is_elsewhere
from margrave.solvers.kernel.working_set import WorkingSet, solve_rows
from margrave.solvers.linear.newton import DIRECT
from margrave.solvers.linear.solve import descend_linear, is_linear, newton_linear

_DENSE = 0.25  # fraction of stored entries from which rows count as dense
_PATIENCE = 100.0  # passes of coordinate descent before the fallback
_MORE_ROUNDS = 40  # of Newton's method, at least, for exact solutions
_POLISHED = 20_000  # rows up to which the working-set solver is a fallback
_MOST_HELP = 5  # calls of the working-set solver before Newton's method
_POLISH_ROUNDS = 10  # of each call
_LARGEST_SET = 4096  # variables per round: most are between their bounds and depend on each other
_TINY = 50  # rows up to which exact solutions are by pairs of variables
_FEW_ROWS = 2_000  # rows up to which, with more features than rows, the Gram matrix is faster


def solve_whole(
    problems: Sequence[BaseProblem],
    settings: Settings,
    starts: Sequence[Floats] | None = None,
    moving: bool = False,
) -> list[Solution]:
    """Solve the problems, from `starts` if given, kernels with `moving` blocks first."""
    if is_elsewhere(problems, settings):
        return BlockMinimization(rounds=None if moving else 0).solve(problems, settings, starts)
    if is_linear(problems):
        choice = choose(problems[0])
        if choice != "exact":
            solve = _newton if choice == "newton" else _descend
            found = solve(problems, settings, starts)
            return _exactly(problems, found, settings) if settings.exact else found
    return WorkingSet().solve_after(problems, settings, starts, moving)


def solve_from(
    problems: Sequence[BaseProblem],
    settings: Settings,
    starts: Sequence[Floats] | None,
    solver: str,
    rounds: int,
    before: list[Solution] | None = None,
    moving: bool = False,
) -> list[Solution]:
    """Solve the whole problems from the points that a strategy has reached in `rounds`.

    Where the time ends before the starts are evaluated, or while the gap is still large, the
    solutions `before` are returned, which predict better.
    """
    progress = settings.progress
    limit = progress.max_iter
    if limit >= 0:  # the strategy's rounds count
        progress.max_iter = max(0, limit - rounds)
    try:
        solutions = solve_whole(problems, settings, starts, moving)
    finally:
        progress.max_iter = limit
    unfit = [
        one.gap > LARGE_GAP or (start.any() and not one.beta.any())
        for one, start in zip(solutions, starts or [], strict=starts is not None)
    ]
    if before is not None and any(unfit) and settings.is_over:
        return before
    return [replace(one, solver=solver, n_iter=rounds + one.n_iter) for one in solutions]


def certify(
    problems: Sequence[BaseProblem], settings: Settings, betas: Sequence[Floats]
) -> list[Solution]:
    """Certify dual variables for the whole problems without improving them.

    They are first made feasible (their sum is zero if the intercept is free). Without the time for
    it their scores are unknown (NaN), and so are both values and the gap (infinite).
    """
    outer = settings.progress
    with Progress(settings.tol, max_iter=0, time_limit=outer.time_left()) as progress:
        inner = replace(settings, progress=progress)
        elsewhere = is_elsewhere(problems, settings)
        solver = BlockMinimization(rounds=0) if elsewhere else WorkingSet()
        found = solver.solve(problems, inner, betas)
    if progress.stop_reason == "interrupted":
        outer.interrupt()
    if not settings.is_over:
        return found
    return [
        one if one.converged else _unknown(one, beta)
        for one, beta in zip(found, betas, strict=True)
    ]


def _unknown(found: Solution, beta: Floats) -> Solution:
    """The variables that were to be certified, without what belongs to others."""
    if found.certificate == "full" and np.array_equal(found.beta, beta):
        return found
    return replace(
        found,
        beta=beta,
        scores=np.full_like(beta, np.nan),
        weights=None,
        objective=np.inf,
        dual=np.inf,
        gap=np.inf,
        certificate="estimate",
    )


def choose(problem: Problem) -> str:
    """Name the first solver for a linear problem."""
    if problem.data.in_blocks:
        return "newton"
    if problem.data.device is not None:
        return "newton"  # its passes are products of matrices
    n, d = problem.n_rows, problem.data.n_features
    dense = entries_per_row(problem.data.X) >= _DENSE * d
    if d <= DIRECT and (dense or problem.is_smooth):
        return "newton"
    return "exact" if dense and n <= min(d, _FEW_ROWS) else "cd"


def _newton(
    problems: Sequence[Problem], settings: Settings, starts: Sequence[Floats] | None
) -> list[Solution]:
    """Newton's method; falls back to the working-set solver where it does not converge."""
    solutions = certified(problems, newton_linear(problems, settings, starts), settings)
    for number, (problem, before) in enumerate(zip(problems, solutions, strict=True)):
        small = problem.n_rows <= _POLISHED and not problem.data.in_blocks
        if before.converged or not small or settings.is_spent:
            continue
        after = WorkingSet().solve([problem], settings, [before.beta])
        (found,) = certified([problem], after, settings)
        best = found if found.converged or found.objective < before.objective else before
        n_iter = before.n_iter + after[0].n_iter
        solutions[number] = replace(best, n_iter=n_iter, solver="newton, exact")
    return solutions


def _exactly(
    problems: Sequence[Problem], solutions: list[Solution], settings: Settings
) -> list[Solution]:
    """Continue below the tolerance; keep what that does not improve.

    With very few rows pairs of variables reach a vertex of the box without rounding errors, but
    may take for ever; otherwise Newton's method is the faster one.
    """
    outer, tiny = settings.progress, max(problem.n_rows for problem in problems) <= _TINY
    if not tiny and problems[0].data.n_features > DIRECT:
        return solutions
    most = max(solution.n_iter for solution in solutions)
    left = most + _MORE_ROUNDS
    if outer.max_iter >= 0:
        left = min(left, outer.max_iter - most)
    if left <= 0 or settings.is_spent or not all(solution.converged for solution in solutions):
        return solutions
    time_left = outer.time_left()
    with Progress(
        EXACT,
        max_iter=left,
        time_limit=None if time_left is None else 0.5 * time_left,
        callbacks=lambda record: outer.is_over,
    ) as progress:
        inner = replace(settings, tol=EXACT, exact=False, progress=progress)
        starts = [solution.beta for solution in solutions]
        further = (
            WorkingSet().solve(problems, inner) if tiny else newton_linear(problems, inner, starts)
        )
    if progress.stop_reason == "interrupted":
        outer.interrupt()
        return solutions
    found = certified(problems, further, replace(settings, tol=EXACT))
    return [
        replace(
            after,
            n_iter=before.n_iter + after.n_iter,
            converged=True,
            solver=", ".join(dict.fromkeys([*before.solver.split(", "), after.solver])),
        )
        if after.gap <= before.gap
        else before
        for before, after in zip(solutions, found, strict=True)
    ]


def _descend(
    problems: Sequence[Problem], settings: Settings, starts: Sequence[Floats] | None
) -> list[Solution]:
    """Coordinate descent, with fallbacks for the problems on which it stalls."""
    solutions = descend_linear(problems, settings, starts, _PATIENCE)
    left = [i for i, solution in enumerate(solutions) if not solution.converged]
    if not left or settings.is_spent:
        return solutions
    workers = min(len(left), settings.threads)
    alone = replace(settings, threads=settings.threads // workers)

    def help_one(number: int) -> Solution:
        return _helped(problems[number], solutions[number], alone)

    for number, solution in zip(
        left, side_by_side(help_one, left, workers, settings.progress), strict=True
    ):
        solutions[number] = solution
    return solutions


def _helped(problem: Problem, solution: Solution, settings: Settings) -> Solution:
    rounds, solver = solution.n_iter, solution.solver
    if problem.data.X.shape[1] > DIRECT and not problem.is_smooth:
        for _ in range(_MOST_HELP):
            rows = _of_interest(problem, solution)
            if len(rows) > _POLISHED or settings.is_spent:
                break
            set_size = max(2, min(len(rows), _LARGEST_SET))
            beta, steps = solve_rows(
                *(problem, solution.beta, rows, settings, 0.5 * settings.tol),
                max_iter=_POLISH_ROUNDS,
                size=set_size,
            )
            (solution,) = descend_linear([problem], settings, [beta], _PATIENCE)
            rounds, solver = rounds + steps + solution.n_iter, "cd, exact"
            if solution.converged or settings.is_spent:
                return replace(solution, n_iter=rounds, solver=solver)
    (solution,) = newton_linear([problem], settings, [solution.beta])
    return replace(solution, n_iter=rounds + solution.n_iter, solver=f"{solver}, newton")


def _of_interest(problem: Problem, solution: Solution) -> RowNumbers:
    """Rows with a nonzero variable or loss, or close to having a loss."""
    loss, near = problem.loss.core(), 0.2 * _spread(problem)
    f = solution.scores + solution.intercept
    loss_near = loss.value(problem.y, problem.C, f - near) + loss.value(
        problem.y, problem.C, f + near
    )
    return np.flatnonzero((solution.beta != 0.0) | (loss_near > 0.0))


def _spread(problem: Problem) -> float:
    return 1.0 if problem.loss.core().labels else float(np.std(problem.y)) or 1.0
