"""Expectation maximization and Gibbs sampling compared with LIBLINEAR; the cost of an iteration.

    python -m benchmarks.augmentation [--only NAME ...]     # measures, and writes the page
    python -m benchmarks.augmentation --report              # writes the page from the result files

Every entry runs in its own process. LIBLINEAR (LinearSVC and LinearSVR with the piecewise linear
losses, in double precision) is timed with its defaults, and with the smallest of some numbers of
iterations at which its objective is within 1e-3 of the optimum.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks import data
from benchmarks.marks import placed
from benchmarks.measure import machine
from benchmarks.papers.common import ROOT, markdown

FOLDER = ROOT / "benchmarks" / "results" / "papers"
PAGE = ROOT / "docs" / "papers" / "pemsvm.md"
LIMIT = 300  # seconds of one process
CUTS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)  # iterations of LIBLINEAR
EXACT, NEAR = 1e-6, 1e-3


@dataclass(frozen=True)
class Case:
    title: str
    dataset: str
    regression: bool
    C: float
    prepare: Callable[[Mapping[str, Any]], tuple[Any, np.ndarray]]


def _standardised(raw: Mapping[str, Any]) -> tuple[Any, np.ndarray]:
    X = raw["X"].astype(np.float64)
    deviation = X.std(axis=0)
    X -= X.mean(axis=0)
    X /= np.where(deviation > 0.0, deviation, 1.0)
    return X, raw["y"]


def _labels(raw: Mapping[str, Any], positive: int) -> tuple[Any, np.ndarray]:
    X, y = _standardised(raw)
    return X, np.where(y == positive, 1, -1)


def _targets(raw: Mapping[str, Any]) -> tuple[Any, np.ndarray]:
    X, y = _standardised(raw)
    y = y.astype(np.float64)
    return X, (y - y.mean()) / y.std()


def _text(raw: Mapping[str, Any]) -> tuple[Any, np.ndarray]:
    X = sparse.csr_matrix(raw["X"], dtype=np.float64)
    X.data = np.log1p(X.data)
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    X = sparse.diags(1.0 / np.where(norms > 0, norms, 1.0)) @ X
    return sparse.csr_matrix(X), np.where(raw["y"] <= 10, 1, -1)


CASES = {
    "covtype": Case("covtype.binary", "covtype", False, 1.0, lambda raw: _labels(raw, 2)),
    "skin_nonskin": Case("skin_nonskin", "skin_nonskin", False, 1.0, lambda raw: _labels(raw, 1)),
    "susy30k": Case("susy30k", "susy30k", False, 1.0, lambda raw: _labels(raw, 1)),
    "protein": Case("protein, regression", "protein", True, 1.0, _targets),
    "flights_3m": Case("flights_3m, regression", "flights_3m", True, 0.1, _targets),
    "news20_18k": Case("news20_18k, classes 1-10 against 11-20", "news20_18k", False, 1.0, _text),
}
WAYS = {
    "fast": 'EM, mode="fast"',
    "em": 'EM, mode="em"',
    "auto": 'solver="auto"',
    "liblinear": "LIBLINEAR, default",
    "shortest": "LIBLINEAR, shortest run within 1e-3",
}
COSTS = "costs"


# --- one process ---------------------------------------------------------------------------------


def _objective(case: Case, X: Any, y: np.ndarray, w: np.ndarray, b: float) -> float:
    f = np.asarray(X @ w).ravel() + b
    paid = np.abs(y - f) - 0.1 if case.regression else 1.0 - y * f
    return 0.5 * float(w @ w + b * b) + case.C * float(np.maximum(0.0, paid).sum())


def _ours(case: Case, solver: Any, tol: float) -> Any:
    from margrave import SVC, SVR

    form = SVR if case.regression else SVC
    return form(case.C, kernel="linear", intercept="regularized", solver=solver, tol=tol, n_jobs=2)


def _theirs(case: Case, iterations: int) -> Any:
    from sklearn.svm import LinearSVC, LinearSVR

    if case.regression:
        return LinearSVR(C=case.C, epsilon=0.1, max_iter=iterations, random_state=0)
    return LinearSVC(C=case.C, loss="hinge", max_iter=iterations, random_state=0)


def _fitted(model: Any, X: Any, y: np.ndarray) -> tuple[Any, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.perf_counter()
        model.fit(X, y)
        return model, time.perf_counter() - begin


def measure(name: str, way: str) -> dict[str, Any]:
    from margrave.solvers import ExpectationMaximization

    case = CASES[name]
    X, y = case.prepare(data.read(case.dataset))
    head = np.random.default_rng(0).choice(len(y), 500, replace=False)
    peak = 0
    found: dict[str, Any] = {"rows": X.shape[0], "features": X.shape[1]}
    if way in ("fast", "em", "auto"):
        given = X if sparse.issparse(X) else X.astype(np.float32)
        del X
        solver = "auto" if way == "auto" else ExpectationMaximization(way)
        _fitted(_ours(case, solver, NEAR), given[head], y[head])  # loads what is loaded lazily
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds: list[float] = []
        while len(seconds) < 3 and sum(seconds) < 60.0:
            model, spent = _fitted(_ours(case, solver, NEAR), given, y)
            seconds.append(spent)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found |= {
            "gap": model.gap_,
            "iterations": int(np.sum(model.n_iter_)),
            "converged": model.converged_,
        }
        found |= {"peak_above_rows_bytes": 1024 * (peak - before), "solver": model.solver_}
        found |= {"peak_bytes": 1024 * peak}
        w, b, X = model.coef_.ravel(), float(np.ravel(model.intercept_)[0]), given
    else:
        _fitted(_theirs(case, 10), X[head], y[head])
        best = json.loads((FOLDER / f"pemsvm-{name}.json").read_text())["optimum"]
        for iterations in CUTS if way == "shortest" else (1000,):
            model, spent = _fitted(_theirs(case, iterations), X, y)
            w, b = model.coef_.ravel(), float(np.ravel(model.intercept_)[0])
            if _objective(case, X, y, w, b) <= (1.0 + NEAR) * best:
                break
        seconds = [spent]
        found |= {"iterations": int(np.max(model.n_iter_)), "solver": "liblinear"}
    return found | {
        "seconds": median(seconds),
        "repeats": seconds,
        "objective": _objective(case, X, y, w, b),
    }


def optimum(name: str) -> float:
    case = CASES[name]
    X, y = case.prepare(data.read(case.dataset))
    model, _ = _fitted(_ours(case, "auto", EXACT), X, y)
    return float(model.objective_ * (1.0 - model.gap_ / 2.0))


def costs() -> dict[str, Any]:
    """Seconds of one iteration of EM for rows, features and workers; Gibbs; the sums themselves."""
    from margrave import _core
    from margrave.engines import Serial, Threads
    from margrave.kernels import Kernel, core_rows
    from margrave.losses import Loss
    from margrave.problem import Data, Problem
    from margrave.progress import Progress
    from margrave.solvers import Settings
    from margrave.solvers.bayes.gibbs import _WeightSampler
    from margrave.solvers.linear.augmentation import Weights

    def problem(X: Any, y: np.ndarray) -> Any:
        rows = Data(X, Kernel("linear"), np.array([0, len(y)], dtype=np.int64))
        return Problem(rows, None, y, np.ones(len(y)), Loss("hinge"), "regularized")

    def iteration(X: Any, y: np.ndarray, workers: int, gibbs: bool) -> float:
        engine: Any = Serial() if workers == 1 else Threads(workers)
        settings = Settings(1e-12, 1 << 32, workers, 0, Progress(1e-12))
        seconds = []
        if gibbs:
            sampler = _WeightSampler(problem(X, y), 2.0, 1, settings, engine)
            steps: Any = iter(lambda: sampler.draw(len(seconds) + 1), None)
        else:
            steps = Weights(problem(X, y), settings, engine).iterations("published")
        next(steps)
        for _ in range(5):
            begin = time.perf_counter()
            next(steps)
            seconds.append(time.perf_counter() - begin)
        return median(seconds)

    rng = np.random.default_rng(0)
    table = []
    for n, d in ((100_000, 50), (200_000, 50), (400_000, 50), (100_000, 100), (100_000, 200)):
        X = rng.standard_normal((n, d)).astype(np.float32)
        y = np.sign(X[:, 0] + rng.standard_normal(n))
        for workers in (1, 2):
            table.append(
                {"rows": n, "features": d, "workers": workers}
                | {"seconds": iteration(X, y, workers, False)}
            )
    case = CASES["covtype"]
    X, y = case.prepare(data.read(case.dataset))
    y = y.astype(np.float64)
    em, gibbs = (iteration(X.astype(np.float32), y, 2, one) for one in (False, True))
    # X'DX by the core and X'X by NumPy's library: the same rows in double precision, two threads
    team = _core.Team(2)
    rows = _core.LinearRows(core_rows(X), [0], [len(y)], team)
    d = X.shape[1]
    sums: dict[str, list[float]] = {"core": [], "numpy": []}
    for _ in range(5):
        matrix, border = np.zeros((d, d)), np.zeros(d)
        begin = time.perf_counter()
        rows.gram(np.ones(len(y)), matrix, border, False)
        sums["core"].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        product = X.T @ X
        sums["numpy"].append(time.perf_counter() - begin)
    assert np.allclose(matrix, product)
    return {
        "table": table,
        "em_iteration": em,
        "gibbs_iteration": gibbs,
        "sums": {name: median(found) for name, found in sums.items()},
    }


# --- all of them ---------------------------------------------------------------------------------


def apart(*arguments: str) -> Any:
    """One measurement in its own process; a failure is returned instead of raised."""
    task = [sys.executable, "-m", "benchmarks.augmentation", "--measure", *arguments]
    try:
        done = subprocess.run(
            task, check=False, capture_output=True, text=True, cwd=ROOT, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return {"error": f"given up after {LIMIT} s"}
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no answer"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def run(names: list[str], ways: list[str]) -> None:
    for name in names:
        file = FOLDER / f"pemsvm-{name}.json"
        found = json.loads(file.read_text()) if file.exists() else {"ways": {}}
        found |= {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine(),
        }
        if name == COSTS:
            file.write_text(json.dumps({**found, "costs": apart(COSTS)}, indent=1) + "\n")
            continue
        case = CASES[name]
        print(case.title, file=sys.stderr, flush=True)
        found |= {"title": case.title, "C": case.C}
        if "optimum" not in found:
            found["optimum"] = apart("optimum", name)
        file.write_text(json.dumps(found, indent=1) + "\n")
        for way in ways:
            found["ways"][way] = apart("way", name, way)
            print(f"  {WAYS[way]:40} {found['ways'][way]}", file=sys.stderr, flush=True)
            file.write_text(json.dumps(found, indent=1) + "\n")


# --- the page ------------------------------------------------------------------------------------


def report(folder: Path = FOLDER) -> str:
    parts = ["## Time to a gap of 1e-3"]
    for name in CASES:
        file = folder / f"pemsvm-{name}.json"
        if file.exists():
            parts.append(_table(json.loads(file.read_text())))
    file = folder / f"pemsvm-{COSTS}.json"
    if file.exists():
        parts += ["## What an iteration costs", _costs(json.loads(file.read_text())["costs"])]
    return "\n\n".join(parts)


def _table(found: Mapping[str, Any]) -> str:
    ways, best = found["ways"], found["optimum"]
    told = [one for one in ways.values() if "error" not in one]
    shape = f"{told[0]['rows']:,} x {told[0]['features']:,}, C={found['C']:g}" if told else ""
    reference = ways.get("fast", {}).get("seconds")
    head = ["method", "seconds", "over EM fast", "iterations", "gap", "above the optimum"]
    lines = []
    for way, title in WAYS.items():
        one = ways.get(way)
        if one is None:
            continue
        if "error" in one:
            lines.append([title, one["error"], "-", "-", "-", "-"])
            continue
        ratio = f"{one['seconds'] / reference:.2f}x" if reference else "-"
        gap = f"{one['gap']:.1e}" if "gap" in one else "-"
        if one.get("solver") not in (None, "em", "liblinear"):
            title = f"{title} ({one['solver']})"
        above = f"{one['objective'] / best - 1.0:.1e}"
        lines.append([title, f"{one['seconds']:.3g}", ratio, str(one["iterations"]), gap, above])
    memory = ways.get("fast", {}).get("peak_bytes")
    tail = f"\n\nMemory of the whole process with EM: {memory / 2**30:.2f} GiB." if memory else ""
    return f"### {found['title']}\n\n{shape}\n\n{markdown(head, lines)}{tail}"


def _costs(found: Mapping[str, Any]) -> str:
    head = ["rows", "features", "1 worker (s)", "2 workers (s)", "ns per row and pair of features"]
    cells: dict[tuple[int, int], dict[int, float]] = {}
    for one in found["table"]:
        cells.setdefault((one["rows"], one["features"]), {})[one["workers"]] = one["seconds"]
    lines = [
        [
            *(f"{n:,}", str(d), f"{by[1]:.3f}", f"{by[2]:.3f}"),
            f"{1e9 * by[1] / (n * d * d / 2):.3f}",
        ]
        for (n, d), by in cells.items()
    ]
    em, gibbs, sums = found["em_iteration"], found["gibbs_iteration"], found["sums"]
    return "\n\n".join(
        [
            markdown(head, lines),
            f"covtype.binary, 2 workers: an iteration of EM takes {em:.3f} s, one of Gibbs sampling"
            f" {gibbs:.3f} s, {gibbs / em:.2f} times as long.",
            f"The sums X'DX of its rows in double precision take {sums['core']:.3f} s, NumPy's"
            f" `X.T @ X` {sums['numpy']:.3f} s: {sums['numpy'] / sums['core']:.2f} of its speed.",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*CASES, COSTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--report", action="store_true", help="write the page only")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        kind, *rest = options.measure
        tasks: dict[str, Callable[..., Any]] = {"way": measure, "optimum": optimum, COSTS: costs}
        print(json.dumps(tasks[kind](*rest)))
        return 0
    if not options.report:
        data.folder()  # fails early, with an explanation
        run(options.only, options.ways)
    PAGE.write_text(placed(PAGE.read_text(), report()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
