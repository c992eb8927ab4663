"""AutoClassifier and AutoRegressor: one call that finds a model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from margrave._sklearn import HasMethods, Interval, _check_sample_weight
from margrave.auto.board import LiveBoard, history, leaderboard, tuning
from margrave.auto.budget import Budget
from margrave.auto.candidates import Candidate, Moves
from margrave.auto.columns import STYLES, Columns, checked_table, kinds_of
from margrave.auto.search import AutoSearch
from margrave.auto.splits import folds_of
from margrave.auto.views import Fold, Table, Views
from margrave.engines import EngineLike
from margrave.estimators import SVC, SVR, KernelLogisticRegression
from margrave.estimators._base import KernelEstimator
from margrave.estimators._files import save
from margrave.estimators._input import Floats
from margrave.estimators._margin import MarginClassifier, sigmoids
from margrave.estimators._transaction import complete, transaction
from margrave.metric import MetricLearner
from margrave.metric.iteration import transformed, typical_distance
from margrave.progress import Progress
from margrave.report import Report, make_report
from margrave.rows import is_csr
from margrave.tuning.samples import Scorer
from margrave.typing import MatrixLike, Seed, VectorLike

_FOR_SEARCH = 0.65  # share of the budget; the rest is for the last fit
_WIDEST = 500  # features up to which full metrics are tried


_KEPT = 8  # models of the search that are kept for calibration, and for Ctrl-C
_COMPARED = 2000  # rows that tell whether a fit that was cut short is of use
_SECOND = 0.5  # seconds kept for what follows the last fit


class AutoEstimator(BaseEstimator):  # type: ignore[misc]
    """What AutoClassifier and AutoRegressor have in common."""

    _is_regression: ClassVar[bool]
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "time_limit": [None, Interval(Real, 0.0, None, closed="neither")],
        "scoring": [None, str, callable],
        "categorical_features": [None, "array-like"],
        "ensemble": [Interval(Integral, 1, None, closed="left")],
        "max_fits": [None, Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "engine": [None, str, HasMethods("scatter")],
        "memory_limit": [None, str, Interval(Integral, 0, None, closed="neither")],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        time_limit: float | None = 60.0,
        *,
        scoring: str | Scorer | None = None,
        categorical_features: Columns | None = None,
        ensemble: int = 1,
        max_fits: int | None = None,
        random_state: Seed = None,
        n_jobs: int | None = None,
        engine: EngineLike = None,
        memory_limit: int | str | None = None,
        verbose: int = 0,
    ) -> None:
        self.time_limit = time_limit
        self.scoring = scoring
        self.categorical_features = categorical_features
        self.ensemble = ensemble
        self.max_fits = max_fits
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.engine = engine
        self.memory_limit = memory_limit
        self.verbose = verbose

    # --- fit -----------------------------------------------------------------------------------

    @transaction
    def fit(self, X: MatrixLike, y: VectorLike, sample_weight: VectorLike | None = None) -> Self:
        """Search within the budget, and fit the best setting to all rows.

        Parameters
        ----------
        X : {data frame, array-like, sparse} of shape (n_samples, n_features)
            Rows. Frames may have categories, strings and missing values; arrays may have NaN.
        y : array-like of shape (n_samples,)
            Labels or targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row: in fits and scores.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        budget = Budget(self.time_limit, self.max_fits)
        self._validate_params()
        table = self._table(X, y, sample_weight)
        machine = self._machine()
        self.scorer_ = check_scoring(machine, self.scoring)
        rng = check_random_state(0 if self.random_state is None else self.random_state)
        folds = folds_of(table.y, not self._is_regression, rng)
        views = Views(table, machine)
        share = _FOR_SEARCH if self.max_fits is None else 1.0
        shown = LiveBoard(int(self.verbose))
        search = AutoSearch(
            *(views, folds, self._moves(table), self.scorer_, budget),
            *(share, _KEPT + self.ensemble, shown.show),
        )
        try:
            with shown:
                search.run()
            chosen = self._chosen(search)
            self._store_search(search, chosen)
            pipelines = self._fit_all(chosen, search, budget)
        except KeyboardInterrupt:
            self._keep_best(search)
            complete(self)
            raise
        self._store(pipelines, search, chosen)
        return self

    def _table(self, X: MatrixLike, y: VectorLike, weight: VectorLike | None) -> Table:
        """Check all input, and leave out rows of no weight."""
        rows = checked_table(X)
        validate_data(self, X, skip_check_array=True)
        targets = self._targets(y)
        check_consistent_length(rows, targets)
        given = _check_sample_weight(
            weight, np.empty((len(targets), 1)), dtype=np.float64, ensure_non_negative=True
        )
        kinds = kinds_of(rows, self.categorical_features)
        table = Table(rows, targets, given, kinds, 1.0)
        used = np.flatnonzero(given)
        if len(used) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 rows of positive weight, got"
                f" n_samples={len(used)}"
            )
        if len(used) < len(given):
            table = replace(table, X=table.take(used), y=targets[used], weight=given[used])
        self._check_targets(table.y)
        if self._is_regression:
            table = replace(table, spread=float(np.std(table.y)) or 1.0)
        return table

    def _targets(self, y: VectorLike) -> NDArray[Any]:
        raise NotImplementedError

    def _check_targets(self, y: NDArray[Any]) -> None:
        raise NotImplementedError

    def _machine(self) -> KernelEstimator:
        raise NotImplementedError

    def _moves(self, table: Table) -> Moves:
        sparse = is_csr(table.X)
        numbers = [*table.kinds.plain, *table.kinds.heavy]
        styles = STYLES if numbers and not sparse else STYLES[:1]
        weights: tuple[str | None, ...] = (None,)
        if not self._is_regression and self.scoring not in (None, "accuracy"):
            weights = (None, "balanced")
        can_turn = not sparse and 1 < table.X.shape[1] <= _WIDEST
        return Moves(self._is_regression, can_turn, styles, weights)

    def _chosen(self, search: AutoSearch) -> list[Candidate]:
        """The candidates of the ensemble, the best first."""
        ranked = search.ranked(search.last) if search.outcomes else []
        found = [one for one, score in ranked if np.isfinite(score)]
        if not found:
            raise ValueError("no fit of the search succeeded")
        return found[: self.ensemble]

    # --- the last fits ---------------------------------------------------------------------------

    def _fit_all(
        self, chosen: Sequence[Candidate], search: AutoSearch, budget: Budget
    ) -> list[Pipeline]:
        """Fit the chosen candidates to all rows, within what is left."""
        found: list[Pipeline] = []
        table = search.views.table
        everything = Fold(-1, np.arange(len(table.y)), np.arange(0))
        for number, one in enumerate(chosen):
            left = (budget.left() - _SECOND) / (len(chosen) - number)
            pipeline = None
            if left > 0.0:
                pipeline = self._fit_one(one, search, everything, left)
            if pipeline is None:
                pipeline = self._early(one, search)
            if pipeline is not None:
                found.append(pipeline)
        return found or [self._best_early(search)]

    def _fit_one(
        self, one: Candidate, search: AutoSearch, everything: Fold, left: float
    ) -> Pipeline | None:
        """Fit a candidate to all rows in this many seconds; None if that is not enough."""
        views, table = search.views, search.views.table

        def running(progress: Progress) -> None:
            del progress

        first_fold = search.folds[0]
        root = None
        if one.metric is not None:
            root = views.root(first_fold, one.style, one.metric, running)
        step, train, _ = views.columns(everything, one.style)
        X = train if root is None else transformed(train, root)
        gamma = one.multiple / typical_distance(X, one.pairing, np.random.RandomState(0))
        model = clone(views.machine).set_params(**views.parameters(one, gamma))
        if np.isfinite(left):
            model.set_params(time_limit=left)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, table.y, sample_weight=table.weight)
        model.set_params(time_limit=None)
        if not model.converged_ and one in search.kept.models:
            at = first_fold.test[:_COMPARED]  # of which the model knows the targets
            weight = {"sample_weight": table.weight[at]} if (table.weight != 1.0).any() else {}
            if self.scorer_(model, X[at], table.y[at], **weight) < search.kept.models[one][0]:
                return None  # even so it is worse than the search's own
        return self._pipeline(step, one, root, model, search)

    def _early(self, one: Candidate, search: AutoSearch) -> Pipeline | None:
        """The model of the search itself, fitted to the rows of the first fold."""
        if one not in search.kept.models:
            return None
        fold, views = search.folds[0], search.views

        def running(progress: Progress) -> None:
            del progress

        step = views.columns(fold, one.style)[0]
        root = None
        if one.metric is not None:
            root = views.root(fold, one.style, one.metric, running)
        model = search.kept.models[one][1]
        model._context = None
        return self._pipeline(step, one, root, model, search)

    def _best_early(self, search: AutoSearch) -> Pipeline:
        models = search.kept.models
        found = self._early(next(iter(models)), search) if models else None
        if found is None:
            raise ValueError("no fit of the search succeeded")
        return found

    def _pipeline(
        self,
        step: BaseEstimator,
        one: Candidate,
        root: Floats | None,
        model: KernelEstimator,
        search: AutoSearch,
    ) -> Pipeline:
        """The visible pipeline of fitted steps."""
        if isinstance(model, MarginClassifier) and one in search.kept.models:
            held_out, fold = search.kept.models[one][1], search.folds[0]
            rows = search.views.rows(fold, one, lambda progress: None)[1]
            y = search.views.table.y[fold.test]
            held_out._context = None
            assert isinstance(held_out, MarginClassifier)
            model._sigmoids = sigmoids(model, held_out._columns(rows), y)
        steps: list[tuple[str, BaseEstimator]] = [("columns", step)]
        if one.metric is not None and root is not None:
            outcome = search.outcomes.get((one, search.last))
            metric = MetricLearner(one.metric.kind, kernel=one.kernel)
            metric.n_features_in_ = len(root)
            metric.history_ = []
            score = np.nan if outcome is None else outcome.score
            metric._store(root, one.metric.kind, float(model.gamma), score)
            steps.append(("metric", metric))
        return Pipeline([*steps, ("machine", model)])

    def _keep_best(self, search: AutoSearch) -> None:
        """Store the model of the search itself, after Ctrl-C."""
        if not search.kept.models:
            raise KeyboardInterrupt("interrupted before the first model")
        pipeline = self._best_early(search)
        one = next(iter(search.kept.models))
        self._store_search(search, [one])
        self._store([pipeline], search, [one])

    # --- what is stored --------------------------------------------------------------------------

    def _store_search(self, search: AutoSearch, chosen: Sequence[Candidate]) -> None:
        """Store the leaderboard."""
        self.leaderboard_ = leaderboard(search)
        self.history_ = history(search)
        self.n_fits_ = len(search.outcomes)

    def _store(
        self, pipelines: list[Pipeline], search: AutoSearch, chosen: Sequence[Candidate]
    ) -> None:
        self.pipelines_ = pipelines
        self.pipeline_ = pipelines[0]
        self.best_ = self.pipeline_[-1]
        self.best_score_ = self.leaderboard_[0]["score"]
        self.best_params_ = chosen[0].described()
        name = self.scoring if isinstance(self.scoring, str) else "score"
        self.best_.tuning_ = tuning(self.leaderboard_, self.history_, name)
        self.gap_ = float(self.best_.gap_)
        self.feature_importances_ = self._importances(search)

    def _importances(self, search: AutoSearch) -> Floats:
        """Importance of each column of the table: the largest of the features made of it."""
        importances = np.ones(self.n_features_in_)
        if "metric" not in self.pipeline_.named_steps:
            return importances
        metric = self.pipeline_.named_steps["metric"].feature_importances_
        return self._by_column(metric)

    def _by_column(self, values: Floats) -> Floats:
        step = self.pipeline_[0]
        if not hasattr(step, "transformers_"):
            return values
        found = np.zeros(self.n_features_in_)
        for name, part, places in step.transformers_:
            if name == "remainder":
                continue
            at = step.output_indices_[name]
            origins = _origins(part, list(places), at.stop - at.start)
            for place, value in zip(origins, values[at], strict=True):
                found[place] = max(found[place], value)
        return found

    # --- predictions -----------------------------------------------------------------------------

    def _checked(self, X: MatrixLike) -> Any:
        check_is_fitted(self)
        rows = checked_table(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return rows

    def report(
        self,
        X: MatrixLike,
        y: VectorLike,
        sample_weight: VectorLike | None = None,
    ) -> Report:
        """Make an HTML report about the best model, its metric and the search.

        Parameters
        ----------
        X : {data frame, array-like, sparse} of shape (n_samples, n_features)
            Rows, preferably not those of the fit.
        y : array-like of shape (n_samples,)
            Labels or targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the figures.

        Returns
        -------
        report : Report
            The page as a string of HTML, with a method `save(path)`; notebooks display it.
        """
        rows = self._checked(X)
        step, steps = self.pipeline_[0], self.pipeline_.steps[1:]
        rest = Pipeline(steps) if len(steps) > 1 else self.best_
        names = [str(name).rpartition("__")[2] for name in step.get_feature_names_out()]
        return make_report(rest, step.transform(rows), y, sample_weight, names)

    def save(self, path: str | PathLike[str]) -> None:
        """Write `pipeline_` to a file that :func:`margrave.load` reads.

        Parameters
        ----------
        path : path-like
            The file to write; an existing one is replaced.
        """
        check_is_fitted(self)
        if len(self.pipelines_) > 1:
            raise ValueError(
                f"a file has one model, and this ensemble has {len(self.pipelines_)}: fit with"
                " ensemble=1"
            )
        save(self.pipeline_, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _origins(part: Pipeline, places: list[int], count: int) -> list[int]:
    """The table's column behind each output of a part of the first step."""
    names = [f"{place}" for place in range(len(places))]
    step = part[0]
    if hasattr(step, "categories_") and not hasattr(step, "encodings_"):
        counts = [len(levels) for levels in step.categories_]
        return [place for place, k in zip(places, counts, strict=True) for _ in range(k)]
    if hasattr(step, "encodings_"):
        each = count // len(places)
        return [place for place in places for _ in range(each)]
    gaps = [] if step.indicator_ is None else [places[i] for i in step.indicator_.features_]
    del names
    return [*places, *gaps]


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
