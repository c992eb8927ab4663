"""Grids of C and gamma: Tables 7, 9 and 10 of the DC-SVM paper, and their sums, Table 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.papers.common import measured_apart
from benchmarks.papers.dcsvm import DATASETS, LEVELS, METHODS
from benchmarks.papers.published_grids import GRIDS
from benchmarks.papers.study import TIMED, Found, Study
from benchmarks.papers.worker import Task, facts, first, measure

LIMIT, TOL = 60.0, 1e-3  # seconds of a fit, and the gap at which it ends
ROWS = {"ijcnn1": None, "covtype": 20_000, "census": 20_000}  # None: all
NEW_ROWS = 10_000  # to test where seconds are measured: LIBSVM takes minutes for all
TABLES = {"ijcnn1": 7, "covtype": 9, "census": 10}
OURS = {f"early-{list(LEVELS)[1]}": "DC-SVM (early)", "dc": "DC-SVM", "exact": "margrave exact"}
EXACT = ("dc", "exact")
RIVAL = "libsvm"
NARROW = 10  # log2 of the gamma of the narrowest kernel
LEAST_ZERO = 0.01  # share of scores that are zero, from which on it is mentioned


def case_of(C: int, gamma: int) -> str:
    """The name of a setting, of the logarithms of its parameters."""
    return f"2^{C}, 2^{gamma}"


SETTINGS = {case_of(*logs): logs for logs in GRIDS["ijcnn1"]}


def _parameters(case: str) -> dict[str, float]:
    C, gamma = SETTINGS[case]
    return {"C": 2.0**C, "gamma": 2.0**gamma}


def counts(case: str, quick: bool, name: str) -> dict[str, Any]:
    """Kernel values, gap and accuracy of our methods."""
    dataset = DATASETS[name]
    data = dataset.load(quick).in_form(dataset.forms["margrave"])
    data = first(data, 200 if quick else ROWS[name])
    found: dict[str, Any] = {"rows": len(data.y), "ways": {}}
    for method in OURS:
        model = METHODS[method].make(_parameters(case)).set_params(time_limit=LIMIT)
        told = facts(model.fit(data.X, data.y))
        found["ways"][method] = {
            "accuracy": 100.0 * float(model.score(data.X_new, data.y_new)),
            "zero": float(np.mean(model.decision_function(data.X_new) == 0.0)),
            "kernel_values": told["kernel_values"],
            "gap": told["gap"],
            "support": len(model.support_),
        }
    return found


def seconds(case: str, quick: bool, name: str) -> dict[str, Any]:
    """Seconds of our methods and of LIBSVM, each in a process of its own."""
    found: dict[str, Any] = {}
    for method in (*OURS, RIVAL):
        task = {
            "paper": "dcsvm",
            "dataset": name,
            "method": method,
            "parameters": _parameters(case),
            "rows": 200 if quick else ROWS[name],
            "limit": LIMIT,
            "new_rows": NEW_ROWS,
            "generated": quick,
        }
        one = measure(Task(**task)) if quick else measured_apart(task)
        kept = ("seconds", "predict_seconds", "accuracy", "error")
        found[method] = {key: one[key] for key in kept if key in one}
    return found


def _rows(case: str, found: Found, name: str) -> list[list[str]]:
    row = []
    for method in OURS:
        one = found["ways"][method]
        stopped = one["gap"] is not None and one["gap"] > TOL and method in EXACT
        cell = f"{one['accuracy']:.2f}, {one['kernel_values']:.2e}" + _spent(found, method)
        row.append(cell + (f" (gap {one['gap']:.0e})" if stopped else ""))
    rival = found[TIMED].get(RIVAL, {})
    accuracy = f"{rival['accuracy']:.2f}" if "accuracy" in rival else ""
    row.append((accuracy + _spent(found, RIVAL)).removeprefix(", ") or "-")
    printed = GRIDS[name][SETTINGS[case]]
    for theirs, spent in zip(printed[::2], printed[1::2], strict=True):
        row.append("-" if theirs is None else f"{theirs:g}, {spent:,g} s")
    return [row]


def _spent(found: Found, method: str) -> str:
    """Seconds, or that they exceed the limit; nothing if they have not been measured."""
    one = found[TIMED].get(method, {})
    if "error" in one:
        return f", more than {LIMIT:g} s"
    return f", {one['seconds']:.3g} s" if "seconds" in one else ""


def _below(cases: Mapping[str, Found], name: str) -> str:
    """Sums over the settings, as far as all methods have been measured."""
    ways = {way: [found["ways"][way] for found in cases.values()] for way in OURS}
    values = {way: sum(one["kernel_values"] for one in told) for way, told in ways.items()}
    fewer = sum(
        a["kernel_values"] < b["kernel_values"]
        for a, b in zip(ways["dc"], ways["exact"], strict=True)
    )
    text = f"Table 4, kernel values of the {len(cases)} settings measured: " + ", ".join(
        f"{title} {values[way]:.3g}" for way, title in OURS.items()
    )
    text += f"; DC-SVM computes fewer than the exact solver without clusters in {fewer}."
    zero = max(
        (
            one.get("zero", 0.0)
            for case, found in cases.items()
            if SETTINGS[case][1] == NARROW
            for one in found["ways"].values()
        ),
        default=0.0,
    )
    if zero > LEAST_ZERO:
        text += (
            f" With gamma = 2^{NARROW} scores of up to {zero:.0%} of the new rows were exactly"
            " zero, because all kernel values are too small for single precision, and these rows"
            " were predicted to be of the second class. By now such scores get their sign from"
            " double precision; accuracies have not been measured again since."
        )
    timed = [found[TIMED] for found in cases.values() if found[TIMED]]
    if timed:
        finished = [one for one in timed if all("error" not in each for each in one.values())]
        sums = {way: sum(one[way]["seconds"] for one in finished) for way in (*OURS, RIVAL)}
        faster = sum(
            one["dc"].get("seconds", LIMIT) < one[RIVAL].get("seconds", LIMIT) for one in timed
        )
        text += f" Seconds, of the {len(finished)} that all of them finish: " + ", ".join(
            f"{title} {sums[way]:.3g}" for way, title in {**OURS, RIVAL: "LIBSVM"}.items()
        )
        text += f"; DC-SVM is faster than LIBSVM in {faster} of {len(timed)}."
    return text


def _study(name: str) -> Study:
    rows = "All rows" if ROWS[name] is None else f"The first {ROWS[name]:,} rows (the paper: all)"

    def bound(function: Callable[..., Any]) -> Any:
        return partial(function, name=name)

    return Study(
        f"Table {TABLES[name]}: C and gamma on {name}",
        f"{rows}: accuracy on all test rows (%), kernel values, and seconds where they have been"
        f" measured. A fit is stopped after {LIMIT:g} s, with its gap in brackets. Early models"
        " have 64 clusters. LIBSVM's accuracy is that of the first"
        f" {NEW_ROWS:,} test rows. The last three columns are the paper's.",
        tuple(SETTINGS),
        bound(counts),
        (
            *("C, gamma", *OURS.values(), "LIBSVM"),
            *("paper: early", "paper: DC-SVM", "paper: LIBSVM"),
        ),
        bound(_rows),
        seconds=bound(seconds),
        below=bound(_below),
    )


STUDIES = {f"dcsvm-grid-{name}": _study(name) for name in GRIDS}
