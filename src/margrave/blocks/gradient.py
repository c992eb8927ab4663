"""Rows of a linear model with a smooth loss: gradients, and stochastic steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.blocks.passes import within
from margrave.kernels import core_rows
from margrave.losses import Loss
from margrave.rows import Matrix

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


class GradientBlock:
    """Some rows, and their contribution to gradients and steps.

        P(z) = 1/2 |z|^2 + sum_i loss_i(x_i'z)  =  mean of  p_i(z) = 1/2 |z|^2 + n loss_i(x_i'z)

    The last entry of z is the intercept: x_i ends with a one, or with a zero if there is none.
    Every method stops after `seconds`, by ``_core.Stopped``.

    Parameters
    ----------
    X : ndarray or CSR of shape (rows, d)
    y, C : float64 arrays
        Targets and penalties of these rows.
    loss : Loss
    constant : bool
        Whether x_i ends with a one.
    n_rows : int
        Rows of all blocks together.
    sampling : {"each", "draws", "single"}
        Rows that `steps` uses: each once, in a new order; as many draws with replacement; or a
        single one that has not been used before, as long as there are any.
    beta : float64 array
        Dual variables to begin with.

    Examples
    --------
    >>> block = GradientBlock(
    ...     X=np.array([[1.0], [3.0]]), y=np.array([1.0, -1.0]), C=np.ones(2),
    ...     loss=Loss("squared_hinge"), constant=True, n_rows=2, sampling="each",
    ...     beta=np.zeros(2),
    ... )
    >>> combined, figures = block.gradient(np.zeros(2), seconds=10.0)
    >>> combined.tolist(), figures.tolist()  # X'beta for beta = (2, -2); loss, conjugate, support
    ([-4.0, 0.0], [2.0, -2.0, 2.0])
    """

    def __init__(
        self,
        X: Matrix,
        y: Floats,
        C: Floats,
        loss: Loss,
        constant: bool,
        n_rows: int,
        sampling: str,
        beta: Floats,
    ) -> None:
        self.y, self.C, self.loss = y, C, loss
        self.constant, self.n_rows, self.sampling = constant, n_rows, sampling
        self.team = _core.Team(1)
        self.rows = _core.LinearRows(core_rows(X), [0], [len(y)], self.team)
        self.terms = _core.RowTerms(loss.core(), y, C, self.team)
        # the core's steps treat these rows as all rows: scale C up to stand for the others
        self.share = n_rows / len(y)
        self.shared_terms = _core.RowTerms(loss.core(), y, self.share * C, self.team)
        zero = np.zeros(len(y))
        self.beta, self.scores, self.centre_scores = beta, zero, zero
        self.kept_scores, self.kept_beta = zero, zero
        self.left: Rows | None = None  # rows that "single" sampling has not used yet

    # --- full gradients -------------------------------------------------------------------------

    def steepness(self, seconds: float) -> float:
        """Return the largest n loss_i'' |x_i|^2: the Lipschitz constant of grad p_i, less one."""
        with within(self.team, seconds):
            squares = self.rows.squares() + (1.0 if self.constant else 0.0)
        return self.n_rows * float(np.max(self.loss.steepest(self.y, self.C) * squares))

    def gradient(self, z: Floats, seconds: float) -> tuple[Floats, Floats]:
        """Return these rows' part of the gradient z - X'beta, beta_i = -loss_i'(x_i'z).

        X'beta, and the sums of losses, of conjugates h_i(beta_i), and of nonzero variables.
        """
        with within(self.team, seconds):
            self.scores = self._products(z)
            self.beta, _ = self.terms.respond(None, 0.0, self.scores + z[-1])
            return self._combined(self.beta), self._figures(z, self.beta)

    def start(self, seconds: float) -> Floats:
        """X'beta of the initial variables."""
        with within(self.team, seconds):
            return self._combined(self.beta)

    def evaluate(self, z: Floats, seconds: float) -> tuple[Floats, float]:
        """Evaluate z and the initial variables: figures as above, and the sum of gap terms."""
        with within(self.team, seconds):
            self.scores = self._products(z)
            gap = self.terms.gap(self.beta, self.scores, float(z[-1]))
            return self._figures(z, self.beta), gap

    def keep(self, scores: bool, beta: bool) -> None:
        """Keep the scores, the dual variables, or both, of the last point."""
        self.kept_scores = self.scores if scores else self.kept_scores
        self.kept_beta = self.beta if beta else self.kept_beta

    def kept(self) -> tuple[Floats, Floats]:
        """Return what is kept, initially zeros; scores are without the intercept."""
        return self.kept_scores, self.kept_beta

    # --- steps -----------------------------------------------------------------------------

    def aim(self, centre: Floats, seconds: float) -> None:
        """Prepare for steps around the centre: z0 minus the gradient there."""
        with within(self.team, seconds):
            self.centre_scores = self._products(centre) + centre[-1]

    def steps(self, u: Floats, eta: float, seed: Rows, seconds: float) -> Floats:
        """Steps z <- z - eta (grad p_i(z) - grad p_i(z0) + grad P(z0)), with z = centre + u.

        z0 is the point of the last gradient; u is the first difference, and the last is returned.
        """
        order = self._sample(np.random.default_rng(seed))
        with within(self.team, seconds):
            return _core.stochastic_steps(
                self.rows,
                self.shared_terms,
                order,
                eta,
                self.centre_scores,
                -self.share * self.beta,
                self.constant,
                u,
            )

    def _sample(self, rng: np.random.Generator) -> Rows:
        n = len(self.y)
        if self.sampling == "each":
            return rng.permutation(n)
        if self.sampling == "draws":
            return rng.integers(n, size=n)
        left = rng.permutation(n) if self.left is None else self.left
        self.left = left[1:]
        return left[:1]

    # --- products with the rows ------------------------------------------------------------

    def _products(self, z: Floats) -> Floats:
        """X z without the intercept."""
        scores = np.empty(len(self.y))
        self.rows.multiply(z[None, :-1], scores[None])
        return scores

    def _combined(self, beta: Floats) -> Floats:
        """X'beta with the intercept's entry."""
        combined = np.zeros(self.rows.n_columns + 1)
        self.rows.transposed(beta[None], combined[None, :-1])
        if self.constant:
            combined[-1] = beta.sum()
        return combined

    def _figures(self, z: Floats, beta: Floats) -> Floats:
        value = self.terms.value(self.scores, float(z[-1]))
        return np.array([value, self.terms.conjugate(beta), np.count_nonzero(beta)])
