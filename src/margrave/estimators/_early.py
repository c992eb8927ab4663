"""Early models: models that are available before a fit ends.

A strategy that divides the rows publishes the solutions of the parts as they become available
(`Progress.show_early`), and then, problem by problem, the variables of all rows after every round
of blocks and at the end (`Progress.show_latest`). A model is made of the latest ones on demand: by
a callback during the fit, or by the fit itself at its end, when the model of the parts is the one
that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from margrave.progress import Progress
from margrave.rows import Matrix
from margrave.solvers import Solution


class EarlyModel:
    """The model of the latest published solutions.

    Parameters
    ----------
    progress : Progress
        Of the running fit.
    make : callable (solutions) -> fitted estimator
    """

    def __init__(
        self, progress: Progress, make: Callable[[Sequence[Solution]], BaseEstimator]
    ) -> None:
        self._progress: Progress | None = progress
        self._make = make
        self._solutions: Sequence[Solution] | None = None  # those of the model
        self._model: BaseEstimator | None = None

    @property
    def model(self) -> BaseEstimator | None:
        """The model, or None if no solutions have been published."""
        # in this order: `settle` may come between, in the thread of the fit
        make, progress = self._make, self._progress
        shown = None if progress is None else progress.shown
        if shown is not None and shown is not self._solutions:
            model = make(shown)
            if self._progress is None:  # settled meanwhile
                return self._model
            self._model, self._solutions = model, shown
        return self._model

    def rows(self, which: NDArray[np.intp]) -> Matrix | None:
        """The support vectors of a settled model, if they are these rows: they are large."""
        model = self._model
        if self._progress is not None or model is None or not np.array_equal(model.support_, which):
            return None
        found: Matrix | None = model._support_vectors
        return found

    def settle(self) -> None:
        """Keep the last model of parts, and drop all references to the fit."""
        if self._progress is not None:
            self._progress.forget_latest()
        self.__dict__ = self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        """A copy has the current model."""
        return {"_progress": None, "_make": None, "_solutions": None, "_model": self.model}
