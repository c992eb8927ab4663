"""A start from a sample, for one-class machines with many rows.

    solve the problem on some rows;   score all rows;   beta_i = C_i for the lowest, up to the sum

At the optimum the variables of the rows outside are at their bound and nearly all others are zero,
and which rows are outside a sample tells well enough.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from margrave.models import Expansion
from margrave.problem import Floats, Problem
from margrave.solvers.descent import Kernels

_SAMPLE = 2000
_GAP = 1e-2
_ROUNDS = 100


def sample_start(problem: Problem, kernels: Kernels, precision: str, floor: float) -> Floats | None:
    """Dual variables of the right sum; None where the rows are as few as a sample."""
    n = problem.n_rows
    if n < 2 * _SAMPLE or not problem.data.is_native:
        return None
    rows = np.sort(np.random.default_rng(kernels.seed).choice(n, _SAMPLE, replace=False))
    part = problem.restrict(rows)
    part = replace(part, total=problem.total * float(part.C.sum() / problem.C.sum()))
    own = part.data.kernel_rows(precision, kernels.memory // 4, 1 << 20, kernels.threads)
    core = part.core(own, None, kernels.size, floor)
    core.advance(_GAP, _ROUNDS, 1e18, 1e18)
    model = Expansion(part.data.X, core.beta[:, None], part.data.kernel, np.zeros(1), precision)
    scores = model.scores(problem.data.X[problem.data_rows], kernels.threads)[:, 0]
    order = np.argsort(scores, kind="stable")
    beta = np.zeros(n)
    # the lowest rows in full, the last of them in part
    beta[order] = np.diff(np.minimum(np.cumsum(problem.C[order]), problem.total), prepend=0.0)
    return beta
