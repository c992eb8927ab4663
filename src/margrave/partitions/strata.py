"""Parts that resemble the whole: equal sizes, and equal shares of each stratum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.kernels import core_rows
from margrave.partitions.base import Parts, Rows, check_count
from margrave.partitions.clusters import clustering
from margrave.problem import Data
from margrave.progress import forever

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Random:
    """Equal parts at random."""

    def split(
        self,
        data: Data,
        k: int,
        seed: int,
        among: Rows | None = None,
        y: NDArray[Any] | None = None,
        threads: int = 1,
        left: Callable[[], float] = forever,
    ) -> Parts:
        """Shuffle the rows and deal them to the parts in turn."""
        check_count(k, data.n_rows)
        return deal(np.zeros(data.n_rows, dtype=np.int64), k, seed)


@dataclass(frozen=True)
class Stratified:
    """Equal parts with equal shares of every stratum: the rows nearest to the same landmark.

    Landmarks are chosen one by one so that the determinant of their kernel matrix grows most
    (`pivots`); there are fewer if the kernel matrix has a lower rank.

    Parameters
    ----------
    landmarks : int
    """

    landmarks: int = 32

    def split(
        self,
        data: Data,
        k: int,
        seed: int,
        among: Rows | None = None,
        y: NDArray[Any] | None = None,
        threads: int = 1,
        left: Callable[[], float] = forever,
    ) -> Parts:
        """Find landmarks and strata and deal out the rows of each stratum."""
        check_count(k, data.n_rows)
        if not data.in_memory:
            raise ValueError(
                "partition='stratified' needs all rows in one array; rows in blocks or with the"
                " workers of an engine have 'random', 'kmeans' and 'dip', for example"
                " solver=MergeTree(partition='random')"
            )
        marks, _ = pivots(data, min(self.landmarks, data.n_rows), threads, left)
        squares = diagonal(data)
        apart, stratum = np.full(data.n_rows, np.inf), np.zeros(data.n_rows, dtype=np.int64)
        for number, mark in enumerate(marks):
            # k(x, x) is the same for every landmark
            distance = squares[mark] - 2.0 * column(data, int(mark), threads, left)
            stratum[distance < apart] = number
            apart = np.minimum(apart, distance)
        return deal(stratum, k, seed)


@dataclass(frozen=True)
class DistributionPreserving:
    """Equal parts with equal shares of every cluster of every class.

    Parameters
    ----------
    clusters : int
        Of each class.
    """

    clusters: int = 8

    def split(
        self,
        data: Data,
        k: int,
        seed: int,
        among: Rows | None = None,
        y: NDArray[Any] | None = None,
        threads: int = 1,
        left: Callable[[], float] = forever,
    ) -> Parts:
        """Find the clusters of each class and deal out the rows of each cluster."""
        check_count(k, data.n_rows)
        stratum = np.zeros(data.n_rows, dtype=np.int64)
        classes = [np.arange(data.n_rows)] if y is None else _groups(y)
        for number, rows in enumerate(classes):
            own = data.restrict(rows)
            clusters = clustering(data.kernel).split(
                own, min(self.clusters, len(rows)), seed, threads=threads, left=left
            )
            stratum[rows] = number * self.clusters + clusters.label
        return deal(stratum, k, seed)


def deal(stratum: Rows, k: int, seed: int) -> Parts:
    """Shuffle each stratum and deal its rows to the parts in turn, continuing across strata."""
    order = np.random.default_rng(seed).permutation(len(stratum))
    order = order[np.argsort(stratum[order], kind="stable")]
    label = np.empty(len(stratum), dtype=np.int64)
    label[order] = np.arange(len(stratum)) % k
    return Parts(label)


def pivots(
    data: Data, count: int, threads: int = 1, left: Callable[[], float] = forever
) -> tuple[Rows, Floats]:
    """Pivoted Cholesky: rows that explain the kernel matrix best, and the factor L, L L' ~ K.

        D = diag K;   j = row 0, then argmax D;   l = (K[:, j] - L L[j]') / sqrt(D_j);   D -= l^2

    The determinant of the chosen rows' kernel matrix is the product of the D_j. Ends early when
    nothing is left to explain, or no seconds are `left`.
    """
    D = diagonal(data)
    least = 1e-10 * float(D.max())
    L = np.zeros((data.n_rows, count))
    chosen: list[int] = []
    while len(chosen) < count and not (chosen and left() <= 0.0):
        pivot = int(D.argmax()) if chosen else 0
        if D[pivot] <= least:
            pivot = int(D.argmax())
            if D[pivot] <= least:
                break
        s = len(chosen)
        l_new = column(data, pivot, threads) - L[:, :s] @ L[pivot, :s]
        L[:, s] = l_new / np.sqrt(D[pivot])
        D = np.maximum(D - L[:, s] ** 2, 0.0)
        D[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen, dtype=np.int64), L[:, : len(chosen)]


def column(data: Data, row: int, threads: int = 1, left: Callable[[], float] = forever) -> Floats:
    """Kernel values of all rows with one."""
    seconds = left()
    if seconds <= 0.0:
        raise _core.Stopped
    if data.kernel.is_precomputed:
        return np.asarray(data.X[:, row], dtype=np.float64)
    point = data.X[row : row + 1]
    if data.kernel.is_callable:
        return data.kernel.evaluate(data.X, point)[:, 0]
    one = np.ones((1, 1))
    rows = core_rows(data.X), core_rows(point)
    values, _ = _core.scores(data.kernel.core(), *rows, one, "float64", threads, seconds=seconds)
    return values[:, 0]


def diagonal(data: Data) -> Floats:
    """k(x, x) of every row."""
    if data.kernel.is_precomputed:
        return np.diagonal(data.X).astype(np.float64)
    return data.kernel.diagonal(data.X)


def _groups(y: NDArray[Any]) -> list[Rows]:
    """Rows of each value of y."""
    return Parts(np.unique(y, return_inverse=True)[1].astype(np.int64)).rows
