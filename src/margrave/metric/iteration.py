"""One step of learning a metric M: from a machine's gradients to the next metric.

A machine f(x) = sum_j beta_j k(x, x_j) on rows A x, where M = A'A, has the gradient

    grad f(x) = A' g(A x),        g(z) = sum_j beta_j d k(z, z_j) / d z

and the next metric is the mean of grad f grad f' over rows, summed over outputs:

    M = A' E[g g'] A       full        (the mean outer product of gradients)
    M = its diagonal       diagonal    (for |x - z|_1: feature weights A, their squares M)

scaled to a largest diagonal entry of one. A is the symmetric root of M.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from margrave import _core
from margrave.estimators._base import KernelEstimator
from margrave.kernels import core_rows
from margrave.resources import thread_count
from margrave.rows import Matrix, is_csr

Floats = NDArray[np.float64]

_PAIRS = 4000  # of rows whose median distance sets gamma
_BLOCK = 16 << 20  # bytes of gradients at a time
_WORK = 2e10  # pairs of rows times features times outputs, of which a step has at most so many
_PATIENCE = 2  # scores in a row below the best, after which a metric has collapsed
_FEWEST = 100  # rows with a gradient, however much work they are


def transformed(X: Matrix, root: Floats) -> Matrix:
    """The rows A x; a root of one dimension is the diagonal of A."""
    factor: Any = root.astype(X.dtype)
    if root.ndim == 2:
        product: Matrix = X @ factor
        return product
    scaled: Matrix = X @ sparse.diags_array(factor) if is_csr(X) else np.asarray(X) * factor
    return scaled


def typical_distance(X: Matrix, pairing: str, rng: np.random.RandomState) -> float:
    """Median of |x - z|_1 ("distance") or |x - z|^2 ("squares") over pairs of different rows."""
    first, second = rng.randint(X.shape[0], size=(2, _PAIRS))
    apart = X[first] - X[second]
    sizes = (
        abs(apart) if pairing == "distance" else apart.multiply(apart) if is_csr(X) else apart**2
    )
    distances = np.asarray(sizes.sum(axis=1), dtype=np.float64).ravel()
    distances = distances[distances > 0.0]
    return float(np.median(distances)) if len(distances) else 1.0


def next_root(
    root: Floats,
    model: KernelEstimator,
    X: Matrix,
    weight: Floats,
    is_full: bool,
    left: Callable[[], float],
) -> Floats | None:
    """The root of the next metric; None if all gradients are zero.

    `model` was fitted to rows transformed by `root`, and X are such rows, with their weights.
    Raises ``_core.Stopped`` when no time is `left`.
    """
    moment = second_moment(model, X, weight, is_full, left)
    if not is_full:
        scale = np.diagonal(root) if root.ndim == 2 else root
        return _scaled(scale * np.sqrt(moment))
    metric = moment * np.outer(root, root) if root.ndim == 1 else root.T @ moment @ root
    values, vectors = np.linalg.eigh(0.5 * (metric + metric.T))
    return _scaled((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def _scaled(root: Floats) -> Floats | None:
    """Scale A such that the largest diagonal entry of M = A'A is one."""
    squares = root**2 if root.ndim == 1 else (root**2).sum(axis=0)
    largest = float(np.sqrt(squares.max(initial=0.0)))
    return root / largest if 0.0 < largest < np.inf else None


def second_moment(
    model: KernelEstimator,
    X: Matrix,
    weight: Floats,
    is_full: bool,
    left: Callable[[], float],
) -> Floats:
    """Mean of g g' (or of its diagonal) over rows X, as many as are worth their time."""
    coef = np.ascontiguousarray(np.stack(model._coefficients(), axis=1))
    points, kernel, d = model.support_vectors_, model._kernel.core(), X.shape[1]
    moment = np.zeros((d, d) if is_full else d)
    if points.shape[0] == 0 or not weight.any():
        return moment
    size = points.shape[0] * d * coef.shape[1]
    most = max(_FEWEST, int(_WORK / size))
    X, weight = X[:most], weight[:most]
    dense = _dense(points)
    step = max(32, _BLOCK // (8 * d * coef.shape[1]))
    for first in range(0, X.shape[0], step):
        rows = slice(first, min(first + step, X.shape[0]))
        found = _core.gradients(
            *(kernel, core_rows(_dense(X[rows])), core_rows(dense), coef),
            *(model._precision, thread_count(model.n_jobs)),
            seconds=left(),
        )
        if is_full:
            weighted = found * weight[rows, None, None]
            moment += np.tensordot(weighted, found, axes=([0, 1], [0, 1]))
        else:
            moment += np.einsum("imk,imk,i->k", found, found, weight[rows])
    found_moment: Floats = moment / weight.sum()
    return found_moment


def _dense(X: Matrix) -> NDArray[np.floating]:
    rows: NDArray[np.floating] = X.toarray() if is_csr(X) else np.asarray(X)
    return rows


@dataclass(frozen=True)
class Sample:
    """Rows with their targets and weights."""

    X: Matrix
    y: NDArray[Any]
    weight: Floats


@dataclass(frozen=True)
class Iterate:
    """A metric, the machine that was fitted with it, and that machine's score on other rows."""

    root: Floats
    model: KernelEstimator
    score: float
    seconds: float


Score = Callable[[KernelEstimator, Sample], float]


@dataclass(frozen=True)
class Trials:
    """Fits with one metric or another, and what they are scored on.

    gamma is `multiple` / the typical distance in each metric, so that its scale does not matter.
    """

    train: Sample
    validation: Sample
    score: Score
    multiple: float
    rng: np.random.RandomState
    left: Callable[[], float]  # seconds

    def measure(self, machine: KernelEstimator, root: Floats) -> Iterate:
        """Fit a machine to the rows in the metric with this root."""
        begin = time.perf_counter()
        X = transformed(self.train.X, root)
        pairing = str(_core.Kernel(machine.kernel).pairing)
        gamma = self.multiple / typical_distance(X, pairing, self.rng)
        model = clone(machine).set_params(gamma=gamma)
        model.fit(X, self.train.y, sample_weight=self.train.weight)
        other = replace(self.validation, X=transformed(self.validation.X, root))
        return Iterate(root, model, self.score(model, other), time.perf_counter() - begin)

    def improve(self, first: Iterate, is_full: bool, most: int) -> Iterator[Iterate]:
        """Go from metric to metric, until the score was below its best twice in a row."""
        now, best, behind = first, first.score, 0
        for _ in range(most):
            X = transformed(self.train.X, now.root)
            try:
                root = next_root(now.root, now.model, X, self.train.weight, is_full, self.left)
            except _core.Stopped:
                return
            if root is None or self.left() <= 0.0:
                return
            now = self.measure(first.model, root)
            yield now
            behind = 0 if now.score > best else behind + 1
            best = max(best, now.score)
            if behind == _PATIENCE:
                return
