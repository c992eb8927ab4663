"""Data augmentation for linear models: sums over the rows for EM and Gibbs sampling.

With scores f_i = x_i'z the loss of a row is a sum of one or two linear pieces ("sides"):

    2 s_i max(0, a_i),  a_i = b_i (r_i - f_i)      hinge: b = r = y
                                                   tube:  (1, y - epsilon) and (-1, y + epsilon)

A parabola touches each side from above, and a latent scale makes it a normal density:

    2 max(0, a) = a + |a|  <=  a + a^2 / (2 c) + c / 2                    equal at c = |a|
    exp(-2 max(0, a))  =  integral of N(-a; c, c) over c,    1/c ~ inverse Gaussian (1/|a|, 1)

Either way only two sums over the rows enter a least-squares problem: X'DX and X'u.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.blocks.passes import Passes, within
from margrave.kernels import Kernel
from margrave.losses import Loss
from margrave.problem import Data
from margrave.rows import AnyRows

Floats = NDArray[np.float64]
Side = tuple[Any, Floats]  # b and r

STREAM = 4096  # rows that share a stream of random numbers
_SINGLE_WEIGHT = 1e7  # sum of D up to which single-precision products are accurate enough
_LEAST_SCALE = 1e-10  # of a draw: without it the precision of a row at its kink would be infinite


# --- sides and scales ----------------------------------------------------------------------------


def sides_of(loss: Loss, y: Floats) -> list[Side]:
    """The linear pieces of the loss of each row: b and r."""
    if loss.name == "hinge":
        return [(y, y)]
    return [(1.0, y - loss.epsilon), (-1.0, y + loss.epsilon)]


class Parabolas:
    """Parabolas above the losses of some rows, touching at their scores f.

    ``u`` and ``D`` are their negative slopes and their curvatures at f, ``beta`` a dual point,
    ``scales`` the c of each side.

    Parameters
    ----------
    sides : list of (b, r)
    weight : float64 array
        s.
    f : float64 array
    width : float
        The least c.
    narrow : bool
        Whether every c is the width, and losses are linear farther from their kink.
    before : list of float64 arrays, optional
        The c of the previous parabolas, whose minimum is at f: they give a better dual point.

    Examples
    --------
    >>> one = Parabolas([(np.ones(2), np.ones(2))], np.ones(2), np.array([0.0, 3.0]), 1e-8, False)
    >>> one.u.tolist(), one.D.tolist(), one.loss
    ([2.0, 0.0], [1.0, 0.5], 2.0)
    """

    def __init__(
        self,
        sides: Sequence[Side],
        weight: Floats,
        f: Floats,
        width: float,
        narrow: bool,
        before: Sequence[Floats] | None = None,
    ) -> None:
        self.u, self.D, self.loss = np.zeros(len(f)), np.zeros(len(f)), 0.0
        self.scales: list[Floats] = []
        beta = np.zeros(len(f))
        for number, (b, r) in enumerate(sides):
            a = b * (r - f)
            size = np.abs(a)
            self.loss += float((weight * (a + size)).sum())
            if narrow:
                self.D += np.where(size < width, weight / width, 0.0)
                self.u += b * weight * (1.0 + np.clip(a / width, -1.0, 1.0))
                continue
            c = np.maximum(size, width)
            self.scales.append(c)
            self.D += weight / c
            self.u += b * weight * (1.0 + a / c)
            old = c if before is None else before[number]
            beta += b * weight * np.clip(1.0 + a / old, 0.0, 2.0)
        self.beta = self.u if narrow else beta


def rates_along(
    sides: Sequence[Side], weight: Floats, f: Floats, along: Floats, steps: Floats, width: float
) -> Floats:
    """Derivatives of the losses at f + t along, for each t, with kinks smoothed to the width.

    Examples
    --------
    >>> one = np.ones(1)
    >>> rates_along([(one, one)], one, np.zeros(1), one, np.array([0.0, 0.75, 2.0]), 0.5).tolist()
    [-2.0, -1.5, 0.0]
    """
    found = np.zeros(len(steps))
    for b, r in sides:
        a, fall = b * (r - f), b * along
        slope = weight * fall
        for number, t in enumerate(steps):
            at = a - t * fall
            side = np.sign(at) if width == 0.0 else np.clip(at / width, -1.0, 1.0)
            found[number] -= float((slope * (1.0 + side)).sum())
    return found


def draw_scales(a: Floats, rng: np.random.Generator) -> Floats:
    """Scales c with 1/c ~ inverse Gaussian (1/|a|, 1); no division by a, which may be zero.

    With z normal and v = z^2, c is a root of c + a^2 / c = 2 |a| + v: the larger, g, or a^2 / g.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> draws = draw_scales(np.full(100_000, 2.0), rng)
    >>> [round(float(one.mean()), 1) for one in (draws, 1 / draws)]  # 1 + |a| and 1/|a|
    [3.0, 0.5]
    """
    size = np.abs(a)
    half = 0.5 * rng.standard_normal(len(a)) ** 2
    larger = size + half + np.sqrt(half * (2.0 * size + half))
    with np.errstate(invalid="ignore"):
        smaller = np.where(larger > 0.0, size * (size / larger), 0.0)
    first = rng.random(len(a)) * (larger + size) <= larger
    return np.maximum(np.where(first, larger, smaller), _LEAST_SCALE)


def stream_of(seed: int, chain: int, iteration: int, number: int) -> np.random.Generator:
    """Random numbers of STREAM rows in one iteration of a chain, the same on every worker."""
    counter = np.array([0, 0, number, iteration], dtype=np.uint64)
    key = np.array([seed, chain], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def drawn_sums(
    sides: Sequence[Side], weight: Floats, f: Floats, first: int, key: tuple[int, int, int]
) -> tuple[Floats, Floats, float]:
    """Precisions D and right-hand sides u of rows with drawn scales; the losses at scores f.

    `first` is the number of the first row, `key` the seed, the chain and the iteration. A row
    of weight s draws c from s |a|, and has D = s^2 / c and u = s b + s^2 r / c.
    """
    u, D, loss = np.zeros(len(f)), np.zeros(len(f)), 0.0
    last = first + len(f)
    for number in range(first // STREAM, -(-last // STREAM)):
        begin = number * STREAM
        low, high = max(begin, first), min(begin + STREAM, last)
        at = slice(low - first, high - first)
        rng = stream_of(*key, number)
        for b, r in sides:
            s, target = weight[at], r[at]
            sign = b[at] if isinstance(b, np.ndarray) else b
            a = np.zeros(STREAM)  # all of the stream's rows, so that every split draws the same
            a[low - begin : high - begin] = s * sign * (target - f[at])
            c = draw_scales(a, rng)[low - begin : high - begin]
            precision = s * s / c
            D[at] += precision
            u[at] += s * sign + precision * target
            loss += 2.0 * float(np.maximum(a, 0.0).sum())
    return D, u, loss


# --- the block -----------------------------------------------------------------------------------


class AugmentedBlock:
    """Some rows, and their contribution to the sums.

    The last entry of z is the intercept, if there is one: then x_i ends with a one. Every method
    stops after `seconds`, by ``_core.Stopped``.

    Parameters
    ----------
    X : ndarray, CSR or RowBlocks of shape (rows, d)
    y, weight : float64 arrays
        Targets of these rows, and s.
    loss : Loss
        "hinge" or "epsilon_insensitive".
    constant : bool
        Whether x_i ends with a one.
    first : int
        Number of the first of these contiguous rows among all rows.
    threads : int

    Examples
    --------
    >>> block = AugmentedBlock(
    ...     X=np.array([[1.0], [3.0]]), y=np.array([1.0, -1.0]), weight=np.ones(2),
    ...     loss=Loss("hinge"), constant=False, first=0, threads=1,
    ... )
    >>> triangle, combined, numbers = block.sums(np.zeros(1), 2.0, True, False, False, 10.0)
    >>> triangle.tolist(), combined.tolist()  # X'DX for D = (1/2, 1/2), X'u for u = (3/2, -3/2)
    ([5.0], [[-3.0]])
    """

    def __init__(
        self,
        X: AnyRows,
        y: Floats,
        weight: Floats,
        loss: Loss,
        constant: bool,
        first: int,
        threads: int,
    ) -> None:
        self.y, self.weight, self.loss = y, weight, loss
        self.constant, self.first = constant, first
        self.team = _core.Team(threads)
        data = Data(X, Kernel("linear"), np.array([0, len(y)]))
        self.passes = Passes(data, [0], self.team, lambda: 1e18)
        self.sides = sides_of(loss, y)
        nothing = np.zeros(len(y))
        self.scores, self.beta, self.along = nothing, nothing, nothing
        self.kept_scores, self.kept_beta = nothing, nothing
        self.scales: list[Floats] | None = None  # c of the last sums

    # --- expectation and maximization ------------------------------------------------------

    def sums(
        self, z: Floats, width: float, narrow: bool, balance: bool, single: bool, seconds: float
    ) -> tuple[Floats, Floats, Floats]:
        """Sums of the parabolas that touch at z.

        Returns the upper triangle of X'DX; X'u, X'beta of a dual point (of its positive and its
        negative part, to `balance` them; left out where beta = u); and numbers: the losses, the
        conjugate of beta (of both parts), its nonzero variables, and s of the rows near their kink.
        """
        before, self.scales = self.scales, None
        if not narrow:
            self.scales = [np.empty(len(self.y)) for _ in self.sides]
        numbers, conjugate = np.zeros(5), self.loss.core().conjugate
        self.scores, self.beta = np.empty(len(self.y)), np.empty(len(self.y))

        def answer(f: Floats, at: slice) -> tuple[Floats, Floats]:
            sides = _sliced(self.sides, at)
            old = None if before is None else [c[at] for c in before]
            rows = Parabolas(sides, self.weight[at], f, width, narrow, old)
            self.scores[at], self.beta[at] = f, rows.beta
            for own, found in zip(self.scales or [], rows.scales, strict=True):
                own[at] = found
            parts = [np.maximum(rows.beta, 0.0), np.minimum(rows.beta, 0.0)]
            parts = parts if balance else [rows.beta]
            y, C = self.y[at], 2.0 * self.weight[at]
            values = [float(conjugate(y, C, np.clip(part, -C, C)).sum()) for part in parts]
            numbers[0] += rows.loss
            numbers[1 : 1 + len(values)] += values
            numbers[3] += np.count_nonzero(rows.beta)
            numbers[4] += width * float(rows.D.sum()) if narrow else 0.0
            vectors = [rows.u] if narrow and not balance else [rows.u, *parts]
            return np.array(vectors), rows.D

        with within(self.team, seconds):
            triangle, combined = self._summed(z, answer, single)
        return triangle, combined, numbers

    def aim(self, step: Floats, seconds: float) -> None:
        """Prepare a line search along the step."""
        with within(self.team, seconds):
            self.along = self._products(step)

    def rates(self, steps: Floats, width: float) -> Floats:
        """Derivatives of the losses along the step, with kinks smoothed to the width."""
        return rates_along(self.sides, self.weight, self.scores, self.along, steps, width)

    def settle(self, z: Floats, seconds: float) -> None:
        """Set the point from which a line search starts."""
        with within(self.team, seconds):
            self.scores = self._products(z)

    def begin(self, beta: Floats, seconds: float) -> Floats:
        """X'beta of the initial dual point."""
        with within(self.team, seconds):
            return self._combined(beta)

    def evaluate(self, z: Floats, beta: Floats, seconds: float) -> Floats:
        """The losses at z, the conjugate of a dual point, and its nonzero variables."""
        with within(self.team, seconds):
            self.scores, self.beta = self._products(z), beta
        y, C = self.y, 2.0 * self.weight
        core = self.loss.core()
        values = core.value(y, C, self.scores).sum(), core.conjugate(y, C, beta).sum()
        return np.array([*values, np.count_nonzero(beta)])

    def keep(self, scores: bool, beta: bool) -> None:
        """Keep the scores, the dual point, or both, of the last sums."""
        self.kept_scores = self.scores if scores else self.kept_scores
        self.kept_beta = self.beta if beta else self.kept_beta

    def kept(self) -> tuple[Floats, Floats]:
        """Return what is kept, initially zeros; scores are with the intercept."""
        return self.kept_scores, self.kept_beta

    # --- Gibbs sampling --------------------------------------------------------------------

    def draw(
        self, Z: Floats, seed: int, iteration: int, seconds: float
    ) -> tuple[Floats, Floats, Floats]:
        """Sums of rows with drawn scales, for the point z of each chain.

        Returns the triangles of X'DX, X'u, and the losses at the points.
        """
        found = []
        for chain, z in enumerate(Z):
            losses = [0.0]

            def answer(
                f: Floats, at: slice, chain: int = chain, losses: list[float] = losses
            ) -> tuple[Floats, Floats]:
                key, first = (seed, chain, iteration), self.first + at.start
                D, u, loss = drawn_sums(_sliced(self.sides, at), self.weight[at], f, first, key)
                losses[0] += loss
                return u[None], D

            with within(self.team, seconds):
                triangle, combined = self._summed(z, answer, False)
            found.append((triangle, combined[0], losses[0]))
        triangles, rights, costs = zip(*found, strict=True)
        return np.array(triangles), np.array(rights), np.array(costs)

    # --- products with the rows ------------------------------------------------------------

    def _summed(
        self,
        z: Floats,
        answer: Callable[[Floats, slice], tuple[Floats, Floats]],
        single: bool,
    ) -> tuple[Floats, Floats]:
        """Sums over the rows, in one pass; `answer` computes each row's D and u from its score."""
        d = self.passes.n_features
        size = d + self.constant
        matrix, border, total = np.zeros((d, d)), np.zeros(d), 0.0
        combined: Any = 0.0
        for rows, at in self.passes.parts():
            f = np.empty(at.stop - at.start)
            rows.multiply(z[None, :d], f[None])
            U, D = answer(f + z[d] if self.constant else f, at)
            part = np.zeros((len(U), size))
            rows.transposed(U, part[:, :d])
            part[:, d:] = U.sum(axis=1)[:, None]
            curvature = float(D.sum())
            # the next step corrects errors of single precision, unless they exceed the ridge term 1
            rows.gram(D, matrix, border, single and curvature < _SINGLE_WEIGHT)
            combined, total = combined + part, total + curvature
        whole = np.empty((size, size))
        whole[:d, :d] = matrix
        if self.constant:
            whole[:d, d], whole[d, d] = border, total
        return whole[np.triu_indices(size)], combined

    def _products(self, z: Floats) -> Floats:
        d, f = self.passes.n_features, np.empty(len(self.y))
        for rows, at in self.passes.parts():
            rows.multiply(z[None, :d], f[None, at])
        return f + z[d] if self.constant else f

    def _combined(self, beta: Floats) -> Floats:
        d = self.passes.n_features
        found = np.zeros(d + self.constant)
        for rows, at in self.passes.parts():
            rows.transposed(beta[None, at], found[None, :d])
        found[d:] = beta.sum()
        return found


def symmetric(triangle: Floats, size: int) -> Floats:
    """The matrix of which this is the upper triangle, row by row.

    Examples
    --------
    >>> symmetric(np.array([1.0, 2.0, 3.0]), 2).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    whole = np.zeros((size, size))
    whole[np.triu_indices(size)] = triangle
    return whole + np.triu(whole, 1).T


def _sliced(sides: Sequence[Side], at: slice) -> list[Side]:
    return [(b[at] if isinstance(b, np.ndarray) else b, r[at]) for b, r in sides]
