"""Base class of the classifiers: from labels to binary problems and back.

Two classes make one problem; more make one per pair of classes or one per class. The kernel is the
same for all of them, so they share one :class:`~margrave.problem.Data`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from margrave._sklearn import StrOptions
from margrave.estimators._base import KernelEstimator, relative_gap, shared_variables
from margrave.estimators._input import Floats, Rows, take
from margrave.estimators._remote import lazily, on_every_rank
from margrave.estimators._rows import RowNames
from margrave.estimators._transaction import transaction
from margrave.losses import JOINT_LOSSES, Loss
from margrave.partitions import Parts
from margrave.problem import BaseProblem, Data, JointProblem, Problem, is_single
from margrave.resources import thread_count
from margrave.rows import AnyRows, Matrix
from margrave.solvers import Solution
from margrave.typing import MatrixLike, VectorLike

logger = logging.getLogger("margrave")


@dataclass(frozen=True)
class Task:
    """The rows with positive weight, their classes, and the binary problems.

    For one-vs-one the rows are sorted by class, so that a problem consists of two contiguous
    blocks; otherwise they keep their order.
    """

    scheme: str  # "binary", "ovo", "ovr", or the name of a joint loss
    classes: NDArray[Any]  # sorted labels
    class_weight: Floats
    rows: Rows  # row of X behind each row of the task
    labels: Rows  # class index of each row
    starts: Rows  # block boundaries
    blocks: list[tuple[int, int] | None]  # the pair of blocks of each problem; None: all rows
    members: list[Rows | slice]  # index of the rows of each problem
    signs: list[Floats]  # +-1 for the rows of each problem
    C: list[Floats]  # penalties C_i for the rows of each problem

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of classes, one per problem of one-vs-one."""
        return list(combinations(range(len(self.classes)), 2))


class KernelClassifier(ClassifierMixin, KernelEstimator):  # type: ignore[misc]
    """Base class of the classifiers; a subclass defines the loss and the penalties C_i."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KernelEstimator._parameter_constraints,
        "intercept": [StrOptions({"free", "regularized"}), None],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }
    # defaults of classifiers without these parameters
    multi_class = "ovr"
    decision_function_shape = "ovr"
    break_ties = False
    # for a model loaded from LIBSVM: the order of the classes by which it breaks ties
    _tie_order: Rows | None = None

    def _loss(self) -> Loss:
        """Loss of the binary problems."""
        raise NotImplementedError

    def _penalties(self, weight: Floats) -> Floats:
        """Penalties C_i of rows with these weights."""
        raise NotImplementedError

    @transaction
    @on_every_rank
    def fit(
        self,
        X: MatrixLike,
        y: VectorLike,
        sample_weight: VectorLike | None = None,
        row_ids: VectorLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; a square kernel matrix when `kernel="precomputed"`. float32 is not converted.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row: two is equivalent to repeating the row, zero to leaving it out.
        row_ids : array-like of shape (n_samples,), default=None
            A number or string for each row by which `warm_start` recognises it in the next fit;
            without them rows are recognised by their contents.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._check_parameters()
        self._check_shape()
        rows, labels = self._check_training(X, y)
        check_classification_targets(labels)
        self._fit(rows, labels, sample_weight, row_ids)
        return self

    def _fit(
        self,
        rows: AnyRows,
        labels: NDArray[Any],
        sample_weight: VectorLike | None,
        row_ids: VectorLike | None = None,
    ) -> None:
        weight = self._check_weights(rows, sample_weight)
        names = self._names(rows, row_ids)
        task = self._task(labels, weight)
        kernel = self._kernel_for(rows, weight)
        data = Data(take(rows, task.rows, square=kernel.is_precomputed), kernel, task.starts)
        problems = self._problems(task, data)
        starts = None
        if self.warm_start:
            problems, starts = self._begin(names, task, problems)

        def pack(model: KernelClassifier, found: Sequence[Solution]) -> Sequence[Solution]:
            model._kernel = kernel
            return model._pack(rows, task, data, found)

        solutions, progress = self._solve(problems, starts, pack, task.rows)
        packed = pack(self, solutions)
        members = [task.rows[np.arange(len(task.rows))[at]] for at in task.members]
        self._remember(names, members, problems, solutions)
        self._conclude(packed, progress)

    def _task(self, y: NDArray[Any], weight: Floats) -> Task:
        """Rows with positive weight, their classes and penalties, and the binary problems."""
        rows = np.flatnonzero(weight)
        classes, labels = np.unique(y[rows], return_inverse=True)
        if len(classes) < 2:
            same = "all samples with positive weights belong to the same class: "
            weighted = f"Invalid input - {same}" if len(rows) < len(y) else ""
            raise ValueError(
                f"{weighted}{type(self).__name__} needs at least two classes, but there is only 1"
                f" class in y: {classes.tolist()[0]!r}"
            )
        factor = compute_class_weight(
            self.class_weight, classes=classes, y=y[rows], sample_weight=weight[rows]
        )
        if not (np.isfinite(factor).all() and (factor > 0).all()):
            raise ValueError(
                "class_weight must be positive, got"
                f" {dict(zip(classes.tolist(), factor.tolist(), strict=True))};"
                " give rows sample_weight=0 to leave them out"
            )
        counts = weight[rows] * factor[labels]
        k = len(classes)
        scheme = "binary" if k == 2 and self.multi_class not in JOINT_LOSSES else self.multi_class
        starts, everything = np.array([0, len(rows)], dtype=np.int64), slice(None)
        if scheme == "ovo":
            order = np.argsort(labels, kind="stable")
            rows, labels, counts = rows[order], labels[order], counts[order]
            starts = np.searchsorted(labels, np.arange(k + 1)).astype(np.int64)
            pairs = list(combinations(range(k), 2))
            blocks: list[tuple[int, int] | None] = [*pairs]
            members: list[Rows | slice] = [
                np.r_[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] for i, j in pairs
            ]
            positive = [labels[at] == i for (i, _), at in zip(pairs, members, strict=True)]
        elif scheme in JOINT_LOSSES:
            positive, blocks, members = [], [None], [everything]
        else:  # scikit-learn's signs: the second of two classes is the positive one
            positive = [labels == c for c in (range(k) if scheme == "ovr" else [1])]
            blocks, members = [None] * len(positive), [everything] * len(positive)
        signs = [np.where(mask, 1.0, -1.0) for mask in positive]
        C = [self._penalties(counts[at]) for at in members]
        if not all(np.isfinite(part).all() and (part > 0).all() for part in C):
            raise ValueError("C times the weights is outside the range of double precision")
        return Task(scheme, classes, factor, rows, labels, starts, blocks, members, signs, C)

    def _problems(self, task: Task, data: Data) -> Sequence[BaseProblem]:
        """Make the problems of the task on its rows."""
        if task.scheme in JOINT_LOSSES:
            k = len(task.classes)
            return [JointProblem(data, task.labels, k, task.C[0], task.scheme, self.intercept)]
        loss = self._loss()
        return [
            Problem(data, blocks, signs, C, loss, self.intercept)
            for blocks, signs, C in zip(task.blocks, task.signs, task.C, strict=True)
        ]

    def _pack(
        self, X: AnyRows, task: Task, data: Data, solutions: Sequence[Solution]
    ) -> Sequence[Solution]:
        """Store the solutions as fitted attributes in scikit-learn's layout; return them."""
        betas = [solution.beta for solution in solutions]
        shared = shared_variables(solutions)
        used = np.zeros(len(task.rows), dtype=bool)
        for variables in (betas, shared or betas):
            for beta, members in zip(variables, task.members, strict=True):
                used[members] |= beta.reshape(len(beta), -1).any(axis=1)
        at = np.flatnonzero(used)
        at = at[np.argsort(task.labels[at], kind="stable")]
        counts = np.bincount(task.labels[at], minlength=len(task.classes))
        dual = _coefficients(task, betas, at, counts)
        self.classes_ = task.classes
        self.class_weight_ = task.class_weight
        self._store_support(X, task.rows[at], dual, solutions)
        self.n_support_ = counts.astype(np.int32)
        self._scheme, self._tie_order = task.scheme, None
        parts = next((one.parts for one in solutions if one.parts is not None), None)
        if parts is not None:
            common = None if shared is None else _coefficients(task, shared, at, counts)
            known = self._known(task, parts)
            self._store_parts(task.rows, parts.label[at], known, common, solutions)
            return solutions
        intercepts = np.array([solution.intercept for solution in solutions], dtype=np.float64)
        outputs = len(task.classes) if task.scheme in JOINT_LOSSES else len(solutions)
        self.intercept_ = np.broadcast_to(intercepts.ravel(), (outputs,)).copy()
        return solutions

    def _known(self, task: Task, parts: Parts) -> Floats:
        """Decision values of parts that have rows of only one side of a problem.

        The sign of that side; where classes are compared by their scores, -inf for a class without
        rows.
        """
        k = len(task.classes)
        has = np.zeros((len(parts), k), dtype=bool)
        has[parts.label, task.labels] = True
        if task.scheme == "binary":
            sides = [(has[:, 1], has[:, 0])]
        elif task.scheme == "ovo":
            sides = [(has[:, i], has[:, j]) for i, j in task.pairs]
        else:
            return np.where(has, 0.0, -np.inf)
        return np.stack([first.astype(float) - second for first, second in sides], axis=1)

    # --- dual variables --------------------------------------------------------------------

    def _count_rounds(self, solutions: Sequence[Solution]) -> NDArray[np.int32]:
        return np.array([solution.n_iter for solution in solutions], dtype=np.int32)

    def _coefficients(self) -> list[Floats]:
        """Coefficients of each output, over all support vectors."""
        dual = self._dual
        if self._scheme != "ovo":
            return list(dual)
        blocks, found = _class_blocks(self.n_support_), []
        for i, j in combinations(range(len(self.classes_)), 2):
            beta = np.zeros(dual.shape[1])
            beta[blocks[i]] = dual[j - 1, blocks[i]]
            beta[blocks[j]] = dual[i, blocks[j]]
            found.append(beta)
        return found

    def _betas(self, task: Task) -> list[Floats]:
        """Signed dual variables of the fitted model on the rows of each problem of `task`."""
        betas = []
        for coefficients in self._coefficients():
            beta = np.zeros(self._n_rows)
            beta[self.support_] = coefficients
            betas.append(beta[task.rows])
        if task.scheme in JOINT_LOSSES:
            return [np.stack(betas, axis=1)]
        return [beta[members] for beta, members in zip(betas, task.members, strict=True)]

    def _begin(
        self, names: RowNames, task: Task, problems: Sequence[BaseProblem]
    ) -> tuple[Sequence[BaseProblem], list[Floats] | None]:
        """The problems with the solution of the last fit as their start, if it can be used."""
        if not hasattr(self, "support_"):
            return problems, None
        if self._scheme != task.scheme or not np.array_equal(self.classes_, task.classes):
            logger.warning(
                "%s: warm_start=True, but the last fit had the classes %s (%s) and this one has %s"
                " (%s): starting cold",
                *(type(self).__name__, self.classes_.tolist(), self._scheme),
                *(task.classes.tolist(), task.scheme),
            )
            return problems, None
        last, coefficients = self._last_fit(names), self._coefficients()
        if task.scheme in JOINT_LOSSES:  # the solver projects the start itself
            here = last.places_in(task.rows)
            start = np.zeros(problems[0].shape)
            start[here[here >= 0]] = np.stack(coefficients, axis=1)[here >= 0]
            return problems, [start]
        begun = [
            last.begin(problem, number, task.rows[at], coef, thread_count(self.n_jobs))
            if is_single(problem)
            else (problem, problem.feasible(np.zeros(problem.shape)))
            for number, (problem, at, coef) in enumerate(
                zip(problems, task.members, coefficients, strict=True)
            )
        ]
        return [problem for problem, _ in begun], [start for _, start in begun]

    # --- prediction ------------------------------------------------------------------------

    def _check_shape(self) -> None:
        if self.decision_function_shape != "ovo":
            return
        if self.multi_class != "ovo":
            raise ValueError(
                "decision_function_shape='ovo' needs multi_class='ovo', got"
                f" multi_class={self.multi_class!r}"
            )

    def _decisions(self, X: AnyRows) -> Floats:
        """Decision values of the binary problems, one column each.

        Positive values mean the first class of a pair, the class against the rest, or, with two
        classes, the second one.
        """
        decisions: Floats = self._scores(X, self._precision) + self.intercept_
        return decisions

    def _sums(self, dual: Floats, X: Matrix, precision: str, used: Rows | slice) -> Floats:
        """Sums over some of the support vectors, one column per problem."""
        if self._scheme != "ovo":
            return super()._sums(dual, X, precision, used)
        # the support vectors of a class have coefficients only in the pairs with that class
        k = len(self.classes_)
        column = {pair: p for p, pair in enumerate(combinations(range(k), 2))}
        scores = np.zeros((X.shape[0], len(column)))
        everything = np.arange(dual.shape[1])[used]
        ends = np.searchsorted(everything, np.cumsum(self.n_support_))
        for c, own in enumerate(np.split(everything, ends[:-1])):
            if len(own):
                pairs = [column[min(c, other), max(c, other)] for other in range(k) if other != c]
                scores[:, pairs] += self._expand(X, own, dual[:, own].T, precision)
        return scores

    @lazily
    def decision_function(self, X: MatrixLike) -> Floats:
        """Evaluate the decision function.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; kernel values with the training rows when `kernel="precomputed"`.

        Returns
        -------
        scores : ndarray of shape (n_samples,), (n_samples, n_classes) or (n_samples, n_pairs)
            Two classes: positive values mean ``classes_[1]``. More: see `decision_function_shape`.
        """
        self._check_shape()
        decisions = self._decisions(self._check_rows(X, reset=False))
        if self._scheme == "binary":
            return decisions[:, 0]
        if self._scheme in JOINT_LOSSES and len(self.classes_) == 2:
            return decisions[:, 1] - decisions[:, 0]
        if self._scheme != "ovo" or self.decision_function_shape == "ovo":
            return decisions
        votes, confidence = _count_votes(decisions, len(self.classes_), strict=False)
        # scaled into (-1/3, 1/3): confidences break ties between votes and never overrule a vote
        squeezed: Floats = confidence / (3.0 * (np.abs(confidence) + 1.0))
        return votes + squeezed

    @lazily
    def predict(self, X: MatrixLike) -> Any:
        """Predict labels.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows; kernel values with the training rows when `kernel="precomputed"`.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        self._check_shape()
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        rows = self._check_rows(X, reset=False)
        if self._scheme == "ovo" and self.break_ties and self._tie_order is None:
            return self.classes_[np.argmax(self.decision_function(X), axis=1)]
        decisions = self._decisions(rows)
        if self._scheme == "binary":
            undecided = self._tie_order is None or self._tie_order[0] == 1
            second = decisions[:, 0] >= 0 if undecided else decisions[:, 0] > 0
            return self.classes_[second.astype(np.intp)]
        if self._scheme == "ovo":
            decisions, _ = _count_votes(decisions, len(self.classes_), strict=True)
        return self.classes_[self._best(decisions)]

    def _best(self, scores: Floats) -> Rows:
        """Class of the largest score in each row; ties go to the first, or by `_tie_order`."""
        if self._tie_order is not None:
            scores = scores[:, self._tie_order]
        best: Rows = np.argmax(scores, axis=1)
        return best if self._tie_order is None else self._tie_order[best]

    def certify(
        self, X: MatrixLike, y: VectorLike, sample_weight: VectorLike | None = None
    ) -> float:
        """Compute the relative duality gap of the fitted model on its training data.

        It is recomputed in double precision from the fitted attributes.

        Parameters
        ----------
        X, y, sample_weight
            The training data, in the same order.

        Returns
        -------
        gap : float
            Largest gap of the binary problems; inf if the kernel is not positive semidefinite.
        """
        rows, labels = self._check_training(X, y, reset=False)
        task = self._task(labels, self._check_weights(rows, sample_weight))
        same = self._has_rows(rows) and np.array_equal(task.classes, self.classes_)
        if not (same and task.scheme == self._scheme):
            raise ValueError("certify needs the rows and labels of the fit, in the same order")
        data = Data(take(rows, task.rows, self._kernel.is_precomputed), self._kernel, task.starts)
        betas = self._betas(task)
        if self.certificate_ == "blocks":
            return self._whole_gap(self._problems(task, data), betas)
        scores = self._scores(rows, "float64")[task.rows]
        problems = self._problems(task, data)
        if task.scheme in JOINT_LOSSES:
            points = [(betas[0], scores, self.intercept_, self._weights)]
        else:
            weights = [None] * len(problems) if self._weights is None else self._weights
            points = [
                (beta, np.ascontiguousarray(scores[at, p]), self.intercept_[p], weights[p])
                for p, (beta, at) in enumerate(zip(betas, task.members, strict=True))
            ]
        if self.certificate_ == "features":
            return max(
                self._gap_of_landmarks(problem, *point[:3], dual)
                for problem, point, dual in zip(problems, points, self._dual_points, strict=True)
            )
        return max(
            relative_gap(problem, *point, thread_count(self.n_jobs))
            for problem, point in zip(problems, points, strict=True)
        )


def _coefficients(task: Task, betas: Sequence[Floats], at: Rows, counts: Rows) -> Floats:
    """Variables of the rows `at`, `counts` of them per class, in scikit-learn's layout."""
    if task.scheme in JOINT_LOSSES:
        return betas[0][at].T
    if task.scheme != "ovo":
        return np.array([beta[at] for beta in betas])
    dual = np.zeros((len(task.classes) - 1, len(at)))
    blocks = _class_blocks(counts)
    for (i, j), beta in zip(task.pairs, betas, strict=True):
        size = task.starts[i + 1] - task.starts[i]
        dual[j - 1, blocks[i]] = beta[:size][at[blocks[i]] - task.starts[i]]
        dual[i, blocks[j]] = beta[size:][at[blocks[j]] - task.starts[j]]
    return dual


def _class_blocks(counts: NDArray[np.integer[Any]]) -> list[slice]:
    """Slices of consecutive blocks of these sizes."""
    ends = np.cumsum(counts)
    return [slice(int(end - size), int(end)) for size, end in zip(counts, ends, strict=True)]


def _count_votes(decisions: Floats, k: int, strict: bool) -> tuple[Floats, Floats]:
    """Votes and summed confidences per class from the pairs (i, j), i < j.

    A decision of exactly zero goes to j if `strict` (LIBSVM's labels), else to i (scikit-learn's
    decision function).
    """
    votes = np.zeros((decisions.shape[0], k))
    confidence = np.zeros_like(votes)
    for p, (i, j) in enumerate(combinations(range(k), 2)):
        first = decisions[:, p] > 0 if strict else decisions[:, p] >= 0
        votes[:, i] += first
        votes[:, j] += ~first
        confidence[:, i] += decisions[:, p]
        confidence[:, j] -= decisions[:, p]
    return votes, confidence
