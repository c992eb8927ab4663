"""Upper bounds on the gap of a solution, rounding included.

With a model of scores f_i and intercept b, and dual variables beta, the duality gap is

    P + D = 1/2 |w - v|^2 + sum_i g_i(beta_i, f_i + b) >= 0,    v = sum_i beta_i x_i

where w = v but for linear models with weights of their own, and the gap term of a row,
g_i(beta, f) = C_i loss_i(f) + h_i(beta) + beta f, is convex in f. None of these numbers is computed
without error. So every score comes with a bound on its rounding error (from the sum of the absolute
values behind it), and g_i is evaluated at the worse end of that interval. Where the sum of beta is
not exactly what a free intercept requires, the difference is charged to the row that can absorb it
most cheaply. The result is an upper bound on the true gap of the model as it is stored, or infinity
where double precision is not sufficient.

A linear model's scores and X'beta are recomputed, with compensated sums where rounding is a
noticeable part of the bound.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from margrave.problem import BaseProblem, Problem, Solution, is_joint
from margrave.solvers.certificate.errors import audit, off_by
from margrave.solvers.certificate.figures import (
    UNIT,
    Certificate,
    interruptible,
    needs_refinement,
    refined,
    with_certificate,
)
from margrave.solvers.certificate.joint import JointGap
from margrave.solvers.certificate.single import Norms, SingleGap
from margrave.solvers.columns import Columns

P = TypeVar("P", bound=BaseProblem)


@interruptible()
def certificate(
    problem: BaseProblem, solution: Solution, threads: int, tol: float = 0.0
) -> Certificate:
    """Bound the gap of a solution with `weights`, or of one with the scores K beta.

    Where rounding is a noticeable part of the bound, it is refined with compensated sums; if these
    are expensive, only when the bound is above `tol`.
    """
    problem, solution = narrow(problem, solution)
    make = JointGap if is_joint(problem) else SingleGap
    at: JointGap | SingleGap = make(problem, threads)  # type: ignore[arg-type]
    bound = at.by_scores if solution.weights is None else at.by_weights
    return refined(partial(bound, solution), products_of(problem, solution), tol)


@interruptible()
def with_closer_scores(problem: Problem, solution: Solution, threads: int) -> Solution:
    """The solution with scores of compensated sums."""
    problem, near = narrow(problem, solution)
    return replace(solution, scores=SingleGap(problem, threads).closer(near))


def products_of(problem: BaseProblem, solution: Solution) -> int:
    """Number of products in a refinement; those with weights are slower, and of two kinds."""
    support = 16 if solution.weights is not None else int(np.count_nonzero(solution.beta))
    return problem.n_rows * support * int(problem.data.X.shape[1])


def narrow(problem: P, solution: Solution) -> tuple[P, Solution]:
    """Problem and solution without the features that never occur: they have no weight."""
    columns = Columns.of([problem])
    if columns.used is None:
        return problem, solution
    (narrow,) = columns.narrow([problem])
    if solution.weights is not None:
        solution = replace(solution, weights=solution.weights[..., columns.used])
    return narrow, solution


@interruptible()
def certified_by_norms(
    problem: Problem, solution: Solution, norms: Norms, threads: int, tol: float
) -> Solution:
    """Bound the gap by the solver's running values, if that is good enough without a pass."""
    found = SingleGap(problem, threads).by_norms(solution, norms)
    if found.gap > tol or needs_refinement(found, products_of(problem, solution), tol):
        return solution
    return with_certificate(solution, found, tol)


# --- hulls ---------------------------------------------------------------------------------------


@interruptible()
def certify_tube(
    problem: Problem, solution: Solution, share: float, threads: int, tol: float = 0.0
) -> Certificate:
    """Bound the gap of a regression with nu, whose tube is the width of the problem's loss.

    P has `share` times the width in addition, where `share` is nu sum_i C_i, and D lacks sum |beta|
    times the width; sum |beta| must not exceed `share`.
    """
    problem, solution = narrow(problem, solution)
    width, used = problem.loss.epsilon, float(np.abs(solution.beta).sum())
    more = width * abs(share - used) + UNIT * problem.n_rows * width * (share + used)
    at = SingleGap(problem, threads, (more, -width * used))
    bound = at.by_scores if solution.weights is None else at.by_weights
    return refined(partial(bound, solution), products_of(problem, solution), tol)


@interruptible()
def certify_plane(
    problem: Problem, plane: Solution, rho: float, threads: int, tol: float = 0.0
) -> Certificate:
    """Bound (U - L) / U of a plane w'x + b between two hulls and the points rho beta in them.

    Every pair of points of the hulls has w'z >= m = 2 - sum_i C_i max(0, 1 - y_i (w'x_i + b)), so
    that 1/2 |z|^2 is L = m^2 / (2 |w|^2) at least; it is U for z = rho sum_i beta_i x_i.
    """
    problem, plane = narrow(problem, plane)
    at = SingleGap(problem, threads)
    return refined(partial(_plane, at, plane, rho), products_of(problem, plane), tol)


def _plane(at: SingleGap, plane: Solution, rho: float, closely: bool) -> Certificate:
    problem, beta, b, n = at.problem, plane.beta, float(plane.intercept), at.problem.n_rows
    size = UNIT * float(np.abs(beta).sum())
    if plane.weights is not None:
        w = plane.weights
        f, errors, v, low, terms = audit(at.passes, w, beta, closely)
        length = float(np.linalg.norm(v + low))
        norm = float(w @ w) * (1.0 + UNIT * len(w))
        # rho beta is rounded, too
        off = off_by(length, terms, n, closely) + UNIT * (2.0 * terms + len(w) * length)
        square, most = length**2, (length + off) ** 2
    else:
        f, errors = at.scores_of(plane, closely)
        square = float(beta @ f)
        error = float(np.abs(beta) @ (errors + UNIT * (n + 4.0) * np.abs(f)))
        norm = most = square + error
    slack = 1.0 - problem.y * (f + b)
    worst = slack + errors + 2.0 * UNIT * (np.abs(f) + abs(b) + 1.0)
    far = float(np.abs(f).max())
    for sign in (1.0, -1.0):  # what it costs to make the sum of either side one
        rest = abs(math.fsum(beta[problem.y == sign]) - sign / rho)
        most += 2.0 * (rest + size) * far
    U, most = 0.5 * rho**2 * square, 0.5 * rho**2 * most
    L = _lower(2.0 - float(problem.C @ np.maximum(0.0, slack)), norm)
    least = _lower(2.0 - float(problem.C @ np.maximum(0.0, worst)) * (1.0 + UNIT * n), norm)
    if not (most > 0.0 and math.isfinite(most)):
        return Certificate(U, -L, 1.0, 0.0)
    gap = min(1.0, max(0.0, (most - least) / most))
    plain = max(0.0, (U - L) / U) if U > 0.0 else 1.0
    return Certificate(U, -L, gap, max(0.0, gap - plain))


def _lower(margin: float, norm: float) -> float:
    """Half of the squared distance that a plane of this margin guarantees."""
    return margin**2 / (2.0 * norm) if margin > 0.0 and norm > 0.0 else 0.0
