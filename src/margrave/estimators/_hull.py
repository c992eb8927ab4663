"""Base class of the classifiers that find the distance between two (reduced) convex hulls.

The solvers in `margrave.solvers.hull` find z, the shortest vector between the (reduced) hulls of
two classes, as sum_i beta_i x_i. With s_i = z'x_i, p+ the score of the positive rows whose weight
is between zero and its cap, and p- that of the negative ones,

    b = (p+ + p-) / 2,    rho = (p+ - p-) / 2,    decision(x) = (z'x - b) / rho
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from margrave.blocks.hull import level
from margrave.estimators._base import KernelEstimator
from margrave.estimators._classifier import Task
from margrave.estimators._input import Floats, Rows, take
from margrave.estimators._margin import MarginClassifier
from margrave.losses import Loss
from margrave.problem import BaseProblem, Data, Problem
from margrave.resources import thread_count
from margrave.rows import AnyRows, Matrix, in_memory
from margrave.solvers import HULL_SOLVERS, Solution, resolve_solver
from margrave.solvers.auto import Auto
from margrave.solvers.certificate import certify_plane, with_certificate
from margrave.typing import MatrixLike, VectorLike


def refuse_solver(owner: KernelEstimator) -> None:
    """Raise for a solver that cannot solve hull problems."""
    solver = resolve_solver(owner.solver)
    known = tuple(type(make()) for make in HULL_SOLVERS.values())
    if isinstance(solver, (Auto, *known)) or type(solver).__module__.split(".")[0] != "margrave":
        return
    raise ValueError(
        f"the solver {owner.solver!r} cannot be used for {type(owner).__name__}; use"
        f" solver='auto', {', '.join(map(repr, HULL_SOLVERS))}"
    )


class HullClassifier(MarginClassifier):
    """Base class of the hull classifiers; a subclass defines the caps of the rows' weights."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KernelEstimator._parameter_constraints
    }
    multi_class = "ovo"
    intercept = "free"
    class_weight = None
    break_ties = True

    def _check_parameters(self) -> None:
        super()._check_parameters()
        refuse_solver(self)

    def _loss(self) -> Loss:
        return Loss("hull")

    def _problems(self, task: Task, data: Data) -> Sequence[BaseProblem]:
        """Make the problems on centred rows: distances do not depend on the origin."""
        if not data.in_memory:
            raise ValueError(
                f"{type(self).__name__} needs all rows in one array; SVC(solver='auto') takes Dask"
                " collections and, with kernel='linear', rows in blocks"
            )
        return self._distances(task, centred(data))

    def _distances(self, task: Task, data: Data) -> list[Problem]:
        return [
            Problem(data, blocks, signs, caps, self._loss(), "free", total=1.0)
            for blocks, signs, caps in zip(task.blocks, task.signs, task.C, strict=True)
        ]

    def _pack(
        self, X: AnyRows, task: Task, data: Data, solutions: Sequence[Solution]
    ) -> Sequence[Solution]:
        """Store the decision functions, margins and caps."""
        found = [
            self._decision(X, task, number, solution) for number, solution in enumerate(solutions)
        ]
        super()._pack(X, task, data, [solution for solution, _ in found])
        self._rho = np.array([rho for _, rho in found])
        self.rho_ = plain(self._rho)
        self.margin_ = plain(np.sqrt([max(0.0, s.objective) / 2.0 for s in solutions]))
        self._store_caps(task)
        problems = self._distances(task, data)
        return [
            self._certified_plane(problem, plane, rho)
            for problem, (plane, rho) in zip(problems, found, strict=True)
        ]

    def _certified_plane(self, problem: Problem, plane: Solution, rho: float) -> Solution:
        """The plane with its certificate, unless the fit was stopped before."""
        if plane.certificate == "estimate" and plane.weights is None:
            return plane
        try:
            found = certify_plane(problem, plane, rho, thread_count(self.n_jobs), self.tol)
        except KeyboardInterrupt:
            return interrupted(plane)
        return with_certificate(plane, found, self.tol)

    def _store_caps(self, task: Task) -> None:
        """Store attributes that depend on the caps; nothing by default."""

    def _decision(
        self, X: AnyRows, task: Task, number: int, solution: Solution
    ) -> tuple[Solution, float]:
        """Scale z to a decision function; also return rho."""
        assert in_memory(X)  # see `_problems`
        y, caps, s, z = task.signs[number], task.C[number], solution.scores, solution.weights
        plus, used = y > 0, int(np.argmax(np.abs(solution.beta)))
        rows = task.rows[np.arange(len(task.rows))[task.members[number]]]
        if z is not None:  # z is scaled to the distance that it guarantees
            s = np.asarray(X[rows] @ z, dtype=np.float64).ravel()
            s -= s[used]
            margin = level(s[plus], caps[plus]) + level(-s[~plus], caps[~plus])
            length = max(margin, 0.0) / max(float(z @ z), 1e-300)
            z, s = (z * length, s * length) if length > 0.0 else (None, solution.scores)
        above, below = level(s[plus], caps[plus]), -level(-s[~plus], caps[~plus])
        b, rho = (above + below) / 2.0, (above - below) / 2.0
        if not rho > 0.0:  # stopped before the classes are separated
            rho = solution.objective if solution.objective > 0.0 else 1.0
        weights = None
        if self._kernel.name == "linear":
            z = combination_of(X, rows, solution.beta) if z is None else z
            # the scores are those of centred rows
            b += float((X[rows[[used]]] @ z)[0]) - float(s[used])
            weights = z / rho
        scaled = replace(
            solution,
            beta=solution.beta / rho,
            scores=s / rho,
            intercept=-b / rho,
            weights=weights,
        )
        return scaled, rho

    def _held_out(self, X: MatrixLike) -> Floats:
        found = super()._held_out(X)
        found[:, np.asarray(self.gaps_) >= 1.0] = np.nan
        return found

    def certify(
        self, X: MatrixLike, y: VectorLike, sample_weight: VectorLike | None = None
    ) -> float:
        """Compute the certificate (U - L) / U of the fitted model on its training data.

        It is recomputed in double precision from the fitted attributes.

        Parameters
        ----------
        X, y, sample_weight
            The training data, in the same order.

        Returns
        -------
        gap : float
            Largest gap of the binary problems; 1 if the model does not separate the classes.
        """
        rows, labels = self._check_training(X, y, reset=False)
        task = self._task(labels, self._check_weights(rows, sample_weight))
        if not (self._has_rows(rows) and np.array_equal(task.classes, self.classes_)):
            raise ValueError("certify needs the rows and labels of the fit, in the same order")
        data = Data(take(rows, task.rows, self._kernel.is_precomputed), self._kernel, task.starts)
        scores = self._scores(rows, "float64")[task.rows]
        unknown = (np.nan, np.nan, np.nan, False, 0, "float64", "")
        gaps = []
        for p, (problem, beta) in enumerate(
            zip(self._distances(task, data), self._betas(task), strict=True)
        ):
            f = np.ascontiguousarray(scores[task.members[p], p])
            weights = None if self._weights is None else self._weights[p]
            plane = Solution(beta, self.intercept_[p], f, *unknown, weights=weights)
            found = certify_plane(problem, plane, self._rho[p], thread_count(self.n_jobs))
            gaps.append(found.gap)
        return float(max(gaps))


def interrupted(solution: Solution) -> Solution:
    """The solution with an estimate of its gap, after Ctrl-C in its certificate."""
    return replace(solution, certificate="estimate", converged=False, stop_reason="interrupted")


def centred(data: Data) -> Data:
    """Centre dense rows of the linear kernel, in double precision; leave others unchanged."""
    X = data.X
    if data.kernel.name != "linear" or sparse.issparse(X):
        return data
    return replace(data, X=X - X.mean(axis=0, dtype=np.float64))


def combination_of(X: Matrix, rows: Rows, beta: Floats) -> Floats:
    """z = sum_i beta_i x_i."""
    used = np.flatnonzero(beta)
    return np.asarray(X[rows[used]].T @ beta[used], dtype=np.float64).ravel()


def plain(values: Floats) -> Any:
    """A number for one problem, an array for several."""
    return float(values[0]) if len(values) == 1 else values
