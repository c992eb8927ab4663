"""Rows wherever they are: in memory, in blocks, or with the workers of an engine.

`Matrix` is what an array and a CSR matrix have in common. `RowBlocks` is a sequence of blocks, read
as often as needed: a linear model only needs passes over its rows, one block at a time, and so do
an early model of clusters and every prediction. (A memory-mapped array does not need this: pass it
as it is.) `RemoteRows` records where each row is; engines send rows to the block that needs them.

Only this module distinguishes the three. Others ask `in_memory`, `is_remote` or `in_blocks`, or use
a function that works for all: `blocks_of`, `runs_of`, `sample_rows`, `row_range`, `boundaries`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Places = NDArray[np.int64]


class Matrix(Protocol):
    """Rows in memory: an ndarray or a CSR matrix of shape (rows, n_features)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the entries."""
        ...

    @property
    def size(self) -> int:
        """Number of (stored) entries."""
        ...

    @property
    def T(self) -> Any:
        """The transpose."""
        ...

    def mean(self, axis: int, dtype: Any) -> Any:
        """Mean over the rows (axis 0) or the columns."""
        ...

    def __getitem__(self, rows: Any, /) -> Any: ...

    def __matmul__(self, other: Any, /) -> Any: ...

    def astype(self, dtype: Any, /) -> Any:
        """Convert the entries."""
        ...


class CSR(Matrix, Protocol):
    """Sparse rows, compressed."""

    data: NDArray[Any]
    indices: NDArray[np.integer[Any]]
    indptr: NDArray[np.integer[Any]]
    nnz: int
    has_canonical_format: bool

    def copy(self) -> CSR:
        """Copy the rows."""
        ...

    def sum_duplicates(self) -> None:
        """Sort the entries of each row and add up those of the same column."""
        ...

    def multiply(self, other: NDArray[Any]) -> Any:
        """Multiply entry by entry."""
        ...

    def toarray(self) -> NDArray[Any]:
        """Make a dense array."""
        ...


Source: TypeAlias = "Matrix | str | PathLike[str] | Callable[[], Matrix | str | PathLike[str]]"
AnyRows: TypeAlias = "Matrix | RowBlocks | RemoteRows"


def is_csr(X: object) -> TypeIs[CSR]:
    """Whether rows are compressed."""
    return bool(sparse.issparse(X))


class RowBlocks:
    """Rows in blocks, of which one at a time is in memory.

    Takes the place of X in predictions, and in `fit` for a linear kernel, or for any kernel with
    ``solver=DivideAndConquer(early=...)``.

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
    dtype : dtype
        That of all rows in one array.
    is_sparse : bool
    nbytes : int
        Of all blocks.

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
        self.nbytes, self.is_sparse = 0, False
        columns: set[int] = set()
        types: set[np.dtype[Any]] = set()
        for number, source in enumerate(self._sources):
            block = _read(source, number)
            self.sizes.append(int(block.shape[0]))
            columns.add(int(block.shape[1]))
            types.add(block.dtype)
            self.nbytes += size_in_bytes(block)
            self.is_sparse |= is_csr(block)
        if len(columns) > 1:
            raise ValueError(f"the blocks have different numbers of columns: {sorted(columns)}")
        self.shape = (sum(self.sizes), columns.pop())
        self.dtype = np.result_type(*types)

    def __iter__(self) -> Iterator[Matrix]:
        return map(self.read, range(len(self._sources)))

    def read(self, number: int) -> Matrix:
        """Bring one block into memory."""
        block = _read(self._sources[number], number)
        self._check_shape(number, block.shape)
        return block

    def _check_shape(self, number: int, shape: tuple[int, ...]) -> None:
        """Raise for a block that is not as large as when it was first read."""
        if shape != (self.sizes[number], self.shape[1]):
            raise ValueError(
                f"block {number} of X had {self.sizes[number]} rows and {self.shape[1]} columns"
                f" when it was first read, and now has {shape[0]} and {shape[1]}"
            )

    def between(self, first: int, last: int) -> RowBlocks:
        """Whole blocks: those of the rows from `first` up to `last`."""
        starts = np.cumsum([0, *self.sizes])
        a, b = np.searchsorted(starts, [first, last])
        part = RowBlocks(self._sources[a:b])
        for number, size in enumerate(part.sizes, int(a)):
            self._check_shape(number, (size, part.shape[1]))
        return part

    def check(self) -> None:
        """Raise for values that are not finite."""
        for number, block in enumerate(self):
            values = block.data if is_csr(block) else np.asarray(block)
            # the sum detects them without a copy; it may also overflow, which is not an error
            if not np.isfinite(values.sum(dtype=np.float64)) and not np.isfinite(values).all():
                raise ValueError(f"block {number} of X contains NaN or infinity")


def _read(source: Source, number: int) -> Matrix:
    block: Any = source() if callable(source) else source
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
    rows: Matrix = block
    return rows


def is_mapped(X: AnyRows | None) -> bool:
    """Whether an array is a view of a file."""
    base: Any = X
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


def size_in_bytes(X: AnyRows) -> int:
    """Bytes of an array, or of the stored entries of sparse rows."""
    if is_csr(X):
        return int(X.data.nbytes + X.indices.nbytes)
    return X.nbytes if is_remote(X) or in_blocks(X) else int(np.asarray(X).nbytes)


class Piece(ABC):
    """Contiguous rows in one place: what is known about them without loading them."""

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        is_sparse: bool,
        nbytes: int,
        digest: str,
    ) -> None:
        self.shape, self.dtype, self.is_sparse, self.nbytes = shape, dtype, is_sparse, nbytes
        self.digest = digest

    @abstractmethod
    def take(self, places: Places) -> Matrix:
        """Bring some of the rows here, in this order."""


class LocalPiece(Piece):
    """Rows of an array, or of a CSR matrix, of this process."""

    def __init__(self, rows: Matrix) -> None:
        super().__init__(*outline(rows))
        self.rows = rows

    def take(self, places: Places) -> Matrix:
        """Copy some of the rows."""
        some: Matrix = self.rows[places]
        return some


class RemoteRows:
    """Rows in pieces in other processes, and where each of them is.

    A selection of rows is again `RemoteRows`: rows are only sent when a block is built from them.

    Parameters
    ----------
    pieces : list of Piece
    piece, place : int64 arrays of shape (n,)
        Piece that each row is in, and its number there.
    facts : list of dict
        More about each piece: its "largest" entry, and "sums" and "squares" of each row.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(10.0).reshape(5, 2)
    >>> rows = RemoteRows.of([LocalPiece(X[:3]), LocalPiece(X[3:])])
    >>> rows.shape, rows[np.array([4, 0])].load().tolist()
    ((5, 2), [[8.0, 9.0], [0.0, 1.0]])
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        piece: Places,
        place: Places,
        facts: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.pieces, self.piece, self.place, self.facts = pieces, piece, place, list(facts)
        # a piece without rows often has a default type: ignore it
        nonempty = [one for one in pieces if one.shape[0]] or list(pieces)
        self.dtype = np.result_type(*[one.dtype for one in nonempty])
        self.is_sparse = any(one.is_sparse for one in nonempty)

    @classmethod
    def of(
        cls,
        pieces: Sequence[Piece],
        facts: Sequence[Mapping[str, Any]] = (),
        noun: str = "partition",
    ) -> RemoteRows:
        """All rows of the pieces, in order; the `noun` is what errors call a piece."""
        if not pieces:
            raise ValueError(f"X needs at least one {noun}")
        for number, one in enumerate(pieces):
            if one.shape[1] != pieces[0].shape[1]:
                raise ValueError(
                    f"{noun} 0 of X has {pieces[0].shape[1]} columns,"
                    f" {noun} {number} has {one.shape[1]}"
                )
        sizes = np.array([one.shape[0] for one in pieces], dtype=np.int64)
        piece = np.repeat(np.arange(len(pieces)), sizes)
        place = np.arange(len(piece)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return cls(pieces, piece, place, facts)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.piece), self.pieces[0].shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes, estimated from the average size of a row of the pieces."""
        total = sum(one.shape[0] for one in self.pieces)
        return len(self.piece) * sum(one.nbytes for one in self.pieces) // max(1, total)

    @property
    def largest(self) -> float:
        """Largest absolute value of an entry."""
        return max(float(facts["largest"]) for facts in self.facts)

    def __len__(self) -> int:
        return len(self.piece)

    def __getitem__(self, rows: Places | slice | NDArray[np.bool_]) -> RemoteRows:
        return RemoteRows(self.pieces, self.piece[rows], self.place[rows], self.facts)

    def by_piece(self) -> list[tuple[int, Places]]:
        """Pieces that hold any of the rows, each with the positions of its rows, ascending."""
        order = np.argsort(self.piece, kind="stable")
        numbers, starts = np.unique(self.piece[order], return_index=True)
        positions = np.split(order, starts[1:]) if len(numbers) else []
        return [(int(n), at) for n, at in zip(numbers, positions, strict=True)]

    def load(self) -> Matrix:
        """Bring the rows here, as one array or CSR matrix."""
        parts = [
            (positions, self.pieces[number].take(self.place[positions]))
            for number, positions in self.by_piece()
        ]
        return assemble(parts, self.shape, self.dtype, self.is_sparse)


def assemble(
    parts: Iterable[tuple[Places, Matrix]],
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    is_sparse: bool,
) -> Matrix:
    """Make one array, or one CSR matrix, of parts with the positions of their rows.

    Examples
    --------
    >>> parts = [(np.array([2]), np.ones((1, 2))), (np.array([0, 1]), np.zeros((2, 2)))]
    >>> assemble(parts, (3, 2), np.dtype(float), False)[:, 0].tolist()
    [0.0, 0.0, 1.0]
    """
    if not is_sparse:
        whole = np.empty(shape, dtype)
        for positions, rows in parts:
            whole[positions] = rows.toarray() if is_csr(rows) else rows
        return whole
    parts = list(parts)
    if not parts:
        empty: Matrix = sparse.csr_matrix(shape, dtype=dtype)
        return empty
    stacked = sparse.vstack([sparse.csr_matrix(rows) for _, rows in parts], "csr", dtype)
    found: Matrix = stacked[np.argsort(np.concatenate([positions for positions, _ in parts]))]
    return found


Outline: TypeAlias = "tuple[tuple[int, int], np.dtype[Any], bool, int, str]"


def outline(rows: Matrix) -> Outline:
    """Shape, type, whether sparse, bytes and digest of rows, the arguments of a `Piece`."""
    n_rows, n_columns = rows.shape
    return (n_rows, n_columns), rows.dtype, is_csr(rows), size_in_bytes(rows), digest_of(rows)


def digest_of(rows: Matrix) -> str:
    """A digest of every entry.

    Examples
    --------
    >>> digest_of(np.zeros((2, 1))) == digest_of(np.zeros((1, 2)))
    False
    """
    digest = hashlib.blake2b(f"{rows.shape} {rows.dtype}".encode(), digest_size=16)
    entries: Any = rows
    for array in (rows.indptr, rows.indices, rows.data) if is_csr(rows) else (entries,):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def digests_of(X: AnyRows, step: int) -> list[tuple[int, str]]:
    """Digests of all rows: of so many rows, or of a piece, at a time, with where each one ends.

    Examples
    --------
    >>> [end for end, _ in digests_of(np.zeros((5, 1)), 2)]
    [2, 4, 5]
    """
    if isinstance(X, RemoteRows):  # from where they are; which of them, in which order, adds to it
        found = []
        for end, at in _runs_of_pieces(X):
            places = np.ascontiguousarray(X.place[at])
            digest = hashlib.blake2b(X.pieces[X.piece[at.start]].digest.encode(), digest_size=16)
            digest.update(places.data)
            found.append((end, digest.hexdigest()))
        return found
    return [
        (at.start + min(first + step, block.shape[0]), digest_of(block[first : first + step]))
        for at, block in blocks_of(X)
        for first in range(0, block.shape[0], step)
    ]


def _runs_of_pieces(X: RemoteRows) -> Iterator[tuple[int, slice]]:
    """Runs of rows in the same piece, with where they end."""
    first = 0
    for end in boundaries(X, 1).tolist():
        yield end, slice(first, end)
        first = end


# --- rows wherever they are ----------------------------------------------------------------------

_BROUGHT = 65_536  # rows that are fetched from workers, or copied from a file, at a time


def in_memory(X: AnyRows) -> TypeIs[Matrix]:
    """Whether the rows are in one array of this process (it may be memory-mapped)."""
    return not isinstance(X, (RowBlocks, RemoteRows))


def as_items(X: object) -> Matrix | None:
    """Rows that are no vectors of numbers (strings, graphs, ...), as a column of objects.

    None for all other rows. Only callable kernels take such rows.
    """
    if isinstance(X, (list, tuple)):
        try:
            np.asarray(X, dtype=np.float64)
            return None
        except (TypeError, ValueError):
            rows = X
    else:
        found = np.asarray(X) if hasattr(X, "__array__") and not sparse.issparse(X) else None
        if found is None or found.ndim != 1 or found.dtype.kind not in "OUS":
            return None
        rows = found.tolist()
    items = np.empty((len(rows), 1), dtype=object)
    for number, item in enumerate(rows):
        items[number, 0] = item
    return items


def in_blocks(X: object) -> TypeIs[RowBlocks]:
    """Whether the rows come in blocks, of which one at a time is in memory."""
    return isinstance(X, RowBlocks)


def is_remote(X: object) -> TypeIs[RemoteRows]:
    """Whether the rows are with the workers of an engine."""
    return isinstance(X, RemoteRows)


def loaded(X: Matrix | RemoteRows) -> Matrix:
    """Bring rows here if they are with workers."""
    return X.load() if isinstance(X, RemoteRows) else X


def blocks_of(X: AnyRows) -> Iterator[tuple[slice, Matrix]]:
    """Iterate over the rows in blocks, each with its range of row numbers.

    Examples
    --------
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> [at for at, _ in blocks_of(X)], [at for at, _ in blocks_of(RowBlocks([X[:2], X[2:]]))]
    ([slice(0, 3, None)], [slice(0, 2, None), slice(2, 3, None)])
    """
    if isinstance(X, RowBlocks):
        first = 0
        for block in X:
            yield slice(first, first + block.shape[0]), block
            first += block.shape[0]
    elif isinstance(X, RemoteRows):
        for first in range(0, len(X), _BROUGHT):
            at = slice(first, min(len(X), first + _BROUGHT))
            yield at, X[at].load()
    else:
        yield slice(0, X.shape[0]), X


def runs_of(X: AnyRows, step: int) -> Iterator[tuple[int, Matrix | RemoteRows]]:
    """Iterate over runs of a multiple of `step` rows (but for the last), with their first row.

    The rows of an array, or with workers, are one run. What is computed `step` rows at a time is
    then bitwise the same for rows in blocks, wherever these end.

    Examples
    --------
    >>> X = np.arange(10.0).reshape(5, 2)
    >>> blocks = RowBlocks([X[:1], X[1:4], X[4:]])
    >>> [(first, len(rows)) for first, rows in runs_of(blocks, 2)]
    [(0, 4), (4, 1)]
    """
    if not isinstance(X, RowBlocks):
        yield 0, X
        return
    first, kept = 0, list[Matrix]()
    for _, block in blocks_of(X):
        kept.append(block)
        count = sum(one.shape[0] for one in kept)
        if count >= step:
            rows, whole = _stacked(kept), count - count % step
            yield first, rows[:whole]
            first, kept = first + whole, [rows[whole:]]
    last = _stacked(kept)
    if last.shape[0]:
        yield first, last


def _stacked(blocks: Sequence[Matrix]) -> Matrix:
    if len(blocks) == 1:
        return blocks[0]
    dense: Any = blocks  # arrays
    rows: Matrix = sparse.vstack(blocks, "csr") if is_csr(blocks[0]) else np.vstack(dense)
    return rows


def sample_rows(X: AnyRows, rows: Places) -> Matrix:
    """A copy of some rows, in this order; blocks and files are read once, from first to last."""
    if isinstance(X, RemoteRows) or not (isinstance(X, RowBlocks) or is_mapped(X)):
        return loaded(X[rows])
    is_sparse = isinstance(X, RowBlocks) and X.is_sparse
    return assemble(_picked(X, rows), (len(rows), X.shape[1]), X.dtype, is_sparse)


def _picked(X: Matrix | RowBlocks, rows: Places) -> Iterator[tuple[Places, Matrix]]:
    """Yield some of the rows at a time, with their positions in `rows`."""
    order: Places = np.argsort(rows, kind="stable").astype(np.int64, copy=False)
    sizes = X.sizes if isinstance(X, RowBlocks) else [X.shape[0]]
    starts = np.cumsum([0, *sizes])
    ends = np.searchsorted(rows, starts, sorter=order)
    for number, start in enumerate(starts[:-1]):
        if ends[number] == ends[number + 1]:
            continue
        block = X.read(number) if isinstance(X, RowBlocks) else X
        for first in range(ends[number], ends[number + 1], _BROUGHT):
            positions = order[first : min(ends[number + 1], first + _BROUGHT)]
            some: Matrix = block[rows[positions] - start]
            yield positions, some


def row_range(X: AnyRows, at: slice) -> AnyRows:
    """Contiguous rows, without a copy; of `RowBlocks` they must be whole blocks."""
    if isinstance(X, RowBlocks):
        return X.between(at.start, at.stop)
    part: AnyRows = X[at]
    return part


def boundaries(X: AnyRows | NDArray[Any], step: int) -> Places:
    """Where rows can be divided: at every `step` rows, or where blocks or pieces end.

    Examples
    --------
    >>> boundaries(np.zeros((5, 1)), 2).tolist()
    [2, 4, 5]
    """
    n = X.shape[0]
    if isinstance(X, RowBlocks):
        return np.cumsum(X.sizes)
    if isinstance(X, RemoteRows):
        return np.append(np.flatnonzero(np.diff(X.piece)) + 1, n)
    return np.append(np.arange(step, n, step), n)
