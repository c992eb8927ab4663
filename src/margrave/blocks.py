"""Blocks: what one shard of the data holds and can do, wherever an engine has put it.

A block keeps what is large (its rows, and kernel values or numbers per row) and answers with what
is small (numbers per row of its own, or per feature). Engines call its methods by name, with arrays
and numbers.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave import _core
from margrave.kernels import core_rows
from margrave.losses import Loss
from margrave.problem import Data, JointProblem, Problem

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

_LARGEST_SET = 2048  # variables per round
_BUFFER = 1 << 20  # bytes for kernel rows on their way
_FLOAT32_TOL = 1e-4  # relative gap that single-precision kernel values can certify
_FLOOR = 1e-6  # of the tolerance: logistic variables below that share of C are as good as zero
# a start need not be good: a part that crawls is left as it is
_ROUNDS = 30
_STEPS_PER_ROW = 20
_MOST_STEPS_PER_ROW = 100_000  # of what is kept: more is a descent without end


@dataclass(frozen=True)
class Local:
    """What one problem has come to on the rows of one part, which knew of no others.

    ``scores`` are those of the part's own rows and hold no intercept.
    """

    beta: Floats
    scores: Floats
    intercept: Any
    objective: float
    dual: float
    kernel_values: int
    definite: bool


class DualBlock:
    """Some rows, and the problems that are to be solved on them alone.

    Parameters
    ----------
    problems : list of Problem and JointProblem
        On the same data: these rows. A joint problem's intercepts are not free.
    starts : list of float64 arrays and None
        Dual variables to begin with; None for zero.
    memory : int
        Bytes for the working set's kernel block and kernel rows.
    threads : int

    Examples
    --------
    >>> from margrave.kernels import Kernel
    >>> from margrave.problem import Data
    >>> data = Data(np.array([[-1.0], [1.0]]), Kernel("linear"), np.array([0, 2]))
    >>> problem = Problem(data, None, np.array([-1.0, 1.0]), np.ones(2), Loss("hinge"), None)
    >>> block = DualBlock([problem], [None], 1 << 20, 1)
    >>> block.solve(1e-6, True, time.time() + 10.0)
    >>> block.found()[0].scores.round(6).tolist()
    [-1.0, 1.0]
    """

    def __init__(
        self,
        problems: Sequence[Problem | JointProblem],
        starts: Sequence[Floats | None],
        memory: int,
        threads: int,
    ) -> None:
        self.problems, self.starts = problems, starts
        self.memory, self.threads = memory, threads
        self.solved: list[Local | None] = [None] * len(problems)
        self.cancelled = threading.Event()

    def cancel(self) -> None:
        """End the work of another thread: nobody waits for it any longer."""
        self.cancelled.set()

    def solve(self, tol: float, thorough: bool, deadline: float) -> None:
        """Solve the problems to the relative gap `tol`, each from its start.

        A start for others is left to be as good as some rounds make it. What is to be kept is
        `thorough`: hardly limited, and certified in double precision. Ends at the `deadline`
        (seconds of ``time.time``).
        """
        rows: dict[tuple[str, float], _core.KernelRows] = {}  # shared by the problems
        for number, (problem, start) in enumerate(zip(self.problems, self.starts, strict=True)):
            if self.cancelled.is_set() or time.time() >= deadline:
                return
            precision = precision_for(tol, problem.data)
            core = self._core(problem, start, tol, precision, rows)
            begun, figures = self._run(core, len(problem.y), tol, thorough, deadline)
            if begun or start is None:
                self.solved[number] = _local(problem, core, figures)
            if thorough and precision == "float32" and figures["gap"] > tol and begun:
                # single precision is exhausted
                core = self._core(problem, core.beta, tol, "float64", rows)
                begun, figures = self._run(core, len(problem.y), tol, thorough, deadline)
                if begun:
                    self.solved[number] = _local(problem, core, figures)
            if core.interrupted:
                raise KeyboardInterrupt

    def found(self) -> list[Local | None]:
        """Return the solutions; zero, or None in the place of a start, where there was no time."""
        return [
            self._zero(problem) if solved is None and start is None else solved
            for problem, start, solved in zip(self.problems, self.starts, self.solved, strict=True)
        ]

    def _run(
        self, core: Any, n_rows: int, tol: float, thorough: bool, deadline: float
    ) -> tuple[bool, dict[str, Any]]:
        """Rounds until the gap is reached; whether there was time for the start, and figures."""
        target, crawls = tol, False
        while True:
            left = max(0.0, deadline - time.time())
            status, _ = core.advance(target, 1, 1e18, left)
            rounds, steps, _ = core.work
            if thorough:
                crawls = steps > _MOST_STEPS_PER_ROW * n_rows
            else:
                crawls = rounds >= _ROUNDS or steps > _STEPS_PER_ROW * n_rows
            if status == "running" and not (crawls or self.cancelled.is_set()):
                continue
            figures = core.certify(left) if thorough and status != "stopped" else None
            missed = figures is not None and figures["gap"] > tol and status == "converged"
            if missed and target > 0.02 * tol:  # the running figures were better than the truth
                target *= 0.7
                continue
            return status != "stopped" or rounds > 0, figures or core.figures()

    def _zero(self, problem: Problem | JointProblem) -> Local:
        core = self._core(problem, None, 1.0, "float64", {})
        return _local(problem, core, core.figures())

    def _core(
        self,
        problem: Problem | JointProblem,
        start: Floats | None,
        tol: float,
        precision: str,
        rows: dict[tuple[str, float], _core.KernelRows],
    ) -> Any:
        size = max(2, min(_LARGEST_SET, math.isqrt(self.memory // 32)))
        left = max(0, self.memory - 8 * min(size, len(problem.y)) ** 2 - _BUFFER)
        key = (precision, problem.offset)
        if key not in rows:
            rows.clear()
            cache = not isinstance(problem, JointProblem)
            rows[key] = problem.data.kernel_rows(
                key[0], left, _BUFFER, self.threads, problem.offset, cache
            )
        return problem.core(rows[key], start, size, _FLOOR * tol)


def _local(problem: Problem | JointProblem, core: Any, figures: dict[str, Any]) -> Local:
    beta, scores, intercept = core.beta, core.scores, figures["intercept"]
    if problem.intercept == "regularized":  # the core's scores hold it already
        intercept = beta.sum(axis=0)
        scores = scores - intercept
    objective, dual = float(figures["objective"]), float(figures["dual"])
    least = -1e-4 * max(abs(objective), abs(dual), problem.least_scale)
    with np.errstate(invalid="ignore"):  # a descent without end: infinite times zero
        definite = float((beta * scores).sum()) >= least  # else the kernel is not
    return Local(beta, scores, intercept, objective, dual, core.work[2], definite)


def precision_for(tol: float, data: Data) -> str:
    """Tiles that are good enough for a relative gap."""
    return "float32" if tol >= _FLOAT32_TOL and data.fits_float32 else "float64"


class GradientBlock:
    """Some rows of a linear machine with a smooth loss: gradients, and stochastic steps.

        P(z) = 1/2 |z|^2 + sum_i loss_i(x_i'z)  =  mean of  p_i(z) = 1/2 |z|^2 + n loss_i(x_i'z)

    The last entry of z is the intercept: x_i ends with a one, or with a zero if there is none.
    Every method stops after `seconds`, by ``_core.Stopped``.

    Parameters
    ----------
    X : ndarray or CSR of shape (rows, d)
    y, C : float64 arrays
        Targets and weights of these rows.
    loss : Loss
    constant : bool
        Whether x_i ends with a one.
    n_rows : int
        Rows of all blocks together.
    sampling : {"each", "draws", "single"}
        Rows that `steps` takes: each once, in a new order; as many draws with replacement; or a
        single one that has not been taken before, as long as there are any.
    beta : float64 array
        Dual variables to begin with.

    Examples
    --------
    >>> block = GradientBlock(
    ...     X=np.array([[1.0], [3.0]]), y=np.array([1.0, -1.0]), C=np.ones(2),
    ...     loss=Loss("squared_hinge"), constant=True, n_rows=2, sampling="each",
    ...     beta=np.zeros(2),
    ... )
    >>> combined, figures = block.gradient(np.zeros(2), seconds=10.0)
    >>> combined.tolist(), figures.tolist()  # X'beta for beta = (2, -2); loss, conjugate, support
    ([-4.0, 0.0], [2.0, -2.0, 2.0])
    """

    def __init__(
        self,
        X: Any,
        y: Floats,
        C: Floats,
        loss: Loss,
        constant: bool,
        n_rows: int,
        sampling: str,
        beta: Floats,
    ) -> None:
        self.y, self.C, self.loss = y, C, loss
        self.constant, self.n_rows, self.sampling = constant, n_rows, sampling
        self.team = _core.Team(1)
        self.rows = _core.LinearRows(core_rows(X), [0], [len(y)], self.team)
        self.terms = _core.RowTerms(loss.core(), y, C, self.team)
        # the core's steps take these rows for all there are: weights make up for the others
        self.share = n_rows / len(y)
        self.shared_terms = _core.RowTerms(loss.core(), y, self.share * C, self.team)
        zero = np.zeros(len(y))
        self.beta, self.scores, self.centre_scores = beta, zero, zero
        self.kept_scores, self.kept_beta = zero, zero
        self.left: Rows | None = None  # rows that a "single" sampling has not taken yet

    # --- the whole -------------------------------------------------------------------------

    def steepness(self, seconds: float) -> float:
        """Return the largest n loss_i'' |x_i|^2: one more is how fast the gradients of p_i vary."""
        with self._within(seconds):
            squares = self.rows.squares() + (1.0 if self.constant else 0.0)
        return self.n_rows * float(np.max(self.loss.steepest(self.y, self.C) * squares))

    def gradient(self, z: Floats, seconds: float) -> tuple[Floats, Floats]:
        """Return what these rows add to the gradient z - X'beta, beta_i = -loss_i'(x_i'z).

        X'beta, and the sums of losses, of conjugates h_i(beta_i), and of nonzero variables.
        """
        with self._within(seconds):
            self.scores = self._products(z)
            self.beta, _ = self.terms.respond(None, 0.0, self.scores + z[-1])
            return self._combined(self.beta), self._figures(z, self.beta)

    def start(self, seconds: float) -> Floats:
        """X'beta of the variables to begin with."""
        with self._within(seconds):
            return self._combined(self.beta)

    def judge(self, z: Floats, seconds: float) -> tuple[Floats, float]:
        """Judge z with the variables to begin with: figures as above, and the sum of gap terms."""
        with self._within(seconds):
            self.scores = self._products(z)
            gap = self.terms.gap(self.beta, self.scores, float(z[-1]))
            return self._figures(z, self.beta), gap

    def keep(self, scores: bool, beta: bool) -> None:
        """Keep the scores, the dual variables, or both, of the last point."""
        self.kept_scores = self.scores if scores else self.kept_scores
        self.kept_beta = self.beta if beta else self.kept_beta

    def kept(self) -> tuple[Floats, Floats]:
        """Return what is kept, zeros to begin with; scores are without the intercept."""
        return self.kept_scores, self.kept_beta

    # --- steps -----------------------------------------------------------------------------

    def aim(self, centre: Floats, seconds: float) -> None:
        """Get ready for steps around the centre: z0 less the gradient there."""
        with self._within(seconds):
            self.centre_scores = self._products(centre) + centre[-1]

    def steps(self, u: Floats, eta: float, seed: Rows, seconds: float) -> Floats:
        """Steps z <- z - eta (grad p_i(z) - grad p_i(z0) + grad P(z0)), with z = centre + u.

        z0 is where the last gradient was taken; u before and after.
        """
        order = self._sample(np.random.default_rng(seed))
        with self._within(seconds):
            return _core.stochastic_steps(
                self.rows,
                self.shared_terms,
                order,
                eta,
                self.centre_scores,
                -self.share * self.beta,
                self.constant,
                u,
            )

    def _sample(self, rng: np.random.Generator) -> Rows:
        n = len(self.y)
        if self.sampling == "each":
            return rng.permutation(n)
        if self.sampling == "draws":
            return rng.integers(n, size=n)
        left = rng.permutation(n) if self.left is None else self.left
        self.left = left[1:]
        return left[:1]

    # --- products with the rows ------------------------------------------------------------

    def _products(self, z: Floats) -> Floats:
        """X z without the intercept."""
        scores = np.empty(len(self.y))
        self.rows.multiply(z[None, :-1], scores[None])
        return scores

    def _combined(self, beta: Floats) -> Floats:
        """X'beta with the intercept's entry."""
        combined = np.zeros(self.rows.n_columns + 1)
        self.rows.transposed(beta[None], combined[None, :-1])
        if self.constant:
            combined[-1] = beta.sum()
        return combined

    def _figures(self, z: Floats, beta: Floats) -> Floats:
        value = self.terms.value(self.scores, float(z[-1]))
        return np.array([value, self.terms.conjugate(beta), np.count_nonzero(beta)])

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """Limit the time; Ctrl-C that reached the core is what it is everywhere else."""
        self.team.limit(seconds)
        try:
            yield
        except _core.Stopped:
            if self.team.interrupted:
                raise KeyboardInterrupt from None
            raise
