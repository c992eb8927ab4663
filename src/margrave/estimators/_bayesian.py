"""Base class of the Bayesian estimators: from rows to samples, and from samples to scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets

from margrave._sklearn import Interval, StrOptions
from margrave.estimators._advice import outside
from margrave.estimators._base import KernelEstimator
from margrave.estimators._input import Floats, Rows, take
from margrave.estimators._remote import on_every_rank
from margrave.estimators._transaction import complete, transaction
from margrave.models import Landmarks, Posterior
from margrave.problem import BaseProblem, Data, is_joint
from margrave.progress import Progress
from margrave.resources import one_blas_thread
from margrave.rows import AnyRows, Matrix, blocks_of, in_memory, is_csr
from margrave.solvers import Gibbs, Settings
from margrave.solvers.bayes.gibbs import Sampled
from margrave.solvers.linear.augmentation import check_memory, featured
from margrave.typing import MatrixLike, VectorLike

ProblemsOn: TypeAlias = Callable[[Data], Sequence[BaseProblem]]

_MOST_R_HAT, _LEAST_ESS = 1.05, 100.0
_FEATURES = 200  # landmarks at most, by default: 1,000 rows then take seconds, not minutes


class BayesianEstimator(KernelEstimator):
    """Base class of BayesianSVC and BayesianSVR."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KernelEstimator._parameter_constraints,
        "lam": [Interval(Real, 0.0, None, closed="neither")],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "burn_in": [Interval(Integral, 0, None, closed="left")],
        "chains": [Interval(Integral, 1, None, closed="left")],
        "intercept": [StrOptions({"free", "regularized"}), None],
        "features": [None, StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "keep_draws": ["boolean"],
    }

    def _sampler(self) -> Gibbs:
        """The sampler: from the parameters, or the given Gibbs object."""
        if self.solver == "gibbs":
            return Gibbs(self.n_samples, self.burn_in, self.chains, self.keep_draws)
        if isinstance(self.solver, Gibbs):
            return self.solver
        raise ValueError(
            f"the solver of {type(self).__name__} must be 'gibbs' or a Gibbs object, got"
            f" {self.solver!r}; SVC and SVR have solver='em' for the point estimate"
        )

    def _problems(self, y: NDArray[Any], C: Floats) -> ProblemsOn:
        """Check these targets; return the function that makes their problems on given data."""
        raise NotImplementedError

    @transaction
    @on_every_rank
    def fit(self, X: MatrixLike, y: VectorLike, sample_weight: VectorLike | None = None) -> Self:
        """Sample the posterior.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; a square kernel matrix when `kernel="precomputed"`.
        y : array-like of shape (n_samples,)
            Labels of a classifier, targets of a regressor.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row: two is equivalent to repeating the row, zero to leaving it out.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._check_parameters()
        self._sampler()
        checked, given = self._check_training(X, y, numbers=is_regressor(self))
        if is_classifier(self):
            check_classification_targets(given)
        weight = self._check_weights(checked, sample_weight)
        rows = np.flatnonzero(weight)
        self._sample(checked, rows, weight, self._problems(given[rows], 2.0 * weight[rows]))
        return self

    def _sample(self, X: AnyRows, rows: Rows, weight: Floats, problems_on: ProblemsOn) -> None:
        """Sample the weights of one or several problems, and store the posterior."""
        sampler = self._sampler()
        sampler.check()
        for name in ("support_", "tuning_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self._kernel = self._kernel_for(X, weight)
        data = Data(
            take(X, rows, square=self._kernel.is_precomputed),
            self._kernel,
            np.array([0, len(rows)], dtype=np.int64),
        )
        self._landmarks: Landmarks | None = None
        self._fit_rows = None
        self._n_rows = X.shape[0]
        progress = Progress(
            tol=0.0,
            time_limit=self.time_limit,
            callbacks=self.callbacks,
            verbose=int(self.verbose),
            label=type(self).__name__,
        )
        if self._context is not None:
            self._context.watch(progress)
        with progress, one_blas_thread():
            settings = self._fit_settings(progress, data)
            problems = self._featured(problems_on(data), X, rows, settings)
            found = []
            for problem in problems:
                found.append(sampler.sample(problem, self.lam, settings))
                if progress.stop_reason == "interrupted" and not found[-1].n_iter:
                    raise KeyboardInterrupt(
                        f"{type(self).__name__} was interrupted before the first sample"
                    )
        self._store_posterior(problems, found, progress)

    def _featured(
        self, problems: Sequence[BaseProblem], X: AnyRows, rows: Rows, settings: Settings
    ) -> Sequence[BaseProblem]:
        """The problems with the kernel replaced by explicit features, shared by all of them."""
        if self._kernel.name == "linear":
            return problems
        if not in_memory(X):
            raise ValueError(
                f"{type(self).__name__} needs all rows in one array for the kernel"
                f" {self._kernel.name!r}; rows on an engine's workers need kernel='linear'"
            )
        wanted = _FEATURES if self.features == "auto" else self.features
        count = len(rows) if wanted is None else min(wanted, len(rows))
        if self.features is None:
            check_memory(len(rows), settings)
        first, marks, factor = featured(problems[0], count, settings)
        points = rows[marks] if self._kernel.is_precomputed else X[rows[marks]]
        self._landmarks = Landmarks(points, factor, self._kernel)
        self.support_ = rows[marks]
        return [problem.on_all_of(first.data) for problem in problems]

    def _store_posterior(
        self, problems: Sequence[BaseProblem], found: Sequence[Sampled], progress: Progress
    ) -> None:
        """Store the posterior of all outputs; then warn, or re-raise Ctrl-C."""
        parts = [one.posterior for one in found]
        draws = None
        if all(part.draws is not None for part in parts):
            draws = np.concatenate([part.draws for part in parts], axis=1)
        self.posterior_ = Posterior(
            np.concatenate([part.mean for part in parts]),
            np.concatenate([part.covariance for part in parts]),
            draws,
        )
        self.diagnostics_ = _joined([one.diagnostics for one in found])
        constant = self.intercept is not None
        mean = self.posterior_.mean
        self.intercept_ = mean[:, -1].copy() if constant else np.zeros(len(mean))
        self._weights = mean[:, : mean.shape[1] - constant]
        self.n_draws_ = min(one.n_draws for one in found)
        self.n_iter_ = sum(one.n_iter for one in found)
        self.history_ = progress.history
        self.solver_, self.certificate_, self.gap_ = "gibbs", "none", float("nan")
        self.objective_ = sum(self._cost(p, o) for p, o in _outputs(problems, mean))
        reason = progress.stop_reason
        worst, least = self.diagnostics_["max_r_hat"], self.diagnostics_["min_ess"]
        self.converged_ = bool(worst <= _MOST_R_HAT and least >= _LEAST_ESS) and reason is None
        complete(self)
        if reason == "interrupted":
            raise KeyboardInterrupt(
                f"{type(self).__name__} keeps the posterior of {self.n_draws_} samples"
            )
        if not self.converged_:
            diagnosis = (
                f"split R-hat is up to {worst:.3f} (good: at most {_MOST_R_HAT}), the effective"
                f" sample size as low as {least:.0f} (good: at least {_LEAST_ESS:.0f})"
            )
            if np.isnan(worst):
                diagnosis = "there are too few samples for the diagnostics"
            limit = f"; {reason} ended them early" if reason else ""
            warnings.warn(
                f"{type(self).__name__}: the chains have not mixed: {diagnosis}{limit}; raise"
                " n_samples or burn_in",
                ConvergenceWarning,
                stacklevel=outside(),
            )

    def _cost(self, problem: BaseProblem, mean: Floats) -> float:
        """The objective J (see BayesianSVC) at these weights."""
        constant = problem.intercept is not None
        W = mean[:, : mean.shape[1] - constant]
        b = mean[:, -1] if constant else np.zeros(len(mean))
        blocks = blocks_of(problem.data.X)
        scores = np.concatenate([np.asarray(block @ W.T) for _, block in blocks]) + b
        nothing = np.zeros(problem.shape)
        if is_joint(problem):
            loss = problem.terms(nothing, scores, np.zeros(len(b)))[0]
        else:
            loss = problem.terms(nothing, np.ascontiguousarray(scores[:, 0]), 0.0)[0]
        penalised = W if self.intercept == "free" else mean
        cost: float = 0.5 * self.lam * float((penalised**2).sum()) + loss
        return cost

    # --- prediction ------------------------------------------------------------------------

    def _moments(self, X: AnyRows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the scores, one column per output."""
        if not in_memory(X):
            parts = [self._moments(block) for _, block in blocks_of(X)]
            return np.concatenate([m for m, _ in parts]), np.concatenate([s for _, s in parts])
        features = self._features(X)
        mean, deviation = self.posterior_.scores(features)
        if self._landmarks is not None:  # prior variance that the landmarks do not cover
            own = self._kernel.diagonal(X) if not self._kernel.is_precomputed else None
            if own is not None:
                phi = features[:, : len(self._landmarks.factor)]
                left = np.maximum(own - (phi**2).sum(axis=1), 0.0) / self.lam
                deviation = np.sqrt(deviation**2 + left[:, None])
        return mean, deviation

    def _features(self, X: Matrix) -> Matrix:
        rows: Matrix = X if self._landmarks is None else self._landmarks.features(X)
        if self.intercept is None:
            return rows
        ones = np.ones((rows.shape[0], 1))
        wider: Matrix = (
            sparse.hstack([rows, ones], format="csr")
            if is_csr(rows)
            else np.hstack([np.asarray(rows), ones])
        )
        return wider

    @property
    def support_vectors_(self) -> Matrix:
        """Landmarks of the kernel; a linear model has none."""
        if self._landmarks is None:
            raise AttributeError("a linear Bayesian model has no support vectors")
        points: Matrix = self._landmarks.points
        return points

    @property
    def coef_(self) -> Any:
        """Posterior mean of the feature weights, for the linear kernel."""
        if self._landmarks is not None:
            raise AttributeError("coef_ is only available for the linear kernel")
        return self._weights


def _outputs(problems: Sequence[BaseProblem], mean: Floats) -> list[tuple[BaseProblem, Floats]]:
    """Each problem with its part of the mean."""
    counts = [problem.n_outputs for problem in problems]
    return list(zip(problems, np.split(mean, np.cumsum(counts)[:-1]), strict=True))


def _joined(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combine the diagnostics of several problems."""
    if len(found) == 1:
        return found[0]
    return {
        "r_hat": np.concatenate([one["r_hat"] for one in found]),
        "ess": np.concatenate([one["ess"] for one in found]),
        "r_hat_objective": max(one["r_hat_objective"] for one in found),
        "ess_objective": min(one["ess_objective"] for one in found),
        "max_r_hat": max(one["max_r_hat"] for one in found),
        "min_ess": min(one["min_ess"] for one in found),
    }
