"""Grid search by cross-validation whose fits share kernel values and warm starts.

    for every split, kernel and line of settings:   C ascending, each fit from the last solution,
                                                    kernel values shared by all settings and folds
    after the first splits the worst settings are pruned (`tuning/race.py`)

The interface is that of :class:`sklearn.model_selection.GridSearchCV`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import (
    BaseCrossValidator,
    GridSearchCV,
    ParameterGrid,
    ParameterSampler,
    check_cv,
)
from sklearn.utils import check_random_state, column_or_1d, indexable
from sklearn.utils.validation import check_is_fitted

from margrave._sklearn import (
    Interval,
    StrOptions,
    _check_method_params,
    _insert_error_scores,
    _MultimetricScorer,
    _num_samples,
    _warn_or_raise_about_fit_failures,
)
from margrave.estimators._advice import outside
from margrave.estimators._transaction import complete, transaction
from margrave.report import Report, make_report
from margrave.rows import in_blocks
from margrave.tuning import race
from margrave.tuning.folds import Rows, Split, growing, lay_out
from margrave.tuning.plan import Setting, final_estimator, settings_of
from margrave.tuning.samples import Scorer, Task
from margrave.tuning.search import Search, divided
from margrave.tuning.table import LiveTable
from margrave.typing import MatrixLike, Seed, VectorLike

Refit = bool | str | Callable[[dict[str, Any]], int]
_FITTED = (
    *("best_estimator_", "best_index_", "best_params_", "best_score_", "cv_results_"),
    *("feature_names_in_", "multimetric_", "n_splits_", "refit_time_", "scorer_"),
)


class Tuner(GridSearchCV):  # type: ignore[misc]
    """Find the best of many settings by cross-validation.

    The interface is that of :class:`sklearn.model_selection.GridSearchCV`. The fits share kernel
    values between settings and folds, start from each other's solutions as C grows, and run in
    parallel. With `prune`, all settings are fitted to a coarse tolerance on the first split, the
    best third of them on the second, and the best third of these on all splits to their own
    tolerance.

    Parameters
    ----------
    estimator : estimator
        An estimator of this package, or a pipeline that ends with one. (Other estimators work too,
        but their fits share nothing.) In a pipeline the preceding steps are fitted once per split
        and combination of their own parameters; kernel values are then shared by the settings of a
        split, but not between splits.
    param_grid : dict or list of dict
        Names of parameters and the values to try, as for GridSearchCV.
    cv : int, splitter or iterable, default=5
        Folds, as for GridSearchCV.
    scoring : str, callable, list, tuple, dict or None, default=None
        One or several metrics, as for GridSearchCV; None for the estimator's own `score`.
    refit : bool, str or callable, default=True
        Whether to fit the best setting to all rows; with several metrics the name of the one that
        decides, or a function of `cv_results_`, as for GridSearchCV.
    prune : bool, default=True
        Whether to drop the worst settings after the first splits. In `cv_results_` their scores are
        those of the splits that were run, at a relative duality gap of 0.01, and NaN for the
        others. Without pruning all scores are GridSearchCV's up to the tolerance of the estimator:
        the fits of the search end there, even with few rows, where a fit alone goes on.
        Nothing is pruned if no single metric decides, with five settings or less, or with less than
        1,000 rows.
    n_jobs : int or None, default=None
        Total number of threads; None for all cores available to the process. Each fit of the search
        uses one; the estimator's own `n_jobs` applies to the final fit to all rows.
    time_limit : float or None, default=None
        Seconds for the search. The best setting found by then is fitted to all rows, which takes
        additional time.
    n_iter : int or None, default=None
        Number of settings that are drawn at random from `param_grid`, whose values may then also be
        distributions, such as ``scipy.stats.loguniform(1e-2, 1e3)``. None tries all of them.
    rows : {"all", "grow"}, default="all"
        What is coarse while settings are pruned: "grow" fits all settings to a ninth of the first
        split's training rows, and the best third of them to a third.
    random_state : int, RandomState instance or None, default=None
        Seed of random settings and of the samples of growing rows. None means a fixed seed.
    verbose : int, default=0
        1 shows a table of the best settings during the search.
    error_score : "raise" or number, default=nan
        Score of a fit that fails.
    return_train_score : bool, default=False
        Whether to score the training rows too.

    Attributes
    ----------
    cv_results_ : dict of arrays
        As in GridSearchCV, and in addition: `gap`, the worst relative duality gap among the fits of
        a setting; `pruned`, whether the setting was dropped before all splits were run. Means,
        standard deviations and times are over the splits that were run; settings with fewer splits
        rank behind those with more.
    best_estimator_ : estimator
        Fitted to all rows, if `refit`.
    best_score_, best_params_, best_index_
        Mean score, parameters and index of the best setting.
    scorer_, n_splits_, refit_time_, multimetric_
        As in GridSearchCV.

    Notes
    -----
    Ctrl-C keeps the results so far, including `cv_results_` and `best_params_`, and raises
    KeyboardInterrupt; there is then no `best_estimator_`, unless the interrupted fit was the final
    one and already had a model. Before the first score Ctrl-C leaves the tuner unchanged.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from margrave import SVC, Tuner
    >>> X, y = load_iris(return_X_y=True)
    >>> tuner = Tuner(SVC(), {"C": [1.0, 10.0], "gamma": [0.01, 0.1]}).fit(X, y)
    >>> tuner.best_params_
    {'C': 1.0, 'gamma': 0.1}
    >>> round(tuner.best_score_, 2), tuner.predict(X[:2])
    (0.98, array([0, 0]))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GridSearchCV._parameter_constraints,
        "prune": ["boolean"],
        "time_limit": [None, Interval(Real, 0.0, None, closed="neither")],
        "n_iter": [None, Interval(Integral, 1, None, closed="left")],
        "rows": [StrOptions({"all", "grow"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: BaseEstimator,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
        cv: int | BaseCrossValidator | Iterable[Split] | None = 5,
        scoring: str | Scorer | Sequence[str] | Mapping[str, str | Scorer] | None = None,
        refit: Refit = True,
        *,
        prune: bool = True,
        n_jobs: int | None = None,
        time_limit: float | None = None,
        n_iter: int | None = None,
        rows: str = "all",
        random_state: Seed = None,
        verbose: int = 0,
        error_score: float | str = np.nan,
        return_train_score: bool = False,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.prune = prune
        self.n_jobs = n_jobs
        self.time_limit = time_limit
        self.n_iter = n_iter
        self.rows = rows
        self.random_state = random_state
        self.verbose = verbose
        self.error_score = error_score
        self.return_train_score = return_train_score

    @transaction
    def fit(self, X: MatrixLike, y: VectorLike | None = None, **params: object) -> Self:
        """Search, and fit the best setting to all rows.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; a square kernel matrix when the estimator has `kernel="precomputed"`.
        y : array-like of shape (n_samples,), default=None
            Targets.
        **params
            Further arguments for `fit` of the estimator, the scorer and the splitter, as for
            GridSearchCV: `sample_weight`, `groups`.

        Returns
        -------
        self : object
            The fitted tuner.
        """
        for name in _FITTED:  # of an earlier fit
            self.__dict__.pop(name, None)
        self._validate_params()
        if in_blocks(X):
            raise ValueError("a search needs all rows in one array to split them, got RowBlocks")
        settings = settings_of(self.estimator, self._grid())
        scorer, metric = self._get_scorers()
        X, y = indexable(X, y)
        routed = self._get_routed_params_for_fit(_check_method_params(X, params=params))
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = [
            (np.asarray(a), np.asarray(b)) for a, b in cv.split(X, y, **routed.splitter.split)
        ]
        self.n_splits_ = cv.get_n_splits(X, y, **routed.splitter.split)
        if len(splits) != self.n_splits_:
            raise ValueError(
                f"cv.split and cv.get_n_splits disagree: {len(splits)} and {self.n_splits_} splits"
            )
        if not splits:
            raise ValueError("cv yields no splits")
        task = Task(
            clone(self.estimator),
            *(X, y, splits, lay_out(splits, _num_samples(X), self._labels(y))),
            *(routed.estimator.fit, routed.scorer.score, scorer, self.error_score),
            self.return_train_score,
        )
        search = self._search(task, settings, metric == "score")
        self._store(search, settings, metric)
        several = isinstance(scorer, _MultimetricScorer)
        self.scorer_ = scorer._scorers if several else scorer
        complete(self)
        if search.stopped == "interrupted":
            raise KeyboardInterrupt(
                "the tuner keeps the results so far, but has no best_estimator_"
            )
        if search.stopped == "time_limit":
            warnings.warn(
                f"time_limit={self.time_limit} s was reached after {len(search.results)} of"
                f" {len(settings) * self.n_splits_} fits; using the best setting so far",
                ConvergenceWarning,
                stacklevel=outside(),
            )
        if self.refit:
            self._refit(task)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """An interrupted search with `refit` has no best estimator, and counts as not fitted."""
        return hasattr(self, "best_estimator_" if self.refit else "cv_results_")

    def _rng(self) -> np.random.RandomState:
        seed = 0 if self.random_state is None else self.random_state
        rng: np.random.RandomState = check_random_state(seed)
        return rng

    def _grid(self) -> list[dict[str, Any]]:
        """The settings: all of the grid, or some at random."""
        grids = [self.param_grid] if isinstance(self.param_grid, Mapping) else self.param_grid
        if self.n_iter is not None:
            return list(ParameterSampler(self.param_grid, self.n_iter, random_state=self._rng()))
        for grid in grids:
            for name, values in grid.items():
                if hasattr(values, "rvs"):
                    raise ValueError(
                        f"{name} has a distribution: say how many settings to draw with n_iter"
                    )
        return list(ParameterGrid(self.param_grid))

    def _labels(self, y: VectorLike | None) -> Rows | None:
        """Class of each row if there are more than two (one-vs-one needs them), else None."""
        if y is None or not is_classifier(self.estimator):
            return None
        try:
            classes, labels = np.unique(column_or_1d(y), return_inverse=True)
        except (TypeError, ValueError):  # a fit would reject it too
            return None
        return labels if len(classes) > 2 else None

    def _search(self, task: Task, settings: list[Setting], single: bool) -> Search:
        """Run the pruning rounds if a single metric decides, and then all splits."""
        n_rows = _num_samples(task.X)
        counts = race.rounds(len(settings), self.n_splits_, n_rows)
        metric = self.refit if isinstance(self.refit, str) else "score"
        decides = self.prune and not callable(self.refit) and (single or metric != "score")
        with LiveTable(settings, self.n_splits_, metric, self.verbose) as table:
            search = self._make_search(task, settings, table)
            try:
                left = settings
                if decides and self.rows == "grow":
                    left, counts = self._grow(task, settings, search, table, metric), []
                for split, most in enumerate(counts if decides else []):
                    search.run(left, [split], race.COARSE)
                    if search.stopped or not self._is_single(search, metric):
                        break
                    left = race.best_of(left, search.results, split + 1, metric, most)
                search.run(left, range(self.n_splits_), 0.0)
            except KeyboardInterrupt:  # pressed between two rounds
                search.stopped = "interrupted"
            finally:
                search.close()
        return search

    def _grow(
        self, task: Task, settings: list[Setting], whole: Search, table: LiveTable, metric: str
    ) -> list[Setting]:
        """Prune by fits to more and more rows of the first split; the last results are stored."""
        train, test = task.splits[0]
        labels = np.zeros(_num_samples(task.X), dtype=np.intp)
        if task.y is not None and is_classifier(self.estimator):
            labels = np.unique(column_or_1d(task.y), return_inverse=True)[1]
        order, left = growing(train, labels, self._rng()), settings
        for share, most in race.shares(len(settings), _num_samples(task.X)):
            sample = order[: max(2, round(share * len(order)))]
            search = self._make_search(
                replace(task, splits=[(sample, test)], layouts=[None]), left, table
            )
            search.deadline = whole.deadline
            try:
                search.run(left, [0], race.COARSE)
            finally:
                search.close()
            whole.results.update(search.results)
            if search.stopped or not self._is_single(search, metric):
                whole.stopped = search.stopped
                return left
            kept = race.best_of(left, search.results, 1, metric, most)
            for setting in kept:
                del whole.results[setting.number, 0]
            left = kept
        return left

    @staticmethod
    def _is_single(search: Search, metric: str) -> bool:
        """Whether the scores have this metric; a scoring function names its metrics when called."""
        scores = [result["test_scores"] for result in search.results.values()]
        return all(metric in score for score in scores if isinstance(score, dict))

    def _make_search(self, task: Task, settings: list[Setting], table: LiveTable) -> Search:
        """Create the workers, and divide threads and memory between them."""
        kernels = len({setting.kernel for setting in settings})
        means = divided(
            *(final_estimator(self.estimator), task.X, _num_samples(task.X), self.n_jobs),
            *(kernels * self.n_splits_, kernels),
        )
        return Search(task, means, self.time_limit, table.show)

    def _store(self, search: Search, settings: list[Setting], metric: Refit) -> None:
        """Store the results and the best setting."""
        out = list(search.results.values())
        if not out:
            if search.stopped == "interrupted":
                raise KeyboardInterrupt("the tuner was interrupted before the first score")
            raise ValueError(f"no fit was finished within time_limit={self.time_limit}")
        _warn_or_raise_about_fit_failures(out, self.error_score)
        if callable(self.scoring):
            _insert_error_scores(out, self.error_score)
        first = out[0]["test_scores"]
        self.multimetric_ = isinstance(first, dict)
        if callable(self.scoring) and self.multimetric_:
            self._check_refit_for_multimetric(first)
            metric = self.refit
        self.cv_results_ = self._tabulate(settings, search.results)
        if self.refit or not self.multimetric_:
            self.best_index_ = int(self._select_best_index(self.refit, metric, self.cv_results_))
            if not callable(self.refit):
                means = self.cv_results_[f"mean_test_{metric}"]
                self.best_score_ = float(means[self.best_index_])
            self.best_params_ = self.cv_results_["params"][self.best_index_]

    def _tabulate(
        self, settings: list[Setting], results: dict[tuple[int, int], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the results in scikit-learn's layout.

        Splits that were not run are first filled with the mean of the others, so that the means
        are over the splits that were run.
        """
        n = self.n_splits_
        own = [[results.get((setting.number, k)) for k in range(n)] for setting in settings]
        run = np.array([[result is not None for result in line] for line in own])
        example = next(iter(results.values()))
        out: list[dict[str, Any]] = []
        for line in own:
            filler = _mean([result for result in line if result is not None], example)
            out.extend(filler if result is None else result for result in line)
        gaps = np.array([result["gap"] for result in out], dtype=np.float64).reshape(-1, n)
        more = {"gap": gaps.max(axis=1), "pruned": ~run.all(axis=1)}
        table: dict[str, Any] = self._format_results([s.params for s in settings], n, out, more)
        for name in [key for key in table if key.startswith(("mean_", "rank_"))]:
            if name.startswith("rank_"):
                table[name] = _ranks(run.sum(axis=1), table[f"mean_{name[5:]}"])
            elif f"split0_{name[5:]}" in table:
                columns = np.stack([table[f"split{k}_{name[5:]}"] for k in range(n)], axis=1)
                columns[~run] = np.nan
                for k in range(n):
                    table[f"split{k}_{name[5:]}"] = columns[:, k]
                apart = np.where(run, columns - table[name][:, None], 0.0) ** 2
                deviation = np.sqrt(apart.sum(axis=1) / np.maximum(1, run.sum(axis=1)))
                table[f"std_{name[5:]}"] = np.where(run.any(axis=1), deviation, np.nan)
        return table

    def _refit(self, task: Task) -> None:
        """Fit the best setting to all rows."""
        begin = time.perf_counter()
        best = clone(task.estimator).set_params(**clone(self.best_params_, safe=False))
        try:
            if task.y is None:
                best.fit(task.X, **task.fit_params)
            else:
                best.fit(task.X, task.y, **task.fit_params)
        except KeyboardInterrupt:
            if hasattr(final_estimator(best), "gap_"):  # the model so far
                self._store_best(best, time.perf_counter() - begin)
            raise
        self._store_best(best, time.perf_counter() - begin)

    def _store_best(self, best: BaseEstimator, seconds: float) -> None:
        """Store the final model in one step, so that an interrupt cannot leave half of it."""
        found = {"best_estimator_": best, "refit_time_": seconds}
        final = final_estimator(best)
        if final is not None:
            final.tuning_ = self._tuning()
        if hasattr(best, "feature_names_in_"):
            found["feature_names_in_"] = best.feature_names_in_
        self.__dict__.update(found)

    def _tuning(self) -> dict[str, Any]:
        """The search in plain values for reports and model files, see `margrave.report.tuning`."""
        table = self.cv_results_
        params = table["params"]
        names = list(dict.fromkeys(name for setting in params for name in setting))
        metric = self.refit if isinstance(self.refit, str) else "score"
        if f"mean_test_{metric}" not in table:  # several metrics, and `refit` is a function
            metric = next(key[10:] for key in table if key.startswith("mean_test_"))
        run = [~np.isnan(table[f"split{k}_test_{metric}"]) for k in range(self.n_splits_)]
        return {
            "metric": metric,
            "names": names,
            "settings": [[plain(setting.get(name)) for name in names] for setting in params],
            "mean": np.asarray(table[f"mean_test_{metric}"], dtype=np.float64),
            "deviation": np.asarray(table[f"std_test_{metric}"], dtype=np.float64),
            "splits": np.sum(run, axis=0),
        }

    def report(
        self,
        X: MatrixLike,
        y: VectorLike | None = None,
        sample_weight: VectorLike | None = None,
    ) -> Report:
        """Make an HTML report about the best estimator, with the scores of all settings.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows, preferably not those of the search.
        y : array-like of shape (n_samples,)
            Labels or targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the figures.

        Returns
        -------
        report : Report
            The page as a string of HTML, with a method `save(path)`; notebooks display it.
        """
        check_is_fitted(self)
        if not hasattr(self, "best_estimator_"):
            raise ValueError("a report needs the best estimator fitted to all rows: set refit=True")
        return make_report(self.best_estimator_, X, y, sample_weight)


def plain(value: object) -> bool | int | float | str | None:
    """A value for a model file: numbers and strings as they are, anything else as its repr."""
    if isinstance(value, np.generic):
        value = value.item()
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _mean(results: list[dict[str, Any]], example: dict[str, Any]) -> dict[str, Any]:
    """Return a result whose numbers are the means of others; NaN if there are none."""

    def mean(name: str) -> Any:
        values = [result[name] for result in results]
        if isinstance(example[name], dict):
            return {
                key: float(np.mean([value[key] for value in values])) if values else np.nan
                for key in example[name]
            }
        return float(np.mean(values)) if values else np.nan

    return {name: None if name == "fit_error" else mean(name) for name in example}


def _ranks(n_run: NDArray[np.integer[Any]], means: NDArray[np.float64]) -> NDArray[np.int32]:
    """Rank 1 for the best; more splits come before fewer, and NaN comes last."""
    keys = [
        (np.isnan(mean), -n, 0.0 if np.isnan(mean) else -mean)
        for n, mean in zip(n_run, means, strict=True)
    ]
    order = sorted(keys)
    first = {key: order.index(key) + 1 for key in dict.fromkeys(order)}
    return np.array([first[key] for key in keys], dtype=np.int32)
