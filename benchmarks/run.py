"""Run benchmarks: ``python -m benchmarks.run [--only NAME] [--repeat N] [--libraries ...]``.

For each problem
1. every library tries every input form once (time-limited) and keeps its fastest;
   LIBLINEAR besides tries how few iterations lead near the optimum;
2. the libraries take turns until each has its number of repeats, so noise of the machine hits all;
   where its fit takes less than half a second, that is 20;
3. medians, all single values, objectives and the machine go into one result file.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import report, results, shortest
from benchmarks.adapters import LIBRARIES, SHORTEST, is_installed
from benchmarks.data import FORMS, folder
from benchmarks.measure import machine
from benchmarks.problem import Problem
from benchmarks.problems import PROBLEMS
from benchmarks.worker import Task

ROOT = Path(__file__).parent.parent
PATIENCE = 2.0  # a form is given up at this many times the best so far: it cannot win any more
# The shortest limit of a try. Short tries are noisy, and nothing is gained by ending them.
LEAST_LIMIT = 30.0
# A single short fit is noisy: below so many seconds all libraries get so many repeats.
SHORT = 0.5
SHORT_REPEATS = 20
WIDEST = max(len(library.title) for library in LIBRARIES.values())


@dataclass(frozen=True)
class Settings:
    libraries: tuple[str, ...]
    forms: tuple[str, ...]
    repeats: dict[str, int]  # library -> count; "" for those not named; empty: as the problem says
    reuse: tuple[str, ...]
    reuse_folder: Path
    scratch: Path  # fitted models for the problems that score
    started: str
    tiny: bool
    generated: bool


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    names = options.only or [p.name for p in PROBLEMS.values() if p.kernel in options.kernel]
    missing = [
        LIBRARIES[name].title
        for name in options.libraries
        if name not in options.reuse
        and any(name in PROBLEMS[p].libraries for p in names)
        and not is_installed(name)
    ]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)} (or leave out by --libraries)")
    if not options.generated:
        folder()  # fails early, with an explanation
    checking = options.tiny or options.generated
    output = options.output or (None if checking else results.FOLDER)
    all_results = []
    with tempfile.TemporaryDirectory() as scratch:
        settings = Settings(
            libraries=tuple(options.libraries),
            forms=tuple(options.forms),
            repeats=_repeats(options.repeat),
            reuse=tuple(options.reuse),
            reuse_folder=options.output or results.FOLDER,
            scratch=Path(scratch),
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            tiny=options.tiny,
            generated=options.generated,
        )
        for name in names:
            found = run_problem(PROBLEMS[name], settings)
            all_results.append(found)
            if output is not None:
                _say(f"  written to {results.write(found, output)}")
    print(report.table(all_results))
    failed = any(results.has_failed(e) for r in all_results for e in r["libraries"].values())
    return int(failed)


def run_problem(problem: Problem, settings: Settings) -> results.Results:
    _say(f"{problem.name}: {problem.title}")
    this_machine = machine()
    entries: dict[str, results.Entry] = {}
    libraries = [name for name in problem.libraries if name in settings.libraries]
    for library in [name for name in libraries if name in settings.reuse]:
        entries[library] = _reused(problem, library, settings)
    measured = [name for name in libraries if name not in settings.reuse]
    whole = [name for name in measured if name != SHORTEST]
    forms = _forms(problem, settings)
    trials: dict[str, list[results.Entry]] = {name: [] for name in measured}
    chosen: dict[str, str | None] = dict.fromkeys(whole, forms[0])
    if len(forms) > 1 or SHORTEST in measured:
        trials |= try_forms(problem, whole, forms, settings)
        chosen = {name: _fastest(trials[name]) for name in whole}
    options: dict[str, dict[str, int]] = {}
    if SHORTEST in measured:
        form = chosen.get("sklearn") or entries.get("sklearn", {}).get("form") or forms[0]
        trials[SHORTEST] = _cut_short(problem, form, trials, entries, settings)
        max_iter = shortest.near(trials[SHORTEST])
        if max_iter is not None:
            chosen[SHORTEST], options[SHORTEST] = form, {"max_iter": max_iter}
    repeats = take_turns(problem, chosen, settings, options)
    for library in measured:
        entries[library] = results.entry(trials[library], repeats.get(library, []))
    entries = {name: entries[name] for name in libraries}
    return {
        "problem": problem.describe(),
        "run": {
            "started": settings.started,
            "tiny": settings.tiny,
            "generated": settings.generated,
        },
        "machine": this_machine,
        "libraries": entries,
        "objective_differences": results.objective_differences(entries),
    }


def try_forms(
    problem: Problem, libraries: list[str], forms: list[str], settings: Settings
) -> dict[str, list[results.Entry]]:
    """Each form once per library, the libraries in turn."""
    trials: dict[str, list[results.Entry]] = {library: [] for library in libraries}
    for form in forms:
        for library in libraries:
            if problem.model and _fit_was_given_up(problem, library, form, settings):
                trials[library].append({"form": form, "error": "the fit was given up"})
                continue
            best = [t["seconds"] for t in trials[library] if "error" not in t]
            limit = problem.limit
            if best:
                limit = min(limit, max(PATIENCE * min(best), LEAST_LIMIT))
            # The objectives of linear models cost little, and `shortest` needs them.
            checked = problem.kernel == "linear"
            trials[library].append(
                _measure(problem, library, form, limit, settings, "try", checked=checked)
            )
    return trials


def _cut_short(
    problem: Problem,
    form: str,
    trials: dict[str, list[results.Entry]],
    reused: dict[str, results.Entry],
    settings: Settings,
) -> list[results.Entry]:
    """Runs of LIBLINEAR with few iterations, up to one that is near the optimum."""

    def measure(max_iter: int) -> results.Entry:
        label, options = f"max_iter={max_iter}", {"max_iter": max_iter}
        return _measure(problem, SHORTEST, form, problem.limit, settings, label, options=options)

    def known(library: str) -> list[results.Entry]:
        found = trials.get(library, []) + reused.get(library, {}).get("repeats", [])
        return [m for m in found if "error" not in m]

    default = next((m for m in known("sklearn") if m["form"] == form), None)
    return shortest.search(measure, default, known("margrave"))


def take_turns(
    problem: Problem,
    forms: dict[str, str | None],
    settings: Settings,
    options: dict[str, dict[str, int]],
) -> dict[str, list[results.Entry]]:
    """The reported repeats, in the fastest form of each library; round by round. A library may have
    further parameters (``options``)."""
    repeats: dict[str, list[results.Entry]] = {library: [] for library in forms}
    counts = {library: _count(problem, library, settings) for library in forms}
    turn = 0
    while turn < max(counts.values(), default=0):
        order = list(forms)
        shift = turn % len(order)  # another library goes first each time
        for library in order[shift:] + order[:shift]:
            form = forms[library]
            if form is not None and turn < counts[library]:
                label, more = f"repeat {turn + 1}", options.get(library)
                repeats[library].append(
                    _measure(problem, library, form, problem.limit, settings, label, options=more)
                )
        turn += 1
        if turn == 1 and problem.timed == "fit":
            for library in [name for name in forms if _is_short(repeats[name])]:
                counts[library] = _count(problem, library, settings, SHORT_REPEATS)
    return repeats


def _is_short(found: list[results.Entry]) -> bool:
    """Whether a library's fit is a short one."""
    return any(m["seconds"] < SHORT for m in found if "error" not in m)


def _measure(
    problem: Problem,
    library: str,
    form: str,
    limit: float,
    settings: Settings,
    label: str,
    checked: bool = True,
    options: dict[str, int] | None = None,
) -> results.Entry:
    """One measurement in a fresh process."""
    kept = any(
        problem.name in (other.name, other.model) for other in PROBLEMS.values() if other.model
    )
    task = Task(
        problem=problem.name,
        library=library,
        form=form,
        limit=limit,
        model_file=str(_model_file(problem, library, form, settings)) if kept else None,
        options=options or {},
        checked=checked,
        tiny=settings.tiny,
        generated=settings.generated,
    )
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.worker"],
        check=False,  # a failure is recorded, and the run goes on
        input=json.dumps(asdict(task)),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=dict(os.environ),
    )
    answer: results.Entry
    if done.returncode == 0:
        answer = json.loads(done.stdout.splitlines()[-1])
        text = f"{answer['seconds']:.3f} s"
    else:
        if done.returncode == -signal.SIGALRM:
            text = f"given up after {limit:.0f} s"
        else:
            text = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        answer = {"form": form, "error": text}
    _say(f"  {label:13} {LIBRARIES[library].title:{WIDEST}} {form:14} {text}")
    return answer


def _forms(problem: Problem, settings: Settings) -> list[str]:
    return [form for form in problem.forms if form in settings.forms] or list(problem.forms)


def _fastest(trials: list[results.Entry]) -> str | None:
    good = [t for t in trials if "error" not in t]
    return min(good, key=lambda t: float(t["seconds"]))["form"] if good else None


def _count(problem: Problem, library: str, settings: Settings, least: int = 1) -> int:
    """Number of repeats: as asked for, else as the problem says, but not below ``least``."""
    default = settings.repeats.get("", max(least, problem.repeats.get(library, 1)))
    return settings.repeats.get(library, default)


def _model_file(problem: Problem, library: str, form: str, settings: Settings) -> Path:
    return settings.scratch / f"{problem.model or problem.name}-{library}-{form}.pickle"


def _fit_was_given_up(problem: Problem, library: str, form: str, settings: Settings) -> bool:
    """The fits ran before in this run, but left no model in this form."""
    kept = [_model_file(problem, library, f, settings).exists() for f in problem.forms]
    return any(kept) and not _model_file(problem, library, form, settings).exists()


def _reused(problem: Problem, library: str, settings: Settings) -> results.Entry:
    file = results.path(problem.name, settings.reuse_folder)
    if not file.exists():
        raise SystemExit(f"--reuse {library}: there is no {file}")
    old = results.load(file)
    same_size = (old["run"]["tiny"], old["run"]["generated"]) == (settings.tiny, settings.generated)
    if not same_size or old["problem"] != json.loads(json.dumps(problem.describe())):
        raise SystemExit(f"--reuse {library}: {file} is of a different problem; measure again")
    if library not in old["libraries"]:
        raise SystemExit(f"--reuse {library}: {file} has no result of it")
    entry: results.Entry = old["libraries"][library]
    entry["from_run"] = entry["from_run"] or old["run"]["started"]
    entry["from_machine"] = entry.get("from_machine") or old["machine"]
    _say(f"  reused        {LIBRARIES[library].title:{WIDEST}} of {entry['from_run']}")
    return entry


def _repeats(given: list[str]) -> dict[str, int]:
    """``["3", "sklearn=1"]`` -> ``{"": 3, "sklearn": 1}``."""
    counts = {}
    for text in given:
        library, _, count = text.rpartition("=")
        if library and library not in LIBRARIES:
            raise SystemExit(f"--repeat {text}: no library {library!r}")
        counts[library] = int(count)
    return counts


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add: Any = parser.add_argument
    add("--only", action="append", choices=list(PROBLEMS), help="this problem (may be repeated)")
    add(
        "--kernel",
        nargs="+",
        choices=("rbf", "linear"),
        default=["rbf", "linear"],
        help="all problems with this kernel",
    )
    add("--libraries", nargs="+", choices=list(LIBRARIES), default=list(LIBRARIES))
    add("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="input forms to try")
    add("--repeat", action="append", default=[], metavar="N|LIBRARY=N", help="number of repeats")
    add(
        "--reuse",
        nargs="+",
        choices=list(LIBRARIES),
        default=[],
        metavar="LIBRARY",
        help="take these libraries' results from the existing files, marked as such",
    )
    add("--output", type=Path, help="folder of the result files (default: benchmarks/results)")
    add("--tiny", action="store_true", help="few rows: a check of the harness")
    add("--generated", action="store_true", help="made-up data instead of MARGRAVE_DATA")
    return parser


if __name__ == "__main__":
    sys.exit(main())
