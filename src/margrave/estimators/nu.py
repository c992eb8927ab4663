"""Nu-SVM and hard-margin SVM, solved as the distance between the convex hulls of two classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from margrave._sklearn import Interval, StrOptions
from margrave.engines import EngineLike
from margrave.estimators._classifier import Task
from margrave.estimators._docs import documented
from margrave.estimators._hull import HullClassifier, plain
from margrave.estimators._input import Floats, refuses
from margrave.progress import Callback
from margrave.solvers import Solver
from margrave.typing import Seed

_NO_CAP = 2.0  # weights sum to one, so this is no bound


@documented
class NuSVC(HullClassifier):
    r"""Nu support vector classification with a certificate.

    The reduced convex hull of a class is the set of convex combinations of its rows in which no row
    has a weight above 2 / (n nu), where n is the number of rows of both classes. The fit finds the
    shortest vector z between the reduced hulls of two classes,

    .. math:: U = \min \tfrac12 |z|^2, \qquad z = \sum_i \beta_i x_i,
              \quad \sum_{y_i = 1} \beta_i = 1 = -\sum_{y_i = -1} \beta_i,
              \quad 0 \le y_i \beta_i \le \frac{2 s_i}{\nu \sum_j s_j},

    where s are the sample weights, and stops when (U - L) / U is at most `tol`, where L is a lower
    bound of the optimum. The decision function is that of :class:`sklearn.svm.NuSVC`.

    Parameters
    ----------
    nu : float, default=0.5
        Upper bound on the fraction of margin errors and lower bound on the fraction of support
        vectors; in (0, 1], and at most twice the smaller class's fraction of the rows.
    <kernel>
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of `decision_function` for more than two classes: one column per class (votes plus
        confidences), or one per pair of classes.
    break_ties : bool, default=False
        Break ties between votes by the confidences instead of taking the first class.
    <hull_solver>
    <budgets>

    Attributes
    ----------
    <classes>
    <decision_functions>
    rho_ : float, or ndarray of shape (n_problems,) for more than two classes
        Half the width of the margin times the length of z: the decision function is
        (z'x - b) / rho.
    margin_ : float or ndarray
        Half the distance between the reduced hulls.
    equivalent_C_ : float or ndarray
        The C for which :class:`SVC` has the same decision function.
    <certificate>

    Notes
    -----
    `objective_` is U and `gap_` is (U - L) / U. If the reduced hulls overlap, no direction
    separates them, which raises a ValueError; a larger `nu` makes them smaller.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import NuSVC
    >>> X = np.array([[-1.0, -1.0], [-2.0, -1.0], [1.0, 1.0], [2.0, 1.0]])
    >>> model = NuSVC(kernel="linear").fit(X, [1, 1, 2, 2])
    >>> print(*model.predict([[-0.8, -1.0], [0.5, 2.0]]))
    1 2
    """

    _cure = "raise nu, or choose another kernel"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **HullClassifier._parameter_constraints,
        "nu": [Interval(Real, 0.0, 1.0, closed="right")],
        "decision_function_shape": [StrOptions({"ovr", "ovo"})],
        "break_ties": ["boolean"],
    }

    @refuses(
        probability="wrap the estimator in sklearn.calibration.CalibratedClassifierCV",
        class_weight="use sample_weight",
    )
    def __init__(
        self,
        nu: float = 0.5,
        *,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        power: float = 1.0,
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
        callbacks: Callback | Sequence[Callback] | None = None,
    ) -> None:
        self.nu = nu
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.power = power
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

    def _penalties(self, weight: Floats) -> Floats:
        caps: Floats = 2.0 * weight / (self.nu * weight.sum())
        return caps

    def _task(self, y: NDArray[Any], weight: Floats) -> Task:
        """Raise if nu is too large for the smaller class, before anything is computed."""
        task = super()._task(y, weight)
        self._totals = np.array([weight[task.rows][members].sum() for members in task.members])
        largest = min(
            self.nu * min(float(caps[signs > 0].sum()), float(caps[signs < 0].sum()))
            for caps, signs in zip(task.C, task.signs, strict=True)
        )
        if self.nu > largest * (1.0 + 1e-12):
            raise ValueError(
                f"specified nu is infeasible: nu={self.nu:g}, but for these classes it must be in"
                f" (0, {largest:.6g}], twice the smaller class's fraction of the rows"
            )
        return task

    def _store_caps(self, task: Task) -> None:
        # a row of weight one has the cap 2 / (nu * sum of weights), and beta / rho is at most C
        self.equivalent_C_ = plain(2.0 / (self.nu * self._totals * self._rho))


@documented
class HardMarginSVC(HullClassifier):
    r"""Support vector classification with a hard margin and a certificate.

    The shortest vector z between the convex hulls of two classes,

    .. math:: U = \min \tfrac12 |z|^2, \qquad z = \sum_i \beta_i x_i,
              \quad \sum_{y_i = 1} \beta_i = 1 = -\sum_{y_i = -1} \beta_i,
              \quad y_i \beta_i \ge 0,

    gives the plane that separates them with the widest margin, ``|z| / 2`` on either side. The fit
    stops when (U - L) / U is at most `tol`, where L is a lower bound of the optimum. Sample weights
    have no effect unless they are zero.

    Parameters
    ----------
    <kernel>
    <hull_solver>
    <budgets>

    Attributes
    ----------
    <classes>
    <decision_functions>
    rho_ : float, or ndarray of shape (n_problems,) for more than two classes
        The decision function is (z'x - b) / rho; at the optimum rho is U.
    margin_ : float or ndarray
        Half the distance between the hulls.
    <certificate>

    Notes
    -----
    `objective_` is U and `gap_` is (U - L) / U. If no plane separates the classes, a ValueError is
    raised.

    Examples
    --------
    >>> from margrave import HardMarginSVC
    >>> model = HardMarginSVC(kernel="linear").fit([[0.0], [1.0], [3.0], [4.0]], [0, 0, 1, 1])
    >>> model.margin_, model.predict([[1.9], [2.1]]).tolist()
    (1.0, [0, 1])
    """

    _cure = "use NuSVC or SVC, or choose another kernel"

    @refuses(
        C="the margin is hard; SVC and NuSVC have soft ones",
        probability="wrap the estimator in sklearn.calibration.CalibratedClassifierCV",
        class_weight="weights have no effect on a hard margin",
    )
    def __init__(
        self,
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
        callbacks: Callback | Sequence[Callback] | None = None,
    ) -> None:
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
        self.callbacks = callbacks

    def _penalties(self, weight: Floats) -> Floats:
        return np.full(len(weight), _NO_CAP)
