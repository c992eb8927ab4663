"""A search without a grid: from many settings on few rows to few settings on all rows.

    first      every family of kernels on a sample; then moves around the best of them
    larger     the best go on to four times as many rows; moves around the best of these
    all        the same with all training rows; then further folds, for the best alone

A move changes gamma, C, the loss, the power or the columns' style, or learns one more metric from
the gradients of the candidate itself. Batches run on the tuner's machinery (`margrave.tuning`):
settings with the same kernel share its values, and start from each other as C grows.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from sklearn.base import BaseEstimator, clone

from margrave.auto.budget import Budget
from margrave.auto.candidates import Candidate, Moves, first
from margrave.auto.views import Fold, Views
from margrave.estimators._base import KernelEstimator
from margrave.progress import Progress
from margrave.tuning.plan import Setting, settings_of
from margrave.tuning.race import COARSE
from margrave.tuning.samples import Running, Sample, Scorer, Scores, Task
from margrave.tuning.search import Means, Search, divided

_FEWEST_ROWS = 500  # of the very first fit
_FIRST_ROWS = 2000
_GROWTH = 4
_SURVIVORS = 8  # candidates that go on to more rows
_CENTRES = 3  # candidates around which moves are tried
_BATCH = 8  # fits between two choices of the best
_FINALISTS = 4  # candidates that further folds compare
_CUBIC = 2.0  # seconds of a fit grow like this power of its rows
_SHARES = (0.25, 0.5)  # of the search, spent on the first and the second number of rows


@dataclass(frozen=True)
class Stage:
    """A number of training rows of one fold; later stages decide."""

    place: int
    rows: int
    fold: Fold


@dataclass(frozen=True)
class Outcome:
    """Score and seconds of a candidate at a stage."""

    score: float
    seconds: float
    gap: float
    at: float  # seconds since the search began


@dataclass(frozen=True)
class Batch(Task):
    """A task of the tuner whose rows are those of views."""

    stage: Stage
    views: Views
    candidates: tuple[Candidate, ...]
    keep: Callable[[Candidate, Stage, KernelEstimator, float], None]

    def sample(self, split: int, setting: Setting, running: Running) -> Sample:
        """The rows of the stage as the candidates of one kernel see them."""
        fold, rows = self.stage.fold, slice(self.stage.rows)
        one = self.candidates[setting.number]
        train, test = self.views.rows(fold, one, running)
        y, weight = self.views.table.y, self.views.table.weight
        at = fold.train[rows]
        given = {"sample_weight": weight[at]} if self.fit_params else {}
        X = train[rows]
        return Sample(
            *(split, setting.kernel, at, fold.test, None, X, y[at], test, y[fold.test]),
            *(given, None, X, test),
        )

    def fitted(self, setting: Setting, sample: Sample, model: BaseEstimator, score: Scores) -> None:
        """Offer the model to whoever keeps the best."""
        assert isinstance(score, float)
        self.keep(self.candidates[setting.number], self.stage, model, score)


@dataclass
class Kept:
    """Models of the best candidates on most rows of the first fold, for when time is up."""

    most: int
    rows: int = 0
    models: dict[Candidate, tuple[float, KernelEstimator]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def offer(self, one: Candidate, stage: Stage, model: KernelEstimator, score: float) -> None:
        """Keep a model if it is among the best."""
        if not np.isfinite(score) or stage.fold.number > 0 or stage.rows < self.rows:
            return
        with self.lock:
            found = {**(self.models if stage.rows == self.rows else {}), one: (score, model)}
            order = sorted(found, key=lambda c: found[c][0], reverse=True)
            self.models, self.rows = {c: found[c] for c in order[: self.most]}, stage.rows


class AutoSearch:
    """Run the search within a budget.

    Parameters
    ----------
    views : Views
    folds : list of Fold
    moves : Moves
    scorer : callable
    budget : Budget
    share : float
        The share of the budget that the search may spend; the rest is for the last fit.
    show : callable
        Called after every batch.

    Attributes
    ----------
    outcomes : dict of (candidate, stage) -> Outcome
    stages : list of Stage
        Those with outcomes, in order.
    """

    def __init__(
        self,
        views: Views,
        folds: Sequence[Fold],
        moves: Moves,
        scorer: Scorer,
        budget: Budget,
        share: float,
        most_kept: int,
        show: Callable[[AutoSearch], None],
    ) -> None:
        self.views, self.folds, self.moves, self.scorer = views, folds, moves, scorer
        self.budget, self.share, self.show = budget, share, show
        self.outcomes: dict[tuple[Candidate, Stage], Outcome] = {}
        self.stages: list[Stage] = []
        self.kept = Kept(most_kept)
        self.stopped: str | None = None

    # --- the search --------------------------------------------------------------------------

    def run(self) -> None:
        """Search until the budget is spent, or no move is left; KeyboardInterrupt on Ctrl-C."""
        fold, start = self.folds[0], first(self.moves.is_regression)
        everything = len(fold.train)
        stage = self._next_stage(min(everything, _FEWEST_ROWS), fold)
        self.evaluate(start[:1], stage, math.inf)  # an answer, however short the time
        if everything > _FEWEST_ROWS:
            stage = self._next_stage(min(everything, _FIRST_ROWS), fold)
        self.evaluate(start, stage, self.share)
        for share in (*_SHARES, *(1.0,) * 100):
            is_last = stage.rows == everything
            several = len(self.folds) > 1
            end = self.share * (share if not is_last else 0.75 if several else 1.0)
            self.climb(stage, end, 4.0 if stage.rows <= _FIRST_ROWS < everything else 2.0)
            if is_last or self._is_over(self.share):
                break
            survivors = self.best(stage, _SURVIVORS)
            rows = min(everything, _GROWTH * stage.rows)
            count = self._affordable(survivors, stage, rows)
            if count == 0:
                self.climb(stage, self.share, 2.0)
                return
            stage = self._next_stage(rows, fold)
            self.evaluate(survivors[:count], stage, self.share)
        self._compare(stage)

    def climb(self, stage: Stage, end: float, step: float) -> None:
        """Try moves around the best until this share is spent or none is left."""
        while not self._is_over(end):
            tried = {one for one, at in self.outcomes if at == stage}
            rounds = [
                self.moves.around(one, stage.rows, step) for one in self.best(stage, _CENTRES)
            ]
            new: list[Candidate] = []
            for moves in rounds:
                new += [one for one in moves if one not in tried and one not in new]
            batch = self._within(new[:_BATCH], stage, end)
            if not batch:
                return
            self.evaluate(batch, stage, end)

    def _compare(self, stage: Stage) -> None:
        """Score the best on further folds."""
        for fold in self.folds[1:]:
            finalists = self.best(stage, _FINALISTS)
            cost = sum(self._seconds(one, stage) for one in finalists)
            if self._is_over(self.share) or cost > self.budget.left(self.share):
                return
            further = self._next_stage(len(fold.train), fold)
            self.evaluate(finalists, further, self.share)
            if not all((one, further) in self.outcomes for one in finalists):
                self.stages.remove(further)  # it compares nothing
                return
            stage = further

    def _next_stage(self, rows: int, fold: Fold) -> Stage:
        stage = Stage(len(self.stages), rows, fold)
        self.stages.append(stage)
        return stage

    def _is_over(self, share: float) -> bool:
        return self.stopped is not None or self.budget.spent() >= share

    # --- one batch ---------------------------------------------------------------------------

    def evaluate(self, candidates: Iterable[Candidate], stage: Stage, end: float) -> None:
        """Fit and score candidates at a stage, as far as the budget allows."""
        known = {one for one, at in self.outcomes if at == stage}
        batch = tuple(one for one in candidates if one not in known)
        batch = batch[: max(0, self.budget.fits_left(end))]
        left = self.budget.left(end)
        if not batch or left <= 0.0:
            return
        task = self._task(batch, stage)

        def running(progress: Progress) -> None:  # of a fit whose gradients make a metric
            if not np.isinf(left):
                progress.time_limit = max(0.0, self.budget.left(end))

        settings = self._settings(batch, stage, task, running)
        kernels = len({setting.kernel for setting in settings})
        means = divided(
            *(self.views.machine, task.X, stage.rows, self.views.machine.n_jobs, kernels, 1)
        )
        limit = None if np.isinf(left) else left
        search = Search(task, means, limit, lambda results, note: None)
        self._run(search, settings, means)
        for (number, _), result in search.results.items():
            score = float(result["test_scores"])
            self.outcomes[batch[number], stage] = Outcome(
                score if np.isfinite(score) else -np.inf,
                *(result["fit_time"], float(result["gap"]), self.budget.seconds),
            )
            self.budget.fits += 1
        self.show(self)
        if search.stopped == "interrupted":
            raise KeyboardInterrupt

    def _run(self, search: Search, settings: list[Setting], means: Means) -> None:
        try:
            search.run(settings, [0], COARSE)
        finally:
            search.close()

    def _task(self, batch: tuple[Candidate, ...], stage: Stage) -> Batch:
        table = self.views.table
        split = (stage.fold.train[: stage.rows], stage.fold.test)
        weights = {"sample_weight": table.weight}
        is_weighted = bool((table.weight != 1.0).any())
        return Batch(
            estimator=clone(self.views.machine),
            X=table.weight,
            y=table.y,
            splits=[split],
            layouts=[None],
            fit_params=weights if is_weighted else {},
            score_params=weights if is_weighted else {},
            scorer=self.scorer,
            error_score=np.nan,
            return_train_score=False,
            stage=stage,
            views=self.views,
            candidates=batch,
            keep=self.kept.offer,
        )

    def _settings(
        self, batch: tuple[Candidate, ...], stage: Stage, task: Batch, running: Running
    ) -> list[Setting]:
        """The tuner's settings; those of one kernel see the same rows."""
        found = []
        for number, one in enumerate(batch):
            gamma = self.views.gamma(stage.fold, one, running)
            setting = settings_of(task.estimator, [self.views.parameters(one, gamma)])[0]
            view = (stage, one.style, one.metric)
            found.append(
                replace(
                    setting,
                    number=number,
                    kernel=(view, setting.kernel),
                    line=(view, setting.line),
                )
            )
        return found

    @property
    def last(self) -> Stage:
        """The last stage with outcomes, which decides."""
        known = {at for _, at in self.outcomes}
        return [stage for stage in self.stages if stage in known][-1]

    # --- what is known -----------------------------------------------------------------------

    def best(self, stage: Stage, most: int) -> list[Candidate]:
        """The best candidates by mean score over this stage and those that decide with it."""
        return [one for one, _ in self.ranked(stage)[:most]]

    def ranked(self, stage: Stage) -> list[tuple[Candidate, float]]:
        """Candidates of a stage with their mean scores over its folds, best first."""
        same = [other for other in self.stages if self._decides(other, stage)]
        found = []
        for one in [one for one, at in self.outcomes if at == stage]:
            scores = [self.outcomes[one, at].score for at in same if (one, at) in self.outcomes]
            found.append((one, float(np.mean(scores))))
        return sorted(found, key=lambda pair: -pair[1])

    @staticmethod
    def _decides(other: Stage, stage: Stage) -> bool:
        """Whether another stage is a fold of the comparison that ends with a stage."""
        return other == stage or (stage.fold.number > 0 and other.rows == len(other.fold.train))

    def _seconds(self, one: Candidate, stage: Stage) -> float:
        """Seconds that a fit at a stage may take, from the same candidate's or its neighbours'."""
        known = [
            (at, outcome.seconds * (stage.rows / at.rows) ** _CUBIC)
            for (other, at), outcome in self.outcomes.items()
            if other == one
        ]
        if known:
            return float(max(known, key=lambda pair: pair[0].place)[1])
        near = [
            outcome.seconds * (stage.rows / at.rows) ** _CUBIC
            for (_, at), outcome in self.outcomes.items()
            if at == stage
        ]
        return float(np.mean(near)) if near else 0.0

    def _affordable(self, survivors: list[Candidate], stage: Stage, rows: int) -> int:
        """How many of the survivors can be fitted to more rows with half of what is left."""
        if self.budget.counts_fits:
            return len(survivors)
        larger = replace(stage, rows=rows)
        left = 0.5 * self.budget.left(self.share)
        total, count = 0.0, 0
        for one in survivors:
            total += self._seconds(one, larger)
            if total > left:
                break
            count += 1
        return count

    def _within(self, batch: list[Candidate], stage: Stage, end: float) -> list[Candidate]:
        """As many of a batch as should be done when this share is spent."""
        left, total = self.budget.left(end), 0.0
        for count, one in enumerate(batch):
            total += self._seconds(one, stage)
            if total > left:
                return batch[:count]
        return batch
