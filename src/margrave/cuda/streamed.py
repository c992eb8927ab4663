"""Rows that do not fit on a card: as many as are needed, or as fit, are copied there at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from margrave.cuda.device import Device
from margrave.cuda.rows import DeviceRows, Kernel, Rows, padded, sums_of, upload
from margrave.rows import Matrix

Floats = NDArray[np.float64]

_AT_ONCE = 32  # a part of the card's memory for the rows of one side of a product
_FEWEST = 16  # rows


@dataclass(frozen=True)
class StreamedRows:
    """Rows in the machine's memory, in place of `DeviceRows`."""

    device: Device
    X: Matrix
    kernel: Kernel
    dtype: str
    centre: Floats

    def some(self, numbers: Rows) -> DeviceRows:
        """Copy some rows to the card; of given values their columns alone."""
        is_given = self.kernel.number < 0
        X = self.X[np.ix_(numbers, numbers)] if is_given else self.X[numbers]
        return upload(self.device, X, self.dtype, self.centre, is_given)

    def multiply(
        self, rows: Rows, coef: Floats, points: Rows, time_left: float
    ) -> tuple[Floats, int] | None:
        """K[points, rows] @ coef, and how many values were computed; None if the time is over."""
        deadline = time.monotonic() + time_left
        size = padded(self.X.shape[1]) * np.dtype(self.dtype).itemsize
        step = max(_FEWEST, self.device.limit // (_AT_ONCE * size))
        found, computed = np.zeros((len(points), coef.shape[1])), 0
        for first in range(0, len(rows), step):
            some, weights = rows[first : first + step], coef[first : first + step]
            for begin in range(0, len(points), step):
                these = points[begin : begin + step]
                numbers, place = np.unique(np.concatenate([these, some]), return_inverse=True)
                own, left = self.some(numbers), deadline - time.monotonic()
                at, of = place[: len(these)], place[len(these) :]
                sums = sums_of(
                    *(self.device, self.kernel, self.dtype, own, at, own, of, weights, left),
                    same=True,
                )
                if sums is None:
                    return None
                found[begin : begin + step] += sums[0]
                computed += sums[1]
        return found, computed
