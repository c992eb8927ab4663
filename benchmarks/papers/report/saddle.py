"""The page of Saddle-SVC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.papers import published, saddle
from benchmarks.papers.common import FOLDER, Results, Table, last, markdown, read
from benchmarks.papers.picture import draw_ways
from benchmarks.papers.published import Numbers
from benchmarks.papers.report.cells import (
    accuracy_of,
    brief,
    ending,
    seconds_of,
    shape,
    shown,
    why_not,
)


def text(folder: Path = FOLDER) -> str:
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
    parts += ending(saddle.PAPER, everything)
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


PICTURES = {
    "figure1": Picture(saddle.FIGURE_1, tuple(saddle.FIGURE_1.datasets[:4])),
    "figure2": Picture(saddle.FIGURE_1, tuple(saddle.FIGURE_1.datasets[4:])),
    "figure3": Picture(saddle.FIGURE_3, saddle.FIGURE_3.datasets, saddle.NODES),
    "figure4": Picture(saddle.FIGURE_4, saddle.FIGURE_4.datasets, saddle.NODES),
}


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
                    seconds_of(entry) if one else why_not(entry),
                    shown(None if objective is None else (2.0 * objective) ** 0.5, ".4g"),
                    shown(one.get("full_gap"), ".1e"),
                    accuracy_of(entry),
                    shown(one.get("iterations"), ","),
                    shown(seconds, ",g"),
                    shown(accuracy, ".1f"),
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
                cells.append("-" if points is None else brief(points))
            rows.append(
                [
                    _with_rows(name, results) if method == table.methods[0] else "",
                    *cells,
                    shown(one.get("iterations"), ","),
                    "-" if sent_by_all is None else brief(sent_by_all / unit),
                    shown(one.get("full_gap"), ".1e"),
                    accuracy_of(entry) if one else why_not(entry),
                ]
            )
    return markdown(head, rows)


def _with_rows(name: str, results: Results | None) -> str:
    title = saddle.PAPER.datasets[name].title
    return title if " x " in title else f"{title} ({shape(results)})"


def _ways(names: Sequence[str], folder: Path) -> list[str]:
    parts = []
    for name in names:
        picture = PICTURES[name]
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


def pictures(folder: Path, output: Path) -> None:
    """The ways to the distance of the hulls."""
    titles = {name: method.title for name, method in saddle.PAPER.methods.items()}
    for name, picture in PICTURES.items():
        found = picture.read(folder)
        if found:
            found = {
                each: {**results, "methods": saddle.with_best_beta(results["methods"])}
                for each, results in found.items()
            }
            chosen = {method: titles[method] for method in picture.table.methods}
            draw_ways(found, chosen, picture.nodes, output / f"saddle-{name}.png")
