"""What a solver returns: a dual point with its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from margrave.problem.data import Floats

StopReason = Literal["interrupted", "stochastic", "hulls", "unfinished"]


@dataclass(frozen=True)
class Solution:
    """A dual point with its certificate; ``beta`` and ``scores`` have a column per joint class.

    ``scores`` is K beta without the intercept, ``objective`` the primal value P, ``dual`` the dual
    value D, ``gap`` the relative duality gap ``(P + D) / max(|P|, |D|)``, infinite if the kernel
    is not ``definite``. ``precision`` is one that is sufficient for predictions. Solvers for the
    linear kernel also set the ``weights`` w of the features; then ``scores`` is X w.

    Where rows were solved in ``parts`` (:class:`~margrave.partitions.Parts`) independently of each
    other, the ``certificate`` is "blocks", there is an ``intercept`` per part, and ``combine`` says
    how new rows are predicted: by the model of the "nearest" part, by the "sum" of all, or by a
    "committee"; ``level`` is added to the scores of each, ``goal`` is the gap that the parts were
    to reach. Where each part was solved with all other variables fixed, these are ``shared``: all
    parts predict with them, and each with the difference of its own variables from them. Where the
    model's coefficients are not dual variables (certificate "features"), the ``dual_point`` has
    these.

    A fit that had no time left to compute its certificate has an "estimate": the gap from the
    running scores; where it had none for these either, they are NaN. ``rounding`` is the part of
    the gap that only bounds rounding errors; None before `solvers.certificate` has computed it.
    Where a solver stalled, ``cause`` says why and what helps. ``stop_reason`` is set by solvers
    that know why they did not reach the tolerance: Ctrl-C ("interrupted"), steps that are
    "stochastic", "hulls" that no direction separates, or a method that is "unfinished" by its own
    parameters.
    """

    beta: Floats
    intercept: Any  # an `Intercept`; of models of parts one per part
    scores: Floats
    objective: float
    dual: float
    gap: float
    converged: bool
    n_iter: int
    precision: str
    solver: str
    stop_reason: StopReason | None = None
    definite: bool = True
    weights: Floats | None = None
    certificate: str = "full"
    parts: Any = None
    combine: str = "nearest"
    level: float = 0.0
    goal: float | None = None
    shared: Floats | None = None
    dual_point: Floats | None = None
    rounding: float | None = None
    cause: str = ""
