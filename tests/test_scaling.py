"""The simulation of more workers: the same model, and a critical path that adds up."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_moons

from benchmarks import scaling
from benchmarks.marks import placed
from margrave import SVC
from margrave.solvers import BlockMinimization
from margrave.solvers.kernel import moving_blocks


def test_simulated_workers_find_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving_blocks, "_ENOUGH", 0)  # rounds of blocks, however few the rows
    X, y = make_moons(3000, noise=0.3, random_state=0)
    solver = BlockMinimization(blocks=6)
    begin = time.process_time()
    model, path = scaling.simulate(X, y, 4, solver=solver)
    spent = time.process_time() - begin
    settings = {"solver": solver, "memory_limit": "4GiB", "random_state": 0, "n_jobs": 1}
    serial = SVC(**scaling.PARAMETERS, **settings, engine="serial").fit(X, y)
    np.testing.assert_array_equal(model.dual_coef_, serial.dual_coef_)
    assert model.gap_ == serial.gap_ and model.n_iter_ == serial.n_iter_
    # every second of this process belongs to one part, and no worker is busier than all together
    assert set(path.critical) <= set(scaling.PARTS)
    assert sum(path.here.values()) == pytest.approx(spent, rel=0.02, abs=0.02)
    for name in scaling.PARTS[:4]:
        assert path.here[name] / 4 <= path.critical[name] + 1e-9 <= path.here[name] + 2e-9
    assert all(path.critical[name] == path.here[name] for name in scaling.DRIVER)
    assert path.critical["blocks"] > 0.0 and path.critical["working set"] > 0.0


class Slow:
    """A block whose calls take given seconds, by a clock of its own."""

    def __init__(self, clock: SimpleNamespace, number: int) -> None:
        self.clock, self.number = clock, number

    def work(self, seconds: list[float]) -> bytes:
        self.clock.now += seconds[self.number]
        return bytes(10)

    def solve(self, seconds: float) -> None:
        self.clock.now += seconds

    def many(self, method: str, calls: list[Any]) -> list[Any]:
        return [getattr(self, method)(*call) for call in calls]


def test_the_critical_path_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(scaling.time, "process_time", lambda: clock.now)
    engine = scaling.Simulated(2)
    path = engine.path
    with engine.scatter(Slow, [{"clock": clock, "number": k} for k in range(3)]) as shards:
        before = path.critical["network"]
        clock.now += 0.5  # the driver's own
        shards.map("work", [1.0, 2.0, 4.0])  # shards 0 and 2 are on one worker
        # 24 bytes through two links, and three results of 10: two stay on worker 0
        sent = path.critical["network"] - before
        assert sent == pytest.approx(4 * scaling.LATENCY + (2 * 24 + 40) / scaling.BANDWIDTH)
        assert path.critical["shards"] == 5.0 and path.here["shards"] == 7.0
        shards.deal("solve", [(3.0,), (1.0,), (1.5,)], [3, 1, 1])
        assert path.here["blocks"] == 5.5
    path.flush()
    assert path.critical["driver"] == path.here["driver"] == 0.5
    assert sum(path.here.values()) == clock.now


def test_shared_items_take_as_long_as_the_busiest_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(scaling.time, "process_time", lambda: clock.now)
    engine = scaling.Simulated(2)
    with engine.scatter(Slow, [{"clock": clock, "number": k} for k in range(2)]) as shards:
        shards.deal("solve", [(3.0,), (1.0,), (1.5,)], [3, 1, 1])
    assert engine.path.critical["blocks"] == 3.0 and engine.path.here["blocks"] == 5.5


def test_made_up_rows_are_simulated() -> None:
    found = scaling.measure(600, 8, generated=True)
    assert found["converged"] and found["seconds"] == pytest.approx(sum(found["parts"].values()))


def test_the_page_is_that_of_the_result_files() -> None:
    page = scaling.PAGE.read_text()
    assert page == placed(page, scaling.report(), "scaling")
