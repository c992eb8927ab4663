"""Which centre each row is nearest to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave.cuda.device import Device
from margrave.cuda.rows import POINTS, DeviceRows, Rows, padded, stays, upload
from margrave.rows import Matrix

_AT_ONCE = 1 << 28  # distances at a time


def nearest_centres(device: Device, X: Matrix, centres: NDArray[np.floating[Any]]) -> Rows:
    """The nearest of some centres for each row; of equals the first."""

    mean = centres.mean(axis=0, dtype=np.float64)

    def copied(some: Matrix) -> DeviceRows:
        return upload(device, some, "float32", mean, False)

    found = np.empty(X.shape[0], dtype=np.int64)
    width = padded(X.shape[1])
    step = max(1, min(_AT_ONCE // max(1, len(centres)), device.limit // (32 * width)))
    stay = stays(device, X.shape[0], width, "float32")
    with device.at_work() as cupy:
        rows = device.copy_of(X, "float32", lambda: copied(X)) if stay else None
        centre = mean if rows is None else rows.centre
        points = cupy.zeros((len(centres), width), dtype=cupy.float32)
        points[:, : X.shape[1]] = cupy.asarray(centres - (centre if len(centre) else 0.0))
        half_squares = 0.5 * (points * points).sum(axis=1)
        for first in range(0, X.shape[0], step):
            at = slice(first, first + step)
            some = copied(X[at]).entries if rows is None else rows.entries[at]
            found[at] = cupy.asnumpy((half_squares - some @ points.T).argmin(axis=1))
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
