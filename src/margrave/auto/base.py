"""What AutoClassifier and AutoRegressor have in common: the search and the last fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.metrics import check_scoring
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from margrave._sklearn import HasMethods, Interval, _check_sample_weight
from margrave.auto.board import LiveBoard, history, leaderboard, tuning
from margrave.auto.budget import Budget
from margrave.auto.candidates import Candidate, Moves
from margrave.auto.columns import STYLES, Columns, checked_table, kinds_of
from margrave.auto.importances import importances
from margrave.auto.last_fit import LastFits
from margrave.auto.search import AutoSearch
from margrave.auto.splits import folds_of
from margrave.auto.views import Table, Views
from margrave.engines import EngineLike
from margrave.estimators._base import KernelEstimator
from margrave.estimators._files import save
from margrave.estimators._transaction import complete, transaction
from margrave.report import Report, make_report
from margrave.rows import is_csr
from margrave.tuning.samples import Scorer
from margrave.typing import MatrixLike, Seed, VectorLike

_FOR_SEARCH = 0.65  # share of the budget; the rest is for the last fit
_WIDEST = 500  # features up to which full metrics are tried
_KEPT = 8  # models of the search that are kept for calibration, and for Ctrl-C


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
            self._store_search(search)
            pipelines = LastFits(search, self.scorer_).run(chosen)
        except KeyboardInterrupt:
            self._keep_best(search)
            complete(self)
            raise
        self._store(pipelines, chosen)
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

    def _keep_best(self, search: AutoSearch) -> None:
        """Store the model of the search itself, after Ctrl-C."""
        if not search.kept.models:
            raise KeyboardInterrupt("interrupted before the first model")
        one = next(iter(search.kept.models))
        self._store_search(search)
        self._store([LastFits(search, self.scorer_).best_early()], [one])

    # --- what is stored --------------------------------------------------------------------------

    def _store_search(self, search: AutoSearch) -> None:
        """Store the leaderboard."""
        self.leaderboard_ = leaderboard(search)
        self.history_ = history(search)
        self.n_fits_ = len(search.outcomes)

    def _store(self, pipelines: list[Pipeline], chosen: Sequence[Candidate]) -> None:
        self.pipelines_ = pipelines
        self.pipeline_ = pipelines[0]
        self.best_ = self.pipeline_[-1]
        self.best_score_ = self.leaderboard_[0]["score"]
        self.best_params_ = chosen[0].described()
        name = self.scoring if isinstance(self.scoring, str) else "score"
        self.best_.tuning_ = tuning(self.leaderboard_, self.history_, name)
        self.gap_ = float(self.best_.gap_)
        self.feature_importances_ = importances(self.pipeline_, self.n_features_in_)

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
