"""The markdown tables of README and docs, from the result files.

python -m benchmarks.report [--goals] [FOLDER]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks import results
from benchmarks.adapters import LIBRARIES, RIVALS, SHORTEST
from benchmarks.problems import PROBLEMS
from benchmarks.results import Entry, Results


def table(all_results: list[Results]) -> str:
    """Comparisons with other libraries, with other ways to a similar end, problems of margrave
    alone, first of kernel models and then of linear ones; then the conditions and the concerns.
    """
    if not all_results:
        return "No results: run `make bench`."
    parts = [make(shown) for make, shown in _tables(all_results) if shown]
    parts.append(_conditions(all_results))
    notes = [f"- {r['problem']['title']}: {c}" for r in all_results for c in results.concerns(r)]
    if notes:
        parts.append("Notes:\n\n" + "\n".join(notes))
    return "\n\n".join(parts)


# what README shows: fits and scores, kernels and linear models, large gains and small ones
PEERS = (
    "ijcnn1",
    "covtype-50k",
    "covtype-50k-scores",
    "mnist-10",
    "a9a",
    "pendigits",
    "svr-kin40k",
    "nu-ijcnn1",
    "nu-skin",
    "one-class-kddcup99",
    "linear-hinge-covtype-C1",
    "linear-hinge-a9a",
    "linear-logistic-covtype",
)


def peers(all_results: list[Results]) -> str:
    """A short table of some problems, and the conditions."""
    shown = [r for r in all_results if r["problem"]["name"] in PEERS]
    if not shown:
        return "No results: run `make bench`."
    head = ["problem", "margrave", *(LIBRARIES[name].title for name in RIVALS)]
    rows = []
    for r in sorted(shown, key=lambda r: PEERS.index(r["problem"]["name"])):
        row = [r["problem"]["title"], _plain_seconds(r, "margrave")]
        for name in RIVALS:
            faster, seconds = ratio(r, name), _plain_seconds(r, results.fastest(r, name))
            row.append("-" if faster == "-" else f"{seconds} (**{faster}**)")
        rows.append(row)
    return _markdown(head, rows) + "\n\n" + _conditions(shown)


def _plain_seconds(r: Results, library: str) -> str:
    return _seconds(r["libraries"].get(library)).split(" (")[0]


def _tables(
    all_results: list[Results],
) -> list[tuple[Callable[[list[Results]], str], list[Results]]]:
    """Which problems are shown how, by who was measured on them."""
    alone = [r for r in all_results if set(r["libraries"]) == {"margrave"}]
    compared = [r for r in all_results if any(_stands_for(n) in RIVALS for n in r["libraries"])]
    ways = [r for r in all_results if set(r["libraries"]) - {"margrave", *RIVALS, SHORTEST}]
    predicted = [r for r in compared if any(map(results.held_out, r["libraries"].values()))]
    return [
        (_compared, _with_kernel("rbf", compared)),
        (_held_out, predicted),
        (_ways, _with_kernel("rbf", ways)),
        (_alone, _with_kernel("rbf", alone)),
        (_linear, _with_kernel("linear", compared)),
        (_linear_ways, _with_kernel("linear", ways)),
        (_linear_alone, _with_kernel("linear", alone)),
    ]


def _with_kernel(kernel: str, all_results: list[Results]) -> list[Results]:
    return [r for r in all_results if r["problem"]["kernel"] == kernel]


def _stands_for(library: str) -> str:
    return LIBRARIES[library].one_of or library


def _compared(all_results: list[Results]) -> str:
    rivals = [name for name in RIVALS if any(name in r["libraries"] for r in all_results)]
    titles = [LIBRARIES[name].title for name in rivals]
    head = ["problem", "margrave", *titles, *(f"faster than {title}" for title in titles)]
    rows = [
        [
            r["problem"]["title"],
            *(_seconds(r["libraries"].get(name)) for name in ["margrave", *rivals]),
            *(ratio(r, name) for name in rivals),
        ]
        for r in all_results
    ]
    return _markdown(head, rows)


def _held_out(all_results: list[Results]) -> str:
    """How well the models of the libraries predict rows that they have not seen."""
    names = ["margrave", *(n for n in RIVALS if any(n in r["libraries"] for r in all_results))]
    head = ["problem", "on rows held out", *(LIBRARIES[name].title for name in names)]
    rows = []
    for r in all_results:
        found = {name: results.held_out(entry) for name, entry in r["libraries"].items()}
        (figure,) = {figure for figures in found.values() for figure in figures}
        values = [found.get(name, {}).get(figure) for name in names]
        rows.append([r["problem"]["title"], figure, *(_number(v, ".4f") for v in values)])
    return _markdown(head, rows)


def _ways(all_results: list[Results]) -> str:
    """A row for each way to solve a problem: margrave's solvers, approximations."""
    head = ["problem", "way", "time", "kernel values", "margrave is faster", "test log-loss"]
    rows = []
    for r in all_results:
        for name in PROBLEMS[r["problem"]["name"]].libraries:
            entry = r["libraries"].get(name, results.entry([], []))
            rows.append(
                [
                    r["problem"]["title"],
                    LIBRARIES[name].title,
                    _seconds(entry),
                    _number(results.kernel_values(entry), ".2e"),
                    "" if name == "margrave" else ratio(r, name),
                    _number(results.held_out(entry).get("log-loss"), ".4f"),
                ]
            )
    return _markdown(head, rows)


def _alone(all_results: list[Results]) -> str:
    head = ["problem", "time", "kernel values", "support vectors", "gap", "memory beyond the data"]
    rows = []
    for r in all_results:
        entry = r["libraries"]["margrave"]
        if not results.measurements(entry):
            continue
        m = results.typical(entry)
        rows.append(
            [
                r["problem"]["title"],
                _seconds(entry),
                _number(results.kernel_values(entry), ".2e"),
                f"{m['support_vectors']:,}",
                f"{m['extras']['gap']:.1e}" if "gap" in m["extras"] else "-",
                f"{m['memory_beyond_data'] / 2**30:.2f} GiB",
            ]
        )
    return _markdown(head, rows)


def _linear(all_results: list[Results]) -> str:
    """scikit-learn by default, by its best solver where there are several, and LIBLINEAR cut short
    as soon as it is near the optimum."""
    head = ["problem", "margrave", "scikit-learn", "its shortest run within 1e-3"]
    head += ["faster than scikit-learn", "faster than its shortest run"]
    rows = [
        [
            r["problem"]["title"],
            _seconds(r["libraries"].get("margrave")),
            _seconds_of_fastest(r, "sklearn"),
            _seconds_cut_short(r["libraries"].get(SHORTEST)),
            ratio(r, "sklearn"),
            ratio(r, SHORTEST),
        ]
        for r in all_results
    ]
    return _markdown(head, rows)


def _seconds_of_fastest(r: Results, rival: str) -> str:
    name = results.fastest(r, rival)
    solver = LIBRARIES[name].options.get("solver")
    text = _seconds(r["libraries"].get(name))
    return f"{text}, solver={solver}" if solver else text


def _seconds_cut_short(entry: Entry | None) -> str:
    if entry is None or results.has_failed(entry):
        return "-"
    if not results.measurements(entry):
        return "no run came that close"
    return f"{_seconds(entry)}, max_iter={results.typical(entry)['extras']['max_iter']}"


def _linear_ways(all_results: list[Results]) -> str:
    """A row for each solver. One that ended before its tolerance would have needed more time."""
    head = ["problem", "way", "time", "passes over the data", "gap", "margrave is faster"]
    rows = []
    for r in all_results:
        for name in PROBLEMS[r["problem"]["name"]].libraries:
            entry = r["libraries"].get(name, results.entry([], []))
            more = "more than " if results.fell_short(entry) else ""
            rows.append(
                [
                    r["problem"]["title"],
                    LIBRARIES[name].title,
                    _seconds(entry),
                    _number(results.passes(entry), ".1f"),
                    _number(results.gap(entry), ".1e"),
                    "" if name == "margrave" else more + ratio(r, name),
                ]
            )
    return _markdown(head, rows)


def _linear_alone(all_results: list[Results]) -> str:
    head = ["problem", "time", "passes over the data", "gap", "memory beyond the data"]
    rows = []
    for r in all_results:
        entry = r["libraries"]["margrave"]
        if not results.measurements(entry):
            continue
        m = results.typical(entry)
        rows.append(
            [
                r["problem"]["title"],
                _seconds(entry),
                _number(results.passes(entry), ".1f"),
                _number(results.gap(entry), ".1e"),
                f"{m['memory_beyond_data'] / 2**30:.2f} GiB",
            ]
        )
    return _markdown(head, rows)


def _conditions(all_results: list[Results]) -> str:
    """Machine, versions and dates; several lines when the files are not of one run."""
    machines = {
        f"{r['machine']['cpu']}, {r['machine']['cores']} cores, {r['machine']['instruction_set']}"
        for r in all_results
    }
    runs = sorted({r["run"]["started"][:10] for r in all_results})
    # A reused result may have been measured with another version, so all are named.
    versions: dict[str, set[str]] = {}
    for r in all_results:
        for entry in r["libraries"].values():
            for package, version in entry["versions"].items():
                if version is not None:
                    versions.setdefault(package, set()).add(version)
    named = ", ".join(f"{p} {'/'.join(sorted(v))}" for p, v in sorted(versions.items()))
    return (
        f"Medians of seconds, in the input form that is fastest for each library. "
        f"{'; '.join(sorted(machines))}. {named}. Measured {', '.join(runs)}."
    )


def _seconds(entry: Entry | None) -> str:
    if entry is None or entry["seconds"] is None:
        return "-"
    seconds = entry["seconds"]
    text = f"{seconds:.0f}" if seconds >= 100 else f"{seconds:.3g}"
    mark = "*" if entry["from_run"] else ""
    return f"{text} s{mark} ({entry['form'].replace('-', ' ')})"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def ratio(r: Results, rival: str) -> str:
    value = results.ratio(r, rival)
    if value is None:
        return "-"
    return f"{value:.1f}x" if value >= 0.95 else f"{value:.2g}x"


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def goals(all_results: list[Results]) -> str:
    lines = [
        f"{'reached' if reached else 'MISSED ':8} {r['problem']['name']}: {text}"
        for r in all_results
        for text, reached in results.goals(r)
    ]
    lines += [
        f"{'reached' if reached else 'MISSED ':8} {text}"
        for text, reached in results.goals_of_several(all_results)
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=results.FOLDER)
    parser.add_argument("--goals", action="store_true", help="the goals instead of the tables")
    options = parser.parse_args(arguments)
    all_results = results.read(options.folder)
    print(goals(all_results) if options.goals else table(all_results))


if __name__ == "__main__":
    main()
