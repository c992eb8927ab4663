"""What the fits on all folds of a data set share: the rows and their kernel values.

A `Layout` orders the rows such that the test rows of each fold are contiguous, and the kernel
matrix consists of blocks:

    | K_11 K_12 K_13 |      fold 1 trains on the blocks 2 and 3 and is tested by K_12 and K_13,
    | K_21 K_22 K_23 |      fold 2 trains on 1 and 3, ...
    | K_31 K_32 K_33 |

Kernel rows are cached in pieces, one per block (``cpp/cache.hpp``), so that one cache serves all
folds and every setting with this kernel. If a splitter tests a row more than once, or does not
train on all rows that it does not test, splits have separate caches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from margrave import cuda
from margrave.estimators._remote import canonical
from margrave.problem import Data
from margrave.rows import AnyRows, Matrix, is_csr
from margrave.typing import MatrixLike

Rows = NDArray[np.intp]
Split = tuple[Rows, Rows]  # rows to train on, rows to test


@dataclass(frozen=True)
class Layout:
    """An order of the rows in which every test set consists of whole blocks.

    Parameters
    ----------
    order : array
        Row of X at each position.
    starts : array
        Boundaries of the blocks.
    tested_by : array
        Split that tests each block; -1 for none.
    """

    order: Rows
    starts: NDArray[np.int64]
    tested_by: Rows

    @cached_property
    def block_of(self) -> Rows:
        """Block of each position."""
        return np.repeat(np.arange(len(self.tested_by)), np.diff(self.starts))

    def trained(self, split: int) -> Rows:
        """Positions of the rows that a split trains on."""
        return np.flatnonzero(self.tested_by[self.block_of] != split)

    def blocks(self, split: int) -> Rows:
        """Blocks that a split tests."""
        return np.flatnonzero(self.tested_by == split)


def lay_out(splits: Sequence[Split], n_rows: int, labels: Rows | None) -> list[Layout | None]:
    """Layout of each split; splits share one as long as no row is tested twice.

    `labels` are the classes of the rows if a fit solves pairs of classes; then blocks are also
    divided by class. A split that does not train on all rows that it does not test gets None.
    """
    layouts: list[Layout | None] = [None] * len(splits)
    group: list[int] = []
    tested_by = np.full(n_rows, -1)

    def close() -> None:
        if group:
            layout = _layout(tested_by, labels)
            for number in group:
                layouts[number] = layout
        group.clear()
        tested_by[:] = -1

    for number, (train, test) in enumerate(splits):
        inside = np.zeros(n_rows, dtype=np.intp)
        np.add.at(inside, train, 1)
        np.add.at(inside, test, 1)
        if len(train) + len(test) != n_rows or not (inside == 1).all():
            continue
        if (tested_by[test] >= 0).any():
            close()
        tested_by[test] = number
        group.append(number)
    close()
    return layouts


def _layout(tested_by: Rows, labels: Rows | None) -> Layout:
    labels = np.zeros_like(tested_by) if labels is None else labels
    order = np.lexsort((tested_by, labels))
    change = np.diff(labels[order]).astype(bool) | np.diff(tested_by[order]).astype(bool)
    starts = np.concatenate([[0], np.flatnonzero(change) + 1, [len(order)]]).astype(np.int64)
    return Layout(order, starts, tested_by[order[starts[:-1]]])


@dataclass(frozen=True)
class SharedData(Data):
    """Data whose cached kernel rows are kept after a fit. Only one thread at a time may use it."""

    made: dict[tuple[str, float, bool], cuda.AnyKernelRows] = field(
        default_factory=dict, compare=False, repr=False
    )

    def kernel_rows(
        self,
        precision: str,
        memory: int,
        buffer: int,
        threads: int,
        offset: float = 0.0,
        cache: bool = True,
    ) -> cuda.AnyKernelRows:
        """Return the compiled source of kernel values, created on first use."""
        key = (precision, offset, cache)
        if key not in self.made:
            self.made.clear()  # frees the old cache before the new one grows
            self.made[key] = super().kernel_rows(precision, memory, buffer, threads, offset, cache)
        return self.made[key]


class Store:
    """The data and cached kernel values of the kernels that a worker used last.

    Parameters
    ----------
    X : {array-like, sparse}
        All rows.
    most : int
        Number of kernels whose values are kept.
    largest : int
        Number of rows beyond which the values do not fit into memory, and none are kept.
    """

    def __init__(self, X: MatrixLike, most: int, largest: int) -> None:
        self.X, self.most, self.largest = X, most, largest
        self.kept: OrderedDict[Hashable, SharedData] = OrderedDict()
        self.ordered: tuple[Layout, Matrix | None] | None = None

    def data(self, key: Hashable, make: Callable[[], SharedData | None]) -> SharedData | None:
        """Return the data stored under this key, creating it if necessary."""
        if key not in self.kept:
            while len(self.kept) >= self.most:
                self._forget()
            data = make()
            if data is None:
                return None
            self.kept[key] = data
        self.kept.move_to_end(key)
        return self.kept[key]

    def clear(self) -> None:
        """Free all kernel values."""
        while self.kept:
            self._forget()

    def _forget(self) -> None:
        _, data = self.kept.popitem(last=False)
        data.made.clear()  # breaks a reference cycle of Python kernels

    def rows(self, layout: Layout) -> Matrix | None:
        """All rows in the order of the layout; None if they are not a valid matrix of numbers."""
        if self.ordered is None or self.ordered[0] is not layout:
            try:
                X = check_array(self.X, accept_sparse="csr", dtype=[np.float64, np.float32])
            except (ValueError, TypeError):  # only some fits may use these rows
                X = None
            self.ordered = (layout, None if X is None else canonical(X)[layout.order])
        return self.ordered[1]


def same_rows(A: AnyRows, B: AnyRows | MatrixLike) -> bool:
    """Whether two matrices are equal."""
    if A is B:
        return True
    other: Any = B
    if not hasattr(other, "shape") or A.shape != other.shape:
        return False
    if is_csr(A) != is_csr(other):
        return False
    if is_csr(A):
        different: Any = other != A
        return bool(different.nnz == 0)
    return bool(np.array_equal(np.asarray(A), np.asarray(other)))


def growing(rows: Rows, labels: NDArray[np.intp], rng: np.random.RandomState) -> Rows:
    """An order of rows whose beginnings are samples: shuffled, but two of each class come first.

    `labels` are the classes of all rows; zeros for none.
    """
    rows = rng.permutation(rows)
    order = np.argsort(labels[rows], kind="stable")
    ordered = labels[rows][order]
    starts = np.searchsorted(ordered, np.unique(ordered))
    ends = np.append(starts[1:], len(rows))
    leading = np.concatenate([order[a : min(a + 2, b)] for a, b in zip(starts, ends, strict=True)])
    rest = np.setdiff1d(np.arange(len(rows)), leading)
    found: Rows = rows[np.concatenate([leading, rng.permutation(rest)])]
    return found
