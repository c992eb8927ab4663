"""Base class of all estimators: calling the solver, storing the model, certificates, scores.

An estimator turns its input into :class:`~margrave.problem.Problem` objects, passes them to
`_solve`, packs the solutions into fitted attributes, and ends with `_conclude`, which warns or
raises only after everything is stored, so that neither a missed tolerance nor Ctrl-C loses the
model. All of this happens on a draft of the estimator
(:mod:`margrave.estimators._transaction`).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted

from margrave.engines import Recovery
from margrave.estimators._advice import advice, outside
from margrave.estimators._card import card_of, on_card, on_workers_cards
from margrave.estimators._context import FitContext
from margrave.estimators._early import EarlyModel
from margrave.estimators._input import CheckedInput, Floats, Rows
from margrave.estimators._remote import fetch_vector, portable
from margrave.estimators._rows import KeptRows, LastFit, RowNames, check_ids, remember
from margrave.estimators._transaction import complete, show_early, without_draft
from margrave.models import Committee, Expansion, LinearModel, LocalModels
from margrave.partitions import is_built_in, nearest
from margrave.problem import BaseProblem, Data, is_single
from margrave.progress import Progress
from margrave.report import Report, make_report
from margrave.resources import one_blas_thread, parse_bytes, thread_count
from margrave.rounds import FEW
from margrave.rows import (
    AnyRows,
    Matrix,
    RowBlocks,
    blocks_of,
    in_blocks,
    in_memory,
    is_csr,
    is_mapped,
    is_remote,
    loaded,
    sample_rows,
)
from margrave.solvers import Settings, Solution, WorkingSet, resolve_solver
from margrave.solvers.auto import Auto
from margrave.solvers.certificate import certificate, certified
from margrave.solvers.columns import Columns
from margrave.solvers.order import RowOrder
from margrave.solvers.whole import certify
from margrave.typing import MatrixLike, VectorLike

# certificates, those that say least about the whole problem first
_LEAST_FIRST = ("features", "blocks", "estimate", "full")
_FAINT = 1e-30  # of the largest coefficient: smaller sums miss terms below the least float32
_MOST_OF_COMMITTEE = 1000  # support vectors of a part that are kept to estimate its variance


class KernelEstimator(CheckedInput):
    """Base class of all estimators; the subclasses' constructors define the parameters."""

    _context: FitContext | None = None  # set by a search while it fits and scores
    _early: EarlyModel | None = None  # see `early_`
    _recovery: Recovery  # of a fit, while it lasts
    _cure: ClassVar[str] = ""  # advice for hulls that overlap
    # of classifiers: "binary", "ovo", "ovr", or the name of a joint loss
    _scheme: str | None = None
    _weights: Floats | None = None  # feature weights of a linear model
    _local: LocalModels | Committee | None = None  # how the models of parts are combined
    _shared: Floats | None = None  # coefficients with which all parts predict, beside their own
    _kept: KeptRows | None = None  # of the last fit, for a warm start on other rows

    # --- fit -------------------------------------------------------------------------------

    def _fit(
        self,
        X: AnyRows,
        y: NDArray[Any],
        sample_weight: VectorLike | None,
        row_ids: VectorLike | None = None,
    ) -> None:
        """Fit to checked rows and targets."""
        raise NotImplementedError

    def _names(self, X: AnyRows, row_ids: VectorLike | None) -> RowNames:
        """What a warm start recognises the rows by."""
        return RowNames(X, check_ids(fetch_vector(self, row_ids, X, "row_ids"), X.shape[0]))

    def _last_fit(self, names: RowNames) -> LastFit:
        """The last solution, and where its support vectors are among these rows."""
        points = self.support_vectors_ if self._is_comparable(names.X) else None
        left = Progress(self.tol, time_limit=self.time_limit).remaining
        return LastFit.find(names, self.support_, points, self._kernel, self._kept, left)

    def _is_comparable(self, X: AnyRows) -> bool:
        """Whether rows X can be compared with the support vectors."""
        native = not (self._kernel.is_precomputed or self._kernel.is_callable)
        return native and in_memory(X) and not is_mapped(X) and self._holds_rows

    def _remember(
        self,
        names: RowNames,
        members: Sequence[Rows],
        problems: Sequence[BaseProblem],
        solutions: Sequence[Solution],
    ) -> None:
        """Keep what a warm start on other rows needs."""
        before = self.__dict__.pop("_kept", None)
        if self.warm_start and self._context is None:
            self._kept = remember(names, members, problems, solutions, before)

    def _solve(
        self,
        problems: Sequence[BaseProblem],
        starts: list[Floats] | None,
        pack: Callable[[Self, Sequence[Solution]], Sequence[Solution]],
        rows: Rows,
    ) -> tuple[list[Solution], Progress]:
        """Run the solver on the problems within the budgets.

        `pack` stores solutions on an estimator: early ones on a copy of this one. `rows` are the
        rows of X behind the rows of the problems, for a search that shares kernel values.
        """
        self.__dict__.pop("tuning_", None)  # of an earlier fit
        progress = self._progress(len(problems))
        context = self._context
        if context is not None:
            context.watch(progress)
            problems, starts = context.share(problems, rows)
        has_model = hasattr(self, "gap_")  # of an earlier fit
        data = problems[0].data
        solver = resolve_solver(self.solver)
        columns = Columns.of(problems if context is None else [])
        by_rows = isinstance(solver, WorkingSet) and not problems[0].is_hull
        if not by_rows:
            columns.check(problems, self.memory_limit)
        problems = columns.narrow(problems)
        device = card_of(self.engine, self.memory_limit)
        if device is not None:
            problems = on_card(problems, device, solver)
        problems = on_workers_cards(problems, self.engine, solver)
        order = RowOrder()
        few = isinstance(solver, (Auto, WorkingSet)) and is_single(problems[0])
        few = few and data.in_memory and data.n_rows <= FEW

        def restored(solutions: Sequence[Solution]) -> list[Solution]:
            return [columns.widen(solution) for solution in order.restore(solutions)]

        def make_early(solutions: Sequence[Solution]) -> KernelEstimator:
            model = copy.copy(self)
            for name in ("_early", "_recovery"):  # of the fit
                model.__dict__.pop(name, None)
            model._store_certificate(pack(model, restored(solutions)), progress)
            return model

        early = EarlyModel(progress, make_early)
        show_early(self, early)
        with progress, one_blas_thread():
            settings = replace(
                self._fit_settings(progress, data),
                rough=context is not None and context.rough,
                exact=few and self.engine is None and context is None,
            )
            as_published = getattr(solver, "as_published", False)
            try:
                try:
                    keeps_order = not is_built_in(getattr(solver, "partition", None))
                    if context is None and not as_published and not keeps_order:
                        order = RowOrder.of(problems, settings)
                        problems, starts = order.arrange(problems), order.arrange_starts(starts)
                        settings = order.within(settings)
                    solutions = solver.solve(list(problems), settings, starts)
                except KeyboardInterrupt:  # outside the compiled code
                    can_solve = data.in_memory and not has_model
                    found = _interrupted_solutions(problems, settings, can_solve)
                    if found is None:
                        raise
                    solutions = found
                if not settings.rough:
                    keep = not (by_rows and columns.used is not None)
                    solutions = certified(
                        problems, solutions, settings, not as_published, by_weights=keep
                    )
            except ValueError as verdict:  # not reliable after Ctrl-C
                if progress.stop_reason != "interrupted":
                    raise
                raise KeyboardInterrupt from verdict
        if device is not None and context is None:
            device.release()
        is_zero = not any(solution.beta.any() for solution in solutions)
        if has_model and is_zero and _interrupted(solutions, progress):
            raise KeyboardInterrupt(f"{type(self).__name__} keeps the model of the last fit")
        if context is not None:
            context.keep(solutions)
        early.settle()
        if early.model is None:
            del self._early
        return restored(solutions), progress

    def _progress(self, n_problems: int) -> Progress:
        """The budgets, callbacks and history of a fit."""
        return Progress(
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
            callbacks=self.callbacks,
            verbose=int(self.verbose),
            label=type(self).__name__,
            n_problems=n_problems,
        )

    def _settings(self, progress: Progress) -> Settings:
        """Settings of a computation in this process."""
        return Settings(
            tol=progress.tol,
            memory_limit=self.memory_limit,
            threads=thread_count(self.n_jobs),
            seed=self._seed(),
            progress=progress,
        )

    def _fit_settings(self, progress: Progress, data: Data) -> Settings:
        """Settings of a fit, which may run on an engine."""
        return replace(
            self._settings(progress),
            engine="dask" if self.engine is None and data.is_remote else self.engine,
            recovery=self._recovery,
        )

    def _seed(self) -> int:
        """Seed of the solver; a fixed one if random_state is None, so that fits are repeatable."""
        if self.random_state is None:
            return 0
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def _store_certificate(self, solutions: Sequence[Solution], progress: Progress) -> None:
        """Store objectives, gaps and history."""
        self.objectives_ = np.array([solution.objective for solution in solutions])
        self.gaps_ = np.array([solution.gap for solution in solutions])
        self._absolute_gaps = np.array(
            [np.inf if np.isinf(s.gap) else max(0.0, s.objective + s.dual) for s in solutions]
        )
        self.objective_ = float(self.objectives_.sum())
        self.gap_ = float(self.gaps_.max())
        self.converged_ = all(bool(solution.converged) for solution in solutions)
        self.n_iter_ = self._count_rounds(solutions)
        used = [name for solution in solutions for name in solution.solver.split(", ")]
        self.solver_ = ", ".join(dict.fromkeys(used))
        kinds = [solution.certificate for solution in solutions]
        self.certificate_ = min(kinds, key=_LEAST_FIRST.index)
        self._dual_points: list[Any] = [solution.dual_point for solution in solutions]
        self.history_ = progress.history

    def _conclude(self, solutions: Sequence[Solution], progress: Progress) -> None:
        """Store the certificate; then, with the model complete, warn or re-raise Ctrl-C."""
        self._store_certificate(solutions, progress)
        complete(self)
        if _interrupted(solutions, progress):
            raise KeyboardInterrupt(
                f"{type(self).__name__} keeps the model reached so far, with gap {self.gap_:.2g}"
            )
        if progress.stop_reason == "time_limit" and self.time_limit is None:
            return  # the limit is that of a search, which says so itself
        is_early = self.certificate_ == "blocks" and progress.stop_reason is None
        if self.converged_ or (is_early and all(map(_reaches_goal, solutions))):
            return
        missed = (
            f"above tol={self.tol:g}"
            if self.gap_ > self.tol
            else "not yet confirmed in double precision"
        )
        why = advice(solutions, progress, self._cure, self.get_params(deep=False))
        warnings.warn(
            f"{type(self).__name__} stopped at a relative duality gap of {self.gap_:.2g},"
            f" {missed}: {why}",
            ConvergenceWarning,
            stacklevel=outside(),
        )

    def _store_support(
        self, X: AnyRows, rows: Rows, dual: Floats, solutions: Sequence[Solution]
    ) -> None:
        """Store the support vectors, their coefficients, and the weights of a linear model."""
        self.support_ = rows
        self._weights = self._local = self._shared = None
        self._fit_rows: Matrix | RowBlocks | None = None
        self._support_vectors: Matrix | None = None
        if all(solution.weights is not None for solution in solutions):
            weights = [np.atleast_2d(one.weights) for one in solutions]  # type: ignore[arg-type]
            self._weights = weights[0] if len(weights) == 1 else np.vstack(weights)
        if is_remote(X):
            self._support_vectors = X[rows].load()
        elif self._weights is not None:
            self._fit_rows = X  # `support_vectors_` looks them up here
        elif self._kernel.is_precomputed:
            self._support_vectors = np.empty((0, 0))
        else:
            known = self._early.rows(rows) if self._early is not None else None
            self._support_vectors = sample_rows(X, rows) if known is None else known
        self.dual_coef_ = like(X, dual)
        precise = any(solution.precision == "float64" for solution in solutions)
        self._precision = "float64" if precise else "float32"
        self._n_rows = X.shape[0]

    def _store_parts(
        self,
        rows: Rows,
        label: Rows,
        known: Floats,
        shared: Floats | None,
        solutions: Sequence[Solution],
    ) -> None:
        """Store the models of parts; `label` is the part of each support vector.

        `rows` are the rows of X behind the rows of the problems; the `known` decision values have a
        row per part and a column per output. `shared` coefficients are laid out as `dual_coef_`;
        the model of a problem that is solved as a whole has no others.
        """
        divided = next(solution for solution in solutions if solution.parts is not None)
        places, combine = divided.parts.places, divided.combine
        n_parts = len(known)
        order = np.argsort(label, kind="stable")
        ends = np.cumsum(np.bincount(label, minlength=n_parts))
        self._part_support = np.split(order, ends[:-1])
        levels, own = [], []
        for solution in solutions:
            is_whole = solution.parts is None
            levels.append(solution.intercept if is_whole else solution.level)
            own.append(np.zeros(n_parts) if is_whole else solution.intercept)
        intercepts = np.concatenate([one.reshape(n_parts, -1) for one in own], axis=1)
        self.intercept_ = np.zeros(intercepts.shape[1]) + np.asarray(levels, dtype=np.float64)
        if combine == "sum":  # the sum of all parts is one expansion
            self.intercept_ += intercepts.sum(axis=0)
            return
        if shared is not None:
            self._shared = shared
            knows_all = [one.parts is None or one.shared is not None for one in solutions]
            known = np.where(knows_all, 0.0, known)
        if combine == "committee":
            points = [self.support_vectors_[_some(own)] for own in self._part_support]
            C = float(np.abs(self._dual).max(initial=0.0)) or 1.0
            offset = 1.0 if intercepts.any() else 0.0
            self._local = Committee(points, 1.0 / C, self._kernel, offset, intercepts)
        else:
            if self._kernel.is_precomputed:  # its points are row numbers
                places = replace(places, points=rows[places.points])
            self._local = LocalModels(partial(nearest, places), intercepts, known)

    def _count_rounds(self, solutions: Sequence[Solution]) -> int | NDArray[np.int32]:
        """Rounds of the solver."""
        return sum(int(solution.n_iter) for solution in solutions)

    @property
    def early_(self) -> KernelEstimator:
        """The latest model before the end of the fit; after it, that of parts."""
        model: KernelEstimator | None = None if self._early is None else self._early.model
        if model is None:
            raise AttributeError(f"this {type(self).__name__} has no early model")
        return model

    # --- dual variables --------------------------------------------------------------------

    @property
    def _dual(self) -> Floats:
        coef: Any = self.dual_coef_
        return np.asarray(coef.toarray() if sparse.issparse(coef) else coef, dtype=np.float64)

    def _coefficients(self) -> list[Floats]:
        """Coefficients of each output, over all support vectors."""
        return list(self._dual)

    @property
    def support_vectors_(self) -> Matrix:
        """The support vectors; a linear model looks them up in the training rows."""
        check_is_fitted(self)
        if self._support_vectors is not None:
            return self._support_vectors
        if self._fit_rows is None or in_blocks(self._fit_rows):
            raise AttributeError(
                "this linear model was trained on rows outside memory and has no copy of its"
                " support vectors; they are the rows support_ of the training data"
            )
        vectors: Matrix = self._fit_rows[self.support_]
        return vectors

    @property
    def _holds_rows(self) -> bool:
        """Whether the support vectors are in memory."""
        if self._support_vectors is not None:
            return True
        return self._fit_rows is not None and not in_blocks(self._fit_rows)

    @property
    def coef_(self) -> Any:
        """Feature weights, for the linear kernel; read-only, since predictions do not read them."""
        check_is_fitted(self)
        if self._kernel.name != "linear":
            raise AttributeError("coef_ is only available for the linear kernel")
        if self._local is not None:
            raise AttributeError("a model of parts has no coef_: each part has its own weights")
        coef = self._weights
        if coef is None:
            rows = np.array(self._coefficients())
            coef = safe_sparse_dot(like(self.support_vectors_, rows), self.support_vectors_)
        if is_csr(coef):
            coef.data.flags.writeable = False
        else:
            coef = coef.view()
            coef.flags.writeable = False
        return coef

    def __sklearn_clone__(self) -> Any:
        """Clone the parameters except the engine: clones share a connection to workers."""
        parameters = {
            name: value if name == "engine" else clone(value, safe=False)
            for name, value in self.get_params(deep=False).items()
        }
        copied = type(self)(**parameters)
        if hasattr(self, "_metadata_request"):
            copied._metadata_request = copy.deepcopy(self._metadata_request)
        if hasattr(self, "_sklearn_output_config"):
            copied._sklearn_output_config = copy.deepcopy(self._sklearn_output_config)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        """State for pickle: of the training rows only the support vectors are kept."""
        state = without_draft(super().__getstate__())
        if "engine" in state:
            state = {**state, "engine": portable(state["engine"])}
        if state.get("_fit_rows") is not None:
            if self._holds_rows and not is_mapped(self._fit_rows):
                state = {**state, "_support_vectors": self.support_vectors_}
            state = {**state, "_fit_rows": None}
        return state

    def _has_rows(self, X: AnyRows) -> bool:
        """Whether X can be the training rows."""
        if X.shape[0] != self._n_rows:
            return False
        if self._kernel.is_precomputed or in_blocks(X) or not self._holds_rows:
            return True
        if X.dtype == object:  # rows for a callable kernel, which may not be comparable
            return True
        different: Any = loaded(X[self.support_]) != self.support_vectors_
        return not (different.nnz if sparse.issparse(different) else np.any(different))

    def _whole_gap(self, problems: Sequence[BaseProblem], betas: list[Floats]) -> float:
        """Largest gap of these dual variables as solutions of the whole problems."""
        with Progress(self.tol) as progress:
            found = certify(problems, self._settings(progress), betas)
            return max(solution.gap for solution in found)

    def _gap_of_landmarks(
        self,
        problem: BaseProblem,
        beta: Floats,
        scores: Floats,
        b: float | Floats,
        point: Floats,
    ) -> float:
        """Gap of a landmark model for the whole problem, with the dual point of the fit.

        The model's own coefficients are not a feasible dual point.
        """
        primal = problem.terms(np.zeros(problem.shape), scores, b)[0]
        primal += 0.5 * float((beta * scores).sum())
        with Progress(self.tol) as progress:
            dual = certify([problem], self._settings(progress), [point])[0].dual
        return (primal + dual) / max(abs(primal), abs(dual), 1e-300)

    # --- prediction, saving, reports -------------------------------------------------------

    def _scores(self, X: AnyRows, precision: str) -> Floats:
        """Decision values, one column per output, without the intercepts `intercept_`."""
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self._scores_in(X, precision)
            if not np.isfinite(scores).all() and precision == "float32":
                scores = self._scores_in(X, "float64")
        bad = ~np.isfinite(scores).all(axis=1)
        if bad.any() and self._local is None:  # parts score missing classes with -inf
            raise ValueError(
                f"the decision values of {int(bad.sum())} of {len(scores)} rows overflow double"
                f" precision, the first in row {int(np.argmax(bad))}: its entries are too large for"
                " this model; scale the rows like the training rows"
            )
        return scores

    def _scores_in(self, X: AnyRows, precision: str) -> Floats:
        if self._weights is not None:
            return LinearModel(self._weights).scores(X, thread_count(self.n_jobs))
        found = [self._expansion(block, precision) for _, block in blocks_of(X)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _expansion(self, X: Matrix, precision: str) -> Floats:
        """Scores by sums over support vectors: all of them, or those of one part."""
        dual, shared = self._dual, self._shared
        if self._local is None:
            return self._sums(dual, X, precision, slice(None))
        own = dual if shared is None else dual - shared

        def expand(rows: Matrix, part: int) -> Floats:
            return self._sums(own, rows, precision, self._part_support[part])

        scores = self._local.scores(X, thread_count(self.n_jobs), expand)
        if shared is not None:
            scores += self._sums(shared, X, precision, slice(None))
        return scores

    def _sums(self, dual: Floats, X: Matrix, precision: str, used: Rows | slice) -> Floats:
        """Sums over some of the support vectors, one column per output.

        `dual` has the coefficients of all of them, laid out as `dual_coef_`.
        """
        return self._expand(X, used, dual[:, used].T, precision)

    def _expand(self, X: Matrix, used: Rows | slice, coef: Floats, precision: str) -> Floats:
        """Scores sum_j coef_j k(x, support vector j), one column per column of coef."""
        if self._context is not None:
            known = self._context.sums(X, self.support_[used], coef)
            if known is not None:
                return known
        points = self.support_ if self._kernel.is_precomputed else self._support_vectors
        points = (self.support_vectors_ if points is None else points)[used]
        nothing = np.zeros(coef.shape[1])
        model = Expansion(points, coef, self._kernel, nothing, precision)
        # only Python kernels need a budget, and computing it takes longer than predicting a row
        budget = parse_bytes(self.memory_limit) if self._kernel.is_callable else 1 << 30
        device = card_of(self.engine, self.memory_limit)
        scores = model.scores(X, thread_count(self.n_jobs), budget, device=device)
        if precision == "float32" and not np.any(self.intercept_):
            # far from all support vectors: what decides is too small for single precision
            lost = np.flatnonzero(
                np.abs(scores).max(axis=1) < _FAINT * np.abs(coef).max(initial=0.0)
            )
            if len(lost):
                exact = replace(model, precision="float64")
                scores[lost] = exact.scores(X[lost], thread_count(self.n_jobs), device=device)
        return scores

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a file that :func:`margrave.load` reads.

        The file contains numbers and names, no code. It is written completely or not at all: after
        an error an existing file is unchanged. `early_` is not included; save it separately.

        Parameters
        ----------
        path : path-like
            The file to write; an existing one is replaced.
        """
        check_is_fitted(self)
        from margrave.estimators._files import save  # which imports all estimators

        save(self, path)

    def report(
        self,
        X: MatrixLike,
        y: VectorLike | None = None,
        sample_weight: VectorLike | None = None,
    ) -> Report:
        """Make an HTML report that shows what the model has learned and how far it can be trusted.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
            Rows, preferably not those of the fit; kernel values with the training rows when
            `kernel="precomputed"`.
        y : array-like of shape (n_samples,)
            Labels or targets; not needed for :class:`OneClassSVM`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weight of each row in the figures.

        Returns
        -------
        report : Report
            The page as a string of HTML, with a method `save(path)`; notebooks display it.
        """
        return make_report(self, X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.sparse = self.kernel != "precomputed"
        return tags


def _interrupted(solutions: Sequence[Solution], progress: Progress) -> bool:
    """Whether Ctrl-C has ended the fit."""
    return progress.stop_reason == "interrupted" or any(
        one.stop_reason == "interrupted" for one in solutions
    )


def _interrupted_solutions(
    problems: Sequence[BaseProblem], settings: Settings, can_solve: bool
) -> list[Solution] | None:
    """What to return after Ctrl-C outside the compiled code; None for nothing.

    These are the latest solutions that were shown or, where `can_solve`, the point at which the
    working set starts.
    """
    progress = settings.progress
    progress.interrupt()
    shown = progress.latest or progress.early
    if shown is not None:
        return list(shown)
    return WorkingSet().solve(list(problems), settings) if can_solve else None


def _reaches_goal(solution: Solution) -> bool:
    """Whether a model of parts has the gap that its parts were to reach."""
    return solution.goal is None or solution.gap <= solution.goal


def shared_variables(solutions: Sequence[Solution]) -> list[Floats] | None:
    """Variables with which all parts predict: all of a problem that is solved as a whole.

    None if there are no such variables, or no parts.
    """
    own = [one.shared if one.parts is not None else one.beta for one in solutions]
    is_divided = any(one.parts is not None for one in solutions)
    if not is_divided or all(found is None for found in own):
        return None
    return [
        np.zeros_like(one.beta) if found is None else found
        for one, found in zip(solutions, own, strict=True)
    ]


def _some(rows: Rows) -> Rows:
    """At most `_MOST_OF_COMMITTEE` of the rows, evenly spaced."""
    if len(rows) <= _MOST_OF_COMMITTEE:
        return rows
    return rows[np.linspace(0, len(rows) - 1, _MOST_OF_COMMITTEE).astype(np.intp)]


def like(X: AnyRows, values: Floats) -> Any:
    """Values in a matrix of the kind of X: sparse if that is."""
    kind: Any = type(X)
    return kind(values) if is_csr(X) else values


def relative_gap(
    problem: BaseProblem,
    beta: Floats,
    scores: Floats,
    b: float | Floats,
    weights: Floats | None,
    threads: int,
) -> float:
    """Upper bound of (P + D) / max(|P|, |D|) at the point (beta, b) with scores f = K beta.

    For a linear model with its own `weights` w, f = X w and P is computed from w. Infinite if
    double precision is not sufficient, or if beta'K beta < 0: then the kernel is not positive
    semidefinite and nothing can be certified.
    """
    unknown = float("nan")
    figures = (unknown, unknown, unknown, False, 0, "float64", "")
    point = Solution(beta, b, scores, *figures, weights=weights)
    found = certificate(problem, point, threads)
    scale = max(abs(found.objective), abs(found.dual), problem.least_scale)
    definite = weights is not None or problem.data.is_definite(beta, scores, scale)
    return found.gap if definite else float("inf")
