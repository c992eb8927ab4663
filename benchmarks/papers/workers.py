"""More workers: Figure 2 (e), (f) of the PBM paper, Figure 2 of the SODM paper, sums of PEMSVM."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import augmentation
from benchmarks.data import read as read_archive
from benchmarks.papers.clusters import load
from benchmarks.papers.common import read
from benchmarks.papers.dcsvm import _svc
from benchmarks.papers.picture import Curves
from benchmarks.papers.sodm import DATASETS, ODM_FIXED, PAPER, TABLE_2, TABLE_3
from benchmarks.papers.study import TIMED, Found, Study
from benchmarks.papers.worker import facts
from benchmarks.papers.workload import Tally, critical_seconds
from benchmarks.scaling import Simulated
from margrave import SVC, BayesianSVC, ODMClassifier
from margrave.solvers import BlockMinimization, ExpectationMaximization, MergeTree, VarianceReduced

SIMULATED = (
    "Workers have one core each; all of them run in one process, one after the other, and the"
    " critical path is what the slowest of them take, the driver, and a network of 10 Gbit/s"
    " ([how](../distributed.md#speed-up-with-more-workers))."
)

# --- PBM -----------------------------------------------------------------------------------------

PBM_ROUNDS, PBM_WORKERS = 8, (8, 16, 32, 64)
PBM_SHOWN = (1, 4, 8)  # rounds


def _blocks(parameters: dict[str, Any], workers: int, quick: bool, **more: Any) -> SVC:
    rounds = 2 if quick else PBM_ROUNDS
    solver = BlockMinimization(workers, rounds=rounds, moving=False, finish=None)
    return _svc({**parameters, "tol": 1e-9}, solver=solver, **more)


def _values_so_far(method: str, result: Any) -> float | None:
    return float(result[1][2]) if method == "figures" else None


def blocks(case: str, quick: bool) -> dict[str, Any]:
    """The error after each round, and the kernel values of all blocks and of the busiest."""
    data, parameters = load(case, quick)
    best = _svc({**parameters, "tol": 1e-6}, solver="exact").fit(data.X, data.y)
    dual = -float(best.objective_) * (1.0 - 0.5 * float(best.gap_))
    found: dict[str, Any] = {"rows": len(data.y), "ways": {}}
    for workers in PBM_WORKERS[:1] if quick else PBM_WORKERS:
        tally = Tally(workers, _values_so_far, is_sum=True)
        rounds: list[dict[str, Any]] = []

        def note(
            record: Any,
            tally: Tally = tally,
            workers: int = workers,
            rounds: list[dict[str, Any]] = rounds,
        ) -> None:
            if "step" in record:
                values = {"all": tally.all(), "busiest": tally.busiest(workers)}
                error = (record["dual"] - dual) / abs(dual)
                rounds.append({"error": error, **values, "bytes": record["bytes"]})

        _blocks(parameters, workers, quick, engine=tally, callbacks=note).fit(data.X, data.y)
        found["ways"][str(workers)] = rounds
    return found


def block_seconds(case: str, quick: bool) -> dict[str, Any]:
    """Seconds of the critical path until the end of each round."""
    data, parameters = load(case, quick)
    found: dict[str, Any] = {}
    for workers in PBM_WORKERS[:1] if quick else PBM_WORKERS:
        engine = Simulated(workers)
        seconds: list[float] = []

        def note(record: Any, engine: Any = engine, seconds: list[float] = seconds) -> None:
            if "step" in record:
                engine.path.flush()
                seconds.append(sum(engine.path.critical.values()))

        model = _blocks(parameters, workers, quick, engine=engine, callbacks=note, n_jobs=1)
        model.fit(data.X, data.y)
        found[str(workers)] = seconds
    return found


def _block_rows(case: str, found: Found) -> list[list[str]]:
    rows = []
    for workers, rounds in found["ways"].items():
        seconds = found[TIMED].get(workers)
        for number in (n for n in PBM_SHOWN if n <= len(rounds)):
            one = rounds[number - 1]
            rows.append(
                [
                    *(workers if number == 1 else "", str(number), f"{one['error']:.1e}"),
                    *(f"{one['all']:.2e}", f"{one['busiest'] * int(workers):.2e}"),
                    f"{one['bytes'] / 8 / found['rows']:.1f}",
                    f"{seconds[number - 1]:.2f}" if seconds else "-",
                ]
            )
    return rows


def _block_curves(case: str, found: Found) -> Curves:
    panel = {
        f"{workers} workers": [(one["busiest"] * int(workers), one["error"]) for one in rounds]
        for workers, rounds in found["ways"].items()
    }
    return [panel]


# --- SODM ----------------------------------------------------------------------------------------

WORKERS = (1, 2, 4, 8, 16, 32)
TREES = {"SODM, rbf": False, "SODM as printed, rbf": True}
NODES = "SODM, linear"


def _parameters(name: str, linear: bool, quick: bool) -> dict[str, Any]:
    """Those of Table 2 or 3."""
    table = TABLE_3 if linear else TABLE_2
    stored = {} if quick else read(PAPER, table)[name]["parameters"]
    return {**ODM_FIXED, "lam": 16.0, **({} if linear else {"gamma": 1.0}), **stored}


def _tree(name: str, printed: bool, quick: bool, **more: Any) -> ODMClassifier:
    tree = MergeTree(as_published=printed, levels=2 if quick else None)
    return ODMClassifier(**_parameters(name, False, quick), solver=tree, **more)


def _descent(name: str, workers: int, quick: bool, **more: Any) -> ODMClassifier:
    steps = VarianceReduced(partitions=workers)
    parameters = {**_parameters(name, True, quick), "max_iter": 200}
    return ODMClassifier(**parameters, kernel="linear", solver=steps, **more)


def _values_of_parts(method: str, result: Any) -> float | None:
    return float(sum(one.kernel_values for one in result)) if method == "found" else None


def speed_up(case: str, quick: bool) -> dict[str, Any]:
    """Work of one worker over what several have to wait for, by counted work."""
    data = DATASETS[case].load(quick).in_form("float32-dense")
    found: dict[str, Any] = {"rows": len(data.y), "ways": {}}
    for title, printed in TREES.items():
        tally = Tally(max(WORKERS), _values_of_parts)
        model = _tree(case, printed, quick, engine=tally).fit(data.X, data.y)
        whole = facts(model)["kernel_values"] - tally.all()  # by the driver, after the last merge
        found["ways"][title] = {
            str(workers): (tally.all() + whole) / (tally.busiest(workers) + whole)
            for workers in WORKERS
        }
        found["ways"][title]["whole"] = whole / (tally.all() + whole)
    counts = {}
    for workers in WORKERS:
        model = _descent(case, workers, quick).fit(data.X, data.y)
        # the nodes take the steps of an epoch one after the other
        counts[workers] = facts(model)["passes"], int(np.max(model.n_iter_))
    alone, steps = counts[1]
    found["ways"][NODES] = {
        str(workers): alone / ((passes - taken) / workers + taken)
        for workers, (passes, taken) in counts.items()
    }
    found["ways"][NODES]["whole"] = steps / alone
    return found


def speed_up_seconds(case: str, quick: bool) -> dict[str, Any]:
    """Seconds of the critical path."""
    data = DATASETS[case].load(quick).in_form("float32-dense")
    found: dict[str, Any] = {}
    for workers in WORKERS[:2] if quick else WORKERS:
        models = {title: _tree(case, printed, quick) for title, printed in TREES.items()}
        models[NODES] = _descent(case, workers, quick)
        for title, model in models.items():
            spent, _ = critical_seconds(model, data.X, data.y, workers)
            found.setdefault(title, {})[str(workers)] = spent
    return found


def _speed_up_rows(case: str, found: Found) -> list[list[str]]:
    rows = []
    for title, counted in found["ways"].items():
        cells = [f"{counted[str(workers)]:.2f}x" for workers in WORKERS]
        rows.append([title, "counted", *cells, f"{counted['whole']:.0%}"])
        seconds = found[TIMED].get(title)
        if seconds:
            one = seconds["1"]
            cells = [f"{one / seconds[str(w)]:.2f}x" if str(w) in seconds else "-" for w in WORKERS]
            rows.append(["", f"simulated, {one:.3g} s with one", *cells, "-"])
    return rows


def _speed_up_curves(case: str, found: Found) -> Curves:
    panel = {
        f"{title}, counted": [(float(w), counted[str(w)]) for w in WORKERS]
        for title, counted in found["ways"].items()
    }
    for title, seconds in found[TIMED].items():
        panel[f"{title}, simulated"] = [(float(w), seconds["1"] / s) for w, s in seconds.items()]
    return [panel]


# --- PEMSVM --------------------------------------------------------------------------------------

EM_WORKERS, EM_ITERATIONS, EM_ROWS = (1, 2, 8, 32), 10, 500_000
EM_FORMS = {"LIN-EM-CLS": SVC, "LIN-MC-CLS": BayesianSVC}


def _machine(form: str, iterations: int = EM_ITERATIONS, **more: Any) -> Any:
    fixed = {"kernel": "linear", "intercept": None, "random_state": 0, **more}
    if form == "LIN-MC-CLS":
        return BayesianSVC(2.0, **fixed, burn_in=0, n_samples=iterations, chains=1)
    solver = ExpectationMaximization(as_published=True)
    return SVC(1.0, **fixed, solver=solver, max_iter=iterations, tol=1e-12)


def _standardised(case: str, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    if quick:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((300, 4))
        return X, np.sign(X[:, 0] + rng.standard_normal(300))
    X, y = augmentation.CASES[case].prepare(read_archive(augmentation.CASES[case].dataset))
    some = np.random.default_rng(0).permutation(len(y))[:EM_ROWS]
    return X[some].astype(np.float32), y[some]


def sums(case: str, quick: bool) -> dict[str, Any]:
    """Bytes that one iteration exchanges, and the share of the rows that the busiest worker has."""
    X, y = _standardised(case, quick)
    found: dict[str, Any] = {"rows": len(y), "features": X.shape[1], "ways": {}}
    for form in EM_FORMS:
        found["ways"][form] = {}
        for workers in EM_WORKERS:
            sent, half = {}, EM_ITERATIONS // 2
            for iterations in (half, EM_ITERATIONS):  # what begins and ends a fit is in both
                tally = Tally(workers, lambda method, result: None)
                _machine(form, iterations, engine=tally).fit(X, y)
                sent[iterations] = tally.exchanged()
            found["ways"][form][str(workers)] = {
                "bytes": (sent[EM_ITERATIONS] - sent[half]) / half,
                "share": tally.share_of_busiest(),
            }
    return found


def sum_seconds(case: str, quick: bool) -> dict[str, Any]:
    """Seconds of the critical path of an iteration."""
    X, y = _standardised(case, quick)
    found: dict[str, Any] = {form: {} for form in EM_FORMS}
    for workers in EM_WORKERS[:2] if quick else EM_WORKERS:
        for form in EM_FORMS:
            spent, model = critical_seconds(_machine(form), X, y, workers)
            found[form][str(workers)] = spent / int(np.max(model.n_iter_))
    return found


def _sum_rows(case: str, found: Found) -> list[list[str]]:
    rows = []
    for form, ways in found["ways"].items():
        seconds = found[TIMED].get(form, {})
        for workers, one in ways.items():
            spent, faster = seconds.get(workers), "-"
            if spent is not None:
                faster = f"{1e3 * spent:.3g}, {seconds['1'] / spent:.2f}x"
            cells = [workers, f"{one['share']:.1%}", f"{one['bytes'] / 1024:,.0f}", faster]
            rows.append([form if workers == "1" else "", *cells])
    return rows


STUDIES = {
    "pbm-workers": Study(
        "Figure 2, e and f: more workers",
        "Rounds alone, on as many fixed blocks as there are workers; parameters of the paper, the"
        " error as above. Work is counted in kernel values: where the curves of the picture"
        " overlap, the speed-up is perfect. The numbers sent are those of one round. Seconds are"
        f" those of the critical path, simulated. {SIMULATED}",
        ("ijcnn1", "covtype.binary, 50,000 rows"),
        blocks,
        (
            *("data set", "workers", "round", "error", "kernel values of all"),
            *("of the busiest, times workers", "numbers sent per row", "seconds"),
        ),
        _block_rows,
        seconds=block_seconds,
        curves=_block_curves,
        axes=("kernel values of the busiest worker, times workers", "error of the dual objective"),
    ),
    "sodm-workers": Study(
        "Figure 2: more workers",
        "Speed-up over one worker, with the parameters of Tables 2 and 3. Counted: kernel values,"
        " or for the linear kernel passes over the rows, of the worker that all others wait for;"
        " the last column is the share of the work that no second worker can take, which is the"
        " problem of all rows after the last merge, or the steps of the nodes one after the other."
        " The paper's figure shows more than 9x with 32 cores for the rbf kernel, more than 5x for"
        f" the linear one. {SIMULATED}",
        ("a7a", "susy", "ijcnn1"),
        speed_up,
        ("data set", "method", "speed-up", *map(str, WORKERS), "alone"),
        _speed_up_rows,
        seconds=speed_up_seconds,
        curves=_speed_up_curves,
        axes=("workers", "speed-up"),
    ),
    "pemsvm-workers": Study(
        "More workers",
        f"An iteration on {EM_ROWS:,} standardised rows, LIN-EM-CLS as printed and LIN-MC-CLS with"
        " one chain. The rows have a fixed number of shards up to eight workers, so that sums are"
        f" the same; each exchanges its sums with the driver. {SIMULATED}",
        ("covtype",),
        sums,
        (
            *("data set", "form", "workers", "rows of the busiest worker"),
            *("KiB exchanged", "simulated: ms, speed-up"),
        ),
        _sum_rows,
        seconds=sum_seconds,
    ),
}
