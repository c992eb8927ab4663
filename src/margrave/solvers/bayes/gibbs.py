"""Gibbs sampling of the weights of a model with piecewise linear losses.

    p(z) ~ exp(-J(z)),     J(z) = lam/2 |z|^2 + sum_i 2 s_i max(0, a_i),    a_i = b_i (r_i - x_i'z)

A latent scale c_i per row makes the loss a normal density (`blocks/augmented.py`). In turn,

    1/c_i given z  ~ inverse Gaussian (1/|a_i|, 1)       D_i = s_i^2 / c_i,  u_i = s_i b_i + D_i r_i
    z given c      ~ normal, precision A = lam + X'DX, mean A^-1 X'u

(Polson and Scott, 2011; Perkins, Xu, Zhu and Zhang, 2015.) With fewer rows than weights the normal
draw is composed of a draw of the prior and one of the noise, z0 and e ~ N(0, 1/D), with K = X X':

    z = z0 + X'h / lam,     (K / lam + 1/D) h = u/D - X z0 - e

Several classes (Crammer and Singer) are drawn in turn: given the others, each is a hinge problem.
Draws do not approach the optimum: J stays about half the number of weights above it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg
from sklearn.base import BaseEstimator

from margrave import _core
from margrave.blocks.augmented import AugmentedBlock, drawn_sums, sides_of, stream_of, symmetric
from margrave.blocks.augmented_joint import JointAugmentedBlock
from margrave.engines import Engine, resolve_engine
from margrave.models import Posterior
from margrave.problem import (
    BaseProblem,
    Floats,
    JointProblem,
    Problem,
    Solution,
    is_joint,
    is_single,
)
from margrave.resources import in_words
from margrave.solvers.base import Settings, check_integer, solver_of_all
from margrave.solvers.bayes.mixing import Trace
from margrave.solvers.linear.joint_maximization import joint_pieces
from margrave.solvers.linear.shards import pieces_of

_TIMED, _LONG = 10, 60.0  # draws from which the time of all is expected; seconds to warn of
_DRIVER = 1 << 62  # the random stream for draws of weights, not used by any rows


@dataclass(frozen=True)
class Sampled:
    """The result of the chains: the posterior, how well they mixed, and the draws made."""

    posterior: Posterior
    diagnostics: dict[str, Any]
    n_draws: int
    n_iter: int


class Gibbs(BaseEstimator):  # type: ignore[misc]
    """Chains of draws from the posterior of weights.

    Parameters
    ----------
    n_samples : int, default=1000
        Draws of each chain that are used.
    burn_in : int, default=100
        Draws of each chain that are discarded before them.
    chains : int, default=4
    keep_draws : bool, default=False
        Keep all draws, and not only their mean and covariance.

    Examples
    --------
    >>> from margrave import BayesianSVC
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    >>> model = BayesianSVC(kernel="linear", solver=Gibbs(n_samples=200, chains=2)).fit(X, y)
    >>> model.posterior_.mean.shape, model.n_draws_
    ((1, 2), 400)
    """

    def __init__(
        self, n_samples: int = 1000, burn_in: int = 100, chains: int = 4, keep_draws: bool = False
    ) -> None:
        self.n_samples = n_samples
        self.burn_in = burn_in
        self.chains = chains
        self.keep_draws = keep_draws

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Raise: sampling does not find an optimum."""
        raise ValueError(
            "the solver 'gibbs' cannot find an optimum, it samples: use BayesianSVC or BayesianSVR,"
            f" or solver={solver_of_all(problems[0])!r}, which works with every loss"
        )

    def check(self) -> None:
        """Raise for invalid parameters."""
        check_integer("n_samples", self.n_samples, 1)
        check_integer("burn_in", self.burn_in, 0)
        check_integer("chains", self.chains, 1)

    def sample(self, problem: BaseProblem, lam: float, settings: Settings) -> Sampled:
        """Sample the weights of a linear problem whose C_i are 2 s_i."""
        self.check()
        engine = resolve_engine(settings.engine, settings.threads)
        # after a loss again from the start, with bitwise the same result
        return settings.recovery.steadily(lambda: self._sample(problem, lam, settings, engine))

    def _sample(
        self, problem: BaseProblem, lam: float, settings: Settings, engine: Engine
    ) -> Sampled:
        _check_memory(problem, self.chains, settings)
        sampler = _sampler(problem, lam, self.chains, settings, engine)
        trace = Trace(sampler.W.shape, self.n_samples, self.keep_draws)
        iteration, last, begin = 0, self.burn_in + self.n_samples, time.perf_counter()
        try:
            for iteration in range(1, last + 1):
                # the cost is that of the previous draw
                cost = sampler.draw(iteration)
                if iteration == min(_TIMED, last):
                    expected = (time.perf_counter() - begin) * last / iteration
                    _warn_of(expected, last, self.chains, sampler.W.shape[-1], settings)
                if iteration > self.burn_in:
                    trace.add(sampler.differences, cost)
                stop = settings.progress.report(
                    objective=float(np.mean(cost)), dual=np.nan, gap=np.nan, support=0
                )
                if stop:
                    break
        except (_core.Stopped, KeyboardInterrupt) as stopped:
            if isinstance(stopped, KeyboardInterrupt):
                settings.progress.interrupt()
        finally:
            sampler.close()
        if trace.count == 0:  # stopped before the first draw after burn-in
            trace.add(sampler.differences, np.zeros(self.chains))
        return Sampled(trace.posterior(), trace.diagnostics(), trace.count * self.chains, iteration)


# --- draws ---------------------------------------------------------------------------------------


class _OneOutput:
    """Samplers whose draws are recorded unchanged."""

    W: Floats

    @property
    def differences(self) -> Floats:
        """Draws of the shape (chains, 1, weights)."""
        return self.W


class _WeightSampler(_OneOutput):
    """Draws of weights, with the rows in shards."""

    def __init__(
        self, problem: Problem, lam: float, chains: int, settings: Settings, engine: Engine
    ) -> None:
        self.settings, self.lam = settings, lam
        _, pieces = pieces_of(problem, settings, engine)
        self.shards = engine.scatter(AugmentedBlock, pieces)
        self.size = int(problem.data.X.shape[1]) + (problem.intercept is not None)
        self.penalty = _penalty(self.size, problem.intercept, lam)
        self.W = _dispersed(settings.seed, chains, 1, self.size, lam)

    def draw(self, iteration: int) -> Floats:
        """Draw the weights of every chain; return J of the last ones."""
        Z, seed = self.W[:, 0], self.settings.seed
        triangles, rights, losses = self.shards.reduce("draw", Z, seed, iteration, self._left())
        cost: Floats = losses + 0.5 * (Z**2 @ self.penalty)
        W = np.empty_like(self.W)
        for chain, (triangle, right) in enumerate(zip(triangles, rights, strict=True)):
            A = symmetric(triangle, self.size)
            A[np.diag_indices(self.size)] += self.penalty
            W[chain, 0] = normal_draw(A, right, _driver(seed, chain, iteration))
        self.W = W  # all chains at once: Ctrl-C leaves whole draws
        return cost

    def close(self) -> None:
        """Release the shards."""
        self.shards.close()

    def _left(self) -> float:
        return self.settings.seconds_left()


class _RowSampler(_OneOutput):
    """Draws of more weights than there are rows, by systems of the size of the rows."""

    def __init__(
        self, problem: Problem, lam: float, chains: int, settings: Settings, engine: Engine
    ) -> None:
        self.problem, self.settings, self.lam = problem, settings, lam
        X = problem.data.X
        X = (X.toarray() if hasattr(X, "toarray") else X)[problem.data_rows].astype(np.float64)
        if problem.intercept is not None:
            X = np.hstack([X, np.ones((len(X), 1))])
        self.X, self.K = X, X @ X.T / lam
        self.sides, self.weight = sides_of(problem.loss, problem.y), 0.5 * problem.C
        self.W = _dispersed(settings.seed, chains, 1, X.shape[1], lam)

    def draw(self, iteration: int) -> Floats:
        """Draw the weights of every chain; return J of the last ones."""
        seed = self.settings.seed
        costs, W = [], np.empty_like(self.W)
        for chain, (z,) in enumerate(self.W):
            if self.settings.progress.remaining() <= 0.0:
                raise _core.Stopped
            f = self.X @ z
            D, u, losses = drawn_sums(self.sides, self.weight, f, 0, (seed, chain, iteration))
            costs.append(losses + 0.5 * self.lam * float(z @ z))
            rng = _driver(seed, chain, iteration)
            prior = rng.standard_normal(len(z)) / np.sqrt(self.lam)
            noise = rng.standard_normal(len(f)) / np.sqrt(D)
            system = self.K.copy()
            system[np.diag_indices(len(f))] += 1.0 / D
            h = linalg.solve(system, u / D - self.X @ prior - noise, assume_a="pos")
            W[chain, 0] = prior + self.X.T @ h / self.lam
        self.W = W
        return np.array(costs)

    def close(self) -> None:
        """Release the matrix."""
        self.K = np.empty((0, 0))


class _JointSampler:
    """Draws of the weights of several classes in turn, with the rows in shards.

    What is recorded is their differences from the mean over the classes, which predict the same.
    """

    def __init__(
        self, problem: JointProblem, lam: float, chains: int, settings: Settings, engine: Engine
    ) -> None:
        self.settings, self.lam, self.k = settings, lam, problem.n_classes
        _, pieces = joint_pieces(problem, settings, engine)
        self.shards = engine.scatter(JointAugmentedBlock, pieces)
        size = int(problem.data.X.shape[1]) + (problem.intercept is not None)
        self.penalty = _penalty(size, problem.intercept, lam)
        self.W = _dispersed(settings.seed, chains, self.k, size, lam)
        self.differences = self.W - self.W.mean(axis=1, keepdims=True)

    def draw(self, iteration: int) -> Floats:
        """Draw the weights of every class and chain; return J of the last ones."""
        seed, W = self.settings.seed, self.W.copy()
        costs: Any = None
        for c in range(self.k):
            matrices, rights, losses = self.shards.reduce(
                "class_draw", W, c, seed, iteration, self._left()
            )
            if costs is None:
                costs = losses + 0.5 * (W**2 @ self.penalty).sum(axis=1)
            for chain, (matrix, right) in enumerate(zip(matrices, rights, strict=True)):
                rng = _driver(seed, chain, iteration * (self.k + 1) + c)
                W[chain, c] = normal_draw(matrix + np.diag(self.penalty), right, rng)
        # losses only depend on differences between classes: the common part is drawn from its prior
        share = np.zeros((len(W), 1, W.shape[2]))
        known = self.penalty > 0.0
        for chain, own in enumerate(share):
            rng = _driver(seed, chain, iteration * (self.k + 1) + self.k)
            own[0, known] = rng.standard_normal(known.sum()) / np.sqrt(self.k * self.lam)
        self.differences = W - W.mean(axis=1, keepdims=True)
        self.W = self.differences + share
        found: Floats = costs
        return found

    def close(self) -> None:
        """Release the shards."""
        self.shards.close()

    def _left(self) -> float:
        return self.settings.seconds_left()


def _warn_of(seconds: float, draws: int, chains: int, width: int, settings: Settings) -> None:
    """Warn of sampling that will take long, unless there is a time limit."""
    if seconds > _LONG and settings.progress.time_limit is None:
        warnings.warn(
            f"sampling will take about {seconds / 60.0:.0f} minutes for {draws} draws of {chains}"
            f" chains with {width} weights; fewer features, n_samples or chains are faster, and"
            " time_limit or Ctrl-C ends it with the draws so far",
            stacklevel=2,
        )


def _check_memory(problem: BaseProblem, chains: int, settings: Settings) -> None:
    """Raise if the systems of the chains and the covariance do not fit into the memory."""
    d = int(problem.data.X.shape[1]) + 1
    needed = 8 * d * d * (problem.n_outputs + chains + 2)
    if needed > settings.memory:
        raise ValueError(
            f"the covariance of {d} weights and the systems of {chains} chains take"
            f" {in_words(needed)}, above the memory_limit of {in_words(settings.memory)}; use fewer"
            " features"
        )


def _sampler(
    problem: BaseProblem, lam: float, chains: int, settings: Settings, engine: Engine
) -> _JointSampler | _RowSampler | _WeightSampler:
    if is_joint(problem):
        return _JointSampler(problem, lam, chains, settings, engine)
    assert is_single(problem)
    few = problem.data.in_memory and problem.data.n_features >= problem.n_rows
    form = _RowSampler if few and problem.intercept != "free" else _WeightSampler
    return form(problem, lam, chains, settings, engine)


def normal_draw(A: Floats, right: Floats, rng: np.random.Generator) -> Floats:
    """Draw from the normal density of precision A and mean A^-1 right.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> draws = [normal_draw(4.0 * np.eye(1), np.array([8.0]), rng)[0] for _ in range(10_000)]
    >>> round(float(np.mean(draws)), 1), round(float(np.std(draws)), 1)
    (2.0, 0.5)
    """
    ridge = 0.0
    while True:
        try:
            factor = np.linalg.cholesky(A + ridge * np.eye(len(A)))
            break
        except np.linalg.LinAlgError:
            ridge = max(10.0 * ridge, 1e-14 * float(np.trace(A)))
            if not ridge < float(np.trace(A)):
                raise
    mean = linalg.cho_solve((factor, True), right)
    noise = linalg.solve_triangular(factor, rng.standard_normal(len(A)), lower=True, trans="T")
    drawn: Floats = mean + noise
    return drawn


def _driver(seed: int, chain: int, iteration: int) -> np.random.Generator:
    return stream_of(seed, chain, iteration, _DRIVER)


def _penalty(size: int, intercept: str | None, lam: float) -> Floats:
    """Precision of the prior: a free intercept has none."""
    penalty = np.full(size, lam)
    if intercept == "free":
        penalty[-1] = 0.0
    return penalty


def _dispersed(seed: int, chains: int, outputs: int, size: int, lam: float) -> Floats:
    """Initial points of the chains: draws of the prior."""
    draws = [_driver(seed, chain, 0).standard_normal((outputs, size)) for chain in range(chains)]
    starts: Floats = np.array(draws) / np.sqrt(lam)
    return starts
