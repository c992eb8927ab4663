"""The lists that the tests iterate: a new loss, kernel or layout is tested by being listed here."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from tests import oracle

# (name, parameters); a test asserts that every entry of the compiled tables is listed
LOSSES = [
    ("hinge", {}),
    ("squared_hinge", {}),
    ("epsilon_insensitive", {"epsilon": 0.1}),
    ("epsilon_insensitive", {"epsilon": 0.0}),
    ("squared_epsilon_insensitive", {"epsilon": 0.1}),
    ("squared_epsilon_insensitive", {"epsilon": 0.0}),
    ("logistic", {}),
    ("margin_distribution", {"theta": 0.1, "upsilon": 0.5}),
    ("margin_distribution", {"theta": 0.3, "upsilon": 2.0}),
    ("margin_distribution", {"theta": 0.2, "upsilon": 0.0}),
    ("huber", {"epsilon": 0.2}),
    ("pinball", {"quantile": 0.5}),
    ("pinball", {"quantile": 0.9}),
    ("one_class", {}),
    ("hull", {}),
]
# those whose variables keep a sum of zero; one-class problems and hulls have tests of their own
ZERO_SUM = [case for case in LOSSES if case[0] not in ("one_class", "hull")]
KERNELS = [
    ("linear", {}),
    ("rbf", {"gamma": 0.5}),
    ("poly", {"gamma": 0.4, "degree": 3, "coef0": 1.0}),
    ("poly", {"gamma": 0.7, "degree": 2, "coef0": 0.0}),
    ("sigmoid", {"gamma": 0.3, "coef0": 0.1}),
    ("laplacian", {"gamma": 0.4, "power": 1.0}),
    ("laplacian", {"gamma": 0.4, "power": 0.7}),
    ("exponential", {"gamma": 0.5, "power": 1.0}),
    ("exponential", {"gamma": 0.5, "power": 0.6}),
    ("matern32", {"gamma": 0.5}),
    ("matern52", {"gamma": 0.5}),
]
INTERCEPTS = [None, "regularized", "free"]
DTYPES = [np.float64, np.float32]


def name_of(case):
    """A readable test id for any of the cases above."""
    if isinstance(case, tuple):
        name, parameters = case
        return "-".join([name, *(f"{k}{v}" for k, v in parameters.items())])
    return getattr(case, "__name__", str(case))


def mirrored(case):
    """The loss of the targets with the other sign: the same, but for quantiles."""
    name, parameters = case
    other = {"quantile": 1.0 - parameters["quantile"]} if "quantile" in parameters else {}
    return name, {**parameters, **other}


def oracle_loss(case):
    return oracle.LOSSES[case[0]](**case[1])


def oracle_kernel(case):
    """(A, B) -> kernel values in float64."""

    def values(A, B):
        A, B = np.asarray(A, np.float64), np.asarray(B, np.float64)
        return oracle.KERNELS[case[0]](A, B, **case[1])

    return values


def _strided(X):
    """The same numbers as every second row and third column of a larger array."""
    large = np.full((2 * X.shape[0], 3 * X.shape[1]), np.nan, X.dtype)
    large[::2, ::3] = X
    return large[::2, ::3]


def _csr(X, index):
    S = sparse.csr_array(X)
    S.indices, S.indptr = S.indices.astype(index), S.indptr.astype(index)
    return S


# how the same matrix can lie in memory
LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": _strided,
    "reversed": lambda X: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "csr32": lambda X: _csr(X, np.int32),
    "csr64": lambda X: _csr(X, np.int64),
}
