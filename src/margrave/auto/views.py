"""The rows of each fold as a candidate sees them: columns turned into numbers, in its metric.

Everything is fitted to the fold's own training rows: no validation row is seen by an encoder or
in a gradient.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from margrave._sklearn import _safe_indexing
from margrave.auto.candidates import Candidate, Metric
from margrave.auto.columns import Kinds, transformer
from margrave.estimators._base import KernelEstimator
from margrave.estimators._input import Floats, Rows
from margrave.metric.iteration import next_root, transformed, typical_distance
from margrave.problem import BaseProblem
from margrave.progress import Progress, forever
from margrave.rows import AnyRows, Matrix, is_csr
from margrave.solvers import Solution
from margrave.tuning.race import COARSE

T = TypeVar("T")

_PAIRED = 5000  # rows from which pairs are drawn for the typical distance
_KEPT = 4 << 30  # bytes of views
Running = Callable[[Progress], None]


def _unwatched(progress: Progress) -> None:
    """What a fit does that nobody limits."""


@dataclass(frozen=True)
class Table:
    """All rows, and what is known about them."""

    X: Any
    y: NDArray[Any]
    weight: Floats
    kinds: Kinds
    spread: float  # of the targets, the unit of a regression's losses; 1 for classes

    def take(self, rows: Rows) -> Any:
        """Some of the rows."""
        return _safe_indexing(self.X, rows)


@dataclass(frozen=True, eq=False)
class Fold:
    """Rows to train on, in the order in which samples grow, and rows to validate on."""

    number: int
    train: Rows
    test: Rows


@dataclass(frozen=True)
class Watched:
    """The context of a fit whose progress is passed on, and which needs no certificate."""

    running: Running
    rough: bool = True

    def watch(self, progress: Progress) -> None:
        """Pass the progress on."""
        self.running(progress)

    def share(
        self, problems: Sequence[BaseProblem], rows: Rows
    ) -> tuple[Sequence[BaseProblem], list[Floats] | None]:
        """Share nothing."""
        return problems, None

    def keep(self, solutions: Sequence[Solution]) -> None:
        """Keep nothing."""

    def sums(self, X: AnyRows, support: Rows, coef: Floats) -> Floats | None:
        """Know nothing."""


@dataclass
class _Once:
    """A value that one thread computes and others wait for."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None


class Views:
    """Views of the folds, computed when they are first needed, by whichever thread needs them.

    Parameters
    ----------
    table : Table
    machine : estimator
        Fitted for the gradients, with the settings of a candidate.
    """

    def __init__(self, table: Table, machine: KernelEstimator) -> None:
        self.table, self.machine = table, machine
        self.made: OrderedDict[Hashable, _Once] = OrderedDict()
        self.lock = threading.Lock()

    def columns(self, fold: Fold, style: str) -> tuple[BaseEstimator, Matrix, Matrix]:
        """The fitted first step, and the fold's training and validation rows after it."""

        def make() -> tuple[BaseEstimator, Matrix, Matrix]:
            table, rows = self.table, self.table.take(fold.train)
            step = transformer(table.kinds, style, len(fold.train), is_csr(table.X))
            train = _numbers(step.fit_transform(rows, table.y[fold.train]))
            test = _numbers(step.transform(table.take(fold.test))) if len(fold.test) else train[:0]
            return step, train, test

        return self._once((fold.number, style), make)

    def rows(
        self, fold: Fold, one: Candidate, running: Running = _unwatched
    ) -> tuple[Matrix, Matrix]:
        """The fold's training and validation rows in a candidate's metric."""

        def make() -> tuple[Matrix, Matrix]:
            _, train, test = self.columns(fold, one.style)
            if one.metric is None:
                return train, test
            root = self.root(fold, one.style, one.metric, running)
            return transformed(train, root), transformed(test, root)

        return self._once((fold.number, one.style, one.metric), make)

    def gamma(self, fold: Fold, one: Candidate, running: Running) -> float:
        """The candidate's multiple of 1 / the typical distance."""

        def make() -> float:
            train = self.rows(fold, one, running)[0][:_PAIRED]
            return typical_distance(train, one.pairing, np.random.RandomState(0))

        size: float = self._once((fold.number, one.style, one.metric, one.pairing), make)
        return one.multiple / size

    def root(self, fold: Fold, style: str, metric: Metric, running: Running = _unwatched) -> Floats:
        """The root of a metric, learned from training rows of this fold."""

        def make() -> Floats:
            source, rows = metric.source, slice(metric.rows)
            X = self.rows(fold, source, running)[0][rows]
            before = (
                np.ones(X.shape[1])
                if source.metric is None
                else self.root(fold, style, source.metric, running)
            )
            at = fold.train[rows]
            model = clone(self.machine).set_params(
                tol=COARSE, **self.parameters(source, self.gamma(fold, source, running))
            )
            model._context = Watched(running)
            model.fit(X, self.table.y[at], sample_weight=self.table.weight[at])
            order = np.random.RandomState(0).permutation(X.shape[0])
            found = next_root(
                *(before, model, X[order], self.table.weight[at][order]),
                *(metric.kind == "full", forever),
            )
            return before if found is None else found

        return self._once((fold.number, style, "root", metric), make)

    def parameters(self, one: Candidate, gamma: float) -> dict[str, Any]:
        """A candidate's parameters for the machine, in the targets' own units.

        With targets in units of s, a loss that grows linearly needs C times s, and epsilon too.
        """
        known = self.machine.get_params(deep=False)
        s = self.table.spread
        linear = one.loss in ("huber", "epsilon_insensitive")
        found = {
            **{"kernel": one.kernel, "power": one.power, "gamma": gamma, "loss": one.loss},
            **{"C": one.C * s if linear else one.C, "epsilon": one.epsilon * s},
            "class_weight": one.class_weight,
        }
        return {name: value for name, value in found.items() if name in known}

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        with self.lock:
            once = self.made.setdefault(key, _Once())
            self.made.move_to_end(key)
        with once.lock:
            if once.value is None:
                once.value = make()
                self._forget(key)
        value: T = once.value
        return value

    def _forget(self, newest: Hashable) -> None:
        """Drop the views that were used least recently, beyond a limit; roots are small."""
        with self.lock:
            total = sum(_bytes(once.value) for once in self.made.values())
            for key in list(self.made):
                size = _bytes(self.made[key].value)
                if total > _KEPT and size > 0 and key != newest:
                    del self.made[key]
                    total -= size


def _bytes(value: Any) -> int:
    if not isinstance(value, tuple):
        return 0
    return sum(
        one.size * one.dtype.itemsize for one in value if isinstance(one, np.ndarray) or is_csr(one)
    )


def _numbers(X: Any) -> Matrix:
    rows: Matrix = X.astype(np.float32) if is_csr(X) else np.ascontiguousarray(X, dtype=np.float32)
    return rows
