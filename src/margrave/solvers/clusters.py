"""A start from clusters: solve where the kernel is nearly block diagonal, then forget the blocks.

    for k = many .. few clusters:   beta_c = argmin of the problem on cluster c alone, from beta_c

Rows of different clusters hardly see each other through a kernel that falls with the distance, so
the clusters' solutions together are close to the whole problem's (Hsieh, Si, Dhillon, ICML 2014).
A cluster is a box-constrained problem without a free intercept: an equality constraint per cluster
would keep its sum for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from margrave import _core
from margrave.kernels import core_rows
from margrave.problem import Floats, Problem

SHIFT_INVARIANT = ("rbf", "laplacian")  # kernels that fall with the distance

_PART_SIZES = (800, 3200)  # rows per cluster, level by level
_SAMPLE = 10_000  # rows that place the centres
_LLOYD_ROUNDS = 8
_GAP = 1e-2  # of a cluster's own problem
_ROUNDS = 30  # a start need not be good: a cluster that crawls is left as it is
_STEPS_PER_ROW = 20


def cluster_start(
    problem: Problem,
    precision: str,
    floor: float,
    threads: int,
    memory: int,
    seed: int,
    seconds_left: Callable[[], float],
) -> Floats:
    """Dual variables from levels of k-means clusters."""
    rng = np.random.default_rng(seed)
    beta = np.zeros(problem.n_rows)
    box = problem
    if problem.intercept == "free":
        # without an intercept the clusters would have to build the level of real targets
        level = 0.0 if problem.loss.core().labels else float(np.median(problem.y))
        box = replace(problem, intercept=None, y=problem.y - level)
    X = problem.data.X[problem.data_rows] if problem.blocks is not None else problem.data.X

    given_up = threading.Event()  # by Ctrl-C, which only the main thread hears

    def solve(rows: NDArray[np.int64]) -> None:
        if given_up.is_set():
            return
        part = box.restrict(rows)
        kernel_rows = part.data.kernel_rows(
            precision, memory // threads, 1 << 20, 1, offset=part.offset
        )
        core = part.core(kernel_rows, beta[rows], 2048, floor)
        for _ in range(_ROUNDS):
            status, _ = core.advance(_GAP, 1, 1e18, max(0.0, min(seconds_left(), 1e18)))
            crawls = core.work[1] > _STEPS_PER_ROW * len(rows)
            if status != "running" or crawls or given_up.is_set():
                break
        beta[rows] = core.beta

    for size in _PART_SIZES:
        label = kmeans(X, max(2, len(beta) // size), rng, threads)
        order = np.argsort(label, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(label[order])) + 1)
        parts.sort(key=len, reverse=True)  # the longest first, so that nobody waits for it
        with ThreadPoolExecutor(threads) as pool:
            try:
                list(pool.map(solve, parts))
            except KeyboardInterrupt:
                given_up.set()
                raise
        if seconds_left() <= 0.0:
            break
    return beta


def kmeans(X: Any, k: int, rng: np.random.Generator, threads: int = 1) -> NDArray[np.int64]:
    """Labels of all rows from a few rounds of Lloyd's iteration on a sample."""
    n = X.shape[0]
    sample = X[np.sort(rng.choice(n, min(n, _SAMPLE), replace=False))]
    centres = sample[np.sort(rng.choice(sample.shape[0], min(k, sample.shape[0]), replace=False))]
    centres = np.asarray(centres.todense() if sparse.issparse(centres) else centres)
    for _ in range(_LLOYD_ROUNDS):
        label = nearest(sample, centres, threads)
        members = sparse.csr_array(
            (np.ones(len(label), dtype=X.dtype), (label, np.arange(len(label)))),
            shape=(len(centres), len(label)),
        )
        sums = members @ sample
        sums = np.asarray(sums.todense() if sparse.issparse(sums) else sums)
        counts = np.bincount(label, minlength=len(centres))[:, None]
        centres = np.where(counts > 0, sums / np.maximum(counts, 1), centres).astype(X.dtype)
    return nearest(X, centres, threads)


def nearest(X: Any, centres: NDArray[Any], threads: int) -> NDArray[np.int64]:
    """Number of the nearest centre of every row, some thousand rows at a time."""
    half_squares = 0.5 * (centres**2).sum(axis=1)
    products, step = _core.Kernel("linear"), max(1, (1 << 20) // len(centres))
    columns = core_rows(centres)

    def label(first: int) -> NDArray[np.int64]:
        dots = _core.tile(products, core_rows(X[first : first + step]), columns, "float32")
        labels: NDArray[np.int64] = np.argmin(half_squares - dots, axis=1)
        return labels

    # the core's own products: those of NumPy leave their threads spinning beside ours
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(label, range(0, X.shape[0], step))))
