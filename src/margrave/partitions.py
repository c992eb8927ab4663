"""Partitions: rows into parts that are solved apart.

    random         every part is a sample of the whole
    kmeans         rows near each other, around centres in input space
    kernel_kmeans  rows near each other in the feature space of the kernel
    stratified     every part has its share of the surroundings of each landmark (SODM)
    dip            every part has its share of each cluster of each class (distribution preserving)

The second and third know the part of a new row, so that a part's own model can speak for it. Every
split is the same for the same seed; parts that stay empty are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from margrave import _core
from margrave.kernels import Kernel, core_rows
from margrave.problem import Data

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

_TILE = 1 << 17  # distances at a time
_ROOM = 1.3  # of a balanced part, in mean sizes
_CENTRED = ("rbf", "laplacian", "linear")  # kernels for which means of rows are good centres


class Places(Protocol):
    """Where parts are: distances from rows, up to a number that is the same for all parts."""

    def distances(self, X: Any) -> NDArray[Any]:
        """Distances of some rows, one column per part."""
        ...

    def keep(self, parts: Rows) -> Places:
        """Leave out all but these parts."""
        ...


@dataclass(frozen=True)
class Parts:
    """A split of rows.

    Parameters
    ----------
    label : int64 array
        Part of each row; every part has a row.
    places : Places or None
        Where new rows belong; None if every part is like the whole.

    Examples
    --------
    >>> parts = Parts(np.array([0, 1, 0]))
    >>> parts.sizes.tolist(), [rows.tolist() for rows in parts.rows]
    ([2, 1], [[0, 2], [1]])
    """

    label: Rows
    places: Places | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def sizes(self) -> Rows:
        """Number of rows in each part."""
        return np.bincount(self.label)

    @cached_property
    def rows(self) -> list[Rows]:
        """Rows of each part, in ascending order."""
        order = np.argsort(self.label, kind="stable")
        return np.split(order, np.cumsum(self.sizes)[:-1])

    def assign(self, X: Any, threads: int = 1) -> Rows:
        """Part of each of some new rows: the nearest."""
        if self.places is None:
            raise ValueError("these parts have no place: each is like the whole")
        return nearest(self.places, X, threads)


class Partition(Protocol):
    """A way to split rows."""

    def split(
        self,
        data: Data,
        k: int,
        seed: int,
        among: Rows | None = None,
        y: Any = None,
        threads: int = 1,
    ) -> Parts:
        """Split the rows into `k` parts or, where some would be empty, fewer.

        Centres come from the rows `among`; `y` tells classes apart.
        """
        ...


# --- parts that are like the whole ---------------------------------------------------------------


@dataclass(frozen=True)
class Random:
    """Equal parts at random."""

    def split(
        self,
        data: Data,
        k: int,
        seed: int,
        among: Rows | None = None,
        y: Any = None,
        threads: int = 1,
    ) -> Parts:
        """Deal the rows out."""
        check_count(k, data.n_rows)
        return deal(np.zeros(data.n_rows, dtype=np.int64), k, seed)


@dataclass(frozen=True)
class Stratified:
    """Equal parts with equal shares of every stratum: the rows nearest to the same landmark.

    Landmarks are the rows at which the determinant of their kernel matrix grows most, one by one
    (`pivots`); there are fewer where the kernel matrix has a lower rank.

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
        y: Any = None,
        threads: int = 1,
    ) -> Parts:
        """Find landmarks and strata and deal out the rows of each stratum."""
        check_count(k, data.n_rows)
        marks, _ = pivots(data, min(self.landmarks, data.n_rows), threads)
        squares = diagonal(data)
        apart, stratum = np.full(data.n_rows, np.inf), np.zeros(data.n_rows, dtype=np.int64)
        for number, mark in enumerate(marks):
            # k(x, x) is the same for every landmark
            distance = squares[mark] - 2.0 * column(data, int(mark), threads)
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
        y: Any = None,
        threads: int = 1,
    ) -> Parts:
        """Find the clusters of each class and deal out the rows of each cluster."""
        check_count(k, data.n_rows)
        stratum = np.zeros(data.n_rows, dtype=np.int64)
        classes = [np.arange(data.n_rows)] if y is None else _groups(y)
        for number, rows in enumerate(classes):
            own = data.restrict(rows)
            clusters = clustering(data.kernel).split(
                own, min(self.clusters, len(rows)), seed, threads=threads
            )
            stratum[rows] = number * self.clusters + clusters.label
        return deal(stratum, k, seed)


def deal(stratum: Rows, k: int, seed: int) -> Parts:
    """Shuffle every stratum and deal it round the parts, the next going on where it ended."""
    order = np.random.default_rng(seed).permutation(len(stratum))
    order = order[np.argsort(stratum[order], kind="stable")]
    label = np.empty(len(stratum), dtype=np.int64)
    label[order] = np.arange(len(stratum)) % k
    return Parts(label)


def pivots(data: Data, count: int, threads: int = 1) -> tuple[Rows, Floats]:
    """Pivoted Cholesky: rows that explain the kernel matrix best, and the factor L, L L' ~ K.

        D = diag K;   j = row 0, then argmax D;   l = (K[:, j] - L L[j]') / sqrt(D_j);   D -= l^2

    The determinant of the chosen rows' kernel matrix is the product of the D_j. Ends early when
    nothing is left to explain.
    """
    left = diagonal(data)
    least = 1e-10 * float(left.max())
    L = np.zeros((data.n_rows, count))
    chosen: list[int] = []
    while len(chosen) < count:
        pivot = int(left.argmax()) if chosen else 0
        if left[pivot] <= least:
            pivot = int(left.argmax())
            if left[pivot] <= least:
                break
        s = len(chosen)
        l_new = column(data, pivot, threads) - L[:, :s] @ L[pivot, :s]
        L[:, s] = l_new / np.sqrt(left[pivot])
        left = np.maximum(left - L[:, s] ** 2, 0.0)
        left[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen, dtype=np.int64), L[:, : len(chosen)]


# --- parts of rows near each other ---------------------------------------------------------------


@dataclass(frozen=True)
class KMeans:
    """Rows around centres in input space, by Lloyd's iteration on a sample.

    Parameters
    ----------
    balanced : bool
        Whether parts have room for no more than 1.3 times their mean size.
    sample : int
        Rows that place the centres.
    rounds : int
        Of Lloyd's iteration.
    """

    balanced: bool = False
    sample: int = 10_000
    rounds: int = 8

    def split(
        self,
        data: Data,
        k: int,
        seed: int,
        among: Rows | None = None,
        y: Any = None,
        threads: int = 1,
    ) -> Parts:
        """Place the centres and assign every row."""
        check_count(k, data.n_rows)
        if data.kernel.is_precomputed:
            raise ValueError(
                "a precomputed kernel has no rows whose means could be centres:"
                " use partition='kernel_kmeans'"
            )
        X, rng = data.X, np.random.default_rng(seed)
        sample = X[draw(rng, data.n_rows, self.sample, k, among)]
        chosen = np.sort(rng.choice(sample.shape[0], k, replace=False))
        dtype = np.float64 if _is_far(sample) else X.dtype
        places = Centres(_dense(sample[chosen]).astype(dtype))
        for _ in range(self.rounds):
            label = nearest(places, sample, threads)
            means = _means(label, k, sample)
            places = Centres(np.where(np.isnan(means), places.points, means).astype(dtype))
        return settle(places, X, k, self.balanced, threads)


@dataclass(frozen=True)
class Centres:
    """Places in input space."""

    points: NDArray[Any]

    @cached_property
    def half_squares(self) -> NDArray[Any]:
        """1/2 |centre|^2."""
        squares: NDArray[Any] = 0.5 * (self.points**2).sum(axis=1)
        return squares

    def distances(self, X: Any) -> NDArray[Any]:
        """1/2 |centre|^2 - x'centre, which differs from half the squared distance by |x|^2 / 2."""
        # the core's own products: those of NumPy leave their threads spinning beside ours
        found: NDArray[Any] = self.half_squares - Kernel("linear").values(X, self.points)
        return found

    def keep(self, parts: Rows) -> Centres:
        """Leave out all but these parts."""
        return Centres(self.points[parts])


@dataclass(frozen=True)
class KernelKMeans:
    """Rows around centres in the kernel's feature space, in two steps: a sample, then all rows.

        D(i, c) = K_ii - (2 / |M_c|) sum_{j in M_c} K_ij + (1 / |M_c|^2) sum_{j, l in M_c} K_jl

    Parameters
    ----------
    balanced : bool
        Whether parts have room for no more than 1.3 times their mean size.
    sample : int
        Rows M that place the centres.
    rounds : int
        At most, on the sample.
    """

    balanced: bool = False
    sample: int = 1000
    rounds: int = 30

    def split(
        self,
        data: Data,
        k: int,
        seed: int,
        among: Rows | None = None,
        y: Any = None,
        threads: int = 1,
    ) -> Parts:
        """Cluster the sample and assign every row."""
        check_count(k, data.n_rows)
        rng = np.random.default_rng(seed)
        rows = draw(rng, data.n_rows, self.sample, k, among)
        points = rows if data.kernel.is_precomputed else data.X[rows]
        K = data.kernel.values(data.X[rows], points)
        label = rng.permutation(np.arange(len(rows)) % k)
        for _ in range(self.rounds):
            places = KernelCentres.of(data.kernel, points, K, label, k)
            found = places.from_values(K).argmin(axis=1)
            for empty in np.setdiff1d(np.arange(k), found):  # a new start with one row
                sizes = np.bincount(found, minlength=k)
                found[rng.choice(np.flatnonzero(sizes[found] > 1))] = empty
            if np.array_equal(found, label):
                break
            label = found
        places = KernelCentres.of(data.kernel, points, K, label, k)
        return settle(places, data.X, k, self.balanced, threads)


@dataclass(frozen=True)
class KernelCentres:
    """Places in the kernel's feature space: means of the sampled rows of a part."""

    kernel: Kernel
    points: Any  # rows; of a precomputed kernel their numbers
    shares: Floats  # of each sampled row in each mean
    half_squares: Floats  # 1/2 |mean|^2

    @classmethod
    def of(cls, kernel: Kernel, points: Any, K: Floats, label: Rows, k: int) -> KernelCentres:
        """Means of labelled rows with the kernel matrix K."""
        shares = np.zeros((len(label), k))
        shares[np.arange(len(label)), label] = 1.0 / np.bincount(label, minlength=k)[label]
        half_squares = 0.5 * np.einsum("ic,ic->c", shares, K @ shares)
        return cls(kernel, points, shares, half_squares)

    def from_values(self, K: Floats) -> Floats:
        """Distances from kernel values with the sampled rows."""
        found: Floats = self.half_squares - K @ self.shares
        return found

    def distances(self, X: Any) -> Floats:
        """Half the squared distances, without K_ii / 2."""
        return self.from_values(self.kernel.values(X, self.points))

    def keep(self, parts: Rows) -> KernelCentres:
        """Leave out all but these parts."""
        shares = self.shares[:, parts]
        return KernelCentres(self.kernel, self.points, shares, self.half_squares[parts])


def settle(places: Places, X: Any, k: int, balanced: bool, threads: int) -> Parts:
    """Parts of all rows, without empty ones."""
    label = level(places, X, k, threads) if balanced else nearest(places, X, threads)
    used, label = np.unique(label, return_inverse=True)
    return Parts(label.astype(np.int64), places.keep(used))


def nearest(places: Places, X: Any, threads: int = 1) -> Rows:
    """Nearest part of every row; of equals the first."""
    found = by_tiles(places, X, lambda D, first: D.argmin(axis=1), threads)
    return found.astype(np.int64)


def level(places: Places, X: Any, k: int, threads: int = 1) -> Rows:
    """Nearest part with room: as if rows chose one after the other, the most decided first.

    Rows choose all at once; a part that is chosen too often sends the least decided away and takes
    none of these ranks any more. That ends where choosing in turn does, since all parts prefer in
    the same order.
    """
    n = X.shape[0]

    def look(D: NDArray[Any], first: int) -> NDArray[Any]:
        two = np.partition(D, 1, axis=1)[:, :2] if k > 1 else np.repeat(D, 2, axis=1)
        return np.stack([D.argmin(axis=1), two[:, 1] - two[:, 0]], axis=1)

    found = by_tiles(places, X, look, threads)
    label = found[:, 0].astype(np.int64)
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(-found[:, 1], kind="stable")] = np.arange(n)
    room = int(np.ceil(_ROOM * n / k))
    closed = np.full(k, n)  # rank from which on a part takes nobody
    while True:
        full = np.flatnonzero(np.bincount(label, minlength=k) > room)
        if len(full) == 0:
            return label
        away = []
        for part in full:
            members = np.flatnonzero(label == part)
            members = members[np.argsort(rank[members])]
            closed[part] = rank[members[room]]
            away.append(members[room:])
        rows = np.concatenate(away)

        def choose(D: NDArray[Any], first: int, ranks: Rows = rank[rows]) -> NDArray[Any]:
            barred = ranks[first : first + len(D), None] >= closed
            found: NDArray[Any] = np.where(barred, np.inf, D).argmin(axis=1)
            return found

        label[rows] = by_tiles(places, X[rows], choose, threads)


def by_tiles(
    places: Places,
    X: Any,
    use: Callable[[NDArray[Any], int], NDArray[Any]],
    threads: int = 1,
) -> NDArray[Any]:
    """Use the distances of some thousand rows at a time; `use` gets them and the first row."""
    width = max(1, places.distances(X[:1]).shape[1])
    if isinstance(places, KernelCentres):
        width, threads = max(width, len(places.shares)), 1 if places.kernel.is_callable else threads
    step = max(1, _TILE // width)
    with ThreadPoolExecutor(threads) as pool:
        tiles = pool.map(
            lambda first: use(places.distances(X[first : first + step]), first),
            range(0, X.shape[0], step),
        )
        return np.concatenate(list(tiles))


def draw(
    rng: np.random.Generator, n_rows: int, size: int, k: int, among: Rows | None = None
) -> Rows:
    """A sample of rows, all of them if there are few, from `among` if that can fill `k` parts."""
    pool = np.arange(n_rows) if among is None or len(among) < 4 * k else among
    size = min(len(pool), max(size, k))
    return pool[np.sort(rng.choice(len(pool), size, replace=False))]


# --- by name -------------------------------------------------------------------------------------

PARTITIONS: dict[str, Callable[[], Partition]] = {
    "random": Random,
    "kmeans": KMeans,
    "kernel_kmeans": KernelKMeans,
    "stratified": Stratified,
    "dip": DistributionPreserving,
}


def resolve_partition(partition: Any) -> Partition:
    """Turn a name from PARTITIONS or an object with a method split into such an object."""
    if isinstance(partition, str):
        if partition not in PARTITIONS:
            raise ValueError(
                f"unknown partition {partition!r}; known partitions: {', '.join(PARTITIONS)}"
            )
        return PARTITIONS[partition]()
    if not callable(getattr(partition, "split", None)):
        raise ValueError(f"a partition needs a method split, got {partition!r}")
    chosen: Partition = partition
    return chosen


def clustering(kernel: Kernel, sample: int | None = None) -> KMeans | KernelKMeans:
    """Clusters that fit the kernel: in input space where near rows are alike, else in its own."""
    kind = KMeans if kernel.name in _CENTRED else KernelKMeans
    return kind() if sample is None else kind(sample=sample)


def check_count(k: int, n_rows: int) -> None:
    """Raise for a number of parts that rows cannot fill."""
    if not 1 <= k <= n_rows:
        raise ValueError(f"{n_rows} rows cannot be split into {k} parts")


# --- kernel values -------------------------------------------------------------------------------


def column(data: Data, row: int, threads: int = 1) -> Floats:
    """Kernel values of all rows with one."""
    if data.kernel.is_precomputed:
        return np.asarray(data.X[:, row], dtype=np.float64)
    point = data.X[row : row + 1]
    if data.kernel.is_callable:
        return data.kernel.evaluate(data.X, point)[:, 0]
    one = np.ones((1, 1))
    return _core.scores(
        data.kernel.core(), core_rows(data.X), core_rows(point), one, "float64", threads
    )[:, 0]


def diagonal(data: Data) -> Floats:
    """k(x, x) of every row."""
    if data.kernel.is_precomputed:
        return np.diagonal(data.X).astype(np.float64)
    return data.kernel.diagonal(data.X)


def _groups(y: Any) -> list[Rows]:
    """Rows of each value of y."""
    return Parts(np.unique(y, return_inverse=True)[1].astype(np.int64)).rows


def _is_far(X: Any) -> bool:
    """Whether rows are so far from zero that single precision cannot tell them apart."""
    mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    values = (X.data if sparse.issparse(X) else X).astype(np.float64)
    square = float(mean @ mean)
    spread = float((values**2).sum()) / X.shape[0] - square
    return bool(square > 1e3 * spread)


def _dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.todense() if sparse.issparse(X) else X)


def _means(label: Rows, k: int, X: Any) -> NDArray[Any]:
    """Mean row of each label; NaN where there is none."""
    members = sparse.csr_array(
        (np.ones(len(label), dtype=X.dtype), (label, np.arange(len(label)))), shape=(k, len(label))
    )
    with np.errstate(invalid="ignore"):
        means: NDArray[Any] = _dense(members @ X) / np.bincount(label, minlength=k)[:, None]
        return means
