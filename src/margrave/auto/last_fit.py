"""The last fits of a search: its best candidates on all rows, in pipelines with their columns."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from margrave.auto.candidates import Candidate
from margrave.auto.search import AutoSearch
from margrave.auto.views import Fold
from margrave.estimators._base import KernelEstimator
from margrave.estimators._input import Floats
from margrave.estimators._margin import MarginClassifier, sigmoids
from margrave.metric import MetricLearner
from margrave.metric.iteration import transformed, typical_distance

_COMPARED = 2000  # rows that tell whether a fit that was cut short is of use
_SECOND = 0.5  # seconds kept for what follows the last fit


class LastFits:
    """Fits candidates to all rows within what is left of the budget.

    A candidate whose fit is cut short and is worse than its model of the search, which has seen
    fewer rows, is represented by that.
    """

    def __init__(self, search: AutoSearch, scorer: Callable[..., float]) -> None:
        self.search, self.scorer = search, scorer
        self.views, self.table = search.views, search.views.table
        self.fold = search.folds[0]  # whose training rows the models of the search have seen

    def run(self, chosen: Sequence[Candidate]) -> list[Pipeline]:
        """Fitted pipelines of the candidates, at least one."""
        found: list[Pipeline] = []
        for number, one in enumerate(chosen):
            left = (self.search.budget.left() - _SECOND) / (len(chosen) - number)
            pipeline = self._on_all_rows(one, left) if left > 0.0 else None
            pipeline = pipeline or self._early(one)
            if pipeline is not None:
                found.append(pipeline)
        return found or [self.best_early()]

    def best_early(self) -> Pipeline:
        """The best model of the search itself."""
        models = self.search.kept.models
        found = self._early(next(iter(models))) if models else None
        if found is None:
            raise ValueError("no fit of the search succeeded")
        return found

    def _on_all_rows(self, one: Candidate, seconds: float) -> Pipeline | None:
        """A candidate fitted to all rows in this many seconds; None if that is not enough."""
        views, table, root = self.views, self.table, self._root(one)
        everything = Fold(-1, np.arange(len(table.y)), np.arange(0))
        step, train, _ = views.columns(everything, one.style)
        X = train if root is None else transformed(train, root)
        gamma = one.multiple / typical_distance(X, one.pairing, np.random.RandomState(0))
        model = clone(views.machine).set_params(**views.parameters(one, gamma))
        if np.isfinite(seconds):
            model.set_params(time_limit=seconds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, table.y, sample_weight=table.weight)
        model.set_params(time_limit=None)
        if not model.converged_ and one in self.search.kept.models:
            at = self.fold.test[:_COMPARED]  # of which the model knows the targets
            weight = {"sample_weight": table.weight[at]} if (table.weight != 1.0).any() else {}
            if self.scorer(model, X[at], table.y[at], **weight) < self.search.kept.models[one][0]:
                return None
        return self._pipeline(step, one, root, model)

    def _early(self, one: Candidate) -> Pipeline | None:
        """The model of the search itself, fitted to the rows of the first fold."""
        if one not in self.search.kept.models:
            return None
        model = self.search.kept.models[one][1]
        model._context = None
        return self._pipeline(
            self.views.columns(self.fold, one.style)[0], one, self._root(one), model
        )

    def _root(self, one: Candidate) -> Floats | None:
        return None if one.metric is None else self.views.root(self.fold, one.style, one.metric)

    def _pipeline(
        self, step: BaseEstimator, one: Candidate, root: Floats | None, model: KernelEstimator
    ) -> Pipeline:
        """The visible pipeline of fitted steps."""
        if isinstance(model, MarginClassifier) and one in self.search.kept.models:
            held_out = self.search.kept.models[one][1]
            rows = self.views.rows(self.fold, one)[1]
            held_out._context = None
            assert isinstance(held_out, MarginClassifier)
            y = self.table.y[self.fold.test]
            model._sigmoids = sigmoids(model, held_out._columns(rows), y)
        steps: list[tuple[str, BaseEstimator]] = [("columns", step)]
        if one.metric is not None and root is not None:
            outcome = self.search.outcomes.get((one, self.search.last))
            metric = MetricLearner(one.metric.kind, kernel=one.kernel)
            metric.n_features_in_ = len(root)
            metric.history_ = []
            score = np.nan if outcome is None else outcome.score
            metric._store(root, one.metric.kind, float(model.gamma), score)
            steps.append(("metric", metric))
        return Pipeline([*steps, ("machine", model)])
