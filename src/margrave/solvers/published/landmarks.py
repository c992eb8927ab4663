"""Landmarks: a few rows of a linear problem that represent all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from margrave.blocks.passes import Passes
from margrave.problem import Floats, Problem

Rows = NDArray[np.int64]

# fractions of the longest row's square
_NOTHING_NEW = 1e-10  # squared residual of a row in the span of the others
_SAME = 1e-14  # squared distance below which rows are equal


def compressed(problem: Problem, count: int, passes: Passes) -> Problem:
    """Each row replaced by its nearest landmark, equal points with the sum of their weights.

    Real targets of a landmark's rows are replaced by their mean.
    """
    chosen, nearest = landmarks(problem, min(count, problem.n_rows), passes)
    is_label = problem.loss.core().labels
    keys = np.stack([nearest, problem.y if is_label else np.zeros(problem.n_rows)], axis=1)
    points, member = np.unique(keys, axis=0, return_inverse=True)
    member = member.ravel()
    C: Floats = np.bincount(member, problem.C).astype(np.float64)
    y = points[:, 1] if is_label else np.bincount(member, problem.C * problem.y) / C
    few = problem.restrict(chosen[points[:, 0].astype(np.int64)])
    return replace(few, y=np.ascontiguousarray(y), C=C)


def landmarks(problem: Problem, count: int, passes: Passes) -> tuple[Rows, Rows]:
    """Representative rows: their numbers, and which of them each row is nearest to.

    Chosen one by one where the determinant of their kernel matrix grows most: the row of which the
    chosen ones explain least (pivoted Cholesky; with the linear kernel, orthogonalisation). When
    they span all rows, the next is the one that is farthest from its nearest landmark.
    """
    X, rows = problem.data.X, problem.data_rows
    squares = passes.rows().squares()
    unexplained, apart = squares.copy(), np.full(len(rows), np.inf)
    longest = float(squares.max())
    basis = np.empty((0, X.shape[1]))
    chosen: list[int] = []
    nearest = np.zeros(len(rows), dtype=np.int64)
    while len(chosen) < count:
        pivot = int(unexplained.argmax())
        is_new = unexplained[pivot] > _NOTHING_NEW * longest
        if not is_new:
            pivot = int(apart.argmax())
            if chosen and apart[pivot] <= _SAME * longest:  # every row is a landmark or equals one
                break
        row = X[rows[[pivot]]]
        x = np.asarray(row.toarray() if sparse.issparse(row) else row, dtype=np.float64)[0]
        q = x - basis.T @ (basis @ x)
        q = q / np.linalg.norm(q) if is_new else np.zeros_like(x)
        along, products = passes.scores(np.stack([q, x]))
        if is_new:
            unexplained = np.maximum(unexplained - along**2, 0.0)
            unexplained[pivot] = 0.0
            basis = np.vstack([basis, q])
        distance = np.maximum(squares + squares[pivot] - 2.0 * products, 0.0)
        distance[pivot] = 0.0
        nearest[distance < apart] = len(chosen)
        apart = np.minimum(apart, distance)
        chosen.append(pivot)
    return np.array(chosen), nearest
