"""A naive numpy twin of the compiled core.

    P(beta, b) = 1/2 beta'K beta + sum_i C_i loss_i(f_i + b)    f = K beta
    D(beta)    = 1/2 beta'K beta + sum_i h_i(beta_i)            h_i(beta) = C_i loss_i*(-beta/C_i)

Everything here is written to be read against the formulas, never to be fast: kernels are plain
functions, losses are small classes whose closed forms stand beside a brute-force variant in the
base class, and `solve` (interior.py) returns a certificate that does not depend on how the
solution was found.
A new kernel or loss of the core gets an entry in KERNELS or LOSSES; the tests iterate them.
"""

from __future__ import annotations

import numpy as np

from tests.interior import Result, certify, solve, solve_with_block_sums

__all__ = ["KERNELS", "LOSSES", "Loss", "Result", "certify", "solve", "solve_with_block_sums"]

# --- kernels: (A, B, **parameters) -> (len(A), len(B)) ---------------------------------------


def linear(A, B):
    return A @ B.T


def rbf(A, B, gamma):
    return np.exp(-gamma * np.array([((B - a) ** 2).sum(axis=1) for a in A]))


def poly(A, B, gamma, degree, coef0):
    return (gamma * (A @ B.T) + coef0) ** degree


def sigmoid(A, B, gamma, coef0):
    return np.tanh(gamma * (A @ B.T) + coef0)


def laplacian(A, B, gamma, power=1.0):
    return np.exp(-((gamma * np.array([np.abs(B - a).sum(axis=1) for a in A])) ** power))


def _distances(A, B, gamma):
    return np.sqrt(gamma * np.array([((B - a) ** 2).sum(axis=1) for a in A]))


def exponential(A, B, gamma, power=1.0):
    return np.exp(-(_distances(A, B, gamma) ** power))


def matern32(A, B, gamma):
    t = _distances(A, B, 3 * gamma)
    return (1 + t) * np.exp(-t)


def matern52(A, B, gamma):
    t = _distances(A, B, 5 * gamma)
    return (1 + t + t**2 / 3) * np.exp(-t)


KERNELS = {
    "linear": linear,
    "rbf": rbf,
    "poly": poly,
    "sigmoid": sigmoid,
    "laplacian": laplacian,
    "exponential": exponential,
    "matern32": matern32,
    "matern52": matern52,
}


# --- losses: every method takes and returns arrays, one entry per row ------------------------


class Loss:
    """C loss(f), its conjugate h, and what coordinate descent needs of them.

    `parts` writes h as the smallest value over nonnegative parts x_j of beta = sum_j sign_j x_j,

        h(beta) = min sum_j quadratic_j x_j^2 / 2 + cost_j x_j,   0 <= x_j <= upper_j,

    the form the interior point method below needs; None where h is not piecewise quadratic.
    """

    labels = True  # targets are -1 and +1; False: real targets
    parts = None

    def __init__(self, epsilon=0.0, theta=0.0, upsilon=0.0, quantile=0.5):
        self.epsilon, self.theta, self.upsilon = epsilon, theta, upsilon
        self.quantile = quantile

    def gap(self, y, C, beta, f):
        """Fenchel-Young term, >= 0, zero exactly where beta is minus a subgradient at f."""
        return self.value(y, C, f) + self.h(y, C, beta) + beta * f

    def brute_h(self, y, C, beta, reach=None):
        """sup over f of -beta f - C loss(f), a concave function, by ternary search."""
        if reach is None:
            slow = min(1.0, self.upsilon) or 1.0  # curvature of the flattest side
            reach = 1e3 + 4 * (np.abs(y) + self.epsilon) + 4 * np.abs(beta) / (C * slow)
        low, high = -reach * np.ones_like(beta), reach * np.ones_like(beta)
        for _ in range(300):
            a, b = low + (high - low) / 3, high - (high - low) / 3
            left = -beta * a - self.value(y, C, a) < -beta * b - self.value(y, C, b)
            low, high = np.where(left, a, low), np.where(left, high, b)
        f = (low + high) / 2
        return -beta * f - self.value(y, C, f)

    def brute_step(self, y, C, beta, f, k):
        """Minimiser of k (x - beta)^2 / 2 + f (x - beta) + h(x): bisection on its derivative."""
        low, high = self.box(y, C)
        low, high = np.maximum(low, -1e18), np.minimum(high, 1e18)
        for _ in range(1200):
            x = (low + high) / 2
            left, right = self.derivatives(y, C, x)
            slope = k * (x - beta) + f
            rising, falling = slope + left > 0, slope + right < 0
            low, high = np.where(falling, x, low), np.where(rising, x, high)
            settled = ~(rising | falling)
            low, high = np.where(settled, x, low), np.where(settled, x, high)
        return (low + high) / 2


def _signed(y, low, high):
    """Bounds of beta from those of alpha = y beta."""
    return np.where(y > 0, low, -high), np.where(y > 0, high, -low)


def _one_sided(y, C, beta, low, high, smooth, kink=0.0):
    """h'- and h'+ of smooth + kink |beta|; infinite where the box ends."""
    left = smooth + kink * np.where(beta > 0, 1.0, -1.0)
    right = smooth + kink * np.where(beta < 0, -1.0, 1.0)
    return np.where(beta <= low, -np.inf, left), np.where(beta >= high, np.inf, right)


class Hinge(Loss):
    """C max(0, 1 - y f)."""

    def value(self, y, C, f):
        return C * np.maximum(0.0, 1.0 - y * f)

    def slope(self, y, C, f):
        return np.where(y * f < 1.0, -y * C, 0.0)

    def h(self, y, C, beta):
        return -y * beta

    def box(self, y, C):
        return _signed(y, 0.0 * C, C)

    def derivatives(self, y, C, beta):
        return _one_sided(y, C, beta, *self.box(y, C), -y)

    def step(self, y, C, beta, f, k):
        with np.errstate(divide="ignore", invalid="ignore"):
            alpha = np.clip(y * beta - (y * f - 1.0) / k, 0.0, C)
        at_zero = np.where(y * f < 1.0, C, np.where(y * f > 1.0, 0.0, y * beta))
        return y * np.where(k == 0.0, at_zero, alpha)

    def parts(self, y, C):
        return [(y, C, 0.0 * C, -1.0 + 0.0 * C)]


class SquaredHinge(Loss):
    """C max(0, 1 - y f)^2."""

    def value(self, y, C, f):
        return C * np.maximum(0.0, 1.0 - y * f) ** 2

    def slope(self, y, C, f):
        return -2.0 * y * C * np.maximum(0.0, 1.0 - y * f)

    def h(self, y, C, beta):
        return -y * beta + beta**2 / (4.0 * C)

    def box(self, y, C):
        return _signed(y, 0.0 * C, np.inf * C)

    def derivatives(self, y, C, beta):
        return _one_sided(y, C, beta, *self.box(y, C), -y + beta / (2.0 * C))

    def step(self, y, C, beta, f, k):
        alpha = y * beta
        curvature = k + 1.0 / (2.0 * C)
        return y * np.maximum(0.0, alpha - (y * f - 1.0 + alpha / (2.0 * C)) / curvature)

    def parts(self, y, C):
        return [(y, np.inf * C, 1.0 / (2.0 * C), -1.0 + 0.0 * C)]


class EpsilonInsensitive(Loss):
    """C max(0, |y - f| - epsilon)."""

    labels = False

    def value(self, y, C, f):
        return C * np.maximum(0.0, np.abs(y - f) - self.epsilon)

    def slope(self, y, C, f):
        return np.where(f - y > self.epsilon, C, np.where(y - f > self.epsilon, -C, 0.0))

    def h(self, y, C, beta):
        return -y * beta + self.epsilon * np.abs(beta)

    def box(self, y, C):
        return -C, C

    def derivatives(self, y, C, beta):
        return _one_sided(y, C, beta, -C, C, -y, self.epsilon)

    def step(self, y, C, beta, f, k):
        with np.errstate(divide="ignore", invalid="ignore"):
            z = beta - (f - y) / k
            x = np.clip(np.sign(z) * np.maximum(0.0, np.abs(z) - self.epsilon / k), -C, C)
        at_zero = np.where(np.abs(y - f) > self.epsilon, C * np.sign(y - f), 0.0)
        return np.where(k == 0.0, at_zero, x)

    def parts(self, y, C):
        return [
            (1.0 + 0.0 * C, C, 0.0 * C, self.epsilon - y),
            (-1.0 + 0.0 * C, C, 0.0 * C, self.epsilon + y),
        ]


class SquaredEpsilonInsensitive(Loss):
    """C max(0, |y - f| - epsilon)^2."""

    labels = False

    def value(self, y, C, f):
        return C * np.maximum(0.0, np.abs(y - f) - self.epsilon) ** 2

    def slope(self, y, C, f):
        return 2.0 * C * np.sign(f - y) * np.maximum(0.0, np.abs(y - f) - self.epsilon)

    def h(self, y, C, beta):
        return -y * beta + self.epsilon * np.abs(beta) + beta**2 / (4.0 * C)

    def box(self, y, C):
        return -np.inf * C, np.inf * C

    def derivatives(self, y, C, beta):
        return _one_sided(y, C, beta, -np.inf, np.inf, -y + beta / (2.0 * C), self.epsilon)

    def step(self, y, C, beta, f, k):
        z = k * beta - (f - y)
        return np.sign(z) * np.maximum(0.0, np.abs(z) - self.epsilon) / (k + 1.0 / (2.0 * C))

    def parts(self, y, C):
        curvature = 1.0 / (2.0 * C)
        return [
            (1.0 + 0.0 * C, np.inf * C, curvature, self.epsilon - y),
            (-1.0 + 0.0 * C, np.inf * C, curvature, self.epsilon + y),
        ]


class Logistic(Loss):
    """C log(1 + exp(-y f)); h is finite on 0 < alpha < C only."""

    def value(self, y, C, f):
        return C * np.logaddexp(0.0, -y * f)

    def slope(self, y, C, f):
        return -y * C * _logistic(-y * f)

    def curvature(self, y, C, f):
        return C * _logistic(f) * _logistic(-f)

    def h(self, y, C, beta):
        """a log(a / C) + (C - a) log((C - a) / C); the logarithm of a share near one by log1p."""
        a = np.clip(y * beta, 0.0, C)
        rest = C - a
        with np.errstate(divide="ignore", invalid="ignore"):
            log_a = np.where(a > rest, np.log1p(-rest / C), np.log(a / C))
            log_rest = np.where(a > rest, np.log(rest / C), np.log1p(-a / C))
            return np.where(a > 0, a * log_a, 0.0) + np.where(rest > 0, rest * log_rest, 0.0)

    def box(self, y, C):
        return _signed(y, 0.0 * C, C)

    def derivatives(self, y, C, beta):
        with np.errstate(divide="ignore"):
            slope = y * (np.log(y * beta) - np.log(C - y * beta))
        return slope, slope

    def step(self, y, C, beta, f, k):
        """Bisection on r(t) = k (C s(t) - alpha) + y f + t, with alpha = C s(t)."""
        alpha, g = y * beta, y * f
        low, high = -g - k * (C - alpha), -g + k * alpha
        for _ in range(200):
            t = (low + high) / 2
            positive = k * (C * _logistic(t) - alpha) + g + t > 0
            low, high = np.where(positive, low, t), np.where(positive, t, high)
        return y * np.clip(C * _logistic((low + high) / 2), 1e-300, C * (1 - 2.3e-16))


class MarginDistribution(Loss):
    """C [(1 - theta - u)_+^2 + upsilon (u - 1 - theta)_+^2] / 2 in the margin u = y f."""

    def value(self, y, C, f):
        u = y * f
        short = np.maximum(0.0, 1.0 - self.theta - u)
        far = np.maximum(0.0, u - 1.0 - self.theta)
        return C * (short**2 + self.upsilon * far**2) / 2.0

    def slope(self, y, C, f):
        u = y * f
        short = np.maximum(0.0, 1.0 - self.theta - u)
        far = np.maximum(0.0, u - 1.0 - self.theta)
        return y * C * (self.upsilon * far - short)

    def _diagonals(self, C):
        return 1.0 / C, (1.0 / (C * self.upsilon) if self.upsilon else np.inf * C)

    def h(self, y, C, beta):
        a, b = self._diagonals(C)
        gamma = y * beta
        with np.errstate(invalid="ignore"):
            minus = np.where(gamma < 0, b * np.minimum(gamma, 0.0) ** 2 / 2.0, 0.0)
        return a * np.maximum(gamma, 0.0) ** 2 / 2.0 + minus - gamma + self.theta * np.abs(gamma)

    def box(self, y, C):
        return _signed(y, (-np.inf if self.upsilon else 0.0) * C, np.inf * C)

    def derivatives(self, y, C, beta):
        a, b = self._diagonals(C)
        with np.errstate(invalid="ignore"):
            curved = np.where(y * beta > 0, a, b) * beta
        smooth = -y + np.where(beta == 0, 0.0, curved)
        return _one_sided(y, C, beta, *self.box(y, C), smooth, self.theta)

    def step(self, y, C, beta, f, k):
        a, b = self._diagonals(C)
        r = y * f - k * y * beta
        short = (1.0 - self.theta - r) / (k + a)
        far = (1.0 + self.theta - r) / (k + b)
        return y * np.where(r < 1 - self.theta, short, np.where(r > 1 + self.theta, far, 0.0))

    def parts(self, y, C):
        a, b = self._diagonals(C)
        plus = (y, np.inf * C, a, self.theta - 1.0 + 0.0 * C)
        return [plus, (-y, np.inf * C, b, self.theta + 1.0 + 0.0 * C)] if self.upsilon else [plus]


class Huber(Loss):
    """C H(y - f): r^2 / (2 epsilon) up to epsilon, |r| - epsilon / 2 beyond."""

    labels = False

    def value(self, y, C, f):
        r = np.abs(y - f)
        return C * np.where(r < self.epsilon, r**2 / (2 * self.epsilon), r - self.epsilon / 2)

    def slope(self, y, C, f):
        return C * np.clip((f - y) / self.epsilon, -1.0, 1.0)

    def h(self, y, C, beta):
        return -y * beta + self.epsilon * beta**2 / (2.0 * C)

    def box(self, y, C):
        return -C, C

    def derivatives(self, y, C, beta):
        return _one_sided(y, C, beta, -C, C, -y + self.epsilon * beta / C)

    def step(self, y, C, beta, f, k):
        return np.clip((k * beta - f + y) / (k + self.epsilon / C), -C, C)

    def parts(self, y, C):
        curvature = self.epsilon / C
        return [(1.0 + 0.0 * C, C, curvature, -y), (-1.0 + 0.0 * C, C, curvature, y)]


class Pinball(Loss):
    """C quantile (y - f) below the target, C (1 - quantile) (f - y) above."""

    labels = False

    def value(self, y, C, f):
        q = self.quantile
        return C * np.maximum(q * (y - f), (1 - q) * (f - y))

    def slope(self, y, C, f):
        return C * np.where(f < y, -self.quantile, 1 - self.quantile)

    def h(self, y, C, beta):
        return -y * beta

    def box(self, y, C):
        return -C * (1 - self.quantile), C * self.quantile

    def derivatives(self, y, C, beta):
        return _one_sided(y, C, beta, *self.box(y, C), -y)

    def step(self, y, C, beta, f, k):
        low, high = self.box(y, C)
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.clip(beta - (f - y) / k, low, high)
        at_zero = np.where(f < y, high, np.where(f > y, low, beta))
        return np.where(k == 0.0, at_zero, x)

    def parts(self, y, C):
        low, high = self.box(y, C)
        return [(1.0 + 0.0 * C, high, 0.0 * C, -y), (-1.0 + 0.0 * C, -low, 0.0 * C, y)]


class OneClass(Loss):
    """C max(0, -f): what lies below the plane."""

    def value(self, y, C, f):
        return C * np.maximum(0.0, -f)

    def slope(self, y, C, f):
        return np.where(f < 0.0, -C, 0.0)

    def h(self, y, C, beta):
        return 0.0 * beta

    def box(self, y, C):
        return 0.0 * C, C

    def derivatives(self, y, C, beta):
        return _one_sided(y, C, beta, 0.0 * C, C, 0.0 * beta)

    def step(self, y, C, beta, f, k):
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.clip(beta - f / k, 0.0, C)
        return np.where(k == 0.0, np.where(f < 0, C, np.where(f > 0, 0.0, beta)), x)

    def parts(self, y, C):
        return [(1.0 + 0.0 * C, C, 0.0 * C, 0.0 * C)]


class Hull(Loss):
    """C max(0, -y f): what lies beyond the plane of its side."""

    def value(self, y, C, f):
        return C * np.maximum(0.0, -y * f)

    def slope(self, y, C, f):
        return np.where(y * f < 0.0, -y * C, 0.0)

    def h(self, y, C, beta):
        return 0.0 * beta

    def box(self, y, C):
        return _signed(y, 0.0 * C, C)

    def derivatives(self, y, C, beta):
        return _one_sided(y, C, beta, *self.box(y, C), 0.0 * beta)

    def step(self, y, C, beta, f, k):
        with np.errstate(divide="ignore", invalid="ignore"):
            alpha = np.clip(y * (beta - f / k), 0.0, C)
        at_zero = np.where(y * f < 0.0, C, np.where(y * f > 0.0, 0.0, y * beta))
        return y * np.where(k == 0.0, at_zero, alpha)

    def parts(self, y, C):
        return [(y, C, 0.0 * C, 0.0 * C)]


LOSSES = {
    "hinge": Hinge,
    "squared_hinge": SquaredHinge,
    "epsilon_insensitive": EpsilonInsensitive,
    "squared_epsilon_insensitive": SquaredEpsilonInsensitive,
    "logistic": Logistic,
    "margin_distribution": MarginDistribution,
    "huber": Huber,
    "pinball": Pinball,
    "one_class": OneClass,
    "hull": Hull,
}


def _logistic(t):
    return np.exp(-np.logaddexp(0.0, -np.asarray(t)))
