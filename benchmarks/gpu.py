"""A graphics card against the threads of the same machine.

    python -m benchmarks.gpu [--only NAME ...] [--threads 1 2 4 8 16]   # writes results/gpu/*.json
    python -m benchmarks.gpu --metric FACTORS.npy --only covtype-metric # a factor for each feature
    python -m benchmarks.gpu --sizes                    # generated rows: from where on a card pays
    python -m benchmarks.gpu --report                                   # prints the tables

Rows are in the machine's memory when the clock starts. On the card the first fit of a problem,
which may compile programs, is recorded apart; the median of the others counts. Threads get the same
problem, tolerance and `solver`; how often is `--repeat-threads`. The card comes first, then the
threads, the most important problem first; every result is written when it is there, and
`--budget-seconds` ends the run in time: a fit that it cuts short is not recorded.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import margrave
from benchmarks import data
from benchmarks.data import Data
from benchmarks.measure import machine
from benchmarks.papers.published import PBM_TABLE_2

FOLDER = Path(__file__).parent / "results" / "gpu"
PACKAGES = ("margrave", "numpy", "scikit-learn")
CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")


@dataclass(frozen=True)
class Case:
    """What is fitted or scored, and the seconds on one H200 that are the goal."""

    title: str
    dataset: str
    prepare: Callable[[data.Raw, int | None, int], Data]
    rows: int | None
    new_rows: int
    parameters: Mapping[str, Any]
    goal: float
    estimator: str = "SVC"
    form: str = "float32-dense"
    early: bool = False  # the model of the first clusters
    grid: Mapping[str, list[float]] = field(default_factory=dict)  # of a search
    scores: bool = False  # the scores of the new rows, too
    metric: bool = False  # features are multiplied by given factors
    published: Mapping[str, float] = field(default_factory=dict)  # seconds, as others report them


_COVTYPE = {"C": 32.0, "gamma": 32.0}
_POWERS = {
    "C": [2.0**power for power in range(-2, 11, 2)],
    "gamma": [2.0**power for power in range(-6, 7, 2)],
}
CASES = {
    "covtype": Case(
        "covtype.binary, 464,809 rows, C=32, gamma=32",
        *("covtype", data.covtype_binary, 464_809, 116_203, _COVTYPE, 2.0),
        scores=True,
        published={"PBM, 32 machines": PBM_TABLE_2["covtype"]["rounds"][0]},
    ),
    "covtype-early": Case(
        "its early model",
        *("covtype", data.covtype_binary, 464_809, 116_203, _COVTYPE, 0.4),
        early=True,
    ),
    "covtype-50k": Case(
        "covtype.binary, 50,000 rows",
        *("covtype", data.covtype_binary, 50_000, 20_000, _COVTYPE, 0.5),
    ),
    "ijcnn1": Case(
        "ijcnn1, 49,990 rows, C=32, gamma=2",
        *("ijcnn1", data.both_parts, None, 91_701, {"C": 32.0, "gamma": 2.0}, 0.15),
    ),
    "a9a": Case(
        "a9a (sparse), 32,561 rows, C=1, gamma=0.05",
        *("a9a", data.both_parts, None, 16_281, {"C": 1.0, "gamma": 0.05}, 0.3),
        form="float32-csr",
    ),
    "svr-kin40k": Case(
        "kin40k (SVR), 32,000 rows, C=10, epsilon=0.1, gamma=1/8",
        *("kin40k", data.regression, 32_000, 8_000),
        {"C": 10.0, "epsilon": 0.1, "gamma": 1 / 8},
        *(0.5, "SVR"),
    ),
    "klr-covtype": Case(
        "covtype.binary (KernelLogisticRegression), 100,000 rows, C=32, gamma=32",
        *("covtype", data.covtype_binary, 100_000, 20_000, _COVTYPE, 5.0),
        estimator="KernelLogisticRegression",
    ),
    "mnist-10": Case(
        "mnist, 60,000 rows, ten classes one against one, C=10, gamma=0.02",
        *("mnist", data.mnist_digits, None, 10_000, {"C": 10.0, "gamma": 0.02}, 2.0),
    ),
    "tuner-ijcnn1": Case(
        "Tuner: ijcnn1, 49,990 rows, 7 x 7 settings, 5 folds",
        *("ijcnn1", data.both_parts, None, 91_701, {}, 2.0),
        grid=_POWERS,
    ),
    "covtype-metric": Case(
        "covtype.binary, 464,809 rows, exponential kernel with a metric, C=10, tol=5e-3",
        *("covtype", data.covtype_binary, 464_809, 116_203),
        {"C": 10.0, "gamma": 1.0, "kernel": "exponential", "tol": 5e-3},
        10.0,
        metric=True,
    ),
}  # the most important first


@dataclass(frozen=True)
class Budget:
    """What is left of the seconds for all measurements."""

    seconds: float = math.inf
    begin: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.begin)

    def limit(self) -> float | None:
        """For a fit that begins now."""
        return None if math.isinf(self.seconds) else max(1e-3, self.left())


def make(case: Case, budget: Budget, **place: Any) -> Any:
    """The model of a case, on a card (`engine`) or on threads (`n_jobs`)."""
    kind = getattr(margrave, case.estimator)
    solver: Any = margrave.solvers.DivideAndConquer(early=4) if case.early else "auto"
    if not case.grid:
        limit = budget.limit()
        return kind(**case.parameters, solver=solver, random_state=0, time_limit=limit, **place)
    model = kind(**case.parameters, solver=solver, random_state=0, **place)
    jobs = place.get("n_jobs")
    return margrave.Tuner(model, case.grid, 5, n_jobs=jobs, time_limit=budget.limit())


def measure(
    case: Case, rows: Data, repeats: int, first: bool, budget: Budget, **place: Any
) -> dict[str, Any] | None:
    """Fit a few times; scores of new rows too where the case has them. None: no time was left."""
    found: dict[str, Any] = {"seconds_of": [], "score_seconds_of": []}
    done = None
    for turn in range(repeats + first):
        if budget.left() <= 0.0:
            break
        model = make(case, budget, **place)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the time limit
            model.fit(rows.X, rows.y)
        seconds = time.perf_counter() - begin
        if budget.left() <= 0.0:
            break  # it may have been cut short
        if turn == 0 and first:
            found["first_seconds"] = seconds
        else:
            found["seconds_of"].append(seconds)
        done = model
        if case.scores:
            begin = time.perf_counter()
            model.decision_function(rows.X_new)
            if turn or not first:
                found["score_seconds_of"].append(time.perf_counter() - begin)
    if done is None or not found["seconds_of"]:
        return None
    for kind in ("seconds", "score_seconds"):
        if found[f"{kind}_of"]:
            found[kind] = median(found[f"{kind}_of"])
    found["score"] = float(done.score(rows.X_new, rows.y_new))
    best = getattr(done, "best_estimator_", done)
    for name in ("solver_", "gap_", "certificate_", "converged_", "kernel_values_"):
        value = getattr(best, name, None)
        found[name.rstrip("_")] = value.item() if isinstance(value, np.generic) else value
    found["support_vectors"] = len(best.support_)
    if case.grid:
        found["best_params"], found["best_score"] = done.best_params_, float(done.best_score_)
    return found


SIZES = [(n, d) for d in (10, 100, 800) for n in (1_000, 3_000, 10_000, 30_000, 100_000)]
_FEWEST_SIZES = [(300, 10)]


def waves(n_rows: int, n_features: int) -> Data:
    """Rows of two classes that follow three of the features, with noise in the labels."""
    rng = np.random.default_rng(n_features)
    X = (0.02 * rng.standard_normal((n_rows, n_features))).astype(np.float32)
    X[:, :3] = rng.uniform(-2.0, 2.0, (n_rows, 3))
    sides = np.sin(3.0 * X[:, :3]).prod(axis=1) + 0.2 * rng.standard_normal(n_rows) > 0.0
    return Data(X, sides.astype(int))


def measure_sizes(options: argparse.Namespace) -> None:
    """Fits of an SVC on rows of many sizes, by the card and by all threads."""
    found = []
    for n, d in _FEWEST_SIZES if options.generated else SIZES:
        rows = waves(n, d)
        one: dict[str, Any] = {"rows": n, "features": d}
        for place, where in (("cuda", {"engine": margrave.engines.Cuda()}), ("threads", {})):
            if place == "cuda" and not options.repeat:
                continue
            model = margrave.SVC(C=10.0, gamma=2.0, random_state=0, **where)
            seconds = []
            for _ in range(1 + options.repeat):
                begin = time.perf_counter()
                model.fit(rows.X, rows.y)
                seconds.append(time.perf_counter() - begin)
            one[place] = {"seconds": median(seconds[1:]), "gap": model.gap_}
            if place == "cuda":
                one[place]["bytes"] = int(where["engine"].card().pool.total_bytes())
        found.append(one)
        print(one, flush=True)
    if not options.generated:
        results = {"machine": machine(), "card": card(), "sizes": found}
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "sizes.json").write_text(json.dumps(results, indent=1) + "\n")


def sizes_table(folder: Path = FOLDER) -> str:
    """Seconds of the card and of all threads, and the card's memory, by rows and features."""
    path = folder / "sizes.json"
    if not path.exists():
        return "(not measured yet)"
    found = json.loads(path.read_text())
    lines = ["| rows | features | card | threads | threads / card | memory of the card |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for one in found["sizes"]:
        here, there = one["cuda"]["seconds"], one["threads"]["seconds"]
        lines.append(
            f"| {one['rows']:,} | {one['features']} | {here:.3g} s | {there:.3g} s"
            f" | {there / here:.2g} | {one['cuda']['bytes'] / 2**20:,.0f} MiB |"
        )
    return "\n".join(lines)


def card() -> dict[str, Any]:
    """The graphics card, its driver and CuPy."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "name": properties["name"].decode(),
        "memory_bytes": int(properties["totalGlobalMem"]),
        "driver": int(cupy.cuda.runtime.driverGetVersion()),
        "runtime": int(cupy.cuda.runtime.runtimeGetVersion()),
        "cupy": cupy.__version__,
    }


def run(options: argparse.Namespace) -> None:
    """Measure on the card, then on threads, and write a file per case after each measurement."""
    options.output.mkdir(parents=True, exist_ok=True)
    budget = Budget(options.budget_seconds or math.inf)
    prepared = Prepared(options)
    places: list[int | None] = [*([None] if options.repeat else []), *options.threads]
    for threads in places:
        for name in options.only or CASES:
            case = CASES[name]
            if case.metric and options.metric is None:
                print(f"{name:14s} needs --metric", flush=True)
                continue
            if budget.left() <= 0.0:
                print(f"{name:14s} no time left", flush=True)
                continue
            rows = prepared.rows(case)
            if threads is None:
                place = "cuda"
                found = measure(case, rows, options.repeat, True, budget, engine="cuda")
            else:
                place = f"{threads} threads"
                found = measure(case, rows, options.repeat_threads, False, budget, n_jobs=threads)
            if found is None:
                print(f"{name:14s} {place:11s} no time left", flush=True)
                continue
            _tell(name, place, found)
            if not options.generated:
                _write(options.output / f"{name}.json", _results(name, rows, threads, found))


class Prepared:
    """Rows of the cases, prepared once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.raw: dict[str, data.Raw] = {}
        self.made: dict[Any, Data] = {}

    def rows(self, case: Case) -> Data:
        generated = self.options.generated
        if case.dataset not in self.raw:
            make_raw = data.generate if generated else data.read
            self.raw[case.dataset] = make_raw(case.dataset)
        few = (300, 100) if generated else (case.rows, case.new_rows)
        key = (case.dataset, few, case.form, case.metric)
        if key not in self.made:
            rows = case.prepare(self.raw[case.dataset], *few).in_form(case.form)
            if case.metric:
                factors = np.load(self.options.metric).astype(rows.X.dtype)
                rows = replace(rows, X=rows.X * factors, X_new=rows.X_new * factors)
            self.made[key] = rows
        return self.made[key]


def _results(name: str, rows: Data, threads: int | None, found: dict[str, Any]) -> dict[str, Any]:
    case = CASES[name]
    results: dict[str, Any] = {
        "case": {"name": name, "title": case.title, "goal": case.goal,
                 "rows": rows.X.shape[0], "features": rows.X.shape[1],
                 "new_rows": rows.X_new.shape[0]},
        "machine": machine(),
        "versions": {package: metadata.version(package) for package in PACKAGES},
        "published": dict(case.published),
        "threads": {},
    }  # fmt: skip
    if threads is None:
        return {**results, "card": card(), "cuda": found}
    return {**results, "threads": {str(threads): found}}


def _tell(name: str, place: str, found: Mapping[str, Any]) -> None:
    shown = ("seconds", "first_seconds", "score_seconds", "score", "gap", "solver", "converged")
    parts = [f"{key}={found[key]:.4g}" if isinstance(found[key], float) else f"{key}={found[key]}"
             for key in shown if key in found]  # fmt: skip
    print(f"{name:14s} {place:11s}", *parts, flush=True)


def _write(path: Path, results: dict[str, Any]) -> None:
    """Write a file; what was not measured this time stays as it was."""
    if path.exists():
        before = json.loads(path.read_text())
        results["threads"] = {**before.get("threads", {}), **results["threads"]}
        results = {**before, **results}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(path)  # whole, or as before


def table(folder: Path = FOLDER) -> str:
    """The markdown table of all results: seconds."""
    lines = [
        "| problem | card | goal | 1 thread | 2 | 4 | 8 | 16 | threads / card |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, case in CASES.items():
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        found = json.loads(path.read_text())
        if "cuda" not in found:
            continue
        kinds = [("seconds", case.title, case.goal)]
        if case.scores:
            kinds.append(("score_seconds", f"scores of {found['case']['new_rows']:,} rows", 0.05))
        for kind, title, goal in kinds:
            here = found["cuda"][kind]
            seconds = {n: at[kind] for n, at in found["threads"].items()}
            cells = [f"{seconds[n]:.3g} s" if n in seconds else "-" for n in _THREADS]
            most = max(seconds, key=int, default=None)
            ratio = "-" if most is None else f"{seconds[most] / here:.3g}"
            lines.append(
                f"| {title} | {here:.3g} s | {goal:g} s | " + " | ".join([*cells, ratio]) + " |"
            )
    theirs = [
        f"As published, on other computers: {case.title}: {seconds:g} s, {who}."
        for case in CASES.values()
        for who, seconds in case.published.items()
    ]
    measured = [*lines, ""] if len(lines) > 2 else []
    return "\n".join([*measured, _conditions(folder), *theirs])


def _conditions(folder: Path) -> str:
    """Which card, which machine."""
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        if "card" in found:
            of, on = found["card"], found["machine"]
            return (
                f"{of['name']}, {of['memory_bytes'] / 2**30:.0f} GiB, CUDA {of['runtime'] // 1000},"
                f" CuPy {of['cupy']}; {on['cpu']}, {on['cores']} cores, {on['instruction_set']}."
            )
    return "(not measured yet)"


_THREADS = ("1", "2", "4", "8", "16")


def main(arguments: list[str] | None = None) -> int:
    """Measure or report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=CASES)
    parser.add_argument("--threads", type=int, nargs="*", default=[int(n) for n in _THREADS])
    parser.add_argument("--repeat", type=int, default=3, help="on the card; 0: not at all")
    parser.add_argument("--repeat-threads", type=int, default=1)
    parser.add_argument("--budget-seconds", type=float, help="for all measurements together")
    parser.add_argument("--metric", type=Path, help="factors of features (.npy), for *-metric")
    parser.add_argument("--output", type=Path, default=FOLDER)
    parser.add_argument("--generated", action="store_true", help="made-up rows: writes nothing")
    parser.add_argument("--sizes", action="store_true", help="generated rows of many sizes")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args(arguments)
    if options.report:
        print(table(), sizes_table(), sep="\n\n")
    elif options.sizes:
        measure_sizes(options)
    else:
        run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
