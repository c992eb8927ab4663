"""Passes over the rows of a linear model on a card: products of matrices, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.cuda.device import Device
from margrave.rows import Matrix, is_csr

Floats = NDArray[np.float64]

_AT_ONCE = 1 << 27  # numbers of a product's left side at a time


class LinearRows:
    """Rows of some blocks; the counterpart of the core's class of this name.

    What is computed with bounds on its errors, and the products of sparse rows with each other,
    is left to the core.

    Parameters
    ----------
    device : Device
    X : ndarray or CSR of shape (n, d)
    firsts, lasts : lists of int
        Where the blocks begin and end.
    host : the same rows in the core
    """

    def __init__(
        self,
        device: Device,
        X: Matrix,
        firsts: list[int],
        lasts: list[int],
        host: _core.LinearRows,
    ) -> None:
        self.device, self.X, self.host = device, X, host
        self.slices = [slice(a, b) for a, b in zip(firsts, lasts, strict=True)]

    def _rows(self) -> Any:
        """All rows on the card."""
        cupy = self.device.cupy

        def make() -> Any:
            if is_csr(self.X):
                from cupyx.scipy import sparse

                return sparse.csr_matrix(self.X.astype(np.float64))
            return cupy.asarray(np.ascontiguousarray(self.X)).astype(cupy.float64)

        return self.device.copy_of(self.X, "linear", make)

    def _numbers(self, values: Any) -> Any:
        """Numbers of the rows of the blocks, with a place for every row."""
        cupy = self.device.cupy
        found = cupy.zeros((*values.shape[:-1], self.X.shape[0]))
        first = 0
        for at in self.slices:
            last = first + at.stop - at.start
            found[..., at] = cupy.asarray(values[..., first:last])
            first = last
        return found

    def multiply(self, W: Floats, out: Floats) -> None:
        """X W', a row of `out` for each row of W."""
        with self.device.at_work() as cupy:
            products = cupy.asnumpy((self._rows() @ cupy.asarray(W.T)).T)
            first = 0
            for at in self.slices:
                last = first + at.stop - at.start
                out[:, first:last] = products[:, at]
                first = last

    def transposed(self, B: Floats, out: Floats) -> None:
        """B X, added to `out`."""
        with self.device.at_work() as cupy:
            out += cupy.asnumpy((self._rows().T @ self._numbers(B).T).T)

    def gram(self, D: Floats, matrix: Floats, border: Floats, single: bool = False) -> None:
        """X'DX and X'D 1, added to `matrix` and `border`."""
        if is_csr(self.X):
            self.host.gram(D, matrix, border, single)
            return
        with self.device.at_work() as cupy:
            rows, weights = self._rows(), self._numbers(D)
            found, step = cupy.zeros(matrix.shape), max(1, _AT_ONCE // max(1, rows.shape[1]))
            for first in range(0, rows.shape[0], step):
                some = rows[first : first + step]
                found += (some * weights[first : first + step, None]).T @ some
            matrix += cupy.asnumpy(found)
            border += cupy.asnumpy(rows.T @ weights)

    def diagonal(self, D: Floats, out: Floats) -> None:
        """The diagonal of X'DX, added to `out`."""
        self.host.diagonal(D, out)

    def audit(
        self, w: Floats, b: Floats, compensated: bool
    ) -> tuple[Floats, Floats, Floats, Floats, float]:
        """X w and X'b with bounds on their errors; see the core."""
        return self.host.audit(w, b, compensated)

    def squares(self) -> Floats:
        """Squared lengths of the rows."""
        return self.host.squares()

    @property
    def longest(self) -> float:
        """Bound on the length of every row."""
        return self.host.longest

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.host.n_rows

    @property
    def n_columns(self) -> int:
        """Number of features."""
        return self.host.n_columns
