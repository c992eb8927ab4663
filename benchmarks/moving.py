"""Blocks where `auto` may take them: hulls with and without moving blocks, joint problems with
clusters, with moving blocks and with neither. Seconds of the processors and of the clock, and
kernel values.

    python -m benchmarks.moving [--only NAME ...]      # measures, and writes docs/distributed.md
    python -m benchmarks.moving --report               # writes the page from the result file

All ways of a problem run in turn in one process, so that other programs slow them alike.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks import data
from benchmarks.marks import placed
from benchmarks.measure import machine
from benchmarks.papers.common import ROOT, markdown
from margrave import SVC, KernelLogisticRegression, NuSVC, NuSVR
from margrave.problem import BaseProblem, Floats
from margrave.solvers import BlockMinimization, PairSwaps, Settings, Solution

FILE = ROOT / "benchmarks" / "results" / "moving.json"
PAGE = ROOT / "docs" / "distributed.md"


class MovingPairs(PairSwaps):
    """What "auto" takes for hulls with a narrow kernel, for any kernel."""

    def solve(
        self,
        problems: Sequence[BaseProblem],
        settings: Settings,
        starts: Sequence[Floats] | None = None,
    ) -> list[Solution]:
        """Solve the problems."""
        return self.solve_after(problems, settings, starts, moving=True)


# the first of each is what the others are compared with
HERE = {"pairs": PairSwaps(), "pairs, moving blocks": MovingPairs()}
SHARDS = {"pairs, 2 shards": PairSwaps(partitions=2), "pbm": BlockMinimization()}
JOINT = {"exact": "exact", "dc": "dc", "pbm": "pbm"}


@dataclass(frozen=True)
class Case:
    title: str
    dataset: str
    prepare: Callable[..., data.Data]
    rows: int | None
    estimator: Any
    ways: Mapping[str, Any]
    repeats: int = 2


CASES = {
    "nu-covtype": Case(
        "NuSVC, covtype.binary, 50,000 rows, nu=0.2, gamma=32 (narrow)",
        *("covtype", data.covtype_binary, 50_000, NuSVC(nu=0.2, gamma=32.0), HERE),
    ),
    "nu-kin40k": Case(
        "NuSVR, kin40k, 40,000 rows, nu=0.3, gamma=2 (narrow)",
        *("kin40k", data.regression, 40_000, NuSVR(nu=0.3, gamma=2.0), HERE, 1),
    ),
    "nu-kin40k-wide": Case(
        "NuSVR, kin40k, 40,000 rows, nu=0.3, gamma=0.1",
        *("kin40k", data.regression, 40_000, NuSVR(nu=0.3, gamma=0.1), HERE),
    ),
    "nu-ijcnn1": Case(
        "NuSVC, ijcnn1, 49,990 rows, nu=0.165, gamma=2",
        *("ijcnn1", data.train_part, None, NuSVC(nu=0.165, gamma=2.0), HERE),
    ),
    "shards-covtype": Case(
        "NuSVC on shards, covtype.binary, 50,000 rows, nu=0.2, gamma=32 (narrow)",
        *("covtype", data.covtype_binary, 50_000, NuSVC(nu=0.2, gamma=32.0), SHARDS, 1),
    ),
    "shards-ijcnn1": Case(
        "NuSVC on shards, ijcnn1, 49,990 rows, nu=0.165, gamma=2",
        *("ijcnn1", data.train_part, None, NuSVC(nu=0.165, gamma=2.0), SHARDS),
    ),
    "joint-mnist": Case(
        "Crammer-Singer, mnist, 10,000 rows, C=10, gamma=0.02",
        *("mnist", data.mnist_digits, 10_000),
        *(SVC(C=10.0, gamma=0.02, multi_class="crammer_singer", intercept=None), JOINT, 1),
    ),
    "joint-covtype": Case(
        "Crammer-Singer, covtype, 20,000 rows, C=10, gamma=32 (narrow)",
        *("covtype", data.covtype, 20_000),
        *(SVC(C=10.0, gamma=32.0, multi_class="crammer_singer", intercept=None), JOINT, 1),
    ),
    "joint-covtype-free": Case(
        "Crammer-Singer with free intercepts, covtype, 20,000 rows, C=10, gamma=32 (narrow)",
        *("covtype", data.covtype, 20_000),
        *(SVC(C=10.0, gamma=32.0, multi_class="crammer_singer"), JOINT, 1),
    ),
    "joint-covtype-softmax": Case(
        "softmax, covtype, 40,000 rows, C=10, gamma=32 (narrow)",
        *("covtype", data.covtype, 40_000),
        *(KernelLogisticRegression(C=10.0, gamma=32.0, multi_class="softmax", intercept=None),),
        *(JOINT, 1),
    ),
}


def measure(case: Case, generated: bool) -> dict[str, Any]:
    """All ways in turn."""
    raw = data.generate(case.dataset) if generated else data.read(case.dataset)
    rows = case.prepare(raw, None if generated else case.rows, 100).in_form("float32-dense")
    ways: dict[str, Any] = {name: {"cpu": [], "clock": []} for name in case.ways}
    for _ in range(1 if generated else case.repeats):
        for name, solver in case.ways.items():
            model = case.estimator.set_params(
                solver=solver, n_jobs=2, engine="threads" if case.ways is SHARDS else None
            )
            model.set_params(memory_limit="4GiB", random_state=0)
            clock, cpu = time.perf_counter(), time.process_time()
            model.fit(rows.X, rows.y)
            ways[name]["clock"].append(time.perf_counter() - clock)
            ways[name]["cpu"].append(time.process_time() - cpu)
            values = [record.get("kernel_values") or 0 for record in model.history_]
            ways[name] |= {
                # clusters and what follows them count their own
                "kernel_values": int(max(values)) if values == sorted(values) else None,
                "objective": model.objective_,
                "gap": model.gap_,
            }
    return {"title": case.title, "rows": len(rows.y), "ways": ways}


def report(found: Mapping[str, Any]) -> str:
    """A table of ratios."""
    head = ["problem", "solver", "processor seconds", "ratio", "seconds", "kernel values", "gap"]
    table = []
    for one in found["cases"].values():
        first = next(iter(one["ways"].values()))
        for name, way in one["ways"].items():
            cpu = median(way["cpu"])
            table.append(
                [
                    one["title"] if way is first else "",
                    name,
                    f"{cpu:.3g}",
                    f"{cpu / median(first['cpu']):.2f}x",
                    f"{median(way['clock']):.3g}",
                    f"{way['kernel_values']:.2g}" if way["kernel_values"] else "-",
                    f"{way['gap']:.1e}",
                ]
            )
    where = f"{found['machine']['cpu']}, {found['machine']['cores']} cores"
    load = f"load {found['machine']['load_at_start']:.0f}"
    return f"{markdown(head, table)}\n\n{where}, {load}. {found['started'][:10]}."


def main(arguments: list[str] | None = None) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.moving", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--generated", action="store_true", help="made-up data")
    parser.add_argument("--report", action="store_true", help="write the page only")
    options = parser.parse_args(arguments)
    if not options.report:
        old = json.loads(FILE.read_text())["cases"] if FILE.exists() else {}
        found = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine(),
            "cases": old,
        }
        for name in options.only:
            old[name] = measure(CASES[name], options.generated)
            print(json.dumps(old[name]), file=sys.stderr, flush=True)
            found["cases"] = {each: old[each] for each in CASES if each in old}
            if not options.generated:
                FILE.write_text(json.dumps(found, indent=1) + "\n")
    if not options.generated:
        PAGE.write_text(placed(PAGE.read_text(), report(json.loads(FILE.read_text())), "moving"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
