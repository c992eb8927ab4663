"""The least-squares problems of expectation maximization, in weights or coefficients.

    min over z   P(z) = 1/2 |z|^2 + sum_i loss_i(x_i'z)

Parabolas with slopes -u_i and curvatures D_i in place of the losses (`blocks/augmented.py`)
give the next point, z + dz,

    (1 + X'DX) dz = X'u - z                                  in weights: sums over shards of rows

or, with z = X'om and K = X X' any kernel matrix, in coefficients of the rows,

    om_i = u_i  where D_i = 0,     (K + 1/D) om + b = f + u/D  on the others.        no Gram product

The parabolas also give a dual point beta, and with it the duality gap.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy import linalg

from margrave import _core
from margrave.blocks.augmented import (
    AugmentedBlock,
    Parabolas,
    rates_along,
    sides_of,
    symmetric,
)
from margrave.engines import Engine, Shards
from margrave.kernels import Kernel
from margrave.partitions.strata import pivots
from margrave.problem import BaseProblem, Data, Floats, Problem, RowNumbers
from margrave.resources import in_words
from margrave.solvers.base import Settings
from margrave.solvers.line_search import best_step
from margrave.solvers.linear.newton import solve_positive, unit_of
from margrave.solvers.linear.shards import pieces_of

HOLD = 1e-9  # of the sum of C: ridge on a free intercept, in case no row has curvature
P = TypeVar("P", bound=BaseProblem)

_SINGLE_TOL = 1e-4  # gap from which single-precision products are accurate enough for steps
CLAMP = 1e-8  # the least c of "em", in units of the targets
WARM = 0.05  # first width of "fast" from a good start, in units of the targets
NARROWER, NARROWEST = 0.25, 1e-15  # by how much and how far the width of "fast" shrinks
NEAR = 1e-3  # of the width per row near its kink: predicted gain at which the width shrinks
FLAT, FLATTER = 0.1, 1e-3  # of the first derivative: where a line search ends
_COLUMNS = 64  # of the kernel matrix in one product
_TRIALS = 6  # steps per call of a line search
INDEFINITE = (
    "the solver 'em' needs a positive semidefinite kernel, and this one is not on these rows;"
    " solver='exact' works with every kernel"
)
_MATRICES = 3  # as large as the kernel matrix, at a time
_VECTORS = 30  # of a number per row, beside the features


@dataclass(frozen=True)
class Figures:
    """Primal and dual values of a point, nonzero dual variables, s of rows near a kink."""

    primal: float
    dual: float
    support: int
    bent: float


class _Iterated(ABC):
    """Iterations of expectation maximization, in any space."""

    width: float
    unit: float  # of the targets
    first_width: float

    @abstractmethod
    def measure(self, narrow: bool) -> Figures:
        """Make the parabolas at the present point; its figures."""

    @abstractmethod
    def aim(self) -> float:
        """Find the step to the minimum of the parabolas; its predicted decrease."""

    @abstractmethod
    def finish(self) -> Figures | None:
        """Try the limit of narrow parabolas; its figures, if there are any."""

    @abstractmethod
    def prepare_search(self) -> None:
        """Prepare the line search along the step."""

    @abstractmethod
    def rates(self, steps: Floats) -> Floats:
        """Rates of change of the objective along the step."""

    @abstractmethod
    def move(self, t: float) -> None:
        """Take t times the step."""

    def iterations(self, mode: str) -> Iterator[Figures | None]:
        """Go to the minimum of the parabolas at the present point, or of the line search."""
        narrow = mode == "fast"
        self.width = self.first_width if narrow else CLAMP * self.unit
        while self.width > NARROWEST * self.unit:
            # 1. parabolas at the present point, and its figures
            figures = self.measure(narrow)
            yield figures
            # 2. the step to their minimum
            promise = self.aim()
            if narrow and promise <= NEAR * self.width * max(figures.bent, NEAR):
                if (finished := self.finish()) is not None:
                    yield finished
                self.width *= NARROWER
                continue
            # 3. the line search
            t = 1.0
            if mode != "published":
                self.prepare_search()
                t = line_search(self.rates, FLAT if narrow else FLATTER)
            self.move(t)


class Weights(_Iterated):
    """The weights of a linear model, with its rows in shards."""

    dual_model = False

    def __init__(self, problem: Problem, settings: Settings, engine: Engine) -> None:
        self.problem, self.settings, self.unit = problem, settings, unit_of(problem)
        self.width = self.first_width = self.unit
        self.free = problem.intercept == "free"
        constant = problem.intercept is not None
        self.size = int(problem.data.X.shape[1]) + constant
        self.penalty = np.ones(self.size)
        if self.free:
            self.penalty[-1] = 0.0
        self.z = np.zeros(self.size)
        self.ranges, pieces = pieces_of(problem, settings, engine)
        self.shards: Shards = engine.scatter(AugmentedBlock, pieces)
        self.single = settings.tol >= _SINGLE_TOL
        self.step = self.gradient = np.zeros(self.size)
        self.triangle: Floats = np.empty(0)
        self.slope = self.square = 0.0
        self.scale = (1.0, 1.0)  # of the positive and the negative part of beta
        self.kept_z, self.kept_scale = self.z, self.scale

    def start_at(self, z: Floats | None) -> None:
        """Start from good weights, with parabolas that are narrow already."""
        if z is not None:
            self.z, self.first_width = z, WARM * self.unit

    def begin(self, start: Floats) -> Figures:
        """Start from dual variables."""
        beta = self.problem.feasible(start)
        parts = [beta[at] for at in self.ranges]
        v = np.sum(self.shards.each("begin", [(part, self._left()) for part in parts]), axis=0)
        self.z, self.scale = v, (1.0, 1.0)
        if self.free:
            self.z = np.append(v[:-1], self._best_intercept(v))
        calls = [(self.z, part, self._left()) for part in parts]
        losses, conjugate, support = np.sum(self.shards.each("evaluate", calls), axis=0)
        norm = 0.5 * float(self.z @ (self.penalty * self.z))
        return Figures(norm + losses, norm + conjugate, int(support), 0.0)

    def _best_intercept(self, v: Floats) -> float:
        """The intercept of least loss for the weights."""
        nothing, one = np.append(v[:-1], 0.0), np.zeros(self.size)
        one[-1] = 1.0
        self.shards.map("settle", nothing, self._left())
        self.shards.map("aim", one, self._left())
        width = 1e-12 * self.unit

        def rates(steps: Floats) -> Floats:
            found: Floats = self.shards.reduce("rates", sign * steps, width)
            return sign * found

        sign = 1.0
        sign = 1.0 if rates(np.zeros(1))[0] < 0.0 else -1.0
        return sign * best_step(rates, math.inf)

    def measure(self, narrow: bool) -> Figures:
        """Compute the parabolas and the figures at the present point."""
        self.triangle, combined, numbers = self.shards.reduce(
            "sums", self.z, self.width, narrow, self.free, self.single, self._left()
        )
        self.gradient = self.penalty * self.z - combined[0]
        primal = 0.5 * float(self.z @ (self.penalty * self.z)) + float(numbers[0])
        v, conjugate, self.scale = combined[-1], float(numbers[1]), (1.0, 1.0)
        if self.free:
            plus, minus = float(combined[1, -1]), -float(combined[2, -1])
            most = max(plus, minus, 1e-300)
            self.scale = (minus / most, 1.0) if plus > minus else (1.0, plus / most)
            v = self.scale[0] * combined[1] + self.scale[1] * combined[2]
            conjugate = self.scale[0] * float(numbers[1]) + self.scale[1] * float(numbers[2])
        dual = 0.5 * float(v @ (self.penalty * v)) + conjugate
        return Figures(primal, dual, int(numbers[3]), float(numbers[4]))

    def aim(self) -> float:
        """Find the step to the minimum of the parabolas; its predicted decrease."""
        H = symmetric(self.triangle, self.size)
        H[np.arange(self.size), np.arange(self.size)] += self.penalty
        if self.free:
            H[-1, -1] += HOLD * float(self.problem.C.sum())
        self.step = solve_positive(H, -self.gradient)
        self.slope = float(self.z @ (self.penalty * self.step))
        self.square = float(self.step @ (self.penalty * self.step))
        return -float(self.gradient @ self.step)

    def finish(self) -> Figures | None:
        """Weights can be computed to any accuracy: no exact last step."""
        return None

    def prepare_search(self) -> None:
        """Prepare the line search along the step."""
        self.shards.map("aim", self.step, self._left())

    def rates(self, steps: Floats) -> Floats:
        """Derivatives of the objective along the step."""
        losses: Floats = self.shards.reduce("rates", steps, self.width)
        return self.slope + self.square * steps + losses

    def move(self, t: float) -> None:
        """Make a step."""
        self.z = self.z + t * self.step

    def keep(self, primal: bool, dual: bool) -> None:
        """Keep the weights, the dual point, or both."""
        self.shards.map("keep", primal, dual)
        self.kept_z = self.z if primal else self.kept_z
        self.kept_scale = self.scale if dual else self.kept_scale

    def point(self) -> dict[str, Any]:
        """What is kept, as a solution has it."""
        scores, beta = np.empty(self.problem.n_rows), np.empty(self.problem.n_rows)
        for at, (own, dual) in zip(self.ranges, self.shards.map("kept"), strict=True):
            scores[at], beta[at] = own, dual
        beta *= np.where(beta > 0.0, *self.kept_scale)
        constant = self.problem.intercept is not None
        b = float(self.kept_z[-1]) if constant else 0.0
        weights = self.kept_z[:-1] if constant else self.kept_z
        return {"beta": beta, "scores": scores - b, "intercept": b, "weights": weights}

    def close(self) -> None:
        """Release the shards."""
        self.shards.close()

    def _left(self) -> float:
        return self.settings.seconds_left()


class Coefficients(_Iterated):
    """A coefficient per row, with the whole kernel matrix in memory.

    The model that is kept is the dual point itself: there are no weights, and coefficients outside
    the box would have no certificate.
    """

    dual_model = True

    def __init__(self, problem: Problem, settings: Settings, engine: Engine) -> None:
        self.problem, self.settings, n = problem, settings, problem.n_rows
        self.width = self.first_width = self.unit = unit_of(problem)
        check_memory(n, settings)
        self.K = kernel_matrix(problem)
        self.free = problem.intercept == "free"
        self.sides, self.weight = sides_of(problem.loss, problem.y), 0.5 * problem.C
        team = _core.Team(settings.threads)
        self.terms = _core.RowTerms(problem.loss.core(), problem.y, problem.C, team)
        nothing = np.zeros(n)
        self.om, self.inner, self.b = nothing, nothing, 0.0  # inner = K om
        self.parabolas = Parabolas(self.sides, self.weight, nothing, 1.0, True)
        self.before: list[Floats] | None = None
        self.step, self.along, self.along_b = nothing, nothing, 0.0
        self.slope = self.square = 0.0
        self.last = self.kept = (nothing, nothing, 0.0)  # beta, K beta, intercept

    def begin(self, start: Floats) -> Figures:
        """Start from dual variables."""
        beta = self.problem.feasible(start)
        self.om, self.inner = beta, self._scores(beta)
        figures = self._figures_of(beta, self.inner)
        self.b = self.last[2] if self.free else 0.0
        return figures

    def measure(self, narrow: bool) -> Figures:
        """Compute the parabolas at the present point, and the figures of its dual point."""
        f = self.inner + self.b
        self.parabolas = Parabolas(self.sides, self.weight, f, self.width, narrow, self.before)
        self.before = None if narrow else self.parabolas.scales
        # after a step of any length the coefficients, clipped to their bounds, may be better
        candidates = [self.parabolas.beta] if narrow else [self.parabolas.beta, self.om]
        found = []
        for candidate in candidates:
            beta = self.problem.feasible(candidate)
            found.append((self._figures_of(beta, self._scores(beta)), self.last))
        figures, self.last = min(found, key=lambda one: one[0].primal + one[0].dual)
        return figures

    def _figures_of(self, beta: Floats, scores: Floats) -> Figures:
        b = 0.0
        if self.free:
            b = self.terms.best_intercept(scores, self.b)
        self.last = (beta, scores, b)
        norm = 0.5 * float(beta @ scores)
        if norm < -1e-9 * float(np.abs(beta) @ np.abs(scores)):
            raise ValueError(INDEFINITE)
        dual = norm + self.terms.conjugate(beta)
        primal = self.terms.gap(beta, scores, b) - dual  # a sum without cancellation
        D = self.parabolas.D
        bent = float(self.weight[D > 0.0].sum())
        return Figures(primal, dual, int(np.count_nonzero(beta)), bent)

    def finish(self) -> Figures:
        """Solve for the rows between their bounds to be exactly at their kinks.

        The limit of narrow parabolas; the optimum, if the right rows are between their bounds.
        """
        u, problem = self.parabolas.u, self.problem
        between = (np.abs(u) > 0.0) & (np.abs(u) < problem.C) & (self.parabolas.D > 0.0)
        corner = problem.y
        if problem.loss.name != "hinge":
            corner = problem.y - problem.loss.epsilon * np.sign(u)
        new, _ = self._minimum(np.flatnonzero(between), corner, np.zeros(len(u)))
        beta = problem.feasible(new)
        return self._figures_of(beta, self._scores(beta))

    def _scores(self, beta: Floats) -> Floats:
        """K beta, a few columns at a time: certificates assume that no sum is longer."""
        found = np.zeros(len(beta))
        for first in range(0, len(beta), _COLUMNS):
            columns = slice(first, first + _COLUMNS)
            found += self.K[:, columns] @ beta[columns]
        return found

    def aim(self) -> float:
        """Find the step to the minimum of the parabolas; its predicted decrease."""
        u, D, f = self.parabolas.u, self.parabolas.D, self.inner + self.b
        inverse = 1.0 / np.where(D > 0.0, D, 1.0)
        new, b = self._minimum(np.flatnonzero(D), f + u * inverse, inverse)
        self.step = new - self.om
        self.along, self.along_b = self.K @ self.step, b - self.b
        self.slope = float(self.inner @ self.step)
        self.square = float(self.step @ self.along)
        return float((u - self.om) @ self.along) + float(u.sum()) * self.along_b

    def _minimum(self, inside: RowNumbers, right: Floats, inverse: Floats) -> tuple[Floats, float]:
        """Solve (K + inverse) om + b = right for the rows inside, with om = u for the others."""
        new, b = self.parabolas.u.copy(), self.b
        if len(inside) == 0:
            return new, b
        new[inside] = 0.0
        factor = _factor(self.K[np.ix_(inside, inside)], inverse[inside])
        found = linalg.cho_solve(factor, (right - self.K @ new)[inside])
        if self.free:  # its sum is zero
            ones = linalg.cho_solve(factor, np.ones(len(inside)))
            b = (float(found.sum()) + float(new.sum())) / float(ones.sum())
            found = found - b * ones
        new[inside] = found
        return new, b

    def prepare_search(self) -> None:
        """Nothing to prepare."""

    def rates(self, steps: Floats) -> Floats:
        """Derivatives of the objective along the step."""
        f, along = self.inner + self.b, self.along + self.along_b
        losses = rates_along(self.sides, self.weight, f, along, steps, self.width)
        return self.slope + self.square * steps + losses

    def move(self, t: float) -> None:
        """Make a step."""
        self.om = self.om + t * self.step
        # recomputed: adding t K step would accumulate rounding errors
        self.inner, self.b = self.K @ self.om, self.b + t * self.along_b

    def keep(self, primal: bool, dual: bool) -> None:
        """Keep the dual point, which is also the model."""
        if dual:
            self.kept = self.last

    def point(self) -> dict[str, Any]:
        """What is kept, as a solution has it."""
        beta, scores, b = self.kept
        if self.problem.intercept == "regularized":
            b = float(beta.sum())
            scores = scores - b
        return {"beta": beta, "scores": scores, "intercept": b}

    def close(self) -> None:
        """Release the matrix."""
        self.K = np.empty((0, 0))


def featured(problem: P, features: int, settings: Settings) -> tuple[P, RowNumbers, Floats]:
    """The problem in features that explain its kernel best: rows of a pivoted Cholesky factor.

    Returns the linear problem, the rows that are landmarks, and their part L of the factor: scores
    of weights w are those of the landmarks with the coefficients L'^-1 w.
    """
    rows = problem.data_rows
    count = min(features, len(rows))
    _check_features(count, len(rows), settings)
    data = problem.data.restrict(rows) if len(rows) < problem.data.n_rows else problem.data
    marks, factor = pivots(data, count, settings.threads, settings.seconds_left)
    linear = Data(factor, Kernel("linear"), np.array([0, len(rows)], dtype=np.int64))
    return problem.on_all_of(linear), marks, factor[marks]


def kernel_matrix(problem: Problem) -> Floats:
    """All kernel values of the rows of a problem, with the intercept's if it is regularised."""
    data, rows = problem.data, problem.data_rows
    if data.kernel.is_precomputed:
        K = np.asarray(data.X[np.ix_(rows, rows)], dtype=np.float64)
    else:
        X = data.X if len(rows) == data.n_rows else data.X[rows]
        X = X.astype(np.float64)  # values in double precision
        K = data.kernel.values(X, X)
    return K + problem.offset


def check_memory(n: int, settings: Settings) -> None:
    """Raise if the kernel matrix and its factors do not fit into the memory."""
    needed = _MATRICES * 8 * n * n
    if needed > settings.memory:
        raise ValueError(
            f"the kernel matrix of {n} rows and its factors take {needed / 2**30:.1f} GiB, above"
            f" the memory_limit of {settings.memory / 2**30:.1f} GiB; use"
            " ExpectationMaximization(features=1000), or solver='auto'"
        )


def _check_features(count: int, n: int, settings: Settings) -> None:
    """Raise if the features of the rows do not fit into the memory."""
    row = 8 * n
    needed = (count + _VECTORS) * row
    if needed > settings.memory:
        most = settings.memory // row - _VECTORS
        cure = f"features={most}" if most > 0 else "the linear kernel"
        raise ValueError(
            f"{count} features of {n} rows take {in_words(needed)}, above the memory_limit of"
            f" {in_words(settings.memory)}; use no more than {cure}, or SVC with solver='auto'"
        )


def _factor(K: Floats, diagonal: Floats) -> tuple[Floats, bool]:
    """Cholesky factor of K + diag; rounding may require a slightly larger diagonal."""
    at, trace = np.arange(len(K)), float(np.trace(K)) + float(diagonal.sum())
    for ridge in (0.0, 1e-14, 1e-12, 1e-10):
        system = K.copy()
        system[at, at] += diagonal + ridge * trace
        try:
            factor: tuple[Floats, bool] = linalg.cho_factor(
                system, lower=True, overwrite_a=True, check_finite=False
            )
            return factor
        except linalg.LinAlgError:
            continue
    raise ValueError(INDEFINITE)


def line_search(rate: Callable[[Floats], Floats], flat: float) -> float:
    """A step at which an increasing rate is nearly zero, from below unless it is a full step.

    Examples
    --------
    >>> line_search(lambda t: 2.0 * t - 2.05, 0.1), line_search(lambda t: t - 9.0, 0.1)
    (1.0, 9.0)
    """
    low, high = 0.0, 1.0
    at_low, at_high = (float(one) for one in rate(np.array([low, high])))
    first = -at_low
    if first <= 0.0 or abs(at_high) <= flat * first:
        return high
    while at_high < 0.0 and high < 1e9:
        low, at_low, high = high, at_high, 4.0 * high
        at_high = float(rate(np.array([high]))[0])
    while at_low < -flat * first and high - low > 1e-6 * high > 1e-24:
        straight = low - at_low * (high - low) / (at_high - at_low)
        grid = np.unique([*np.linspace(low, high, _TRIALS + 2)[1:-1], straight])
        rates = rate(grid)
        rises = int(np.searchsorted(rates, 0.0, side="right"))
        if rises < len(grid):
            high, at_high = float(grid[rises]), float(rates[rises])
        if rises > 0:
            low, at_low = float(grid[rises - 1]), float(rates[rises - 1])
    return low
