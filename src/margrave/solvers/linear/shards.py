"""Contiguous rows for each shard, such that sums are the same on any number of workers."""

from __future__ import annotations

from typing import Any

import numpy as np

from margrave.blocks.augmented import STREAM
from margrave.engines import Engine
from margrave.problem import BaseProblem, Problem
from margrave.rows import AnyRows, boundaries, row_range
from margrave.solvers.base import Settings

_SHARDS = 8  # the same for any number of workers up to that
_LEAST_ROWS = 2 * STREAM  # of a shard


def pieces_of(
    problem: Problem, settings: Settings, engine: Engine
) -> tuple[list[slice], list[dict[str, Any]]]:
    """The rows of each shard, and what its block is made of.

    Rows that come in blocks or are with the workers of an engine stay as they are.
    """
    ranges, threads = ranges_of(problem, settings, engine)
    return ranges, [
        {
            "X": rows_at(problem, at),
            "y": problem.y[at],
            "weight": 0.5 * problem.C[at],
            "loss": problem.loss,
            "constant": problem.intercept is not None,
            "first": at.start,
            "threads": threads,
        }
        for at in ranges
    ]


def ranges_of(problem: BaseProblem, settings: Settings, engine: Engine) -> tuple[list[slice], int]:
    """Rows of each shard, and threads for its core."""
    ends = _ends(problem, _SHARDS * -(-engine.n_workers // _SHARDS))
    threads, _ = engine.share(min(engine.n_workers, len(ends)), settings.threads, settings.memory)
    return [slice(*pair) for pair in zip([0, *ends[:-1]], ends, strict=True)], threads


def _ends(problem: BaseProblem, most: int) -> list[int]:
    """Ends of the shards' rows, at whole streams of random numbers or whole `RowBlocks`."""
    n = problem.n_rows
    is_whole = n == problem.data.n_rows
    places = boundaries(problem.data.X if is_whole else problem.y, STREAM)
    count = max(1, min(most, n // _LEAST_ROWS, len(places)))
    wanted = np.linspace(0, n, count + 1)[1:]
    chosen = places[np.minimum(np.searchsorted(places, wanted), len(places) - 1)]
    return [int(end) for end in np.unique(chosen) if end > 0]


def rows_at(problem: BaseProblem, at: slice) -> AnyRows:
    """Some contiguous rows of a problem, without a copy where they are contiguous in the data."""
    X: AnyRows = problem.data.X
    if problem.n_rows == problem.data.n_rows:
        return row_range(X, at)
    some: AnyRows = problem.data.X[problem.data_rows[at]]
    return some
