"""From arrays to the library's own objects: the one place where the tests know their signatures."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from margrave import _core
from margrave.kernels import Kernel
from margrave.losses import Loss
from margrave.problem import Data, Problem
from margrave.progress import Progress
from margrave.solvers import Settings, WorkingSet
from tests.cases import LAYOUTS


def rows(X, layout="C"):
    """The compiled view of X, laid out in memory as asked."""
    X = LAYOUTS[layout](X)
    if sparse.issparse(X):
        return _core.Rows.csr(X.data, X.indices, X.indptr.astype(np.int64), X.shape[1])
    return _core.Rows.dense(X)


def core_loss(case):
    return _core.Loss(case[0], **case[1])


def core_kernel(case, offset=0.0):
    return _core.Kernel(case[0], **case[1], offset=offset)


def problem(X, y, C, loss, kernel, intercept, total=0.0):
    """One problem on all rows of X; `kernel` is a case, "precomputed" or a callable."""
    name, parameters = (kernel, {}) if callable(kernel) or isinstance(kernel, str) else kernel
    n = X.shape[0]
    data = Data(X, Kernel(name, **parameters), np.array([0, n], dtype=np.int64))
    y = np.asarray(y, dtype=np.float64)
    C = np.ascontiguousarray(np.broadcast_to(np.asarray(C, dtype=np.float64), (n,)))
    return Problem(data, None, y, C, Loss(loss[0], **loss[1]), intercept, total)


def run(
    problem,
    tol=1e-10,
    size=None,
    memory=1 << 26,
    threads=1,
    start=None,
    max_iter=-1,
    time_limit=None,
    callbacks=None,
    solver=None,
):
    """Solve one problem, by default with the working-set solver; (solution, progress)."""
    with Progress(tol, max_iter, time_limit, callbacks, verbose=0, label="test") as progress:
        settings = Settings(
            tol=tol, memory_limit=memory, threads=threads, seed=0, progress=progress
        )
        starts = None if start is None else [np.array(start, dtype=np.float64)]
        solver = solver or WorkingSet(size=size)
        solution, *rest = solver.solve([problem], settings, starts)
    assert not rest
    return solution, progress


def solve(X, y, C, loss, kernel, intercept, **settings):
    return run(problem(X, y, C, loss, kernel, intercept), **settings)[0]
