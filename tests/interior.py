"""The oracle's solver: slow, certain, and independent of the core's method.

    min over beta   1/2 beta'K beta + sum_i h_i(beta_i)     [sum beta = 0 with a free intercept]

Piecewise quadratic losses go through a primal-dual interior point method, the logistic loss through
Newton's method on the primal, where the core takes coordinate and pair steps. Neither has to
be trusted: `certify` recomputes both objectives from beta alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

INTERCEPTS = (None, "regularized", "free")


@dataclass
class Result:
    beta: np.ndarray
    b: float
    primal: float
    dual: float
    gap: float  # relative: (P + D) / max(|P|, |D|)
    scores: np.ndarray  # K beta, without the intercept

    @property
    def decisions(self):
        return self.scores + self.b


def best_intercept(loss, y, C, f):
    """b that minimises sum C loss(f + b): bisection on the slope, a nondecreasing function."""
    reach = 1e3 + 4 * (np.abs(f).max() + np.abs(y).max() + loss.epsilon)
    low, high = -reach, reach
    for _ in range(200):
        b = (low + high) / 2
        low, high = (b, high) if loss.slope(y, C, f + b).sum() < 0 else (low, b)
    return (low + high) / 2


def certify(K, y, C, loss, intercept, beta):
    """Both objectives at beta, from their definitions; b is the best one for these scores."""
    f = K @ beta
    if intercept == "free":
        b = best_intercept(loss, y, C, f)
    else:
        b = beta.sum() if intercept == "regularized" else 0.0
    norm = beta @ f + (b**2 if intercept == "regularized" else 0.0)
    primal = norm / 2 + loss.value(y, C, f + b).sum()
    dual = norm / 2 + loss.h(y, C, beta).sum()
    gap = (primal + dual) / max(abs(primal), abs(dual), 1e-300)
    return Result(beta, b, primal, dual, gap, f)


def solve(K, y, C, loss, intercept=None, gap=1e-14):
    """Optimum of one problem; stops at the relative gap or when rounding ends all progress."""
    y = np.asarray(y, float)
    C = np.broadcast_to(np.asarray(C, float), y.shape)
    points = _newton if loss.parts is None else _interior_points
    sums = np.ones((len(y), int(intercept == "free")))
    best, stale = None, 0
    for beta in points(K + 1.0 if intercept == "regularized" else K, y, C, loss, sums):
        beta = np.clip(beta, *loss.box(y, C))
        if intercept == "free":
            beta = _balanced(beta)
        found = certify(K, y, C, loss, intercept, beta)
        if best is None or found.gap < best.gap:
            best, stale = found, 0
        else:
            stale += 1
        if best.gap <= gap or stale > 8:
            break
    return best


def solve_with_block_sums(K, y, C, loss, block):
    """Smallest D(beta) when beta sums to zero in every block by itself: *not* the optimum of P."""
    C = np.broadcast_to(np.asarray(C, float), y.shape)
    sums = (block[:, None] == np.unique(block)).astype(float)
    betas = list(_interior_points(K, y, C, loss, sums, rounds=40))
    betas = [np.clip(beta, *loss.box(y, C)) for beta in betas]
    for members in sums.T.astype(bool):
        betas = [np.where(members, _balanced(beta * members), beta) for beta in betas]
    return min((certify(K, y, C, loss, "free", beta) for beta in betas), key=lambda r: r.dual)


def _balanced(beta):
    """Scale the heavier side down so that sum beta = 0; always stays inside the box."""
    plus, minus = beta[beta > 0].sum(), -beta[beta < 0].sum()
    if min(plus, minus) <= 0:
        return 0.0 * beta
    scale = np.where(beta > 0, min(1.0, minus / plus), min(1.0, plus / minus))
    return beta * scale


def _interior_points(K, y, C, loss, sums, rounds=120):
    """Iterates beta of the interior point method, until rounding leaves nothing to gain."""
    point = _InteriorPoint(K, y, C, loss, sums)
    for _ in range(rounds):
        yield point.beta
        try:
            point.advance()
        except (np.linalg.LinAlgError, ValueError):
            return


class _InteriorPoint:
    """Mehrotra's predictor-corrector on the parts x of beta = sum_j sign_j x_j.

        sign (K beta + S b) + quadratic x + cost - z + w = 0,   S'beta = 0,
        x z = mu,   s w = mu,   s = upper - x

    S (`sums`) has one column per equality. Eliminating all but beta and b leaves
    (K + D^-1) dbeta + S db = D^-1 r, S'dbeta = -S'beta, with a positive diagonal D.
    """

    def __init__(self, K, y, C, loss, sums):
        self.K, self.sums = K, sums
        parts = (np.array(part) for part in zip(*loss.parts(y, C), strict=True))
        self.sign, upper, self.quadratic, self.cost = parts
        self.bounded = np.isfinite(upper)
        self.x = np.where(self.bounded, upper / 2, 1.0)
        # s and beta follow from x but are kept apart: they stay exact where x is at its bound
        # and where two parts nearly cancel
        self.s = np.where(self.bounded, upper / 2, 1.0)
        self.beta = (self.sign * self.x).sum(axis=0)
        self.z, self.w = np.ones_like(self.x), self.bounded.astype(float)
        self.b = np.zeros(sums.shape[1])

    def advance(self):
        """One step: predict, choose the centring, correct."""
        x, s, z, w, bounded = self.x, self.s, self.z, self.w, self.bounded
        self._factorize()
        count = x.size + bounded.sum()
        mu = ((x * z).sum() + (s * w).sum()) / count
        dx, dz, dw, *_ = self._direction(0.0, 0.0)
        primal, dual = self._reach(dx, dz, dw)
        ahead = ((x + primal * dx) * (z + dual * dz)).sum()
        ahead += ((s - primal * dx) * (w + dual * dw) * bounded).sum()
        target = mu * (ahead / count / mu) ** 3
        dx, dz, dw, dbeta, db = self._direction(target - dx * dz, target + dx * dw)
        t = min(1.0, 0.995 * min(self._reach(dx, dz, dw)))
        self.x, self.z, self.w = x + t * dx, z + t * dz, w + t * dw
        self.s = np.where(bounded, s - t * dx, 1.0)
        self.beta, self.b = self.beta + t * dbeta, self.b + t * db

    def _factorize(self):
        self.theta = self.quadratic + self.z / self.x + self.w / self.s
        self.softest = np.arange(len(self.theta))[:, None] == self.theta.argmin(axis=0)
        D = (1.0 / self.theta).sum(axis=0)
        self.root = np.sqrt(D)
        self.factor = cho_factor(np.eye(len(D)) + self.root[:, None] * self.K * self.root)
        self.ones = np.array([self._solved(D * column) for column in self.sums.T])
        self.ones = self.ones.reshape(-1, len(D)).T

    def _solved(self, r):
        """(K + D^-1)^-1 D^-1 r = D^1/2 (I + D^1/2 K D^1/2)^-1 D^-1/2 r."""
        return self.root * cho_solve(self.factor, r / self.root)

    def _direction(self, centre_x, centre_s):
        x, s, z, w, sign, sums = self.x, self.s, self.z, self.w, self.sign, self.sums
        stationary = sign * (self.K @ self.beta + sums @ self.b) + self.quadratic * x + self.cost
        rhs = -stationary + centre_x / x - self.bounded * centre_s / s
        dbeta = self._solved((sign * rhs / self.theta).sum(axis=0))
        db = np.linalg.solve(sums.T @ self.ones, sums.T @ (dbeta + self.beta))
        dbeta = dbeta - self.ones @ db
        dx = (rhs - sign * (self.K @ dbeta + sums @ db)) / self.theta
        # a part with a tiny theta would lose its digits in that quotient: it takes the rest
        rest = dbeta - (sign * dx * ~self.softest).sum(axis=0)
        dx = np.where(self.softest, sign * rest, dx)
        dz = centre_x / x - z - z / x * dx
        dw = self.bounded * (centre_s / s - w + w / s * dx)
        return dx, dz, dw, dbeta, db

    def _reach(self, dx, dz, dw):
        """Longest primal and dual steps that keep every x, s, z, w positive."""

        def reach(value, change):
            shrinking = change < 0
            with np.errstate(over="ignore"):
                return np.min(-value[shrinking] / change[shrinking], initial=1.0)

        inside = self.bounded
        primal = min(reach(self.x, dx), reach(self.s[inside], -dx[inside]))
        return primal, min(reach(self.z, dz), reach(self.w[inside], dw[inside]))


def _newton(K, y, C, loss, sums, rounds=100):
    """Newton on P(theta, b) = 1/2 theta'K theta + sum C loss(K theta + b); yields beta.

    With W = diag(C loss''):  (I + W K) dtheta + W 1 db = -(theta + C loss').
    """
    n = len(y)
    free = sums.shape[1] == 1
    theta, b = np.zeros(n), 0.0

    def objective(theta, b):
        f = K @ theta
        return theta @ f / 2 + loss.value(y, C, f + b).sum()

    for _ in range(rounds):
        f = K @ theta + b
        slope, W = loss.slope(y, C, f), np.maximum(loss.curvature(y, C, f), 1e-300)
        # theta and -slope agree at the optimum; theta has more digits where W is large
        share = y * theta / C
        yield np.where((share > 1e-6) & (share < 1 - 1e-6), theta, -slope)
        root = np.sqrt(W)
        factor = cho_factor(np.eye(n) + root[:, None] * K * root)
        dtheta, db = root * cho_solve(factor, -(theta + slope) / root), 0.0
        if free:
            ones = root * cho_solve(factor, root)
            db = (dtheta.sum() + theta.sum()) / ones.sum()
            dtheta = dtheta - db * ones
        t, here = 1.0, objective(theta, b)
        decrease = -dtheta @ (K @ (theta + slope)) - db * slope.sum()
        if decrease > 1e-8 * here:  # below that rounding decides, and the full step is right
            while objective(theta + t * dtheta, b + t * db) > here:
                t /= 2
        theta, b = theta + t * dtheta, b + t * db
