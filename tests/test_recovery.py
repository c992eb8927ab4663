"""Losses at every single call of a fit, and at the calls of its repairs: always the same model."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.datasets import make_moons

from margrave import SVC, SVR, KernelLogisticRegression, NuSVC, NuSVR, ODMClassifier
from margrave.engines import Arrivals, Recovery, Serial, ShardLost
from margrave.rows import LocalPiece, RemoteRows
from margrave.solvers import (
    BlockMinimization,
    DivideAndConquer,
    ExpectationMaximization,
    FrankWolfe,
    PairSwaps,
    VarianceReduced,
)

X, Y = make_moons(160, noise=0.25, random_state=0)
TARGET = np.sin(3.0 * X[:, 0]) + X[:, 1]


class Fragile:
    """Shards that go with their worker at chosen calls of the engine."""

    def __init__(self, engine, shards):
        self._engine, self._shards, self._is_lost = engine, shards, False

    def __getattr__(self, name):
        if name in ("map", "each", "call", "deal", "reduce", "checkpoint"):
            return lambda *args: self._asked(name, args)
        return getattr(self._shards, name)

    def __len__(self):
        return len(self._shards)

    def _asked(self, name, args):
        if self._is_lost:
            raise ShardLost(["worker"], "it was lost before, and its shards with it")
        try:
            self._engine.strike()
        except ShardLost:
            self._is_lost = True
            raise
        return getattr(self._shards, name)(*args)

    def close(self):
        self._shards.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Losing(Serial):
    """A local engine that loses its workers at chosen calls."""

    is_remote = True

    def __init__(self, losses=(), workers=(3,)):
        self.losses, self.calls = set(losses), 0
        self.workers = workers  # how many there are, after each look
        self.looks, self.sizes = 0, []

    @property
    def n_workers(self):
        self.looks += 1
        return self.workers[min(self.looks, len(self.workers)) - 1]

    def strike(self):
        self.calls += 1
        if self.calls in self.losses:
            raise ShardLost(["worker"], "killed by the test")

    def scatter(self, block_type, pieces):
        self.strike()
        self.sizes.append(len(pieces))
        return Fragile(self, super().scatter(block_type, pieces))

    # rows on workers, whose pieces go with them

    def rows(self, X, prepare):
        self.strike()
        made = [prepare(part) for part in np.split(np.asarray(X), (50, 90))]
        pieces = [FragilePiece(self, rows) for rows, _ in made]
        return RemoteRows.of(pieces, [facts for _, facts in made])

    def vector(self, y, lengths, name):
        self.strike()
        return np.asarray(y)

    def __deepcopy__(self, memo):
        return self


class FragilePiece(LocalPiece):
    def __init__(self, engine, rows):
        super().__init__(rows)
        self.engine = engine

    def take(self, places):
        self.engine.strike()
        return super().take(places)


FITS = {
    "moving": SVC(C=10.0, gamma=4.0, tol=1e-5, solver=BlockMinimization(blocks=3, rounds=3)),
    "fixed": SVC(
        C=10.0, gamma=4.0, tol=1e-4, solver=BlockMinimization(blocks=3, moving=False, rounds=2)
    ),
    "dc": SVC(C=10.0, gamma=4.0, solver=DivideAndConquer(levels=2, branching=2)),
    "early": SVC(C=10.0, gamma=4.0, solver=DivideAndConquer(levels=2, branching=2, early=1)),
    "svr": SVR(C=2.0, gamma=1.0, solver=BlockMinimization(blocks=2)),
    "logistic": KernelLogisticRegression(gamma=1.0, solver=BlockMinimization(blocks=2)),
    "em": SVC(C=0.1, kernel="linear", solver=ExpectationMaximization()),
    "dsvrg": ODMClassifier(
        kernel="linear", lam=10.0, intercept=None, tol=1e-2, solver=VarianceReduced(partitions=2)
    ),
    "hull": NuSVC(nu=0.3, gamma=1.0, solver=PairSwaps(partitions=2, size=32)),
    "moving hull": NuSVC(nu=0.3, gamma=1.0, solver=BlockMinimization(blocks=3, rounds=3)),
    "moving nu-svr": NuSVR(nu=0.3, gamma=1.0, solver=BlockMinimization(blocks=3, rounds=2)),
    "gilbert": NuSVC(nu=0.6, kernel="linear", tol=0.1, solver=FrankWolfe(partitions=2)),
}
KEPT_ELSEWHERE = ("moving", "fixed", "dc", "svr", "logistic")


@pytest.fixture(autouse=True)
def small_sets(monkeypatch):
    """Many rounds and checkpoints in a small problem; active rows, whatever their number."""
    working_set = "margrave.solvers.distributed.working_set."
    monkeypatch.setattr(working_set + "_LARGEST_SET", 24)
    monkeypatch.setattr(working_set + "_BETWEEN_CHECKPOINTS", 3)
    monkeypatch.setattr(working_set + "_FEW_ROWS", 50)
    monkeypatch.setattr("margrave.solvers.kernel.moving_blocks._ENOUGH", 4)


def fitted(name, engine, elsewhere, monkeypatch):
    model = clone(FITS[name]).set_params(engine=engine)
    with monkeypatch.context() as patch:
        if elsewhere:
            patch.setattr("margrave.estimators._input.has_remote_rows", lambda engine, X: True)
        return model.fit(X, TARGET if is_regressor(model) else Y)


def assert_same(found, expected):
    for name in ("dual_coef_", "intercept_", "support_", "gap_", "objective_", "n_iter_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.certificate_ == expected.certificate_
    assert not hasattr(found, "_recovery")
    pickle.loads(pickle.dumps(found))


CASES = [(name, False) for name in FITS] + [(name, True) for name in KEPT_ELSEWHERE]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("name", "elsewhere"), CASES)
def test_a_loss_at_every_call(name, elsewhere, monkeypatch):
    calm = Losing()
    expected = fitted(name, calm, elsewhere, monkeypatch)
    assert calm.calls > 2
    step = 1 + calm.calls // 30
    for number in range(1, calm.calls + 1, step):
        engine = Losing([number])
        assert_same(fitted(name, engine, elsewhere, monkeypatch), expected)
        assert engine.calls > number  # the loss has happened


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("name", "elsewhere"), CASES)
def test_losses_during_repairs(name, elsewhere, monkeypatch):
    """The next calls after a loss are repairs: building shards, fetching a working set."""
    calm = Losing()
    expected = fitted(name, calm, elsewhere, monkeypatch)
    rng = np.random.default_rng(0)
    for _ in range(12):
        first = int(rng.integers(1, calm.calls + 1))
        after = first + np.cumsum(rng.integers(1, 5, size=rng.integers(1, 5)))
        found = fitted(name, Losing([first, *after.tolist()]), elsewhere, monkeypatch)
        assert_same(found, expected)


def test_a_fit_does_not_go_on_for_ever(monkeypatch):
    model = clone(FITS["moving"]).set_params(engine=Losing(range(5, 10_000)))
    before = dict(vars(model))
    with pytest.raises(RuntimeError, match=r"lost 21 times in one fit.*killed by the"):
        model.fit(X, Y)
    assert vars(model) == before  # a fit is a transaction


def test_losses_of_other_fits_do_not_count(monkeypatch):
    engine = Losing(range(5, 1000, 40))
    for _ in range(6):
        fitted("moving", engine, False, monkeypatch)
    assert len([loss for loss in engine.losses if loss <= engine.calls]) > 8


def test_a_loss_of_a_resumed_run(tmp_path, monkeypatch):
    expected = fitted("moving", Losing(), False, monkeypatch)

    class Killed(Exception):
        pass

    def kill(record):
        if record["round"] > expected.n_iter_ // 2:
            raise Killed

    def run(losses=(), **more):
        engine = Losing(losses)
        model = clone(FITS["moving"]).set_params(engine=engine, solver__checkpoint=tmp_path, **more)
        return model.fit(X, Y), engine

    for number in range(1, 12):
        with pytest.raises(Killed):
            run(callbacks=kill)
        assert (tmp_path / "margrave-checkpoint.npz").exists()
        found, _ = run([number, number + 2, number + 3])
        np.testing.assert_array_equal(found.dual_coef_, expected.dual_coef_)
        assert (found.gap_, found.n_iter_) == (expected.gap_, expected.n_iter_)
        assert list(tmp_path.iterdir()) == []


# --- workers that join ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["moving", "fixed"])
def test_workers_that_join_are_used_from_the_next_round_on(name, monkeypatch):
    monkeypatch.setattr("margrave.engines.recovery._CHECK", 0.0)
    monkeypatch.setattr("margrave.engines.recovery._SHARE", 1e9)
    expected = fitted(name, Losing(workers=(2,)), False, monkeypatch)
    for first in (3, 6, 9, 14):
        engine = Losing(workers=[2] * first + [3] * 6 + [4])
        found = fitted(name, engine, False, monkeypatch)
        assert_same(found, expected)
        calm = Losing(workers=(2,))
        fitted(name, calm, False, monkeypatch)
        assert len(engine.sizes) > len(calm.sizes)
        assert name == "fixed" or max(engine.sizes[-2:]) >= 3  # copies of the active rows
        # and with losses in between
        losing = Losing([20, 24], workers=[2] * first + [3] * 6 + [4])
        assert_same(fitted(name, losing, False, monkeypatch), expected)


def test_arrivals_are_looked_for_now_and_then(monkeypatch):
    moments = iter(np.arange(0.0, 100.0, 0.25))
    monkeypatch.setattr("margrave.engines.recovery.time.monotonic", lambda: next(moments))
    engine = Losing(workers=[2, 2, 3])
    arrivals = Arrivals(engine)
    arrivals.begin()
    arrivals.settle()
    seen = [arrivals.have_come() for _ in range(40)]
    assert sum(seen) >= 1 and engine.looks < 12
    local = Arrivals(Serial())
    local.begin()
    assert not local.have_come()


def test_the_loop_of_recovery():
    released, left = [], [1, 2, 3]

    def step():
        if left:
            raise ShardLost(["a"], f"{left.pop()}")
        return "done"

    recovery = Recovery()
    assert recovery.steadily(step, lambda: released.append(len(left))) == "done"
    assert released == [2, 1, 0] and recovery.losses == 3
    with pytest.raises(KeyError):
        recovery.steadily(lambda: {}["not a loss"])


def test_every_line_of_the_table_of_faults_names_its_tests():
    root = Path(__file__).parents[1]
    page = (root / "docs" / "distributed.md").read_text().partition("shown by |")[2]
    lines = [line for line in page.partition("\n\n")[0].splitlines() if line.startswith("| ")]
    known = set()
    for path in (root / "tests").glob("test_*.py"):
        known |= set(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
    named = [re.findall(r"`(test_\w+)`", line) for line in lines if "---" not in line]
    assert len(named) > 20 and all(named)
    assert {test for tests in named for test in tests} <= known
