"""Fits and predictions on graphics cards: which there are, and problems that carry the card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from margrave.cuda import Device
from margrave.engines import EngineLike, resolve_engine
from margrave.engines.cuda import Cuda, is_card
from margrave.problem import BaseProblem, is_single
from margrave.resources import parse_bytes
from margrave.solvers import Solver
from margrave.solvers.auto import Auto
from margrave.solvers.distributed.block_minimization import BlockMinimization
from margrave.solvers.divide.divide_and_conquer import DivideAndConquer
from margrave.solvers.hull.pairs import PairSwaps
from margrave.solvers.kernel.newton import Newton
from margrave.solvers.kernel.working_set import WorkingSet

P = TypeVar("P", bound=BaseProblem)

_SOLVERS = {
    "auto": Auto,
    "exact": WorkingSet,
    "newton": Newton,
    "dc": DivideAndConquer,
    "pbm": BlockMinimization,
    "pairs": PairSwaps,
}

_SOLVERS_OF_WORKERS = {
    "auto": Auto,
    "dc": DivideAndConquer,
    "pbm": BlockMinimization,
}


def card_of(engine: EngineLike, memory_limit: int | str | None) -> Device | None:
    """The graphics card of an engine, if it is one."""
    if not is_card(engine):
        return None
    chosen = resolve_engine(engine, 1)
    assert isinstance(chosen, Cuda)
    return chosen.card(None if memory_limit is None else parse_bytes(memory_limit))


def on_workers_cards(problems: Sequence[P], engine: EngineLike, solver: Solver) -> list[P]:
    """The problems for workers that have cards, if the engine's do; raise for what these cannot."""
    if getattr(engine, "inner", None) != "cuda":
        return list(problems)
    _check(problems, solver, _SOLVERS_OF_WORKERS, "Dask(inner='cuda')")
    if problems[0].data.is_linear:
        raise ValueError("Dask(inner='cuda') has no linear machines; use Dask without inner")
    found = replace(problems[0].data, has_cards=True)
    return [problem.with_data(found) for problem in problems]


def on_card(problems: Sequence[P], device: Device, solver: Solver) -> list[P]:
    """The problems with the card, or raise for what it cannot solve."""
    _check(problems, solver, _SOLVERS, "engine='cuda'")
    data = problems[0].data
    if not data.in_memory:
        raise ValueError(
            "engine='cuda' needs the rows in one array; rows in blocks or on workers have the"
            " engines 'threads', 'dask' and 'mpi'"
        )
    if isinstance(solver, Newton) and not data.is_linear:
        raise ValueError(
            "engine='cuda' has solver='newton' for the linear kernel; use solver='auto' for others"
        )
    found = replace(data, device=device)
    return [problem.with_data(found) for problem in problems]


def _check(
    problems: Sequence[BaseProblem], solver: Solver, solvers: Mapping[str, type], engine: str
) -> None:
    if not isinstance(solver, tuple(solvers.values())):
        raise ValueError(
            f"{engine} has no solver {type(solver).__name__}; it has"
            f" {', '.join(map(repr, solvers))}"
        )
    if problems[0].data.kernel.is_callable:
        raise ValueError(
            f"{engine} cannot call a Python kernel; pass its values with kernel='precomputed', or"
            " use engine=None"
        )
    if not all(map(is_single, problems)):
        raise ValueError(
            f"{engine} has no joint problems of several classes ({problems[0].loss_name!r});"
            " it has one binary problem per class or pair: multi_class='ovr' or 'ovo'"
        )
