"""Base class of classifiers without probabilities of their own, and Platt's method for them.

The decision value d of a problem, on rows that were left out of the fit, gives

    P(side on which d is positive) = 1 / (1 + exp(slope d + offset)).

Of more than two classes, those of pairs are coupled by least squares (Wu, Lin and Weng),

    min over p   sum_{i<j} (r_ji p_i - r_ij p_j)^2,   sum_i p_i = 1,   r_ij = P(i | i or j),

and those of each class against the rest are divided by their sum. A pair whose hulls no direction
separates in some fold is calibrated on the rows of the other folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline

from margrave._sklearn import _safe_split, _sigmoid_calibration
from margrave.estimators._classifier import KernelClassifier, Task
from margrave.estimators._input import Floats
from margrave.estimators._remote import lazily
from margrave.problem import Data
from margrave.rows import AnyRows, Matrix
from margrave.solvers import Solution
from margrave.solvers.hull.distance import HullsOverlap
from margrave.typing import MatrixLike

_FOLDS = 5
_SUREST = 1e-7  # probabilities of pairs are at least this far from 0 and 1


@dataclass(frozen=True)
class Sigmoids:
    """Slope and offset for each column of decision values."""

    slope: Floats
    offset: Floats

    def __call__(self, decisions: Floats) -> Floats:
        """Probabilities of the sides on which the decision values are positive."""
        found: Floats = expit(-(self.slope * decisions + self.offset))
        return found


class MarginClassifier(KernelClassifier):
    """Base class of classifiers whose scores are no probabilities."""

    _sigmoids: Sigmoids | None = None  # see `add_probabilities`; LIBSVM's files may have them

    def _pack(
        self, X: AnyRows, task: Task, data: Data, solutions: Sequence[Solution]
    ) -> Sequence[Solution]:
        self._sigmoids = None
        return super()._pack(X, task, data, solutions)

    @property
    def predict_proba(self) -> Callable[[MatrixLike], Floats]:
        """Probabilities of the classes, for models that were calibrated.

        A model has them if it was trained with ``margrave train --probabilities`` or LIBSVM's
        ``-b 1``; in Python use :class:`sklearn.calibration.CalibratedClassifierCV`.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; kernel values with the training rows when `kernel="precomputed"`.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`.
        """
        if self._sigmoids is None:
            name = type(self).__name__
            raise AttributeError(
                f"{name} has no predict_proba: its scores are no probabilities. Calibrate it with"
                f" sklearn.calibration.CalibratedClassifierCV({name}(...), ensemble=False) or"
                " margrave train --probabilities, or use KernelLogisticRegression, which has"
                " probabilities of its own"
            )
        method: Callable[[MatrixLike], Floats] = self._calibrated
        return method

    @lazily
    def _calibrated(self, X: MatrixLike) -> Floats:
        assert self._sigmoids is not None
        return coupled(self._sigmoids(self._columns(X)), str(self._scheme), len(self.classes_))

    def _columns(self, X: MatrixLike) -> Floats:
        """Decision values, one column per sigmoid."""
        decisions = self._decisions(self._check_rows(X, reset=False))
        if self._scheme != "binary" and decisions.shape[1] == 2:  # a joint problem of two classes
            decisions = decisions[:, 1:] - decisions[:, :1]
        return decisions

    def _held_out(self, X: MatrixLike) -> Floats:
        """Decision values of rows that were left out; NaN where a problem has no model."""
        return self._columns(X)


def coupled(sides: Floats, scheme: str, k: int) -> Floats:
    """Probabilities of k classes from those of the problems' positive sides."""
    if k == 2:
        both: Floats = np.hstack([1.0 - sides, sides])
        return both
    if scheme != "ovo":
        whole = sides.sum(axis=1, keepdims=True)
        shares: Floats = np.divide(sides, whole, np.full_like(sides, 1.0 / k), where=whole > 0.0)
        return shares
    sure = np.clip(sides, _SUREST, 1.0 - _SUREST)
    r = np.zeros((len(sides), k, k))
    for p, (i, j) in enumerate(combinations(range(k), 2)):
        r[:, i, j], r[:, j, i] = sure[:, p], 1.0 - sure[:, p]
    # the optimality conditions, with the multiplier of the sum as the last unknown
    system = np.zeros((len(sides), k + 1, k + 1))
    system[:, :k, :k] = -np.swapaxes(r, 1, 2) * r
    system[:, range(k), range(k)] = (r**2).sum(axis=1)
    system[:, k, :k] = system[:, :k, k] = 1.0
    right = np.zeros((len(sides), k + 1, 1))
    right[:, k] = 1.0
    found = np.clip(np.linalg.solve(system, right)[:, :k, 0], 0.0, 1.0)
    probabilities: Floats = found / found.sum(axis=1, keepdims=True)
    return probabilities


def add_probabilities(
    model: KernelClassifier | Pipeline, X: Matrix, y: NDArray[Any], seed: int = 0
) -> None:
    """Calibrate a fitted classifier, at the end of a pipeline or alone, by cross-validation.

    `X` and `y` are its training data. What has probabilities of its own is left unchanged.
    """
    last = model[-1] if isinstance(model, Pipeline) else model
    if not isinstance(last, MarginClassifier):
        if hasattr(last, "predict_proba"):
            return
        raise ValueError(f"{type(last).__name__} has no classes, and so no probabilities")
    fewest = int(np.unique(y, return_counts=True)[1].min())
    if fewest < 2:
        raise ValueError("probabilities need at least two rows of each class, for cross-validation")
    splits = StratifiedKFold(min(_FOLDS, fewest), shuffle=True, random_state=seed)
    held_out = np.full((len(y), len(_sides(last, y))), np.nan)
    for train, test in splits.split(np.zeros(len(y)), y):
        copy = clone(model)
        end = copy[-1] if isinstance(copy, Pipeline) else copy
        end.set_params(verbose=0)
        try:
            copy.fit(*_safe_split(copy, X, y, train))
        except HullsOverlap:
            continue
        rows = _safe_split(copy, X, y, test, train)[0]
        if isinstance(copy, Pipeline):
            rows = copy[:-1].transform(rows)
        held_out[test] = end._held_out(rows)
    last._sigmoids = sigmoids(last, held_out, y)


def sigmoids(model: MarginClassifier, held_out: Floats, y: NDArray[Any]) -> Sigmoids:
    """Fit a sigmoid to each column of decision values of held-out rows with these labels."""
    known = ~np.isnan(held_out)
    if not known.all():
        _complain(model, y, known)
    fits = [
        _sigmoid_calibration(held_out[used, column], np.where(positive[used], 1, -1))
        for column, (positive, used) in enumerate(_sides(model, y))
        for used in [used & known[:, column]]
    ]
    return Sigmoids(*np.array(fits, dtype=np.float64).T.copy())


def _complain(model: MarginClassifier, y: NDArray[Any], known: NDArray[np.bool_]) -> None:
    """Say which pairs of classes have folds without a model; raise if one has nothing else."""
    pairs = list(combinations(model.classes_, 2))
    shares = [known[used, p].mean() for p, (_, used) in enumerate(_sides(model, y))]
    for (one, other), share in zip(pairs, shares, strict=True):
        if share == 0.0:
            raise ValueError(
                f"the classes {one} and {other} have no probabilities, because in no fold of the"
                f" cross-validation a direction was found that separates their hulls; {model._cure}"
            )
    warnings.warn(
        "no direction was found that separates the hulls of "
        + ", ".join(
            f"{one} and {other} ({1.0 - share:.0%} of the rows)"
            for (one, other), share in zip(pairs, shares, strict=True)
            if share < 1.0
        )
        + " in some folds of the cross-validation; probabilities of these classes are fitted to"
        f" the other folds; {model._cure}",
        ConvergenceWarning,
        stacklevel=3,
    )


def _sides(model: MarginClassifier, y: NDArray[Any]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """The rows on the positive side of each column of decision values, and all of its rows."""
    classes, everything = model.classes_, np.ones(len(y), dtype=bool)
    if len(classes) == 2:
        return [(y == classes[1], everything)]
    if model._scheme == "ovo":
        return [(y == one, (y == one) | (y == other)) for one, other in combinations(classes, 2)]
    return [(y == one, everything) for one in classes]
