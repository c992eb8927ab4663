"""One-class support vector machine for outlier detection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import OutlierMixin

from margrave._sklearn import Interval
from margrave.engines import EngineLike
from margrave.estimators._docs import documented
from margrave.estimators._input import Floats, refuses
from margrave.estimators._remote import lazily, on_every_rank
from margrave.estimators._single import SingleEstimator
from margrave.estimators._stream import OutlierStream
from margrave.estimators._transaction import transaction
from margrave.losses import Loss
from margrave.problem import Data, Problem
from margrave.progress import Callback
from margrave.solvers import Solver
from margrave.typing import MatrixLike, Seed, VectorLike


@documented
class OneClassSVM(OutlierMixin, OutlierStream, SingleEstimator):  # type: ignore[misc]
    r"""One-class support vector machine with a certificate.

    With sample weights s_i the problem is

    .. math:: \min_{\beta, \rho} \tfrac12 \beta^\top K \beta - \rho \nu \sum_i s_i
              + \sum_i s_i \max(0, \rho - f_i), \qquad f = K \beta,

    whose optimum is that of :class:`sklearn.svm.OneClassSVM`, and the fit stops when the relative
    duality gap is at most `tol`. (If the optimum is zero, as for a linear kernel on centred rows,
    the gap is relative to a millionth of the largest objective that such \beta could have.)

    Parameters
    ----------
    nu : float, default=0.5
        Upper bound on the fraction of outliers and lower bound on the fraction of support vectors;
        in (0, 1].
    <kernel>
    solver : str or solver object, default="auto"
        How to solve: "auto", "exact", or an object from :mod:`margrave.solvers`.
    <budgets>
    <stream>

    Attributes
    ----------
    <support>
    intercept_ : ndarray of shape (1,)
        Intercept of the decision function.
    offset_ : float
        The threshold rho: ``decision_function = score_samples - offset_``.
    <certificate>
    <streamed>

    Examples
    --------
    >>> from margrave import OneClassSVM
    >>> X = [[0.0], [0.44], [0.45], [0.46], [1.0]]
    >>> model = OneClassSVM(gamma="auto").fit(X)
    >>> print(*model.predict(X))
    -1 1 1 1 -1
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SingleEstimator._parameter_constraints,
        **OutlierStream._stream_constraints,
        "nu": [Interval(Real, 0.0, 1.0, closed="right")],
    }

    @refuses()
    def __init__(
        self,
        nu: float = 0.5,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        power: float = 1.0,
        solver: str | Solver = "auto",
        engine: EngineLike = None,
        tol: float = 1e-3,
        max_iter: int = -1,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        warm_start: bool = False,
        max_support: int = 2000,
        forget: float = 0.0,
        callbacks: Callback | Sequence[Callback] | None = None,
    ) -> None:
        self.nu = nu
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.power = power
        self.solver = solver
        self.engine = engine
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.max_support = max_support
        self.forget = forget
        self.callbacks = callbacks

    @transaction
    @on_every_rank
    def fit(
        self,
        X: MatrixLike,
        y: VectorLike | None = None,
        sample_weight: VectorLike | None = None,
        row_ids: VectorLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; a square kernel matrix when `kernel="precomputed"`. float32 is not converted.
        y : Ignored
            Not used, present for API consistency by convention.
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
        rows = self._check_rows(X)
        self._check_square(rows)
        self._fit(rows, np.ones(rows.shape[0]), sample_weight, row_ids)
        return self

    def _store(self, intercept: float) -> None:
        self.offset_ = -intercept

    @lazily
    def score_samples(self, X: MatrixLike) -> Floats:
        """Evaluate the scores f(x), which are larger for inliers.

        Support vectors on the boundary have the score `offset_`; scores that differ from it only by
        rounding are set to it, so that these rows are inliers.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; kernel values with the training rows when `kernel="precomputed"`.

        Returns
        -------
        scores : ndarray of shape (n_samples,)
        """
        rows = self._check_rows(X, reset=False)
        scores: Floats = self._scores(rows, self._precision)[:, 0]
        rounding = 1e-5 if self._precision == "float32" else 1e-9
        scores[np.abs(scores - self.offset_) <= rounding * abs(self.offset_)] = self.offset_
        return scores

    @lazily
    def decision_function(self, X: MatrixLike) -> Floats:
        """Evaluate ``score_samples(X) - offset_``: negative for outliers.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; kernel values with the training rows when `kernel="precomputed"`.

        Returns
        -------
        scores : ndarray of shape (n_samples,)
        """
        return self.score_samples(X) - self.offset_

    @lazily
    def predict(self, X: MatrixLike) -> Any:
        """Predict inliers and outliers.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; kernel values with the training rows when `kernel="precomputed"`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            1 for inliers, -1 for outliers.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def certify(
        self, X: MatrixLike, y: VectorLike | None = None, sample_weight: VectorLike | None = None
    ) -> float:
        """Compute the relative duality gap of the fitted model on its training data.

        It is recomputed in double precision from the fitted attributes.

        Parameters
        ----------
        X, sample_weight
            The training data, in the same order.
        y : Ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        gap : float
            Relative duality gap; inf if the kernel is not positive semidefinite.
        """
        rows = self._check_rows(X, reset=False)
        return self._certify(rows, np.ones(rows.shape[0]), sample_weight)

    def _problem(self, data: Data, y: Floats, weight: Floats) -> Problem:
        total = float(self.nu * weight.sum())
        return Problem(data, None, y, weight, Loss("one_class"), "free", total)
