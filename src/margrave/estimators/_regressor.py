"""Base class of the regressors."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import RegressorMixin

from margrave.estimators._input import Floats
from margrave.estimators._remote import lazily, on_every_rank
from margrave.estimators._single import SingleEstimator
from margrave.estimators._transaction import transaction
from margrave.typing import MatrixLike, VectorLike


class KernelRegressor(RegressorMixin, SingleEstimator):  # type: ignore[misc]
    """Base class of SVR and NuSVR, which define the problem."""

    @transaction
    @on_every_rank
    def fit(
        self,
        X: MatrixLike,
        y: VectorLike,
        sample_weight: VectorLike | None = None,
        row_ids: VectorLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; a square kernel matrix when `kernel="precomputed"`. float32 is not converted.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row: two is equivalent to repeating the row, zero to leaving it out.
        row_ids : array-like of shape (n_samples,), default=None
            A number or string for each row by which `warm_start` recognises it in the next fit;
            without them rows are recognised by their contents.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._check_parameters()
        rows, targets = self._check_training(X, y, numbers=True)
        self._fit(rows, targets.astype(np.float64), sample_weight, row_ids)
        return self

    @lazily
    def predict(self, X: MatrixLike) -> Floats:
        """Predict targets.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; kernel values with the training rows when `kernel="precomputed"`.

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        rows = self._check_rows(X, reset=False)
        predicted: Floats = self._scores(rows, self._precision)[:, 0] + self.intercept_[0]
        return predicted

    def certify(
        self, X: MatrixLike, y: VectorLike, sample_weight: VectorLike | None = None
    ) -> float:
        """Compute the relative duality gap of the fitted model on its training data.

        It is recomputed in double precision from the fitted attributes.

        Parameters
        ----------
        X, y, sample_weight
            The training data, in the same order.

        Returns
        -------
        gap : float
            Relative duality gap; inf if the kernel is not positive semidefinite.
        """
        rows, targets = self._check_training(X, y, reset=False, numbers=True)
        return self._certify(rows, targets.astype(np.float64), sample_weight)
