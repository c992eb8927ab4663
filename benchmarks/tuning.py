"""The tuner against grid searches: seconds, and the best score of each.

    python -m benchmarks.tuning [--only NAME ...]     # measures: results/tuning-*.json
    python -m benchmarks.tuning --report              # the markdown tables

Every search has a process of its own, after a search over few rows that loads code and starts
threads. The ways take turns, and the medians of all repeats count.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn import svm
from sklearn.model_selection import GridSearchCV

import margrave
from benchmarks import data
from benchmarks.measure import in_own_process, machine

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks" / "results"
LIMIT = 7200  # seconds of one process
FOLDS = 5


@dataclass(frozen=True)
class Case:
    title: str
    dataset: str
    prepare: Any
    rows: int
    C: tuple[float, ...]
    gamma: tuple[float, ...]

    @property
    def grid(self) -> dict[str, list[float]]:
        return {"C": list(self.C), "gamma": list(self.gamma)}


def _powers(first: int, last: int, step: int) -> tuple[float, ...]:
    return tuple(2.0**power for power in range(first, last + 1, step))


CASES = {
    "ijcnn1": Case(
        "ijcnn1, 10,000 rows, 7 x 7 settings, 5 folds",
        *("ijcnn1", data.train_part, 10_000, _powers(-2, 10, 2), _powers(-6, 6, 2)),
    ),
    "mnist-8": Case(
        "mnist 8 against the rest, 5,000 rows, 5 x 5 settings, 5 folds",
        *("mnist", data.mnist_eight, 5_000, _powers(-2, 6, 2), _powers(-9, -1, 2)),
    ),
}


@dataclass(frozen=True)
class Way:
    title: str
    make: Callable[[dict[str, list[float]]], Any]
    repeats: int = 5
    goal: float | None = None  # times slower than the tuner


WAYS = {
    "tuner": Way("Tuner", lambda grid: margrave.Tuner(margrave.SVC(), grid, FOLDS)),
    "whole": Way(
        "Tuner(prune=False)",
        lambda grid: margrave.Tuner(margrave.SVC(), grid, FOLDS, prune=False),
        repeats=3,
    ),
    "margrave-1": Way(
        "GridSearchCV(margrave.SVC), 1 job of all threads",
        lambda grid: GridSearchCV(margrave.SVC(), grid, cv=FOLDS),
        *(3, 3.0),
    ),
    "margrave-2": Way(
        "GridSearchCV(margrave.SVC), 2 jobs of 1 thread",
        lambda grid: GridSearchCV(margrave.SVC(), grid, cv=FOLDS, n_jobs=2),
        *(3, 3.0),
    ),
    "sklearn": Way(
        "GridSearchCV(sklearn.svm.SVC), 2 jobs",
        lambda grid: GridSearchCV(svm.SVC(cache_size=2000), grid, cv=FOLDS, n_jobs=2),
        *(1, 10.0),
    ),
}


# --- one process ---------------------------------------------------------------------------------


def measure(case: Case, way: Way, generated: bool) -> dict[str, Any]:
    raw = data.generate(case.dataset) if generated else data.read(case.dataset)
    rows = case.prepare(raw, None if generated else case.rows, 0)
    few = rows.head()
    way.make({"C": [1.0], "gamma": [1.0]}).fit(few.X, few.y)
    grid = case.grid
    if generated:
        grid = {name: values[:2] for name, values in grid.items()}
    search = way.make(grid)
    begin = time.perf_counter()
    search.fit(rows.X, rows.y)
    seconds = time.perf_counter() - begin
    table = search.cv_results_
    return {
        "seconds": seconds,
        "refit_seconds": search.refit_time_,
        "best_score": float(search.best_score_),
        "best_params": search.best_params_,
        "deviation": float(table["std_test_score"][search.best_index_]),
        "scores": np.round(table["mean_test_score"], 6).tolist(),
        "pruned": int(np.sum(table.get("pruned", 0))),
        "rows": len(rows.y),
        "features": int(rows.X.shape[1]),
        "versions": {name: metadata.version(name) for name in ("margrave", "scikit-learn")},
    }


# --- all of them ---------------------------------------------------------------------------------


def run(names: list[str], ways: list[str], generated: bool, output: Path | None) -> int:
    failed = False
    for name in names:
        case = CASES[name]
        print(case.title, file=sys.stderr, flush=True)
        file = None if output is None else output / f"tuning-{name}.json"
        found = json.loads(file.read_text())["ways"] if file is not None and file.exists() else {}
        repeats: dict[str, list[dict[str, Any]]] = {each: [] for each in ways}
        for turn in range(1 if generated else max(WAYS[each].repeats for each in ways)):
            for each in [each for each in ways if turn < WAYS[each].repeats]:
                repeats[each].append(apart(name, each, generated))
                summary = _summary(repeats[each][-1])
                print(f"  {WAYS[each].title:50} {summary}", file=sys.stderr, flush=True)
        found.update({each: _median(own) for each, own in repeats.items()})
        failed |= any("error" in one for one in found.values())
        if file is not None:
            whole = {
                "name": name,
                "title": case.title,
                "grid": case.grid,
                "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "machine": machine(),
                "ways": found,
            }
            file.write_text(json.dumps(whole, indent=1) + "\n")
    return int(failed)


def apart(name: str, each: str, generated: bool) -> dict[str, Any]:
    """One search in its own process; a failure is returned instead of raised."""
    task = [sys.executable, "-m", "benchmarks.tuning", "--measure", name, each]
    return in_own_process([*task, *(["--generated"] if generated else [])], LIMIT, ROOT)


def _median(repeats: list[dict[str, Any]]) -> dict[str, Any]:
    """The last repeat with the median of all seconds; the first error if there is one."""
    for one in repeats:
        if "error" in one:
            return one
    seconds = [one["seconds"] for one in repeats]
    return {**repeats[-1], "seconds": median(seconds), "repeats": seconds}


def _summary(found: dict[str, Any]) -> str:
    if "error" in found:
        return str(found["error"])
    return f"{found['seconds']:8.2f} s, best score {found['best_score']:.5f}"


# --- the table -----------------------------------------------------------------------------------


def report(folder: Path = FOLDER) -> str:
    parts = []
    for name, case in CASES.items():
        file = folder / f"tuning-{name}.json"
        if file.exists():
            found = json.loads(file.read_text())
            parts += [f"### {case.title}", _table(found["ways"])]
            parts.append(f"{found['machine']['cpu']}, {found['machine']['cores']} cores.")
    return "\n\n".join(parts) or "Nothing has been measured yet."


def _table(ways: Mapping[str, dict[str, Any]]) -> str:
    head = ["search", "seconds", "slower than the tuner", "goal", "best score", "deviation"]
    ours = ways.get("tuner", {}).get("seconds")
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name, way in WAYS.items():
        found = ways.get(name, {"error": "-"})
        if "error" in found:
            lines.append([way.title, found["error"], *["-"] * 4])
            continue
        lines.append(
            [
                way.title,
                f"{found['seconds']:.3g}",
                f"{found['seconds'] / ours:.1f}x" if ours else "-",
                f"{way.goal:g}x" if way.goal else "-",
                f"{found['best_score']:.4f}",
                f"{found['deviation']:.4f}",
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--generated", action="store_true", help="made-up data")
    parser.add_argument("--report", action="store_true", help="print the tables only")
    parser.add_argument("--output", type=Path, help="folder of the result files")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        case, way = options.measure
        print(json.dumps(measure(CASES[case], WAYS[way], options.generated)))
        return 0
    output = options.output or (None if options.generated else FOLDER)
    code = 0
    if not options.report:
        code = run(options.only, options.ways, options.generated, output)
    if output is not None:
        print(report(output))
    return code


if __name__ == "__main__":
    sys.exit(main())
