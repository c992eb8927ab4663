"""Which centre each row is nearest to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave.cuda.device import Device
from margrave.cuda.rows import POINTS, DeviceRows, Rows, upload
from margrave.rows import Matrix

_AT_ONCE = 1 << 28  # distances at a time


def nearest_centres(device: Device, X: Matrix, centres: NDArray[np.floating[Any]]) -> Rows:
    """The nearest of some centres for each row; of equals the first."""

    def make() -> DeviceRows:
        return upload(device, X, "float32", centres.mean(axis=0, dtype=np.float64), False)

    found = np.empty(X.shape[0], dtype=np.int64)
    step = max(1, _AT_ONCE // max(1, len(centres)))
    with device.at_work() as cupy:
        rows = device.copy_of(X, "float32", make)
        points = cupy.zeros((len(centres), rows.width), dtype=cupy.float32)
        middle = rows.centre if len(rows.centre) else 0.0
        points[:, : X.shape[1]] = cupy.asarray(centres - middle)
        half_squares = 0.5 * (points * points).sum(axis=1)
        for first in range(0, X.shape[0], step):
            some = rows.entries[first : first + step]
            nearest = (half_squares - some @ points.T).argmin(axis=1)
            found[first : first + step] = cupy.asnumpy(nearest)
    return found


def spatial_order(device: Device, X: Matrix) -> Rows:
    """An order of rows in which neighbours are close: by the nearest of many centres.

    These are rows themselves, themselves in the order of fewer centres.
    """
    n = X.shape[0]
    count = -(-n // POINTS)
    if count <= 1:
        return np.arange(n)
    centres = np.ascontiguousarray(X[np.linspace(0, n - 1, count).astype(np.int64)])
    coarse = centres[:: max(1, round(count**0.5))]
    group = nearest_centres(device, centres, coarse)
    place = np.empty(count, dtype=np.int64)
    place[np.argsort(group, kind="stable")] = np.arange(count)
    near = place[nearest_centres(device, X, centres)]
    digits = near.astype(np.uint16) if count <= np.iinfo(np.uint16).max else near
    order: Rows = np.argsort(digits, kind="stable")
    return order
