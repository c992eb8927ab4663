"""Random faults on a real Dask cluster: workers, scheduler and driver are killed and frozen.

    python -m tests.chaos --seconds 600

An episode is one fit, in a process of its own (the driver), on a scheduler and workers that are
processes of this computer; at random moments of it, things happen to them. It has to end with
bitwise the model of an undisturbed fit, or with an error that says what was lost; never with
another model, with an error that says nothing, or not at all. A driver that was killed is started
again, and continues from its checkpoint. The summary goes to benchmarks/results/chaos.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "chaos.json"
TIMEOUT, WAIT = 12.0, 30.0  # seconds: of a silent worker, and for one to come
PARTITIONS = 4
LONGEST = 400.0  # of an episode; what lasts longer hangs
CLEAR = re.compile(  # errors that say what was lost
    r"(RuntimeError|ValueError): .*(Dask|worker|scheduler|rows|partition|checkpoint|client)", re.S
)


# --- the driver ------------------------------------------------------------------------------


def rows_of(n: int, seed: int) -> tuple[Any, Any]:
    from sklearn.datasets import make_moons

    X, y = make_moons(n, noise=0.25, random_state=seed)
    return np.asarray(X), np.asarray(y)


def in_partitions() -> Any:
    """An engine of this process whose rows are in partitions, as those of a collection are."""
    from margrave.engines import Serial
    from margrave.rows import LocalPiece, RemoteRows

    class InPartitions(Serial):
        def rows(self, X: Any, prepare: Callable[[Any], tuple[Any, Any]]) -> RemoteRows:
            made = [prepare(part) for part in np.split(X, PARTITIONS)]
            return RemoteRows.of([LocalPiece(rows) for rows, _ in made], [one for _, one in made])

        def vector(self, y: Any, lengths: Any, name: str) -> Any:
            return y

    return InPartitions()


def models() -> dict[str, Callable[..., Any]]:
    """What is fitted, from an engine and a folder for checkpoints."""
    from margrave import SVC, SVR, NuSVC, NuSVR, ODMClassifier
    from margrave.solvers import BlockMinimization, DivideAndConquer, PairSwaps, VarianceReduced

    def moving(checkpoint: str | None) -> Any:
        return BlockMinimization(blocks=4, rounds=12, checkpoint=checkpoint)

    return {
        "moving blocks": lambda engine, at: SVC(
            C=10.0, gamma=8.0, tol=1e-5, solver=moving(at), engine=engine
        ),
        "fixed blocks": lambda engine, at: SVC(
            C=10.0,
            gamma=8.0,
            tol=1e-4,
            solver=BlockMinimization(blocks=4, moving=False, rounds=3, checkpoint=at),
            engine=engine,
        ),
        "regression": lambda engine, at: SVR(C=2.0, gamma=4.0, solver=moving(at), engine=engine),
        "clusters": lambda engine, at: SVC(
            C=10.0, gamma=8.0, solver=DivideAndConquer(levels=2, early=1), engine=engine
        ),
        "hulls": lambda engine, at: NuSVC(
            nu=0.2, gamma=8.0, solver=PairSwaps(partitions=4, size=64), engine=engine
        ),
        "moving hulls": lambda engine, at: NuSVR(
            nu=0.3, C=2.0, gamma=4.0, solver=moving(at), engine=engine
        ),
        "gradients": lambda engine, at: ODMClassifier(
            lam=100.0,
            kernel="linear",
            intercept=None,
            tol=1e-3,
            solver=VarianceReduced(partitions=4),
            engine=engine,
        ),
    }


ON_WORKERS = ("moving blocks", "fixed blocks", "regression")
WITH_CHECKPOINTS = ON_WORKERS


def drive(task: dict[str, Any]) -> None:
    """Fit, and print a digest of the model."""
    import logging

    logging.basicConfig(level=logging.ERROR)
    from margrave.engines.dask import Dask
    from margrave.solvers.distributed import working_set

    working_set._LARGEST_SET = 64  # many rounds in a problem that is solved in seconds
    working_set._BETWEEN_CHECKPOINTS = 10
    X, y = rows_of(task["rows"], task["seed"])
    if task["model"] == "regression":
        y = np.sin(3.0 * X[:, 0])
    engine: Any = "serial"
    if task["address"]:
        engine = Dask(task["address"], timeout=TIMEOUT, wait=WAIT)
    model = models()[task["model"]](engine, task["checkpoint"])
    model.set_params(n_jobs=1, random_state=0)
    begun = Path(task["folder"]) / "begun"

    def note(record: dict[str, Any]) -> None:
        begun.touch()
        time.sleep(task["pause"])  # so that there is time for faults

    model.set_params(callbacks=note)
    given, labels = X, y
    if task["collection"]:
        model.set_params(solver__blocks=None)
    if task["collection"] and not task["address"]:
        from margrave.estimators import _input

        _input.has_remote_rows = lambda engine, X: True
        model.set_params(engine=in_partitions()).fit(X, y)
    elif task["collection"]:
        import dask.array

        with engine.workers.client.as_current():
            given = dask.array.from_array(X, chunks=(len(X) // PARTITIONS, 2))
            labels = dask.array.from_array(y, chunks=len(X) // PARTITIONS)
            model.fit(given, labels)
    else:
        model.fit(X, y)
    predicted = model.predict(X[:50])
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    for part in (model.dual_coef_, model.support_, model.intercept_, predicted):
        digest.update(np.ascontiguousarray(part).tobytes())
    found = {"digest": digest.hexdigest(), "gap": model.gap_, "converged": model.converged_}
    (Path(task["folder"]) / "model.json").write_text(json.dumps(found))


# --- the cluster -----------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LittleCluster:
    """A scheduler and workers, each a process that may be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, _free_port()
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "15s",
            "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
            "DASK_TEMPORARY_DIRECTORY": str(folder),
        }
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start("scheduler", "--port", str(self.port))

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options]
        command += ["--host", "127.0.0.1", "--no-dashboard"]
        log = open(self.folder / f"{what}.log", "ab")  # noqa: SIM115  # the process owns it
        return subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=log, stderr=subprocess.STDOUT
        )

    def join(self) -> None:
        options = ("--nthreads", "1", "--no-nanny", "--preload", "margrave.solvers")
        self.workers.append(self._start("worker", self.address, *options))

    def restart_scheduler(self) -> None:
        """Workers leave with their scheduler: others come."""
        end(self.scheduler)
        self.scheduler = self._start("scheduler", "--port", str(self.port))
        self.join()
        self.join()

    def tidy(self, least: int) -> None:
        """Make the cluster whole again for the next episode."""
        for worker in self.workers:
            with suppress(ProcessLookupError):
                worker.send_signal(signal.SIGCONT)
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        if self.scheduler.poll() is not None:
            self.scheduler = self._start("scheduler", "--port", str(self.port))
        for worker in self.workers[4:]:
            end(worker)
        self.workers = self.workers[:4]
        while len(self.workers) < least:
            self.join()

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that this one has started, frozen or not."""
    if process.poll() is None:
        process.kill()
    process.wait()


# --- episodes --------------------------------------------------------------------------------


@dataclass
class Episode:
    """A fit, the faults that struck it, and how it ended."""

    number: int
    model: str
    collection: bool
    checkpoint: bool
    seed: int
    faults: list[str] = field(default_factory=list)
    outcome: str = ""
    said: str = ""
    seconds: float = 0.0


FAULTS = ("kill a worker", "kill two workers", "kill all workers", "freeze a worker", "join",
          "freeze a worker for good", "freeze the scheduler", "restart the scheduler",
          "restart the driver", "kill a worker")  # fmt: skip


class Chaos:
    """Episodes on one cluster."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.cluster = LittleCluster(folder)
        self.expected: dict[tuple[str, bool, int], str] = {}

    def start(self, episode: Episode, address: str) -> subprocess.Popen[bytes]:
        (self.folder / "begun").unlink(missing_ok=True)
        for name in ("model.json", "error"):
            (self.folder / name).unlink(missing_ok=True)
        task = {
            "model": episode.model,
            "collection": episode.collection,
            "seed": episode.seed,
            "rows": 600,
            "address": address,
            "folder": str(self.folder),
            "checkpoint": str(self.folder / "checkpoint") if episode.checkpoint else None,
            "pause": 0.02 if address else 0.0,
        }
        with open(self.folder / "driver.log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.chaos", "--drive", json.dumps(task)],
                cwd=ROOT,
                env=self.cluster.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def undisturbed(self, episode: Episode) -> str:
        """The digest of the same model from a single process without workers."""
        key = episode.model, episode.collection, episode.seed
        if key not in self.expected:
            calm = Episode(-1, episode.model, episode.collection, False, episode.seed)
            process = self.start(calm, "")
            process.wait()
            if process.returncode:
                raise RuntimeError(f"an undisturbed fit has failed: {self._log()}")
            self.expected[key] = self._digest()
        return self.expected[key]

    def _digest(self) -> str:
        found: dict[str, Any] = json.loads((self.folder / "model.json").read_text())
        return str(found["digest"])

    def run(self, number: int) -> Episode:
        """One episode."""
        choose = self.random
        model = choose.choice(list(models()))
        episode = Episode(
            number,
            model,
            model in ON_WORKERS and choose.random() < 0.5,
            model in WITH_CHECKPOINTS and choose.random() < 0.6,
            choose.randrange(3),
        )
        self.cluster.tidy(3)
        expected = self.undisturbed(episode)
        self.cluster.tidy(3)
        faults = [choose.choice(FAULTS) for _ in range(choose.randint(1, 4))]
        faults = [one for one in faults if one != "restart the driver" or episode.checkpoint]
        found = self._run(episode, faults or ["kill a worker"])
        if episode.outcome == "same model" and found != expected:
            episode.outcome = "another model"
        for path in (self.folder / "checkpoint").glob("*"):
            path.unlink()
        return episode

    def _run(self, episode: Episode, faults: list[str]) -> str:
        begin = time.monotonic()
        driver = self.start(episode, self.cluster.address)
        thawing: list[tuple[float, subprocess.Popen[bytes]]] = []
        # some during the first calls, most after the first round
        early = [self.random.random() < 0.3 for _ in faults]
        delays = [self.random.uniform(0.0, 6.0) for _ in faults]
        left, begun = list(zip(early, delays, faults, strict=True)), float("inf")
        try:
            while driver.poll() is None:
                now = time.monotonic()
                if now > begin + LONGEST:
                    episode.outcome, episode.said = "hang", self._log()
                    return ""
                for moment, process in thawing:
                    if now >= moment:
                        with suppress(ProcessLookupError):
                            process.send_signal(signal.SIGCONT)
                if begun == float("inf") and (self.folder / "begun").exists():
                    begun = now
                due = [one for one in left if now > (begin if one[0] else begun) + one[1]]
                for one in due:
                    left.remove(one)
                    episode.faults.append(one[2])
                    driver = self._strike(one[2], episode, driver, thawing)
                time.sleep(0.05)
        finally:
            for _, process in thawing:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
            if driver.poll() is None:
                driver.send_signal(signal.SIGCONT)
            end(driver)
            episode.seconds = round(time.monotonic() - begin, 1)
        if driver.returncode == 0:
            episode.outcome = "same model"
            return self._digest()
        error = self.folder / "error"  # the log also has what Dask's own threads say
        said = error.read_text() if error.exists() else ""
        episode.outcome = "clear error" if CLEAR.match(said) else "unclear error"
        episode.said = said if episode.outcome == "clear error" else said + self._log()[-3000:]
        return ""

    def _log(self) -> str:
        return (self.folder / "driver.log").read_text(errors="replace")

    def _strike(
        self,
        fault: str,
        episode: Episode,
        driver: subprocess.Popen[bytes],
        thawing: list[tuple[float, subprocess.Popen[bytes]]],
    ) -> subprocess.Popen[bytes]:
        """Let something happen; the driver, which may be another one now."""
        cluster, now = self.cluster, time.monotonic()
        alive = [worker for worker in cluster.workers if worker.poll() is None]
        self.random.shuffle(alive)
        if fault.startswith("kill"):
            count = {"a": 1, "two": 2, "all": len(alive)}[fault.split()[1]]
            for worker in alive[:count]:
                end(worker)
            for _ in range(self.random.randint(0, count) or (len(alive) == count)):
                cluster.join()
        elif fault == "join":
            cluster.join()
        elif fault.startswith("freeze a worker") and alive:
            alive[0].send_signal(signal.SIGSTOP)
            lasting = LONGEST if fault.endswith("good") else self.random.uniform(1.0, 10.0)
            thawing.append((now + lasting, alive[0]))
        elif fault == "freeze the scheduler":
            cluster.scheduler.send_signal(signal.SIGSTOP)
            thawing.append((now + self.random.uniform(1.0, 10.0), cluster.scheduler))
        elif fault == "restart the scheduler":
            cluster.restart_scheduler()
        elif fault == "restart the driver":
            end(driver)
            return self.start(episode, cluster.address)
        return driver


def run(seconds: float, seed: int) -> dict[str, Any]:
    """Episodes for so long; what they showed."""
    episodes: list[Episode] = []
    with tempfile.TemporaryDirectory(prefix="margrave-chaos-") as folder:
        chaos = Chaos(Path(folder), seed)
        try:
            begin = time.monotonic()
            while time.monotonic() < begin + seconds:
                episode = chaos.run(len(episodes))
                episodes.append(episode)
                print(
                    f"{episode.number:4d} {episode.outcome:14s} {episode.seconds:6.1f} s"
                    f"  {episode.model}, {'collection' if episode.collection else 'NumPy'}"
                    f"{', checkpoints' if episode.checkpoint else ''}: {', '.join(episode.faults)}",
                    flush=True,
                )
                if episode.outcome not in ("same model",):
                    print("     " + episode.said.replace("\n", "\n     "), flush=True)
            lasted = time.monotonic() - begin
        finally:
            chaos.cluster.close()
    return summary(episodes, lasted, seed)


def summary(episodes: list[Episode], seconds: float, seed: int) -> dict[str, Any]:
    """Counts, as the documentation quotes them."""
    import margrave

    outcomes = Counter(episode.outcome for episode in episodes)
    return {
        "kind": "chaos",
        "date": time.strftime("%Y-%m-%d"),
        "machine": {
            "cpu": platform.machine(),
            "cores": os.cpu_count(),
            "system": platform.system(),
        },
        "versions": {"margrave": margrave.__version__, "python": platform.python_version()},
        "seed": seed,
        "seconds": round(seconds),
        "episodes": len(episodes),
        "faults": dict(Counter(fault for one in episodes for fault in one.faults)),
        "same_model": outcomes["same model"],
        "clear_error": outcomes["clear error"],
        "unclear_error": outcomes["unclear error"],
        "another_model": outcomes["another model"],
        "hang": outcomes["hang"],
        "errors": sorted({one.said for one in episodes if one.outcome == "clear error"}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        task = json.loads(given.drive)
        try:
            drive(task)
        except Exception as error:
            (Path(task["folder"]) / "error").write_text(f"{type(error).__name__}: {error}")
            raise
        return
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 30)
    found = run(given.seconds, seed)
    print(json.dumps(found, indent=1))
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    if found["another_model"] or found["hang"] or found["unclear_error"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
