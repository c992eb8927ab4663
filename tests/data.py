"""The data sets behind the golden numbers: float64, deterministic, nothing is downloaded."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from sklearn import datasets

GOLDEN = Path(__file__).parent / "golden"


def standardized(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


def iris():
    """Raw; +1 = setosa."""
    d = datasets.load_iris()
    return d.data, np.where(d.target == 0, 1.0, -1.0)


def iris12():
    """Standardised versicolor (-1) and virginica (+1)."""
    d = datasets.load_iris()
    keep = d.target > 0
    return standardized(d.data[keep]), np.where(d.target[keep] == 2, 1.0, -1.0)


def iris3():
    """Standardised; the three classes as numbers."""
    d = datasets.load_iris()
    return standardized(d.data), d.target


def breast_cancer():
    """Standardised; +1 = benign."""
    d = datasets.load_breast_cancer()
    return standardized(d.data), np.where(d.target == 1, 1.0, -1.0)


def moons400():
    table = np.loadtxt(GOLDEN / "moons400.csv", delimiter=",", comments="#")
    return table[:, :2].copy(), table[:, 2].copy()


def moons200(n=200, seed=20240229, noise=0.2):
    rng = np.random.default_rng(seed)
    half = n // 2
    t = rng.uniform(0.0, np.pi, size=n)
    noise = rng.normal(0.0, noise, size=(n, 2))
    X = np.empty((n, 2))
    X[:half, 0], X[:half, 1] = np.cos(t[:half]), np.sin(t[:half])
    X[half:, 0], X[half:, 1] = 1.0 - np.cos(t[half:]), 0.5 - np.sin(t[half:])
    return X + noise, np.r_[-np.ones(half), np.ones(n - half)]


def diabetes():
    """Columns and target standardised."""
    d = datasets.load_diabetes()
    return standardized(d.data), (d.target - d.target.mean()) / d.target.std()


def wide(n=60, d=800, seed=20260101):
    """Rows that are nearly orthogonal: there tanh(gamma x.z + coef0) is positive definite."""
    rng = np.random.default_rng(seed)
    X = 2.0 * rng.standard_normal((n, d)) / np.sqrt(d)
    signal = 3.0 * X[:, :20].sum(axis=1) + 0.5 * rng.standard_normal(n)
    return X, np.where(signal > 0, 1.0, -1.0)


SETS = {
    "iris": iris,
    "iris12": iris12,
    "iris3": iris3,
    "bc": breast_cancer,
    "breast": breast_cancer,
    "moons": moons400,
    "moons200": moons200,
    "diabetes": diabetes,
    "wide": wide,
}


@cache
def load(name):
    """(X, y), read-only so that no test can spoil it for the next one."""
    X, y = SETS[name]()
    X, y = np.ascontiguousarray(X), np.ascontiguousarray(y)
    X.flags.writeable = y.flags.writeable = False
    return X, y
