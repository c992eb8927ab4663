"""Reading LIBSVM's text format compared with scikit-learn: seconds for a large file.

    python -m benchmarks.reading [--megabytes N]     # measures: results/reading.json
    python -m benchmarks.reading --report            # the markdown table

The file is made up: rows of a hundred features out of a thousand, numbers of six digits. Every
reading has a process of its own, with the file in the page cache; the ways take turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from benchmarks.data import SEED
from benchmarks.measure import machine
from margrave.io import load_libsvm

ROOT = Path(__file__).parent.parent
FILE = ROOT / "benchmarks" / "results" / "reading.json"
GOAL = 10.0  # times faster
MEGABYTES = 500
_ROWS, _FEATURES, _FILLED = 5_000, 1_000, 100
_REPEATS = {"margrave": 5, "scikit-learn": 3}

WAYS: dict[str, Callable[[str], Any]] = {
    "margrave": load_libsvm,
    "scikit-learn": load_svmlight_file,
}


def make(path: Path, megabytes: float) -> None:
    """Write a file of about this size: some rows, each of them many times."""
    rng = np.random.default_rng(SEED)
    size = 0
    with path.open("wb") as file:
        while size < megabytes * 1e6:
            columns = np.sort(
                rng.permuted(np.tile(np.arange(_FEATURES), (_ROWS, 1)), axis=1)[:, :_FILLED], axis=1
            )
            values = rng.integers(1, 10**6, columns.shape)
            lines = [
                b"%d %s"
                % (label, b" ".join(b"%d:0.%06d" % pair for pair in zip(c, v, strict=True)))
                for label, c, v in zip(
                    rng.choice([-1, 1], _ROWS), columns.tolist(), values.tolist(), strict=True
                )
            ]
            text = b"\n".join(lines) + b"\n"
            copies = max(1, min(20, int((megabytes * 1e6 - size) // len(text))))
            file.write(text * copies)
            size += copies * len(text)


def measure(way: str, path: str) -> dict[str, Any]:
    begin = time.perf_counter()
    X, y = WAYS[way](path)
    seconds = time.perf_counter() - begin
    X = sparse.csr_matrix(X)
    return {
        "seconds": seconds,
        "rows": int(X.shape[0]),
        "entries": int(X.nnz),
        "sums": [float(X.data.sum()), float(X.indices.sum(dtype=np.int64)), float(y.sum())],
        "versions": {name: metadata.version(name) for name in ("margrave", "scikit-learn")},
    }


def run(megabytes: float, output: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made_up.svm"
        make(path, megabytes)
        path.read_bytes()  # into the page cache
        found: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
        for turn in range(max(_REPEATS.values())):
            for way in [way for way in WAYS if turn < _REPEATS[way]]:
                task = [sys.executable, "-m", "benchmarks.reading", "--measure", way, str(path)]
                done = subprocess.run(task, check=True, capture_output=True, text=True, cwd=ROOT)
                found[way].append(json.loads(done.stdout.splitlines()[-1]))
                print(f"  {way:14} {found[way][-1]['seconds']:8.2f} s", file=sys.stderr, flush=True)
        size = path.stat().st_size
    told = [
        {key: one[key] for key in ("rows", "entries", "sums")} for w in found.values() for one in w
    ]
    if any(one != told[0] for one in told):
        raise RuntimeError(f"the libraries have read different rows: {told}")
    results = {
        "bytes": size,
        **told[0],
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "ways": {
            way: {
                **own[-1],
                "seconds": median(o["seconds"] for o in own),
                "repeats": [o["seconds"] for o in own],
            }
            for way, own in found.items()
        },
    }
    output.write_text(json.dumps(results, indent=1) + "\n")
    return results


def report(file: Path = FILE) -> str:
    if not file.exists():
        return "Nothing has been measured yet."
    found = json.loads(file.read_text())
    ours = found["ways"]["margrave"]["seconds"]
    lines = [
        "| reader | seconds | MB per second | margrave is faster | goal |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for way, one in found["ways"].items():
        speed = found["bytes"] / 1e6 / one["seconds"]
        ratio = ("", "") if way == "margrave" else (f"{one['seconds'] / ours:.1f}x", f"{GOAL:g}x")
        lines.append(f"| {way} | {one['seconds']:.3g} | {speed:.0f} | {ratio[0]} | {ratio[1]} |")
    said = f"{found['bytes'] / 1e6:,.0f} MB, {found['rows']:,} rows, {found['entries']:,} entries."
    computer = f"{found['machine']['cpu']}, {found['machine']['cores']} cores."
    return "\n".join([f"{said} {computer}", "", *lines])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=MEGABYTES)
    parser.add_argument("--report", action="store_true", help="print the table only")
    parser.add_argument("--output", type=Path, default=FILE, help="the result file")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(measure(*options.measure)))
        return 0
    if not options.report:
        run(options.megabytes, options.output)
    print(report(options.output))
    return 0


if __name__ == "__main__":
    sys.exit(main())
