"""Rows that come and go: the work of a warm start, counted, against that of a cold fit.

    python -m benchmarks.streams [--rows 50000] [--only PROBLEM] [--output FILE]

For each problem a model is fitted to the rows, 1 % new ones are appended (or as many replace the
oldest), and the fit with ``warm_start=True`` is compared with a cold one of the same rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from benchmarks import data, generated
from benchmarks.measure import machine
from margrave import SVC, OneClassSVM

NEW = 0.01  # of the rows
FILE = Path(__file__).parent / "results" / "streams" / "rows.json"


def _ijcnn1(n: int) -> tuple[np.ndarray, np.ndarray]:
    raw = data.read("ijcnn1")
    X = np.vstack([raw["X_train"], raw["X_test"]]).astype(np.float32)
    y = np.concatenate([raw["y_train"], raw["y_test"]])
    order = np.random.default_rng(0).permutation(len(y))[:n]
    return X[order], y[order]


def _covtype(n: int) -> tuple[np.ndarray, np.ndarray]:
    found = data.covtype_binary(data.read("covtype"), n, 0)
    return found.X.astype(np.float32), found.y


PROBLEMS: dict[str, tuple[Any, Any]] = {
    "generated, C=1, gamma=1": (lambda n: generated.draw(n, 0), SVC(C=1.0, gamma=1.0)),
    "generated, one class": (lambda n: generated.draw(n, 0), OneClassSVM(nu=0.1, gamma=1.0)),
    "ijcnn1, C=1, gamma=0.5": (_ijcnn1, SVC(C=1.0, gamma=0.5)),
    "ijcnn1, C=1, gamma=2": (_ijcnn1, SVC(C=1.0, gamma=2.0)),
    "covtype, C=1, gamma=4": (_covtype, SVC(C=1.0, gamma=4.0)),
    "ijcnn1, C=32, gamma=2": (_ijcnn1, SVC(C=32.0, gamma=2.0)),
    "covtype, C=32, gamma=32": (_covtype, SVC(C=32.0, gamma=32.0)),
}


def _work(model: Any, seconds: float) -> dict[str, Any]:
    last = model.history_[-1]
    return {
        "kernel_values": int(last["kernel_values"]),
        "steps": int(last["steps"]),
        "rounds": int(np.sum(model.n_iter_)),
        "before_certificate": int(model.history_[-2]["kernel_values"]),
        "gap": model.gap_,
        "objective": model.objective_,
        "support": len(model.support_),
        "seconds": round(seconds, 3),
    }


def _fit(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    begin = time.perf_counter()
    model.fit(X, y)
    return _work(model, time.perf_counter() - begin)


def measure(name: str, n: int) -> list[dict[str, Any]]:
    """Cold and warm fits with rows appended, and with rows replaced."""
    make, estimator = PROBLEMS[name]
    new = int(NEW * n)
    X, y = make(n + new)
    found = []
    for change, first in (("appended", 0), ("replaced", new)):
        warm = clone(estimator).set_params(warm_start=True).fit(X[:n], y[:n])
        after, cold = _fit(warm, X[first:], y[first:]), _fit(clone(estimator), X[first:], y[first:])
        ratios = {
            key: round(after[key] / cold[key], 4) for key in ("kernel_values", "steps", "seconds")
        }
        found.append(
            {"problem": name, "change": change, "rows": n, "new": new}
            | {"ratios": ratios, "warm": after, "cold": cold}
        )
        print(name, change, ratios, flush=True)
    return found


def table(file: Path = FILE) -> str:
    """The work of a warm start in percent of that of a cold fit."""
    if not file.exists():
        return "Nothing has been measured yet."
    found = json.loads(file.read_text())
    lines = [
        "| problem | rows | kernel values | before the certificate | steps | time |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for one in found["fits"]:
        before = one["warm"]["before_certificate"] / one["cold"]["kernel_values"]
        ratios = one["ratios"]
        shares = (ratios["kernel_values"], before, ratios["steps"], ratios["seconds"])
        told = " | ".join(f"{100 * share:.1f} %" for share in shares)
        lines.append(f"| {one['problem']} | {one['change']} | {told} |")
    rows, computer = found["fits"][0]["rows"], found["machine"]
    caption = (
        f"Warm starts in percent of fits from nothing: {rows:,} rows, and {100 * NEW:g} % new ones."
        f" {computer['cpu']}, {computer['cores']} cores, load {computer['load_at_start']:.0f}; one"
        " run each."
    )
    return "\n".join([caption, "", *lines])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    names = [name for name in PROBLEMS if options.only in name]
    fits = [one for name in names for one in measure(name, options.rows)]
    versions = {name: metadata.version(name) for name in ("margrave", "scikit-learn", "numpy")}
    record = {"machine": machine(), "versions": versions, "fits": fits}
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
