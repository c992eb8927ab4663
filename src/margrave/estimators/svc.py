"""Support vector classification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

from margrave._sklearn import Interval, StrOptions
from margrave.engines import EngineLike
from margrave.estimators._docs import documented
from margrave.estimators._hard import HardPenalty
from margrave.estimators._input import refuses
from margrave.estimators._margin import MarginClassifier
from margrave.estimators._stream import ClassifierStream
from margrave.losses import Loss
from margrave.progress import Callback
from margrave.solvers import Solver
from margrave.typing import Seed


@documented
class SVC(HardPenalty, ClassifierStream, MarginClassifier):
    r"""Support vector classification with a certificate.

    A binary problem with labels y = +-1 and penalties C_i = C * sample_weight * class_weight is

    .. math:: \min_{\beta, b} \tfrac12 \beta^\top K \beta + \sum_i C_i \max(0, 1 - y_i (f_i + b)),
              \qquad f = K \beta,

    and the fit stops when the relative duality gap is at most `tol`. With the default intercept the
    optimum is that of :class:`sklearn.svm.SVC`.

    Parameters
    ----------
    C : float, default=1.0
        Penalty of margin violations, positive; larger values mean less regularisation, and inf
        allows none (a hard margin).
    <kernel>
    loss : {"hinge", "squared_hinge"}, default="hinge"
        Loss of a margin below one: linear or squared.
    intercept : {"free", "regularized"} or None, default="free"
        <intercept>
    multi_class : {"ovo", "ovr", "crammer_singer"}, default="ovo"
        For more than two classes: one problem per pair of classes, one per class against the rest,
        or one joint problem in which the score of the true class must exceed every other by one:

        .. math:: \tfrac12 \sum_c |w_c|^2
                  + \sum_i C_i \max_c \big([c \ne y_i] + f_{ic} - f_{i y_i}\big).
    <class_weight>
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of `decision_function` for more than two classes: one column per class (votes plus
        confidences when `multi_class="ovo"`), or one per pair of classes.
    break_ties : bool, default=False
        Break ties between votes by the confidences instead of taking the first class.
    <solver>
    <budgets>
    <stream>

    Attributes
    ----------
    <classes>
    dual_coef_ : {ndarray, sparse} of shape (n_classes - 1, n_SV)
        Coefficients, laid out as in scikit-learn: one row for two classes; for one-vs-one
        the coefficients of a support vector against each other class. One row per class when
        `multi_class` is "ovr" or "crammer_singer".
    intercept_ : ndarray of shape (n_problems,)
        Intercepts of the decision functions.
    coef_ : ndarray of shape (n_problems, n_features)
        Feature weights, for the linear kernel only.
    <certificate>
    <streamed>

    Notes
    -----
    Instead of scikit-learn's `cache_size` there is `memory_limit`, instead of `probability`
    :class:`sklearn.calibration.CalibratedClassifierCV`; `shrinking` is automatic.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import SVC
    >>> X = np.array([[-2.0, -1.0], [-1.0, -1.0], [1.0, 1.0], [2.0, 1.0]])
    >>> y = np.array(["red", "red", "blue", "blue"])
    >>> model = SVC(C=10.0).fit(X, y)
    >>> print(*model.predict([[-0.8, -1.0], [3.0, 2.0]]))
    red blue
    >>> model.converged_, model.gap_ <= 1e-3
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MarginClassifier._parameter_constraints,
        **ClassifierStream._stream_constraints,
        "C": [Interval(Real, 0.0, None, closed="right")],
        "loss": [StrOptions({"hinge", "squared_hinge"})],
        "multi_class": [StrOptions({"ovo", "ovr", "crammer_singer"})],
        "decision_function_shape": [StrOptions({"ovr", "ovo"})],
        "break_ties": ["boolean"],
    }

    _hard_loss = "hinge"

    @refuses(
        probability="wrap the estimator in sklearn.calibration.CalibratedClassifierCV",
    )
    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        power: float = 1.0,
        loss: str = "hinge",
        intercept: str | None = "free",
        multi_class: str = "ovo",
        class_weight: dict[Any, float] | str | None = None,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
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
        self.loss = loss
        self.intercept = intercept
        self.multi_class = multi_class
        self.class_weight = class_weight
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.multi_class == "crammer_singer" and self.loss != "hinge":
            raise ValueError(
                f"multi_class='crammer_singer' needs loss='hinge', got loss={self.loss!r}"
            )

    def _loss(self) -> Loss:
        return Loss(self.loss)
