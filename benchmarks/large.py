"""Ten million rows on two cores and in 8 GiB: the early model, and the exact solver's gap.

    python -m benchmarks.large [--rows N] [--seconds S]     # results/large.json; takes hours
    python -m benchmarks.large --report                     # the markdown table

The rows are those of `generated.py`, whose best possible error is known. They are written to a
temporary folder and mapped into memory, and every fit has a process of its own. Accuracies are
those on 100,000 rows that no fit has seen. Memory is the high-water mark of the whole process, with
Python, libraries and the pages of the file that it has read. Seconds of a core are those that the
process has worked, which do not depend on other programs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks import generated
from benchmarks.data import SEED
from benchmarks.measure import in_own_process, machine, timed
from margrave import SVC, RowBlocks
from margrave.solvers import DivideAndConquer

ROOT = Path(__file__).parent.parent
FILE = ROOT / "benchmarks" / "results" / "large.json"
ROWS, NEW, BLOCK = 10_000_000, 100_000, 250_000
PARAMETERS: dict[str, Any] = {"C": 2.0, "gamma": 6.0, "memory_limit": "8GB", "n_jobs": 2}
LIMIT = 7200.0  # seconds until a measurement is given up

# title, parameters beside the common ones
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "linear": ("linear model", {"kernel": "linear"}),
    "early": ("early model, memory-mapped array", {}),
    "blocks": ("early model, the same rows as `RowBlocks`", {}),
    "dc": ("exact, stopped by `time_limit`", {"solver": "dc"}),
}


def level(n_rows: int) -> int:
    """The level whose clusters have about 2,500 rows."""
    return max(1, round(np.log(n_rows / 2500) / np.log(4)))


def measure(way: str, folder: Path, seconds: float) -> dict[str, Any]:
    title, own = WAYS[way]
    X: Any = np.load(folder / "X.npy", mmap_mode="r")
    y = np.load(folder / "y.npy")
    n_rows = len(y)
    parameters = {**PARAMETERS, **own}
    if way in ("early", "blocks"):
        parameters["solver"] = DivideAndConquer(early=level(n_rows))
    if "solver" in own:
        parameters["time_limit"] = seconds
    rows = X
    if way == "blocks":
        rows = RowBlocks([X[at : at + BLOCK] for at in range(0, n_rows, BLOCK)])
    model = SVC(**parameters)
    load, worked = os.getloadavg()[0], time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        _, cost = timed(lambda: model.fit(rows, y))
    worked = time.process_time() - worked
    X_new, y_new = generated.draw(NEW, SEED + 1)
    begin = time.perf_counter()
    predicted = model.predict(X_new)
    return {
        "title": title,
        "rows": n_rows,
        "parameters": {name: str(value) for name, value in parameters.items()},
        "seconds": cost.seconds,
        "core_seconds": worked,
        "memory": cost.memory_peak,
        "memory_is_exact": cost.peak_is_exact,
        "predict_seconds": time.perf_counter() - begin,
        "accuracy": float(np.mean(predicted == y_new)),
        "best_accuracy": float(np.mean(generated.best(X_new) == y_new)),
        "support": int(np.sum(model.n_support_)),
        "gap": model.gap_,
        "certificate": model.certificate_,
        "converged": model.converged_,
        "parts": model.history_[-1].get("parts"),
        "rounds": [
            {key: record[key] for key in ("seconds", "where", "gap") if key in record}
            for record in model.history_[-20:]
        ],
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        "versions": {name: metadata.version(name) for name in ("margrave", "numpy")},
    }


def run(n_rows: int, ways: list[str], seconds: float, output: Path) -> dict[str, Any]:
    found = json.loads(output.read_text()) if output.exists() else {"ways": {}}
    if found.get("rows", n_rows) != n_rows:
        found = {"ways": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begin = time.perf_counter()
        generated.write(folder, n_rows, SEED)
        found |= {
            "rows": n_rows,
            "features": generated.FEATURES,
            "new_rows": NEW,
            "best_error": generated.BEST_ERROR,
            "generating_seconds": time.perf_counter() - begin,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine(),
        }
        for way in ways:
            task = [sys.executable, "-m", "benchmarks.large", "--measure", way, name]
            one = in_own_process([*task, "--seconds", str(seconds)], LIMIT, ROOT)
            found["ways"][way] = one
            print(f"  {way:10} {_summary(one)}", file=sys.stderr, flush=True)
            output.write_text(json.dumps(found, indent=1) + "\n")
    return found


def _summary(one: Mapping[str, Any]) -> str:
    if "error" in one:
        return str(one["error"])
    return f"{one['seconds']:8.1f} s, {one['memory'] / 2**30:.2f} GiB, {one['accuracy']:.4f}"


def report(file: Path = FILE) -> str:
    if not file.exists():
        return "Nothing has been measured yet."
    found = json.loads(file.read_text())
    head = ["model", "rows", "seconds", "seconds of a core", "memory", "accuracy", "below the best"]
    head += ["relative gap", "of", "predict 100,000 rows"]
    lines = [_line(head), _line(["---", *["---:"] * 7, "---", "---:"])]
    for one in (found["ways"][way] for way in WAYS if way in found["ways"]):
        if "error" in one:
            continue
        cells = [
            one["title"],
            f"{one['rows']:,}",
            f"{one['seconds']:.0f}",
            f"{one['core_seconds']:.0f}",
            f"{one['memory'] / 2**30:.1f} GiB",
            f"{100 * one['accuracy']:.2f} %",
            f"{100 * (one['best_accuracy'] - one['accuracy']):.2f} points",
            f"{one['gap']:.2g}",
            _OF[one["certificate"]],
            f"{one['predict_seconds']:.2f} s",
        ]
        lines.append(_line(cells))
    loads = [load for one in found["ways"].values() for load in one.get("load", [])]
    best = next(one["best_accuracy"] for one in found["ways"].values() if "error" not in one)
    computer = found["machine"]
    said = (
        f"{found['rows']:,} rows of {found['features']} features, float32; the best possible"
        f" accuracy is {100 * (1 - found['best_error']):g} %, {100 * best:.2f} % on these"
        f" {found['new_rows']:,} new rows. {computer['cpu']}, {computer['cores']} cores,"
        f" {found['started'][:10]}; other programs ran beside: load {min(loads):.1f} to"
        f" {max(loads):.1f}."
    )
    return "\n".join([said, "", *lines])


_OF = {"blocks": "the parts", "full": "the whole problem", "estimate": "the whole (estimated)"}


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seconds", type=float, default=3600.0, help="limit of the exact solver")
    parser.add_argument("--only", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--report", action="store_true", help="print the table only")
    parser.add_argument("--output", type=Path, default=FILE, help="the result file")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        way, folder = options.measure
        print(json.dumps(measure(way, Path(folder), options.seconds)))
        return 0
    if not options.report:
        run(options.rows, options.only, options.seconds, options.output)
    print(report(options.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
