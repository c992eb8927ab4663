"""Moments of chains of draws, and whether the chains agree.

Every chain is cut into batches. With the mean and the mean square of each,

    split R-hat  variance of all draws over that within half chains: one if the chains agree
    ESS          N var / (b var of the means of batches of b draws): the number of independent
                 draws that would estimate the mean as well
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave.models import Posterior

Floats = NDArray[np.float64]

_BATCHES = 20  # of a chain, long enough that their means hardly depend on each other


class Trace:
    """Running moments of draws of the shape (chains, outputs, weights), and of their cost.

    Parameters
    ----------
    shape : tuple of int
    n_samples : int
        Draws of each chain that are to come.
    keep_draws : bool

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> trace = Trace((4, 1, 2), 1000, False)
    >>> for _ in range(1000):
    ...     trace.add(rng.standard_normal((4, 1, 2)), rng.random(4))
    >>> found = trace.diagnostics()
    >>> bool(found["max_r_hat"] < 1.01), bool(found["min_ess"] > 2000)
    (True, True)
    """

    def __init__(self, shape: tuple[int, ...], n_samples: int, keep_draws: bool) -> None:
        self.chains, self.outputs, self.size = shape
        self.batch = max(1, n_samples // _BATCHES)
        self.count = 0
        numbers = self.outputs * self.size + 1  # the last is the cost
        # sums of every batch: of the draws, and of their squares
        self.sums = np.zeros((-(-n_samples // self.batch), 2, self.chains, numbers))
        self.origin: Floats | None = None  # the first draw, subtracted against cancellation
        self.total = np.zeros((self.outputs, self.size))
        self.products = np.zeros((self.outputs, self.size, self.size))
        self.draws: list[Floats] | None = [] if keep_draws else None

    def add(self, W: Floats, cost: Floats) -> None:
        """Record a draw of every chain."""
        numbers = np.concatenate([W.reshape(self.chains, -1), cost[:, None]], axis=1)
        if self.origin is None:
            self.origin = numbers.mean(axis=0)
        apart = numbers - self.origin
        batch = self.sums[self.count // self.batch]
        batch[0] += apart
        batch[1] += apart**2
        weights = apart[:, :-1].reshape(W.shape)
        self.total += weights.sum(axis=0)
        for output in range(self.outputs):
            self.products[output] += weights[:, output].T @ weights[:, output]
        if self.draws is not None:
            self.draws.append(W)
        self.count += 1

    def posterior(self) -> Posterior:
        """Mean and covariance of all draws."""
        assert self.origin is not None
        n = self.count * self.chains
        apart = self.total / n
        mean = apart + self.origin[:-1].reshape(apart.shape)
        outer = apart[:, :, None] * apart[:, None, :]
        covariance = (self.products / n - outer) * (n / max(1, n - 1))
        draws = None
        if self.draws is not None:
            draws = np.concatenate(np.swapaxes(np.array(self.draws), 0, 1))
        return Posterior(mean, covariance, draws)

    def diagnostics(self) -> dict[str, Any]:
        """Split R-hat and effective numbers of draws, of every weight and of the cost.

        NaN if there are too few draws.
        """
        r_hat, ess = self._mixing()
        shape = (self.outputs, self.size)
        return {
            "r_hat": r_hat[:-1].reshape(shape),
            "ess": ess[:-1].reshape(shape),
            "r_hat_objective": float(r_hat[-1]),
            "ess_objective": float(ess[-1]),
            "max_r_hat": float(r_hat.max()),
            "min_ess": float(ess.min()),
        }

    def _mixing(self) -> tuple[Floats, Floats]:
        batches = self.count // self.batch // 2 * 2  # whole ones, an even number
        numbers = self.sums.shape[-1]
        if batches < 4:
            return np.full(numbers, np.nan), np.full(numbers, np.nan)
        means, squares = np.swapaxes(self.sums[:batches], 0, 1) / self.batch
        half, n = batches // 2, batches // 2 * self.batch
        halves = means.reshape(2, half, self.chains, numbers).mean(axis=1).reshape(-1, numbers)
        power = squares.reshape(2, half, self.chains, numbers).mean(axis=1).reshape(-1, numbers)
        within = np.maximum((power - halves**2).mean(axis=0) * n / (n - 1.0), 1e-300)
        between = halves.var(axis=0, ddof=1)
        total = within * (n - 1.0) / n + between
        r_hat: Floats = np.sqrt(total / within)
        of_batches = means.reshape(-1, numbers).var(axis=0, ddof=1)
        draws = batches * self.batch * self.chains
        ess: Floats = np.minimum(draws * total / np.maximum(self.batch * of_batches, 1e-300), draws)
        return r_hat, ess
