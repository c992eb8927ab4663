"""Alternatives to kernel methods, on the same splits: when not to use margrave.

    python -m benchmarks.alternatives [--only NAME ...]     # measures, and writes docs/when_not.md
    python -m benchmarks.alternatives --report              # writes the page only

Every method has the same budget: eight settings, each fitted to 80 % of a sample of the training
rows and scored on the other 20 %; the best of them is fitted to all training rows and scored on the
test rows. Each runs in its own process, after an untimed fit of a few rows, on all cores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn import ensemble, neighbors
from sklearn.model_selection import ParameterGrid, train_test_split

import margrave
from benchmarks import data
from benchmarks.data import SEED, Data, Raw
from benchmarks.marks import placed
from benchmarks.measure import in_own_process, machine
from benchmarks.papers.common import markdown
from benchmarks.papers.data import covtype_binary, official_split

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "when_not.md"
LIMIT = 1800  # seconds of one process
SAMPLE = 5_000  # training rows at most that the settings are tried on
SHORT, REPEATS = 2.0, 3  # fits shorter than this are repeated, and the median is used


@dataclass(frozen=True)
class Case:
    title: str
    archive: str
    prepare: Callable[[Raw], Data]  # rows to fit and rows to test
    figure: str = "accuracy"

    @property
    def is_regression(self) -> bool:
        return self.figure == "R2"


def _fifth(prepare: Callable[[Raw, int, int], Data]) -> Callable[[Raw], Data]:
    """Hold out a fifth of the shuffled rows."""
    return lambda raw: prepare(raw, len(raw["y"]) - len(raw["y"]) // 5, len(raw["y"]) // 5)


def _digits(raw: Raw) -> Data:
    """As many rows as where the digits are compared with other kernel methods."""
    return data.mnist_digits(raw, 20_000, len(raw["y_test"]))


CASES = {
    "covtype": Case("covtype.binary", "covtype", covtype_binary),
    "ijcnn1": Case("ijcnn1", "ijcnn1", official_split),
    "susy30k": Case("susy (30,000 rows)", "susy30k", _fifth(data.standardised)),
    "cadata": Case("cadata", "cadata", _fifth(data.regression), "R2"),
    "magic04": Case("magic04", "magic04", _fifth(data.standardised)),
    "mnist": Case("mnist, 10 classes", "mnist", _digits),
}


@dataclass(frozen=True)
class Method:
    title: str
    package: str
    make: Callable[[bool, dict[str, Any]], Any]  # whether a regression, and the setting
    grid: Mapping[str, list[Any]]  # eight settings


def _svm(is_regression: bool, setting: dict[str, Any]) -> Any:
    return (margrave.SVR if is_regression else margrave.SVC)(**setting)


def _boosting(is_regression: bool, setting: dict[str, Any]) -> Any:
    import lightgbm

    kind = lightgbm.LGBMRegressor if is_regression else lightgbm.LGBMClassifier
    return kind(**setting, n_jobs=_cores(), random_state=SEED, verbose=-1)


def _trees(is_regression: bool, setting: dict[str, Any]) -> Any:
    kind = ensemble.ExtraTreesRegressor if is_regression else ensemble.ExtraTreesClassifier
    return kind(n_estimators=100, **setting, n_jobs=_cores(), random_state=SEED)


def _neighbours(is_regression: bool, setting: dict[str, Any]) -> Any:
    kind = neighbors.KNeighborsRegressor if is_regression else neighbors.KNeighborsClassifier
    return kind(**setting, n_jobs=_cores())


def _cores() -> int:
    return len(os.sched_getaffinity(0))


METHODS = {
    # gamma is in terms of "scale", 1 / (features * variance)
    "margrave": Method(
        "margrave", "margrave", _svm, {"C": [2.0, 32.0], "gamma": [1.0, 4.0, 16.0, 64.0]}
    ),
    "lightgbm": Method(
        "LightGBM",
        "lightgbm",
        _boosting,
        {"n_estimators": [100, 300], "num_leaves": [31, 255], "learning_rate": [0.05, 0.2]},
    ),
    "extra-trees": Method(
        "ExtraTrees",
        "scikit-learn",
        _trees,
        {"max_features": ["sqrt", 0.2, 0.5, 1.0], "min_samples_leaf": [1, 5]},
    ),
    "neighbours": Method(
        "k nearest neighbours",
        "scikit-learn",
        _neighbours,
        {"n_neighbors": [1, 5, 15, 45], "weights": ["uniform", "distance"]},
    ),
}


# --- one process ---------------------------------------------------------------------------------


def measure(case: Case, method: Method, generated: bool) -> dict[str, Any]:
    raw = data.generate(case.archive) if generated else data.read(case.archive)
    rows = case.prepare(raw).in_form("float32-dense")
    few = rows.head()
    settings = [_in_numbers(s, rows.X) for s in ParameterGrid(dict(method.grid))]
    warm = method.make(case.is_regression, settings[0]).fit(few.X, few.y)
    warm.predict(few.X)
    begin = time.perf_counter()
    scores = _tried(case, method, settings, rows)
    tuning = time.perf_counter() - begin
    best = settings[int(np.argmax(scores))]
    fits, model = [], None
    while model is None or (fits[0] < SHORT and len(fits) < REPEATS):
        model = method.make(case.is_regression, best)
        fits.append(_seconds(lambda model=model: model.fit(rows.X, rows.y)))
    predictions = [_seconds(lambda: model.predict(rows.X_new))]
    while predictions[0] < SHORT and len(predictions) < REPEATS:
        predictions.append(_seconds(lambda: model.predict(rows.X_new)))
    return {
        "score": float(model.score(rows.X_new, rows.y_new)),
        "fit_seconds": median(fits),
        "predict_seconds": median(predictions),
        "tune_seconds": tuning,
        "settings": len(settings),
        "sample": min(SAMPLE, len(rows.y)),
        "scores": [round(float(score), 6) for score in scores],
        "best": best,
        "gap": getattr(model, "gap_", None),
        "rows": len(rows.y),
        "test_rows": len(rows.y_new),
        "features": int(rows.X.shape[1]),
        "versions": {name: metadata.version(name) for name in {method.package, "numpy"}},
    }


def _in_numbers(setting: dict[str, Any], X: np.ndarray) -> dict[str, Any]:
    """The setting with gamma as a number."""
    if "gamma" not in setting:
        return setting
    scale = 1.0 / (X.shape[1] * float(X.var(dtype=np.float64)))
    return {**setting, "gamma": setting["gamma"] * scale}


def _tried(case: Case, method: Method, settings: list[dict[str, Any]], rows: Data) -> list[float]:
    """Scores of the settings on a part of a sample that they have not seen."""
    labels = None if case.is_regression else rows.y
    sample = np.arange(len(rows.y))
    if len(sample) > SAMPLE:
        sample, _ = train_test_split(sample, train_size=SAMPLE, random_state=SEED, stratify=labels)
    fit, test = train_test_split(
        sample,
        test_size=0.2,
        random_state=SEED,
        stratify=None if labels is None else labels[sample],
    )
    return [
        float(
            method.make(case.is_regression, setting)
            .fit(rows.X[fit], rows.y[fit])
            .score(rows.X[test], rows.y[test])
        )
        for setting in settings
    ]


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


# --- all of them ---------------------------------------------------------------------------------


def run(names: list[str], methods: list[str], generated: bool, output: Path | None) -> int:
    failed = False
    for name in names:
        print(CASES[name].title, file=sys.stderr, flush=True)
        file = None if output is None else output / f"alternatives-{name}.json"
        found = json.loads(file.read_text())["methods"] if file and file.exists() else {}
        for each in methods:
            found[each] = apart(name, each, generated)
            failed |= "error" in found[each]
            told = found[each].get("error") or (
                f"{found[each]['score']:.4f}, fit {found[each]['fit_seconds']:.2f} s,"
                f" predict {found[each]['predict_seconds']:.2f} s"
            )
            print(f"  {METHODS[each].title:22} {told}", file=sys.stderr, flush=True)
        if file is not None:
            whole = {
                "name": name,
                "title": CASES[name].title,
                "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "generated": generated,
                "machine": machine(),
                "methods": found,
            }
            file.write_text(json.dumps(whole, indent=1) + "\n")
    return int(failed)


def apart(name: str, each: str, generated: bool) -> dict[str, Any]:
    """One method in its own process; a failure is returned instead of raised."""
    task = [sys.executable, "-m", "benchmarks.alternatives", "--measure", name, each]
    return in_own_process([*task, *(["--generated"] if generated else [])], LIMIT, ROOT)


# --- the page ------------------------------------------------------------------------------------


def read(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    files = {name: folder / f"alternatives-{name}.json" for name in CASES}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def report(folder: Path = FOLDER) -> str:
    found = read(folder)
    if not found:
        return "Nothing has been measured yet: `python -m benchmarks.alternatives`."
    parts = [_verdict(found), _table(found), _conditions(found)]
    return "\n\n".join(parts)


def _measured(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in results["methods"].items() if "error" not in one}


def _verdict(found: Mapping[str, dict[str, Any]]) -> str:
    """Who is best, and how often."""
    lines = []
    for title, key, better in (
        ("the most accurate", "score", max),
        (
            "the fastest to fit (except nearest neighbours, which only store the rows)",
            "fit_seconds",
            min,
        ),
        ("the fastest to predict", "predict_seconds", min),
    ):
        wins: dict[str, list[str]] = {}
        for name, results in found.items():
            values = {each: one[key] for each, one in _measured(results).items()}
            if key == "fit_seconds":
                values.pop("neighbours", None)
            if values:
                best = better(values, key=values.__getitem__)
                wins.setdefault(METHODS[best].title, []).append(CASES[name].title)
        order = sorted(wins.items(), key=lambda item: -len(item[1]))
        told = "; ".join(f"{method} on {', '.join(names)}" for method, names in order)
        lines.append(f"- **{title[0].upper()}{title[1:]}:** {told}.")
    return "\n".join(lines)


def _table(found: Mapping[str, dict[str, Any]]) -> str:
    head = [
        "data set",
        "method",
        "accuracy or R2",
        "fit (s)",
        "predict (s)",
        "tuning (s)",
        "chosen",
    ]
    rows = []
    for name, results in found.items():
        good = _measured(results)
        best = max((one["score"] for one in good.values()), default=None)
        for each, method in METHODS.items():
            first = each == next(iter(METHODS))
            title = _data_set(name, good) if first else ""
            if each not in good:
                error = results["methods"].get(each, {}).get("error", "not measured")
                rows.append([title, method.title, error, *["-"] * 4])
                continue
            one = good[each]
            score = f"{one['score']:.4f}"
            cells = [_brief(one[key]) for key in ("fit_seconds", "predict_seconds", "tune_seconds")]
            chosen = ", ".join(f"{key}={_value(value)}" for key, value in one["best"].items())
            shown = f"**{score}**" if one["score"] == best else score
            rows.append([title, method.title, shown, *cells, chosen])
    return markdown(head, rows)


def _data_set(name: str, good: Mapping[str, dict[str, Any]]) -> str:
    for one in good.values():
        sizes = f"{one['rows']:,} + {one['test_rows']:,} x {one['features']}"
        return f"{CASES[name].title}, {sizes}"
    return CASES[name].title


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _brief(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


def _conditions(found: Mapping[str, dict[str, Any]]) -> str:
    one = next(iter(found.values()))
    versions: dict[str, str] = {}
    for results in found.values():
        for method in _measured(results).values():
            versions |= method["versions"]
    named = ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))
    days = ", ".join(sorted({results["started"][:10] for results in found.values()}))
    return f"{one['machine']['cpu']}, {one['machine']['cores']} cores. {named}. Measured {days}."


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alternatives", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--generated", action="store_true", help="made-up data")
    parser.add_argument("--report", action="store_true", help="write the page only")
    parser.add_argument("--output", type=Path, help="folder of the result files")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        case, method = options.measure
        print(json.dumps(measure(CASES[case], METHODS[method], options.generated)))
        return 0
    output = options.output or (None if options.generated else FOLDER)
    code = 0
    if not options.report:
        code = run(options.only, options.methods, options.generated, output)
    if output == FOLDER:
        PAGE.write_text(placed(PAGE.read_text(), report()))
    return code


if __name__ == "__main__":
    sys.exit(main())
