"""AutoClassifier and AutoRegressor: one call that finds a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import check_scoring
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from margrave.auto.base import AutoEstimator
from margrave.estimators import SVC, SVR, KernelLogisticRegression
from margrave.estimators._base import KernelEstimator
from margrave.estimators._input import Floats
from margrave.typing import MatrixLike, VectorLike


class AutoClassifier(ClassifierMixin, AutoEstimator):  # type: ignore[misc]
    """Find a classifier within a time: columns, kernel, metric, gamma, C.

    The search tries kernels of the Euclidean distance and of the sum of absolute differences,
    learns metrics (:class:`MetricLearner`), and moves from the best settings on few rows to
    settings on more; held-out rows decide. The best one is fitted to all rows: an ordinary
    estimator, with its certificate, in a pipeline with its preprocessing.

    Parameters
    ----------
    time_limit : float or None, default=60
        Seconds for everything. None ends when no move improves the best settings.
    scoring : str, callable or None, default=None
        What to maximise on held-out rows, as in scikit-learn; None is the accuracy. Metrics of
        probabilities (such as "neg_log_loss") search among logistic machines.
    categorical_features : array-like or None, default=None
        Columns of numbers that are categories, by name, position or a mask. Strings, and pandas'
        and polars' categories, always are.
    ensemble : int, default=1
        How many of the best settings are fitted to all rows; their decisions are averaged.
    max_fits : int or None, default=None
        Limits the number of fits of the search instead of the seconds, which are then ignored:
        results repeat.
    random_state : int, RandomState instance or None, default=None
        Seed of the folds. None means a fixed seed.
    n_jobs : int or None, default=None
        Number of threads; None for all cores available to the process.
    engine : {"serial", "threads", "cuda", "dask", "mpi"}, engine or Dask client, default=None
        Where fits run, as for :class:`SVC`.
    memory_limit : int or str or None, default=None
        Bytes, or for example "4GiB", for kernel values; None for half of what is available.
    verbose : int, default=0
        1 shows the leaderboard during the search.

    Attributes
    ----------
    best_ : SVC or KernelLogisticRegression
        The best setting, fitted to all rows, with its certificate `gap_`.
    pipeline_ : Pipeline
        Columns, metric (if there is one) and `best_`.
    pipelines_ : list of Pipeline
        Those of the ensemble, the best first.
    leaderboard_ : list of dict
        Every setting that was tried, the best first: score, settings, rows, folds, seconds.
    history_ : list of dict
        seconds, rows and score of each setting that was the best on that many rows when it was
        tried.
    best_score_, best_params_
        Score on held-out rows and setting of the best.
    feature_importances_ : ndarray of shape (n_features,)
        Importance of each column by the metric, the largest about one; all ones without a metric.
    classes_ : ndarray
        The labels.
    gap_ : float
        Relative duality gap of `best_`.
    n_fits_ : int
        Number of fits of the search.
    scorer_ : callable
        What was maximised.
    n_features_in_, feature_names_in_
        Number and names of the columns.

    Notes
    -----
    Ctrl-C keeps the best model so far and raises KeyboardInterrupt.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margrave import AutoClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AutoClassifier(max_fits=20).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    >>> model.leaderboard_[0]["rank"], model.predict_proba(X[:1]).shape
    (1, (1, 3))
    """

    _is_regression = False

    def _targets(self, y: VectorLike) -> NDArray[Any]:
        labels: NDArray[Any] = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        return labels

    def _check_targets(self, y: NDArray[Any]) -> None:
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(
                "AutoClassifier needs at least two classes, but there is only 1 class in y"
            )

    def _machine(self) -> KernelEstimator:
        common: dict[str, Any] = {
            **{"n_jobs": self.n_jobs, "engine": self.engine},
            **{"memory_limit": self.memory_limit, "random_state": 0},
        }
        scorer = check_scoring(KernelLogisticRegression(), self.scoring)
        methods = getattr(scorer, "_response_method", "predict")
        if methods == "predict_proba":
            return KernelLogisticRegression(**common)
        return SVC(**common)

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Predict labels.

        Parameters
        ----------
        X : {data frame, array-like, sparse} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        rows = self._checked(X)
        if len(self.pipelines_) == 1:
            labels: NDArray[Any] = self.pipeline_.predict(rows)
            return labels
        scores = self._decisions(rows)
        best = (scores > 0).astype(np.intp) if scores.ndim == 1 else np.argmax(scores, axis=1)
        chosen: NDArray[Any] = self.classes_[best]
        return chosen

    def decision_function(self, X: MatrixLike) -> Floats:
        """Evaluate the decision function, the mean of those of the ensemble.

        Parameters
        ----------
        X : {data frame, array-like, sparse} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        return self._decisions(self._checked(X))

    def _decisions(self, rows: Any) -> Floats:
        scores: Floats = np.mean([one.decision_function(rows) for one in self.pipelines_], axis=0)
        return scores

    def predict_proba(self, X: MatrixLike) -> Floats:
        """Probabilities of the classes, calibrated on held-out rows.

        Parameters
        ----------
        X : {data frame, array-like, sparse} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        rows = self._checked(X)
        found: Floats = np.mean([one.predict_proba(rows) for one in self.pipelines_], axis=0)
        return found


class AutoRegressor(RegressorMixin, AutoEstimator):  # type: ignore[misc]
    """Find a regression within a time: columns, kernel, metric, gamma, C, loss.

    See :class:`AutoClassifier`, whose parameters and attributes it has; `best_` is an
    :class:`SVR`, and the default score is R2.

    Parameters
    ----------
    time_limit : float or None, default=60
        Seconds for everything. None ends when no move improves the best settings.
    scoring : str, callable or None, default=None
        What to maximise on held-out rows, as in scikit-learn; None is R2.
    categorical_features : array-like or None, default=None
        Columns of numbers that are categories, by name, position or a mask.
    ensemble : int, default=1
        How many of the best settings are fitted to all rows; their predictions are averaged.
    max_fits : int or None, default=None
        Limits the number of fits of the search instead of the seconds: results repeat.
    random_state, n_jobs, engine, memory_limit, verbose
        As for :class:`AutoClassifier`.

    Attributes
    ----------
    best_ : SVR
        The best setting, fitted to all rows, with its certificate `gap_`.
    pipeline_, pipelines_, leaderboard_, history_, best_score_, best_params_
        As for :class:`AutoClassifier`.
    feature_importances_, gap_
        As for :class:`AutoClassifier`.
    n_fits_, scorer_, n_features_in_, feature_names_in_
        As for :class:`AutoClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from margrave import AutoRegressor
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * X[:, 1]
    >>> model = AutoRegressor(max_fits=30).fit(X[:200], y[:200])
    >>> model.score(X[200:], y[200:]) > 0.9
    True
    """

    _is_regression = True

    def _targets(self, y: VectorLike) -> NDArray[Any]:
        targets = column_or_1d(y, warn=True)
        try:
            numbers: Floats = targets.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the targets of a regression must be numbers: {error}") from None
        if not np.isfinite(numbers).all():
            raise ValueError("Input y contains NaN or infinity")
        return numbers

    def _check_targets(self, y: NDArray[Any]) -> None:
        """Any finite numbers will do."""

    def _machine(self) -> KernelEstimator:
        return SVR(
            n_jobs=self.n_jobs,
            engine=self.engine,
            memory_limit=self.memory_limit,
            random_state=0,
        )

    def predict(self, X: MatrixLike) -> Floats:
        """Predict targets, the mean of the ensemble's.

        Parameters
        ----------
        X : {data frame, array-like, sparse} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        rows = self._checked(X)
        found: Floats = np.mean([one.predict(rows) for one in self.pipelines_], axis=0)
        return found
