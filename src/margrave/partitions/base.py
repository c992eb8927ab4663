"""Parts of rows, their centres, and which part a row is nearest to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from margrave import _core, cuda
from margrave.problem import Data
from margrave.progress import forever
from margrave.resources import one_blas_thread
from margrave.rows import AnyRows, Matrix, RemoteRows, in_memory, loaded, runs_of

Rows = NDArray[np.int64]

_TILE = 1 << 20  # distances at a time: from thousands of centres, a product of matrices that pays


class Places(Protocol):
    """Centres of parts: distances of rows, up to a constant that is the same for all parts."""

    @property
    def width(self) -> int:
        """Numbers computed for the distances of one row."""
        ...

    @property
    def is_python(self) -> bool:
        """Whether they are computed by a Python function, which holds the interpreter's lock."""
        ...

    def distances(self, X: Matrix) -> NDArray[Any]:
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
        Assigns new rows to parts; None if every part resembles the whole.

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
        few = len(self) <= np.iinfo(np.uint16).max  # sorted by digits
        label = self.label.astype(np.uint16) if few else self.label
        order = np.argsort(label, kind="stable")
        return np.split(order, np.cumsum(self.sizes)[:-1])

    def assign(self, X: AnyRows, threads: int = 1) -> Rows:
        """Part of each of some new rows: the nearest."""
        if self.places is None:
            raise ValueError("these parts have no centres: each resembles the whole")
        return nearest(self.places, X, threads)


@runtime_checkable
class Partition(Protocol):
    """A way to split rows."""

    def split(
        self,
        data: Data,
        k: int,
        seed: int,
        among: Rows | None = None,
        y: NDArray[Any] | None = None,
        threads: int = 1,
    ) -> Parts:
        """Split the rows into `k` parts or, where some would be empty, fewer.

        Centres come from the rows `among`; `y` are classes. Every part has a row. Partitions of
        this package also take `left`, a function that returns the seconds left, and raise
        ``_core.Stopped`` at zero.
        """
        ...


def check_count(k: int, n_rows: int) -> None:
    """Raise for a number of parts that rows cannot fill."""
    if not 1 <= k <= n_rows:
        raise ValueError(f"{n_rows} rows cannot be split into {k} parts")


@runtime_checkable
class CardPlaces(Protocol):
    """Places whose distances a graphics card can compute."""

    def nearest_on(self, device: cuda.Device, X: Matrix) -> Rows:
        """Nearest part of each row."""
        ...


def nearest(
    places: Places,
    X: AnyRows,
    threads: int = 1,
    left: Callable[[], float] = forever,
    device: cuda.Device | None = None,
) -> Rows:
    """Nearest part of every row; of equals the first."""
    if device is not None and in_memory(X) and isinstance(places, CardPlaces):
        return places.nearest_on(device, X)
    found = by_tiles(places, X, lambda D, first: D.argmin(axis=1), threads, left)
    return found.astype(np.int64)


def by_tiles(
    places: Places,
    X: AnyRows,
    use: Callable[[NDArray[Any], int], NDArray[Any]],
    threads: int = 1,
    left: Callable[[], float] = forever,
) -> NDArray[Any]:
    """Use the distances of some thousand rows at a time; `use` gets them and the first row."""
    step = max(1, _TILE // max(1, places.width))
    found: list[NDArray[Any]] = []

    def tile(rows: Matrix | RemoteRows, begin: int, first: int) -> NDArray[Any]:
        if left() <= 0.0:
            raise _core.Stopped
        return use(places.distances(loaded(rows[first : first + step])), begin + first)

    with one_blas_thread(), ThreadPoolExecutor(1 if places.is_python else threads) as pool:
        for begin, rows in runs_of(X, step):
            found += pool.map(partial(tile, rows, begin), range(0, rows.shape[0], step))
    return np.concatenate(found)
