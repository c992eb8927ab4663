"""The page of SODM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.papers import published, sodm
from benchmarks.papers.common import FOLDER, Results, Table, last, markdown, read
from benchmarks.papers.picture import Series, draw
from benchmarks.papers.published import Numbers
from benchmarks.papers.report.cells import (
    accuracy_of,
    ending,
    figure,
    seconds_of,
    shape,
    shown,
)

SERIES: Series = {sodm.METHODS[name].title: [name] for name in sodm.ODM}
EXACT: Series = {
    title: methods for title, methods in SERIES.items() if title in ("ODM", "DC-ODM", "SODM")
}


def text(folder: Path = FOLDER) -> str:
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
            parts += figure("sodm.png", found)
    parts += ending(sodm.PAPER, everything)
    return "\n\n".join(parts)


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
                    seconds_of(entry),
                    accuracy_of(entry),
                    shown(one.get("full_gap"), ".1e"),
                    shown(one.get("passes"), ".0f")
                    if table is sodm.TABLE_3
                    else shown(one.get("kernel_values"), ".2e"),
                    shown(seconds, ",g"),
                    shown(accuracy, ".1f"),
                ]
            )
        if results:
            values = ", ".join(f"{key}={value:g}" for key, value in results["parameters"].items())
            chosen.append(f"{title} {shape(results)}, {values}")
    parameters = f"\n\nParameters: {'; '.join(chosen)}." if chosen else ""
    return markdown(head, rows) + parameters


def pictures(folder: Path, output: Path) -> None:
    """Accuracy and gap over seconds."""
    found = read(sodm.PAPER, sodm.TABLE_2, folder)
    if found:
        draw(found, SERIES, EXACT, output / "sodm.png")
