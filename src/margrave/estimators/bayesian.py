"""Bayesian support vector machines: the posterior of the weights by Gibbs sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import ClassifierMixin, RegressorMixin

from margrave._sklearn import Interval, StrOptions
from margrave.engines import EngineLike
from margrave.estimators._bayesian import BayesianEstimator, ProblemsOn
from margrave.estimators._docs import documented
from margrave.estimators._input import Floats, Rows
from margrave.estimators._remote import lazily
from margrave.losses import Loss
from margrave.problem import BaseProblem, Data, JointProblem, Problem
from margrave.progress import Callback
from margrave.rows import AnyRows, in_memory
from margrave.solvers import Solver
from margrave.typing import MatrixLike, Seed


@documented
class BayesianSVC(ClassifierMixin, BayesianEstimator):  # type: ignore[misc]
    r"""Support vector classification with the posterior of its weights.

    With labels y = +-1, s_i = sample_weight and the scores f of a weight vector w, the density

    .. math:: p(w) \propto \exp\Big(-\tfrac{\lambda}{2} |w|^2
              - 2 \sum_i s_i \max(0, 1 - y_i f_i)\Big)

    has its maximum at the optimum of the SVM with C = 2 / lam. Several Gibbs chains sample from
    it. The prior of f is a Gaussian process with covariance k / lam.

    Parameters
    ----------
    lam : float, default=1.0
        Precision of the prior, positive.
    n_samples, burn_in : int, default=1000, 100
        Number of samples per chain, and of discarded samples before them.
    chains : int, default=4
        Number of chains.
    <kernel>
    features : int, "auto" or None, default="auto"
        Number of landmarks for a kernel that is not linear, chosen by a pivoted Cholesky
        factorisation; each is a feature with a weight. "auto" takes at most 200. With None all rows
        are landmarks, so that the model is that of the kernel itself, which takes 24 bytes per pair
        of rows and, for n rows, more than n^3 multiplications per sample: minutes for 1,000 rows.
    intercept : {"free", "regularized"} or None, default="regularized"
        "regularized" adds a constant feature with the same prior as the others, "free" one with
        a flat prior, None no constant.
    multi_class : {"crammer_singer", "ovr"}, default="crammer_singer"
        For more than two classes: one joint problem in which the score of the true class must
        exceed every other by one (its weights are differences from the mean of all classes), or
        one problem per class against the rest.
    keep_draws : bool, default=False
        Keep all samples as ``posterior_.draws``, not only their mean and covariance.
    solver : "gibbs" or Gibbs, default="gibbs"
        A :class:`~margrave.solvers.Gibbs` object has its own numbers of samples and chains.
    engine : None, str, Dask client or engine, default=None
        Where the rows are and sums over them are computed: threads of this process, "dask",
        "mpi", ...
    time_limit : float, optional
        Seconds after which sampling stops; the samples so far are used.
    memory_limit : int or str, optional
        Bytes for buffers, or for example "4GiB".
    n_jobs : int, optional
        Threads; all cores by default.
    random_state : int, RandomState or None, default=None
        The same seed gives the same samples, on any engine and number of workers; None means a
        fixed seed.
    verbose : int, default=0
        1 shows a progress bar, 2 logs a line per sample.
    callbacks : callable or list of callables, optional
        Called with the record of each sample; one that returns True stops the sampling.

    Attributes
    ----------
    classes_ : ndarray
        Labels.
    posterior_ : :class:`~margrave.models.Posterior`
        ``mean``, ``covariance`` and, if kept, samples (``draws``) of the weights.
    diagnostics_ : dict
        Split R-hat ``r_hat`` and effective sample size ``ess`` of every weight, the same for J
        (``r_hat_objective``, ``ess_objective``), and the worst of all (``max_r_hat``, ``min_ess``).
    converged_ : bool
        Whether ``max_r_hat`` is at most 1.05 and ``min_ess`` at least 100; otherwise `fit` warns.
    coef_, intercept_ : ndarray
        Posterior means of the feature weights (linear kernel only) and intercepts.
    objective_ : float
        J, the negative exponent of the density, at the posterior mean.
    gap_ : float
        NaN: a posterior has no duality gap.
    n_draws_, n_iter_ : int
        Samples of all chains without burn-in, and iterations of each chain.
    history_ : list of dict
        One record per iteration; ``objective`` is the mean of J over the chains.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import BayesianSVC
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = X[:, 0] + 0.3 * rng.normal(size=100) > 0
    >>> model = BayesianSVC(kernel="linear", n_samples=500).fit(X, y)
    >>> mean, deviation = model.decision_function([[2.0, 0.0], [0.05, 0.0]], return_std=True)
    >>> bool(mean[0] > 2 * deviation[0]), bool(abs(mean[1]) < 2 * deviation[1])
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BayesianEstimator._parameter_constraints,
        "multi_class": [StrOptions({"crammer_singer", "ovr"})],
    }

    def __init__(
        self,
        lam: float = 1.0,
        *,
        n_samples: int = 1000,
        burn_in: int = 100,
        chains: int = 4,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        power: float = 1.0,
        features: int | str | None = "auto",
        intercept: str | None = "regularized",
        multi_class: str = "crammer_singer",
        keep_draws: bool = False,
        solver: str | Solver = "gibbs",
        engine: EngineLike = None,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callback | Sequence[Callback] | None = None,
    ) -> None:
        self.lam = lam
        self.n_samples = n_samples
        self.burn_in = burn_in
        self.chains = chains
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.power = power
        self.features = features
        self.intercept = intercept
        self.multi_class = multi_class
        self.keep_draws = keep_draws
        self.solver = solver
        self.engine = engine
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def _problems(self, y: NDArray[Any], C: Floats) -> ProblemsOn:
        self.classes_, labels = np.unique(y, return_inverse=True)
        k = len(self.classes_)
        if k < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, but there is only 1 class in y"
            )
        self._scheme = "binary" if k == 2 else self.multi_class

        def problems_on(data: Data) -> Sequence[BaseProblem]:
            if k > 2 and self.multi_class == "crammer_singer":
                return [JointProblem(data, labels, k, C, "crammer_singer", self.intercept)]
            positive = [1] if k == 2 else range(k)
            signs = [np.where(labels == c, 1.0, -1.0) for c in positive]
            return [Problem(data, None, s, C, Loss("hinge"), self.intercept) for s in signs]

        return problems_on

    @lazily
    def decision_function(self, X: MatrixLike, return_std: bool = False) -> Any:
        """Posterior means of the scores, optionally with their standard deviations.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
        return_std : bool, default=False

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Two classes: positive values mean ``classes_[1]``.
        deviations : ndarray of the same shape
            Only if `return_std`.
        """
        mean, deviation = self._moments(self._check_rows(X, reset=False))
        if len(self.classes_) == 2:
            mean, deviation = mean[:, 0], deviation[:, 0]
        return (mean, deviation) if return_std else mean

    @lazily
    def predict(self, X: MatrixLike, return_std: bool = False) -> Any:
        """Labels by the mean scores, optionally with the standard deviations of the scores.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
        return_std : bool, default=False

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        deviations : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Only if `return_std`: those of `decision_function`.
        """
        mean, deviation = self.decision_function(X, return_std=True)
        if len(self.classes_) == 2:
            labels = self.classes_[(mean >= 0).astype(np.intp)]
        else:
            labels = self.classes_[np.argmax(mean, axis=1)]
        return (labels, deviation) if return_std else labels

    @lazily
    def predict_proba(self, X: MatrixLike) -> Floats:
        """Posterior probability that each class is predicted.

        This is the probability, over the posterior of the weights, that the label is predicted, not
        the frequency of the label among similar rows: it expresses the uncertainty of the decision
        and is not calibrated. (Wrap the estimator in
        :class:`sklearn.calibration.CalibratedClassifierCV` for that.) It is computed from the
        samples if they were kept; otherwise scores are assumed to be normal and independent between
        classes. With more than two classes, each is compared with the class of the largest mean,
        and the odds are normalised.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)

        Returns
        -------
        shares : ndarray of shape (n_samples, n_classes)
        """
        rows = self._check_rows(X, reset=False)
        mean, deviation = self._moments(rows)
        if len(self.classes_) == 2:  # the score of the first class is zero
            nothing = np.zeros_like(mean)
            mean, deviation = np.hstack([nothing, mean]), np.hstack([nothing, deviation])
        at, best = np.arange(len(mean)), mean.argmax(axis=1)
        if mean.shape[1] == 2:
            best = (mean[:, 1] >= 0.0).astype(np.intp)
        wins = self._wins(rows, best)
        if wins is None:
            apart = mean - mean[at, best][:, None]
            spread = np.sqrt(deviation**2 + deviation[at, best][:, None] ** 2)
            with np.errstate(divide="ignore", invalid="ignore"):
                far = np.where(spread > 0.0, apart / spread, np.where(apart < 0.0, -np.inf, 0.0))
            wins = stats.norm.cdf(far)
        wins = np.minimum(wins, 0.5)
        wins[at, best] = 0.5
        odds = wins / (1.0 - wins)
        shares: Floats = odds / odds.sum(axis=1, keepdims=True)
        return shares

    def _wins(self, X: AnyRows, best: Rows) -> Floats | None:
        """Fraction of the kept samples in which a class beats the best one; None without any."""
        if self.posterior_.draws is None or not in_memory(X):
            return None
        features, at = self._features(X), np.arange(len(best))
        wins: Any = 0.0
        for draw in self.posterior_.draws:
            scores = np.asarray(features @ draw.T)
            if len(self.classes_) == 2:
                scores = np.hstack([np.zeros_like(scores), scores])
            wins = wins + (scores > scores[at, best][:, None])
        found: Floats = wins / len(self.posterior_.draws)
        return found


@documented
class BayesianSVR(RegressorMixin, BayesianEstimator):  # type: ignore[misc]
    r"""Support vector regression with the posterior of its weights.

    With s_i = sample_weight and the scores f of a weight vector w, the density

    .. math:: p(w) \propto \exp\Big(-\tfrac{\lambda}{2} |w|^2
              - 2 \sum_i s_i \max(0, |y_i - f_i| - \epsilon)\Big)

    has its maximum at the optimum of the SVR with C = 2 / lam. Its width depends on the units of y:
    an error of one outside the tube reduces the density by a factor of e^2. Scale the targets
    accordingly.

    Parameters
    ----------
    lam : float, default=1.0
        Precision of the prior, positive.
    epsilon : float, default=0.1
        Half width of the tube in which errors have no loss.
    n_samples, burn_in : int, default=1000, 100
        Number of samples per chain, and of discarded samples before them.
    chains : int, default=4
        Number of chains.
    <kernel>
    features, intercept, keep_draws, solver, engine, time_limit, memory_limit, n_jobs
        As for :class:`BayesianSVC`.
    random_state, verbose, callbacks
        As for :class:`BayesianSVC`.

    Attributes
    ----------
    posterior_, diagnostics_, converged_, coef_, intercept_, objective_, gap_, n_draws_, n_iter_
        As for :class:`BayesianSVC`.
    history_ : list of dict
        One record per iteration; ``objective`` is the mean of J over the chains.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import BayesianSVR
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(100, 1))
    >>> y = 2.0 * X[:, 0] + 0.1 * rng.normal(size=100)
    >>> model = BayesianSVR(kernel="linear", n_samples=500).fit(X, y)
    >>> mean, deviation = model.predict([[0.5], [5.0]], return_std=True)
    >>> bool(abs(mean[0] - 1.0) < 0.2), bool(deviation[1] > deviation[0])
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BayesianEstimator._parameter_constraints,
        "epsilon": [Interval(Real, 0.0, None, closed="left")],
    }

    def __init__(
        self,
        lam: float = 1.0,
        *,
        epsilon: float = 0.1,
        n_samples: int = 1000,
        burn_in: int = 100,
        chains: int = 4,
        kernel: str | Callable[[Any, Any], Any] = "rbf",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        power: float = 1.0,
        features: int | str | None = "auto",
        intercept: str | None = "regularized",
        keep_draws: bool = False,
        solver: str | Solver = "gibbs",
        engine: EngineLike = None,
        time_limit: float | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callback | Sequence[Callback] | None = None,
    ) -> None:
        self.lam = lam
        self.epsilon = epsilon
        self.n_samples = n_samples
        self.burn_in = burn_in
        self.chains = chains
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.power = power
        self.features = features
        self.intercept = intercept
        self.keep_draws = keep_draws
        self.solver = solver
        self.engine = engine
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def _problems(self, y: NDArray[Any], C: Floats) -> ProblemsOn:
        loss = Loss("epsilon_insensitive", epsilon=float(self.epsilon))
        targets = np.ascontiguousarray(y, dtype=np.float64)
        return lambda data: [Problem(data, None, targets, C, loss, self.intercept)]

    @lazily
    def predict(self, X: MatrixLike, return_std: bool = False) -> Any:
        """Posterior means of the predictions, optionally with their standard deviations.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
        return_std : bool, default=False
            The standard deviations of the scores f, without the noise of the targets.

        Returns
        -------
        values : ndarray of shape (n_samples,)
        deviations : ndarray of shape (n_samples,)
            Only if `return_std`.
        """
        mean, deviation = self._moments(self._check_rows(X, reset=False))
        return (mean[:, 0], deviation[:, 0]) if return_std else mean[:, 0]
