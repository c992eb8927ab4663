"""Accuracy, and the gap of exact methods, over seconds: a column for each data set.

After Figure 3 of the DC-SVM paper and Figure 1 of the SODM paper. Early models are joined with the
whole problem's, and runs on ever more rows with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.common import Results, last

# Percent below the best accuracy: what is further below is not shown, and less is no difference.
MOST_SHOWN, LEAST_SHOWN = 12.0, 1.0

# title of a line -> the methods on it, in the order of their seconds
Series = Mapping[str, Sequence[str]]


def draw(all_results: Mapping[str, Results], series: Series, exact: Series, file: Path) -> None:
    """Points of the `series`, and the gaps of the whole problem by the `exact` ones."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        *(2, len(all_results)),
        figsize=(3.4 * len(all_results) + 1, 6.5),
        layout="constrained",
        sharex="col",
        squeeze=False,
    )
    colours = {title: f"C{number}" for number, title in enumerate(series)}
    for column, results in zip(axes.T, all_results.values(), strict=True):
        _accuracies(column[0], results, series, colours)
        _gaps(column[1], results, exact, colours)
        column[0].set_title(results["dataset"]["title"], fontsize=9)
        column[1].set_xlabel("seconds")
        for panel in column:
            panel.set_xscale("log")
            panel.grid(which="both", alpha=0.25)
    axes[0, 0].set_ylabel("test accuracy (%)")
    axes[1, 0].set_ylabel("relative duality gap")
    drawn = {
        label: handle
        for panel in axes[0]
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    titles = [title for title in series if title in drawn]
    ncols = min(len(titles), 1 + len(all_results))
    figure.legend(
        [drawn[title] for title in titles],
        titles,
        loc="outside lower center",
        ncols=ncols,
        fontsize=8,
    )
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def _accuracies(panel: Any, results: Results, series: Series, colours: Mapping[str, str]) -> None:
    highest = 0.0
    for title, methods in series.items():
        entries = [results["methods"].get(method, {}) for method in methods]
        points = [
            (found["seconds"], found["accuracy"])
            for entry in entries
            for found in entry.get("runs", [])
            if "error" not in found
        ]
        if points:
            seconds, accuracy = zip(*points, strict=True)
            panel.plot(seconds, accuracy, "o-", color=colours[title], label=title, markersize=4)
            highest = max(highest, *accuracy)
        for entry in entries:
            if entry.get("extrapolated"):  # where all rows would be
                panel.axvline(entry["extrapolated"]["seconds"], color=colours[title], linestyle=":")
    low, high = panel.get_ylim()
    panel.set_ylim(min(max(low, highest - MOST_SHOWN), highest - LEAST_SHOWN), high)


def _gaps(panel: Any, results: Results, exact: Series, colours: Mapping[str, str]) -> None:
    for title, methods in exact.items():
        for method in methods:
            found = last(results["methods"].get(method))
            if found is None or "history" not in found:
                continue
            history = found["history"]
            points = [
                (seconds, gap)
                for seconds, gap, parts in zip(
                    history["seconds"], history["gap"], history["parts"], strict=True
                )
                if parts is None and gap is not None and gap > 0.0
            ]
            if points:
                panel.plot(*zip(*points, strict=True), ".-", color=colours[title], markersize=3)
    panel.set_yscale("log")
