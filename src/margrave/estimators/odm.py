"""Optimal margin distribution machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from margrave._sklearn import Interval, StrOptions
from margrave.engines import EngineLike
from margrave.estimators._docs import documented
from margrave.estimators._input import Floats
from margrave.estimators._margin import MarginClassifier
from margrave.estimators._stream import ClassifierStream
from margrave.losses import Loss
from margrave.progress import Callback
from margrave.rows import AnyRows, blocks_of
from margrave.solvers import Solver
from margrave.typing import MatrixLike, Seed


@documented
class ODMClassifier(ClassifierStream, MarginClassifier):
    r"""Optimal margin distribution machine with a certificate.

    Unlike a support vector machine, which only penalises small margins, this one keeps all margins
    u_i = y_i f(x_i) in the band from 1 - theta to 1 + theta: margins below it have a squared loss,
    those above it `upsilon` times a squared loss. With s_i = sample_weight * class_weight it is

    .. math:: \min_w \tfrac12 |w|^2 + \frac{\lambda}{2 (1 - \theta)^2 \sum_i s_i}
              \sum_i s_i \big[ (1 - \theta - u_i)_+^2 + \upsilon (u_i - 1 - \theta)_+^2 \big],

    and the fit stops when the relative duality gap is at most `tol`.

    Parameters
    ----------
    lam : float or "scale", default="scale"
        Penalty of margins outside the band, positive; larger values mean less regularisation.
        "scale" is the sum of the weights s_i, so that a row of weight one has the same penalty
        however many rows there are, as with `C` of :class:`SVC`; a good range for a search is from
        a tenth of the number of rows to a hundred times it.
    upsilon : float, default=0.5
        Penalty of margins that are too large relative to those that are too small, at least 0.
    theta : float, default=0.1
        Half width of the band, in [0, 1). With ``upsilon=0, theta=0`` this is a support vector
        machine with the squared hinge.
    <kernel>
    intercept : {"free", "regularized"} or None, default=None
        <intercept>
    multi_class : {"ovo", "ovr"}, default="ovo"
        For more than two classes: one problem per pair of classes, or per class against the rest.
    <class_weight>
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of `decision_function` for more than two classes: one column per class (votes plus
        confidences when `multi_class="ovo"`), or one per pair of classes.
    <solver>
    <budgets>
    <stream>

    Attributes
    ----------
    <classes>
    dual_coef_ : {ndarray, sparse} of shape (n_classes - 1, n_SV)
        Coefficients, laid out as in scikit-learn's SVC; one row per class when
        `multi_class="ovr"`.
    intercept_ : ndarray of shape (n_problems,)
        Intercepts of the decision functions.
    coef_ : ndarray of shape (n_problems, n_features)
        Feature weights, for the linear kernel only.
    <certificate>
    <streamed>

    Examples
    --------
    >>> from margrave import ODMClassifier
    >>> X = [[-2.0, -1.0], [-1.0, -1.0], [1.0, 1.0], [2.0, 1.0]]
    >>> model = ODMClassifier(lam=100.0, gamma=0.5).fit(X, [0, 0, 1, 1])
    >>> print(*model.predict([[-0.8, -1.0], [3.0, 2.0]]))
    0 1
    >>> print(*model.certified([[-0.8, -1.0], [0.0, 0.0]]))
    True False
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MarginClassifier._parameter_constraints,
        **ClassifierStream._stream_constraints,
        "lam": [StrOptions({"scale"}), Interval(Real, 0.0, None, closed="neither")],
        "upsilon": [Interval(Real, 0.0, None, closed="left")],
        "theta": [Interval(Real, 0.0, 1.0, closed="left")],
        "multi_class": [StrOptions({"ovo", "ovr"})],
        "decision_function_shape": [StrOptions({"ovr", "ovo"})],
    }

    def __init__(
        self,
        lam: float | str = "scale",
        upsilon: float = 0.5,
        theta: float = 0.1,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        power: float = 1.0,
        intercept: str | None = None,
        multi_class: str = "ovo",
        class_weight: dict[Any, float] | str | None = None,
        decision_function_shape: str = "ovr",
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
        self.lam = lam
        self.upsilon = upsilon
        self.theta = theta
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.power = power
        self.intercept = intercept
        self.multi_class = multi_class
        self.class_weight = class_weight
        self.decision_function_shape = decision_function_shape
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

    def certified(self, X: MatrixLike) -> Any:
        """Find out which predicted labels are certainly those of the optimal model.

        The distance of a model from the optimum is at most sqrt(g), where g is its absolute duality
        gap, and hence its score of x differs from the optimal score by at most sqrt(g k(x, x)). A
        label is certified if such a difference cannot change it; with several classes, if it cannot
        change any binary decision for it.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        certified : ndarray of bool, shape (n_samples,)
        """
        rows = self._check_rows(X, reset=False)
        if self.certificate_ == "blocks":
            raise ValueError(
                "certified needs a model of the whole problem, but this one consists of parts that"
                " were fitted independently"
            )
        if self.intercept == "free":
            raise ValueError(
                "certified needs intercept=None or 'regularized', not 'free': the bound needs a"
                " regularised intercept"
            )
        radius = np.sqrt(np.outer(self._kernel_diagonal(rows), self._absolute_gaps))
        scores = self._scores(rows, "float64") + self.intercept_
        if self._scheme == "binary":
            return np.abs(scores[:, 0]) > radius[:, 0]
        if self._scheme == "ovr":
            best = scores.argmax(axis=1)[:, None]
            low = np.take_along_axis(scores - radius, best, axis=1)
            rivals = scores + radius
            np.put_along_axis(rivals, best, -np.inf, axis=1)
            return low[:, 0] > rivals.max(axis=1)
        return (np.abs(scores) > radius).all(axis=1)

    def _kernel_diagonal(self, X: AnyRows) -> Floats:
        """k(x, x) of new rows, plus 1 for a regularised intercept."""
        offset = 1.0 if self.intercept == "regularized" else 0.0
        return np.concatenate([self._kernel.diagonal(block) for _, block in blocks_of(X)]) + offset

    def _loss(self) -> Loss:
        return Loss("margin_distribution", theta=float(self.theta), upsilon=float(self.upsilon))

    def _penalties(self, weight: Floats) -> Floats:
        total = float(weight.sum())
        lam = total if self.lam == "scale" else float(self.lam)
        return weight * (lam / ((1.0 - self.theta) ** 2 * total))
