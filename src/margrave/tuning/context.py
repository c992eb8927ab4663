"""What a fit shares with the others of a search: kernel values, a start, and test scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from margrave.problem import BaseProblem, Data, Floats, Problem, is_single
from margrave.progress import Progress
from margrave.rows import AnyRows, Matrix, is_csr
from margrave.solvers import Solution
from margrave.tuning.folds import Layout, Rows, SharedData, Store, same_rows
from margrave.tuning.samples import Sample
from margrave.tuning.starts import Start


class SplitContext:
    """The shared resources of one fit (see `margrave.estimators._context`).

    Parameters
    ----------
    sample : Sample
        The rows of the fit, in the order of the split's layout if it has one.
    store : Store or None
        If None, nothing is shared, and the fit can only be stopped.
    start : Start or None
        Solution to start from.
    running : callable
        Called with the progress of the fit.
    rough : bool
        Whether the fit may end by the running estimate of the gap, without a certificate.
    """

    def __init__(
        self,
        sample: Sample,
        store: Store | None,
        start: Start | None,
        running: Callable[[Progress], None],
        rough: bool,
    ) -> None:
        self.sample, self.store = sample, store
        self.split, self.layout = sample.split, sample.layout
        self.start, self.running, self.rough = start, running, rough
        self.problems: Sequence[BaseProblem] = []
        self.data: SharedData | None = None
        self.found: Start | None = None

    def watch(self, progress: Progress) -> None:
        """Pass on the progress, by which the fit can be stopped."""
        self.running(progress)

    def share(
        self, problems: Sequence[BaseProblem], rows: Rows
    ) -> tuple[Sequence[BaseProblem], list[Floats] | None]:
        """Return the same problems on data with cached kernel values, and their starts."""
        self.problems = problems
        if self.store is None:
            return problems, None
        self.problems = (
            self._in_layout(rows, self.store) or self._alone(rows, self.store) or problems
        )
        return (self.problems, None) if self.start is None else self.start.begin(self.problems)

    def keep(self, solutions: Sequence[Solution]) -> None:
        """Store the solution as the start of the next fit."""
        if self.store is not None:
            self.found = Start.of(self.problems, solutions)

    def sums(self, X: AnyRows, support: Rows, coef: Floats) -> Floats | None:
        """Scores of the test rows from cached kernel values; None for any other rows."""
        if self.data is None or self.layout is None or not self.data.made:
            return None
        ((_, offset, _), kernel_rows) = next(iter(self.data.made.items()))
        if kernel_rows.cached_bytes < self.data.n_rows**2:  # less than a quarter is cached
            return None
        if not same_rows(X, self.sample.final_test):
            return None
        queries = self.layout.trained(self.split)[support]
        columns = [
            kernel_rows.block_sums(queries, np.ascontiguousarray(coef), int(block))
            for block in self.layout.blocks(self.split)
        ]
        tested = self.layout.order[self.layout.tested_by[self.layout.block_of] == self.split]
        place = np.empty(int(tested.max()) + 1, dtype=np.intp)
        place[tested] = np.arange(len(tested))
        sums: Floats = np.concatenate(columns, axis=1).T[place[self.sample.test]]
        sums -= offset * coef.sum(axis=0)
        return sums

    def _in_layout(self, rows: Rows, store: Store) -> list[BaseProblem] | None:
        """Return the problems on the data of all folds; None if they are not whole blocks of it."""
        data = self.problems[0].data
        if self.layout is None or not _has_values(data) or len(self.layout.order) > store.largest:
            return None
        layout, places = self.layout, self.layout.trained(self.split)[rows]
        laid: list[tuple[Problem, tuple[int, ...]]] = []
        for problem in self.problems:
            if not is_single(problem):
                return None
            blocks = _blocks(layout, places[problem.data_rows])
            if blocks is None:
                return None
            laid.append((problem, blocks))

        def make() -> SharedData | None:
            X = store.rows(layout)
            if X is None or X.dtype != data.X.dtype or not _same_kind(X, data.X):
                return None
            return SharedData(X, data.kernel, layout.starts)

        self.data = store.data((id(layout), data.kernel), make)
        if self.data is None:
            return None
        return [replace(problem, data=self.data, blocks=blocks) for problem, blocks in laid]

    def _alone(self, rows: Rows, store: Store) -> list[BaseProblem] | None:
        """Return the problems on data shared by the fits on this split."""
        data = self.problems[0].data
        if not _has_values(data) or data.n_rows > store.largest:
            return None
        key = (self.sample.group, self.split, data.kernel, rows.tobytes(), data.starts.tobytes())

        def make() -> SharedData:
            return SharedData(data.X, data.kernel, data.starts)

        shared = store.data(key, make)
        if shared is None or not same_rows(shared.X, data.X):  # steps of a pipeline may be random
            return None
        return [problem.with_data(shared) for problem in self.problems]


def _has_values(data: Data) -> bool:
    """Whether caching kernel values helps: not for linear and precomputed kernels."""
    return not (data.is_linear or data.kernel.is_precomputed)


def _blocks(layout: Layout, places: Rows) -> tuple[int, ...] | None:
    """The blocks whose concatenation is exactly these positions, or None."""
    of = layout.block_of[places]
    blocks = of[np.flatnonzero(np.diff(of, prepend=-1))]
    whole = [np.arange(layout.starts[b], layout.starts[b + 1]) for b in blocks]
    if not np.array_equal(np.concatenate(whole), places):
        return None
    return tuple(int(b) for b in blocks)


def _same_kind(A: Matrix, B: Matrix) -> bool:
    return is_csr(A) == is_csr(B) and A.shape[1] == B.shape[1]
