"""One score and one dual variable per row."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from margrave import _core, cuda
from margrave.losses import DualTerms, Loss
from margrave.problem.base import BaseProblem, Intercept, check_weights
from margrave.problem.data import Data, Floats, RowNumbers


@dataclass(frozen=True)
class Problem(BaseProblem):
    """One binary or regression problem on some blocks of the data.

    Parameters
    ----------
    data : Data
    blocks : tuple of int or None
        Blocks of rows that take part, in this order; None for all.
    y : float64 array
        Targets: +-1, or real numbers.
    C : float64 array
        Penalty C_i of each row, positive.
    loss : Loss
    intercept : {"free", "regularized"} or None
    total : float
        Sum of beta when the intercept is free: zero except for one-class problems, and for hull
        problems, where the rows with y = +1 have this sum and the others minus it.
    shift : float64 array, optional
        Linear term shift'beta of the dual, which is added to the scores of the rows.
    """

    data: Data
    blocks: tuple[int, ...] | None
    y: Floats
    C: Floats
    loss: Loss
    intercept: str | None
    total: float = 0.0
    shift: Floats | None = None

    def __post_init__(self) -> None:
        if self.intercept not in ("free", "regularized", None):
            raise ValueError(
                f"intercept must be 'free', 'regularized' or None, got {self.intercept!r}"
            )
        starts = self.data.starts
        n = sum(int(starts[b + 1] - starts[b]) for b in self.block_list)
        if n == 0:
            raise ValueError("a problem needs at least one row")
        if len(self.y) != n or len(self.C) != n:
            raise ValueError(
                f"{n} rows need as many targets and penalties, got {len(self.y)} and {len(self.C)}"
            )
        if not np.isfinite(self.y).all():
            raise ValueError("targets must be finite, got NaN or infinity")
        if self.loss.core().labels and not np.isin(self.y, (-1.0, 1.0)).all():
            raise ValueError(f"the loss {self.loss.name!r} needs targets -1 and +1")
        check_weights(self.C)
        if not 0.0 <= self.total < math.inf:
            raise ValueError(f"the sum of beta must be a number >= 0, got {self.total!r}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dual variables."""
        return (self.n_rows,)

    @cached_property
    def least_scale(self) -> float:  # type: ignore[override]
        """Lower bound on the scale of relative gaps, since the optimum may be zero.

        With a sum of beta that is not zero, 1/2 beta'K beta can be as large as
        1/2 sum^2 k(x, x); a millionth of that is negligible.
        """
        if self.total == 0.0 or self.is_hull:
            return 0.0
        return 0.5e-6 * self.total**2 * self.data.mean_diagonal()

    @property
    def is_hull(self) -> bool:  # type: ignore[override]
        """Whether beta has a fixed sum for each sign of y: the distance of two (reduced) hulls."""
        return self.loss.name == "hull"

    @property
    def loss_name(self) -> str:
        """Name of the loss."""
        return self.loss.name

    @property
    def has_labels(self) -> bool:
        """Whether the targets are classes, -1 and +1."""
        return self.loss.core().labels

    @property
    def is_smooth(self) -> bool:
        """Whether the loss has a derivative: then errors of scores are of order sqrt(gap)."""
        return self.loss.core().smooth

    @property
    def is_dense(self) -> bool:
        """Whether nearly every row has a nonzero variable."""
        return self.loss.is_dense

    @property
    def zero_scores(self) -> Floats:
        """Scores of zero variables: the linear term."""
        return np.zeros(self.n_rows) if self.shift is None else self.shift

    @property
    def zero_primal(self) -> float:
        """Primal value of zero variables."""
        if self.shift is None:
            return float(self.loss.core().value(self.y, self.C, np.zeros(self.n_rows)).sum())
        # the loss of the zero model is the distance to one number: for twice the rows, half of it
        return 0.5 * float(self.C @ np.abs(self.shift - np.median(self.shift)))

    def is_better_start(self, dual: float) -> bool:
        """Whether a point with this dual value is a better start than zero."""
        return dual < 0.0 or self.total > 0.0

    def terms(self, beta: Floats, scores: Floats, b: Intercept) -> tuple[float, float]:
        """Primal and dual value of a point with scores f = K beta and intercept b."""
        b = float(b)
        norm = float(beta @ scores) + (b * b if self.intercept == "regularized" else 0.0)
        core = self.loss.core()
        primal = 0.5 * norm + float(core.value(self.y, self.C, scores + b).sum()) + b * self.total
        return primal, 0.5 * norm + float(core.conjugate(self.y, self.C, beta).sum())

    def feasible(self, beta: Floats) -> Floats:
        """Point of the box near beta; with a free intercept its sum is zero.

        The heavier side (positive or negative) is scaled down by their ratio, which never leaves
        the box since the box contains zero. The two classes of hulls are scaled to their sums.
        """
        if self.is_hull:
            sums = np.where(self.y > 0, beta[self.y > 0].sum(), -beta[self.y < 0].sum())
            beta = beta * self.total / np.maximum(sums, 1e-300)
        beta = np.clip(beta, *self.loss.core().box(self.y, self.C))
        if self.intercept == "free" and self.total == 0.0:
            plus, minus = beta[beta > 0].sum(), -beta[beta < 0].sum()
            ratio = min(plus, minus) / max(plus, minus) if max(plus, minus) > 0 else 1.0
            beta[beta > 0 if plus > minus else beta < 0] *= ratio
        return beta

    def core(
        self,
        rows: cuda.AnyKernelRows,
        start: Floats | None,
        size: int,
        floor: float,
        fixed: _core.FixedPart | None = None,
    ) -> cuda.AnyWorkingSet:
        """Make the compiled solver for this problem."""
        if isinstance(rows, cuda.KernelRows):
            return cuda.WorkingSet(
                rows,
                self.loss.core(floor),
                self.data_rows,
                self.y,
                self.C,
                start,
                self.intercept == "free",
                self.total,
                self.least_scale,
                fixed or self._fixed_part(),
                size,
            )
        problem = _core.DualProblem(
            self.block_list,
            self.loss.core(floor),
            self.y,
            self.C,
            start=start,
            has_free_intercept=self.intercept == "free",
            sum=self.total,
            scale=self.least_scale,
            fixed=fixed or self._fixed_part(),
        )
        return _core.WorkingSet(rows, problem, size)

    def _fixed_part(self) -> _core.FixedPart | None:
        if self.shift is None:
            return None
        return _core.FixedPart(self.shift, np.empty(0), 0.0, 0.0, self.zero_primal)

    def dual_terms(self, floor: float) -> DualTerms:
        """Return the terms h_i of the dual; see `Loss.core` for the floor."""
        return self.loss.core(floor)

    def restrict(self, rows: RowNumbers) -> Problem:
        """Return the problem on some of its rows alone, with a copy of these rows of the data."""
        whole = replace(self.data.restrict(self.data_rows[rows]), starts=np.array([0, len(rows)]))
        shift = None if self.shift is None else self.shift[rows]
        return replace(self, data=whole, blocks=None, y=self.y[rows], C=self.C[rows], shift=shift)

    def on(self, part: Data, members: RowNumbers) -> Problem | None:
        """Return the problem on a part of the data; `members` are its rows there, possibly none."""
        if len(members) == 0:
            return None
        shift = None if self.shift is None else self.shift[members]
        return replace(self, data=part, y=self.y[members], C=self.C[members], shift=shift)

    def on_all_of(self, data: Data) -> Problem:
        """Return the problem on data that has its rows and no others, in its order."""
        return replace(self, data=data, blocks=None)

    def members(self, rows: RowNumbers) -> RowNumbers:
        """Rows of the problem among these rows of the data, both in ascending order."""
        if self.blocks is None:
            return rows
        found, first = [], 0
        for start, end in (self.data.starts[b : b + 2] for b in self.blocks):
            low, high = np.searchsorted(rows, (start, end))
            found.append(rows[low:high] - start + first)
            first += end - start
        return np.concatenate(found)

    @property
    def data_rows(self) -> RowNumbers:
        """Rows of the data behind the rows of the problem."""
        starts = self.data.starts
        return np.concatenate([np.arange(starts[b], starts[b + 1]) for b in self.block_list])

    @property
    def block_list(self) -> list[int]:
        """Blocks of the data whose rows take part."""
        return list(range(len(self.data.starts) - 1) if self.blocks is None else self.blocks)
