"""README, docs/benchmarks.md and the numbers in sentences elsewhere, from the result files.

    python -m benchmarks.pages

The tables of docs/papers, docs/distributed.md and docs/when_not.md are written by the programs that
measure them. The mark of a number in a sentence says in words what it is (see `marks.py`):

    seconds PROBLEM [LIBRARY]      of benchmarks/results/PROBLEM.json; by default margrave's
    ratio PROBLEM RIVAL            how many times faster margrave is
    memory PROBLEM                 beyond the data
    paper FILE METHOD FIELD        of results/papers/FILE.json: seconds, accuracy, gap, ...
    faster FILE SLOW FAST          seconds of one method over those of another there
    way FILE WAY FIELD             of a file with ways: engines-*, tuning-*, papers/pemsvm-*
    slower FILE WAY BASE           seconds of one way over those of another there
    dual-error FILE METHOD OTHER   of results/papers/FILE.json: by how much the dual value exceeds
                                   the best that is certified by OTHER (a file and a method: a/b)
    printed TABLE SET METHOD FIELD what a paper prints: seconds or accuracy, of papers/published.py
    printed-faster TABLE SET A B   its seconds of A over those of B
    points FILE METHOD GAP         of results/papers/FILE.json: exchanged until the gap, per node
    study FORMAT FILE/KEY/KEY/...  of results/papers/FILE.json, a study: the keys from a case on
    passes CASE WAY                of results/papers/sodm-linear.json: until the gap is small enough
    sum FILE WAY FIELD             of results/papers/FILE.json, a study: over all cases
    wins FILE WAY OTHER FIELD      there: cases in which the one has less than the other, of all
    card CASE [FIELD]              of results/gpu/CASE.json: seconds (by default) or score_seconds
    threads CASE NUMBER            seconds of so many threads of that machine
    card-ratio CASE NUMBER         seconds of so many threads over those of the card
    chaos FIELD                    of results/chaos.json, which `make chaos` writes

A number whose file does not exist yet is shown as missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import alternatives, gpu, large, latency, reading, report, results, streams, tuning
from benchmarks.adapters import LIBRARIES, RIVALS, SHORTEST
from benchmarks.marks import numbered, placed
from benchmarks.papers import dcsvm, gradients, published, saddle, studies
from benchmarks.papers.common import last, read

ROOT = Path(__file__).parent.parent
MISSING = "(not measured yet)"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks() -> dict[Path, dict[str, str]]:
    """The text between the named marks of each page."""
    found = results.read()
    return {
        ROOT / "README.md": {"peers": report.peers(found)},
        ROOT / "docs" / "benchmarks.md": {
            "benchmarks": report.table(found),
            "tuning": tuning.report(),
            "reading": reading.report(),
            "large": large.report(),
            "lost": lost(),
        },
        ROOT / "docs" / "gpu.md": {"cards": gpu.table()},
        ROOT / "docs" / "serving.md": {"latency": latency.table()},
        ROOT / "docs" / "streams.md": {"rows": streams.table()},
        **{
            ROOT / "docs" / "papers" / f"{paper}.md": {"studies": studies.report(paper)}
            for paper in studies.PAPERS
        },
    }


def written(page: Path) -> str:
    """What a page has to be."""
    text = page.read_text()
    for name, block in blocks().get(page, {}).items():
        text = placed(text, block, name)
    return numbered(text, number)


# --- numbers -------------------------------------------------------------------------------------


def number(words: str) -> str:
    """A number by the words of its mark; unknown words are a KeyError or a TypeError."""
    kind, *rest = words.split()
    try:
        return _KINDS[kind](*rest)
    except FileNotFoundError:
        return MISSING


def _file(name: str) -> Any:
    return json.loads((results.FOLDER / f"{name}.json").read_text())


def _seconds(problem: str, library: str = "margrave") -> str:
    return _brief(_file(problem)["libraries"][library]["seconds"]) + " s"


def _ratio(problem: str, rival: str) -> str:
    return report.ratio(results.load(results.path(problem)), rival)


def _memory(problem: str) -> str:
    entry = _file(problem)["libraries"]["margrave"]
    return f"{results.typical(entry)['memory_beyond_data'] / 2**30:.1f} GiB"


def _paper(file: str, method: str, field: str) -> str:
    entry = _file(f"papers/{file}")["methods"][method]
    if field == "seconds" and entry["extrapolated"]:
        return f"~{_brief(entry['extrapolated']['seconds'])} s"
    found = last(entry)
    assert found is not None, f"{file}: {method} was not measured"
    return _FORMS.get(field, "{:,}").format(
        _brief(found[field]) if field == "seconds" else found[field]
    )


def _faster(file: str, slow: str, fast: str) -> str:
    entries = [_file(f"papers/{file}")["methods"][name] for name in (slow, fast)]
    about = "~" if any(entry["extrapolated"] for entry in entries) else ""
    theirs, ours = ((e["extrapolated"] or last(e))["seconds"] for e in entries)
    return f"{about}{theirs / ours:.3g}x"


def _way(file: str, way: str, field: str) -> str:
    found = _file(file)["ways"][way][field]
    return _FORMS.get(field, "{:,}").format(_brief(found) if field == "seconds" else found)


def _slower(file: str, way: str, base: str) -> str:
    ways = _file(file)["ways"]
    return f"{ways[way]['seconds'] / ways[base]['seconds']:.2g}x"


def _dual_error(file: str, method: str, other: str) -> str:
    """(D - D*) / |D*|, the dual being minimised; D* from the other's gap and primal value."""
    reference, best = other.split("/")
    (primal, gap), (primal_best, gap_best) = (
        (found["objective"], found["full_gap"] if "full_gap" in found else found["gap"])
        for found in (
            last(_file(f"papers/{a}")["methods"][b]) or {}
            for a, b in ((file, method), (reference, best))
        )
    )
    # gap = (P + D) / P where P is the larger; the optimum lies between -P and D of the reference
    dual, dual_best = -primal * (1.0 - gap), -primal_best * (1.0 - 0.5 * gap_best)
    return f"{(dual - dual_best) / abs(dual_best):.1e}"


def _printed(table: str, dataset: str, method: str, field: str) -> str:
    seconds, accuracy = getattr(published, table)[dataset][method]
    return f"{seconds:,g} s" if field == "seconds" else f"{accuracy:g} %"


def _printed_faster(table: str, dataset: str, slow: str, fast: str) -> str:
    row = getattr(published, table)[dataset]
    return f"{row[slow][0] / row[fast][0]:.2g}x"


def _points(file: str, method: str, gap: str) -> str:
    found = last(_file(f"papers/{file}")["methods"][method])
    reached = None if found is None else saddle.points_until(found, float(gap))
    assert reached is not None, f"{file}: {method} has not come to {gap}"
    return _brief(reached)


def _study(form: str, *rest: str) -> str:
    file, case, *keys = " ".join(rest).split("/")
    found = _file(f"papers/{file}")["cases"][case]["found"]
    for key in keys:
        found = found[int(key)] if isinstance(found, list) else found[key]
    return format(found, form)


def _passes(case: str, *way: str) -> str:
    found = _file("papers/sodm-linear")["cases"][case]["found"]
    products = gradients.until(found["ways"][" ".join(way)])
    assert products is not None, f"{case}: {way} has not come to a small gap"
    return f"{products / found['rows']:,.0f}"


def _sum(file: str, way: str, field: str) -> str:
    cases = _file(f"papers/{file}")["cases"].values()
    return f"{sum(case['found']['ways'][way][field] for case in cases):.3g}"


def _wins(file: str, way: str, other: str, field: str) -> str:
    cases = [case["found"]["ways"] for case in _file(f"papers/{file}")["cases"].values()]
    return f"{sum(one[way][field] < one[other][field] for one in cases)} of {len(cases)}"


def _card(case: str, field: str = "seconds") -> str:
    return f"{_brief(_file(f'gpu/{case}')['cuda'][field])} s"


def _threads(case: str, number: str) -> str:
    return f"{_brief(_file(f'gpu/{case}')['threads'][number]['seconds'])} s"


def _card_ratio(case: str, number: str) -> str:
    found = _file(f"gpu/{case}")
    return f"{found['threads'][number]['seconds'] / found['cuda']['seconds']:.2g}x"


def _chaos(field: str) -> str:
    found = _file("chaos")[field]
    return f"{sum(found.values()) if isinstance(found, dict) else found:,}"


def _brief(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


_KINDS: dict[str, Callable[..., str]] = {
    "chaos": _chaos,
    "seconds": _seconds,
    "ratio": _ratio,
    "memory": _memory,
    "paper": _paper,
    "faster": _faster,
    "way": _way,
    "slower": _slower,
    "dual-error": _dual_error,
    "printed": _printed,
    "printed-faster": _printed_faster,
    "points": _points,
    "study": _study,
    "passes": _passes,
    "sum": _sum,
    "wins": _wins,
    "card": _card,
    "threads": _threads,
    "card-ratio": _card_ratio,
}
_FORMS = {
    "seconds": "{} s",
    "accuracy": "{:.2f} %",
    "gap": "{:.1e}",
    "full_gap": "{:.1e}",
    "kernel_values": "{:.2e}",
    "best_score": "{:.4f}",
}


# --- where we lose -------------------------------------------------------------------------------


def lost() -> str:
    """All comparisons in which something else was faster or more accurate."""
    lines = [
        f"- {r['problem']['title']}: {LIBRARIES[name].title} takes"
        f" {_brief(r['libraries'][name]['seconds'])} s, margrave"
        f" {_brief(r['libraries']['margrave']['seconds'])} s."
        for r in results.read()
        for name in r["libraries"]
        if name in (*RIVALS, SHORTEST, "nystroem") or LIBRARIES[name].one_of in RIVALS
        if (results.ratio(r, name) or 1.0) < 1.0
    ]
    return "\n".join([*lines, *_lost_papers(), *_lost_tuning(), *_lost_alternatives()])


def _lost_papers() -> list[str]:
    """Other libraries and approximations that were faster, and about as accurate."""
    lines = []
    for found in read(dcsvm.PAPER, dcsvm.TABLE_2).values():
        methods = found["methods"]
        ours = min((last(methods[name]) for name in ("dc", "exact")), key=lambda m: m["seconds"])
        for name in ("libsvm", "intelex", "nystroem", "random-features"):
            entry = methods.get(name)
            theirs = last(entry)
            if entry is None or theirs is None:
                continue
            seconds = (entry["extrapolated"] or theirs)["seconds"]
            if seconds < ours["seconds"] and theirs["accuracy"] > ours["accuracy"] - 0.5:
                about = " (extrapolated)" if entry["extrapolated"] else ""
                of = f" (with {theirs['rows']:,} rows)" if entry["extrapolated"] else ""
                lines.append(
                    f"- {found['dataset']['title']}, {ours['whole_rows']:,} rows:"
                    f" {dcsvm.METHODS[name].title} takes {_brief(seconds)} s{about} for"
                    f" {theirs['accuracy']:.2f} %{of}, margrave {_brief(ours['seconds'])} s for"
                    f" {ours['accuracy']:.2f} %."
                )
    return lines


def _lost_tuning() -> list[str]:
    lines = []
    for name, case in tuning.CASES.items():
        file = results.FOLDER / f"tuning-{name}.json"
        ways = json.loads(file.read_text())["ways"] if file.exists() else {}
        ours = ways.get("tuner", {}).get("seconds")
        lines += [
            f"- {case.title}: {tuning.WAYS[way].title} takes {_brief(one['seconds'])} s, Tuner"
            f" {_brief(ours)} s."
            for way, one in ways.items()
            if way not in ("tuner", "whole") and ours and one.get("seconds", ours) < ours
        ]
    return lines


def _lost_alternatives() -> list[str]:
    lines = []
    for name, found in alternatives.read().items():
        scores = {
            alternatives.METHODS[each].title: one["score"]
            for each, one in found["methods"].items()
            if "error" not in one
        }
        best = max(scores, key=scores.__getitem__)
        if best != "margrave" and "margrave" in scores:
            case = alternatives.CASES[name]
            lines.append(
                f"- {case.title}: {best} has {case.figure} {scores[best]:.4f}, margrave"
                f" {scores['margrave']:.4f} ([when not to use margrave](when_not.md))."
            )
    return lines


def main() -> None:
    for page in PAGES:
        page.write_text(written(page))


if __name__ == "__main__":
    main()
