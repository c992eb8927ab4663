"""Cells of tables, and what surrounds the tables of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.papers import published
from benchmarks.papers.common import (
    NO_ANSWER,
    SIZES,
    Entry,
    Paper,
    Results,
    Table,
    conditions,
    last,
    markdown,
)

# --- cells ---------------------------------------------------------------------------------------


def whole_seconds(entry: Entry | None) -> float | None:
    """Seconds for all rows, measured or extrapolated."""
    found = last(entry)
    if entry is None or found is None:
        return None
    if entry["extrapolated"]:
        return float(entry["extrapolated"]["seconds"])
    return float(found["seconds"]) if found["rows"] == found["whole_rows"] else None


def seconds_of(entry: Entry | None) -> str:
    found = last(entry)
    if entry is None or found is None:
        return "-"
    if entry["extrapolated"]:
        return f"~{brief(entry['extrapolated']['seconds'])}"
    return brief(found["seconds"])


def brief(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def accuracy_of(entry: Entry | None) -> str:
    found = last(entry)
    if found is None:
        return "-"
    fewer = found["rows"] < found["whole_rows"]
    return f"{found['accuracy']:.2f}" + (f" ({found['rows']:,} rows)" if fewer else "")


def gap_of(found: Entry) -> str:
    text = shown(found.get("gap"), ".1e")
    return f"{text} (clusters)" if found.get("certificate") == "blocks" else text


def shown(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


def shape(results: Results | None) -> str:
    for entry in results["methods"].values() if results else ():
        found = last(entry)
        if found is not None:
            return f"{found['whole_rows']:,} x {found['features']:,}"
    return "Not measured"


def why_not(entry: Entry | None) -> str:
    """Why a method has no seconds, in a word; the whole reason is a note below."""
    errors = [run["error"] for run in (entry or {}).get("runs", []) if "error" in run]
    if not errors:
        return "-"
    return "hulls overlap" if NO_ANSWER in errors[-1] else "given up"


# --- tables --------------------------------------------------------------------------------------


def by_method(
    paper: Paper,
    table: Table,
    results: Results | None,
    numbers: Mapping[str, tuple[float | None, float | None]],
) -> str:
    head = ["method", "seconds", "accuracy (%)", "paper: seconds", "paper: accuracy (%)"]
    head += ["scores (seconds)", "gap", "support vectors", "kernel values"]
    rows = []
    for method in table.methods:
        entry = results["methods"].get(method) if results else None
        found = last(entry) or {}
        seconds, accuracy = numbers.get(method, (None, None))
        rows.append(
            [
                paper.methods[method].title,
                seconds_of(entry),
                accuracy_of(entry),
                shown(seconds, ",g"),
                shown(accuracy, ".2f"),
                shown(found.get("predict_seconds"), ".3g"),
                gap_of(found),
                shown(found.get("support_vectors"), ","),
                shown(found.get("kernel_values"), ".2e"),
            ]
        )
    return markdown(head, rows)


def as_printed(paper: str) -> list[str]:
    """Tables of which nothing here has all columns, as the paper prints them."""
    return [
        f"## As printed: {title}\n\n{markdown(list(head), [list(row) for row in rows])}"
        for title, head, rows in published.AS_PRINTED.get(paper, ())
    ]


# --- what surrounds them -------------------------------------------------------------------------


def figure(file: str, found: Mapping[str, Results]) -> list[str]:
    if not found:
        return []
    caption = (
        "Test accuracy and, for methods that solve the whole problem, its relative duality gap over"
        " the seconds of the fit."
    )
    return [f"![accuracy and gap over seconds]({file})", caption]


def ending(paper: Paper, everything: Sequence[Results]) -> list[str]:
    """Conditions, and all that a reader of the figures must know."""
    if not everything:
        return ["Nothing has been measured yet."]
    notes = [
        f"- {results['dataset']['title']}, {paper.methods[name].title}: {note}"
        for results in everything
        for name, entry in results["methods"].items()
        for note in notes_of(paper, name, entry)
    ]
    to_consider = ["## Notes", "\n".join(notes)] if notes else []
    return [*as_printed(paper.name), *to_consider, "## Conditions", conditions(everything)]


def notes_of(paper: Paper, name: str, entry: Entry) -> list[str]:
    if "skipped" in entry:
        return [entry["skipped"]]
    notes = [run["error"] for run in entry["runs"] if "error" in run]
    found = last(entry)
    if found is None:
        return notes
    if entry["extrapolated"]:
        good = [run for run in entry["runs"] if "error" not in run]
        sizes = ", ".join(f"{run['rows']:,} rows {brief(run['seconds'])} s" for run in good)
        notes.append(f"{sizes}; exponent {entry['extrapolated']['exponent']:.2f}")
    elif paper.methods[name].rows == SIZES and found["rows"] < found["whole_rows"]:
        notes.append(f"measured with {found['rows']:,} rows only")
    if any("time_limit" in text for text in found["warnings"]):
        notes.append(f"stopped by its time limit at a gap of {shown(found.get('gap'), '.1e')}")
    return notes
