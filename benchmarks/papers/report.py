"""The tables and pictures of docs/papers, from result files.

    python -m benchmarks.papers.report [FOLDER]

What is between the marks of a page is written here; the words around it are written by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.marks import placed
from benchmarks.papers import dcsvm, pbm, published, saddle, sodm
from benchmarks.papers.common import (
    FOLDER,
    NO_ANSWER,
    ROOT,
    SIZES,
    Entry,
    Paper,
    Results,
    Table,
    conditions,
    last,
    markdown,
    read,
)
from benchmarks.papers.picture import Series, draw, draw_ways
from benchmarks.papers.published import Numbers

DOCS = ROOT / "docs" / "papers"

DCSVM_SERIES: Series = {
    "DC-SVM (256, 64, 16 clusters, all rows)": ["early-256", "early-64", "early-16", "dc"],
    "margrave exact": ["exact"],
    "LIBSVM (more and more rows)": ["libsvm"],
    "scikit-learn-intelex (more and more rows)": ["intelex"],
    "Cascade": ["cascade"],
    "Nystroem": ["nystroem"],
    "random features": ["random-features"],
}
DCSVM_EXACT: Series = {
    "DC-SVM (256, 64, 16 clusters, all rows)": ["dc"],
    "margrave exact": ["exact"],
}
SODM_SERIES: Series = {sodm.METHODS[name].title: [name] for name in sodm.ODM}
SODM_EXACT: Series = {
    title: methods for title, methods in SODM_SERIES.items() if title in ("ODM", "DC-ODM", "SODM")
}


def dcsvm_results(folder: Path = FOLDER) -> str:
    table_2 = read(dcsvm.PAPER, dcsvm.TABLE_2, folder)
    table_6 = read(dcsvm.PAPER, dcsvm.TABLE_6, folder)
    parts = ["## Times faster than LIBSVM", _ratios(table_2), "## Table 2"]
    for name, dataset in dcsvm.DATASETS.items():
        rows = f"{published.DCSVM_ROWS[name]:,}"
        parts.append(f"### {dataset.title}\n\n{_rows(table_2.get(name))} (the paper: {rows}).")
        parts.append(
            _table_2(dcsvm.PAPER, dcsvm.TABLE_2, table_2.get(name), published.DCSVM_TABLE_2[name])
        )
    parts += ["## Table 6: clusters against random parts", _table_6(table_2, table_6)]
    parts += _figure("dcsvm.png", table_2)
    parts += _end(dcsvm.PAPER, [*table_2.values(), *table_6.values()])
    return "\n\n".join(parts)


def pbm_results(folder: Path = FOLDER) -> str:
    found = read(pbm.PAPER, pbm.TABLE_2, folder)
    parts = ["## Table 2"]
    for name, dataset in pbm.DATASETS.items():
        parts.append(f"### {dataset.title}\n\n{_rows(found.get(name))}.")
        numbers = published.PBM_TABLE_2[name]
        parts.append(_table_2(pbm.PAPER, pbm.TABLE_2, found.get(name), numbers))
    return "\n\n".join([*parts, *_end(pbm.PAPER, list(found.values()))])


def sodm_results(folder: Path = FOLDER) -> str:
    tables = [
        ("Table 2: rbf kernel", sodm.TABLE_2, published.SODM_TABLE_2),
        ("Table 3: linear kernel", sodm.TABLE_3, published.SODM_TABLE_3),
        ("Table 4: support vector machines", sodm.TABLE_4, published.SODM_TABLE_4),
        ("Half a million rows, which the paper does not have", sodm.TABLE_LARGE, {}),
    ]
    parts: list[str] = []
    everything: list[Results] = []
    for title, table, numbers in tables:
        found = read(sodm.PAPER, table, folder)
        everything += list(found.values())
        parts += [f"## {title}", _strategies(table, found, numbers)]
        if table is sodm.TABLE_2:
            parts += _figure("sodm.png", found)
    parts += _end(sodm.PAPER, everything)
    return "\n\n".join(parts)


def saddle_results(folder: Path = FOLDER) -> str:
    tables = [
        ("Table 1: hard margin", saddle.TABLE_1, published.SADDLE_TABLE_1),
        ("Figures 1 and 2: nu from alpha = 0.85", saddle.FIGURE_1, {}),
        ("Table 3: smaller alphas", saddle.TABLE_3, published.SADDLE_TABLE_3),
        ("Table 4: other linear classifiers", saddle.TABLE_4, published.SADDLE_TABLE_4),
    ]
    parts: list[str] = []
    everything: list[Results] = []
    for title, table, numbers in tables:
        found = read(saddle.PAPER, table, folder)
        everything += list(found.values())
        parts += [f"## {title}", _hulls(table, found, numbers)]
        if table is saddle.FIGURE_1:
            parts += _ways(("figure1", "figure2"), folder)
    parts.append("## Figures 3, 4 and 6: twenty nodes, and what they exchange")
    for table in (saddle.FIGURE_3, saddle.FIGURE_4):
        found = read(saddle.PAPER, table, folder)
        everything += list(found.values())
        parts += [_communication(table, found), *_ways((table.name,), folder)]
    parts += _end(saddle.PAPER, everything)
    return "\n\n".join(parts)


@dataclass(frozen=True)
class Picture:
    """Ways to the distance of hulls, as in one of the paper's figures."""

    table: Table
    datasets: tuple[str, ...]
    nodes: int = 0

    def read(self, folder: Path) -> dict[str, Results]:
        """The results of its data sets, as far as there are any."""
        found = read(saddle.PAPER, self.table, folder)
        return {name: found[name] for name in self.datasets if name in found}


SADDLE_PICTURES = {
    "figure1": Picture(saddle.FIGURE_1, tuple(saddle.FIGURE_1.datasets[:4])),
    "figure2": Picture(saddle.FIGURE_1, tuple(saddle.FIGURE_1.datasets[4:])),
    "figure3": Picture(saddle.FIGURE_3, saddle.FIGURE_3.datasets, saddle.NODES),
    "figure4": Picture(saddle.FIGURE_4, saddle.FIGURE_4.datasets, saddle.NODES),
}


# --- tables --------------------------------------------------------------------------------------


def _ratios(table_2: Mapping[str, Results]) -> str:
    """What the paper is about: LIBSVM's seconds over those of other methods."""
    shown = {"early-64": True, "dc": True, "exact": False}  # whether the paper has it
    head = ["data set"]
    for method, is_theirs in shown.items():
        head += [dcsvm.METHODS[method].title, *(["paper"] if is_theirs else [])]
    rows = []
    for name, dataset in dcsvm.DATASETS.items():
        numbers, row = published.DCSVM_TABLE_2[name], [dataset.title]
        methods = table_2[name]["methods"] if name in table_2 else {}
        for method, is_theirs in shown.items():
            row.append(_ratio(methods.get("libsvm"), methods.get(method)))
            if is_theirs:
                slow, fast = (numbers[either][0] for either in ("libsvm", method))
                row.append(f"{slow / fast:.1f}x" if slow and fast else "-")
        rows.append(row)
    return markdown(head, rows)


def _ratio(slow: Entry | None, fast: Entry | None) -> str:
    theirs, ours = _whole_seconds(slow), _whole_seconds(fast)
    if theirs is None or ours is None:
        return "-"
    about = "~" if slow is not None and slow["extrapolated"] else ""
    return f"{about}{theirs / ours:.3g}x"


def _table_2(
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
                _seconds(entry),
                _accuracy(entry),
                _number(seconds, ",g"),
                _number(accuracy, ".2f"),
                _number(found.get("predict_seconds"), ".3g"),
                _gap(found),
                _number(found.get("support_vectors"), ","),
                _number(found.get("kernel_values"), ".2e"),
            ]
        )
    return markdown(head, rows)


def _table_6(table_2: Mapping[str, Results], table_6: Mapping[str, Results]) -> str:
    """The early models are those of Table 2."""
    names = dcsvm.TABLE_6.datasets
    kinds = (("DC-SVM (early)", dcsvm.EARLY, table_2), ("bagging", dcsvm.BAGGING, table_6))
    head = ["k"]
    head += [text for name in names for kind in kinds for text in (f"{name}: {kind[0]}", "paper")]
    rows = []
    for k in dcsvm.LEVELS:
        row = [str(k)]
        for name in names:
            for _, methods, results in kinds:
                entry = results[name]["methods"].get(methods[k]) if name in results else None
                row.append(_accuracy(entry))
                row.append(_number(published.DCSVM_TABLE_6[name][methods[k]][1], ".2f"))
        rows.append(row)
    return markdown(head, rows)


def _strategies(table: Table, found: Mapping[str, Results], numbers: Numbers) -> str:
    """A row for each data set and method, and the parameters below."""
    work = "passes over the data" if table is sodm.TABLE_3 else "kernel values"
    head = ["data set", "method", "seconds", "accuracy (%)", "gap", work]
    head += ["paper: seconds", "paper: accuracy (%)"]
    rows, chosen = [], []
    for name in table.datasets:
        results = found.get(name)
        title = sodm.PAPER.datasets[name].title
        for method in table.methods:
            entry = results["methods"].get(method) if results else None
            one = last(entry) or {}
            seconds, accuracy = numbers.get(name, {}).get(method, (None, None))
            rows.append(
                [
                    title if method == table.methods[0] else "",
                    sodm.METHODS[method].title,
                    _seconds(entry),
                    _accuracy(entry),
                    _number(one.get("full_gap"), ".1e"),
                    _number(one.get("passes"), ".0f")
                    if table is sodm.TABLE_3
                    else _number(one.get("kernel_values"), ".2e"),
                    _number(seconds, ",g"),
                    _number(accuracy, ".1f"),
                ]
            )
        if results:
            values = ", ".join(f"{key}={value:g}" for key, value in results["parameters"].items())
            chosen.append(f"{title} {_rows(results)}, {values}")
    parameters = f"\n\nParameters: {'; '.join(chosen)}." if chosen else ""
    return markdown(head, rows) + parameters


def _hulls(table: Table, found: Mapping[str, Results], numbers: Numbers) -> str:
    """A row for each data set and method; the distance is that of the hulls, |z|."""
    head = ["data set", "method", "seconds", "distance", "gap", "accuracy (%)", "rounds"]
    head += ["paper: seconds", "paper: accuracy (%)"]
    rows = []
    for name in table.datasets:
        results = found.get(name)
        methods = saddle.with_best_beta(results["methods"]) if results else {}
        for number, (method, entry) in enumerate(methods.items()):
            one = last(entry) or {}
            objective = one.get("objective")
            # what the paper prints is for the best beta
            printed = "hard-published-saddle" if "-published-saddle-" in method else method
            seconds, accuracy = numbers.get(name, {}).get(printed, (None, None))
            rows.append(
                [
                    _with_rows(name, results) if number == 0 else "",
                    saddle.PAPER.methods[method].title,
                    _seconds(entry) if one else _why_not(entry),
                    _number(None if objective is None else (2.0 * objective) ** 0.5, ".4g"),
                    _number(one.get("full_gap"), ".1e"),
                    _accuracy(entry),
                    _number(one.get("iterations"), ","),
                    _number(seconds, ",g"),
                    _number(accuracy, ".1f"),
                ]
            )
    return markdown(head, rows)


def _communication(table: Table, found: Mapping[str, Results]) -> str:
    """Numbers exchanged until a gap, in the paper's unit: a point from every node, k d numbers."""
    gaps = (1e-1, 1e-2, 1e-3)
    head = ["data set", "method", *(f"to a gap of {gap:g}" for gap in gaps)]
    head += ["rounds", "all", "last gap", "accuracy (%)"]
    rows = []
    for name in table.datasets:
        results = found.get(name)
        for method in table.methods:
            entry = results["methods"].get(method) if results else None
            one = last(entry) or {}
            sent_by_all = one.get("numbers")
            unit = saddle.NODES * one.get("features", 1)
            cells = [saddle.PAPER.methods[method].title]
            for gap in gaps:
                points = saddle.points_until(one, gap) if sent_by_all is not None else None
                cells.append("-" if points is None else _brief(points))
            rows.append(
                [
                    _with_rows(name, results) if method == table.methods[0] else "",
                    *cells,
                    _number(one.get("iterations"), ","),
                    "-" if sent_by_all is None else _brief(sent_by_all / unit),
                    _number(one.get("full_gap"), ".1e"),
                    _accuracy(entry) if one else _why_not(entry),
                ]
            )
    return markdown(head, rows)


def _with_rows(name: str, results: Results | None) -> str:
    title = saddle.PAPER.datasets[name].title
    return title if " x " in title else f"{title} ({_rows(results)})"


def _why_not(entry: Entry | None) -> str:
    """Why a method has no seconds, in a word; the whole reason is a note below."""
    errors = [run["error"] for run in (entry or {}).get("runs", []) if "error" in run]
    if not errors:
        return "-"
    return "hulls overlap" if NO_ANSWER in errors[-1] else "given up"


# --- cells ---------------------------------------------------------------------------------------


def _whole_seconds(entry: Entry | None) -> float | None:
    """Seconds for all rows, measured or extrapolated."""
    found = last(entry)
    if entry is None or found is None:
        return None
    if entry["extrapolated"]:
        return float(entry["extrapolated"]["seconds"])
    return float(found["seconds"]) if found["rows"] == found["whole_rows"] else None


def _seconds(entry: Entry | None) -> str:
    found = last(entry)
    if entry is None or found is None:
        return "-"
    if entry["extrapolated"]:
        return f"~{_brief(entry['extrapolated']['seconds'])}"
    return _brief(found["seconds"])


def _brief(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _accuracy(entry: Entry | None) -> str:
    found = last(entry)
    if found is None:
        return "-"
    fewer = found["rows"] < found["whole_rows"]
    return f"{found['accuracy']:.2f}" + (f" ({found['rows']:,} rows)" if fewer else "")


def _gap(found: Entry) -> str:
    text = _number(found.get("gap"), ".1e")
    return f"{text} (clusters)" if found.get("certificate") == "blocks" else text


def _number(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


def _rows(results: Results | None) -> str:
    for entry in results["methods"].values() if results else ():
        found = last(entry)
        if found is not None:
            return f"{found['whole_rows']:,} x {found['features']:,}"
    return "Not measured"


# --- tables of the papers ------------------------------------------------------------------------


def as_printed(paper: str) -> list[str]:
    """Tables of which nothing here has all columns, as the paper prints them."""
    return [
        f"## As printed: {title}\n\n{markdown(list(head), [list(row) for row in rows])}"
        for title, head, rows in published.AS_PRINTED.get(paper, ())
    ]


# --- what surrounds them -------------------------------------------------------------------------


def _figure(file: str, found: Mapping[str, Results]) -> list[str]:
    if not found:
        return []
    caption = (
        "Test accuracy and, for methods that solve the whole problem, its relative duality gap over"
        " the seconds of the fit."
    )
    return [f"![accuracy and gap over seconds]({file})", caption]


def _ways(names: Sequence[str], folder: Path) -> list[str]:
    parts = []
    for name in names:
        picture = SADDLE_PICTURES[name]
        if picture.read(folder):
            over, points = "the seconds of the fit", "each point is a separate fit, stopped after"
            points += " a number of rounds"
            if picture.nodes:
                over, points = "what nodes and driver exchange", "the points of one fit's history"
            parts.append(f"![accuracy and distance, {name}](saddle-{name}.png)")
            parts.append(
                f"Test accuracy and distance of the hulls over {over}: {points}. Dotted: the"
                " largest certified lower bound."
            )
    return parts


def _end(paper: Paper, everything: Sequence[Results]) -> list[str]:
    """Conditions, and all that a reader of the figures must know."""
    if not everything:
        return ["Nothing has been measured yet."]
    notes = [
        f"- {results['dataset']['title']}, {paper.methods[name].title}: {note}"
        for results in everything
        for name, entry in results["methods"].items()
        for note in _notes(paper, name, entry)
    ]
    to_consider = ["## Notes", "\n".join(notes)] if notes else []
    return [*as_printed(paper.name), *to_consider, "## Conditions", conditions(everything)]


def _notes(paper: Paper, name: str, entry: Entry) -> list[str]:
    if "skipped" in entry:
        return [entry["skipped"]]
    notes = [run["error"] for run in entry["runs"] if "error" in run]
    found = last(entry)
    if found is None:
        return notes
    if entry["extrapolated"]:
        good = [run for run in entry["runs"] if "error" not in run]
        sizes = ", ".join(f"{run['rows']:,} rows {_brief(run['seconds'])} s" for run in good)
        notes.append(f"{sizes}; exponent {entry['extrapolated']['exponent']:.2f}")
    elif paper.methods[name].rows == SIZES and found["rows"] < found["whole_rows"]:
        notes.append(f"measured with {found['rows']:,} rows only")
    if any("time_limit" in text for text in found["warnings"]):
        notes.append(f"stopped by its time limit at a gap of {_number(found.get('gap'), '.1e')}")
    return notes


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.report", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--output", type=Path, default=DOCS, help="default: docs/papers")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    pages = {
        "dcsvm.md": dcsvm_results(options.folder),
        "pbm.md": pbm_results(options.folder),
        "sodm.md": sodm_results(options.folder),
        "saddle.md": saddle_results(options.folder),
    }
    for name, text in pages.items():
        (options.output / name).write_text(placed((DOCS / name).read_text(), text))
    found = read(dcsvm.PAPER, dcsvm.TABLE_2, options.folder)
    if found:
        draw(found, DCSVM_SERIES, DCSVM_EXACT, options.output / "dcsvm.png")
    found = read(sodm.PAPER, sodm.TABLE_2, options.folder)
    if found:
        draw(found, SODM_SERIES, SODM_EXACT, options.output / "sodm.png")
    titles = {name: method.title for name, method in saddle.PAPER.methods.items()}
    for name, picture in SADDLE_PICTURES.items():
        found = picture.read(options.folder)
        if found:
            found = {
                each: {**results, "methods": saddle.with_best_beta(results["methods"])}
                for each, results in found.items()
            }
            shown = {method: titles[method] for method in picture.table.methods}
            draw_ways(found, shown, picture.nodes, options.output / f"saddle-{name}.png")


if __name__ == "__main__":
    main()
