"""Accuracy, and the gap of exact methods, over seconds: a column for each data set.

After Figure 3 of the DC-SVM paper and Figure 1 of the SODM paper. Early models are joined with the
whole problem's, and runs on ever more rows with each other. After Figures 1 to 4 of the Saddle-SVC
paper: accuracy and objective over seconds or over numbers sent, a point for each early fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.papers.common import Entry, Results, last, way

# Percent below the best accuracy: what is further below is not shown, and less is no difference.
MOST_SHOWN, LEAST_SHOWN = 12.0, 1.0

# title of a line -> the methods on it, in the order of their seconds
Series = Mapping[str, Sequence[str]]
# for each panel, one below the other: title of a line -> its points
Curves = Sequence[Mapping[str, Sequence[tuple[float, float]]]]


def draw(all_results: Mapping[str, Results], series: Series, exact: Series, file: Path) -> None:
    """Points of the `series`, and the gaps of the whole problem by the `exact` ones."""
    colours = {title: f"C{number}" for number, title in enumerate(series)}

    def fill(panels: Any, results: Results) -> None:
        accuracy, gap = panels
        _accuracies(accuracy, results, series, colours)
        _gaps(gap, results, exact, colours)

    labels = ("seconds", "test accuracy (%)", "relative duality gap")
    _columns(_titled(all_results), fill, list(series), labels, file)


def draw_curves(columns: Mapping[str, Curves], axes: Sequence[str], file: Path) -> None:
    """A column of panels for each case; errors and gaps are on a logarithmic scale."""
    titles = list(dict.fromkeys(title for c in columns.values() for p in c for title in p))
    colours = {title: f"C{number}" for number, title in enumerate(titles)}

    def fill(panels: Any, curves: Curves) -> None:
        for panel, label, lines in zip(panels, axes[1:], curves, strict=True):
            for title, points in lines.items():
                if points:
                    panel.plot(*zip(*points, strict=True), ".-", color=colours[title], label=title)
            if "error" in label or "gap" in label:
                panel.set_yscale("log")

    _columns(columns, fill, titles, axes, file)


def draw_ways(
    all_results: Mapping[str, Results], titles: Mapping[str, str], nodes: int, file: Path
) -> None:
    """The way of each method to the hulls' distance, over seconds.

    Where there are `nodes` it is over what they send, in points: as many numbers as a point from
    each node would be.
    """
    from matplotlib.ticker import FuncFormatter

    colours = {title: f"C{number}" for number, title in enumerate(titles.values())}

    def fill(panels: Any, results: Results) -> None:
        accuracy, distance = panels
        methods = {titles[name]: entry for name, entry in results["methods"].items()}
        for title, entry in methods.items():
            points = [*_told(last(entry)), *way(entry)] if nodes else way(entry)
            found = [(_sent(point, results, nodes), point) for point in points]
            accuracies = [
                (x, point["accuracy"])
                for x, point in found
                if x is not None and "accuracy" in point
            ]
            distances = [
                (x, (2.0 * point["objective"]) ** 0.5)
                for x, point in found
                if x is not None and point.get("objective") is not None
            ]
            for panel, points in ((accuracy, accuracies), (distance, distances)):
                if points:
                    lines = zip(*points, strict=True)
                    panel.plot(*lines, ".-", color=colours[title], label=title)
        best = _bound(methods.values())
        if best > 0.0 and distance.lines:
            distance.axhline(best, color="black", linewidth=0.8, linestyle=":")
        if distance.lines:
            distance.set_yscale("log")
            plain = FuncFormatter(lambda value, _: f"{value:g}")
            distance.yaxis.set_major_formatter(plain)
            distance.yaxis.set_minor_formatter(plain)

    x = "points from each node" if nodes else "seconds"
    labels = (x, "test accuracy (%)", "distance of the hulls")
    _columns(_titled(all_results), fill, list(titles.values()), labels, file)


def _titled(all_results: Mapping[str, Results]) -> dict[str, Results]:
    return {results["dataset"]["title"]: results for results in all_results.values()}


def _told(found: Entry | None) -> list[Entry]:
    """The points of a fit's own history; there is no accuracy."""
    if found is None or not found.get("history", {}).get("numbers"):
        return []
    history = found["history"]
    return [
        {"numbers": numbers, "objective": objective}
        for numbers, objective in zip(history["numbers"], history["objective"], strict=True)
    ]


def _sent(point: Entry, results: Results, nodes: int) -> float | None:
    if not nodes:
        return float(point["seconds"])
    features = {found["features"] for e in results["methods"].values() if (found := last(e))}
    numbers = point.get("numbers")
    return None if numbers is None else float(numbers) / (nodes * features.pop())


def _bound(entries: Iterable[Entry]) -> float:
    """The largest lower bound of the distance that a method has certified."""
    found = [last(entry) for entry in entries]
    return max(
        (
            (2.0 * one["objective"] * (1.0 - one["gap"])) ** 0.5
            for one in found
            if one is not None and one.get("gap") is not None
        ),
        default=0.0,
    )


def _columns(
    columns: Mapping[str, Any],
    fill: Callable[[Any, Any], None],
    titles: Sequence[str],
    labels: Sequence[str],
    file: Path,
) -> None:
    """Panels for each column, one above the other, with a legend of all lines below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        *(len(labels) - 1, len(columns)),
        figsize=(3.4 * len(columns) + 1, 0.5 + 3.0 * (len(labels) - 1)),
        layout="constrained",
        sharex="col",
        squeeze=False,
    )
    for column, (title, shown) in zip(axes.T, columns.items(), strict=True):
        fill(column, shown)
        column[0].set_title(title, fontsize=9)
        column[-1].set_xlabel(labels[0])
        for panel in column:
            panel.set_xscale("log")
            panel.grid(which="both", alpha=0.25)
            panel.tick_params(which="both", labelsize=8)
    for panel, label in zip(axes[:, 0], labels[1:], strict=True):
        panel.set_ylabel(label)
    drawn = {
        label: handle
        for panel in axes[0]
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    listed = [title for title in titles if title in drawn]
    figure.legend(
        [drawn[title] for title in listed],
        listed,
        loc="outside lower center",
        ncols=min(len(listed), 1 + len(columns)),
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
