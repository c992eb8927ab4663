"""Base class of the estimators with one problem per fit: regression and one-class SVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave.estimators._base import KernelEstimator, relative_gap, shared_variables
from margrave.estimators._input import Floats, Rows, take
from margrave.estimators._rows import RowNames
from margrave.kernels import Kernel
from margrave.problem import Data, Problem
from margrave.resources import thread_count
from margrave.rows import AnyRows
from margrave.solvers import Solution
from margrave.typing import VectorLike


class SingleEstimator(KernelEstimator):
    """Base class of the estimators with one problem, which a subclass defines."""

    def _problem(self, data: Data, y: Floats, weight: Floats) -> Problem:
        """Make the problem of rows with these weights."""
        raise NotImplementedError

    def _fit(
        self,
        X: AnyRows,
        y: NDArray[Any],
        sample_weight: VectorLike | None,
        row_ids: VectorLike | None = None,
    ) -> None:
        weight = self._check_weights(X, sample_weight)
        names = self._names(X, row_ids)
        rows = np.flatnonzero(weight)
        kernel = self._kernel_for(X, weight)
        problem = self._problem_on(X, y, weight, rows, kernel)
        start = None
        if self.warm_start and hasattr(self, "support_"):
            problem, start = self._begin(names, problem, rows)

        def pack(model: SingleEstimator, found: Sequence[Solution]) -> Sequence[Solution]:
            model._kernel = kernel
            return [model._pack(X, rows, problem, found[0])]

        starts = None if start is None else [start]
        solutions, progress = self._solve([problem], starts, pack, rows)
        packed = pack(self, solutions)
        self._remember(names, [rows], [problem], solutions)
        self._conclude(packed, progress)

    def _pack(self, X: AnyRows, rows: Rows, problem: Problem, solution: Solution) -> Solution:
        """Store the solution as fitted attributes; return it."""
        shared = shared_variables([solution])
        (common,) = shared or [solution.beta]
        at = np.flatnonzero((solution.beta != 0.0) | (common != 0.0))
        self._store_support(X, rows[at], solution.beta[None, at], [solution])
        self.n_support_ = np.array([len(at)], dtype=np.int32)
        if solution.parts is None:
            self.intercept_ = np.array([float(solution.intercept)])
        else:
            known, label = np.zeros((len(solution.parts), 1)), solution.parts.label[at]
            own = None if shared is None else common[None, at]
            self._store_parts(rows, label, known, own, [solution])
        self._store(float(self.intercept_[0]))
        return solution

    def _store(self, intercept: float) -> None:
        """Store further attributes of a subclass, before the fit warns or raises."""

    def _problem_on(
        self, X: AnyRows, y: Floats, weight: Floats, rows: Rows, kernel: Kernel
    ) -> Problem:
        data = Data(take(X, rows, square=kernel.is_precomputed), kernel, np.array([0, len(rows)]))
        return self._problem(data, np.ascontiguousarray(y[rows]), weight[rows])

    def _begin(self, names: RowNames, problem: Problem, rows: Rows) -> tuple[Problem, Floats]:
        """The problem with the solution of the last fit as its start."""
        last, threads = self._last_fit(names), thread_count(self.n_jobs)
        return last.begin(problem, 0, rows, self._dual[0], threads)

    def _beta(self) -> Floats:
        beta = np.zeros(self._n_rows)
        beta[self.support_] = self._dual[0]
        return beta

    def _certify(self, X: AnyRows, y: Floats, sample_weight: VectorLike | None) -> float:
        if not self._has_rows(X):
            raise ValueError("certify needs the rows of the fit, in the same order")
        weight = self._check_weights(X, sample_weight)
        rows = np.flatnonzero(weight)
        problem = self._problem_on(X, y, weight, rows, self._kernel)
        if self.certificate_ == "blocks":
            return self._whole_gap([problem], [self._beta()[rows]])
        scores = np.ascontiguousarray(self._scores(X, "float64")[rows, 0])
        beta, b = self._beta()[rows], float(self.intercept_[0])
        if self.certificate_ == "features":
            return self._gap_of_landmarks(problem, beta, scores, b, self._dual_points[0])
        weights = None if self._weights is None else self._weights[0]
        return relative_gap(problem, beta, scores, b, weights, thread_count(self.n_jobs))
