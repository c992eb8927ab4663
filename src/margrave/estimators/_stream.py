"""Learning batch by batch: `partial_fit` over a bounded memory of rows.

    kept rows, their weights times (1 - forget)  +  the rows of the batch
    solve their problem to the tolerance, from the last solution       (`_rows.py`)
    more than `max_support` rows: keep a random sample of these, and solve again

After every call the model is the certified optimum of the problem on the rows that are kept:
`gap_` and `objective_` are theirs. All support vectors stay while they are no more than three
quarters of `max_support`, so that dropping other rows does not change the model; where there are
more, `n_dropped_` counts those that had to go. A row that stays takes over the weight of those that
it stands for: of the same class, and like it support vectors or not. So the sum of the losses, and
the number of rows behind it, stay what they were on average. This holds for linear models too.

Each batch is predicted before it is learned: `progressive_score_` is the score on rows that the
model had not seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from margrave._sklearn import Interval
from margrave.engines import Recovery
from margrave.estimators._advice import outside
from margrave.estimators._base import KernelEstimator
from margrave.estimators._input import Floats, Rows
from margrave.estimators._rows import RowNames
from margrave.estimators._transaction import is_draft, is_mark, transaction
from margrave.kernels import Kernel
from margrave.problem import BaseProblem, Solution
from margrave.rows import AnyRows, Matrix, in_memory, is_csr
from margrave.typing import MatrixLike, VectorLike


@dataclass(frozen=True)
class Memory:
    """The rows that are kept, with their targets and weights, and the kernel of the first batch."""

    X: Matrix
    y: NDArray[Any]
    weight: Floats
    kernel: Kernel | None = None

    def with_batch(self, batch: Memory, forget: float) -> Memory:
        """The kept rows, with smaller weights, followed by those of a batch."""
        stack: Any = partial(sparse.vstack, format="csr") if is_csr(self.X) else np.concatenate
        return replace(
            self,
            X=stack([self.X, batch.X]),
            y=np.concatenate([self.y, batch.y]),
            weight=np.concatenate([(1.0 - forget) * self.weight, batch.weight]),
        )

    def restrict(self, rows: Rows) -> Memory:
        """Some of the rows."""
        return replace(self, X=self.X[rows], y=self.y[rows], weight=self.weight[rows])


@dataclass(frozen=True)
class Tally:
    """Sums over the rows that were predicted before they were learned; old ones fade."""

    weight: float = 0.0
    loss: float = 0.0  # wrong labels, or squared errors
    sum: float = 0.0  # of targets, and of their squares
    squares: float = 0.0

    def faded(self, forget: float) -> Tally:
        """The same with less weight."""
        return Tally(*((1.0 - forget) * x for x in vars(self).values()))

    def with_labels(self, right: NDArray[np.bool_], weight: Floats) -> Tally:
        """With the rows of a batch, of which some labels were `right`."""
        wrong = float(weight @ ~right)
        return replace(self, weight=self.weight + float(weight.sum()), loss=self.loss + wrong)

    def with_targets(self, y: Floats, predicted: Floats, weight: Floats) -> Tally:
        """With the rows of a batch, whose targets are numbers."""
        return Tally(
            self.weight + float(weight.sum()),
            self.loss + float(weight @ (y - predicted) ** 2),
            self.sum + float(weight @ y),
            self.squares + float(weight @ y**2),
        )

    @property
    def accuracy(self) -> float:
        """Share of right labels."""
        return 1.0 - self.loss / self.weight if self.weight > 0.0 else float("nan")

    @property
    def r2(self) -> float:
        """Share of the variance that was predicted."""
        spread = self.squares - self.sum**2 / self.weight if self.weight > 0.0 else 0.0
        return 1.0 - self.loss / spread if spread > 0.0 else float("nan")


def _takes_rows(model: KernelEstimator) -> bool:
    if model.kernel == "precomputed":
        raise AttributeError("partial_fit needs rows, not a precomputed kernel matrix")
    return True


# attributes of a stream, which `fit` removes
_STREAM = (
    *("n_samples_seen_", "n_dropped_", "progressive_score_"),
    *("_memory", "_tally", "_known_classes"),
)


class Stream(KernelEstimator):
    """Base class of estimators with `partial_fit`."""

    max_support: int
    forget: float
    warm_start: bool
    n_samples_seen_: int
    n_dropped_: int
    _stream_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_support": [Interval(Integral, 2, None, closed="left")],
        "forget": [Interval(Real, 0.0, 1.0, closed="left")],
    }
    _memory: Memory | None = None
    _tally = Tally()
    _known_classes: NDArray[Any] | None = None  # `classes` of the first call, of a classifier
    # of `max_support`: the most support vectors, where there are enough other rows
    # (None: the share that support vectors have of all rows)
    _support_share: float | None = 0.75

    def _kernel_for(self, X: AnyRows, weight: Floats) -> Kernel:
        """Of a stream, the kernel of its first batch."""
        memory = self._memory
        if memory is not None and memory.X is X and memory.kernel is not None:
            return memory.kernel
        return super()._kernel_for(X, weight)

    def _remember(
        self,
        names: RowNames,
        members: Sequence[Rows],
        problems: Sequence[BaseProblem],
        solutions: Sequence[Solution],
    ) -> None:
        super()._remember(names, members, problems, solutions)
        if self._memory is None or self._memory.X is not names.X:  # of `fit`
            for name in _STREAM:
                self.__dict__.pop(name, None)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a model: a stream begins without one until it has two classes."""
        return hasattr(self, "support_") or (self._memory is not None and is_draft(self))

    def _begin_stream(self) -> bool:
        """Check the parameters; whether this is the first batch."""
        self._check_parameters()
        if self._memory is None and hasattr(self, "support_"):
            self._begin_anew()
        return self._memory is None

    def _begin_anew(self) -> None:
        """Forget the model of `fit` or of a file, which has kept no rows, but for its classes."""
        warnings.warn(
            f"this {type(self).__name__} has not kept the rows that it was fitted to: partial_fit"
            " begins anew with the rows of this batch",
            UserWarning,
            stacklevel=outside(),
        )
        classes = getattr(self, "classes_", None)
        parameters = self.get_params(deep=False)
        for name in [name for name in vars(self) if name not in parameters and not is_mark(name)]:
            delattr(self, name)
        self._known_classes = classes

    def _learn_batch(self, X: AnyRows, y: NDArray[Any], weight: Floats, tally: Tally) -> None:
        """Solve the problem of the kept rows and the batch, then of those for which there is room.

        `tally` has the predictions of the batch.
        """
        if not in_memory(X):
            raise ValueError("partial_fit needs the rows of a batch in one array")
        memory = self._memory
        dropped, seen = (0, 0) if memory is None else (self.n_dropped_, self.n_samples_seen_)
        here = np.flatnonzero(weight)
        batch = Memory(X[here], y[here], weight[here])
        memory = batch if memory is None else memory.with_batch(batch, self.forget)
        self._tally, self.n_dropped_, self.n_samples_seen_ = tally, dropped, seen + X.shape[0]
        if not self._can_solve(memory.y):
            self._memory = memory
            return
        self._solve_memory(memory)
        assert self._memory is not None
        if len(memory.y) > self.max_support:
            self._solve_memory(self._sampled(self._memory))

    def _can_solve(self, y: NDArray[Any]) -> bool:
        """Whether there is a problem on rows with these targets."""
        return True

    def _solve_memory(self, memory: Memory) -> None:
        """Fit to these rows, from the last solution; without a new model nothing changes."""
        before, given = dict(vars(self)), self.warm_start
        last = before.get("history_")
        self._memory, self.warm_start, self._recovery = memory, True, Recovery()
        try:
            self._fit(memory.X, memory.y, memory.weight)
        except BaseException:
            if self.__dict__.get("history_") is last:
                self.__dict__.clear()
                self.__dict__.update(before)
            raise
        finally:
            self.warm_start = given
            self.__dict__.pop("_recovery", None)
            if self._memory is not None and hasattr(self, "_kernel"):
                self._memory = replace(self._memory, kernel=self._kernel)

    def _sampled(self, memory: Memory) -> Memory:
        """`max_support` of the rows at random, each with the weight of those that it stands for."""
        n, rng = len(memory.y), np.random.default_rng([self._seed(), self.n_samples_seen_])
        is_support = np.isin(np.arange(n), self.support_)
        share = self._support_share or float(is_support.mean())
        most = max(self.max_support - int((~is_support).sum()), int(share * self.max_support))
        room = {True: min(int(is_support.sum()), most)}
        room[False] = self.max_support - room[True]
        weight, kept = memory.weight.copy(), []
        for kind, among in ((True, is_support), (False, ~is_support)):
            groups = [rows for rows in self._strata(memory.y) if among[rows].any()]
            for rows, size in zip(groups, _shares(groups, among, room[kind]), strict=True):
                own = rows[among[rows]]
                chosen = rng.choice(own, min(size, len(own)), replace=False)
                weight[chosen] *= memory.weight[own].sum() / memory.weight[chosen].sum()
                kept.append(chosen)
        rows = np.sort(np.concatenate(kept))
        self.n_dropped_ += int(is_support.sum()) - int(is_support[rows].sum())
        return replace(memory, weight=weight).restrict(rows)

    def _strata(self, y: NDArray[Any]) -> list[Rows]:
        """Groups of rows that can stand for each other only."""
        return [np.arange(len(y))]


def _shares(groups: list[Rows], among: NDArray[np.bool_], room: int) -> list[int]:
    """How many rows of each group to keep, at least one: as large a share of each as of all."""
    sizes = np.array([int(among[rows].sum()) for rows in groups], dtype=np.int64)
    if sizes.sum() <= room:
        return [int(size) for size in sizes]
    return [max(1, int(size * room // sizes.sum())) for size in sizes]


class ClassifierStream(Stream):
    """Classifiers with `partial_fit`."""

    @available_if(_takes_rows)  # type: ignore[untyped-decorator]
    @transaction
    def partial_fit(
        self,
        X: MatrixLike,
        y: VectorLike,
        classes: VectorLike | None = None,
        sample_weight: VectorLike | None = None,
    ) -> Self:
        """Learn a batch of rows, in addition to those that are kept from earlier batches.

        At most `max_support` rows are kept; the model is the certified optimum on these.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows of the batch.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (n_classes,), default=None
            All labels that may occur; needed in the first call. `classes_` are those that have
            occurred; until there are two, rows are kept without a model.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        is_first = self._begin_stream()
        self._check_classes(classes, is_first)
        rows, labels = self._check_training(X, y, reset=is_first)
        check_classification_targets(labels)
        unknown = np.setdiff1d(labels, np.asarray(self._known_classes))
        if len(unknown):
            raise ValueError(f"y has labels that are not in classes: {unknown.tolist()}")
        weight = self._check_weights(rows, sample_weight)
        tally = self._tally.faded(self.forget)
        if hasattr(self, "support_"):
            tally = tally.with_labels(self.predict(rows) == labels, weight)
        self.progressive_score_ = tally.accuracy
        self._learn_batch(rows, labels, weight, tally)
        return self

    def _check_classes(self, classes: VectorLike | None, is_first: bool) -> None:
        if classes is None:
            if self._known_classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit")
            return
        given = np.unique(np.asarray(classes))
        if not is_first and not np.array_equal(given, np.asarray(self._known_classes)):
            raise ValueError(
                f"classes={given.tolist()} is not the same as in the first call,"
                f" {np.asarray(self._known_classes).tolist()}"
            )
        if len(given) < 2:
            raise ValueError(f"partial_fit needs at least two classes, got {given.tolist()}")
        self._known_classes = given

    def _can_solve(self, y: NDArray[Any]) -> bool:
        return len(np.unique(y)) > 1

    def _strata(self, y: NDArray[Any]) -> list[Rows]:
        return [np.flatnonzero(y == one) for one in np.unique(y)]


class RegressorStream(Stream):
    """Regressors with `partial_fit`."""

    @available_if(_takes_rows)  # type: ignore[untyped-decorator]
    @transaction
    def partial_fit(
        self, X: MatrixLike, y: VectorLike, sample_weight: VectorLike | None = None
    ) -> Self:
        """Learn a batch of rows, in addition to those that are kept from earlier batches.

        At most `max_support` rows are kept; the model is the certified optimum on these.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows of the batch.
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        is_first = self._begin_stream()
        rows, targets = self._check_training(X, y, reset=is_first, numbers=True)
        weight, numbers = self._check_weights(rows, sample_weight), targets.astype(np.float64)
        tally = self._tally.faded(self.forget)
        if hasattr(self, "support_"):
            tally = tally.with_targets(numbers, self.predict(rows), weight)
        self.progressive_score_ = tally.r2
        self._learn_batch(rows, numbers, weight, tally)
        return self


class OutlierStream(Stream):
    """One-class models with `partial_fit`."""

    _support_share = None  # the other rows tell which fraction is inside

    @available_if(_takes_rows)  # type: ignore[untyped-decorator]
    @transaction
    def partial_fit(
        self,
        X: MatrixLike,
        y: VectorLike | None = None,
        sample_weight: VectorLike | None = None,
    ) -> Self:
        """Learn a batch of rows, in addition to those that are kept from earlier batches.

        At most `max_support` rows are kept; the model is the certified optimum on these.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows of the batch.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row.

        Returns
        -------
        self : object
            The fitted estimator. `progressive_score_` is the fraction of inliers.
        """
        is_first = self._begin_stream()
        rows = self._check_rows(X, reset=is_first)
        weight = self._check_weights(rows, sample_weight)
        tally = self._tally.faded(self.forget)
        if hasattr(self, "support_"):
            tally = tally.with_labels(self.predict(rows) == 1, weight)
        self.progressive_score_ = tally.accuracy
        self._learn_batch(rows, np.ones(rows.shape[0]), weight, tally)
        return self
