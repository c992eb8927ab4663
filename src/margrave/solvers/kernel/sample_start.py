"""A start from the model of a sample, for problems that clusters do not suit.

    solve the problem on a sample, with C scaled up to the penalty of all rows
    score all rows with that model;   beta = what is optimal for these scores

For smooth losses, nearly all of whose variables stay inside their bounds, that is
beta_i = -loss_i'(f_i). For one-class problems it is beta_i = C_i for the lowest rows, up to the
sum: at the optimum the rows outside are at their bound and nearly all others at zero. Hulls do
the same for each class, unless the sample's own point is feasible, which is then better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.models import Expansion
from margrave.problem import Floats, Problem, RowNumbers
from margrave.rounds import Watch, run_rounds
from margrave.solvers.kernel.descent import Kernels

_SMALLEST_SAMPLE, _LARGEST_SAMPLE = 2000, 5000
_SHARE = 5  # rows per row of the sample
_GAP = 1e-2
_ROUNDS = 100


@dataclass(frozen=True)
class SampleStart:
    """Dual variables near the optimum, and the rows that were needed for them.

    `sample` are rows that were solved, `model` those of them whose model has scored all rows.
    """

    beta: Floats
    sample: RowNumbers
    model: RowNumbers


def has_sample_start(problem: Problem, kernels: Kernels) -> bool:
    """Whether a start from a sample is faster than none."""
    fits = problem.total > 0.0 or problem.loss.is_dense
    return fits and problem.n_rows >= 2 * _SMALLEST_SAMPLE and problem.data.is_native


def start_from_sample(
    problem: Problem, kernels: Kernels, precision: str, floor: float
) -> Floats | None:
    """Variables from a sample; None where none is needed, or if the time is over."""
    if not has_sample_start(problem, kernels):
        return None
    found = sample_start(problem, kernels, precision, floor)
    return None if found is None else found.beta


def sample_start(
    problem: Problem, kernels: Kernels, precision: str, floor: float
) -> SampleStart | None:
    """Start from a sample; None if the time is over."""
    sides = [problem.y > 0, problem.y < 0] if problem.is_hull else [np.full(problem.n_rows, True)]
    rows = _sample(sides, np.random.default_rng(kernels.seed))
    part = problem.restrict(rows)
    C = part.C.copy()
    for side in sides:
        C[side[rows]] *= problem.C[side].sum() / part.C[side[rows]].sum()
    part = replace(part, C=C)
    own = part.data.kernel_rows(
        precision, kernels.memory // 4, kernels.buffer, kernels.threads, part.offset
    )
    core = part.core(own, None, kernels.size, floor)
    watch = Watch(kernels.seconds_left, lambda _: core.work[0] >= _ROUNDS, rounds=lambda: _ROUNDS)
    outcome = run_rounds(core, _GAP, watch, certify=False)
    if core.interrupted:
        raise KeyboardInterrupt
    if outcome.status == "stopped":
        return None
    found = np.zeros(problem.n_rows)
    beta, bias = core.beta, float(core.figures()["intercept"])
    if problem.is_hull and np.all(np.abs(beta) <= problem.C[rows]):
        found[rows] = beta
        return SampleStart(found, rows, rows[:0])
    if problem.intercept == "regularized":
        bias = float(beta.sum())
    model = Expansion(part.data.X, beta[:, None], part.data.kernel, np.zeros(1), precision)
    try:
        f = model.scores(
            problem.data.X[problem.data_rows],
            kernels.threads,
            left=kernels.seconds_left,
            device=problem.data.device,
        )[:, 0]
    except _core.Stopped:
        return None
    f = f + bias
    if problem.total == 0.0:
        slope = problem.loss.core(floor).slope(problem.y, problem.C, f)
        return SampleStart(-slope, rows, rows[np.flatnonzero(beta)])
    f = f if problem.shift is None else f + problem.shift
    for side in sides:
        order = np.flatnonzero(side)
        order = order[np.argsort((problem.y * f)[order], kind="stable")]
        filled = np.minimum(np.cumsum(problem.C[order]), problem.total)
        found[order] = np.diff(
            filled, prepend=0.0
        )  # the lowest at their bound, the last one partly
    return SampleStart(problem.y * found, rows, rows[np.flatnonzero(beta)])


def _sample(sides: list[NDArray[np.bool_]], rng: np.random.Generator) -> RowNumbers:
    """Random rows of each class; all rows of a small class."""
    n = len(sides[0])
    size = min(max(n // _SHARE, _SMALLEST_SAMPLE), _LARGEST_SAMPLE)
    chosen = []
    for side in sides:
        members = np.flatnonzero(side)
        own = max(size * len(members) // n, size // 4)
        chosen.append(rng.choice(members, min(len(members), own), replace=False))
    return np.sort(np.concatenate(chosen))
