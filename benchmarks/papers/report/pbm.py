"""The page of PBM."""

from __future__ import annotations

from pathlib import Path

from benchmarks.papers import dcsvm, pbm, published
from benchmarks.papers.common import FOLDER, Entry, last, read
from benchmarks.papers.picture import Curves, Series, draw_curves
from benchmarks.papers.report.cells import by_method, ending, shape

# Figures 2 (b) and 3 (c), (d): methods of this table and of DC-SVM's, as far as they were measured
OURS: Series = {
    "PBM, rounds alone": ["first", "rounds"],
    "PBM, one round, then working set": ["first", "pbm"],
    "blocks that move, with a working set": ["first", "moving"],
}
OTHERS: Series = {
    "DC-SVM (256, 64, 16 clusters, all rows)": ["early-256", "early-64", "early-16", "dc"],
    "margrave dc": ["early-256", "moving"],
    "Nystroem": ["nystroem"],
    "random features": ["random-features"],
}
APPROXIMATIONS: Series = {  # in place of one number of features
    title: [name for name in pbm.APPROXIMATIONS if name.startswith(OTHERS[title][0])]
    for title in ("Nystroem", "random features")
}
REFERENCE = "moving"  # of DC-SVM's table: the best dual objective
AXES = ("seconds", "test accuracy (%)", "error of the dual objective")


def text(folder: Path = FOLDER) -> str:
    found = read(pbm.PAPER, pbm.TABLE_2, folder)
    parts = ["## Table 2"]
    for name, dataset in pbm.DATASETS.items():
        parts.append(f"### {dataset.title}\n\n{shape(found.get(name))}.")
        numbers = published.PBM_TABLE_2[name]
        parts.append(by_method(pbm.PAPER, pbm.TABLE_2, found.get(name), numbers))
    figure_2 = read(pbm.PAPER, pbm.FIGURE_2, folder)
    for name, results in figure_2.items():
        title = f"### {pbm.DATASETS[name].title}: numbers of features"
        parts += ["## Figure 2: approximations", title]
        parts.append(by_method(pbm.PAPER, pbm.FIGURE_2, results, {}))
    parts += _figure(folder)
    return "\n\n".join([*parts, *ending(pbm.PAPER, [*found.values(), *figure_2.values()])])


def _curves(folder: Path) -> dict[str, Curves]:
    """Accuracy and error over seconds, with the methods of DC-SVM on the same rows."""
    found = read(pbm.PAPER, pbm.TABLE_2, folder)
    others = read(dcsvm.PAPER, dcsvm.TABLE_2, folder)
    columns = {}
    for name, dataset in pbm.DATASETS.items():
        best = last(others[name]["methods"].get(REFERENCE)) if name in others else None
        if name not in found or best is None:
            continue
        dual = -best["objective"] * (1.0 - 0.5 * best["gap"])
        accuracy, error = {}, {}
        series_of = [(OURS, found[name]), (OTHERS, others[name])]
        more = read(pbm.PAPER, pbm.FIGURE_2, folder)
        series_of += [(APPROXIMATIONS, more[name])] if name in more else []
        for series, results in series_of:
            for title, methods in series.items():
                told = [last(results["methods"].get(method)) for method in methods]
                there = [one for one in told if one is not None]
                if told[-1] is not None:
                    accuracy[title] = [(one["seconds"], one["accuracy"]) for one in there]
                    error[title] = _errors(told[-1], dual)
        columns[dataset.title] = [accuracy, error]
    return columns


def _errors(found: Entry, best: float) -> list[tuple[float, float]]:
    """The error (D - D*) / |D*| of the records whose objective is that of the whole problem."""
    history, points = found.get("history", {"seconds": []}), []
    for number, seconds in enumerate(history["seconds"]):
        primal, gap = history["objective"][number], history["gap"][number]
        is_whole = history["parts"][number] is None or "blocks" in history["where"][number]
        error = (-primal * (1.0 - gap) - best) / abs(best) if is_whole and gap is not None else 0.0
        if error > 0.0:
            points.append((seconds, error))
    return points


def _figure(folder: Path) -> list[str]:
    if not _curves(folder):
        return []
    caption = (
        "Test accuracy, and the error of the dual objective, over the seconds of the fit: Figure 3"
        " of the paper, and the approximations of its Figure 2."
        " The methods of DC-SVM's page are those measured there, on the same rows."
    )
    title = "## Figure 3: PBM and DC-SVM"
    return [title, "![accuracy and error of PBM and DC-SVM over seconds](pbm.png)", caption]


def pictures(folder: Path, output: Path) -> None:
    """Accuracy and error over seconds."""
    columns = _curves(folder)
    if columns:
        draw_curves(columns, AXES, output / "pbm.png")
