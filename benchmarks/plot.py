"""A picture of the results: how many times faster margrave is, per problem, on a log scale.

python -m benchmarks.plot [--output FILE] [FOLDER]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import results
from benchmarks.adapters import LIBRARIES, RIVALS, SHORTEST
from benchmarks.results import Results


def spread(r: Results, rival: str) -> tuple[float, float, float] | None:
    """Ratio of the medians, and the least and largest ratio of single values."""
    middle = results.ratio(r, rival)
    if middle is None:
        return None
    ours = [m["seconds"] for m in results.measurements(r["libraries"]["margrave"])]
    entry = r["libraries"][results.fastest(r, rival)]
    theirs = [m["seconds"] for m in results.measurements(entry)]
    return middle, min(theirs) / max(ours), max(theirs) / min(ours)


def draw(all_results: list[Results], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    shown = [r for r in all_results if any(spread(r, rival) for rival in RIVALS)]
    if not shown:
        raise SystemExit("no problem has results of margrave and a rival")
    figure, axes = pyplot.subplots(figsize=(9, 1.4 + 0.36 * len(shown)), layout="constrained")
    series = [s for s in (*RIVALS, SHORTEST) if any(spread(r, s) for r in shown)]
    height = 0.8 / len(series)
    for row in range(0, len(shown), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#f3f5f8", zorder=0)
    for number, rival in enumerate(series):
        places, middles, below, above = [], [], [], []
        for row, r in enumerate(shown):
            found = spread(r, rival)
            if found is None:
                continue
            middle, least, most = found
            places.append(row + (number - (len(series) - 1) / 2) * height)
            middles.append(middle)
            below.append(middle - least)
            above.append(most - middle)
        axes.errorbar(
            middles, places, xerr=[below, above], fmt="o", ms=4, capsize=2, lw=1,
            label=LIBRARIES[rival].title,
        )  # fmt: skip
        for place, middle, more in zip(places, middles, above, strict=True):
            axes.annotate(
                f"{middle:.1f}x", (middle + more, place), xytext=(4, 0),
                textcoords="offset points", va="center", fontsize=7,
            )  # fmt: skip
    titles = [r["problem"]["title"].removesuffix(": fit") for r in shown]
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(shown)), titles, fontsize=8)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.grid(axis="x", which="major", alpha=0.5)
    axes.set_xlim(right=1.7 * axes.get_xlim()[1])  # room for the last number
    figure.supxlabel("margrave is faster by (bars: range of single measurements)", fontsize=9)
    figure.legend(loc="outside upper center", ncols=len(series), frameon=False, fontsize=9)
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plot", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=results.FOLDER)
    parser.add_argument("--output", type=Path, help="default: ratios.png in the folder")
    options = parser.parse_args(arguments)
    draw(results.read(options.folder), options.output or options.folder / "ratios.png")


if __name__ == "__main__":
    main()
