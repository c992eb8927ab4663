"""Contiguous blocks of rows for shards, such that sums are the same on any number of workers."""

from __future__ import annotations

from typing import Any

import numpy as np

from margrave.blocks.augmented import STREAM
from margrave.engines import Engine
from margrave.problem import JointProblem, Problem
from margrave.rows import RemoteRows, RowBlocks
from margrave.solvers.base import Settings

_SHARDS = 8  # the same for any number of workers up to that
_LEAST_ROWS = 2 * STREAM  # of a shard


def pieces_of(
    problem: Problem, settings: Settings, engine: Engine
) -> tuple[list[slice], list[dict[str, Any]]]:
    """Split the rows into contiguous blocks, the same for any number of workers.

    Rows that come in blocks or are with the workers of an engine stay as they are.
    """
    stretches, threads = stretches_of(problem, settings, engine)
    return stretches, [
        {
            "X": taken(problem, at),
            "y": problem.y[at],
            "weight": 0.5 * problem.C[at],
            "loss": problem.loss,
            "constant": problem.intercept is not None,
            "first": at.start,
            "threads": threads,
        }
        for at in stretches
    ]


def stretches_of(
    problem: Problem | JointProblem, settings: Settings, engine: Engine
) -> tuple[list[slice], int]:
    """Rows of each shard, and threads for its core."""
    n = problem.n_rows
    ends = _ends(problem.data.X, n, _SHARDS * -(-engine.n_workers // _SHARDS))
    threads, _ = engine.share(min(engine.n_workers, len(ends)), settings.threads, settings.memory)
    return [slice(*pair) for pair in zip([0, *ends[:-1]], ends, strict=True)], threads


def _ends(X: Any, n: int, most: int) -> list[int]:
    """Ends of the blocks of rows, at whole streams of random numbers or whole `RowBlocks`."""
    if isinstance(X, RowBlocks):
        places = np.cumsum(X.sizes)
    elif isinstance(X, RemoteRows):
        places = np.append(np.flatnonzero(np.diff(X.piece)) + 1, n)
    else:
        places = np.append(np.arange(STREAM, n, STREAM), n)
    count = max(1, min(most, n // _LEAST_ROWS, len(places)))
    wanted = np.linspace(0, n, count + 1)[1:]
    chosen = places[np.minimum(np.searchsorted(places, wanted), len(places) - 1)]
    return [int(end) for end in np.unique(chosen) if end > 0]


def taken(problem: Problem | JointProblem, at: slice) -> Any:
    """The rows of a block, without a copy where they are contiguous."""
    X = problem.data.X
    if isinstance(X, RowBlocks):
        return X.between(at.start, at.stop)
    if problem.n_rows == problem.data.n_rows:
        return X[at]
    return X[problem.data_rows[at]]
