"""Studies of single claims: counts, accuracies and comparisons that are no table of timed fits.

    python -m benchmarks.papers.study [STUDY ...] [--cases CASE ...] [--counted] [--again] [--quick]

benchmarks/results/papers/<study>.json is {"cases": {case: {"started", "machine", "versions",
"found", "timed"}}}, and is written after every measurement. What is in the file is not measured
again unless with --again. "found" has counts and accuracies, which other work on the machine does
not change; studies whose seconds matter measure them apart, and "timed" has the same keys but that:
leave it out by --counted where the machine is not idle. With --quick a few made-up rows are used,
and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.data import folder
from benchmarks.measure import machine
from benchmarks.papers.common import FOLDER, Results, markdown
from benchmarks.papers.picture import Curves

Found = Mapping[str, Any]  # of one case; under "timed" what the seconds are, empty if not measured
Measure = Callable[[str, bool], dict[str, Any]]
PACKAGES = ("margrave", "numpy", "scipy", "scikit-learn")
FOUND, TIMED = "found", "timed"


@dataclass(frozen=True)
class Study:
    """One claim of a paper, measured on some cases.

    `measure` gets a case and whether to be quick, and so does `seconds`; `rows` makes lines of a
    table from what they found.
    """

    title: str
    text: str  # what was done, above the table
    cases: tuple[str, ...]
    measure: Measure
    head: tuple[str, ...]
    rows: Callable[[str, Found], list[list[str]]]
    seconds: Measure | None = None
    below: Callable[[Mapping[str, Found]], str] | None = None  # the table: sums over the cases
    curves: Callable[[str, Found], Curves] | None = None  # of the picture: a column for each case
    axes: tuple[str, ...] = ()  # of the picture: what is below, then what is at the left of each


def path(name: str, where: Path = FOLDER) -> Path:
    """The result file of a study."""
    return where / f"{name}.json"


def read(name: str, where: Path = FOLDER) -> Results:
    """What was measured, case by case."""
    file = path(name, where)
    found: Results = json.loads(file.read_text()) if file.exists() else {"cases": {}}
    return found


def found_in(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What was found in a case, with its seconds."""
    return {**entry[FOUND], TIMED: entry.get(TIMED, {}).get(FOUND, {})}


def section(name: str, study: Study, where: Path = FOLDER) -> str:
    """A heading, what was done, and the table; nothing of what has not been measured."""
    entries = read(name, where)["cases"]
    cases = {case: found_in(entries[case]) for case in study.cases if case in entries}
    if not cases:
        return ""
    rows = [row for case, found in cases.items() for row in lines(study, case, found)]
    parts = [f"## {study.title}", study.text, markdown(list(study.head), rows)]
    if study.below is not None:
        parts.append(study.below(cases))
    if study.curves is not None:
        parts.append(f"![{study.title}]({name}.png)")
    return "\n\n".join([*parts, _conditions([entries[case] for case in cases])])


def _conditions(entries: list[dict[str, Any]]) -> str:
    """When it was measured, and with what where that is known."""
    entries = [*entries, *(entry[TIMED] for entry in entries if TIMED in entry)]
    days = sorted({entry["started"][:10] for entry in entries})
    machines = sorted({f"{e['machine']['cpu']}, {e['machine']['cores']} cores" for e in entries})
    versions = sorted(
        {f"{p} {v}" for entry in entries for p, v in entry.get("versions", {}).items()}
    )
    with_versions = f"; {', '.join(versions)}" if versions else ""
    return f"Measured {', '.join(days)}: {'; '.join(machines)}{with_versions}."


def lines(study: Study, case: str, found: Found) -> list[list[str]]:
    """The lines of one case; only the first has its name."""
    return [[case if at == 0 else "", *row] for at, row in enumerate(study.rows(case, found))]


def run(name: str, study: Study, options: argparse.Namespace) -> None:
    """Measure what is not in the file yet."""
    stored = {"cases": {}} if options.quick else read(name)
    kinds = {FOUND: study.measure}
    if study.seconds is not None and not options.counted:
        kinds[TIMED] = study.seconds
    chosen = [
        case
        for case in study.cases
        if not options.cases or any(fnmatch(case, pattern) for pattern in options.cases)
    ]
    for case in chosen:
        entry = stored["cases"].get(case, {})
        for kind, measure in kinds.items():
            if kind in entry and not options.again:
                continue
            found = _measured(f"{name}, {case}, {kind}", measure, case, options.quick)
            entry = {**entry, **found} if kind == FOUND else {**entry, TIMED: found}
            stored["cases"][case] = entry
            if not options.quick:
                path(name).write_text(json.dumps(stored, indent=1) + "\n")


def _measured(title: str, measure: Measure, case: str, quick: bool) -> dict[str, Any]:
    """What was found, and the conditions."""
    conditions = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "versions": {package: metadata.version(package) for package in PACKAGES},
    }
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = measure(case, quick)
    print(f"{title}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    return {**conditions, FOUND: found}


def main(arguments: list[str] | None = None) -> int:
    """Measure the studies that the command line names."""
    from benchmarks.papers.studies import STUDIES

    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.study", description=__doc__)
    parser.add_argument("studies", nargs="*", choices=[[], *STUDIES], help="default: all")
    parser.add_argument("--cases", nargs="+", help="names or patterns (*); default: all")
    parser.add_argument("--counted", action="store_true", help="no seconds: the machine is in use")
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
