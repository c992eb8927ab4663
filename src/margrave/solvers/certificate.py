"""What can be said for certain of a solution in floating point.

With a model of scores f_i and intercept b, and dual variables beta, the duality gap is

    P + D = 1/2 |w - v|^2 + sum_i g_i(beta_i, f_i + b) >= 0,    v = sum_i beta_i x_i

where w = v but for linear models with weights of their own, and the gap term of a row,
g_i(beta, f) = C_i loss_i(f) + h_i(beta) + beta f, is convex in f. None of these numbers is computed
without error. So every score comes with a bound on its rounding error (from the sum of the absolute
values behind it), and g_i is taken at the worse end of that interval. Where the sum of beta is not
quite what a free intercept requires, the difference is charged to the row that can absorb it most
cheaply. The result is an upper bound on the true gap of the model as it is stored, or infinity
where double precision cannot tell.

A linear model's scores and X'beta are computed anew, and once more with compensated sums where
rounding has a noticeable part in the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize_scalar

from margrave import _core
from margrave.blocks.passes import Passes
from margrave.losses import JOINT_LOSSES
from margrave.problem import Data, Floats, JointProblem, Problem, Solution
from margrave.rows import RemoteRows, RowBlocks, is_mapped
from margrave.solvers.base import Settings
from margrave.solvers.columns import Columns

UNIT = 2.0**-53  # largest relative error of one operation
_NOTICEABLE = 1e-3  # share of the bound from which on rounding is worth a closer look
_CAREFUL = 1 << 28  # products that may be summed with compensation: about a second
_CHEAP = 1 << 17  # of those: next to nothing
_PARALLEL = 50_000  # rows from which on a second thread pays
_FAR = 1e3  # mean of the rows, in units of their spread, above which they are centred
_SAMPLE = 1000  # rows from which mean and spread are estimated


Solve = Callable[[Sequence[Any], Settings], list[Solution]]
P = TypeVar("P", bound=Problem | JointProblem)


@dataclass(frozen=True)
class Certificate:
    """Primal and dual value of a point, a bound on its relative gap, and rounding's part in it."""

    objective: float
    dual: float
    gap: float
    rounding: float


def with_certificate(solution: Solution, found: Certificate, tol: float) -> Solution:
    """The solution with its final figures."""
    return replace(
        solution,
        objective=found.objective,
        dual=found.dual,
        gap=found.gap,
        rounding=found.rounding,
        converged=found.gap <= tol,
        certificate="full",
    )


def certified(
    problems: Sequence[Problem | JointProblem],
    solutions: Sequence[Solution],
    settings: Settings,
    mend: bool = True,
    by_weights: bool = True,
) -> list[Solution]:
    """Replace the gaps that solvers have kept on their way by bounds for the models they return.

    To `mend` a model that was not finished is to take its best multiple, zero included. A linear
    model that is not stored `by_weights` is the sum over its support vectors. Left as
    they are: solutions that are certified already, models of parts or landmarks, whose certificate
    is that of another problem, and the estimate of a fit that had no time for its certificate.
    After Ctrl-C whatever is not certified yet stays an estimate.
    """
    found = list(solutions)
    for number, problem in enumerate(problems):
        try:
            found[number] = _certified(problem, found[number], settings, mend, by_weights)
        except KeyboardInterrupt:
            settings.progress.interrupt()
            if found[number].certificate == "full" and found[number].rounding is None:
                found[number] = replace(found[number], certificate="estimate", converged=False)
    return found


def _certified(
    problem: Problem | JointProblem,
    solution: Solution,
    settings: Settings,
    mend: bool,
    by_weights: bool,
) -> Solution:
    if solution.rounding is not None or solution.certificate not in ("full", "estimate"):
        return solution
    if isinstance(problem, Problem) and problem.is_hull:
        return solution
    remote = isinstance(problem.data.X, RemoteRows)
    if remote and solution.weights is not None:
        return solution  # passes over these rows are the solver's own business
    linear = problem.data.is_linear and not remote and by_weights
    if not by_weights:
        solution = replace(solution, weights=None)
    if linear and solution.weights is None and np.isfinite(solution.beta).all():
        weights = _combination(problem, solution.beta)
        solution = replace(solution, weights=weights, scores=_scores(problem, weights))
    before = solution
    if mend and not solution.converged:
        solution = _best_multiple(problem, solution, settings)
    if not solution.definite:
        return solution
    if solution.certificate == "estimate" and not linear:
        if solution is before:
            return solution
        primal, dual = problem.terms(solution.beta, solution.scores, solution.intercept)
        gap = max(0.0, primal + dual) / max(abs(primal), abs(dual), 1e-300)
        return replace(solution, objective=primal, dual=dual, gap=gap)
    found = certificate(
        problem, solution, settings.threads, np.inf if settings.is_over else settings.tol
    )
    if linear and found.gap > settings.tol and not settings.is_over:
        solution, found = _polished(problem, solution, found, settings)
    if mend and before.converged and found.gap > settings.tol:  # the solver was mistaken
        mended = _best_multiple(problem, solution, settings)
        if mended is not solution:
            solution, found = mended, certificate(problem, mended, settings.threads, np.inf)
    if found.gap > settings.tol and not settings.is_spent:
        solution = replace(solution, cause=_cause(problem))
    return with_certificate(solution, found, settings.tol)


def _cause(problem: Problem | JointProblem) -> str:
    """What makes rounding errors so large here, and what to do about it."""
    X, y, C = problem.data.X, problem.y, problem.C
    if isinstance(X, np.ndarray) and problem.data.is_native and problem.data.rounding[0].any():
        mean, spread = _mean_and_spread(X)
        if mean > _FAR * spread:
            return (
                f"the features lie around {mean:.1g} with a spread of {spread:.1g}; centre them,"
                " for example with StandardScaler"
            )
    if isinstance(problem, Problem) and not problem.loss.core().labels:
        mean, spread = abs(float(np.mean(y))), float(np.std(y))
        if mean > _FAR * spread:
            return (
                f"the targets lie around {mean:.1g} with a spread of {spread:.1g}; subtract their"
                " mean"
            )
    if float(C.max()) > _FAR**2 * float(C.min()):
        return (
            f"the weights C times sample_weight range from {C.min():.1g} to {C.max():.1g}; bring"
            " them closer together"
        )
    return f"C is as large as {C.max():.1g} for these features; scale the features, or lower C"


@contextmanager
def _interruptible() -> Iterator[None]:
    """There is no time limit here: only Ctrl-C can have stopped the core."""
    try:
        yield
    except _core.Stopped:
        raise KeyboardInterrupt from None


@_interruptible()
def certificate(
    problem: Problem | JointProblem, solution: Solution, threads: int, tol: float = 0.0
) -> Certificate:
    """Bound the gap of a solution with `weights`, or of one with the scores K beta.

    Where rounding has a noticeable part in the bound, it takes a closer look; one that costs much
    only if the bound is above `tol`.
    """
    problem, solution = _narrow(problem, solution)
    make = _Joint if isinstance(problem, JointProblem) else _Single
    at: _Joint | _Single = make(problem, threads)  # type: ignore[arg-type]
    look = at.by_scores if solution.weights is None else at.by_weights
    return _look(partial(look, solution), _products(problem, solution), tol)


def _products(problem: Problem | JointProblem, solution: Solution) -> int:
    """How many products a closer look takes."""
    support = 1 if solution.weights is not None else int(np.count_nonzero(solution.beta))
    return problem.n_rows * support * int(problem.data.X.shape[1])


def _look(look: Callable[[bool], Certificate], products: int, tol: float) -> Certificate:
    """Look, and look closely where rounding has a noticeable part in what is seen."""
    try:
        found = look(False)
    except OverflowError:
        return Certificate(math.inf, -math.inf, math.inf, math.inf)
    return look(True) if _calls_for_more(found, products, tol) else found


def _is_noticeable(found: Certificate) -> bool:
    """Whether rounding has so large a part in a bound that a closer look may help."""
    return not found.rounding < _NOTICEABLE * found.gap


def _calls_for_more(found: Certificate, products: int, tol: float) -> bool:
    """Whether a closer look may help, and is cheap or needed."""
    return _is_noticeable(found) and (found.gap > tol or products <= _CHEAP)


def _narrow(problem: P, solution: Solution) -> tuple[P, Solution]:
    """Both on the features that occur: the others have no weight."""
    columns = Columns.of([problem])
    if columns.used is None:
        return problem, solution
    (narrow,) = columns.narrow([problem])
    if solution.weights is not None:
        solution = replace(solution, weights=solution.weights[..., columns.used])
    return narrow, solution


@dataclass(frozen=True)
class Norms:
    """What bounds the rounding errors of a linear model whose figures were kept on the way."""

    longest: float  # length of the longest row
    drift: float  # scores are off by so many units of rounding times |x_i| at most
    combined: float  # |X'beta|
    zero: float  # sum_i C_i loss_i(0)


@_interruptible()
def certified_by_norms(
    problem: Problem, solution: Solution, norms: Norms, threads: int, tol: float
) -> Solution:
    """Bound the gap by the values that a solver has kept, if that will do without another pass."""
    found = _Single(problem, threads).by_norms(solution, norms)
    if found.gap > tol or _calls_for_more(found, _products(problem, solution), tol):
        return solution
    return with_certificate(solution, found, tol)


class Errors:
    """Bounds on the rounding errors of scores K beta in double precision.

    A kernel value is off by product(x) product(z) + (relative(x) + relative(z)) |k(x, z)| at most,
    in units of rounding and of what the number of features makes of them; sums add to that by the
    size of their terms, |beta_j k(x_j, x)|.
    """

    def __init__(self, data: Data, beta: Floats) -> None:
        self.data, self.beta = data, beta.reshape(len(beta), -1)
        self.product, self.relative, self.root = data.rounding
        self.support = np.flatnonzero(self.beta.any(axis=1))
        self.value = 4.0 + (int(data.X.shape[1]) if data.is_native else 1)
        self.sum = 4.0 + len(self.support)

    def quick(self) -> Floats:
        """By the inequality |k(x, z)|^2 <= k(x, x) k(z, z); a column per class."""
        size = np.abs(self.beta)
        root = self.root
        rooted = root[:, None] * size
        terms = np.outer(root, rooted.sum(axis=0))
        with np.errstate(over="ignore", invalid="ignore"):
            found: Floats = np.outer(self.product, self.product @ size)
            found += self.relative[:, None] * terms + np.outer(root, self.relative @ rooted)
            products: Floats = np.outer(self.product, self.product @ size)
            found = UNIT * (self.value * found + self.sum * (terms + products))
        return np.where(np.isnan(found), np.inf, found)

    def closely(
        self, rows: NDArray[np.int64], scores: Floats, threads: int
    ) -> tuple[Floats, Floats]:
        """Scores of some rows and bounds on their errors, sharper than the quick ones.

        By compensated sums where these are affordable; else, for kernels that are never negative,
        with bounds by the kernel values themselves.
        """
        if isinstance(self.data.X, RemoteRows) or not self.data.is_native:
            return scores, self.quick()[rows]
        features = max(
            1,
            self.data.X.nnz // self.data.n_rows
            if sparse.issparse(self.data.X)
            else self.data.X.shape[1],
        )
        source = self.data.kernel_rows("float64", 0, 1 << 25, threads, cache=False)
        if self.beta.size * len(self.support) * features <= _CAREFUL:
            found = [
                source.multiply_carefully(self.support, np.ascontiguousarray(column), rows, 1e18)
                for column in self.beta[self.support].T
            ]
            sums, errors = (np.stack(parts, axis=1) for parts in zip(*found, strict=True))
            quick = self.quick()[rows]
            better = errors < quick
            return np.where(better, sums, scores), np.where(better, errors, quick)
        if self.product.any():
            return scores, self.quick()[rows]
        size = np.abs(self.beta[self.support])
        coef = np.hstack([size, size * self.relative[self.support, None]])
        told, _ = source.multiply(self.support, np.ascontiguousarray(coef), rows, True, 1e18)
        if told is None:
            raise KeyboardInterrupt
        terms, more = np.hsplit(told, 2)
        # a row with itself has a distance of exactly zero
        own = np.abs(self.beta[rows]) * self.root[rows, None] ** 2
        relative = self.relative[rows, None]
        distant = relative * np.maximum(terms - own, 0.0) + np.maximum(more - relative * own, 0.0)
        bound: Floats = UNIT * (self.value * distant + self.sum * terms)
        return scores, 1.001 * bound  # which is rounded itself


class _Single:
    """The certificate of a score per row; `more` is added to the gap, and to the dual value."""

    def __init__(
        self, problem: Problem, threads: int, more: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        self.problem, self.threads, self.more = problem, threads, more
        team = _core.Team(threads if problem.n_rows >= _PARALLEL else 1)
        self.terms = _core.RowTerms(problem.loss.core(), problem.y, problem.C, team)
        self.passes = Passes(problem.data, problem.block_list, team, lambda: 1e18)

    def by_scores(self, solution: Solution, closely: bool) -> Certificate:
        """Of the model sum_j beta_j k(x_j, x) + b, whose scores are in the solution."""
        problem, beta = self.problem, solution.beta
        f, errors = self.scores_of(solution, closely)
        sums = self.terms.audit(beta, f, errors, float(solution.intercept), closely)
        plain, upper = sums["gap"], sums["upper"]
        dual, error = 0.5 * sums["product"] + sums["conjugate"], 0.5 * sums["product_error"]
        if problem.intercept == "regularized":
            apart = abs(float(solution.intercept) - sums["sum"])
            plain += 0.5 * apart**2
            upper += 0.5 * (apart + UNIT * sums["sum_size"]) ** 2
            dual += 0.5 * sums["sum"] ** 2
            error += UNIT * sums["sum_size"] ** 2
        row, cost, change = self._absorb(solution, f, errors, sums["sum"])
        if change != 0.0:
            upper += max(0.0, cost) + 0.5 * change**2 * self._square(row)
            dual -= float(solution.intercept) * change  # of the point whose sum is right
        return self._relative(plain, upper, dual, error + UNIT * len(beta) * sums["size"])

    def by_weights(self, solution: Solution, compensated: bool) -> Certificate:
        """Of the model w'x + b, by a pass over the rows."""
        problem, w, b = self.problem, solution.weights, float(solution.intercept)
        assert w is not None
        f, errors, v, low, size = audit(self.passes, w, solution.beta, compensated)
        n = problem.n_rows
        length = float(np.linalg.norm(v + low))
        off = _off(length, size, n, compensated)
        apart = float(np.linalg.norm((w - v) - low))
        sums = self.terms.audit(solution.beta, f, errors, b, compensated)
        row, cost, change = self._absorb(solution, f, errors, sums["sum"])
        far = apart + off + 2.0 * UNIT * float(np.linalg.norm(w))
        upper, off_balance = sums["upper"], 0.0
        if change != 0.0:
            upper += max(0.0, cost)
            far += abs(change) * math.sqrt(self._square(row))
            off_balance = b * change
        upper += 0.5 * far**2
        plain = sums["gap"] + 0.5 * apart**2
        # of the point whose sum is right
        dual = 0.5 * length**2 + sums["conjugate"] - off_balance
        error = length * off + 0.5 * off**2
        error += UNIT * (len(w) * length**2 + n * sums["size"])
        if problem.intercept == "regularized":
            between = abs(b - sums["sum"])
            plain += 0.5 * between**2
            upper += 0.5 * (between + UNIT * sums["sum_size"]) ** 2
            dual += 0.5 * sums["sum"] ** 2
            error += UNIT * sums["sum_size"] ** 2
        return self._relative(plain, upper, dual, error)

    def by_norms(self, solution: Solution, norms: Norms) -> Certificate:
        """Of the model w'x + b, by P + D as they were computed and the largest errors of both."""
        problem, w, b = self.problem, solution.weights, float(solution.intercept)
        assert w is not None
        n, d, P, D = problem.n_rows, len(w), solution.objective, solution.dual
        longest, combined, length = norms.longest, norms.combined, float(np.linalg.norm(w))
        total, size = self.terms.total(solution.beta)
        score = UNIT * longest * (norms.drift + 4.0 * length)
        of_primal = self.terms.value_error(solution.scores, b, score) + UNIT * (n + d + 8.0) * P
        off = _off(combined, longest * size, n, False)
        # the negative terms of sum_i h_i are as large as those of zero weights, at most
        terms = abs(D) + combined**2 + total**2 + 2.0 * norms.zero
        of_dual = combined * off + 0.5 * off**2 + UNIT * (d * combined**2 + (n + 8.0) * terms)
        if problem.intercept == "regularized":
            of_dual += UNIT * n * size * (abs(total) + UNIT * n * size)
        upper = P + D + of_primal + of_dual
        row, cost, change = self._absorb(solution, solution.scores, np.array([score]), total)
        if change != 0.0:
            change = abs(change) if row >= 0 else math.inf
            far = longest * (length + combined + 0.5 * change * longest)
            upper += max(0.0, cost) + change * (abs(b) + far)
        return self._relative(P + D, upper, D, of_dual)

    def _absorb(
        self, solution: Solution, f: Floats, errors: Floats, total: float
    ) -> tuple[int, float, float]:
        """The row that makes the sum of beta what it has to be, at what cost, and the change."""
        problem = self.problem
        change = problem.total - total if problem.intercept == "free" else 0.0
        if change == 0.0:
            return -1, 0.0, 0.0
        b = float(solution.intercept)
        row, cost = self.terms.absorb(solution.beta, f, errors, b, change)
        return row, cost, change

    def _square(self, row: int) -> float:
        """k(x, x) of a row of the problem; infinite for none."""
        if row < 0:
            return math.inf
        data, at = self.problem.data, int(self.problem.data_rows[row])
        if isinstance(data.X, RemoteRows):
            return float(data.rounding[2][0]) ** 2
        if data.kernel.is_precomputed:
            return float(abs(data.X[at, at]))
        return float(abs(data.kernel.diagonal(_one_row(data.X, at))[0]))

    def _relative(self, plain: float, upper: float, dual: float, error: float) -> Certificate:
        plain, upper, dual = plain + self.more[0], upper + self.more[0], dual + self.more[1]
        primal = plain - dual
        if upper == 0.0:
            return Certificate(primal, dual, 0.0, 0.0)
        scale = max(abs(primal), abs(dual), self.problem.least_scale)
        certain = scale - error
        if not (certain > 0.0 and math.isfinite(upper)):
            return Certificate(primal, dual, math.inf, math.inf)
        # where D <= 0, P + D is no more than P
        gap = min(upper / certain, 1.0) if dual + error <= 0.0 else upper / certain
        return Certificate(primal, dual, gap, gap - plain / scale)

    def scores_of(self, solution: Solution, closely: bool) -> tuple[Floats, Floats]:
        """Scores K beta and bounds on their errors."""
        problem, rows = self.problem, self.problem.data_rows
        whole = np.zeros(problem.data.n_rows)
        whole[rows] = solution.beta
        bounds, f = Errors(problem.data, whole), solution.scores
        if not closely:
            return f, bounds.quick()[rows, 0]
        found = bounds.closely(rows, f[:, None], self.threads)
        return np.ascontiguousarray(found[0][:, 0]), np.ascontiguousarray(found[1][:, 0])


def _one_row(X: Any, row: int) -> Any:
    """Row number `row`, as a matrix of one row."""
    if not isinstance(X, RowBlocks):
        return X[row : row + 1]
    for block in X:
        if row < block.shape[0]:
            return block[row : row + 1]
        row -= block.shape[0]
    raise IndexError(row)


def _off(length: float, size: float, n: int, compensated: bool) -> float:
    """Bound on the error of X'beta, a vector of this length from n terms of this size."""
    if compensated:
        return UNIT * (length + UNIT * (n + 2.0) ** 2 * size)
    return UNIT * (n + 2.0) * size


@_interruptible()
def certify_tube(
    problem: Problem, solution: Solution, share: float, threads: int, tol: float = 0.0
) -> Certificate:
    """Bound the gap of a regression with nu, whose tube is the width of the problem's loss.

    P has `share` times the width in addition, where `share` is nu sum_i C_i, and D lacks sum |beta|
    times the width; sum |beta| must not exceed `share`.
    """
    problem, solution = _narrow(problem, solution)
    width, used = problem.loss.epsilon, float(np.abs(solution.beta).sum())
    more = width * abs(share - used) + UNIT * problem.n_rows * width * (share + used)
    at = _Single(problem, threads, (more, -width * used))
    look = at.by_scores if solution.weights is None else at.by_weights
    return _look(partial(look, solution), _products(problem, solution), tol)


@_interruptible()
def certify_plane(
    problem: Problem, plane: Solution, rho: float, threads: int, tol: float = 0.0
) -> Certificate:
    """Bound (U - L) / U of a plane w'x + b between two hulls and the points rho beta in them.

    Every pair of points of the hulls has w'z >= m = 2 - sum_i C_i max(0, 1 - y_i (w'x_i + b)), so
    that 1/2 |z|^2 is L = m^2 / (2 |w|^2) at least; it is U for z = rho sum_i beta_i x_i.
    """
    problem, plane = _narrow(problem, plane)
    at = _Single(problem, threads)
    return _look(partial(_plane, at, plane, rho), _products(problem, plane), tol)


def _plane(at: _Single, plane: Solution, rho: float, closely: bool) -> Certificate:
    problem, beta, b, n = at.problem, plane.beta, float(plane.intercept), at.problem.n_rows
    size = UNIT * float(np.abs(beta).sum())
    if plane.weights is not None:
        w = plane.weights
        f, errors, v, low, terms = audit(at.passes, w, beta, closely)
        length = float(np.linalg.norm(v + low))
        norm = float(w @ w) * (1.0 + UNIT * len(w))
        # rho beta is rounded, too
        off = _off(length, terms, n, closely) + UNIT * (2.0 * terms + len(w) * length)
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


class _Joint:
    """The certificate of a problem with a score per class."""

    def __init__(self, problem: JointProblem, threads: int) -> None:
        self.problem, self.threads = problem, threads

    def by_scores(self, solution: Solution, closely: bool) -> Certificate:
        """Of the model with the coefficients beta, whose scores are in the solution."""
        beta, f = solution.beta, solution.scores
        bounds = Errors(self.problem.data, beta)
        errors = bounds.quick()
        if closely:
            f, errors = bounds.closely(np.arange(len(beta)), f, self.threads)
        norm = 0.5 * float((beta * f).sum())
        error = 0.5 * float((np.abs(beta) * errors).sum())
        error += UNIT * beta.size * float(np.abs(beta * f).sum())
        return self._certificate(solution, f, errors, norm, norm, 2.0 * error)

    def by_weights(self, solution: Solution, compensated: bool) -> Certificate:
        """Of the model of these weights, by a pass over the rows for each class."""
        problem, W, beta = self.problem, solution.weights, solution.beta
        assert W is not None
        passes = Passes(problem.data, [0], _core.Team(1), lambda: 1e18)
        f, errors = np.empty(beta.shape), np.empty(beta.shape)
        norms, error = [0.0, 0.0], 0.0
        for c, w in enumerate(W):
            column = np.ascontiguousarray(beta[:, c])
            f[:, c], errors[:, c], v, low, size = audit(passes, w, column, compensated)
            length = float(np.linalg.norm(v + low))
            off = _off(length, size, len(beta), compensated)
            norms[0] += 0.5 * float(w @ w)
            norms[1] += 0.5 * length**2
            error += length * off + 0.5 * off**2
            error += UNIT * len(w) * (float(w @ w) + length**2)
        return self._certificate(solution, f, errors, norms[0], norms[1], error)

    def _certificate(
        self,
        solution: Solution,
        f: Floats,
        errors: Floats,
        primal: float,
        dual: float,
        error: float,
    ) -> Certificate:
        """Add the rows' losses to both norms; a row pays most if its own class is too low."""
        problem, b = self.problem, np.asarray(solution.intercept)
        loss, shares = JOINT_LOSSES[problem.loss], problem.shares(solution.beta)
        at = f + b
        own = np.arange(len(at)), problem.y
        paid = float(problem.C @ loss.value(at, problem.y))
        worst = at.copy()
        worst[own] -= 2.0 * (errors + UNIT * (np.abs(f) + np.abs(b))).max(axis=1)
        most = float(problem.C @ loss.value(worst, problem.y))
        conjugate = problem.C * loss.conjugate(shares, problem.y)
        total = solution.beta.sum(axis=0)
        n = at.size
        if problem.intercept == "regularized":
            primal += 0.5 * float(b @ b)
            dual += 0.5 * float(total @ total)
            error += UNIT * n * float(np.abs(solution.beta).sum()) * float(np.abs(total).sum())
        elif problem.intercept == "free":
            # what a sum that is not zero is worth: intercepts as large as any score could pay
            error += float(np.abs(total).sum()) * float(np.abs(at).max() + np.abs(b).max() + 1.0)
        primal, dual = primal + paid, dual + float(conjugate.sum())
        # beta is C (e_y - p) with p in the simplex but for rounding, which counts by the size of C
        moved = solution.beta.any(axis=1)
        most_of = np.abs(at[moved]).max(axis=1, initial=0.0) + 1.0
        error += 4.0 * UNIT * problem.n_classes * float(problem.C[moved] @ most_of)
        error += UNIT * n * (abs(primal) + abs(dual) + float(np.abs(conjugate).sum()))
        plain, scale = max(0.0, primal + dual), max(abs(primal), abs(dual))
        upper = plain + max(0.0, most - paid) + error
        if not (scale > error and math.isfinite(upper)):
            return Certificate(primal, dual, math.inf, math.inf)
        gap = upper / (scale - error)
        if dual + error <= 0.0:
            gap = min(gap, 1.0)
        return Certificate(primal, dual, gap, gap - plain / scale)


def audit(
    passes: Passes, w: Floats, beta: Floats, compensated: bool
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """X w, bounds on its errors, X'beta as high and low parts, and the absolute sums behind it."""
    n, d = passes.n_rows, passes.n_features
    if passes.in_one_array:
        return passes.rows().audit(w, beta, compensated)
    f, errors, v, low, size = np.zeros(n), np.zeros(n), np.zeros(d), np.zeros(d), 0.0
    for rows, at in passes.parts():
        f[at], errors[at], high, rest, more = rows.audit(w, beta[at], compensated)
        together = v + high
        part = together - v
        low += rest + ((v - (together - part)) + (high - part))  # Knuth's two-sum
        v, size = together, size + more
    return f, errors, v, low, size


# --- linear models that a small change improves --------------------------------------------------


@_interruptible()
def _polished(
    problem: Problem | JointProblem, solution: Solution, found: Certificate, settings: Settings
) -> tuple[Solution, Certificate]:
    """Look for a better model nearby: the best intercept, and slightly longer weights.

    Rounding leaves support vectors within a few units in the last place of their margin, on either
    side. With a large C that is expensive; weights that are longer by as much bring all of them to
    the right side.
    """
    if isinstance(problem, JointProblem) or not _is_noticeable(found):
        return solution, found
    at = _Single(problem, settings.threads)
    assert solution.weights is not None
    w, b = solution.weights, float(solution.intercept)
    for _ in range(3):
        f = audit(at.passes, w, solution.beta, True)[0]
        if problem.intercept == "free":
            b = at.terms.best_intercept(f, b)
        better = replace(solution, weights=w, intercept=b, scores=f)
        judged = at.by_weights(better, compensated=True)
        if judged.gap < found.gap:
            solution, found = better, judged
        if not problem.loss.core().labels or problem.intercept == "regularized":
            break
        short = 1.0 - problem.y * (f + b)
        short = short[(short > -1e-9) & (short < 1e-9)]
        if len(short) == 0 or found.gap <= settings.tol:
            break
        longer = 1.0 + max(0.0, float(short.max())) + 8.0 * UNIT * (1.0 + abs(b))
        w, b = w * longer, b * longer
    return solution, found


# --- models that were not finished ---------------------------------------------------------------


@_interruptible()
def _best_multiple(
    problem: Problem | JointProblem, solution: Solution, settings: Settings
) -> Solution:
    """The solution or, where a constant is better, its best multiple, zero included.

    A descent on the dual may pass through points whose model is worse than a constant. Every such
    multiple of a dual point is one too, its scores are known, and the primal is convex in t.
    """
    if isinstance(problem, Problem) and (problem.total != 0.0 or problem.shift is not None):
        return solution
    along = _Multiples(problem, solution, settings.threads)
    b, least = along.intercept(1.0), math.inf
    if along.is_finite:
        least = along.primal(1.0, b)
    zero = along.intercept(0.0)
    if least <= along.primal(0.0, zero):
        return solution if np.all(b == solution.intercept) else replace(solution, intercept=b)
    t = along.search(zero, b, 8 if settings.is_over else 30) if along.is_finite else 0.0
    return along.at(t) if t > 0.0 else replace(along.at(0.0), definite=True)


class _Multiples:
    """The models t w, each with its best intercept."""

    def __init__(self, problem: Problem | JointProblem, solution: Solution, threads: int) -> None:
        self.problem, self.solution = problem, solution
        self.f, self.b = solution.scores, solution.intercept
        w = solution.weights
        with np.errstate(invalid="ignore", over="ignore"):
            self.norm = float(((solution.beta * self.f) if w is None else w * w).sum())
        numbers = (solution.beta, self.f, self.b, self.norm)
        self.is_finite = all(bool(np.isfinite(number).all()) for number in numbers)
        self.terms: _core.RowTerms | None = None
        if isinstance(problem, JointProblem):
            self.weight = np.bincount(problem.y, problem.C, problem.n_classes)
        else:
            team = _core.Team(threads if problem.n_rows >= _PARALLEL else 1)
            self.terms = _core.RowTerms(problem.loss.core(), problem.y, problem.C, team)
        if not self.is_finite:
            self.f, self.b, self.norm = np.zeros_like(self.f), np.zeros(np.shape(self.b))[()], 0.0

    def primal(self, t: float, b: Any) -> float:
        """Primal value of t w with the intercept b."""
        penalty = float(np.sum(b * b)) if self.problem.intercept == "regularized" else 0.0
        if isinstance(self.problem, JointProblem):
            value, k = JOINT_LOSSES[self.problem.loss].value, self.problem.n_classes
            if t > 0.0:
                paid = float(self.problem.C @ value(t * self.f + b, self.problem.y))
            else:  # the same for all rows of a class
                paid = float(self.weight @ value(np.zeros((k, k)) + b, np.arange(k)))
        else:
            assert self.terms is not None
            paid = self.terms.value(t * self.f, float(b))
        return 0.5 * (t * t * self.norm + penalty) + paid

    def intercept(self, t: float) -> Any:
        """The best one for t w if it is free, else t times that of the solution."""
        if self.problem.intercept != "free":
            return t * self.b
        if isinstance(self.problem, JointProblem):
            return self._of_classes(t)
        assert self.terms is not None
        b = self.terms.best_intercept(t * self.f, float(self.b))
        return b if self.primal(t, b) < self.primal(t, float(self.b)) else float(self.b)

    def _of_classes(self, t: float) -> Any:
        """Of a constant model, by the weights of the classes; else that of the solution."""
        problem = self.problem
        if t > 0.0 or not isinstance(problem, JointProblem):
            return self.b
        weight = self.weight
        with np.errstate(divide="ignore"):
            shares = np.maximum(np.log(weight / weight.sum()), -700.0)
        largest = (weight == weight.max()).astype(np.float64)
        candidates = (np.zeros(len(weight)), shares - shares.mean(), largest - largest.mean())
        return min(candidates, key=lambda b: self.primal(0.0, b))

    def search(self, zero: Any, b: Any, trials: int) -> float:
        """The t in [0, 1] of the least primal value, with the intercept moving along."""
        found = minimize_scalar(
            lambda t: self.primal(t, zero + t * (b - zero)),
            bounds=(0.0, 1.0),
            method="bounded",
            options={"xatol": 1e-3, "maxiter": trials},
        )
        t = float(found.x)
        return t if self.primal(t, self.intercept(t)) < self.primal(0.0, zero) else 0.0

    def at(self, t: float) -> Solution:
        """The model t w."""
        solution, b = self.solution, self.intercept(t)
        w, is_zero = solution.weights, t == 0.0  # zero times what is not finite is not zero
        beta = np.zeros_like(solution.beta) if is_zero else t * solution.beta
        if isinstance(self.problem, Problem) and is_zero:
            lo, hi = self.problem.loss.core().box(self.problem.y, self.problem.C)
            beta = np.clip(beta, lo, hi)  # as near to zero as the box allows
        return replace(
            solution,
            beta=beta,
            scores=t * self.f,
            intercept=b,
            weights=None if w is None else np.zeros_like(w) if is_zero else t * w,
        )


def _scores(problem: Problem | JointProblem, weights: Floats) -> Floats:
    """X w; a column per class of a joint problem."""
    blocks = [0] if isinstance(problem, JointProblem) else problem.block_list
    passes = Passes(problem.data, blocks, _core.Team(1), lambda: 1e18)
    found = passes.scores(np.atleast_2d(weights))
    return found[0] if weights.ndim == 1 else np.ascontiguousarray(found.T)


def _combination(problem: Problem | JointProblem, beta: Floats) -> Floats:
    """X'beta with compensated sums; a row per class of a joint problem."""
    blocks = [0] if isinstance(problem, JointProblem) else problem.block_list
    passes = Passes(problem.data, blocks, _core.Team(1), lambda: 1e18)
    nothing = np.zeros(passes.n_features)
    rows = []
    for column in np.atleast_2d(beta.T):
        _, _, v, low, _ = audit(passes, nothing, np.ascontiguousarray(column), True)
        rows.append(v + low)
    return rows[0] if beta.ndim == 1 else np.array(rows)


# --- rows far from zero --------------------------------------------------------------------------


def around_mean(problems: Sequence[Any], settings: Settings, solve: Solve) -> list[Solution]:
    """Let a solver see rows that are far from zero around their mean, which is the same problem.

    With a linear kernel and a free intercept, (w, b) on x is (w, b + w'm) on x - m. Where the
    mean is large, what tells the rows apart is lost in the rounding of their products.
    """
    mean = _mean_to_remove(problems, settings)
    if mean is None:
        return solve(problems, settings)
    data = problems[0].data
    moved = replace(data, X=data.X.astype(np.float64) - mean)
    near = [replace(problem, data=moved) for problem in problems]
    # models of parts have no free intercept that could take up the mean
    found = solve(near, replace(settings, keep_early=None))
    return [_with_mean(problem, one, mean) for problem, one in zip(near, found, strict=True)]


def _mean_to_remove(problems: Sequence[Any], settings: Settings) -> Floats | None:
    """Mean of the rows where it is far from zero and may be taken out of them; else None."""
    X = problems[0].data.X
    if (
        isinstance(X, RemoteRows | RowBlocks)
        or sparse.issparse(X)
        or is_mapped(X)
        or not problems[0].data.is_linear
        or not all(
            isinstance(p, Problem) and p.intercept == "free" and p.total == 0.0 for p in problems
        )
        or 8 * X.size > settings.memory
    ):
        return None
    far, spread = _mean_and_spread(X)
    if far <= _FAR * spread:
        return None
    mean: Floats = X.mean(axis=0, dtype=np.float64)
    return mean


def _mean_and_spread(X: NDArray[Any]) -> tuple[float, float]:
    """How far from zero the rows lie, and how far apart, estimated from some of them."""
    some = X[np.linspace(0, len(X) - 1, min(len(X), _SAMPLE)).astype(np.intp)].astype(np.float64)
    return float(np.linalg.norm(some.mean(axis=0))), float(np.sqrt(some.var(axis=0).sum()))


def _with_mean(problem: Problem, solution: Solution, mean: Floats) -> Solution:
    """A solution for rows around their mean in terms of the rows as they are."""
    w = solution.weights if solution.weights is not None else _combination(problem, solution.beta)
    at_mean = math.fsum(w * mean)
    return replace(
        solution,
        weights=w,
        intercept=float(solution.intercept) - at_mean,
        scores=solution.scores + at_mean,
        rounding=None,
    )
