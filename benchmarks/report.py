"""The markdown tables of README and docs, from the result files.

python -m benchmarks.report [--goals] [FOLDER]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks import results
from benchmarks.adapters import LIBRARIES, RIVALS
from benchmarks.problems import PROBLEMS
from benchmarks.results import Entry, Results


def table(all_results: list[Results]) -> str:
    """Comparisons with other libraries, with other ways to a similar end, problems of margrave
    alone, then the conditions and the concerns."""
    if not all_results:
        return "No results: run `make bench`."
    parts = [make(shown) for make, shown in _tables(all_results) if shown]
    parts.append(_conditions(all_results))
    notes = [f"- {r['problem']['title']}: {c}" for r in all_results for c in results.concerns(r)]
    if notes:
        parts.append("To be considered:\n\n" + "\n".join(notes))
    return "\n\n".join(parts)


def _tables(
    all_results: list[Results],
) -> list[tuple[Callable[[list[Results]], str], list[Results]]]:
    """Which problems are shown how, by who was measured on them."""
    alone = [r for r in all_results if set(r["libraries"]) == {"margrave"}]
    compared = [r for r in all_results if set(r["libraries"]) & set(RIVALS)]
    ways = [r for r in all_results if set(r["libraries"]) - {"margrave", *RIVALS}]
    predicted = [r for r in compared if any(map(results.held_out, r["libraries"].values()))]
    return [(_compared, compared), (_held_out, predicted), (_ways, ways), (_alone, alone)]


def _compared(all_results: list[Results]) -> str:
    rivals = [name for name in RIVALS if any(name in r["libraries"] for r in all_results)]
    titles = [LIBRARIES[name].title for name in rivals]
    head = ["problem", "margrave", *titles, *(f"faster than {title}" for title in titles)]
    rows = [
        [
            r["problem"]["title"],
            *(_seconds(r["libraries"].get(name)) for name in ["margrave", *rivals]),
            *(_ratio(r, name) for name in rivals),
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
                    "" if name == "margrave" else _ratio(r, name),
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


def _ratio(r: Results, rival: str) -> str:
    value = results.ratio(r, rival)
    return "-" if value is None else f"{value:.1f}x"


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def goals(all_results: list[Results]) -> str:
    lines = [
        f"{'reached' if reached else 'MISSED ':8} {r['problem']['name']}: {text}"
        for r in all_results
        for text, reached in results.goals(r)
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
