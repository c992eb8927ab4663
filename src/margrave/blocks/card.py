"""Parts and blocks that a graphics card solves side by side, a working set each."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from margrave import _core, cuda
from margrave.blocks.dual import DualBlock, PartResult, part_result
from margrave.problem import Data, Floats, Problem, RowNumbers, is_single
from margrave.rounds import ROUGH, floor_for, precision_for
from margrave.rows import Matrix, is_csr

_SMALL_SET, _LARGE_SET = 512, 1024  # variables: of many problems, and of few
_MANY = 64  # problems
_MEMORY = 0.25  # share of the card's memory for kernel blocks
_LOWER, _LOWEST = 0.7, 0.02  # of the target after a failed certificate, as in `rounds`
_NO_LIMIT = 1 << 60
_AT_ONCE = 1 << 15  # problems: a card numbers those of a launch with 16 bits


def set_size(device: cuda.Device, problems: int, dtype: str) -> int:
    """Variables of each of many working sets, so that their kernel blocks fit into memory."""
    room = _MEMORY * device.limit / (problems * np.dtype(dtype).itemsize)
    return max(2, min(_SMALL_SET if problems >= _MANY else _LARGE_SET, math.isqrt(int(room))))


def run(batch: cuda.Batch, most_rounds: int, deadline: float, checks_stall: bool) -> bool:
    """Rounds of all problems until each is solved or has stalled; False if stopped."""
    single = batch.dtype == "float32"
    rules = [
        _core.StallRule(10 + 8 * int(n) // min(int(n), batch.size), single, batch.loss.sides)
        for n in batch.counts
    ]
    for done in range(most_rounds):
        batch.measure()
        at = batch.read()
        running = np.flatnonzero(at["status"] == cuda.RUNNING)
        if checks_stall:
            stalled = [
                p
                for p in running
                if rules[p].check(done, at["primal"][p], at["dual"][p], at["gap"][p])
            ]
            if stalled:
                status = at["status"].copy()
                status[stalled] = cuda.STALLED
                batch.write("status", status)
        if len(running) == 0:
            return True
        if time.time() >= deadline:
            return False
        batch.improve()
    return True


@dataclass(frozen=True)
class Solved:
    """A problem of a batch, as `part_result` needs it."""

    beta: Floats
    scores: Floats
    work: tuple[int, int, int]


def solve_together(
    pieces: Sequence[dict[str, Any]], tol: float, thorough: bool, deadline: float
) -> list[list[PartResult | None]]:
    """Solve the problems of all parts side by side; see `DualBlock.solve`."""
    blocks = [DualBlock(**piece) for piece in pieces]
    first = blocks[0].problems[0]
    alone = first.data.kernel.is_precomputed or not all(map(is_single, blocks[0].problems))
    if alone:  # these rows have no common matrix
        for block in blocks:
            block.solve(tol, thorough, deadline)
    else:
        tasks = [(block, number) for block in blocks for number in range(len(block.problems))]
        precision = precision_for(tol, first.data)
        for begin in range(0, len(tasks), _AT_ONCE):
            some = tasks[begin : begin + _AT_ONCE]
            unsolved = _solve(blocks, some, precision, tol, thorough, deadline)
            if unsolved and precision == "float32" and time.time() < deadline:
                _solve(blocks, unsolved, "float64", tol, thorough, deadline)
    return [block.found() for block in blocks]


Task = tuple[DualBlock, int]  # a part, and the number of one of its problems


def _solve(
    blocks: Sequence[DualBlock],
    tasks: Sequence[Task],
    precision: str,
    tol: float,
    thorough: bool,
    deadline: float,
) -> list[Task]:
    """Solve some problems in one precision; returns those that need a better one."""
    X = _stacked([block.problems[0].data.X for block in blocks])
    lengths = [block.problems[0].data.n_rows for block in blocks]
    begins = dict(zip(map(id, blocks), np.cumsum([0, *lengths[:-1]]), strict=True))
    first = blocks[0].problems[0]
    data = Data(X, first.data.kernel, np.array([0, sum(lengths)]), first.data.device)
    device = first.data.device
    assert device is not None and isinstance(first, Problem)
    outlines = []
    for block, number in tasks:
        problem, solved = block.problems[number], block.solved[number]
        assert isinstance(problem, Problem)
        start = block.starts[number] if solved is None else solved.beta
        loss = problem.loss.core(floor_for(tol))
        beta = cuda.start_of(
            loss, problem.y, problem.C, start, problem.intercept == "free", problem.total
        )
        outlines.append(
            cuda.Outline(
                rows=problem.data_rows + begins[id(block)],
                y=problem.y,
                C=problem.C,
                beta=beta,
                shift=problem.shift,
                sums=(problem.total, -problem.total),
                scale=problem.least_scale,
                target=tol,
            )
        )
    rows = data.kernel_rows(precision, 0, 0, 1, first.offset)
    assert isinstance(rows, cuda.KernelRows)
    free = first.intercept == "free"
    with device.at_work(), cuda.deferred_interrupt() as pressed:
        batch = cuda.Batch(
            *(device, rows.rows(precision), rows.kernel, precision),
            *(first.loss.core(floor_for(tol)), free, outlines),
            set_size(device, len(tasks), precision),
        )
        batch.start()
        most = _NO_LIMIT if thorough else ROUGH.rounds
        begun = run(batch, most, deadline, checks_stall=thorough)
        target = tol
        while thorough and begun:
            _refresh(batch, rows)
            batch.write("status", cuda.RUNNING)
            batch.measure()
            batch.improve_bias()
            gaps = batch.read()["gap"]
            target *= _LOWER
            if (gaps <= tol).all() or target < _LOWEST * tol:
                break
            batch.write("target", np.where(gaps <= tol, np.inf, target))
            begun = run(batch, most, deadline, checks_stall=True)
        batch.write("status", cuda.RUNNING)
        batch.measure()
        batch.improve_bias()
        at, betas, scores = batch.read(), batch.split(batch.beta), batch.split(batch.scores)
        unsolved = []
        for place, (block, number) in enumerate(tasks):
            problem = block.problems[number]
            if not begun and at["rounds"][place] == 0 and block.starts[number] is not None:
                continue  # no time even for its start
            rounds, steps, values = (int(at[name][place]) for name in ("rounds", "steps", "values"))
            figures = {
                "objective": at["primal"][place],
                "dual": at["dual"][place],
                "intercept": float(at["bias"][place]) if free else 0.0,
            }
            found = Solved(betas[place], scores[place], (rounds, steps, values))
            block.solved[number] = part_result(problem, found, figures)
            if thorough and at["gap"][place] > tol:
                unsolved.append((block, number))
    if pressed[0]:
        raise KeyboardInterrupt
    return unsolved


def _refresh(batch: cuda.Batch, rows: cuda.KernelRows) -> None:
    """Scores in double precision."""
    exact = batch.own_scores(rows.rows("float64"))
    batch.scores[:] = exact if batch.shift is None else exact + batch.shift


def _stacked(parts: Sequence[Matrix]) -> Matrix:
    """Rows of all parts in one matrix."""
    if is_csr(parts[0]):
        found: Matrix = sparse.vstack(list(parts), format="csr")
        return found
    return np.concatenate([np.asarray(part) for part in parts])


@dataclass(frozen=True)
class Block:
    """A block of active rows, its point, and the share of the gap or violation to reach."""

    rows: RowNumbers
    beta: Floats
    scores: Floats
    gap: float
    violation: float


def solve_blocks(
    problem: Problem,
    kernel_rows: cuda.KernelRows,
    floor: float,
    tasks: Sequence[tuple[Block, float, float]],
    most_rounds: int,
) -> list[tuple[RowNumbers, Floats, int, int]]:
    """Solve blocks of active rows side by side, all other variables fixed.

    A task is the arguments of `ActiveRows.solve`. For each block its rows whose variables change,
    their values, steps and kernel values.
    """
    device, blocks = kernel_rows.device, [block for block, _, _ in tasks]
    loss, dtype = problem.loss.core(floor), kernel_rows.dtype
    data_rows = problem.data_rows
    with device.at_work(), cuda.deferred_interrupt() as pressed:
        batch = cuda.Batch(
            *(device, kernel_rows.rows(dtype), kernel_rows.kernel, dtype, loss),
            problem.intercept == "free",
            [
                cuda.Outline(
                    rows=data_rows[block.rows],
                    y=problem.y[block.rows],
                    C=problem.C[block.rows],
                    beta=block.beta,
                    scores=block.scores,
                    shift=np.zeros(len(block.rows)),
                    sums=_sums(problem, block),
                    target=block.gap,
                    enough=block.violation,
                )
                for block in blocks
            ],
            set_size(device, len(blocks), dtype),
        )
        batch.fix_others(tasks[0][1])
        deadline = min(deadline for _, _, deadline in tasks)
        run(batch, most_rounds, deadline, checks_stall=False)
        at, values = batch.read(), batch.split(batch.beta)
    if pressed[0]:
        raise KeyboardInterrupt
    found = []
    for place, block in enumerate(blocks):
        moved = np.flatnonzero(values[place] != block.beta)
        work = int(at["steps"][place]), int(at["values"][place])
        found.append((block.rows[moved], values[place][moved], *work))
    return found


def _sums(problem: Problem, block: Block) -> tuple[float, float]:
    """Sums of a block's variables, which it keeps."""
    if not problem.is_hull:
        return float(block.beta.sum()), 0.0
    up = problem.y[block.rows] > 0
    return float(block.beta[up].sum()), float(block.beta[~up].sum())
