"""Clusters: parts of rows near each other, to which new rows can be assigned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from margrave import cuda
from margrave.kernels import Kernel
from margrave.partitions.base import Parts, Places, Rows, by_tiles, check_count, nearest
from margrave.problem import Data
from margrave.progress import forever
from margrave.rows import AnyRows, Matrix, in_blocks, is_csr, sample_rows

Floats = NDArray[np.float64]

_ROOM = 1.3  # largest size of a balanced part, in mean sizes
_SAMPLE = 10_000  # rows from which centres are computed, at least
_PER_PART = 16  # and per part: of 10,000 for 4,096 parts, the largest part had five mean sizes


@dataclass(frozen=True)
class KMeans:
    """Rows around centres in input space, by Lloyd's iteration on a sample.

    Parameters
    ----------
    balanced : bool
        Whether to limit parts to 1.3 times their mean size.
    sample : int, optional
        Number of rows from which the centres are computed; by default 10,000, or 16 per part.
    rounds : int
        Of Lloyd's iteration.
    """

    balanced: bool = False
    sample: int | None = None
    rounds: int = 8

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
        """Place the centres and assign every row."""
        check_count(k, data.n_rows)
        if data.kernel.is_precomputed:
            raise ValueError(
                "a precomputed kernel has no rows whose means could be centres:"
                " use partition='kernel_kmeans'"
            )
        data.upload()
        X, rng = data.X, np.random.default_rng(seed)
        size = max(_SAMPLE, _PER_PART * k) if self.sample is None else self.sample
        sample = sample_rows(X, draw(rng, data.n_rows, size, k, among))
        chosen = np.sort(rng.choice(sample.shape[0], k, replace=False))
        dtype = np.float64 if _is_far(sample) else X.dtype
        places = Centres(_dense(sample[chosen]).astype(dtype))
        for _ in range(self.rounds):
            label = nearest(places, sample, threads, left, data.device)
            means = _means(label, k, sample)
            places = Centres(np.where(np.isnan(means), places.points, means).astype(dtype))
        return settle(places, X, k, self.balanced, threads, left, data.device)


@dataclass(frozen=True)
class Centres:
    """Places in input space."""

    points: NDArray[Any]
    is_python = False

    @property
    def width(self) -> int:
        """Numbers that the distances of one row take to compute."""
        return len(self.points)

    @cached_property
    def half_squares(self) -> NDArray[Any]:
        """1/2 |centre|^2."""
        squares: NDArray[Any] = 0.5 * (self.points**2).sum(axis=1)
        return squares

    def distances(self, X: Matrix) -> NDArray[Any]:
        """1/2 |centre|^2 - x'centre, which differs from half the squared distance by |x|^2 / 2."""
        found: NDArray[Any] = (
            Kernel("linear").values(X, self.points) if is_csr(X) else np.asarray(X) @ self.points.T
        )
        np.subtract(self.half_squares, found, out=found)
        return found

    def nearest_on(self, device: cuda.Device, X: Matrix) -> Rows:
        """Nearest centre of each row, found by a graphics card."""
        return cuda.nearest_centres(device, X, self.points)

    def keep(self, parts: Rows) -> Centres:
        """Leave out all but these parts."""
        return Centres(self.points[parts])


@dataclass(frozen=True)
class KernelKMeans:
    """Rows around centres in the kernel's feature space, in two steps: a sample, then all rows.

    The distance of row i from the centre of the sampled rows M_c is::

        D(i, c) = K_ii - (2 / |M_c|) sum_{j in M_c} K_ij + (1 / |M_c|^2) sum_{j, l in M_c} K_jl

    Parameters
    ----------
    balanced : bool
        Whether to limit parts to 1.3 times their mean size.
    sample : int
        Number of rows M from which the centres are computed.
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
        y: NDArray[Any] | None = None,
        threads: int = 1,
        left: Callable[[], float] = forever,
    ) -> Parts:
        """Cluster the sample and assign every row."""
        check_count(k, data.n_rows)
        rng = np.random.default_rng(seed)
        rows = draw(rng, data.n_rows, self.sample, k, among)
        some = sample_rows(data.X, rows)
        points = rows if data.kernel.is_precomputed else some
        K = data.kernel.values(some, points)
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
        return settle(places, data.X, k, self.balanced, threads, left)


@dataclass(frozen=True)
class KernelCentres:
    """Places in the kernel's feature space: means of the sampled rows of a part."""

    kernel: Kernel
    points: Matrix  # rows; of a precomputed kernel their numbers
    shares: Floats  # weight of each sampled row in each mean
    half_squares: Floats  # 1/2 |mean|^2

    @property
    def width(self) -> int:
        """Numbers that the distances of one row take to compute."""
        return int(max(self.shares.shape))

    @property
    def is_python(self) -> bool:
        """Whether they are computed by a Python function, which holds the interpreter's lock."""
        return self.kernel.is_callable

    @classmethod
    def of(cls, kernel: Kernel, points: Matrix, K: Floats, label: Rows, k: int) -> KernelCentres:
        """Means of labelled rows with the kernel matrix K."""
        shares = np.zeros((len(label), k))
        shares[np.arange(len(label)), label] = 1.0 / np.bincount(label, minlength=k)[label]
        half_squares = 0.5 * np.einsum("ic,ic->c", shares, K @ shares)
        return cls(kernel, points, shares, half_squares)

    def from_values(self, K: Floats) -> Floats:
        """Distances from kernel values with the sampled rows."""
        found: Floats = self.half_squares - K @ self.shares
        return found

    def distances(self, X: Matrix) -> Floats:
        """Half the squared distances, without K_ii / 2."""
        return self.from_values(self.kernel.values(X, self.points))

    def keep(self, parts: Rows) -> KernelCentres:
        """Leave out all but these parts."""
        shares = self.shares[:, parts]
        return KernelCentres(self.kernel, self.points, shares, self.half_squares[parts])


def settle(
    places: Places,
    X: AnyRows,
    k: int,
    balanced: bool,
    threads: int,
    left: Callable[[], float],
    device: cuda.Device | None = None,
) -> Parts:
    """Parts of all rows, without empty ones."""
    if balanced:
        label = level(places, X, k, threads, left)
    else:
        label = nearest(places, X, threads, left, device)
    is_used = np.bincount(label, minlength=k) > 0
    label = (np.cumsum(is_used) - 1)[label]
    return Parts(label.astype(np.int64), places.keep(np.flatnonzero(is_used)))


def level(
    places: Places,
    X: AnyRows,
    k: int,
    threads: int = 1,
    left: Callable[[], float] = forever,
) -> Rows:
    """Nearest part with room, assigned greedily, rows with the clearest preference first.

    All rows choose at once; an overfull part rejects the rows with the weakest preference and is
    closed to their ranks from then on. The result is that of choosing in turn, since all parts rank
    the rows in the same order.
    """
    n = X.shape[0]

    def look(D: NDArray[Any], first: int) -> NDArray[Any]:
        two = np.partition(D, 1, axis=1)[:, :2] if k > 1 else np.repeat(D, 2, axis=1)
        return np.stack([D.argmin(axis=1), two[:, 1] - two[:, 0]], axis=1)

    found = by_tiles(places, X, look, threads, left)
    label = found[:, 0].astype(np.int64)
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(-found[:, 1], kind="stable")] = np.arange(n)
    room = int(np.ceil(_ROOM * n / k))
    closed = np.full(k, n)  # rank from which a part accepts no row
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

        own = sample_rows(X, rows) if in_blocks(X) else X[rows]
        label[rows] = by_tiles(places, own, choose, threads, left)


def draw(
    rng: np.random.Generator, n_rows: int, size: int, k: int, among: Rows | None = None
) -> Rows:
    """A sample of rows, all of them if there are few, from `among` if that can fill `k` parts."""
    pool = np.arange(n_rows) if among is None or len(among) < 4 * k else among
    size = min(len(pool), max(size, k))
    return pool[np.sort(rng.choice(len(pool), size, replace=False))]


def clustering(kernel: Kernel, sample: int | None = None) -> KMeans | KernelKMeans:
    """Clusters that suit the kernel: in input space if it is local or linear, else in its own."""
    is_centred = kernel.is_shift_invariant or kernel.name == "linear"  # by the means of rows
    kind = KMeans if is_centred else KernelKMeans
    return kind() if sample is None else kind(sample=sample)


def _is_far(X: Matrix) -> bool:
    """Whether rows are so far from zero that they coincide in single precision."""
    mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    values = (X.data if is_csr(X) else np.asarray(X)).astype(np.float64)
    square = float(mean @ mean)
    spread = float((values**2).sum()) / X.shape[0] - square
    return bool(square > 1e3 * spread)


def _dense(X: Matrix) -> NDArray[Any]:
    return X.toarray() if is_csr(X) else np.asarray(X)


def _means(label: Rows, k: int, X: Matrix) -> NDArray[Any]:
    """Mean row of each label; NaN where there is none."""
    members = sparse.csr_array(
        (np.ones(len(label), dtype=X.dtype), (label, np.arange(len(label)))), shape=(k, len(label))
    )
    with np.errstate(invalid="ignore"):
        means: NDArray[Any] = _dense(members @ X) / np.bincount(label, minlength=k)[:, None]
        return means
