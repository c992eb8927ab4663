"""Hsieh, Si, Dhillon: Communication-Efficient Parallel Block Minimization for Kernel Machines.

    python -m benchmarks.papers.pbm [--only NAME ...] [--methods NAME ...] [--time-limit SECONDS]

Table 2: the first step (each block's own model) and the solution to 1e-3, with the parameters of
the paper, on fixed blocks, as in the paper, and on moving blocks. Figure 2: approximations
with ever more features. Blocks run on the threads of one process; `benchmarks/engines.py` uses
clusters.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from sklearn.kernel_approximation import Nystroem, RBFSampler

from benchmarks.papers.common import Method, Paper, Table, run
from benchmarks.papers.data import DataSet, covtype_binary
from benchmarks.papers.dcsvm import DENSE, _on_features, _svc
from margrave import solvers

BLOCKS = 32  # machines of the paper

DATASETS = {
    "covtype": DataSet(
        "covtype.binary, C=32, gamma=32",
        "covtype",
        covtype_binary,
        DENSE,
        {"C": 32.0, "gamma": 32.0},
        (),
    ),
}


def stop_after_the_first(record: Mapping[str, Any]) -> bool:
    """Stop when the blocks have been solved once: what is left is their own models."""
    return "step" in record


def _pbm(parameters: Mapping[str, Any], **solver: Any) -> Any:
    return _svc(parameters, solver=solvers.BlockMinimization(**solver))


def _first(parameters: Mapping[str, Any]) -> Any:
    return _pbm(parameters, blocks=BLOCKS).set_params(callbacks=stop_after_the_first)


_fixed = partial(_pbm, blocks=BLOCKS, moving=False)  # as in the paper

METHODS = {
    "first": Method("PBM (first step)", _first),
    "pbm": Method("PBM (one round, then working set)", _fixed),
    "random": Method("the same on random blocks", partial(_fixed, partition="random")),
    "rounds": Method("PBM (rounds alone)", partial(_fixed, finish=None)),
    "moving": Method("blocks that move, with a working set", _pbm),
    "moving_rounds": Method("blocks that move, rounds alone", partial(_pbm, finish=None)),
    "set": Method("working set alone", partial(_pbm, blocks=2, rounds=0)),
}
APPROXIMATIONS = {
    f"{name}-{count}": Method(
        f"{title}, {count:,}", partial(_on_features, features=features, count=count)
    )
    for name, title, features, counts in (
        ("nystroem", "Nystroem", Nystroem, (100, 300, 1000, 2000)),
        ("random-features", "random features", RBFSampler, (100, 300, 1000, 3000)),
    )
    for count in counts
}
TABLE_2 = Table("table2", tuple(METHODS), tuple(DATASETS))
FIGURE_2 = Table("figure2", tuple(APPROXIMATIONS), tuple(DATASETS))
PAPER = Paper("pbm", DATASETS, {**METHODS, **APPROXIMATIONS}, (TABLE_2, FIGURE_2))

if __name__ == "__main__":
    sys.exit(run(PAPER))
