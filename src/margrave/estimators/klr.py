"""Kernel logistic regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_expit, log_softmax

from margrave._sklearn import Interval, StrOptions
from margrave.engines import EngineLike
from margrave.estimators._classifier import KernelClassifier
from margrave.estimators._docs import documented
from margrave.estimators._input import Floats
from margrave.estimators._remote import lazily
from margrave.estimators._stream import ClassifierStream
from margrave.losses import Loss
from margrave.progress import Callback
from margrave.solvers import Solver
from margrave.typing import MatrixLike, Seed


@documented
class KernelLogisticRegression(ClassifierStream, KernelClassifier):
    r"""Kernel logistic regression with a certificate.

    A binary problem with labels y = +-1 and penalties C_i = C * sample_weight * class_weight is

    .. math:: \min_{\beta, b} \tfrac12 \beta^\top K \beta
              + \sum_i C_i \log(1 + \exp(-y_i (f_i + b))), \qquad f = K \beta,

    and the fit stops when the relative duality gap is at most `tol`. Probabilities are part of the
    model and need no calibration: with two classes P(y = 1 | x) = 1 / (1 + exp(-f(x) - b)).

    Parameters
    ----------
    C : float, default=1.0
        Penalty of the logistic loss, positive; larger values mean less regularisation.
    <kernel>
    intercept : {"free", "regularized"} or None, default="free"
        <intercept>
    multi_class : {"ovr", "softmax"}, default="ovr"
        For more than two classes. "ovr" is one problem per class against the rest; the
        probabilities are divided by their sum. "softmax" is one joint problem,

        .. math:: \tfrac12 \sum_c |w_c|^2
                  + \sum_i C_i \Big(\log \sum_c e^{f_{ic}} - f_{i y_i}\Big),

        whose probabilities sum to one.
    <class_weight>
    <solver>
    <budgets>
    <stream>

    Attributes
    ----------
    <classes>
    dual_coef_ : {ndarray, sparse} of shape (n_problems or n_classes, n_SV)
        Coefficients: one row for two classes, else one per class. All rows are support vectors.
    intercept_ : ndarray of shape (n_problems,)
        Intercepts of the decision functions.
    coef_ : ndarray of shape (n_problems, n_features)
        Feature weights, for the linear kernel only.
    <certificate>
    <streamed>

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import KernelLogisticRegression
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> model = KernelLogisticRegression(C=10.0).fit(X, [0, 0, 1, 1])
    >>> model.predict_proba([[0.0], [2.0]]).round(1).tolist()
    [[0.5, 0.5], [0.1, 0.9]]
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KernelClassifier._parameter_constraints,
        **ClassifierStream._stream_constraints,
        "C": [Interval(Real, 0.0, None, closed="neither")],
        "multi_class": [StrOptions({"ovr", "softmax"})],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        power: float = 1.0,
        intercept: str | None = "free",
        multi_class: str = "ovr",
        class_weight: dict[Any, float] | str | None = None,
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
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.power = power
        self.intercept = intercept
        self.multi_class = multi_class
        self.class_weight = class_weight
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

    @lazily
    def predict_log_proba(self, X: MatrixLike) -> Floats:
        """Logarithms of the probabilities of the classes.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; kernel values with the training rows when `kernel="precomputed"`.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
        """
        scores = self._decisions(self._check_rows(X, reset=False))
        if self._scheme == "binary":
            return np.hstack([log_expit(-scores), log_expit(scores)])
        # dividing probabilities by their sum is the softmax of their logarithms
        logs = scores if self._scheme == "softmax" else log_expit(scores)
        normalised: Floats = log_softmax(logs, axis=1)
        return normalised

    @lazily
    def predict_proba(self, X: MatrixLike) -> Floats:
        """Probabilities of the classes.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; kernel values with the training rows when `kernel="precomputed"`.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        probabilities: Floats = np.exp(self.predict_log_proba(X))
        return probabilities

    @lazily
    def predict(self, X: MatrixLike) -> Any:
        """Predict the most probable labels.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; kernel values with the training rows when `kernel="precomputed"`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        probabilities = self.predict_proba(X)
        return self.classes_[self._best(probabilities)]

    def _loss(self) -> Loss:
        return Loss("logistic")

    def _penalties(self, weight: Floats) -> Floats:
        return self.C * weight
