"""Columns of tables: CSV, Parquet, NumPy arrays."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from margrave.extras import install
from margrave.io.files import read_bytes

if TYPE_CHECKING:
    from pyarrow import ChunkedArray


_MISSING = ("", "na", "nan", "null", "?")  # cells without a value


class Column(Protocol):
    """A column of a table; errors name it and the file."""

    def numbers(self, path: str, name: str) -> NDArray[np.float64]:
        """The cells, which must be finite numbers."""
        ...

    def labels(self, path: str, name: str) -> NDArray[Any]:
        """The cells as labels: numbers, or text."""
        ...

    def values(self, path: str, name: str) -> NDArray[Any]:
        """The cells as numbers, missing ones NaN; or else as text, missing ones None."""
        ...


def read_csv(path: str, delimiter: str | None) -> tuple[list[str] | None, list[Column]]:
    """Names (None without a header) and columns: arrays of numbers, or lists of strings."""
    try:
        text = bytes(read_bytes(path)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text file (byte {error.start})") from None
    if "\0" in text:
        raise ValueError(f"{path}: not a text file (byte {text.index(chr(0))})")
    if delimiter is None:
        first = text[: text.find("\n")] if "\n" in text else text
        delimiter = next((d for d in ",;\t" if d in first), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows, at = [], []
    try:
        for row in reader:
            if row:
                rows.append(row)
                at.append(reader.line_num)
                if len(row) != len(rows[0]):
                    what = f"{len(row)} cells, the first line has {len(rows[0])}"
                    raise ValueError(f"{path}:{reader.line_num}: {what}")
    except csv.Error as error:
        raise ValueError(f"{path}:{reader.line_num}: {error}") from None
    names = None
    if rows and not any(_number(cell) is not None for cell in rows[0]):
        names, rows, at = [cell.strip() for cell in rows[0]], rows[1:], at[1:]
    if not rows:
        raise ValueError(f"{path}: the file contains no rows")
    return names, [_Column([row[c] for row in rows], at) for c in range(len(rows[0]))]


@dataclass
class _Column:
    """Cells of a CSV column, and their line numbers."""

    cells: list[str]
    lines: list[int]

    def numbers(self, path: str, name: str) -> NDArray[np.float64]:
        try:
            found = np.array([float(cell) for cell in self.cells])
            if np.isfinite(found).all() and not any("_" in cell for cell in self.cells):
                return found
        except ValueError:
            pass
        wrong = next(i for i, cell in enumerate(self.cells) if not _is_finite(cell))
        cell = self.cells[wrong].strip()
        what = f"{cell[:40]!r} is not a finite number" if cell else "a cell is empty"
        raise ValueError(f"{path}:{self.lines[wrong]}: {name}: {what}")

    def labels(self, path: str, name: str) -> NDArray[Any]:
        for line, cell in zip(self.lines, self.cells, strict=True):
            if not cell.strip():
                raise ValueError(f"{path}:{line}: {name}: the label is missing")
        if all(_number(cell) is not None for cell in self.cells):
            return self.numbers(path, name)
        return np.array([cell.strip() for cell in self.cells])

    def values(self, path: str, name: str) -> NDArray[Any]:
        cells = [cell.strip() for cell in self.cells]
        known = [cell for cell in cells if cell.lower() not in _MISSING]
        if all(_is_finite(cell) for cell in known):
            return np.array([np.nan if c.lower() in _MISSING else float(c) for c in cells])
        found = [None if cell.lower() in _MISSING else cell for cell in cells]
        return np.array(found, dtype=object)


def _number(cell: str) -> float | None:
    try:
        return None if "_" in cell else float(cell)  # only Python accepts 1_000
    except ValueError:
        return None


def _is_finite(cell: str) -> bool:
    number = _number(cell)
    return number is not None and math.isfinite(number)


def read_parquet(path: str) -> tuple[list[str], list[Column]]:
    """Names and columns."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f"{path}: reading Parquet needs pyarrow: {install('parquet')}") from None
    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path}: not a Parquet file: {error}") from None
    return list(table.column_names), [_ParquetColumn(column) for column in table.columns]


@dataclass
class _ParquetColumn:
    """A column of a Parquet file; its rows are counted from one."""

    column: ChunkedArray

    def numbers(self, path: str, name: str) -> NDArray[np.float64]:
        values = self._values(path, name)
        if values.dtype.kind not in "biuf":
            raise ValueError(f"{path}: {name}: the column is not numeric")
        found: NDArray[np.float64] = values.astype(np.float64)
        wrong = np.flatnonzero(~np.isfinite(found))
        if len(wrong):
            raise ValueError(f"{path}: {name}: row {wrong[0] + 1} is not a finite number")
        return found

    def labels(self, path: str, name: str) -> NDArray[Any]:
        values = self._values(path, name)
        if values.dtype.kind in "biuf":
            return self.numbers(path, name)
        return np.array([str(value) for value in values])

    def values(self, path: str, name: str) -> NDArray[Any]:
        cells = self.column.to_pylist()
        if all(cell is None or isinstance(cell, (int, float)) for cell in cells):
            return np.array([np.nan if cell is None else float(cell) for cell in cells])
        return np.array([None if cell is None else str(cell) for cell in cells], dtype=object)

    def _values(self, path: str, name: str) -> NDArray[Any]:
        if self.column.null_count:
            row = self.column.is_null().to_pylist().index(True) + 1
            raise ValueError(f"{path}: {name}: row {row} is empty")
        values: NDArray[Any] = self.column.to_numpy()
        return values


@dataclass
class ArrayColumn:
    """A column of a numeric array."""

    entries: NDArray[Any]

    def numbers(self, path: str, name: str) -> NDArray[np.float64]:
        return self.entries.astype(np.float64)

    labels = numbers

    def values(self, path: str, name: str) -> NDArray[Any]:
        return self.numbers(path, name)
