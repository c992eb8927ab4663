"""Kernels, described by name and parameters.

    linear       x.z                              precomputed  the rows are kernel values already
    poly         (gamma x.z + coef0)^degree       sigmoid      tanh(gamma x.z + coef0)
    rbf          exp(-gamma |x - z|^2)            laplacian    exp(-(gamma |x - z|_1)^power)

and with a = gamma^(1/2) |x - z|

    exponential  exp(-a^power)                    matern32     (1 + t) exp(-t), t = 3^(1/2) a
    matern52     (1 + t + t^2/3) exp(-t), t = 5^(1/2) a

The arithmetic is compiled (``cpp/kernel.hpp``); here a kernel is a small immutable object that
can be pickled and names its compiled counterpart. A Python callable ``k(A, B) -> (len(A), len(B))``
is a kernel too, without a compiled counterpart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margrave import _core
from margrave.rows import AnyRows, Matrix, RemoteRows, blocks_of, is_csr, is_remote
from margrave.typing import SparseLike

# k(A, B) for rows A and B, of the type that the user's function expects
KernelFunction: TypeAlias = Callable[[Any, Any], ArrayLike | SparseLike]

# name -> the parameters that the kernel reads, straight from the compiled table
KERNELS: dict[str, tuple[str, ...]] = {"precomputed": (), **_core.KERNELS}

# numbers converted to float64 at a time where X is read in double precision (512 kB)
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Kernel:
    """A kernel by name (or callable), with its parameters.

    Parameters
    ----------
    name : str or callable
        One of ``KERNELS``, or a callable ``k(A, B)`` that returns the matrix of kernel values.
    gamma, degree, coef0, power : numbers
        See the formulas above; kernels ignore what they do not read.

    Examples
    --------
    >>> Kernel("rbf", gamma=0.5)
    Kernel(name='rbf', gamma=0.5, degree=3, coef0=0.0, power=1.0)
    """

    name: str | KernelFunction
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0
    power: float = 1.0

    def __post_init__(self) -> None:
        if callable(self.name):
            return
        if self.name not in KERNELS:
            raise ValueError(
                f"unknown kernel {self.name!r}; known kernels: {', '.join(sorted(KERNELS))},"
                " or a callable"
            )
        if not 0.0 <= self.gamma < math.inf:
            raise ValueError(f"gamma must be a number >= 0, got {self.gamma!r}")
        if self.degree < 0:
            raise ValueError(f"degree must be >= 0, got {self.degree!r}")
        if not math.isfinite(self.coef0):
            raise ValueError(f"coef0 must be finite, got {self.coef0!r}")
        if not 0.0 < self.power <= 1.0:
            raise ValueError(f"power must be in (0, 1], got {self.power!r}")

    @property
    def is_callable(self) -> bool:
        """True for a Python callable: tiles are computed in Python."""
        return callable(self.name)

    @property
    def is_precomputed(self) -> bool:
        """True when the rows hold kernel values, one column per training row."""
        return self.name == "precomputed"

    @property
    def is_shift_invariant(self) -> bool:
        """True for kernels that decrease with a distance, from k(x, x) = 1."""
        return self.name in _core.KERNELS and self.core().shift_invariant

    @property
    def pairing(self) -> str | None:
        """What a compiled kernel is a function of: "product", "distance" or "squares"."""
        return self.core().pairing if self.name in _core.KERNELS else None

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that the kernel reads, by name."""
        read = KERNELS[self.name] if isinstance(self.name, str) else ()
        return {name: getattr(self, name) for name in read}

    def core(self, offset: float = 0.0) -> _core.Kernel:
        """Return the compiled kernel; `offset` is added to every value (regularised intercept)."""
        if not isinstance(self.name, str):
            raise TypeError(f"the callable kernel {self.name!r} has no compiled form")
        return _core.Kernel(self.name, offset=offset, **self.numbers)

    def diagonal(self, X: Matrix) -> NDArray[np.float64]:
        """k(x, x) of every row x."""
        if self.is_precomputed:
            raise ValueError("k(x, x) of new rows is not part of a precomputed kernel matrix")
        if self.is_callable:
            return np.array(
                [self.evaluate(X[i : i + 1], X[i : i + 1])[0, 0] for i in range(X.shape[0])]
            )
        return self._rows(X).diagonal(np.arange(X.shape[0]))

    def _rows(self, X: Matrix) -> _core.KernelRows:
        return _core.KernelRows(
            core_rows(X), self.core(), None, 0.0, [0, X.shape[0]], "float64", 0, 1 << 20, 1, False
        )

    def rounding(
        self, X: Matrix
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Product and relative error of every row's values, and the square roots of k(x, x).

        The error of k(x, z) in double precision is at most product(x) product(z) + (relative(x) +
        relative(z)) abs(k(x, z)), in units of rounding times a factor for the number of features.
        Given values (precomputed, or of a callable) count as exact: the product is their size, by
        k(x, z)^2 <= k(x, x) k(z, z).
        """
        n = X.shape[0]
        if self.is_precomputed or self.is_callable:
            values = np.diagonal(np.asarray(X)) if self.is_precomputed else self.diagonal(X)
            root = np.sqrt(np.abs(np.asarray(values, dtype=np.float64)))
            return root, np.zeros(n), root
        return self._rows(X).rounding(np.arange(n))

    def bound(self, largest: float, n_features: int) -> float:
        """How large numbers in the computation of a value can be, for entries up to `largest`."""
        product = n_features * largest * largest
        read = self.numbers
        if "gamma" not in read:
            return product
        if "degree" not in read:
            return max(product, 20.0 * self.gamma * product)
        try:
            return max(product, (self.gamma * product + abs(self.coef0)) ** max(1, self.degree))
        except OverflowError:
            return math.inf

    def values(self, X: Matrix, points: Matrix) -> NDArray[np.float64]:
        """Kernel values of rows with points (numbers of training rows if precomputed)."""
        if self.is_precomputed:
            return np.asarray(X[:, points], dtype=np.float64)
        if self.is_callable:
            return self.evaluate(X, points)
        single = X.dtype == np.float32 and points.dtype == np.float32
        precision = "float32" if single else "float64"
        tile = _core.tile(self.core(), core_rows(X), core_rows(points), precision)
        values: NDArray[np.float64] = tile.astype(np.float64)
        return values

    def evaluate(self, A: Matrix, B: Matrix) -> NDArray[np.float64]:
        """Call a callable kernel and check what it returns."""
        if not callable(self.name):
            raise TypeError(f"the kernel {self.name!r} is evaluated by the compiled core")
        if 0 in (A.shape[0], B.shape[0]):
            return np.zeros((A.shape[0], B.shape[0]))
        items = A.dtype == object  # one per row, in a column
        found = self.name(A[:, 0], B[:, 0]) if items else self.name(A, B)
        values = np.ascontiguousarray(found.toarray() if is_csr(found) else found, dtype=np.float64)
        if values.shape != (A.shape[0], B.shape[0]):
            raise ValueError(
                f"the kernel function returned shape {values.shape}, expected"
                f" {(A.shape[0], B.shape[0])}"
            )
        if not np.isfinite(values).all():
            raise ValueError("the kernel function returned NaN or infinite values")
        return values


def core_rows(X: Matrix) -> _core.Rows:
    """View the rows of a dense or CSR matrix for the compiled core, without a copy."""
    if is_csr(X):
        indptr = np.ascontiguousarray(X.indptr, dtype=np.int64)
        return _core.Rows.csr(X.data, X.indices, indptr, X.shape[1])
    if X.dtype == object:  # rows for a callable kernel, whose values do not come from the core
        return _core.Rows.dense(np.zeros(X.shape))
    return _core.Rows.dense(np.asarray(X))


# the numbers of all kernels, by name: estimators have a parameter for each
NUMBERS = tuple(field.name for field in fields(Kernel) if field.name != "name")


def resolve_kernel(
    kernel: str | KernelFunction,
    gamma: str | float,
    X: AnyRows,
    sample_weight: NDArray[np.float64] | None = None,
    **numbers: float,
) -> Kernel:
    """Turn the parameters of an estimator into a Kernel; gamma becomes a number.

    ``gamma="scale"`` is 1 / (n_features * variance of all entries of X), where a weight counts
    as that many copies of its row; ``"auto"`` is 1 / n_features.
    """
    if callable(kernel) or "gamma" not in KERNELS.get(kernel, ("gamma",)):
        number = 1.0  # not read by this kernel
    elif gamma == "scale":
        variance = weighted_variance(X, sample_weight)
        number = 1.0 / (X.shape[1] * variance) if variance > 0.0 else 1.0
        if not 0.0 < number < math.inf:
            raise ValueError(
                f"gamma='scale' gives {number} because the variance of X is {variance}; "
                "scale the features"
            )
    elif gamma == "auto":
        number = 1.0 / X.shape[1]
    elif isinstance(gamma, str):
        raise ValueError(f"gamma must be 'scale', 'auto' or a number >= 0, got {gamma!r}")
    else:
        number = float(gamma)
    plain = {name: type(getattr(Kernel, name))(value) for name, value in numbers.items()}
    return Kernel(kernel, gamma=number, **plain)


def weighted_variance(X: AnyRows, weight: NDArray[np.float64] | None = None) -> float:
    """Variance of all entries of X, each row counted `weight` times, in double precision.

        mean = sum_i w_i sum_j x_ij / (d sum_i w_i),   variance likewise of (x_ij - mean)^2

    Two passes over blocks of rows: no float64 copy of X, and zeros of a sparse X stay implicit.
    """
    if is_remote(X):
        return _remote_variance(X, weight)
    n, d = X.shape
    rows = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
    total = d * math.fsum(rows)
    if not total > 0.0:
        return 0.0
    mean = math.fsum(float(np.sum(w * x)) for w, x in _entries(X, rows)) / total
    spread = math.fsum(float(np.sum(w * (x - mean) ** 2)) for w, x in _entries(X, rows))
    for at, block in blocks_of(X):
        if is_csr(block):
            implicit = d * math.fsum(rows[at]) - float(rows[at] @ np.diff(block.indptr))
            spread += implicit * mean**2
    return float(spread / total)


def _remote_variance(X: RemoteRows, weight: NDArray[np.float64] | None) -> float:
    """The same from the sums and squares of each row, which the workers sent with its place."""
    sums = np.concatenate([facts["sums"] for facts in X.facts])
    squares = np.concatenate([facts["squares"] for facts in X.facts])
    rows = np.ones(len(sums)) if weight is None else weight
    total = X.shape[1] * math.fsum(rows)
    if not total > 0.0:
        return 0.0
    mean = math.fsum(rows * sums) / total
    return max(0.0, math.fsum(rows * squares) / total - mean**2)


def _entries(
    X: AnyRows, weight: NDArray[np.float64]
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Yield (weights, stored entries of X in float64) that multiply, for blocks of rows."""
    for at, block in blocks_of(X):
        n, own = block.shape[0], weight[at]
        step = max(1, n * _CHUNK // max(block.nnz if is_csr(block) else block.size, 1))
        for first in range(0, n, step):
            rows = slice(first, min(first + step, n))
            if is_csr(block):
                ends = block.indptr[rows.start : rows.stop + 1]
                values = block.data[ends[0] : ends[-1]].astype(np.float64, copy=False)
                yield np.repeat(own[rows], np.diff(ends)), values
            else:
                yield own[rows, None], np.asarray(block[rows], dtype=np.float64)
