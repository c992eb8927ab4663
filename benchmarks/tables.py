"""Tables of numbers and categories: AutoClassifier and AutoRegressor against trees and xRFM.

    python -m benchmarks.tables [--only NAME ...] [--methods NAME ...] [--splits N] [--seconds S]
    python -m benchmarks.tables --report                    # writes docs/when_not.md only

Every method gets the same rows and the same seconds, all in all. margrave is called with its
defaults. The others are tuned by random search: settings are fitted to the rows that margrave's
first fold trains on and scored on the rows that it validates on, until a fit to all rows is all
that is left time for. Four fifths of the rows train, a fifth tests; a split is a seed. A result
file holds all methods of one split; what it holds already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, StandardScaler

import margrave
from benchmarks import data
from benchmarks.marks import placed
from benchmarks.measure import in_own_process, machine
from benchmarks.papers.common import markdown
from margrave.auto.splits import folds_of

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "when_not.md"
SPLITS = 5
SECONDS = 60.0

CLOSE = 0.003  # of the best: counts as being as good
PATIENCE = 10.0  # times the seconds, after which a method is given up


@dataclass(frozen=True)
class Case:
    title: str
    archive: str
    is_regression: bool = False
    rows: int | None = None  # of the shuffled set
    seconds: float | None = None  # where they are not those of the others
    binary: int | None = None  # the class that is told from the rest


CASES = {
    **{
        name: Case(name, name)
        for name in ("magic04", "susy30k", "adult", "ijcnn1", "pendigits", "usps")
    },
    **{
        name: Case(name, name, is_regression=True)
        for name in ("cadata", "elevators", "protein", "kin40k", "abalone", "space_ga")
    },
    "mnist": Case("mnist, 10 classes", "mnist", rows=20_000),
    "covtype": Case("covtype.binary", "covtype", seconds=600.0, binary=2),
}


@dataclass(frozen=True)
class Split:
    """Rows of numbers and categories (by number), with the categories' columns."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray
    categories: list[int]


def split(case: Case, seed: int, generated: bool = False) -> Split:
    raw = data.generate(case.archive) if generated else data.read(case.archive)
    parts = [key for key in ("X", "X_train", "X_test") if key in raw]
    X = np.vstack([np.asarray(raw[key], dtype=np.float32) for key in parts])
    y = np.concatenate([raw[key.replace("X", "y")] for key in parts])
    if case.binary is not None:
        y = (y == case.binary).astype(np.int8)
    order = np.random.default_rng(seed).permutation(len(y))[: case.rows]
    test = len(order) // 5
    new, old = order[:test], order[test:]
    y = y.astype(np.float64) if case.is_regression else y
    return Split(X[old], y[old], X[new], y[new], [int(c) for c in raw.get("cat_cols", [])])


# --- methods -------------------------------------------------------------------------------------

Setting = dict[str, Any]


@dataclass(frozen=True)
class Rival:
    """A method that is tuned by random search."""

    title: str
    package: str
    draw: Callable[[np.random.Generator], Setting]
    fit: Callable[[Case, Setting, Split, np.ndarray, np.ndarray, int], Callable[..., np.ndarray]]


def cores() -> int:
    return len(os.sched_getaffinity(0))


def _power(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _draw_lightgbm(rng: np.random.Generator) -> Setting:
    return {
        "n_estimators": int(_power(rng, 50, 1000)),
        "learning_rate": _power(rng, 0.02, 0.3),
        "num_leaves": int(_power(rng, 8, 256)),
        "min_child_samples": int(_power(rng, 2, 100)),
        "subsample": float(rng.uniform(0.5, 1.0)),
        "colsample_bytree": float(rng.uniform(0.4, 1.0)),
        "reg_lambda": _power(rng, 1e-3, 10.0),
        "subsample_freq": 1,
    }


def _fit_lightgbm(
    case: Case, setting: Setting, rows: Split, X: np.ndarray, y: np.ndarray, seed: int
) -> Callable[..., np.ndarray]:
    import lightgbm

    kind = lightgbm.LGBMRegressor if case.is_regression else lightgbm.LGBMClassifier
    model = kind(**setting, n_jobs=cores(), random_state=seed, verbose=-1)
    model.fit(X, y, categorical_feature=rows.categories or "auto")
    return model.predict  # type: ignore[no-any-return]


def _draw_trees(rng: np.random.Generator) -> Setting:
    return {
        "n_estimators": int(_power(rng, 100, 500)),
        "max_features": float(rng.uniform(0.1, 1.0)),
        "min_samples_leaf": int(_power(rng, 1, 10)),
    }


def _fit_trees(
    case: Case, setting: Setting, rows: Split, X: np.ndarray, y: np.ndarray, seed: int
) -> Callable[..., np.ndarray]:
    kind = ExtraTreesRegressor if case.is_regression else ExtraTreesClassifier
    model = kind(**setting, n_jobs=cores(), random_state=seed).fit(X, y)
    return model.predict  # type: ignore[no-any-return]


def _draw_xrfm(rng: np.random.Generator) -> Setting:
    return {
        "bandwidth": _power(rng, 1.0, 200.0),
        "exponent": float(rng.uniform(0.7, 1.4)),
        "diag": bool(rng.random() < 0.5),
        "reg": _power(rng, 1e-6, 1.0),
    }


def _fit_xrfm(
    case: Case, setting: Setting, rows: Split, X: np.ndarray, y: np.ndarray, seed: int
) -> Callable[..., np.ndarray]:
    """xRFM wants standardised numbers, columns of categories, and validation rows of its own."""
    import torch
    from xrfm import xRFM

    numbers = [k for k in range(X.shape[1]) if k not in rows.categories]
    scaler = StandardScaler().fit(X[:, numbers])
    levels = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    if rows.categories:
        levels.fit(X[:, rows.categories])

    def numeric(Z: np.ndarray) -> np.ndarray:
        parts = [scaler.transform(Z[:, numbers])]
        if rows.categories:
            parts.append(levels.transform(Z[:, rows.categories]))
        return np.hstack(parts).astype(np.float32)

    codes = LabelEncoder().fit(y) if not case.is_regression else None
    level, unit = (y.mean(), y.std() or 1.0) if codes is None else (0.0, 1.0)
    targets = (y - level) / unit if codes is None else codes.transform(y)
    targets = targets.astype(np.float32 if codes is None else np.int64)
    order = np.random.default_rng(seed).permutation(len(y))
    held, kept = order[: len(y) // 5], order[len(y) // 5 :]
    model = xRFM(
        rfm_params={
            "model": {
                **{"kernel": "l2", "bandwidth": setting["bandwidth"]},
                **{"exponent": setting["exponent"], "diag": setting["diag"]},
                "bandwidth_mode": "constant",
            },
            "fit": {"reg": setting["reg"], "iters": 5, "verbose": False, "early_stop_rfm": True},
        },
        device=torch.device("cpu"),
        tuning_metric="mse" if codes is None else "accuracy",
    )
    Z = numeric(X)
    model.fit(Z[kept], targets[kept], Z[held], targets[held])

    def predict(new: np.ndarray) -> np.ndarray:
        found = np.asarray(model.predict(numeric(new)))
        if codes is None:
            return found.ravel() * unit + level
        places = found.argmax(axis=1) if found.ndim == 2 and found.shape[1] > 1 else found.ravel()
        return codes.inverse_transform(places.round().astype(np.int64))  # type: ignore[no-any-return]

    return predict


RIVALS = {
    "lightgbm": Rival("LightGBM", "lightgbm", _draw_lightgbm, _fit_lightgbm),
    "extra-trees": Rival("ExtraTrees", "scikit-learn", _draw_trees, _fit_trees),
    "xrfm": Rival("xRFM", "xrfm", _draw_xrfm, _fit_xrfm),
}
TITLES = {"margrave": "margrave", **{name: rival.title for name, rival in RIVALS.items()}}


# --- one process ---------------------------------------------------------------------------------


def measure(
    case: Case, method: str, seed: int, seconds: float, generated: bool = False
) -> dict[str, Any]:
    rows = split(case, seed, generated)
    figure = r2_score if case.is_regression else accuracy_score
    begin = time.perf_counter()
    if method == "margrave":
        predict, facts = _margrave(case, rows, seconds)
        package = "margrave"
    else:
        predict, facts = _tuned(case, RIVALS[method], rows, seconds, seed)
        package = RIVALS[method].package
    spent = time.perf_counter() - begin
    begin = time.perf_counter()
    found = predict(rows.X_new)
    return {
        "score": float(figure(rows.y_new, found)),
        "seconds": spent,
        "predict_seconds": time.perf_counter() - begin,
        "rows": len(rows.y),
        "test_rows": len(rows.y_new),
        "features": int(rows.X.shape[1]),
        **facts,
        "versions": {name: metadata.version(name) for name in {package, "numpy"}},
    }


def _margrave(
    case: Case, rows: Split, seconds: float
) -> tuple[Callable[..., np.ndarray], dict[str, Any]]:
    kind = margrave.AutoRegressor if case.is_regression else margrave.AutoClassifier
    model: BaseEstimator = kind(seconds, categorical_features=rows.categories or None)
    model.fit(rows.X, rows.y)
    facts = {
        "best": model.best_params_,
        "validated": model.best_score_,
        "settings": model.n_fits_,
        "gap": model.gap_,
    }
    return model.predict, facts


def _tuned(
    case: Case, rival: Rival, rows: Split, seconds: float, seed: int
) -> tuple[Callable[..., np.ndarray], dict[str, Any]]:
    """Random search on margrave's own validation rows, then a fit to all rows."""
    begin, rng = time.perf_counter(), np.random.default_rng(seed)
    fold = folds_of(rows.y, not case.is_regression, np.random.RandomState(0))[0]
    figure = r2_score if case.is_regression else accuracy_score
    best, score, last, longest, count = None, -np.inf, 0.0, 0.0, 0
    while best is None or time.perf_counter() - begin + 1.25 * max(last, longest) < seconds:
        setting = rival.draw(rng)
        start = time.perf_counter()
        predict = rival.fit(case, setting, rows, rows.X[fold.train], rows.y[fold.train], seed)
        found = float(figure(rows.y[fold.test], predict(rows.X[fold.test])))
        last, count = time.perf_counter() - start, count + 1
        if best is None or found > score:
            best, score, longest = setting, found, last
    return (
        rival.fit(case, best, rows, rows.X, rows.y, seed),
        {"best": best, "validated": score, "settings": count},
    )


# --- all of them ---------------------------------------------------------------------------------


def runs(names: list[str], splits: int) -> Iterator[tuple[str, int]]:
    """Sets and splits: the first split of every set, then the second, ..."""
    large = {"covtype"}
    for seed in range(splits):
        for name in names:
            if seed == 0 or name not in large:
                yield name, seed


def path_of(name: str, seed: int, folder: Path = FOLDER) -> Path:
    return folder / f"tables-{name}-{seed}.json"


def run(
    names: list[str],
    methods: list[str],
    splits: int,
    seconds: float,
    generated: bool = False,
    folder: Path = FOLDER,
) -> int:
    failed = False
    for name, seed in runs(names, splits):
        file, case = path_of(name, seed, folder), CASES[name]
        limit = seconds if case.seconds is None else case.seconds * seconds / SECONDS
        known = json.loads(file.read_text()) if file.exists() else {}
        found = known.get("methods", {}) if known.get("limit") == limit else {}
        for method in methods:
            if method in found and "error" not in found[method]:
                continue
            found[method] = apart(name, method, seed, limit, generated)
            failed |= "error" in found[method]
            told = found[method].get("error") or (
                f"{found[method]['score']:.4f}, {found[method]['seconds']:.1f} s"
            )
            print(f"{case.title}, split {seed}: {TITLES[method]:12} {told}", file=sys.stderr)
            whole = {
                **{"name": name, "title": case.title, "split": seed, "limit": limit},
                "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                **{"generated": generated, "machine": machine(), "methods": found},
            }
            file.write_text(json.dumps(whole, indent=1) + "\n")
    return int(failed)


def apart(name: str, method: str, seed: int, seconds: float, generated: bool) -> dict[str, Any]:
    """One method in its own process; a failure is returned instead of raised."""
    package = "margrave" if method == "margrave" else RIVALS[method].package
    module = {"scikit-learn": "sklearn"}.get(package, package)
    if util.find_spec(module) is None:
        return {"error": f"{package} is not installed"}
    task = [sys.executable, "-m", "benchmarks.tables", "--measure", name, method, str(seed)]
    task += ["--seconds", str(seconds), *(["--generated"] if generated else [])]
    return in_own_process(task, PATIENCE * seconds + 60.0, ROOT)


# --- the page ------------------------------------------------------------------------------------


def read(folder: Path = FOLDER) -> dict[str, list[dict[str, Any]]]:
    """The results of every set, one per split."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in CASES:
        files = sorted(folder.glob(f"tables-{name}-*.json"))
        if files:
            found[name] = [json.loads(file.read_text()) for file in files]
    return found


def report(folder: Path = FOLDER) -> str:
    found = {name: scores_of(splits) for name, splits in read(folder).items()}
    found = {name: scores for name, scores in found.items() if "margrave" in scores}
    if not found:
        return "Nothing has been measured yet: `python -m benchmarks.tables`."
    order = sorted(found, key=lambda name: mean(found[name]["margrave"]) - _best(found[name]))
    close = [n for n in found if mean(found[n]["margrave"]) >= _best(found[n]) - CLOSE]
    head = ["data set", "splits", *TITLES.values(), "behind the best (-) or ahead"]
    lines = []
    for name in order:
        scores = found[name]
        ahead = mean(scores["margrave"]) - _best(scores)
        cells = [_cell(scores.get(method)) for method in TITLES]
        figure = "R2" if CASES[name].is_regression else "accuracy"
        title = f"{CASES[name].title} ({figure})"
        lines.append([title, str(len(scores["margrave"])), *cells, f"{100 * ahead:+.2f} points"])
    return "\n\n".join(
        [
            f"Of {len(found)} sets, margrave is the best of all or within {100 * CLOSE:.1f} points"
            f" of the best other method on {len(close)}. Where it loses most stands first.",
            markdown(head, lines),
            _conditions(folder),
        ]
    )


def scores_of(splits: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Scores by method, of the splits that all measured methods have."""
    methods = {m for one in splits for m, r in one["methods"].items() if "error" not in r}
    complete = [one for one in splits if all("score" in one["methods"].get(m, {}) for m in methods)]
    return {m: [one["methods"][m]["score"] for one in complete] for m in methods if complete}


def _best(scores: Mapping[str, list[float]]) -> float:
    return max((mean(own) for name, own in scores.items() if name != "margrave"), default=-np.inf)


def _cell(scores: list[float] | None) -> str:
    if not scores:
        return "-"
    spread = f" ± {stdev(scores):.4f}" if len(scores) > 1 else ""
    return f"{mean(scores):.4f}{spread}"


def _conditions(folder: Path) -> str:
    files = [one for splits in read(folder).values() for one in splits]
    versions = sorted(
        {
            f"{name} {version}"
            for one in files
            for found in one["methods"].values()
            for name, version in found.get("versions", {}).items()
        }
    )
    first = files[0]["machine"]
    limits = sorted({f"{one['limit']:g}" for one in files}, key=float)
    return (
        f"{first['cpu']}, {first['cores']} cores; {' or '.join(limits)} seconds for each method."
        f" {', '.join(versions)}. Measured {max(one['started'] for one in files)[:10]}."
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--methods", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--generated", action="store_true", help="made-up rows, nothing is kept")
    parser.add_argument("--report", action="store_true", help="write the page only")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        name, method, seed = given.measure
        found = measure(CASES[name], method, int(seed), given.seconds, given.generated)
        print(json.dumps(found))
        return 0
    failed = 0
    if given.generated:
        with tempfile.TemporaryDirectory() as folder:
            work = (given.only, given.methods, given.splits, given.seconds)
            return run(*work, generated=True, folder=Path(folder))
    if not given.report:
        failed = run(given.only, given.methods, given.splits, given.seconds)
    PAGE.write_text(placed(PAGE.read_text(), report(), "tables"))
    return failed


if __name__ == "__main__":
    sys.exit(main())
