"""Rows that do not fit into memory: a sequence of blocks, read as often as needed.

A linear machine needs no more of its rows than passes over them, so that they may come one block at
a time. (A memory-mapped array needs nothing of this: pass it as it is.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

Block = Any  # ndarray or CSR of shape (rows, n_features)
Source = Block | str | PathLike[str] | Callable[[], Block]


class RowBlocks:
    """Rows in blocks, of which one at a time is in memory.

    Takes the place of X for a linear kernel, in `fit` as in `predict`.

    Parameters
    ----------
    blocks : sequence
        Each an array, a sparse matrix, the path of an ``.npy`` file (which is memory-mapped), or a
        function without arguments that returns one of these. All have the same columns, float32 or
        float64; a function is called once per pass over the data and must always return the same.

    Attributes
    ----------
    shape : tuple of int
    sizes : list of int
        Rows of each block.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import SVC, RowBlocks
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 4))
    >>> y = X[:, 0] > 0
    >>> blocks = RowBlocks([X[:100], lambda: X[100:250], X[250:]])
    >>> blocks.shape
    (300, 4)
    >>> model = SVC(kernel="linear").fit(blocks, y)
    >>> bool((model.predict(blocks) == model.predict(X)).all())
    True
    """

    def __init__(self, blocks: Sequence[Source]) -> None:
        self._sources = list(blocks)
        if not self._sources:
            raise ValueError("RowBlocks needs at least one block")
        self.sizes: list[int] = []
        columns: set[int] = set()
        for block in self:
            self.sizes.append(int(block.shape[0]))
            columns.add(int(block.shape[1]))
        if len(columns) > 1:
            raise ValueError(f"the blocks have different numbers of columns: {sorted(columns)}")
        self.shape = (sum(self.sizes), columns.pop())

    def __iter__(self) -> Iterator[Block]:
        for number, source in enumerate(self._sources):
            yield _read(source, number)

    def check(self) -> None:
        """Raise for values that are not finite."""
        for number, block in enumerate(self):
            values = block.data if sparse.issparse(block) else block
            # the sum finds most without a copy; an overflow of the sum alone is no fault
            if not np.isfinite(values.sum(dtype=np.float64)) and not np.isfinite(values).all():
                raise ValueError(f"block {number} of X contains NaN or infinity")


def _read(source: Source, number: int) -> Block:
    block = source() if callable(source) else source
    if isinstance(block, (str, PathLike)):
        block = np.load(Path(block), mmap_mode="r", allow_pickle=False)
    if sparse.issparse(block):
        block = block.tocsr()
        if not block.has_canonical_format:
            block = block.copy()
            block.sum_duplicates()
    else:
        block = np.asarray(block)
    if block.ndim != 2:
        raise ValueError(f"block {number} of X has {block.ndim} dimensions, needs 2")
    if block.dtype not in (np.float32, np.float64):
        block = block.astype(np.float64)
    return block


def is_mapped(X: Any) -> bool:
    """Whether an array is a view of a file."""
    while X is not None:
        if isinstance(X, np.memmap):
            return True
        X = getattr(X, "base", None)
    return False


def size_in_bytes(X: Any) -> int:
    """Bytes of an array, or of the stored entries of sparse rows."""
    return int(X.data.nbytes + X.indices.nbytes if sparse.issparse(X) else X.nbytes)
