"""Support vector classification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from margrave.estimators._base import Floats, refuses
from margrave.estimators._classifier import KernelClassifier
from margrave.losses import Loss
from margrave.progress import Callback


class SVC(KernelClassifier):
    r"""Support vector classification with a certificate.

    A binary problem with labels y = +-1 and weights C_i = C * sample_weight * class_weight is

    .. math:: \min_{\beta, b} \tfrac12 \beta^\top K \beta + \sum_i C_i \max(0, 1 - y_i (f_i + b)),
              \qquad f = K \beta,

    and the fit stops when the relative duality gap is at most `tol`. With the default intercept the
    optimum is that of :class:`sklearn.svm.SVC`.

    Parameters
    ----------
    C : float, default=1.0
        Price of a violated margin, positive.
    kernel : {"rbf", "linear", "poly", "sigmoid", "laplacian", "precomputed"} or callable, \
            default="rbf"
        A callable gets two arrays of rows and returns the matrix of kernel values. With
        "precomputed", X is the kernel matrix: square in `fit`, one column per training row later.
    gamma : {"scale", "auto"} or float, default="scale"
        Kernel parameter, at least 0. "scale" is 1 / (n_features * variance of X), where weights
        count as repeated rows; "auto" is 1 / n_features.
    degree : int, default=3
        Degree of the "poly" kernel.
    coef0 : float, default=0.0
        Constant of the "poly" and "sigmoid" kernels.
    loss : {"hinge", "squared_hinge"}, default="hinge"
        Price of a margin below one: linear or squared.
    intercept : {"free", "regularized"} or None, default="free"
        "free" does not penalise the intercept, as in LIBSVM; "regularized" adds 1 to the kernel;
        None has no intercept.
    multi_class : {"ovo", "ovr"}, default="ovo"
        More than two classes: one problem per pair of classes, or one per class against the rest.
    class_weight : dict, "balanced" or None, default=None
        Factor of C per class. "balanced": inverse to the (weighted) frequencies.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of `decision_function` for more than two classes: one column per class (votes plus
        confidences when `multi_class="ovo"`), or one per pair of classes.
    break_ties : bool, default=False
        Break ties between votes by the confidences instead of taking the first class.
    solver : str or solver object, default="auto"
        How to solve: "auto", "exact", or an object from :mod:`margrave.solvers`.
    engine : None
        Where to solve: None is this machine's threads.
    tol : float, default=1e-3
        Relative duality gap (P + D) / max(\|P\|, \|D\|) at which the fit stops. This is not
        LIBSVM's tolerance on the optimality conditions: it bounds how far the objective is from
        its optimum.
    max_iter : int, default=-1
        Rounds per binary problem; -1 for no limit.
    time_limit : float, default=None
        Seconds; the best model so far is kept, with its gap.
    memory_limit : int or str, default=None
        Bytes, or for example "4GiB", for cache and buffers beyond the data; None is half of the
        memory available to the process.
    n_jobs : int, default=None
        Threads. None is all cores of the process, or one inside a joblib worker.
    random_state : int, RandomState instance or None, default=None
        Seed for what solvers draw (with many rows, the sample that places clusters). None is a
        fixed seed, so that equal fits give equal models.
    verbose : int, default=0
        1 shows a progress bar, 2 logs a line per round.
    warm_start : bool, default=False
        Start from the last solution if the number of rows is the same.
    callbacks : callable or list of callables, default=None
        Each gets every record of `history_` while the fit runs; one that returns True stops it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels; those that occur only with weight zero are left out.
    class_weight_ : ndarray of shape (n_classes,)
        Factor of C per class.
    support_ : ndarray of shape (n_SV,)
        Rows of X with a nonzero coefficient, grouped by class.
    support_vectors_ : {ndarray, sparse} of shape (n_SV, n_features)
        These rows; empty for a precomputed kernel.
    n_support_ : ndarray of shape (n_classes,)
        Number of support vectors per class.
    dual_coef_ : {ndarray, sparse} of shape (n_classes - 1, n_SV)
        Coefficients, laid out as in scikit-learn: one row for two classes; for pairs of classes
        the coefficients of a support vector against each other class. One row per class when
        `multi_class="ovr"`.
    intercept_ : ndarray of shape (n_problems,)
        Constants of the decision functions.
    coef_ : {ndarray, sparse} of shape (n_problems, n_features)
        Weights of the features, for the linear kernel only.
    objective_ : float
        Primal value of the returned model (sum over the problems).
    gap_ : float
        Relative duality gap (worst of the problems).
    objectives_, gaps_ : ndarray of shape (n_problems,)
        The same per problem.
    converged_ : bool
        Whether every gap is at most `tol`.
    n_iter_ : int
        Rounds of the solver, all problems together.
    solver_ : str
        What solved the problem.
    certificate_ : str
        "full": `gap_` is that of the whole problem.
    history_ : list of dict
        One record per round: round, seconds, objective, gap, support and more.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X had any.

    Notes
    -----
    scikit-learn's `cache_size`, `shrinking` and `probability` have no place here. In their stead:
    `memory_limit`, nothing at all (rows are handled automatically), and
    :class:`sklearn.calibration.CalibratedClassifierCV`.

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
        **KernelClassifier._parameter_constraints,
        "C": [Interval(Real, 0.0, None, closed="neither")],
        "loss": [StrOptions({"hinge", "squared_hinge"})],
    }

    @refuses(
        cache_size="use memory_limit (bytes, or for example '4GiB')",
        shrinking="none is needed, rows are handled automatically",
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
        loss: str = "hinge",
        intercept: str | None = "free",
        multi_class: str = "ovo",
        class_weight: dict[Any, float] | str | None = None,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        solver: Any = "auto",
        engine: Any = None,
        tol: float = 1e-3,
        max_iter: int = -1,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        warm_start: bool = False,
        callbacks: Callback | Sequence[Callback] | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
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
        self.callbacks = callbacks

    def _loss(self) -> Loss:
        return Loss(self.loss)

    def _prices(self, weight: Floats) -> Floats:
        return self.C * weight
