"""One model on every engine: seconds and bytes. `scaling.py` simulates more workers.

    python -m benchmarks.engines [--only NAME ...]     # measures, and writes docs/distributed.md
    python -m benchmarks.engines --report              # writes the page from the result files

Every fit runs in its own process (with MPI, one per rank). All with an engine run the same
algorithm on the same blocks and find the same model, to the last bit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.marks import placed
from benchmarks.measure import in_own_process, machine
from benchmarks.papers.common import ROOT, markdown
from margrave import SVC, solvers

FOLDER = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "distributed.md"
REPEATS = 3
ENOUGH = 20.0  # seconds of fits after which there are no more repeats
LIMIT = 1200  # seconds of one process


@dataclass(frozen=True)
class Case:
    title: str
    dataset: str
    prepare: Any
    rows: int | None
    parameters: Mapping[str, float]
    blocks: int


CASES = {
    "ijcnn1": Case(
        "ijcnn1, 49,990 rows, C=32, gamma=2",
        *("ijcnn1", data.train_part, None, {"C": 32.0, "gamma": 2.0}, 8),
    ),
    "covtype-100k": Case(
        "covtype.binary, 100,000 rows, C=32, gamma=32",
        *("covtype", data.covtype_binary, 100_000, {"C": 32.0, "gamma": 32.0}, 16),
    ),
}


@dataclass(frozen=True)
class Way:
    title: str
    engine: str | None  # None: all in one process
    workers: int
    threads: int = 1  # of this process
    solver: str = "pbm"


WAYS = {
    "dc": Way("one process of 2 threads, dc", None, 1, 2, "dc"),
    "exact": Way("one process of 2 threads, exact", None, 1, 2, "exact"),
    "serial": Way("serial, 1 thread", "serial", 1),
    "threads-2": Way("2 threads", "threads", 2, 2),
    "dask-2": Way("Dask, 2 workers of 1 thread", "dask", 2, 2),
    "mpi-2": Way("MPI, 2 ranks of 1 thread", "mpi", 2, 2),
    "dask-4": Way("Dask, 4 workers on the 2 cores", "dask", 4, 2),
    "mpi-4": Way("MPI, 4 ranks on the 2 cores", "mpi", 4, 2),
}


# --- one process ---------------------------------------------------------------------------------


def measure(case: Case, way: Way, generated: bool) -> dict[str, Any]:
    raw = data.generate(case.dataset) if generated else data.read(case.dataset)
    rows = case.prepare(raw, None if generated else case.rows, 100).in_form("float32-dense")
    solver: Any = way.solver
    if way.engine is not None:
        solver = solvers.BlockMinimization(blocks=case.blocks)
    seconds, model, close = [], None, lambda: None
    engine: Any = way.engine
    if way.engine == "dask":
        from distributed import Client, LocalCluster

        cluster = LocalCluster(
            n_workers=way.workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        )
        engine = Client(cluster)

        def close() -> None:
            engine.close()
            cluster.close()

    for repeat in range(1 + (1 if generated else REPEATS)):
        if sum(seconds[1:]) > ENOUGH:
            break
        few = rows.head() if repeat == 0 else rows  # the first loads what is loaded lazily
        model = SVC(
            **case.parameters,
            tol=1e-3,
            solver=solver,
            engine=engine,
            n_jobs=way.threads,
            memory_limit="4GiB",
            random_state=0,
        )
        if repeat == 0:
            model.set_params(solver=way.solver)
        begin = time.perf_counter()
        model.fit(few.X, few.y)
        seconds.append(time.perf_counter() - begin)
    close()
    assert model is not None
    rounds = [record for record in model.history_ if "step" in record and "active" in record]
    sent = [record["bytes"] for record in rounds if "bytes" in record]
    return {
        "seconds": median(seconds[1:]),
        "repeats": seconds[1:],
        "objective": model.objective_,
        "gap": model.gap_,
        "converged": model.converged_,
        "rounds": int(np.sum(model.n_iter_)),
        "rows": len(rows.y),
        "features": int(rows.X.shape[1]),
        "shards": case.blocks,
        "support_vectors": len(model.support_),
        "bytes_per_round": median(sent) if sent else None,
        "versions": {
            name: _version(name) for name in ("margrave", "numpy", "distributed", "mpi4py")
        },
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# --- all of them ---------------------------------------------------------------------------------


def run(names: list[str], ways: list[str], generated: bool, output: Path | None) -> int:
    failed = False
    for name in names:
        print(CASES[name].title, file=sys.stderr, flush=True)
        file = None if output is None else output / f"engines-{name}.json"
        runs = json.loads(file.read_text())["ways"] if file is not None and file.exists() else {}
        for each in ways:
            runs[each] = apart(name, each, generated)
            print(f"  {WAYS[each].title:34} {_summary(runs[each])}", file=sys.stderr, flush=True)
            failed |= "error" in runs[each]
        found = {
            "name": name,
            "title": CASES[name].title,
            "parameters": dict(CASES[name].parameters),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine(),
            "ways": runs,
        }
        if file is not None:
            file.write_text(json.dumps(found, indent=1) + "\n")
    return int(failed)


def apart(name: str, each: str, generated: bool) -> dict[str, Any]:
    """One measurement in its own processes; a failure is returned instead of raised."""
    way = WAYS[each]
    task = [sys.executable, "-m", "benchmarks.engines", "--measure", name, each]
    if generated:
        task.append("--generated")
    if way.engine == "mpi":
        launcher = shutil.which(
            "mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        )
        if launcher is None:
            return {"error": "there is no mpiexec"}
        task = [launcher, "-n", str(way.workers), *task]
    return in_own_process(task, LIMIT, ROOT)


def _is_silent(way: Way) -> bool:
    """Whether this is not the first of several ranks, which alone prints."""
    if way.engine != "mpi":
        return False
    from mpi4py import MPI

    return bool(MPI.COMM_WORLD.Get_rank() > 0)


def _summary(found: dict[str, Any]) -> str:
    if "error" in found:
        return str(found["error"])
    moved = found["bytes_per_round"]
    per_round = f", {moved / 1e6:.2f} MB per round" if moved else ""
    return f"{found['seconds']:8.2f} s, gap {found['gap']:.1e}, {found['rounds']} rounds{per_round}"


# --- the page ------------------------------------------------------------------------------------


def report(folder: Path = FOLDER) -> str:
    parts = []
    for name, case in CASES.items():
        file = folder / f"engines-{name}.json"
        if not file.exists():
            continue
        found = json.loads(file.read_text())
        parts += [f"### {case.title}", _table(found["ways"])]
        machine_ = found["machine"]
        parts.append(f"{machine_['cpu']}, {machine_['cores']} cores. {found['started'][:10]}.")
    return "\n\n".join(parts) or "Nothing has been measured yet."


def _table(ways: Mapping[str, dict[str, Any]]) -> str:
    head = ["where", "seconds", "over 2 threads", "objective", "gap", "rounds"]
    head += ["MB per round of blocks"]
    local = ways.get("threads-2", {}).get("seconds")
    rows = []
    for name, way in WAYS.items():
        found = ways.get(name)
        if found is None or "error" in found:
            rows.append([way.title, (found or {}).get("error", "-"), *["-"] * 5])
            continue
        moved = found["bytes_per_round"]
        rows.append(
            [
                way.title,
                f"{found['seconds']:.3g}",
                f"{found['seconds'] / local:.2f}x" if local else "-",
                f"{found['objective']:.8g}",
                f"{found['gap']:.1e}",
                str(found["rounds"]),
                f"{moved / 1e6:.2f}" if moved else "-",
            ]
        )
    return markdown(head, rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--generated", action="store_true", help="made-up data")
    parser.add_argument("--report", action="store_true", help="write the page only")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        case, way = options.measure
        found = measure(CASES[case], WAYS[way], options.generated)
        if not _is_silent(WAYS[way]):
            print(json.dumps(found))
        return 0
    code = 0
    if not options.report:
        output = None if options.generated else FOLDER
        code = run(options.only, options.ways, options.generated, output)
    if not options.generated:
        PAGE.write_text(placed(PAGE.read_text(), report()))
    return code


if __name__ == "__main__":
    sys.exit(main())
