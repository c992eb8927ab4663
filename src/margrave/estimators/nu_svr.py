"""Nu support vector regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from margrave._sklearn import Interval
from margrave.blocks.hull import level
from margrave.engines import EngineLike
from margrave.estimators._docs import documented
from margrave.estimators._hull import centred, combination_of, interrupted, refuse_solver
from margrave.estimators._input import Floats, Rows, refuses, take
from margrave.estimators._regressor import KernelRegressor
from margrave.estimators._rows import RowNames, settled
from margrave.losses import Loss
from margrave.problem import Data, Problem
from margrave.progress import Callback
from margrave.resources import thread_count
from margrave.rows import AnyRows, in_memory
from margrave.solvers import Solution, Solver
from margrave.solvers.certificate import Certificate, certify_tube, with_certificate
from margrave.typing import Seed, VectorLike

# if the sum of |beta| over both copies of each row exceeds that of their differences by this
# factor, scores have to be recomputed
_CANCELLED = 1.01


@documented
class NuSVR(KernelRegressor):
    r"""Nu support vector regression with a certificate.

    With sample weights s_i the problem is

    .. math:: \min_{\beta, b, \varepsilon \ge 0} \tfrac12 \beta^\top K \beta
              + C \nu \varepsilon \sum_i s_i
              + C \sum_i s_i \max(0, |y_i - f_i - b| - \varepsilon), \qquad f = K \beta,

    whose optimum is that of :class:`sklearn.svm.NuSVR`: the tube is so wide that a fraction nu of
    the rows is outside. The fit stops when the relative duality gap is at most `tol`.

    Parameters
    ----------
    nu : float, default=0.5
        Upper bound on the fraction of rows outside the tube and lower bound on the fraction of
        support vectors; in (0, 1].
    C : float, default=1.0
        Penalty of errors outside the tube, positive; larger values mean less regularisation.
    <kernel>
    solver : str or solver object, default="auto"
        How to solve: "auto", "pairs", "pbm", "exact", or an object from :mod:`margrave.solvers`.
    <budgets>

    Attributes
    ----------
    <support>
    intercept_ : ndarray of shape (1,)
        Intercept of the regression function.
    epsilon_ : float
        Half width of the tube: the `epsilon` for which :class:`SVR` finds the same function.
    <certificate>

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import NuSVR
    >>> X = np.linspace(0.0, 6.0, 40)[:, None]
    >>> model = NuSVR(C=10.0, gamma=1.0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.5]])[0] - np.sin(1.5)) < 0.05)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KernelRegressor._parameter_constraints,
        "nu": [Interval(Real, 0.0, 1.0, closed="right")],
        "C": [Interval(Real, 0.0, None, closed="neither")],
    }

    @refuses()
    def __init__(
        self,
        nu: float = 0.5,
        C: float = 1.0,
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
        self.nu = nu
        self.C = C
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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        refuse_solver(self)

    def _certify(self, X: AnyRows, y: Floats, sample_weight: VectorLike | None) -> float:
        if not self._has_rows(X):
            raise ValueError("certify needs the rows of the fit, in the same order")
        weight = self._check_weights(X, sample_weight)
        rows = np.flatnonzero(weight)
        f = np.ascontiguousarray(self._scores(X, "float64")[rows, 0])
        weights = None if self._weights is None else self._weights[0]
        unknown = (np.nan, np.nan, np.nan, False, 0, "float64", "")
        b = float(self.intercept_[0])
        model = Solution(self._beta()[rows], b, f, *unknown, weights=weights)
        data = Data(take(X, rows, self._kernel.is_precomputed), self._kernel, _one_block(rows))
        found = self._certificate_of(data, y[rows], self.C * weight[rows], model, 0.0)
        scale = max(abs(found.objective), abs(found.dual))
        definite = weights is not None or data.is_definite(model.beta, f, scale)
        return found.gap if definite else float("inf")

    def _certificate_of(
        self, data: Data, y: Floats, penalty: Floats, model: Solution, tol: float
    ) -> Certificate:
        """Certificate of a model with the tube `epsilon_`."""
        loss = Loss("epsilon_insensitive", epsilon=self.epsilon_)
        tube = Problem(data, None, y, penalty, loss, "free")
        share = self.nu * float(penalty.sum())
        return certify_tube(tube, model, share, thread_count(self.n_jobs), tol)

    def _problem(self, data: Data, y: Floats, weight: Floats) -> Problem:
        """Make a hull problem of two copies of each row, above (+1) and below (-1) the tube."""
        if not data.in_memory:
            raise ValueError(
                "NuSVR needs all rows in one array; SVR(solver='auto') takes Dask collections and,"
                " with kernel='linear', rows in blocks"
            )
        n, penalty = len(y), self.C * weight
        return Problem(
            centred(data),
            (0, 0),
            np.repeat([1.0, -1.0], n),
            np.tile(penalty, 2),
            Loss("hull"),
            "free",
            total=0.5 * self.nu * float(penalty.sum()),
            shift=-np.tile(y, 2),
        )

    def _pack(self, X: AnyRows, rows: Rows, problem: Problem, solution: Solution) -> Solution:
        """Merge the two copies of each row, and store the model."""
        n, shift = len(rows), problem.shift
        assert shift is not None
        beta, caps = solution.beta[:n] + solution.beta[n:], problem.C[:n]
        scores = np.ascontiguousarray(solution.scores[:n])
        # the variables of both copies of a row may be large and cancel
        cancel = float(np.abs(solution.beta).sum()) > _CANCELLED * float(np.abs(beta).sum())
        if solution.certificate == "full" and (solution.precision == "float32" or cancel):
            # the width of the tube depends on scores that the solver has not computed accurately
            scores = _sums(problem.data, beta, thread_count(self.n_jobs))
        tube = _Tube(-shift[:n], caps, problem.total)
        t = 1.0 if solution.converged else tube.best_multiple(scores, float(beta @ scores))
        if not np.isfinite(solution.gap):  # its scores are unreliable
            t = 0.0
        folded = self._folded(X, rows, problem, solution, tube, t * beta, t * scores)
        if solution.converged and not folded.converged:  # the solver's estimate was too optimistic
            t = tube.best_multiple(scores, float(beta @ scores))
            if t != 1.0:
                folded = self._folded(X, rows, problem, solution, tube, t * beta, t * scores)
        nothing = np.zeros(n)
        is_certified = folded.rounding is not None  # its objective is that of the stored model
        worse = is_certified and not folded.objective <= tube.primal(nothing, 0.0)
        if worse and not folded.converged:
            # rounding of huge weights has made the stored model worse than a constant
            folded = self._folded(X, rows, problem, solution, tube, nothing, nothing)
        return folded

    def _folded(
        self,
        X: AnyRows,
        rows: Rows,
        problem: Problem,
        solution: Solution,
        tube: _Tube,
        beta: Floats,
        scores: Floats,
    ) -> Solution:
        """Store the model with these variables, one per row, and the best tube for its scores."""
        assert in_memory(X)  # see `_problem`
        b, self.epsilon_ = tube.around(scores)
        weights = None
        if self._kernel.name == "linear":
            weights = combination_of(X, rows, beta)
            # the scores are those of centred rows
            b -= float((X[rows[:1]] @ weights)[0]) - float(scores[0])
        folded = replace(solution, beta=beta, scores=scores, intercept=b, weights=weights)
        super()._pack(X, rows, problem, folded)
        if not folded.definite or (folded.certificate == "estimate" and weights is None):
            return folded
        data = Data(take(X, rows, self._kernel.is_precomputed), self._kernel, _one_block(rows))
        try:
            found = self._certificate_of(data, tube.y, tube.C, folded, self.tol)
        except KeyboardInterrupt:
            return interrupted(folded)
        scale = max(abs(found.objective), abs(found.dual))
        if weights is None and not data.is_definite(beta, scores, scale):
            # the solver's variables, which may be large and cancel, could not tell
            found, folded = replace(found, gap=np.inf), replace(folded, definite=False)
        return with_certificate(folded, found, self.tol)

    def _begin(self, names: RowNames, problem: Problem, rows: Rows) -> tuple[Problem, Floats]:
        here, coef = self._last_fit(names).places_in(rows), self._dual[0]
        beta = np.zeros(len(rows))
        beta[here[here >= 0]] = coef[here >= 0]
        both = np.concatenate([np.maximum(beta, 0.0), np.minimum(beta, 0.0)])
        return problem, settled(problem, both)


@dataclass(frozen=True)
class _Tube:
    """Targets and penalties C_i; the best tube has rows with penalties `total` on either side."""

    y: Floats
    C: Floats
    total: float

    def around(self, f: Floats) -> tuple[float, float]:
        """The optimal intercept and half width for these scores."""
        s = f - self.y
        above, below = level(s, self.C, self.total), -level(-s, self.C, self.total)
        return -(above + below) / 2.0, max(0.0, (below - above) / 2.0)

    def primal(self, f: Floats, norm: float) -> float:
        """Primal value of scores with their optimal tube."""
        b, width = self.around(f)
        outside = np.maximum(0.0, np.abs(self.y - f - b) - width)
        return 0.5 * norm + 2.0 * self.total * width + float(self.C @ outside)

    def best_multiple(self, f: Floats, norm: float) -> float:
        """A t in [0, 1] for which t times the scores are no worse than a constant prediction."""

        def value(t: float) -> float:
            return self.primal(t * f, t * t * norm)

        if value(1.0) <= value(0.0):
            return 1.0
        t = float(minimize_scalar(value, bounds=(0.0, 1.0), method="bounded").x)
        return t if value(t) < value(0.0) else 0.0


def _sums(data: Data, beta: Floats, threads: int) -> Floats:
    """Scores K beta in double precision."""
    rows = data.kernel_rows("float64", 0, 1 << 25, threads, cache=False)
    used = np.flatnonzero(beta)
    coef = np.ascontiguousarray(beta[used, None])
    sums, _ = rows.multiply(used, coef, np.arange(data.n_rows), True, 1e18)
    if sums is None:
        raise KeyboardInterrupt
    return np.ascontiguousarray(sums[:, 0])


def _one_block(rows: Rows) -> NDArray[np.int64]:
    """Boundaries of one block of all these rows."""
    return np.array([0, len(rows)], dtype=np.int64)
