"""Saddle-SVC: the distance of two hulls as a saddle point, some features at a time.

After Jin, Huang and Li, "SVM via Saddle Point Optimization: New Bounds and Distributed Algorithms",
with corrections. With the entropy H(x) = sum x log x and rows scaled to |x| <= 1,

    max over w  min over eta, xi    w'(A eta - B xi) + gamma (H(eta) + H(xi)) - 1/2 |w|^2

The features fall into m blocks. A round takes one of them, F, at random:

    delta_j = (A eta' - B xi')_j for j in F,    eta' = eta + theta (eta - last eta),  xi' likewise
    w_j <- (w_j + sigma delta_j) / (1 + sigma)
    log eta_i <- k1 (k2 log eta_i - (old w'x_i + m change of w'x_i)), projected onto S;  xi with +

    R = largest |x_i| in any block,  q = sqrt(m) R,  tau = sqrt(m / gamma) / (2 q),
    sigma = sqrt(m gamma) / (2 q),  theta = 1 - 1 / (m + q sqrt(m / gamma)),
    k2 = m / tau,  k1 = 1 / (gamma + k2)

gamma determines the accuracy: gamma = eps U / (2 (log n1 + log n2)), with eps halved from stage to
stage as the bounds of `distance.py` allow, so that no guess of the optimum is needed.
The published form has a gamma from a guess beta of the optimum, one feature at a time, rotated
rows, and stops when U changes little, whatever the gap.

Rows are split among blocks (`SaddleBlock`), the caller holds w, and the order of features comes
from a common seed. delta is linear in the weights, so that one exchange per round is enough, in
which blocks return sums for the next features; with caps the projection takes some more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from margrave.blocks.hull import settle
from margrave.blocks.saddle import SaddleBlock, draws, rotated
from margrave.engines import resolve_engine
from margrave.engines.base import Shards
from margrave.problem import BaseProblem, Floats, Problem, Solution
from margrave.solvers.base import Settings, check_integer
from margrave.solvers.hull.shards import (
    HullRun,
    find_levels,
    refuse_distances,
    solve_each,
    split_rows,
)

_FIRST = 0.5  # accuracy of the first stage


class Saddle(BaseEstimator):  # type: ignore[misc]
    """Saddle-point method for hulls with the linear kernel, on engines.

    Parameters
    ----------
    size : int, optional
        Features at a time; by default all.
    rotate : bool, optional
        Whether to rotate the rows so that all features are alike (a Hadamard transform, which makes
        sparse rows dense). By default only where `size` is less than all features and some
        entries are much larger than others.
    partitions : int, optional
        Blocks of rows; by default one, or one for each worker of an engine.
    as_published : bool, default=False
        Run the published algorithm: one feature at a time, rotated, a fixed `beta`, and its own
        stopping rule.
    beta : float, default=1e-3
        Guess of the optimum of rows scaled to length one, for the published form.

    Examples
    --------
    >>> from margrave import HardMarginSVC
    >>> from margrave.solvers import Saddle
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [3.0, 2.0], [4.0, 3.0]], [0, 0, 1, 1]
    >>> model = HardMarginSVC(kernel="linear", solver=Saddle(size=1, partitions=2)).fit(X, y)
    >>> model.solver_, model.converged_
    ('saddle', True)
    """

    def __init__(
        self,
        size: int | None = None,
        rotate: bool | None = None,
        partitions: int | None = None,
        as_published: bool = False,
        beta: float = 1e-3,
    ) -> None:
        self.size = size
        self.rotate = rotate
        self.partitions = partitions
        self.as_published = as_published
        self.beta = beta

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems, one after the other."""
        check_integer("size", self.size, 1)
        check_integer("partitions", self.partitions, 1)
        if not 0.0 < self.beta < math.inf:
            raise ValueError(f"beta must be a number > 0, got {self.beta!r}")
        problems = refuse_distances("saddle", problems)
        kernel = problems[0].data.kernel
        if not problems[0].data.is_linear:
            raise ValueError(
                f"the solver 'saddle' works with kernel='linear', got {kernel.name!r}: it needs the"
                " features themselves. Map the rows first, for example by"
                " sklearn.kernel_approximation.Nystroem, or use solver='pairs'"
            )
        return solve_each(
            problems, starts, lambda problem, where: _Run(self, problem, settings, where), settings
        )


@dataclass(frozen=True)
class _Pace:
    """Step lengths of a stage; see the module."""

    m: int
    q: float
    gamma: float

    @property
    def rounds(self) -> float:
        return self.m + self.q * math.sqrt(self.m / self.gamma)

    @property
    def sigma(self) -> float:
        return math.sqrt(self.m * self.gamma) / (2.0 * self.q)

    @property
    def theta(self) -> float:
        return 1.0 - 1.0 / self.rounds

    @property
    def k2(self) -> float:
        return self.m * 2.0 * self.q / math.sqrt(self.m / self.gamma)

    @property
    def k1(self) -> float:
        return 1.0 / (self.gamma + self.k2)


class _Run(HullRun):
    """The stages and rounds of one problem."""

    def __init__(self, solver: Saddle, problem: Problem, settings: Settings, where: str) -> None:
        super().__init__("saddle", problem, settings, where)
        self.solver = solver
        self.best = math.inf  # the least U so far
        self.bound = 0.0  # the largest L so far, in units of scaled rows, and its plane
        self.plane: Floats | None = None

    def solve(self, start: Floats | None) -> Solution:
        """Run rounds on shards until the gap is certified or a budget is used up."""
        problem, solver = self.problem, self.solver
        caps = problem.C
        weight = np.empty(problem.n_rows)
        for side in (problem.y > 0, problem.y < 0):
            weight[side] = caps[side] / caps[side].sum()
        if start is not None:  # a weight of zero would stay zero
            weight = 0.99 * np.abs(start) + 0.01 * weight
        X, size = self._columns()
        engine = resolve_engine(self.settings.engine or "serial", self.settings.threads)
        parts = split_rows(problem.n_rows, solver.partitions or engine.n_workers)
        pieces = [
            {
                "X": X[:, rows],
                "y": problem.y[rows],
                "cap": caps[rows],
                "weight": weight[rows],
                "size": size,
                "seed": self.settings.seed,
            }
            for rows in parts
        ]
        with engine.scatter(SaddleBlock, pieces) as shards:
            with self.stoppable():
                self._rounds(shards, X.shape[0], size, _longest(X, size))
            weight = np.concatenate(shards.map("weights"))
        return self.solution(weight, plane=self._unrotated(self.plane))

    def _unrotated(self, plane: Floats | None) -> Floats | None:
        """A direction in terms of the features themselves."""
        d = int(self.problem.data.X.shape[1])
        if plane is None:
            return None
        if not self.is_rotated:
            return plane[:d].copy()
        turned = rotated(np.eye(d), self.settings.seed)  # a column for each feature
        return np.asarray(turned.T @ plane[: len(turned)])

    def _columns(self) -> tuple[Floats, int]:
        """Rows as columns of length at most one, rotated if need be; features at a time."""
        problem, solver = self.problem, self.solver
        X = problem.data.X[problem.data_rows]
        if sparse.issparse(X):
            if 16 * X.shape[0] * X.shape[1] > self.settings.memory:
                raise ValueError(
                    "the solver 'saddle' needs dense rows, and these do not fit into memory_limit;"
                    " use solver='pairs' or 'gilbert'"
                )
            X = X.toarray()
        self.scale = math.sqrt(float(np.max(np.einsum("ij,ij->i", X, X)))) or 1.0
        X = np.asarray(X.T, dtype=np.float64) / self.scale
        d, n = X.shape
        size = 1 if solver.as_published else min(d, solver.size or d)
        rotate = solver.rotate
        if rotate is None:
            stands_out = math.sqrt(d) * np.abs(X).max() > 2.0 * math.sqrt(2.0 * math.log(n * d + 1))
            rotate = solver.as_published or bool(size < d and stands_out)
        self.is_rotated = bool(rotate)
        if rotate:
            X = rotated(X, self.settings.seed)
        missing = -X.shape[0] % size
        return np.ascontiguousarray(np.pad(X, ((0, missing), (0, 0)))), size

    # --- the loop --------------------------------------------------------------------------

    def _rounds(self, shards: Shards, d: int, size: int, longest: float) -> None:
        m, published = d // size, self.solver.as_published
        w, c, guess = np.zeros(d), np.zeros(2), np.zeros(2)
        order = draws(self.settings.seed, m)
        features = _slice(order, m, size)
        c, now, then = self._project(shards, shards.map("probe", guess), guess)
        self.q, self.last = 0.5 * math.sqrt(m) * longest, math.inf
        self.worse, self.gap_now, self.gap_last = 0, 1.0, math.inf
        eps, checked = _FIRST, 0
        pace = None
        for self.round in itertools.count():
            # 1. certificate and stage, at intervals
            often = 1 if published else 4  # times in the rounds of a stage
            if pace is None or often * (self.round - checked) >= pace.rounds or self._is_over():
                shards.map("settle", c)
                c = np.zeros(2)
                before, U = self.last, self._certify(shards, w)
                checked = self.round
                if U is None or (published and abs(U - before) < self.settings.tol):
                    return
                while self.gap <= 1.5 * eps and eps > 0.8 * self.settings.tol:
                    eps = max(eps / 2.0, 0.8 * self.settings.tol)
                pace = self._pace(m, longest, eps, U)
            # 2. the weights of some features
            delta = (1.0 + pace.theta) * now - pace.theta * then
            old = w[features].copy()
            w[features] = (old + pace.sigma * delta) / (1.0 + pace.sigma)
            # 3. the weights of the rows, and sums for the next features
            answers = shards.map("step", w[features] - old, pace.k1, pace.k2, c, guess)
            features = _slice(order, m, size)
            c, now, then = self._project(shards, answers, guess)
            guess = c  # for the next round, where it hardly changes

    def _pace(self, m: int, longest: float, eps: float, U: float) -> _Pace:
        n1, n2 = (int((self.problem.y == sign).sum()) for sign in (1.0, -1.0))
        logs = max(math.log(n1) + math.log(n2), math.log(2.0))
        if self.solver.as_published:
            n = self.problem.n_rows
            gamma = self.settings.tol * self.solver.beta / (2.0 * math.log(n))
            return _Pace(m, math.sqrt(math.log(n)), gamma)
        # half of the bound is faster; if the gap grows twice, it was too small
        self.worse = self.worse + 1 if self.gap_now > self.gap_last else 0
        self.gap_last = self.gap_now
        if self.worse >= 2:
            self.q = math.sqrt(m) * longest
        return _Pace(m, self.q, eps * U / (2.0 * logs))

    def _is_over(self) -> bool:
        limit = self.progress.max_iter
        return self.settings.is_over or 0 <= limit <= self.round

    def _project(
        self, shards: Shards, answers: list[Floats], guess: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Find the shifts c; also the next features' A eta - B xi with new and with old weights."""
        first: list[list[Floats]] = [answers]
        last: list[Any] = []

        def probe(c: Floats) -> tuple[Floats, Floats, Floats]:
            last[:] = [_added(first.pop() if first else shards.map("probe", c))]
            return last[0][0], last[0][1], last[0][2]

        c = settle(probe, guess, is_capped=bool(self.problem.C.min() < 1.0))
        _, _, rest, old, at_caps, others = last[0]
        with np.errstate(invalid="ignore"):
            factor = np.where(rest == -np.inf, 0.0, np.exp(c + rest))
        new = at_caps + factor[:, None] * others
        return c, new[0] - new[1], old[0] - old[1]

    # --- the certificate -------------------------------------------------------------------

    def _certify(self, shards: Shards, w: Floats) -> float | None:
        """Bounds from the weights and from w; the present U of scaled rows, None at the end."""
        z = shards.reduce("point")
        U, L = 0.5 * float(z @ z), 0.0
        for direction, refresh in ((z, False), (w, True)):
            ends = shards.map("aim", direction, refresh)
            level, share = find_levels(shards, ends, np.ones(2))
            margin, square = shards.reduce("lowest", level, share), float(direction @ direction)
            if margin > 0.0 and square > 0.0:
                L = max(L, margin * margin / (2.0 * square))
                if self.bound < L:
                    self.bound, self.plane = L, direction.copy()
        self.gap_now = 1.0 - L / U if U > 0.0 else 1.0
        self.last = U
        if self.best > U:
            self.best = U
            shards.map("keep")
        unit = self.scale * self.scale
        over = self.report(shards, self.best * unit, self.bound * unit)
        return None if over or self._is_over() else U


def _longest(X: Floats, size: int) -> float:
    """Largest length of a column within a block of features."""
    squares = np.square(X).reshape(-1, size, X.shape[1]).sum(axis=1)
    return math.sqrt(float(squares.max())) or 1.0


def _slice(order: np.random.Generator, m: int, size: int) -> slice:
    first = int(order.integers(m)) * size
    return slice(first, first + size)


def _added(answers: Sequence[Floats]) -> tuple[Floats, ...]:
    """Add up the results of `probe`: mass, number, log of the rest, and three sums.

    The last sum is relative to exp(rest).
    """
    tables = np.array(answers)
    size = (tables.shape[2] - 4) // 3
    largest = tables[:, :, 2].max(axis=0)
    with np.errstate(invalid="ignore"):
        factor = np.where(tables[:, :, 2] == -np.inf, 0.0, np.exp(tables[:, :, 2] - largest))
    rest = (factor * tables[:, :, 3]).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(rest > 0.0, largest + np.log(rest), -np.inf)
        others = (factor[:, :, None] * tables[:, :, 4 + 2 * size :]).sum(axis=0)
        others = np.where(rest[:, None] > 0.0, others / rest[:, None], 0.0)
    sums = tables.sum(axis=0)
    return (
        sums[:, 0],
        sums[:, 1],
        logs,
        sums[:, 4 : 4 + size],
        sums[:, 4 + size : 4 + 2 * size],
        others,
    )
