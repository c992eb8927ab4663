"""Types of what users pass: rows, targets, seeds.

`MatrixLike` is everything that estimators take as X, `VectorLike` as y and sample_weight. Once
checked, rows are `margrave.rows.AnyRows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from margrave.rows import Matrix, RowBlocks


class SparseLike(Protocol):
    """A matrix of scipy.sparse, of any format."""

    shape: tuple[int, ...]

    def tocsr(self) -> Any:
        """Convert to compressed rows."""
        ...


class Collection(Protocol):
    """A Dask collection: its parts are, or will be, with the workers of a cluster."""

    def to_delayed(self) -> Any:
        """Return the partitions, each as a delayed object."""
        ...


MatrixLike: TypeAlias = ArrayLike | SparseLike | Matrix | RowBlocks | Collection | Sequence[Any]
VectorLike: TypeAlias = ArrayLike | Collection | Sequence[Any]
Seed: TypeAlias = int | np.random.RandomState | None
