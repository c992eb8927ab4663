"""Which centre each row is nearest to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from margrave.cuda.device import Device
from margrave.cuda.rows import Rows
from margrave.rows import Matrix, is_csr

_AT_ONCE = 1 << 28  # distances at a time


def nearest_centres(device: Device, X: Matrix, centres: NDArray[np.floating]) -> Rows:
    """The nearest of some centres for each row; of equals the first."""
    n, d = X.shape
    found = np.empty(n, dtype=np.int64)
    step = max(1, _AT_ONCE // max(1, len(centres), d))
    with device.at_work() as cupy:
        points = cupy.asarray(centres)
        half_squares = 0.5 * (points * points).sum(axis=1)
        for first in range(0, n, step):
            some = X[first : first + step]
            rows = cupy.asarray(some.toarray() if is_csr(some) else np.ascontiguousarray(some))
            nearest = (half_squares - rows.astype(points.dtype) @ points.T).argmin(axis=1)
            found[first : first + step] = cupy.asnumpy(nearest)
    return found
