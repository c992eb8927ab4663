"""What the papers share: methods and tables, the order of the measurements, and result files.

One file per data set and table, ``<paper>-<table>-<data set>.json``:

    {"paper", "table", "dataset": {...}, "parameters": {...}, "search": {...} or None,
     "run": {"started", "limit", "generated"}, "machine": {...},
     "methods": {name: {"started", "runs": [measurement or {"error"}, ...],
                        "extrapolated": {"rows", "seconds", "exponent"} or None}
                       or {"skipped": why}}}

A measurement, or a run that was stopped, may have "early" fits, which end after a few rounds and
show the state of a method by then. A method that cannot fit all rows is measured at several sizes,
and its seconds for all rows are extrapolated by a power law. Methods that are not measured again
keep their entries in the file, as long as machine and parameters are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV

import margrave
from benchmarks.adapters import LIBRARIES, is_installed
from benchmarks.data import folder
from benchmarks.measure import machine
from benchmarks.papers.data import DataSet

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "benchmarks" / "results" / "papers"
LIMIT = 1800.0  # seconds of one fit
FIFTH = 0.2  # of the rows, for the methods that get a sample
NO_ANSWER = "the hulls overlap"  # the error of a problem without a solution: a result too
ALL, SAMPLE, SIZES = "all", "sample", "sizes"

Entry = dict[str, Any]  # of one method
Results = dict[str, Any]  # of one table on one data set


@dataclass(frozen=True)
class Method:
    title: str
    make: Callable[[Mapping[str, Any]], Any]  # an estimator from the parameters of the data set
    library: str = "margrave"  # of benchmarks.adapters.LIBRARIES
    rows: str = ALL  # or SAMPLE (a fifth), or SIZES (as many as the data set says)
    certified: bool = False  # whether the gap of the whole problem is computed after the fit
    early: tuple[int, ...] = ()  # fits that end after so many rounds are measured too


@dataclass(frozen=True)
class Search:
    """Parameters by cross-validation on a part of the rows."""

    estimator: str
    fixed: Mapping[str, Any]
    grid: Mapping[str, list[float]]
    rows: int = 4000
    folds: int = 3

    def best(self, dataset: DataSet, generated: bool) -> dict[str, Any]:
        """The parameters of the highest accuracy; of equals the first."""
        data = dataset.load(generated).in_form(dataset.forms["margrave"])
        model = getattr(margrave, self.estimator)(**self.fixed)
        search = GridSearchCV(model, dict(self.grid), cv=self.folds)
        search.fit(data.X[: self.rows], data.y[: self.rows])
        found: dict[str, Any] = search.best_params_
        return found


@dataclass(frozen=True)
class Table:
    name: str  # in the names of result files
    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    search: Search | None = None  # None: the parameters of the data set


@dataclass(frozen=True)
class Paper:
    name: str  # of its module
    datasets: Mapping[str, DataSet]
    methods: Mapping[str, Method]
    tables: tuple[Table, ...]


# --- running -------------------------------------------------------------------------------------


def run(paper: Paper, arguments: list[str] | None = None) -> int:
    """Measure what the command line asks for; 1 if something failed."""
    options = _parser(paper).parse_args(arguments)
    if not options.generated:
        folder()  # fails early, with an explanation
    output = options.output or (None if options.generated else FOLDER)
    failed = False
    for name in options.only:
        for table in paper.tables:
            methods = [method for method in table.methods if method in options.methods]
            if name not in table.datasets or not methods:
                continue
            results = run_table(paper, table, name, methods, options, output)
            failed |= any(has_failed(results["methods"][method]) for method in methods)
    return int(failed)


def run_table(
    paper: Paper,
    table: Table,
    name: str,
    methods: Sequence[str],
    options: argparse.Namespace,
    output: Path | None,
) -> Results:
    """Measure the methods on one data set; the file is written anew after each of them."""
    _say(f"{paper.name}, {table.name}: {paper.datasets[name].title}")
    old = _stored(output, paper, table, name)
    results = _begin(paper, table, name, options, old)
    known = old["methods"] if old is not None and _same_conditions(old, results) else {}
    for method in methods:
        known = {**known, method: _entry(paper, name, method, results)}
        results["methods"] = {each: known[each] for each in table.methods if each in known}
        if output is not None:
            write(results, output)
    return results


def _begin(
    paper: Paper, table: Table, name: str, options: argparse.Namespace, old: Results | None
) -> Results:
    """Results without methods: the conditions. Parameters are searched for once for all."""
    dataset = paper.datasets[name]
    search = None if table.search is None else asdict(table.search)
    parameters = dict(dataset.parameters)
    if table.search is not None:
        if old is not None and old["search"] == search:
            parameters = old["parameters"]
        else:
            parameters = table.search.best(dataset, options.generated)
        _say(f"  {parameters}")
    return {
        "paper": paper.name,
        "table": table.name,
        "dataset": {
            "name": name,
            "title": dataset.title,
            "archive": dataset.archive,
            "preparation": " ".join((dataset.prepare.__doc__ or "").split()),
        },
        "parameters": parameters,
        "search": search,
        "run": {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "limit": options.time_limit,
            "generated": options.generated,
        },
        "machine": machine(),
        "methods": {},
    }


def _entry(paper: Paper, name: str, method: str, results: Results) -> Entry:
    chosen = paper.methods[method]
    if not is_installed(chosen.library):
        why = f"{LIBRARIES[chosen.library].title} is not installed"
        _say(f"  {chosen.title:28} {why}")
        return {"skipped": why}
    task = {
        "paper": paper.name,
        "dataset": name,
        "method": method,
        "parameters": results["parameters"],
        "limit": results["run"]["limit"],
        "generated": results["run"]["generated"],
    }
    runs = _runs(task, chosen, paper.datasets[name])
    return {
        "started": results["run"]["started"],
        "runs": runs,
        "extrapolated": extrapolate(runs) if chosen.rows == SIZES else None,
    }


def _runs(task: dict[str, Any], method: Method, dataset: DataSet) -> list[Entry]:
    """The fits of one method: one, or one for each size until one fails."""
    sizes: dict[str, tuple[float | None, ...]] = {
        ALL: (None,),
        SAMPLE: (FIFTH,),
        SIZES: dataset.sizes,
    }
    runs: list[Entry] = []
    for rows in sizes[method.rows]:
        runs.append(measured_apart({**task, "rows": rows}))
        _say(f"  {method.title:28} {_summary(runs[-1])}")
        if "error" in runs[-1]:
            break
    return runs


def measured_apart(task: dict[str, Any]) -> Entry:
    """One measurement in a fresh process; a failure is returned instead of raised."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.papers.worker"],
        check=False,
        input=json.dumps(task),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=dict(os.environ),
    )
    if done.returncode == 0:
        found: Entry = json.loads(done.stdout.splitlines()[-1])
        return found
    if done.returncode == -signal.SIGALRM:
        why = f"given up: it needs more than {task['limit']:g} s"
        early = [json.loads(line) for line in done.stdout.splitlines()]
        return {"rows": task["rows"], "error": why, "given_up": True, "early": early}
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    found = {"rows": task["rows"], "error": lines[-1]}
    return {**found, "given_up": True} if NO_ANSWER in lines[-1] else found


def extrapolate(runs: Sequence[Entry]) -> dict[str, float] | None:
    """Seconds for all rows by a power law: least squares of log seconds over log rows.

    None if all rows were measured, or fewer than two sizes.
    """
    good = [found for found in runs if "error" not in found]
    if len(good) < 2 or good[-1]["rows"] == good[-1]["whole_rows"]:
        return None
    rows, seconds = (np.log([found[key] for found in good]) for key in ("rows", "seconds"))
    exponent, constant = np.polyfit(rows, seconds, 1)
    whole = good[-1]["whole_rows"]
    return {
        "rows": whole,
        "seconds": float(np.exp(constant + exponent * np.log(whole))),
        "exponent": float(exponent),
    }


def _summary(found: Entry) -> str:
    if "error" in found:
        return str(found["error"])
    gap = f", gap {found['gap']:.1e}" if found.get("gap") is not None else ""
    return f"{found['rows']:8,} rows {found['seconds']:9.2f} s, {found['accuracy']:.2f} %{gap}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser(paper: Paper) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.papers.{paper.name}")
    add: Any = parser.add_argument
    add("--only", nargs="+", choices=list(paper.datasets), default=list(paper.datasets))
    add("--methods", nargs="+", choices=list(paper.methods), default=list(paper.methods))
    add("--time-limit", type=float, default=LIMIT, help="seconds of one fit (default: %(default)g)")
    add(
        "--output",
        type=Path,
        help="folder of the result files (default: benchmarks/results/papers)",
    )
    add("--generated", action="store_true", help="made-up data: checks the harness")
    return parser


# --- result files --------------------------------------------------------------------------------


def path(where: Path, paper: str, table: str, dataset: str) -> Path:
    return where / f"{paper}-{table}-{dataset}.json"


def write(results: Results, where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    file = path(where, results["paper"], results["table"], results["dataset"]["name"])
    file.write_text(json.dumps(results, indent=1) + "\n")


def read(paper: Paper, table: Table, where: Path = FOLDER) -> dict[str, Results]:
    """The results of one table by data set, as far as there are any."""
    found = {name: _stored(where, paper, table, name) for name in table.datasets}
    return {name: results for name, results in found.items() if results is not None}


def _stored(where: Path | None, paper: Paper, table: Table, dataset: str) -> Results | None:
    file = None if where is None else path(where, paper.name, table.name, dataset)
    if file is None or not file.exists():
        return None
    results: Results = json.loads(file.read_text())
    return results


def _same_conditions(old: Results, new: Results) -> bool:
    computer = ("cpu", "cores", "instruction_set")
    return (
        all(old["machine"][key] == new["machine"][key] for key in computer)
        and old["parameters"] == json.loads(json.dumps(new["parameters"]))
        and old["run"]["generated"] == new["run"]["generated"]
    )


def has_failed(entry: Entry) -> bool:
    """Whether something went wrong; to run out of time, or to find no answer, is a result."""
    return any("error" in found and "given_up" not in found for found in entry.get("runs", []))


def last(entry: Entry | None) -> Entry | None:
    """The measurement with the most rows; None if there is none."""
    good = [found for found in (entry or {}).get("runs", []) if "error" not in found]
    return good[-1] if good else None


def way(entry: Entry | None) -> list[Entry]:
    """The early fits of a method, and last the whole one if it came to an end."""
    runs = (entry or {}).get("runs", [])
    found = [point for run in runs for point in run.get("early", [])]
    return [*found, *(run for run in runs if "error" not in run)]


# --- text ----------------------------------------------------------------------------------------


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def conditions(all_results: Sequence[Results]) -> str:
    """Machine, versions and dates of all that was measured."""
    machines = {
        f"{r['machine']['cpu']}, {r['machine']['cores']} cores, {r['machine']['instruction_set']}"
        for r in all_results
    }
    entries = [entry for r in all_results for entry in r["methods"].values() if "runs" in entry]
    days = {entry["started"][:10] for entry in entries}
    versions: dict[str, set[str]] = {}
    for entry in entries:
        for package, version in (last(entry) or {"versions": {}})["versions"].items():
            if version is not None:
                versions.setdefault(package, set()).add(version)
    named = ", ".join(f"{p} {'/'.join(sorted(v))}" for p, v in sorted(versions.items()))
    return f"{'; '.join(sorted(machines))}. {named}. Measured {', '.join(sorted(days))}."
