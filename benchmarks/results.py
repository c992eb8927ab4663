"""Result files: one JSON per problem, and what can be concluded from it.

    {"problem": {...}, "run": {"started", "tiny", "generated"}, "machine": {...},
     "libraries": {name: {"form", "seconds" (median), "repeats": [measurement, ...],
                          "trials": [measurement or {"form", "error"}, ...],
                          "versions", "from_run"}},
     "objective_differences": {"a / b": {"primal", "dual"}}}

``from_run`` is the start of the run that measured the entry: None for this one. The trials of
LIBLINEAR's shortest run (`shortest.py`) have a "max_iter" and, relative to margrave's certificate,
an "excess". Libraries that solve for the weights of the features alone have no dual value.
"""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.adapters import LIBRARIES, SHORTEST
from benchmarks.linear_problems import GOALS_OF_SEVERAL
from benchmarks.problems import PROBLEMS

FOLDER = Path(__file__).parent / "results"
SAME_OBJECTIVE = 1e-3  # relative difference up to which two libraries solved the same problem
SAME_SCORES = 1e-3
SAME_PREDICTIONS = 1e-3  # difference of accuracy or R2 on rows held out

Entry = dict[str, Any]  # of one library
Results = dict[str, Any]  # of one problem


def path(problem: str, folder: Path = FOLDER) -> Path:
    return folder / f"{problem}.json"


def write(results: Results, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = path(results["problem"]["name"], folder)
    file.write_text(json.dumps(results, indent=1) + "\n")
    return file


def read(folder: Path = FOLDER) -> list[Results]:
    """All result files, in the order of the problems."""
    files = [path(name, folder) for name in PROBLEMS]
    return [load(file) for file in files if file.exists()]


def load(file: Path) -> Results:
    results: Results = json.loads(file.read_text())
    # Files from before there were other estimators do not name it.
    results["problem"].setdefault("estimator", "SVC")
    return results


def entry(trials: list[Entry], repeats: list[Entry]) -> Entry:
    """The measurements of one library on one problem; failed ones have an "error"."""
    good = [m for m in repeats if "error" not in m]
    return {
        "form": good[0]["form"] if good else None,
        "seconds": median(m["seconds"] for m in good) if good else None,
        "versions": good[0]["versions"] if good else {},
        "repeats": repeats,
        "trials": trials,
        "from_run": None,
    }


def measurements(entry: Entry) -> list[Entry]:
    return [m for m in entry["repeats"] if "error" not in m]


def has_failed(entry: Entry) -> bool:
    """Whether there is no result. That no run was near the optimum is one, though without time."""
    if measurements(entry):
        return False
    trials = entry["trials"]
    return bool(entry["repeats"]) or not trials or any("error" in trial for trial in trials)


def typical(entry: Entry) -> Entry:
    """The repeat whose time is the (upper) median."""
    good = sorted(measurements(entry), key=lambda m: float(m["seconds"]))
    return good[len(good) // 2]


def ratio(results: Results, rival: str) -> float | None:
    """How many times faster margrave is than ``rival``: quotient of the medians."""
    ours = results["libraries"].get("margrave", {}).get("seconds")
    theirs = results["libraries"].get(fastest(results, rival), {}).get("seconds")
    return float(theirs / ours) if ours and theirs else None


def fastest(results: Results, rival: str) -> str:
    """The name of the entry that stands for the rival: of several variants, that of least time."""
    seconds = {
        name: entry["seconds"]
        for name, entry in results["libraries"].items()
        if LIBRARIES[name].one_of == rival and entry["seconds"]
    }
    return min(seconds, key=seconds.__getitem__) if seconds else rival


def fell_short(entry: Entry) -> bool:
    """Whether fits with a certificate ended without reaching the tolerance: more time is needed."""
    extras = [m["extras"] for m in measurements(entry)]
    return any("gap" in e and e.get("converged") is False for e in extras)


def held_out(entry: Entry) -> dict[str, float]:
    """The figure of the rows held out, ``{name: median}``; empty if the problem has none."""
    figures = [m["checks"].get("held_out", {}) for m in measurements(entry)]
    return {name: median(f[name] for f in figures) for name in (figures[0] if figures else ())}


def kernel_values(entry: Entry) -> int | None:
    """What a typical fit computed, if the library counts."""
    if not measurements(entry):
        return None
    extras = typical(entry)["extras"]
    # Older files have only the counter of the last round.
    found = extras.get("kernel_values", extras.get("last_round", {}).get("kernel_values"))
    return None if found is None else int(found)


def passes(entry: Entry) -> float | None:
    """How often a typical fit went through the data, if the library counts."""
    found = typical(entry)["extras"].get("passes") if measurements(entry) else None
    return None if found is None else float(found)


def gap(entry: Entry) -> float | None:
    """The gap that a typical fit claims, if the library certifies."""
    found = typical(entry)["extras"].get("gap") if measurements(entry) else None
    return None if found is None else float(found)


def certified_bound(found: list[Entry]) -> float | None:
    """The highest lower bound of the optimum: a value -D at a point of the dual."""
    duals = [m["checks"]["dual"] for m in found if "dual" in m.get("checks", {})]
    return -min(duals) if duals else None


def objective_differences(libraries: dict[str, Entry]) -> dict[str, dict[str, float]]:
    """Relative differences of primal and dual objective between all pairs of libraries."""
    values = {
        name: {
            key: median(m["checks"][key] for m in measurements(entry))
            for key in ("primal", "dual")
            if key in measurements(entry)[0]["checks"]
        }
        for name, entry in libraries.items()
        if measurements(entry) and "primal" in measurements(entry)[0]["checks"]
    }
    return {
        f"{a} / {b}": {
            key: abs(values[a][key] - values[b][key]) / max(abs(values[a][key]), 1e-300)
            for key in values[a]
            if key in values[b]
        }
        for a, b in combinations(values, 2)
    }


def _lower(pair: str, results: Results) -> str:
    """Say whose primal value is the lower, that is the better one."""
    primal = {
        name: median(m["checks"]["primal"] for m in measurements(results["libraries"][name]))
        for name in pair.split(" / ")
    }
    return (
        f"; {LIBRARIES[min(primal, key=primal.__getitem__)].title} reached the lower primal value"
    )


def concerns(results: Results) -> list[str]:
    """Everything that a reader of the figures must know."""
    found = []
    for name, entry in results["libraries"].items():
        title = LIBRARIES[name].title
        good = measurements(entry)
        if not good and not has_failed(entry):
            found.append(f"{title}: there is none")
        elif not good:
            found.append(f"{title}: no result ({_first_error(entry)})")
        elif len(good) < len(entry["repeats"]):
            found.append(f"{title}: a repeat failed ({_first_error(entry)})")
        if entry["from_run"]:
            found.append(f"{title}: measured in another run, {entry['from_run']}")
        if fell_short(entry):
            worst = max(m["extras"]["gap"] for m in good)
            found.append(f"{title}: not converged, gap {worst:.1e}")
        elif name != SHORTEST and any(m["extras"].get("converged") is False for m in good):
            count = good[0]["extras"]["max_iter"]
            found.append(f"{title}: not converged within its {count:,} iterations")
        slack = 0.01 * results["problem"].get("tol", 1e-3)  # rounding of the data and of the sums
        for m in good:
            claimed, checked = m["extras"].get("gap"), m["checks"].get("gap")
            if claimed is not None and checked is not None and checked > 1.5 * claimed + slack:
                found.append(f"{title}: claims a gap of {claimed:.1e}, the check {checked:.1e}")
                break
        if any(m["extras"].get("fell_back") for m in good):
            found.append(f"{title}: fell back to scikit-learn")
        if any(m["checks"].get("score_error", 0.0) > SAME_SCORES for m in good):
            found.append(f"{title}: scores differ from its model's by more than {SAME_SCORES:g}")
        # The dual variables of machines without C are bounded by 1, or not at all.
        if any(_infeasible(m, results["problem"].get("C", 1.0)) for m in good):
            found.append(f"{title}: dual variables outside their constraints")
    for pair, difference in results["objective_differences"].items():
        worst = max(difference.values())
        if worst > SAME_OBJECTIVE:
            found.append(f"objectives differ by {worst:.1e} ({pair}){_lower(pair, results)}")
        for figure, apart in _held_out_differences(pair, results).items():
            if apart > SAME_PREDICTIONS:
                found.append(f"{figure} on the rows held out differs by {apart:.1e} ({pair})")
    if results["run"]["tiny"] or results["run"]["generated"]:
        found.append("a check of the harness, not a measurement")
    return found


def _held_out_differences(pair: str, results: Results) -> dict[str, float]:
    a, b = (held_out(results["libraries"][name]) for name in pair.split(" / "))
    return {name: abs(a[name] - b[name]) for name in a if name in b}


def _infeasible(measurement: Entry, C: float) -> bool:
    checks = measurement["checks"]
    return bool(checks.get("above_C", 0.0) > 1e-4 * C or checks.get("imbalance", 0.0) > 1e-4)


def _first_error(entry: Entry) -> str:
    errors = [m["error"] for m in entry["repeats"] + entry["trials"] if "error" in m]
    return errors[0] if errors else "not measured"


def goals(results: Results) -> list[tuple[str, bool]]:
    """Each goal of the problem and whether it was reached."""
    found = []
    ours = results["libraries"].get("margrave", entry([], []))
    for rival, wanted in results["problem"]["goals"].items():
        got, name = ratio(results, rival), fastest(results, rival)
        text = f"{LIBRARIES[name].title}: {got:.1f}x" if got else f"{rival}: not measured"
        reached = got is not None and got >= wanted and not fell_short(ours)
        found.append((f"{text}, goal {wanted:g}x", reached))
    limit = results["problem"]["memory_goal"]
    good = measurements(ours)
    if limit:
        peak = max((m["memory_beyond_data"] for m in good), default=None)
        worst = max((m["extras"]["gap"] for m in good), default=None)
        text = "not measured" if peak is None else f"{peak / 2**30:.2f} GiB, gap {worst:.1e}"
        reached = peak is not None and peak < limit and worst is not None and worst <= 1e-3
        found.append((f"memory: {text}, goal below {limit / 2**30:g} GiB, gap 1e-3", reached))
    return found


def goals_of_several(all_results: list[Results]) -> list[tuple[str, bool]]:
    """Each goal that one of several problems has to reach, if any of them was measured."""
    by_name = {r["problem"]["name"]: r for r in all_results}
    found = []
    for goal in GOALS_OF_SEVERAL:
        measured = [by_name[name] for name in goal.problems if name in by_name]
        ratios = [
            ratio(r, goal.rival) or 0.0
            for r in measured
            if not fell_short(r["libraries"].get("margrave", entry([], [])))
        ]
        if measured:
            best = max(ratios, default=0.0)
            text = (
                f"one of {', '.join(goal.problems)}: {LIBRARIES[goal.rival].title}: {best:.1f}x, "
                f"goal {goal.faster:g}x"
            )
            found.append((text, best >= goal.faster))
    return found
