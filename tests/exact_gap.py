"""The relative duality gap of a fitted model as it is stored, computed with 600 bits.

    P at the stored model           coef_ and intercept_, or dual_coef_, support_ and intercept_
    D at the stored dual variables  clipped into their box, their sums made exact
    gap = (P + D) / max(|P|, |D|)

Doubles enter as they are and kernel values come from the rows, so that what cancels in double
precision does not matter here: sums of numbers of 30 orders of magnitude keep more than a hundred
digits. The dual point is feasible, hence by weak duality P - P* <= P + D without any trust in the
model. Only public attributes are read. Losses are those of the naive twin (oracle.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import mpmath
import numpy as np
from mpmath import mpf
from scipy import sparse

from margrave import (
    SVC,
    SVR,
    HardMarginSVC,
    KernelLogisticRegression,
    NuSVC,
    NuSVR,
    ODMClassifier,
    OneClassSVM,
)
from margrave.losses import NUMBERS
from tests import oracle
from tests.interior import best_intercept

mpmath.mp.prec = 600


def exact(values):
    """The same numbers as an array of mpf."""
    values = np.asarray(values, dtype=np.float64)
    found = np.empty(values.shape, dtype=object)
    found.ravel()[:] = [mpf(float(v)) for v in values.ravel()]
    return found


def dense(X):
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


# --- kernels -------------------------------------------------------------------------------


def _integers(X):
    """Integers and an exponent with X = integers * 2^exponent, exactly."""
    mantissa, power = np.frexp(X)
    mantissa, power = np.ldexp(mantissa, 53).astype(np.int64), power - 53
    least = int(power[mantissa != 0].min(initial=0))
    shift = np.where(mantissa == 0, 0, power - least).astype(object)
    return mantissa.astype(object) << shift, least


def _scaled(integers, exponent):
    found = np.empty(integers.shape, dtype=object)
    found.ravel()[:] = [mpmath.ldexp(mpf(int(v)), exponent) for v in integers.ravel()]
    return found


def _products(X):
    integers, exponent = _integers(X)
    return _scaled(integers.dot(integers.T), 2 * exponent)


def _squares(X):
    integers, exponent = _integers(X)
    G = integers.dot(integers.T)
    return _scaled(G.diagonal()[:, None] + G.diagonal() - 2 * G, 2 * exponent)


def _absolute(X):
    integers, exponent = _integers(X)
    return _scaled(np.array([np.abs(integers - row).sum(axis=1) for row in integers]), exponent)


def _map(function, values):
    """function of a symmetric matrix, entry by entry."""
    found = np.empty(values.shape, dtype=object)
    for i in range(len(values)):
        for j in range(i + 1):
            found[i, j] = found[j, i] = function(values[i, j])
    return found


def _matern(square, more):
    """(1 + t + more t^2 / 3) exp(-t)."""
    t = mpmath.sqrt(square)
    return (1 + t + more * square / 3) * mpmath.exp(-t)


KERNELS = {
    "rbf": lambda X, p: _map(lambda v: mpmath.exp(-mpf(p["gamma"]) * v), _squares(X)),
    "laplacian": lambda X, p: _map(
        lambda v: mpmath.exp(-((mpf(p["gamma"]) * v) ** mpf(p["power"]))), _absolute(X)
    ),
    "exponential": lambda X, p: _map(
        lambda v: mpmath.exp(-((mpf(p["gamma"]) * v) ** (mpf(p["power"]) / 2))), _squares(X)
    ),
    "matern32": lambda X, p: _map(lambda v: _matern(3 * mpf(p["gamma"]) * v, 0), _squares(X)),
    "matern52": lambda X, p: _map(lambda v: _matern(5 * mpf(p["gamma"]) * v, 1), _squares(X)),
    "poly": lambda X, p: (_products(X) * mpf(p["gamma"]) + mpf(p["coef0"])) ** int(p["degree"]),
    "sigmoid": lambda X, p: _map(
        lambda v: mpmath.tanh(mpf(p["gamma"]) * v + mpf(p["coef0"])), _products(X)
    ),
    "precomputed": lambda X, p: exact(X),
}


class Gram:
    """K of some rows, by its products; a linear one needs no matrix."""

    def __init__(self, X, kernel, parameters):
        self.X = exact(X) if kernel == "linear" else None
        self.K = None if kernel == "linear" else KERNELS[kernel](X, parameters)

    def times(self, beta):
        return self.X.dot(self.X.T.dot(beta)) if self.K is None else self.K.dot(beta)

    def column(self, i):
        return self.X.dot(self.X[i]) if self.K is None else self.K[:, i]

    def diagonal(self):
        return (self.X**2).sum(axis=1) if self.K is None else self.K.diagonal()

    def restrict(self, rows):
        some = object.__new__(Gram)
        some.X = None if self.X is None else self.X[rows]
        some.K = None if self.K is None else self.K[np.ix_(rows, rows)]
        return some


# --- losses --------------------------------------------------------------------------------


class Logistic(oracle.Logistic):
    """The logistic loss in mpf."""

    def value(self, y, C, f):
        return C * np.array([_softplus(-t) for t in y * f], dtype=object)

    def h(self, y, C, beta):
        share = y * beta / C
        return C * np.array([_xlogx(p) + _xlogx(1 - p) for p in share], dtype=object)


LOSSES = {**oracle.LOSSES, "logistic": Logistic}


def _softplus(t):
    return mpmath.log1p(mpmath.exp(t)) if t < 0 else t + mpmath.log1p(mpmath.exp(-t))


def _xlogx(p):
    return p * mpmath.log(p) if p > 0 else mpf(0)


def loss_of(name, **parameters):
    """A loss whose parameters are arrays of one mpf: numpy multiplies these quickly."""
    return LOSSES[name](**{key: exact([value]) for key, value in parameters.items()})


# --- points of the dual --------------------------------------------------------------------


@dataclass
class Certificate:
    """Both values, the gap, and what a model that is constant pays, where that is known."""

    primal: float
    dual: float
    gap: float
    zero: float = float("nan")


def certificate(primal, dual, norm, scale=0, zero=float("nan")):
    """(P + D) / max(|P|, |D|); infinite where the kernel is not positive semidefinite."""
    scale = max(abs(primal), abs(dual), scale)
    gap = (primal + dual) / scale if scale > 0 else mpf(0)
    if norm < -mpf("1e-9") * scale:
        gap = mpf("inf")
    return Certificate(float(primal), float(dual), float(gap), float(zero))


@dataclass
class Dual:
    """D(beta) = 1/2 beta'K beta + offset/2 (sum beta)^2 + sum_i h_i(beta_i), in a box."""

    gram: Gram
    h: object  # (rows, their beta) -> what each of them pays
    low: object
    high: object
    offset: int = 0

    def __post_init__(self):
        self.diagonal = self.gram.diagonal() + self.offset

    def start(self, beta):
        self.beta = np.minimum(np.maximum(beta, self.low), self.high)
        self.f = self.gram.times(self.beta) + self.offset * self.beta.sum()

    def move(self, amount, rows):
        """Take `amount` from the variables of `rows`, where it costs least; add it, if negative."""
        while amount != 0:
            room = self.beta - self.low if amount > 0 else self.high - self.beta
            enough = np.array([i for i in rows if room[i] >= abs(amount)], dtype=np.intp)
            if len(enough):
                i, step = enough[self.prices(enough, -amount).argmin()], -amount
            else:
                i = max(rows, key=lambda i: room[i])
                step = -room[i] if amount > 0 else room[i]
            if step == 0:  # no room at all
                return
            self.beta[i] += step
            self.f = self.f + (self.gram.column(i) + self.offset) * step
            amount += step

    def prices(self, rows, step):
        """Change of D by a step of one of these variables."""
        beta = self.beta[rows]
        return (
            self.f[rows] * step
            + self.diagonal[rows] * (step**2 / 2)
            + self.h(rows, beta + step)
            - self.h(rows, beta)
        )

    def value(self):
        return self.beta.dot(self.f) / 2 + self.h(slice(None), self.beta).sum()


def sum_to(dual, total):
    """Make the sum of the variables what it has to be."""
    dual.move(dual.beta.sum() - total, range(len(dual.beta)))


# --- estimators ----------------------------------------------------------------------------


@dataclass
class Output:
    """One problem of a fit, and what the model stores for it."""

    y: object  # targets
    C: object  # doubles
    beta: object  # stored dual coefficients
    w: object  # stored weights of the features, or None
    b: float
    gram: Gram


def exact_gaps(model, X, y=None, sample_weight=None):
    """A certificate for each problem of a fitted model, from its training data."""
    if not (np.isfinite(dense(model.dual_coef_)).all() and np.isfinite(model.intercept_).all()):
        raise ValueError("the model has coefficients that are not finite")
    if isinstance(model, NuSVR):
        return [_tube(model, output) for output in _single(model, X, y, sample_weight)]
    if isinstance(model, (NuSVC, HardMarginSVC)):
        outputs = _pairs_or_rest(model, X, y, sample_weight, "ovo")
        rhos = np.ravel(model.rho_)
        return [_hull(output, rho) for output, rho in zip(outputs, rhos, strict=True)]
    if isinstance(model, OneClassSVM):
        ones = np.ones(X.shape[0])
        return [_one_class(model, output) for output in _single(model, X, ones, sample_weight)]
    if isinstance(model, SVR):
        loss = loss_of(model.loss, epsilon=model.epsilon, quantile=model.quantile)
        return [_plain(o, loss, model.intercept) for o in _single(model, X, y, sample_weight)]
    if model.multi_class in ("crammer_singer", "softmax"):
        return [_joint(model, X, y, sample_weight)]
    loss = _classifier_loss(model)
    outputs = _pairs_or_rest(model, X, y, sample_weight, model.multi_class)
    return [_plain(output, loss, model.intercept) for output in outputs]


def _classifier_loss(model):
    if isinstance(model, SVC):
        return loss_of(model.loss)
    if isinstance(model, KernelLogisticRegression):
        return loss_of("logistic")
    assert isinstance(model, ODMClassifier)
    return loss_of("margin_distribution", theta=model.theta, upsilon=model.upsilon)


def _weights(X, sample_weight):
    n = X.shape[0]
    return np.ones(n) if sample_weight is None else np.asarray(sample_weight, float)


def _gram(model, X):
    return Gram(dense(X), model.kernel, model.get_params(deep=False))


def _prices(model, weight):
    """C_i of the rows of one problem, in doubles as documented: they define the problem."""
    if isinstance(model, ODMClassifier):
        lam = weight.sum() if model.lam == "scale" else model.lam
        return weight * (lam / ((1.0 - model.theta) ** 2 * weight.sum()))
    if isinstance(model, NuSVC):
        return 2.0 * weight / (model.nu * weight.sum())
    if isinstance(model, HardMarginSVC):
        return np.full(len(weight), 2.0)  # more than all the weight that there is
    if isinstance(model, OneClassSVM):
        return weight
    return model.C * weight


def _coef(model):
    return dense(model.coef_) if model.kernel == "linear" else None


def _spread(model, n):
    """dual_coef_ with a column for each row of the fit."""
    coef = dense(model.dual_coef_)
    found = np.zeros((len(coef), n))
    found[:, model.support_] = coef
    return found


def _single(model, X, y, sample_weight):
    weight = _weights(X, sample_weight)
    rows = np.flatnonzero(weight)
    w = _coef(model)
    beta = _spread(model, len(weight))[0, rows]
    gram = _gram(model, X).restrict(rows)
    C, b = _prices(model, weight[rows]), float(model.intercept_[0])
    yield Output(np.asarray(y, float)[rows], C, beta, None if w is None else w[0], b, gram)


def _pairs_or_rest(model, X, y, sample_weight, scheme):
    weight, y = _weights(X, sample_weight), np.asarray(y)
    classes, w, gram = model.classes_, _coef(model), _gram(model, X)
    coef = _spread(model, len(weight))
    used = weight > 0
    if len(classes) == 2:
        problems = [(used, y == classes[1], coef[0])]
    elif scheme == "ovr":
        problems = [(used, y == c, coef[k]) for k, c in enumerate(classes)]
    else:
        problems = []
        for i, j in combinations(range(len(classes)), 2):
            first, second = y == classes[i], y == classes[j]
            beta = np.where(first, coef[j - 1], coef[i])
            problems.append((used & (first | second), first, beta))
    for p, (members, positive, beta) in enumerate(problems):
        rows = np.flatnonzero(members)
        C, signs = _prices(model, weight[rows]), np.where(positive, 1.0, -1.0)[rows]
        weights, b = None if w is None else w[p], float(model.intercept_[p])
        yield Output(signs, C, beta[rows], weights, b, gram.restrict(rows))


def _model(output):
    """|w|^2 and the scores of the rows, with the intercept."""
    if output.w is None:
        beta = exact(output.beta)
        f = output.gram.times(beta)
        return beta.dot(f), f + mpf(output.b)
    w = exact(output.w)
    return w.dot(w), output.gram.X.dot(w) + mpf(output.b)


def _plain(output, loss, intercept):
    y, C, b = exact(output.y), exact(output.C), mpf(output.b)
    penalty = b**2 if intercept == "regularized" else 0
    norm, f = _model(output)
    norm = norm + penalty
    primal = norm / 2 + loss.value(y, C, f).sum()
    offset = 1 if intercept == "regularized" else 0
    dual = Dual(output.gram, lambda i, beta: loss.h(y[i], C[i], beta), *loss.box(y, C), offset)
    dual.start(exact(output.beta))
    if intercept == "free":
        sum_to(dual, 0)
    zero = _zero_model(output, loss, intercept)
    return certificate(primal, dual.value(), norm, 0, zero)


def _zero_model(output, loss, intercept):
    """What a constant pays: the best one where the intercept is free, else zero."""
    b = 0.0
    if intercept == "free":
        numbers = {key: getattr(loss, key) for key in NUMBERS}
        plain = {key: float(np.ravel(value)[0]) for key, value in numbers.items()}
        rough = oracle.LOSSES[_name(loss)](**plain)
        b = best_intercept(rough, output.y, output.C, np.zeros(len(output.y)))
    constant = exact(np.full(len(output.y), b))
    return loss.value(exact(output.y), exact(output.C), constant).sum()


def _name(loss):
    return next(name for name, kind in LOSSES.items() if type(loss) is kind)


def _one_class(model, output):
    """P = 1/2 |w|^2 + b sum beta + sum_i s_i max(0, -f_i), b = -rho; D = 1/2 beta'K beta."""
    loss, C = loss_of("one_class"), exact(output.C)
    total = float(model.nu * output.C.sum())
    norm, f = _model(output)
    primal = norm / 2 + mpf(total) * mpf(output.b) + loss.value(C * 0 + 1, C, f).sum()
    dual = Dual(output.gram, lambda i, beta: loss.h(C[i], C[i], beta), *loss.box(C * 0 + 1, C))
    dual.start(exact(output.beta))
    sum_to(dual, mpf(total))
    n = len(output.C)
    some = np.linspace(0, n - 1, min(n, 50)).astype(np.int64)
    diagonal = output.gram.diagonal()[some].sum() / len(some)
    return certificate(primal, dual.value(), norm, mpf("0.5e-6") * mpf(total) ** 2 * diagonal)


def _hull(output, rho):
    """(U - L) / U: U of the stored points, L of the stored plane.

    With the decisions d(x) = w'x + b and the caps C_i every feasible pair of points z has
    w'z >= m = 2 - sum_i C_i max(0, 1 - y_i d_i), hence |z|^2 / 2 >= m^2 / (2 |w|^2) = L if m > 0.
    """
    y, C = exact(output.y), exact(output.C)
    norm, f = _model(output)
    hinge = np.maximum(mpf(0), 1 - y * f)
    m = 2 - C.dot(hinge)
    L = m**2 / (2 * norm) if m > 0 and norm > 0 else mpf(0)
    loss = loss_of("hull")
    dual = Dual(output.gram, lambda i, beta: loss.h(y[i], C[i], beta), *loss.box(y, C))
    dual.start(exact(output.beta) * mpf(float(rho)))
    for sign in (1, -1):
        rows = np.flatnonzero(output.y == sign)
        dual.move(dual.beta[rows].sum() - sign, rows)
    U = dual.value()
    gap = (U - L) / U if U > 0 else mpf(1)
    return Certificate(float(U), float(-L), float(gap))


def _tube(model, output):
    """P with the stored width of the tube; D where sum |beta| is at most C nu sum_i s_i."""
    y, C, tube = exact(output.y), exact(output.C), mpf(float(model.epsilon_))
    half = mpf(0.5 * model.nu * float(output.C.sum()))
    norm, f = _model(output)
    outside = np.maximum(mpf(0), np.abs(y - f) - tube)
    primal = norm / 2 + 2 * half * tube + C.dot(outside)
    n = range(len(y))
    plus, minus = ([i for i in n if sign * output.beta[i] > 0] for sign in (1, -1))
    values = []
    for meet in (
        min,
        max,
    ):  # the heavier side is lowered, or the lighter one raised as far as it may
        dual = Dual(output.gram, lambda i, beta: -y[i] * beta, -C, C)
        dual.start(exact(output.beta))
        sums = [abs(dual.beta[side].sum()) if side else mpf(0) for side in (plus, minus)]
        goal = min(meet(*sums), half) if plus and minus else mpf(0)
        dual.low, dual.high = 0 * C, C
        dual.move(sums[0] - goal, plus)
        dual.low, dual.high = -C, 0 * C
        dual.move(goal - sums[1], minus)
        if abs(abs(dual.beta[plus].sum()) - abs(dual.beta[minus].sum())) <= mpf(2) ** -500 * goal:
            values.append(dual.value())
    zero = _zero_model(output, loss_of("epsilon_insensitive", epsilon=0.0), "free")
    return certificate(primal, min(values), norm, 0, zero)


def _joint(model, X, y, sample_weight):
    """All classes in one problem: beta_i = C_i (e_y - p_i) with p_i in the simplex.

    The constant model is that without intercepts.
    """
    weight = _weights(X, sample_weight)
    rows = np.flatnonzero(weight)
    n = len(rows)
    labels = np.searchsorted(model.classes_, np.asarray(y)[rows])
    own = (np.arange(n), labels)
    C = exact(model.C * weight[rows])
    gram = _gram(model, X).restrict(rows)
    beta = exact(_spread(model, len(weight))[:, rows].T)
    b = exact(model.intercept_)
    w = _coef(model)
    scores = gram.times(beta) if w is None else gram.X.dot(exact(w).T)
    norm = (beta * scores).sum() if w is None else (exact(w) ** 2).sum()
    regularized = model.intercept == "regularized"
    norm = norm + (b.dot(b) if regularized else 0)
    f = scores + b
    if model.multi_class == "softmax":
        top = f.max(axis=1)
        total = _each(mpmath.exp, f - top[:, None]).sum(axis=1)
        paid = top + _each(mpmath.log, total) - f[own]
    else:
        ahead = f + mpf(1)
        ahead[own] -= 1
        paid = ahead.max(axis=1) - f[own]
    primal = norm / 2 + C.dot(paid)

    # points of the simplices nearby, then the sums of the columns; the better one counts
    shares = -beta / C[:, None]
    shares[own] += 1
    rescaled = np.maximum(shares, mpf(0))
    rescaled = rescaled / rescaled.sum(axis=1)[:, None]
    filled = np.minimum(np.maximum(shares, mpf(0)), mpf(1))
    filled[own] = 0
    filled = filled / np.maximum(filled.sum(axis=1), mpf(1))[:, None]
    filled[own] = 1 - filled.sum(axis=1)
    dual = min(_joint_dual(model, gram, C, labels, one) for one in (rescaled, filled))
    zero = C.sum() * (mpmath.log(len(b)) if model.multi_class == "softmax" else 1)
    return certificate(primal, dual, norm, 0, zero)


def _joint_dual(model, gram, C, labels, shares):
    """The dual value at these points of the simplices."""
    point = -C[:, None] * shares
    point[np.arange(len(C)), labels] += C
    if model.multi_class == "softmax":

        def conjugate(i):
            return C[i] * sum(_xlogx(p) for p in shares[i])

    else:

        def conjugate(i):
            return C[i] * (shares[i, labels[i]] - 1)

    g = gram.times(point)
    if model.intercept == "free":
        g = _balance(point, shares, g, C, gram, conjugate)
    quadratic = (point * g).sum()
    if model.intercept == "regularized":
        quadratic += (point.sum(axis=0) ** 2).sum()
    return quadratic / 2 + sum(map(conjugate, range(len(C))))


def _balance(point, shares, g, C, gram, conjugate):
    """Move weight between classes, within rows, until every column of `point` sums to zero."""
    rows, diagonal = range(len(C)), gram.diagonal()

    def shift(i, a, b, step):
        shares[i, a] += step / C[i]
        shares[i, b] -= step / C[i]

    def cost(i, a, b, step):
        before = conjugate(i)
        shift(i, a, b, step)
        after = conjugate(i)
        shift(i, a, b, -step)
        return step * (g[i, b] - g[i, a]) + step**2 * diagonal[i] + after - before

    while True:
        left = point.sum(axis=0)
        a, b = left.argmax(), left.argmin()
        wanted = min(left[a], -left[b])
        if wanted <= mpf(2) ** -500 * C.max():
            return g
        room = shares[:, b] * C
        enough = [i for i in rows if room[i] >= wanted]
        i = min(enough, key=lambda i: cost(i, a, b, wanted)) if enough else room.argmax()
        step = min(wanted, room[i])
        if step <= 0:
            return g
        shift(i, a, b, step)
        point[i, a] -= step
        point[i, b] += step
        column = gram.column(i) * step
        g = g.copy()
        g[:, a] -= column
        g[:, b] += column


def _each(function, values):
    return np.array([function(v) for v in values.ravel()], dtype=object).reshape(values.shape)
