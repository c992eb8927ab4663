"""Shards of two convex hulls for the saddle-point method: multiplicative steps of the weights."""

from __future__ import annotations

import numpy as np

from margrave.blocks.corners import Lists, Pairs
from margrave.blocks.hull import Floats

_LEAST = -1e4  # of the logarithm of a weight


def draws(seed: int, count: int) -> np.random.Generator:
    """The generator that draws features: the same for the caller and for every block."""
    return np.random.default_rng([seed, count])


class SaddleBlock:
    """Some rows of both classes, feature by feature, and their weights x as logarithms.

    A round changes the weights w of some features by dw. With u_i = w'x_i, the round and the sums
    for the next one are

        l_i = k1 (k2 log x_i - y_i (u_i + m dw'x_i)),    x_i <- min(cap_i, exp(l_i + c))
        sum_i X_ji x_i  before and after,  for the next features j

    where c, one for each class, makes the weights of all blocks sum to one: it is found by the
    caller from `step` (which tries a guess) and `probe`, and passed to the next call.

    Parameters
    ----------
    X : float64 array of shape (d, rows)
    y, cap, weight : float64 arrays
    size : int
        Features at a time.
    seed : int

    Examples
    --------
    >>> block = SaddleBlock(
    ...     X=np.array([[1.0, 3.0, -1.0]]), y=np.array([1.0, 1.0, -1.0]), cap=np.full(3, 2.0),
    ...     weight=np.array([0.5, 0.5, 1.0]), size=1, seed=0,
    ... )
    >>> block.point().tolist()  # (1 + 3) / 2 - (-1)
    [3.0]
    """

    def __init__(
        self, X: Floats, y: Floats, cap: Floats, weight: Floats, size: int, seed: int
    ) -> None:
        self.sides = [np.flatnonzero(y > 0), np.flatnonzero(y < 0)]
        self.signs = (1.0, -1.0)
        self.X = [np.ascontiguousarray(X[:, side]) for side in self.sides]
        self.cap = [cap[side] for side in self.sides]
        self.log_cap = [np.log(c) for c in self.cap]
        self.is_capped = bool(cap.min() < 1.0)
        self.x = [weight[side] for side in self.sides]
        with np.errstate(divide="ignore"):
            self.logs = [np.maximum(np.log(x), _LEAST) for x in self.x]
        self.raw = list(self.logs)
        self.kept = [x.copy() for x in self.x]
        self.u = [np.zeros(len(x)) for x in self.x]
        self.size, self.count = size, X.shape[0] // size
        self.random = draws(seed, self.count)
        self.features = self._next()

    def _next(self) -> slice:
        first = int(self.random.integers(self.count)) * self.size
        return slice(first, first + self.size)

    # --- rounds -----------------------------------------------------------------------------

    def step(self, dw: Floats, k1: float, k2: float, c: Floats, guess: Floats) -> Floats:
        """Finish the last round with c, change w, begin the next, and `probe` a guess of c."""
        self.settle(c)
        now, self.features = self.features, self._next()
        for k, sign in enumerate(self.signs):
            dv = dw @ self.X[k][now]
            self.raw[k] = k1 * (k2 * self.logs[k] - sign * (self.u[k] + self.count * dv))
            self.u[k] += dv
        return self.probe(guess)

    def probe(self, c: Floats) -> Floats:
        """Return for each class what `settle` of `blocks.hull` needs, and the next features' sums.

        One row per class: the mass and the number of the rows at their caps, the largest l_i of the
        others and the sum of their exp(l_i - largest); then sum_i X_ji x_i now, at the caps, and
        with exp(l_i - largest) for the others.
        """
        table = np.zeros((2, 4 + 3 * self.size))
        for k in range(2):
            X, raw = self.X[k][self.features], self.raw[k]
            table[k, 4 : 4 + self.size] = X @ self.x[k]
            table[k, 2] = -np.inf
            if not len(raw):
                continue
            full = raw + c[k] >= self.log_cap[k] if self.is_capped else None
            if full is not None and full.any():
                caps = np.where(full, self.cap[k], 0.0)
                table[k, 0], table[k, 1] = caps.sum(), full.sum()
                table[k, 4 + self.size : 4 + 2 * self.size] = X @ caps
                raw = np.where(full, -np.inf, raw)
            largest = raw.max()
            if largest > -np.inf:
                shares = np.exp(raw - largest)
                table[k, 2], table[k, 3] = largest, shares.sum()
                table[k, 4 + 2 * self.size :] = X @ shares
        return table

    def settle(self, c: Floats) -> None:
        """Set the weights of the round, given c."""
        for k in range(2):
            logs = np.minimum(self.raw[k] + c[k], self.log_cap[k])
            self.logs[k] = np.maximum(logs, _LEAST)
            self.x[k] = np.exp(self.logs[k])
            self.raw[k] = self.logs[k]

    # --- certificates -----------------------------------------------------------------------

    def point(self) -> Floats:
        """Return this block's part of z."""
        parts = [sign * (X @ x) for sign, X, x in zip(self.signs, self.X, self.x, strict=True)]
        return np.asarray(parts[0] + parts[1])

    def aim(self, w: Floats, refresh: bool) -> Floats:
        """The ends of both classes' lists along w; with `refresh`, also set u = w'x."""
        scores = [w @ X for X in self.X]
        if refresh:
            self.u = scores
        self.s = [sign * s for sign, s in zip(self.signs, scores, strict=True)]
        self.lists = Lists(list(zip(self.s, self.cap, strict=True)))
        return self.lists.ends()

    def below(self, grid: Floats) -> Floats:
        """See `Lists`."""
        return self.lists.below(grid)

    def between(self, low: Floats, high: Floats) -> Pairs:
        """See `Lists`."""
        return self.lists.between(low, high)

    def lowest(self, level: Floats, share: Floats) -> float:
        """This block's part of the least sum of scores, with weights up to the levels."""
        total = 0.0
        for s, cap, p, part in zip(self.s, self.cap, level, share, strict=True):
            total += float(s[s < p] @ cap[s < p]) + part * float(s[s == p] @ cap[s == p])
        return total

    def keep(self) -> None:
        """Keep the weights as the best so far."""
        self.kept = [x.copy() for x in self.x]

    def weights(self) -> Floats:
        """Return the kept weights, in the order of the rows."""
        found = np.empty(sum(map(len, self.sides)))
        for side, x in zip(self.sides, self.kept, strict=True):
            found[side] = x
        return found


def rotated(X: Floats, seed: int) -> Floats:
    """Columns H D x / sqrt(d), d a power of two: an orthogonal map that evens out the entries.

    H is the Walsh-Hadamard matrix, D a diagonal of random signs.

    Examples
    --------
    >>> rotated(np.array([[1.0], [0.0]]), 0).round(3).tolist() in ([[0.707]] * 2, [[-0.707]] * 2)
    True
    """
    d = 1 << max(0, int(X.shape[0] - 1).bit_length())
    Y = np.zeros((d, X.shape[1]))
    Y[: X.shape[0]] = X
    Y *= np.random.default_rng([seed, d]).choice([-1.0, 1.0], d)[:, None]
    half = 1
    while half < d:
        pairs = Y.reshape(d // (2 * half), 2, half, -1)
        sums, differences = pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]
        Y = np.stack([sums, differences], axis=1).reshape(d, -1)
        half *= 2
    return np.asarray(Y / np.sqrt(d))
