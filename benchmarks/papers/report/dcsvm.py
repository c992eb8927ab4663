"""The page of DC-SVM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.papers import dcsvm, published
from benchmarks.papers.common import FOLDER, Entry, Results, markdown, read
from benchmarks.papers.picture import Series, draw
from benchmarks.papers.report.cells import (
    accuracy_of,
    by_method,
    ending,
    figure,
    shape,
    shown,
    whole_seconds,
)

SERIES: Series = {
    "DC-SVM (256, 64, 16 clusters, all rows)": ["early-256", "early-64", "early-16", "dc"],
    "margrave exact": ["exact"],
    "LIBSVM (more and more rows)": ["libsvm"],
    "scikit-learn-intelex (more and more rows)": ["intelex"],
    "Cascade": ["cascade"],
    "Nystroem": ["nystroem"],
    "random features": ["random-features"],
}
EXACT: Series = {
    "DC-SVM (256, 64, 16 clusters, all rows)": ["dc"],
    "margrave exact": ["exact"],
}


def text(folder: Path = FOLDER) -> str:
    table_2 = read(dcsvm.PAPER, dcsvm.TABLE_2, folder)
    table_6 = read(dcsvm.PAPER, dcsvm.TABLE_6, folder)
    parts = ["## Times faster than LIBSVM", _ratios(table_2), "## Table 2"]
    for name, dataset in dcsvm.DATASETS.items():
        rows = f"{published.DCSVM_ROWS[name]:,}"
        parts.append(f"### {dataset.title}\n\n{shape(table_2.get(name))} (the paper: {rows}).")
        parts.append(
            by_method(dcsvm.PAPER, dcsvm.TABLE_2, table_2.get(name), published.DCSVM_TABLE_2[name])
        )
    parts += ["## Table 6: clusters against random parts", _table_6(table_2, table_6)]
    parts += figure("dcsvm.png", table_2)
    parts += ending(dcsvm.PAPER, [*table_2.values(), *table_6.values()])
    return "\n\n".join(parts)


def _ratios(table_2: Mapping[str, Results]) -> str:
    """What the paper is about: LIBSVM's seconds over those of other methods."""
    asked = {"early-64": True, "dc": True, "exact": False}  # whether the paper has it
    head = ["data set"]
    for method, is_theirs in asked.items():
        head += [dcsvm.METHODS[method].title, *(["paper"] if is_theirs else [])]
    rows = []
    for name, dataset in dcsvm.DATASETS.items():
        numbers, row = published.DCSVM_TABLE_2[name], [dataset.title]
        methods = table_2[name]["methods"] if name in table_2 else {}
        for method, is_theirs in asked.items():
            row.append(_ratio(methods.get("libsvm"), methods.get(method)))
            if is_theirs:
                slow, fast = (numbers[either][0] for either in ("libsvm", method))
                row.append(f"{slow / fast:.1f}x" if slow and fast else "-")
        rows.append(row)
    return markdown(head, rows)


def _ratio(slow: Entry | None, fast: Entry | None) -> str:
    theirs, ours = whole_seconds(slow), whole_seconds(fast)
    if theirs is None or ours is None:
        return "-"
    about = "~" if slow is not None and slow["extrapolated"] else ""
    return f"{about}{theirs / ours:.3g}x"


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
                row.append(accuracy_of(entry))
                row.append(shown(published.DCSVM_TABLE_6[name][methods[k]][1], ".2f"))
        rows.append(row)
    return markdown(head, rows)


def pictures(folder: Path, output: Path) -> None:
    """Accuracy and gap over seconds."""
    found = read(dcsvm.PAPER, dcsvm.TABLE_2, folder)
    if found:
        draw(found, SERIES, EXACT, output / "dcsvm.png")
