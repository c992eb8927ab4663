"""The optimization problem that all estimators solve, as data.

    min over beta   1/2 beta'K beta + sum_i h_i(beta_i)        one signed variable per row

`Data` is the rows and the kernel, shared by all problems of one fit. `BaseProblem` is what a solver
may ask of a problem on them. `Problem` has one variable per row: targets, weights, the loss and the
kind of intercept on some blocks of the rows. `JointProblem` has one per row and class.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.kernels import Kernel, core_rows
from margrave.losses import JOINT_LOSSES, Loss
from margrave.rows import (
    AnyRows,
    Matrix,
    RemoteRows,
    in_blocks,
    in_memory,
    is_csr,
    is_remote,
    loaded,
)

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Floats = NDArray[np.float64]
Intercept = float | Floats  # one number, or one per class of a joint problem
RowNumbers = NDArray[np.int64]
StopReason = Literal["interrupted", "stochastic", "hulls", "unfinished"]

# beyond this the squares of single-precision numbers nearly overflow
_LARGEST_FLOAT32 = 1e15
_LARGEST_WEIGHT = 1e100  # products with scores and among weights do not overflow
# rows at a time of a joint problem: a step costs as much as their number times the classes
_LARGEST_JOINT_SET = 1024


def check_weights(C: Floats) -> None:
    """Raise for weights that are not positive, or whose squares leave double precision."""
    if not (np.isfinite(C).all() and (C > 0).all()):
        raise ValueError("the weights C must be positive and finite")
    if C.min() < 1.0 / _LARGEST_WEIGHT or C.max() > _LARGEST_WEIGHT:
        raise ValueError(
            f"C times the weights must be between {1.0 / _LARGEST_WEIGHT:g} and"
            f" {_LARGEST_WEIGHT:g}, got {C.min():.2g} to {C.max():.2g}"
        )


@dataclass(frozen=True)
class Data:
    """Rows, kernel, and the blocks into which the rows fall.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, d), RowBlocks or RemoteRows
        float32 or float64; the kernel matrix itself for a precomputed kernel.
    kernel : Kernel
    starts : int64 array
        Boundaries of the blocks: block b is rows ``starts[b]:starts[b + 1]``.
    """

    X: Any  # `AnyRows`; which of them a solver gets is checked before it begins
    kernel: Kernel
    starts: RowNumbers

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in one array of this process."""
        return in_memory(self.X)

    @property
    def in_blocks(self) -> bool:
        """Whether the rows come in blocks, of which one at a time is in memory."""
        return in_blocks(self.X)

    @property
    def is_remote(self) -> bool:
        """Whether the rows are with the workers of an engine."""
        return is_remote(self.X)

    @property
    def is_linear(self) -> bool:
        """Whether the kernel is linear, so that feature weights are the model."""
        return bool(self.kernel.name == "linear")

    @property
    def is_native(self) -> bool:
        """Whether the kernel is compiled: neither a table nor a Python function."""
        return not (self.kernel.is_callable or self.kernel.is_precomputed)

    @cached_property
    def fits_float32(self) -> bool:
        """Whether single-precision tiles can hold these rows without overflow."""
        X: AnyRows = self.X
        if is_remote(X):
            largest = X.largest
        else:
            values = X.data if is_csr(X) else np.asarray(X)
            if values.size == 0:
                return True
            largest = max(float(values.max()), -float(values.min()))
        if largest >= _LARGEST_FLOAT32 or not self.is_native:
            return largest < _LARGEST_FLOAT32
        return self.kernel.bound(largest, self.n_features) < _LARGEST_FLOAT32**2

    @cached_property
    def rounding(self) -> tuple[Floats, Floats, Floats]:
        """Bounds on the rounding errors of kernel values (`Kernel.rounding`), for every row."""
        X: Matrix | RemoteRows = self.X
        if not is_remote(X):
            return self.kernel.rounding(X)
        # all that is known of these rows is their largest entry
        row = np.full((1, self.n_features), X.largest)
        extremes = Data(np.vstack([row, -row]), self.kernel, np.array([0, 2]))
        product, relative, root = (np.full(self.n_rows, found[0]) for found in extremes.rounding)
        # workers subtract their own mean from rows, which may double the entries
        return product, 4.0 * relative, root

    def kernel_rows(
        self,
        precision: str,
        memory: int,
        buffer: int,
        threads: int,
        offset: float = 0.0,
        cache: bool = True,
    ) -> _core.KernelRows:
        """Make the compiled source of kernel values.

        `memory` bytes are for packed and (with `cache`) computed rows, `buffer` for rows
        that are being computed.
        """
        return _core.KernelRows(
            core_rows(self.X),
            self.kernel.core(offset) if self.is_native else None,
            self._fetch() if self.kernel.is_callable else None,
            offset,
            self.starts.tolist(),
            precision,
            memory,
            buffer,
            threads,
            cache,
        )

    def restrict(self, rows: RowNumbers) -> Data:
        """Return a copy of some rows; in ascending order they fall into the same blocks."""
        X = self.X[np.ix_(rows, rows)] if self.kernel.is_precomputed else self.X[rows]
        return Data(X, self.kernel, np.searchsorted(rows, self.starts).astype(np.int64))

    def is_definite(self, beta: Floats, scores: Floats, scale: float, noise: float = 1e-9) -> bool:
        """Whether beta'K beta >= 0 up to `noise` times the `scale` and rounding errors.

        If not, the kernel is not positive semidefinite on these rows.
        """
        with np.errstate(invalid="ignore", over="ignore"):  # of a diverging descent
            product = float((beta * scores).sum())
        if product >= -noise * scale:
            return True
        if not np.isfinite(product):
            return False
        sizes = np.abs(beta).sum(axis=0)
        rounding = 2.0**-50 * float(np.sum(sizes * sizes)) * abs(self.mean_diagonal())
        return product >= -noise * scale - rounding

    def mean_diagonal(self) -> float:
        """Mean of k(x, x) over some rows."""
        some = np.linspace(0, self.n_rows - 1, min(self.n_rows, 50)).astype(np.int64)
        if self.kernel.is_precomputed:
            return float(np.mean(self.X[some, some]))
        return float(self.kernel.diagonal(loaded(self.X[some])).mean())

    def _fetch(self) -> Callable[[RowNumbers, RowNumbers], Floats]:
        return lambda queries, points: self.kernel.evaluate(self.X[queries], self.X[points])


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
        """Return the problem with other weights."""
        return self._changed(C=C)

    def with_targets(self, y: NDArray[Any]) -> Self:
        """Return the problem with other targets."""
        return self._changed(y=y)

    def with_intercept(self, intercept: str | None) -> Self:
        """Return the problem with another kind of intercept."""
        return self._changed(intercept=intercept)

    def with_total(self, total: float) -> Self:
        """Return the problem with another sum of beta; only zero is one that all can have."""
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
        """Whether the loss has a derivative: then scores are as good as the root of the gap."""

    @property
    @abstractmethod
    def is_dense(self) -> bool:
        """Whether nearly every row has a nonzero variable."""

    @abstractmethod
    def is_better_start(self, dual: float) -> bool:
        """Whether a point of this dual value is a better start than none."""

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
        self, rows: _core.KernelRows, start: Floats | None, size: int, floor: float
    ) -> _core.WorkingSet | _core.Joint:
        """Make the compiled solver for this problem."""


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
        Positive weight of each row.
    loss : Loss
    intercept : {"free", "regularized"} or None
    total : float
        Sum of beta when the intercept is free: zero except for one-class problems, and for hulls,
        where it is the sum over rows with y = +1 and minus the sum over the others.
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
                f"{n} rows need as many targets and weights, got {len(self.y)} and {len(self.C)}"
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
        """Whether beta has a fixed sum for each sign of y: a distance of two (reduced) hulls."""
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
        """Whether the loss has a derivative: then scores are as good as the root of the gap."""
        return self.loss.core().smooth

    @property
    def is_dense(self) -> bool:
        """Whether nearly every row has a nonzero variable."""
        return self.loss.is_dense

    def is_better_start(self, dual: float) -> bool:
        """Whether a point of this dual value is a better start than none."""
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
        rows: _core.KernelRows,
        start: Floats | None,
        size: int,
        floor: float,
        fixed: _core.FixedPart | None = None,
    ) -> _core.WorkingSet:
        """Make the compiled solver for this problem."""
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
        # the loss of the zero model is the distance to one number: for twice the rows, half of it
        bound = 0.5 * float(self.C @ np.abs(self.shift - np.median(self.shift)))
        return _core.FixedPart(self.shift, np.empty(0), 0.0, 0.0, bound)

    def restrict(self, rows: RowNumbers) -> Problem:
        """Return the problem on some of its rows alone, with a copy of these rows of the data."""
        whole = replace(self.data.restrict(self.data_rows[rows]), starts=np.array([0, len(rows)]))
        shift = None if self.shift is None else self.shift[rows]
        return replace(self, data=whole, blocks=None, y=self.y[rows], C=self.C[rows], shift=shift)

    def on(self, part: Data, members: RowNumbers) -> Problem | None:
        """Return the problem on a part of the data; `members` are its rows there, possibly none."""
        if len(members) == 0:
            return None
        return replace(self, data=part, y=self.y[members], C=self.C[members])

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
        """The blocks as numbers."""
        return list(range(len(self.data.starts) - 1) if self.blocks is None else self.blocks)


@dataclass(frozen=True)
class JointProblem(BaseProblem):
    """Several classes in one problem: a score and a dual variable per row and class.

        min over beta   1/2 sum_c beta_c'K beta_c + sum_i h_i(beta_i),    beta_i = C_i (e_y - p_i)

    with p_i in the simplex; ``cpp/joint.hpp`` has the losses.

    Parameters
    ----------
    data : Data
    y : int64 array
        Number of the class of each row.
    n_classes : int
    C : float64 array
        Positive weight of each row.
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

    def core(
        self, rows: _core.KernelRows, start: Floats | None, size: int, floor: float
    ) -> _core.Joint:
        """Make the compiled solver for this problem with the intercepts zero or regularised."""
        nothing = np.zeros(self.n_classes)
        size = max(2, min(_LARGEST_JOINT_SET, size))
        return _core.Joint(rows, self.loss, self.y, self.n_classes, self.C, start, nothing, size)

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
        """Whether the loss has a derivative: then scores are as good as the root of the gap."""
        return self.loss == "softmax"

    @property
    def is_dense(self) -> bool:
        """Whether nearly every row has a nonzero variable."""
        return self.is_smooth

    def feasible(self, beta: Floats) -> Floats:
        """Beta itself: the compiled solver projects its start."""
        return beta

    def is_better_start(self, dual: float) -> bool:
        """Whether a point of this dual value is a better start than none: any is."""
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
        shares: Floats = -beta / self.C[:, None]
        shares[np.arange(len(self.y)), self.y] += 1.0
        return np.maximum(shares, 0.0)


def is_joint(problem: BaseProblem) -> TypeIs[JointProblem]:
    """Whether a problem has a score per row and class."""
    return isinstance(problem, JointProblem)


def is_single(problem: BaseProblem) -> TypeIs[Problem]:
    """Whether a problem has one score per row."""
    return isinstance(problem, Problem)


@dataclass(frozen=True)
class Solution:
    """A dual point with its certificate; ``beta`` and ``scores`` have a column per joint class.

    ``scores`` is K beta without the intercept, ``objective`` the primal value P, ``dual`` the dual
    value D, ``gap`` the relative duality gap ``(P + D) / max(|P|, |D|)``, infinite if the kernel
    is not ``definite``. ``precision`` is one that is sufficient for predictions. Solvers for the
    linear kernel also set the ``weights`` w of the features; then ``scores`` is X w.

    Where rows were solved in ``parts`` (:class:`~margrave.partitions.Parts`) independently of each
    other, the ``certificate`` is "blocks", there is an ``intercept`` per part, and ``combine`` says
    how new rows are predicted: by the model of the "nearest" part, by the "sum" of all, or by a
    "committee"; ``level`` is added to the scores of each, ``goal`` is the gap that the parts were
    to reach. Where the model's coefficients are not dual variables (certificate "features"), the
    ``dual_point`` has these.

    A fit that had no time left to compute its certificate has an "estimate": the gap from the
    running scores. ``rounding`` is the part of the gap that only bounds rounding errors; None
    before `solvers.certificate` has computed it. Where a solver stalled, ``cause`` says why and
    what helps. ``stop_reason`` is set by solvers that know why they did not reach the tolerance:
    Ctrl-C ("interrupted"), steps that are "stochastic", "hulls" that no direction separates, or
    a method that is "unfinished" by its own parameters.
    """

    beta: Floats
    intercept: Any  # an `Intercept`; of models of parts one per part
    scores: Floats
    objective: float
    dual: float
    gap: float
    converged: bool
    n_iter: int
    precision: str
    solver: str
    stop_reason: StopReason | None = None
    definite: bool = True
    weights: Floats | None = None
    certificate: str = "full"
    parts: Any = None
    combine: str = "nearest"
    level: float = 0.0
    goal: float | None = None
    dual_point: Floats | None = None
    rounding: float | None = None
    cause: str = ""
