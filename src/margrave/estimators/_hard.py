"""C = inf: no margin may be violated, and no residual may leave the tube.

The optimum for a finite C whose bounds no dual variable reaches is that for every larger C, and so
for C = inf. `HardPenalty` raises C until this is the case.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave.estimators._base import KernelEstimator
from margrave.estimators._input import Floats
from margrave.problem import Data
from margrave.rows import AnyRows
from margrave.typing import VectorLike

_FIRST, _FACTOR, _MOST = 1e3, 1e3, 3  # first C for k(x, x) = 1 and targets around 1
_REACHED = 0.99


class HardPenalty(KernelEstimator):
    """Base class of estimators whose penalty C may be infinite."""

    C: float
    loss: str
    time_limit: float | None
    _hard_loss = ""  # the loss whose dual variables C bounds
    _enough: float | None = None  # of a fit with C = inf: a C that has the same optimum

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if math.isinf(self.C) and self.loss != self._hard_loss:
            raise ValueError(
                f"C=inf needs loss={self._hard_loss!r}, got loss={self.loss!r}, whose optimum has"
                " no limit that is attained"
            )

    def _penalties(self, weight: Floats) -> Floats:
        """Penalties C_i of rows with these weights, which do not matter if C is infinite."""
        if self._enough is not None and math.isinf(self.C):
            return np.full(len(weight), self._enough)
        return np.asarray(self.C * weight, dtype=np.float64)

    def _fit(
        self,
        X: AnyRows,
        y: NDArray[Any],
        sample_weight: VectorLike | None,
        row_ids: VectorLike | None = None,
    ) -> None:
        self._enough = None
        if math.isfinite(self.C):
            super()._fit(X, y, sample_weight, row_ids)
            return
        kernel = self._kernel_for(X, self._check_weights(X, sample_weight))
        data = Data(X, kernel, np.array([0, X.shape[0]]))
        size = float(np.std(y)) if y.dtype.kind == "f" else 1.0
        self._enough = _FIRST * (size or 1.0) / (abs(data.mean_diagonal()) or 1.0)
        limit: float | None = self.time_limit
        begin = time.perf_counter()
        try:
            for _ in range(_MOST):
                super()._fit(X, y, sample_weight, row_ids)
                largest = float(np.abs(self._dual).max(initial=0.0))
                if not self.converged_ or largest < _REACHED * self._enough:
                    return
                self._enough *= _FACTOR
                if limit is not None:
                    self.time_limit = max(1e-3, limit - (time.perf_counter() - begin))
        finally:
            self.time_limit = limit
        raise ValueError(
            f"C=inf, but no {type(self).__name__} with this kernel was found that has no loss (with"
            f" penalties up to {self._enough / _FACTOR:.0e}); use a finite C, or choose another"
            " kernel"
        )
