"""How long one row takes: `predict` and `decision_function` through scikit-learn's interface.

    python -m benchmarks.latency [--output FILE]

The models have 1,000 support vectors (all rows, with random labels); scikit-learn's own SVC has as
many. The calls take turns, and the median of each is reported.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.svm import SVC as Peer

from benchmarks.measure import machine
from margrave import SVC

FILE = Path(__file__).parent / "results" / "streams" / "latency.json"
SUPPORT = 1000  # vectors
GOAL = 1e-4  # seconds of `predict`, with 20 features
CALLS = 2000


def models(features: int) -> tuple[SVC, Peer, np.ndarray]:
    """Both with as many support vectors, and a row."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((SUPPORT, features)), np.arange(SUPPORT) % 2
    given = {"C": 1.0, "gamma": 1.0, "kernel": "rbf"}
    ours, peer = SVC(**given).fit(X, y), Peer(**given).fit(X, y)
    return ours, peer, rng.standard_normal((1, features))


def measure(features: int) -> dict[str, Any]:
    """Median seconds of each call, taking turns."""
    ours, peer, row = models(features)
    calls: dict[str, Callable[[np.ndarray], Any]] = {
        "margrave predict": ours.predict,
        "margrave decision_function": ours.decision_function,
        "scikit-learn predict": peer.predict,
        "scikit-learn decision_function": peer.decision_function,
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(CALLS):
        for name, call in calls.items():
            begin = time.perf_counter()
            call(row)
            seconds[name].append(time.perf_counter() - begin)
    found = {name: float(np.median(own)) for name, own in seconds.items()}
    support = {"margrave": len(ours.support_), "scikit-learn": len(peer.support_)}
    return {"features": features, "support": support, "seconds": found}


def table(file: Path = FILE) -> str:
    """Microseconds of a row."""
    if not file.exists():
        return "Nothing has been measured yet."
    found = json.loads(file.read_text())
    names = list(found["cases"][0]["seconds"])
    lines = ["| features | " + " | ".join(names) + " |", "| ---: |" + " ---: |" * len(names)]
    for case in found["cases"]:
        told = " | ".join(f"{1e6 * case['seconds'][name]:.0f} µs" for name in names)
        lines.append(f"| {case['features']} | {told} |")
    support, computer = found["cases"][0]["support"]["margrave"], found["machine"]
    caption = (
        f"One row in float64, {support:,} support vectors."
        f" {computer['cpu']}, {computer['cores']} cores, load {computer['load_at_start']:.0f}."
    )
    return "\n".join([caption, "", *lines])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    versions = {name: metadata.version(name) for name in ("margrave", "scikit-learn", "numpy")}
    cases = [measure(features) for features in (10, 20, 50, 100)]
    record = {"machine": machine(), "versions": versions, "cases": cases}
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps(record, indent=1) + "\n")
    print(table(options.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
