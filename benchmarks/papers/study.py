"""Studies of single claims: counts, accuracies and comparisons that are no table of timed fits.

    python -m benchmarks.papers.study [STUDY ...] [--cases CASE ...] [--again] [--quick]

benchmarks/results/papers/<study>.json is {"cases": {case: {"started", "machine", "found"}}}, and is
written after every case. A case that is in the file is not measured again unless with --again. With
--quick a few made-up rows are used, and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data import folder
from benchmarks.measure import machine
from benchmarks.papers.common import FOLDER, Results, markdown

Found = Mapping[str, Any]  # of one case


@dataclass(frozen=True)
class Study:
    """One claim of a paper, measured on some cases.

    `measure` gets a case and whether to be quick; `rows` makes lines of a table from what it found.
    """

    title: str
    text: str  # what was done, above the table
    cases: tuple[str, ...]
    measure: Callable[[str, bool], dict[str, Any]]
    head: tuple[str, ...]
    rows: Callable[[str, Found], list[list[str]]]


def path(name: str, where: Path = FOLDER) -> Path:
    """The result file of a study."""
    return where / f"{name}.json"


def read(name: str, where: Path = FOLDER) -> Results:
    """What was measured, case by case."""
    file = path(name, where)
    found: Results = json.loads(file.read_text()) if file.exists() else {"cases": {}}
    return found


def section(name: str, study: Study, where: Path = FOLDER) -> str:
    """A heading, what was done, and the table."""
    cases = read(name, where)["cases"]
    rows = [row for case in study.cases if case in cases for row in lines(study, cases, case)]
    table = markdown(list(study.head), rows) if rows else "Not measured yet."
    days = sorted({cases[case]["started"][:10] for case in study.cases if case in cases})
    measured = f"\n\nMeasured {', '.join(days)}." if days else ""
    return f"## {study.title}\n\n{study.text}\n\n{table}{measured}"


def lines(study: Study, cases: Mapping[str, Any], case: str) -> list[list[str]]:
    """The lines of one case; only the first has its name."""
    found = study.rows(case, cases[case]["found"])
    return [[case if at == 0 else "", *row] for at, row in enumerate(found)]


def run(name: str, study: Study, options: argparse.Namespace) -> None:
    """Measure the cases that are not in the file yet."""
    found = {"cases": {}} if options.quick else read(name)
    for case in study.cases:
        if (options.cases and case not in options.cases) or (
            case in found["cases"] and not options.again
        ):
            continue
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            measured = study.measure(case, options.quick)
        spent = time.perf_counter() - begin
        print(f"{name}, {case}: {spent:.1f} s", file=sys.stderr, flush=True)
        found["cases"][case] = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine(),
            "found": measured,
        }
        if not options.quick:
            path(name).write_text(json.dumps(found, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Measure the studies that the command line names."""
    from benchmarks.papers.studies import STUDIES

    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.study", description=__doc__)
    parser.add_argument("studies", nargs="*", choices=[[], *STUDIES], help="default: all")
    parser.add_argument("--cases", nargs="+", help="default: all")
    parser.add_argument("--again", action="store_true", help="also what is in the file")
    parser.add_argument("--quick", action="store_true", help="a few made-up rows: checks the code")
    options = parser.parse_args(arguments)
    if not options.quick:
        folder()  # fails early, with an explanation
    for name in options.studies or STUDIES:
        run(name, STUDIES[name], options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
