"""The exact gap itself: against golden numbers, and against optima found by enumeration.

For a handful of rows the optimum is one of finitely many: every variable is zero, at its cap, or
free, and the free ones solve a linear system. Smooth losses solve their optimality conditions.
Both with 60 digits and without a thought of how a gap is computed.
"""

from __future__ import annotations

import warnings
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from mpmath import mpf

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
from tests import cases, oracle
from tests.exact_gap import Gram, exact, exact_gaps
from tests.golden import RECORDS

# those whose kernel values are not too many for arithmetic in software
GOLDEN = [r for r in RECORDS if r.kernel == "linear" or r.data == "iris"]


def golden_model(record, **settings):
    parameters = {"kernel": record.kernel, "intercept": record.intercept, "n_jobs": 1}
    parameters |= record.kernel_parameters | settings
    if record.loss == "logistic":
        return KernelLogisticRegression(record.C, **parameters)
    if record.loss == "margin_distribution":
        theta, n = record.loss_parameters["theta"], len(record.arrays()[1])
        lam = record.C * n * (1.0 - theta) ** 2
        return ODMClassifier(lam, record.loss_parameters["upsilon"], theta, **parameters)
    estimator = SVC if oracle.LOSSES[record.loss].labels else SVR
    return estimator(record.C, loss=record.loss, **record.loss_parameters, **parameters)


@pytest.mark.parametrize("number", range(len(GOLDEN)), ids=lambda k: GOLDEN[k].name)
def test_golden(number):
    record, tol = GOLDEN[number], (1e-3, 1e-10)[number % 2]
    X, y = record.arrays()
    model = golden_model(record, tol=tol).fit(X, y)
    (found,) = exact_gaps(model, X, y)
    assert -found.dual * (1 - 1e-12) <= record.objective <= found.primal * (1 + 1e-12)
    suboptimal = (found.primal - record.objective) / found.primal
    assert suboptimal - 1e-12 <= found.gap <= 1.001 * tol
    assert record.objective <= found.zero * (1 + 1e-12)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_fractions(power, seed):
    """Numbers of 40 orders of magnitude, against rational arithmetic written from the formulas."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(8, 3)) * 10.0 ** rng.uniform(-8, 8, size=3) + 1e6
    y, weight = np.where(np.arange(8) % 2, 1.0, -1.0), 10.0 ** rng.uniform(-12, 12, size=8)
    loss = {1: "hinge", 2: "squared_hinge"}[power]
    model = SVC(10.0, kernel="linear", loss=loss, intercept=None, time_limit=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, sample_weight=weight)
    rows = [[Fraction(v) for v in row] for row in X]
    w, C = [Fraction(v) for v in model.coef_[0]], [Fraction(v) for v in 10.0 * weight]
    alpha = np.zeros(8)
    alpha[model.support_] = model.dual_coef_[0]
    alpha = [max(Fraction(0), Fraction(v)) for v in y * alpha]
    if power == 1:
        alpha = [min(a, c) for a, c in zip(alpha, C, strict=True)]
    signs = [int(v) for v in y]

    def dot(a, b):
        return sum(u * v for u, v in zip(a, b, strict=True))

    paid = [
        c * max(Fraction(0), 1 - s * dot(row, w)) ** power
        for c, s, row in zip(C, signs, rows, strict=True)
    ]
    v = [
        sum(s * a * row[j] for s, a, row in zip(signs, alpha, rows, strict=True)) for j in range(3)
    ]
    h = [-a + (a * a / (4 * c) if power == 2 else 0) for a, c in zip(alpha, C, strict=True)]
    P, D = dot(w, w) / 2 + sum(paid), dot(v, v) / 2 + sum(h)
    (found,) = exact_gaps(model, X, y, weight)
    assert found.primal == float(P) and found.dual == float(D)
    assert found.gap == float((P + D) / max(abs(P), abs(D)))


# --- optima by enumeration -----------------------------------------------------------------


def smallest(Q, c, A, t, upper):
    """The least 1/2 x'Qx + c'x over 0 <= x <= upper with Ax = t, whichever entries are free."""
    n, best = len(c), mpf("inf")
    slack = mpf("1e-40")
    for state in product(*[("zero", "free") + ("cap",) * mpmath.isfinite(u) for u in upper]):
        free = [i for i in range(n) if state[i] == "free"]
        x = [upper[i] if state[i] == "cap" else mpf(0) for i in range(n)]
        rhs = [-c[i] - sum(Q[i][j] * x[j] for j in range(n)) for i in free]
        rhs += [t[k] - sum(A[k][j] * x[j] for j in range(n)) for k in range(len(t))]
        # rows of A without a free entry are conditions, not equations
        kept = [k for k in range(len(t)) if any(A[k][i] != 0 for i in free)]
        if any(abs(rhs[len(free) + k]) > slack for k in range(len(t)) if k not in kept):
            continue
        size = len(free) + len(kept)
        if free:
            M, r = mpmath.zeros(size), mpmath.zeros(size, 1)
            for a, i in enumerate(free):
                r[a] = rhs[a]
                for b, j in enumerate(free):
                    M[a, b] = Q[i][j]
                for b, k in enumerate(kept):
                    M[a, len(free) + b] = M[len(free) + b, a] = A[k][i]
            for b, k in enumerate(kept):
                r[len(free) + b] = rhs[len(free) + k]
            try:
                solved = mpmath.lu_solve(M, r)
            except ZeroDivisionError:
                continue
            for a, i in enumerate(free):
                x[i] = solved[a]
        if any(v < -slack or v > u + slack for v, u in zip(x, upper, strict=True)):
            continue
        value = sum(x[i] * Q[i][j] * x[j] for i in range(n) for j in range(n)) / 2
        best = min(best, value + sum(c[i] * x[i] for i in range(n)))
    return best


def matrix(X, kernel, parameters, intercept=None):
    identity = np.array([[mpf(i == j) for j in range(len(X))] for i in range(len(X))])
    K = Gram(X, kernel, {"coef0": 0.0, **parameters}).times(identity)
    return K + 1 if intercept == "regularized" else K


def quadratic_optimum(K, y, C, loss, intercept, total=0):
    """P* = -D* of a piecewise quadratic loss, by its parts."""
    signs, upper, bends, costs, rows = [], [], [], [], []
    for sign, cap, bend, cost in loss.parts(exact(y), exact(C)):
        for i in range(len(y)):
            signs.append(sign[i]), upper.append(cap[i]), bends.append(bend[i])
            costs.append(cost[i]), rows.append(i)
    m = range(len(rows))
    Q = [[signs[a] * signs[b] * K[rows[a], rows[b]] + bends[a] * (a == b) for b in m] for a in m]
    A, t = ([signs], [mpf(total)]) if intercept == "free" else ([], [])
    return -smallest(Q, costs, A, t, upper)


def smooth_optimum(conditions, start, size):
    """Root of the optimality conditions, from where a fit ended."""
    root = mpmath.findroot(lambda *x: conditions(list(x)), start, tol=1e-60, maxsteps=60)
    return [root[i] for i in range(size)]


X = np.array([[0.3, -1.2], [1.1, 0.4], [-0.7, 0.9]])
SIGNS = np.array([1.0, -1.0, 1.0])
TARGETS = np.array([0.7, -1.9, 0.2])
WEIGHTS = np.array([1.0, 2.5, 0.7])
KERNELS = [("linear", {}), ("rbf", {"gamma": 0.5}), ("poly", {"gamma": 0.5, "degree": 2})]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=cases.name_of)
each_intercept = pytest.mark.parametrize("intercept", cases.INTERCEPTS)


def disturbed(model, rng):
    """The model itself, then with coefficients and intercepts that are more and more wrong."""
    yield 0.0
    for size in (1e-12, 1e-6, 1e-2):
        model.dual_coef_ = model.dual_coef_ * (1 + size * rng.normal(size=model.dual_coef_.shape))
        if getattr(model, "intercept", "free") is not None:
            model.intercept_ = model.intercept_ + size * rng.normal(size=model.intercept_.shape)
        yield size


def check(model, optimum, rng, data):
    """The gap bounds how far the model is from the optimum, and is small for the fit itself."""
    for size in disturbed(model, rng):
        (found,) = exact_gaps(model, *data)
        slack = 1e-14 * max(abs(found.primal), abs(optimum))
        assert -found.dual <= optimum + slack and optimum <= found.primal + slack
        assert found.primal + found.dual >= found.primal - optimum - slack
        assert size > 0.0 or found.gap <= 1e-9


PLAIN = [case for case in cases.ZERO_SUM if case[0] != "logistic"]


@pytest.mark.parametrize("loss", PLAIN, ids=cases.name_of)
@each_kernel
@each_intercept
def test_quadratic_losses(loss, kernel, intercept, rng):
    name, numbers = loss
    naive = oracle.LOSSES[name](**{key: mpf(value) for key, value in numbers.items()})
    y = SIGNS if naive.labels else TARGETS
    settings = {"kernel": kernel[0], **kernel[1], "intercept": intercept, "tol": 1e-10}
    settings |= {"solver": "exact", "n_jobs": 1}
    C = 3.0 * WEIGHTS
    if name == "margin_distribution":
        model = ODMClassifier(3.0, **numbers, **settings)
        C = WEIGHTS * (3.0 / ((1.0 - numbers["theta"]) ** 2 * WEIGHTS.sum()))
    elif naive.labels:
        model = SVC(3.0, loss=name, **settings)
    else:
        model = SVR(3.0, loss=name, **numbers, **settings)
    model.fit(X, y, sample_weight=WEIGHTS)
    optimum = quadratic_optimum(matrix(X, *kernel, intercept), y, C, naive, intercept)
    check(model, float(optimum), rng, (X, y, WEIGHTS))


@each_kernel
@each_intercept
def test_logistic(kernel, intercept, rng):
    model = KernelLogisticRegression(
        3.0, kernel=kernel[0], **kernel[1], intercept=intercept, tol=1e-10, solver="exact"
    ).fit(X, SIGNS, sample_weight=WEIGHTS)
    K, C, n = matrix(X, *kernel, intercept), exact(3.0 * WEIGHTS), len(SIGNS)

    def scores(x):
        return K.dot(np.array(x[:n], dtype=object)) + (x[n] if intercept == "free" else 0)

    def conditions(x):
        f = scores(x)
        short = [x[i] - y * C[i] / (1 + mpmath.exp(y * f[i])) for i, y in enumerate(exact(SIGNS))]
        return short + ([sum(x[:n])] if intercept == "free" else [])

    start = np.zeros(n)
    start[model.support_] = model.dual_coef_[0]
    start = [*start, *(model.intercept_ if intercept == "free" else [])]
    x = smooth_optimum(conditions, start, len(start))
    f, beta = scores(x), np.array(x[:n], dtype=object)
    paid = sum(C[i] * mpmath.log1p(mpmath.exp(-SIGNS[i] * f[i])) for i in range(n))
    optimum = beta.dot(K.dot(beta)) / 2 + paid
    check(model, float(optimum), rng, (X, SIGNS, WEIGHTS))


LABELS = np.array([0, 1, 2])


@each_kernel
@each_intercept
def test_crammer_singer(kernel, intercept, rng):
    model = SVC(
        3.0,
        kernel=kernel[0],
        **kernel[1],
        intercept=intercept,
        multi_class="crammer_singer",
        tol=1e-10,
    ).fit(X, LABELS, sample_weight=WEIGHTS)
    K, C, k, n = matrix(X, *kernel, intercept), exact(3.0 * WEIGHTS), 3, 3
    # beta_ic = C_i ([c = y_i] - p_ic): the quadratic form in p, row by row
    places = [(i, c) for i in range(n) for c in range(k)]
    own = [mpf(int(LABELS[i] == c)) for i, c in places]
    Q = [[C[i] * C[j] * K[i, j] * (c == d) for j, d in places] for i, c in places]
    m = range(n * k)
    slope = [C[places[a][0]] * own[a] - sum(Q[a][b] * own[b] for b in m) for a in m]
    constant = sum(own[a] * Q[a][b] * own[b] for a in m for b in m) / 2 - C.sum()
    A = [[mpf(i == row) for i, _ in places] for row in range(n)]
    t = [mpf(1)] * n
    if intercept == "free":  # one of the sums follows from the others
        A += [[C[i] * (d == column) for i, d in places] for column in range(k - 1)]
        t += [sum(C[i] for i in range(n) if LABELS[i] == column) for column in range(k - 1)]
    optimum = -(smallest(Q, slope, A, t, [mpf("inf")] * (n * k)) + constant)
    check(model, float(optimum), rng, (X, LABELS, WEIGHTS))


@each_kernel
@each_intercept
def test_softmax(kernel, intercept, rng):
    model = KernelLogisticRegression(
        3.0,
        kernel=kernel[0],
        **kernel[1],
        intercept=intercept,
        multi_class="softmax",
        tol=1e-10,
    ).fit(X, LABELS, sample_weight=WEIGHTS)
    K, C, k, n = matrix(X, *kernel, intercept), exact(3.0 * WEIGHTS), 3, 3

    def scores(x):
        beta = np.array(x[: n * k], dtype=object).reshape(n, k)
        return beta, K.dot(beta) + (np.array([*x[n * k :], 0]) if intercept == "free" else 0)

    def shares(f):
        e = np.array([mpmath.exp(v) for v in f])
        return e / e.sum()

    def conditions(x):
        beta, f = scores(x)
        short = [
            beta[i, c] - C[i] * ((LABELS[i] == c) - shares(f[i])[c])
            for i in range(n)
            for c in range(k)
        ]
        return short + (list(beta.sum(axis=0)[: k - 1]) if intercept == "free" else [])

    start = np.zeros((n, k))
    start[model.support_] = model.dual_coef_.T
    b = model.intercept_ - model.intercept_[-1]
    start = [*start.ravel(), *(b[:-1] if intercept == "free" else [])]
    beta, f = scores(smooth_optimum(conditions, start, len(start)))
    paid = sum(-C[i] * mpmath.log(shares(f[i])[LABELS[i]]) for i in range(n))
    optimum = (beta * K.dot(beta)).sum() / 2 + paid
    check(model, float(optimum), rng, (X, LABELS, WEIGHTS))


@each_kernel
def test_one_class(kernel, rng):
    model = OneClassSVM(0.4, kernel=kernel[0], **kernel[1], tol=1e-10).fit(X, sample_weight=WEIGHTS)
    K, total = matrix(X, *kernel), float(0.4 * WEIGHTS.sum())
    optimum = quadratic_optimum(K, np.ones(3), WEIGHTS, oracle.LOSSES["one_class"](), "free", total)
    check(model, float(optimum), rng, (X, None, WEIGHTS))


HULL = np.array([[0.3, -1.2], [1.1, 0.4], [-0.7, 0.9], [0.1, 1.4]])
SIDES = np.array([-1, -1, 1, 1])


@each_kernel
@pytest.mark.parametrize("model", [NuSVC(0.7), HardMarginSVC()], ids=["nu", "hard"])
def test_hulls(kernel, model, rng):
    model.set_params(kernel=kernel[0], **kernel[1], tol=1e-10).fit(HULL, SIDES)
    caps = np.full(4, 2.0 / (0.7 * 4.0) if isinstance(model, NuSVC) else 2.0)
    K, y, n = matrix(HULL, *kernel), exact(SIDES), range(4)
    Q = [[y[i] * y[j] * K[i, j] for j in n] for i in n]
    sides = [[mpf(y[i] == s) for i in n] for s in (1, -1)]
    U = float(smallest(Q, [mpf(0)] * 4, sides, [mpf(1)] * 2, exact(caps)))
    for size in disturbed(model, rng):
        (found,) = exact_gaps(model, HULL, SIDES)
        assert -found.dual * (1 - 1e-14) <= U <= found.primal * (1 + 1e-14)
        assert found.gap >= 1 - U / found.primal - 1e-14
        assert size > 0.0 or found.gap <= 1e-9


@each_kernel
def test_tube(kernel, rng):
    model = NuSVR(0.4, 3.0, kernel=kernel[0], **kernel[1], tol=1e-10).fit(
        X, TARGETS, sample_weight=WEIGHTS
    )
    # every row above the tube and below it, each side with half of the sum
    K, C, y = matrix(X, *kernel), exact(3.0 * WEIGHTS), exact(TARGETS)
    half = mpf(0.5 * 0.4 * float((3.0 * WEIGHTS).sum()))
    places = [(i, s) for s in (1, -1) for i in range(3)]
    Q = [[s * r * K[i, j] for j, r in places] for i, s in places]
    A = [[mpf(s == side) for _, s in places] for side in (1, -1)]
    optimum = -smallest(Q, [-s * y[i] for i, s in places], A, [half] * 2, [*C, *C])
    check(model, float(optimum), rng, (X, TARGETS, WEIGHTS))
