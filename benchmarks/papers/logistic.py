"""Kernel logistic regression by PBM, as in Table 2 of its paper, on covtype."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.papers.clusters import load
from benchmarks.papers.study import TIMED, Found, Study
from benchmarks.papers.worker import facts
from margrave import KernelLogisticRegression
from margrave.solvers import BlockMinimization

SETS = {"covtype.binary": "covtype.binary, 50,000 rows"}  # case -> where its rows are
ROWS, TIMED_ROWS, BLOCKS, ROUNDS = 10_000, 50_000, 32, (1, 2, 4, 8)


def _machine(parameters: dict[str, Any], **more: Any) -> KernelLogisticRegression:
    fixed = {"intercept": None, "tol": 1e-3, "memory_limit": "8GiB", "random_state": 0}
    return KernelLogisticRegression(**{**fixed, **parameters, **more})


def _ways(quick: bool) -> dict[str, dict[str, Any]]:
    """Parameters of each way of solving."""
    blocks = 4 if quick else BLOCKS
    fixed = {"moving": False, "finish": None}
    ways: dict[str, dict[str, Any]] = {
        f"PBM, round {rounds}": {
            "solver": BlockMinimization(blocks, rounds=rounds, **fixed),
            "tol": 1e-9,
        }
        for rounds in (ROUNDS[:2] if quick else ROUNDS)
    }
    ways["blocks that move, with a working set"] = {"solver": "pbm"}
    ways["Newton's method"] = {"solver": "newton"}
    ways["margrave exact"] = {"solver": "exact"}
    return ways


def counts(case: str, quick: bool) -> dict[str, Any]:
    """Error of the dual objective, accuracy, kernel values, and numbers sent."""
    data, parameters = load(SETS[case], quick, ROWS)
    best = _machine({**parameters, "tol": 1e-6}, solver="newton").fit(data.X, data.y)
    dual = -float(best.objective_) * (1.0 - float(best.gap_))
    found: dict[str, Any] = {"rows": len(data.y), "ways": {}}
    for title, settings in _ways(quick).items():
        model = _machine(parameters, **settings).fit(data.X, data.y)
        told = facts(model)
        ended = -float(model.objective_) * (1.0 - float(model.gap_))
        sent = [record["bytes"] for record in model.history_ if "bytes" in record]
        found["ways"][title] = {
            "error": abs(ended - dual) / abs(dual),
            "gap": told["gap"],
            "accuracy": 100.0 * float(model.score(data.X_new, data.y_new)),
            "kernel_values": told["kernel_values"],
            "numbers": sum(sent) / 8 / len(data.y) if sent else None,
        }
    return found


def seconds(case: str, quick: bool) -> dict[str, Any]:
    """Seconds on more rows."""
    data, parameters = load(SETS[case], quick, TIMED_ROWS)
    found: dict[str, Any] = {}
    for title, settings in _ways(quick).items():
        begin = time.perf_counter()
        _machine(parameters, **settings).fit(data.X, data.y)
        found[title] = time.perf_counter() - begin
    return found


def _rows(case: str, found: Found) -> list[list[str]]:
    rows = []
    for title, one in found["ways"].items():
        spent = found[TIMED].get(title)
        rows.append(
            [
                *(title, f"{one['error']:.1e}", f"{one['gap']:.1e}", f"{one['accuracy']:.2f}"),
                f"{one['kernel_values']:.2e}",
                "-" if one["numbers"] is None else f"{one['numbers']:.1f}",
                "-" if spent is None else f"{spent:.3g}",
            ]
        )
    return rows


STUDIES = {
    "pbm-logistic": Study(
        "Table 2: kernel logistic regression",
        f"The first {ROWS:,} rows with C = gamma = 32 and {BLOCKS} fixed blocks, as many as the"
        f" paper's machines; seconds, where measured, on {TIMED_ROWS:,} rows. The error is that of"
        " the dual objective; the numbers, of 64 bits, are those of all rounds. The paper has"
        " webspam and cifar, which were not available.",
        tuple(SETS),
        counts,
        (
            *("data set", "way", "error", "gap", "accuracy (%)", "kernel values"),
            *("numbers sent per row", "seconds"),
        ),
        _rows,
        seconds=seconds,
    )
}
