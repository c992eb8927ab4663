"""The speed-up of more workers, by simulation of the critical path.

    python -m benchmarks.scaling [--rows N] [--workers W ...]  # measures, writes the page
    python -m benchmarks.scaling --check                       # real runs with 1 and 2 workers
    python -m benchmarks.scaling --report                      # writes docs/distributed.md

A fit with the engine `Simulated(W)` is that of W workers of one core each, but all shards run in
this process, one after the other, and each call of each is timed. A call of all workers lasts as
long as the busiest worker: the largest sum over the calls on one of them. Add what is sent, on a
stated network, and the time that the driver itself takes. Times are CPU seconds of one thread, so
that other programs on the machine disturb little; what is pickled and unpickled is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import data
from benchmarks.marks import placed
from benchmarks.measure import in_own_process, machine
from benchmarks.papers.common import ROOT, markdown
from margrave import SVC
from margrave.engines.base import Arguments, build, deal_out, size_of
from margrave.engines.serial import SerialShards
from margrave.engines.tree import Meter
from margrave.solvers import BlockMinimization
from margrave.solvers.kernel.moving_blocks import MovingBlocks

FOLDER = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "distributed.md"
BANDWIDTH, LATENCY = 1.25e9, 5e-5  # bytes per second (10 Gbit/s), seconds
WORKERS = (1, 2, 8, 32, 128)
ROWS, CHECK_ROWS = 464_810, 20_000
PARAMETERS = {"C": 32.0, "gamma": 32.0}
LIMIT = 1500  # seconds of one process

# the parts of the critical path: first those of the workers, by the methods that they run
METHODS = {
    "propose": "first round",
    "probe": "first round",
    "rates": "first round",
    "commit": "first round",
    "solve": "blocks",
    "spread": "spread",
}
SHARDS = "shards"  # all other methods: scores of inactive rows, the certificate, checkpoints
DRIVER = ("partitions", "working set", "driver")
NETWORK = "network"
CLOCK = "clock"  # reading it: no time of any worker
PARTS = ("first round", "blocks", "spread", SHARDS, *DRIVER, NETWORK)


class Critical:
    """Seconds of the critical path by part, and those that it took here, one after the other."""

    def __init__(self) -> None:
        self.critical, self.here = Counter[str](), Counter[str]()
        self.open = ["driver"]
        self.since = time.process_time()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the driver's time as that of a part, without what is nested in it."""
        self.flush()
        self.open.append(name)
        try:
            yield
        finally:
            self.flush()
            self.open.pop()

    def flush(self) -> None:
        """Count the driver's time so far."""
        now = time.process_time()
        self.critical[self.open[-1]] += now - self.since
        self.here[self.open[-1]] += now - self.since
        self.since = now

    @contextmanager
    def calls(self, name: str) -> Iterator[Counter[int]]:
        """Calls of workers: the yielded counter gets the seconds of each of them."""
        self.flush()
        seconds = Counter[int]()
        try:
            yield seconds
        finally:
            self.critical[name] += max(seconds.values(), default=0.0)
            self.here[name] += sum(seconds.values())
            now = time.process_time()
            self.here[CLOCK] += now - self.since - sum(seconds.values())
            self.since = now

    def send(self, size: float, messages: int) -> None:
        """Bytes that pass through the busiest end, and messages that wait for each other."""
        self.critical[NETWORK] += size / BANDWIDTH + messages * LATENCY


class Network(Meter):
    """Counts as all engines do, and adds the time of each message to the critical path."""

    def __init__(self, homes: Sequence[int], workers: int, path: Critical) -> None:
        super().__init__(len(homes))
        self.homes, self.path = homes, path
        self.depth = (workers - 1).bit_length()  # of the tree below worker 0

    def down(self, size: int) -> None:
        super().down(size)
        self.path.send((self.depth + 1) * size, self.depth + 1)

    def up(self, sizes: Sequence[int]) -> None:
        super().up(sizes)
        received = sum(size for size, home in zip(sizes, self.homes, strict=True) if home != 0)
        self.path.send(received + sum(sizes), self.depth + 1)

    def summed(self, size: int) -> None:
        super().summed(size)
        self.path.send((self.depth + 1) * size, self.depth + 1)

    def direct(self, number: int, sent: int, received: int) -> None:
        super().direct(number, sent, received)
        self.path.send(sent + received, 0)  # through the driver; its messages do not wait


class Simulated:
    """An engine of other processes with one core each, which all run in this one, in turn."""

    is_remote = True

    def __init__(self, n_workers: int) -> None:
        self.n_workers, self.path = n_workers, Critical()

    def share(self, at_work: int, threads: int, memory: int) -> tuple[int, int]:
        """One core, and as much memory as here."""
        return 1, memory // -(-at_work // self.n_workers)

    def scatter(self, block_type: Callable[..., Any], pieces: Sequence[Any]) -> SimulatedShards:
        """Build one block per piece, on the worker with the fewest bytes."""
        sizes, homes, blocks = [size_of(piece) for piece in pieces], [0] * len(pieces), []
        for worker, queue in enumerate(deal_out([1 + size for size in sizes], self.n_workers)):
            for number in queue:
                homes[number] = worker
        with self.path.calls(SHARDS) as seconds:
            for home, piece in zip(homes, pieces, strict=True):
                begin = time.process_time()
                blocks.append(build(block_type, piece))
                seconds[home] += time.process_time() - begin
        self.path.send(sum(sizes), 2)
        return SimulatedShards(blocks, homes, self)


class SimulatedShards(SerialShards):
    """Blocks in a list, with a worker for each."""

    def __init__(self, blocks: list[Any], homes: list[int], engine: Simulated) -> None:
        super().__init__(blocks)
        self._homes, self._path = homes, engine.path
        self._meter = Network(homes, engine.n_workers, engine.path)

    def _run(self, method: str, calls: Sequence[tuple[int, Arguments]]) -> list[Any]:
        found = []
        name = calls[0][1][0] if method == "many" else method
        with self._path.calls(METHODS.get(name, SHARDS)) as seconds:
            for number, args in calls:
                begin = time.process_time()
                found.append(getattr(self._blocks[number], method)(*args))
                seconds[self._homes[number]] += time.process_time() - begin
        return found

    def close(self) -> None:
        """Release the blocks, each on its worker."""
        with self._path.calls(SHARDS) as seconds:
            for home in self._homes[: len(self._blocks)]:
                begin = time.process_time()
                self._blocks.pop(0)
                seconds[home] += time.process_time() - begin

    def _direct(self, method: str, calls: Sequence[tuple[int, Arguments]]) -> list[Any]:
        self._path.send(0, 2)
        return super()._direct(method, calls)

    def _deal(self, method: str, items: Sequence[Arguments], sizes: Sequence[int]) -> list[Any]:
        self._path.send(0, 2)
        return super()._deal(method, items, sizes)


@contextmanager
def divided(path: Critical) -> Iterator[None]:
    """Count what the driver does in rounds of blocks by parts."""

    def within(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            with path.part(name):
                return call(*args, **options)

        return wrapped

    watched = [
        (BlockMinimization, "_parts", "partitions"),
        (MovingBlocks, "_blocks", "partitions"),
        (MovingBlocks, "round", "driver"),
        (MovingBlocks, "advance", "working set"),
    ]
    patches = [patch.object(o, name, within(part, getattr(o, name))) for o, name, part in watched]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


# --- one process ---------------------------------------------------------------------------------


def simulate(X: Any, y: Any, workers: int, **options: Any) -> tuple[SVC, Critical]:
    """A fit on simulated workers, and its critical path."""
    engine = Simulated(workers)
    settings: dict[str, Any] = {"solver": "pbm", "memory_limit": "4GiB", "random_state": 0}
    model = SVC(**PARAMETERS, engine=engine, n_jobs=1, **{**settings, **options})
    with divided(engine.path):
        engine.path.since = time.process_time()
        model.fit(X, y)
        engine.path.flush()
    return model, engine.path


def rows_of(count: int, generated: bool) -> data.Data:
    raw = data.generate("covtype") if generated else data.read("covtype")
    rows = data.covtype_binary(raw, None if generated else count, 100)
    return rows.in_form("float32-dense")


def measure(count: int, workers: int, generated: bool) -> dict[str, Any]:
    rows = rows_of(count, generated)
    simulate(*_few(rows), 1)  # loads what is loaded lazily
    load, begin = os.getloadavg()[0], time.perf_counter()
    model, path = simulate(rows.X, rows.y, workers)
    return {
        "workers": workers,
        "seconds": sum(path.critical.values()),
        "parts": {name: path.critical[name] for name in PARTS},
        "here": {name: path.here[name] for name in (*PARTS, CLOCK) if name != NETWORK},
        "wall_seconds": time.perf_counter() - begin,
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        **_described(model),
    }


def check(count: int, workers: int, generated: bool) -> dict[str, Any]:
    """The same fit on a Dask cluster with workers of one thread on this machine."""
    from distributed import Client, LocalCluster

    rows = rows_of(count, generated)
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit="8GiB",
        ) as cluster,
        Client(cluster) as client,
    ):
        model = SVC(**PARAMETERS, engine=client, n_jobs=1, solver="pbm", random_state=0)
        model.set_params(memory_limit="4GiB")
        model.fit(*_few(rows))
        load, before = os.getloadavg()[0], client.run(time.process_time)
        own, begin = time.process_time(), time.perf_counter()
        model.fit(rows.X, rows.y)
        wall, own = time.perf_counter() - begin, time.process_time() - own
        after = client.run(time.process_time)
    busy = [after[worker] - before[worker] for worker in before]
    return {
        "workers": workers,
        "wall_seconds": wall,
        "driver_cpu_seconds": own,
        "worker_cpu_seconds": busy,
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        **_described(model),
    }


def _few(rows: data.Data) -> tuple[Any, Any]:
    few = rows.head()
    return few.X, few.y


def _described(model: SVC) -> dict[str, Any]:
    return {
        "objective": model.objective_,
        "gap": model.gap_,
        "converged": model.converged_,
        "rounds": int(np.sum(model.n_iter_)),
        "support_vectors": len(model.support_),
    }


# --- all of them ---------------------------------------------------------------------------------


def run(kind: str, count: int, workers: Sequence[int], generated: bool, file: Path | None) -> int:
    found: dict[str, Any] = {}
    if file is not None and file.exists():
        found = json.loads(file.read_text())
    failed = False
    for number in workers:
        task = [sys.executable, "-m", "benchmarks.scaling", f"--one-{kind}", str(number)]
        task += ["--rows", str(count), *(["--generated"] if generated else [])]
        one = in_own_process(task, LIMIT, ROOT)
        failed |= "error" in one
        print(f"{kind}, {number} workers: {json.dumps(one)}", file=sys.stderr, flush=True)
        found |= {
            "rows": count,
            "parameters": PARAMETERS,
            "network": {"bytes_per_second": BANDWIDTH, "latency_seconds": LATENCY},
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine(),
            "versions": {n: metadata.version(n) for n in ("margrave", "numpy", "distributed")},
        }
        if "error" not in one:
            found.setdefault(kind, {})[str(number)] = one
        if file is not None:
            file.write_text(json.dumps(found, indent=1) + "\n")
    return int(failed)


# --- the page ------------------------------------------------------------------------------------


def report(folder: Path = FOLDER) -> str:
    files = sorted(folder.glob("scaling-covtype-*.json"), key=lambda file: len(file.name))
    found = [json.loads(file.read_text()) for file in files]
    found.sort(key=lambda one: -one["rows"])
    texts = [_table(one) for one in found if len(one.get("simulation", {})) > 2]
    texts += [_checks(one) for one in found if "check" in one]
    return "\n\n".join(texts) or "Nothing has been measured yet."


def _table(found: dict[str, Any]) -> str:
    runs = sorted(found["simulation"].values(), key=lambda one: one["workers"])
    head = ["workers", "seconds", "speed-up", "in turn", *PARTS, "rounds", "gap"]
    rows = [
        [
            str(one["workers"]),
            f"**{one['seconds']:.1f}**",
            f"{runs[0]['seconds'] / one['seconds']:.1f}x",
            f"{sum(one['here'][name] for name in PARTS if name != NETWORK):.1f}",
            *(f"{one['parts'][name]:.2f}" for name in PARTS),
            str(one["rounds"]),
            f"{one['gap']:.1e}",
        ]
        for one in runs
    ]
    title = f"### Simulated: covtype.binary, {found['rows']:,} rows, C=32, gamma=32"
    return f"{title}\n\n{markdown(head, rows)}\n\n{_machine(found)}"


def _checks(found: dict[str, Any]) -> str:
    head = ["workers", "simulated", "driver + busiest worker, Dask", "wall clock, Dask", "load"]
    head += ["objective, simulated", "objective, Dask"]
    rows = []
    for name, real in sorted(found["check"].items(), key=lambda one: int(one[0])):
        one = found.get("simulation", {}).get(name)
        if one is None:
            continue
        busiest = real["driver_cpu_seconds"] + max(real["worker_cpu_seconds"])
        rows.append(
            [
                *(name, f"{one['seconds']:.2f} s"),
                f"{busiest:.2f} s ({busiest / one['seconds']:.2f}x)",
                f"{real['wall_seconds']:.2f} s",
                "-".join(f"{load:.1f}" for load in real["load"]),
                *(f"{each['objective']:.8g}" for each in (one, real)),
            ]
        )
    title = f"### Checked against real runs: {found['rows']:,} rows"
    return f"{title}\n\n{markdown(head, rows)}\n\n{_machine(found)}"


def _machine(found: dict[str, Any]) -> str:
    machine_ = found["machine"]
    loads = [load for one in found["simulation"].values() for load in one["load"]]
    busy = f"load {min(loads):.0f} to {max(loads):.0f}"
    return f"{machine_['cpu']}, {machine_['cores']} cores, {busy}. {found['started'][:10]}."


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--workers", type=int, nargs="+")
    parser.add_argument("--check", action="store_true", help="real runs beside simulated ones")
    parser.add_argument("--generated", action="store_true", help="made-up data")
    parser.add_argument("--report", action="store_true", help="write the page only")
    parser.add_argument("--one-simulation", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--one-check", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    count = options.rows or (CHECK_ROWS if options.check else ROWS)
    if options.one_simulation or options.one_check:
        one = check if options.one_check else measure
        workers = options.one_check or options.one_simulation
        print(json.dumps(one(count, workers, options.generated)))
        return 0
    code = 0
    if not options.report:
        os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        file = None if options.generated else FOLDER / f"scaling-covtype-{count // 1000}k.json"
        workers = options.workers or ((1, 2) if options.check else WORKERS)
        code = run("simulation", count, workers, options.generated, file)
        if options.check:
            code |= run("check", count, workers, options.generated, file)
    if not options.generated:
        PAGE.write_text(placed(PAGE.read_text(), report(), "scaling"))
    return code


if __name__ == "__main__":
    sys.exit(main())
