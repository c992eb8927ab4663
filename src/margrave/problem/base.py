"""What solvers may ask of a problem, however many scores it has per row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from margrave import _core, cuda
from margrave.problem.data import Data, Floats, RowNumbers

Intercept = float | Floats  # one number, or one per class of a joint problem

_LARGEST_WEIGHT = 1e100  # products with scores and of two penalties do not overflow


def check_weights(C: Floats) -> None:
    """Raise for penalties C_i that are not positive, or whose squares overflow."""
    if not (np.isfinite(C).all() and (C > 0).all()):
        raise ValueError("the penalties C_i must be positive and finite")
    if C.min() < 1.0 / _LARGEST_WEIGHT or C.max() > _LARGEST_WEIGHT:
        raise ValueError(
            f"C times the weights must be between {1.0 / _LARGEST_WEIGHT:g} and"
            f" {_LARGEST_WEIGHT:g}, got {C.min():.2g} to {C.max():.2g}"
        )


class BaseProblem(ABC):
    """What solvers may ask of a problem, however many scores it has per row."""

    data: Data
    y: NDArray[Any]
    C: Floats
    intercept: str | None
    total: float = 0.0  # sum of beta when the intercept is free
    shift: Floats | None = None
    n_outputs: int = 1  # scores per row
    least_scale: float = 0.0  # lower bound on the scale of relative gaps
    start_values: int = 0  # kernel values that were computed for a start before the first round
    is_hull = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def offset(self) -> float:
        """Added to every kernel value: 1 makes the intercept part of the regularised model."""
        return 1.0 if self.intercept == "regularized" else 0.0

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the dual variables."""

    @property
    @abstractmethod
    def block_list(self) -> list[int]:
        """Blocks of the data whose rows take part."""

    @property
    @abstractmethod
    def data_rows(self) -> RowNumbers:
        """Rows of the data behind the rows of the problem."""

    @abstractmethod
    def members(self, rows: RowNumbers) -> RowNumbers:
        """Rows of the problem among these rows of the data, both in ascending order."""

    def with_data(self, data: Data) -> Self:
        """Return the same problem on other data of as many rows."""
        return self._changed(data=data)

    @abstractmethod
    def on_all_of(self, data: Data) -> Self:
        """Return the problem on data that has its rows and no others, in its order."""

    def with_weights(self, C: Floats) -> Self:
        """Return the problem with other penalties C_i."""
        return self._changed(C=C)

    def with_targets(self, y: NDArray[Any]) -> Self:
        """Return the problem with other targets."""
        return self._changed(y=y)

    def with_intercept(self, intercept: str | None) -> Self:
        """Return the problem with another kind of intercept."""
        return self._changed(intercept=intercept)

    def with_total(self, total: float) -> Self:
        """Return the problem with another sum of beta; zero works for all problems."""
        return self if total == self.total else self._changed(total=total)

    def _changed(self, **fields: Any) -> Self:
        return replace(self, **fields)  # type: ignore[type-var]

    @abstractmethod
    def on(self, part: Data, members: RowNumbers) -> Self | None:
        """Return the problem on a part of the data; `members` are its rows there, possibly none."""

    @property
    @abstractmethod
    def loss_name(self) -> str:
        """Name of the loss."""

    @property
    @abstractmethod
    def has_labels(self) -> bool:
        """Whether the targets are classes."""

    @property
    @abstractmethod
    def is_smooth(self) -> bool:
        """Whether the loss has a derivative: then errors of scores are of order sqrt(gap)."""

    @property
    @abstractmethod
    def is_dense(self) -> bool:
        """Whether nearly every row has a nonzero variable."""

    @abstractmethod
    def is_better_start(self, dual: float) -> bool:
        """Whether a point with this dual value is a better start than zero."""

    @abstractmethod
    def terms(self, beta: Floats, scores: Floats, b: Intercept) -> tuple[float, float]:
        """Primal and dual value of a point with scores f = K beta and intercept(s) b.

        P = 1/2 beta'f + sum_i C_i loss_i(f_i + b) and D = 1/2 beta'f + sum_i h_i(beta_i); both
        include b^2 / 2 when the intercept is regularised, P also b times the given sum of beta.
        """

    @abstractmethod
    def feasible(self, beta: Floats) -> Floats:
        """A point that satisfies the constraints, near beta."""

    @abstractmethod
    def core(
        self, rows: cuda.AnyKernelRows, start: Floats | None, size: int, floor: float
    ) -> cuda.AnyWorkingSet | _core.Joint:
        """Make the compiled solver for this problem."""
