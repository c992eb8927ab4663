"""One score and one dual variable per row and class."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from margrave import _core, cuda
from margrave.losses import JOINT_LOSSES, DualTerms, JointTerms, shares_of
from margrave.problem.base import BaseProblem, Intercept, check_weights
from margrave.problem.data import Data, Floats, RowNumbers

# rows at a time: the cost of a step is their number times that of the classes
_LARGEST_JOINT_SET = 1024
_RHO = 0.5  # times the mean of the kernel's diagonal: larger ones slow down the rounds
_REACH = 10.0  # of the steps to intercepts, where small weights make the sums of beta small


@dataclass(frozen=True)
class JointProblem(BaseProblem):
    """Several classes in one problem: a score and a dual variable per row and class.

        min over beta   1/2 sum_c beta_c'K beta_c + sum_i h_i(beta_i),    beta_i = C_i (e_y - p_i)

    with p_i in the simplex; ``cpp/joint_loss.hpp`` has the losses.

    Parameters
    ----------
    data : Data
    y : int64 array
        Number of the class of each row.
    n_classes : int
    C : float64 array
        Penalty C_i of each row, positive.
    loss : str
        One of ``JOINT_LOSSES``.
    intercept : {"free", "regularized"} or None
    """

    data: Data
    y: RowNumbers
    n_classes: int
    C: Floats
    loss: str
    intercept: str | None

    def __post_init__(self) -> None:
        check_weights(self.C)

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        """Scores per row: one for each class."""
        return self.n_classes

    @property
    def loss_name(self) -> str:
        """Name of the loss."""
        return self.loss

    @property
    def has_labels(self) -> bool:
        """Whether the targets are classes: always."""
        return True

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the dual variables."""
        return (self.n_rows, self.n_classes)

    @property
    def offset(self) -> float:
        """Added to every kernel value: for free intercepts that of the method of multipliers."""
        return super().offset + self.multiplier

    def core(
        self,
        rows: cuda.AnyKernelRows,
        start: Floats | None,
        size: int,
        floor: float,
        fixed: _core.FixedPart | None = None,
    ) -> _core.Joint:
        """Make the compiled solver for this problem with the intercepts zero or regularised."""
        assert isinstance(rows, _core.KernelRows)  # a card has no joint problems
        nothing = np.zeros(self.n_classes)
        size = max(2, min(_LARGEST_JOINT_SET, size))
        terms = self.loss, self.y, self.n_classes, self.C
        return _core.Joint(rows, *terms, start, nothing, size, fixed)

    def dual_terms(self, floor: float) -> DualTerms:
        """Return the terms h_i of the dual; points of the simplex need no floor."""
        return JointTerms(self.loss, self.n_classes)

    def restrict(self, rows: RowNumbers) -> JointProblem:
        """Return the problem on some of its rows alone, with a copy of these rows of the data."""
        part = replace(self.data.restrict(rows), starts=np.array([0, len(rows)]))
        return self.on(part, rows)

    def on(self, part: Data, members: RowNumbers) -> JointProblem:
        """Return the problem on a part of the data; `members` are its rows there."""
        return replace(self, data=part, y=self.y[members], C=self.C[members])

    def on_all_of(self, data: Data) -> JointProblem:
        """Return the problem on other data of the same rows."""
        return self.with_data(data)

    def members(self, rows: RowNumbers) -> RowNumbers:
        """Rows of the problem among these rows of the data: all."""
        return rows

    @property
    def data_rows(self) -> RowNumbers:
        """Rows of the data behind the rows of the problem: all."""
        return np.arange(self.n_rows)

    @property
    def block_list(self) -> list[int]:
        """Blocks of the data whose rows take part: there is one."""
        return [0]

    @property
    def is_smooth(self) -> bool:
        """Whether the loss has a derivative: then errors of scores are of order sqrt(gap)."""
        return self.loss == "softmax"

    @property
    def is_dense(self) -> bool:
        """Whether nearly every row has a nonzero variable."""
        return self.is_smooth

    def feasible(self, beta: Floats) -> Floats:
        """Beta itself: the compiled solver projects its start."""
        return beta

    def is_better_start(self, dual: float) -> bool:
        """Whether a point with this dual value is a better start than zero: always."""
        return True

    def terms(self, beta: Floats, scores: Floats, b: Intercept) -> tuple[float, float]:
        """Primal and dual value of a point with scores f = K beta; sum beta = 0 if b is free."""
        loss = JOINT_LOSSES[self.loss]
        norm = float((beta * scores).sum()) + (
            float(np.sum(b * b)) if self.intercept == "regularized" else 0.0
        )
        losses = float(self.C @ loss.value(scores + b, self.y))
        conjugate = float(self.C @ loss.conjugate(self.shares(beta), self.y))
        return 0.5 * norm + losses, 0.5 * norm + conjugate

    def shares(self, beta: Floats) -> Floats:
        """Points p_i of the simplex behind the dual variables."""
        return shares_of(self.y, self.C, beta)

    def variables(self, shares: Floats) -> Floats:
        """Dual variables C (e_y - p) of points p of the simplex."""
        beta: Floats = -self.C[:, None] * shares
        own = np.arange(len(self.y)), self.y
        beta[own] = 0.0
        beta[own] = -beta.sum(axis=1)  # C (1 - p_y) would lose digits where p_y is nearly 1
        return beta

    @property
    def multiplier(self) -> float:
        """What is added to the kernel to find free intercepts."""
        if self.intercept != "free":
            return 0.0
        return max(_RHO * self.data.mean_diagonal(), _REACH / float(self.C.sum()))
