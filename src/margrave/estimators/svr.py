"""Support vector regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

from margrave import _core
from margrave._sklearn import Interval, StrOptions
from margrave.engines import EngineLike
from margrave.estimators._docs import documented
from margrave.estimators._hard import HardPenalty
from margrave.estimators._input import Floats, refuses
from margrave.estimators._regressor import KernelRegressor
from margrave.estimators._stream import RegressorStream
from margrave.losses import LOSSES, Loss
from margrave.problem import Data, Problem
from margrave.progress import Callback
from margrave.solvers import Solver
from margrave.typing import Seed


@documented
class SVR(HardPenalty, RegressorStream, KernelRegressor):
    r"""Support vector regression with a certificate.

    With penalties C_i = C * sample_weight the problem is

    .. math:: \min_{\beta, b} \tfrac12 \beta^\top K \beta
              + \sum_i C_i \max(0, |y_i - f_i - b| - \epsilon), \qquad f = K \beta,

    and the fit stops when the relative duality gap is at most `tol`. With the default loss and
    intercept the optimum is that of :class:`sklearn.svm.SVR`.

    Parameters
    ----------
    C : float, default=1.0
        Penalty of errors beyond `epsilon`, positive; larger values mean less regularisation, and
        inf allows none.
    epsilon : float, default=0.1
        Half width of the tube in which errors have no loss, at least 0; for the loss "huber" the
        error at which the loss changes from squared to linear, positive; not used by "pinball".
    <kernel>
    loss : str, default="epsilon_insensitive"
        "epsilon_insensitive", "squared_epsilon_insensitive", "huber" or "pinball". The first two
        are the linear and squared loss outside the tube. "huber" has no tube: the loss of an error
        r = y - f is r^2 / (2 epsilon) up to epsilon and \|r\| - epsilon / 2 beyond. "pinball" is
        quantile regression: the loss is `quantile` times r if r > 0, else 1 - `quantile` times -r.
    quantile : float, default=0.5
        Fraction of the targets that should lie below the prediction (loss "pinball"), in (0, 1);
        several quantiles take one fit each.
    intercept : {"free", "regularized"} or None, default="free"
        <intercept>
    <solver>
    <budgets>
    <stream>

    Attributes
    ----------
    <support>
    intercept_ : ndarray of shape (1,)
        Intercept of the regression function.
    <certificate>
    <streamed>

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import SVR
    >>> X = np.linspace(0.0, 6.0, 40)[:, None]
    >>> model = SVR(C=10.0, gamma=1.0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.11)
    True
    >>> model.converged_
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KernelRegressor._parameter_constraints,
        **RegressorStream._stream_constraints,
        "C": [Interval(Real, 0.0, None, closed="right")],
        "epsilon": [Interval(Real, 0.0, None, closed="left")],
        "loss": [StrOptions({name for name in LOSSES if not _core.Loss(name).labels})],
        "quantile": [Interval(Real, 0.0, 1.0, closed="neither")],
        "intercept": [StrOptions({"free", "regularized"}), None],
    }

    _hard_loss = "epsilon_insensitive"

    @refuses()
    def __init__(
        self,
        C: float = 1.0,
        epsilon: float = 0.1,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        power: float = 1.0,
        loss: str = "epsilon_insensitive",
        quantile: float = 0.5,
        intercept: str | None = "free",
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
        self.epsilon = epsilon
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.power = power
        self.loss = loss
        self.quantile = quantile
        self.intercept = intercept
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
        if self.loss == "huber" and self.epsilon == 0.0:
            raise ValueError("loss='huber' needs epsilon > 0, got epsilon=0")

    def _problem(self, data: Data, y: Floats, weight: Floats) -> Problem:
        numbers = {name: float(getattr(self, name)) for name in LOSSES[self.loss]}
        loss = Loss(self.loss, **numbers)
        return Problem(data, None, y, self._penalties(weight), loss, self.intercept)
