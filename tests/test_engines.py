"""Every engine in the list: the same answers, in the same order, to the last bit."""

import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest

from margrave import ODMClassifier
from margrave.engines import ENGINES, Serial, Threads, resolve_engine
from margrave.solvers import VarianceReduced
from tests.data import load

each_engine = pytest.mark.parametrize("name", ENGINES)


class Numbers:
    """A block that holds an array."""

    def __init__(self, values, unit=1.0):
        self.values, self.unit = np.asarray(values, dtype=float), unit

    def array(self):
        return self.values

    def several(self, power):
        return self.values**power, float(self.values[0]), len(self.values)

    def scaled(self, factor, by):
        time.sleep(0.02 / (1.0 + self.values[0]))  # the first shards are ready last
        return factor * self.unit * self.values + by

    def grow(self):
        self.values = self.values + 1.0

    def refuse(self, number):
        if self.values[0] >= number:
            raise LookupError(f"shard {self.values[0]:.0f}")


def shards_of(name, pieces, workers=3):
    return resolve_engine(name, workers).scatter(Numbers, pieces)


PIECES = [[float(k), 1.0] for k in range(5)]


@each_engine
def test_results_are_in_the_order_of_the_shards(name):
    with shards_of(name, PIECES) as shards:
        assert len(shards) == 5
        found = shards.map("scaled", 2.0, np.array([0.0, 1.0]))
        np.testing.assert_array_equal(found, 2.0 * np.array(PIECES) + [0.0, 1.0])


@each_engine
def test_one_shard_is_called(name):
    with shards_of(name, PIECES) as shards:
        shards.call(3, "grow")
        np.testing.assert_array_equal(shards.map("array"), np.array(PIECES) + np.eye(5)[:, [3]])
        np.testing.assert_array_equal(shards.call(4, "array"), [4.0, 1.0])


@each_engine
def test_sums_of_arrays_numbers_and_tuples(name):
    with shards_of(name, PIECES) as shards:
        np.testing.assert_array_equal(shards.reduce("array"), [10.0, 5.0])
        squares, firsts, counts = shards.reduce("several", 2)
        np.testing.assert_array_equal(squares, [30.0, 5.0])
        assert firsts == 10.0 and isinstance(firsts, float)
        assert counts == 10 and isinstance(counts, int)
        np.testing.assert_array_equal(shards.map("array"), PIECES)  # no block's own has grown


@each_engine
def test_sums_repeat_to_the_last_bit(name):
    pieces = [[0.1 * 10.0**k, 1.0 / (k + 1)] for k in range(-8, 9) if k != -1]
    expected = np.zeros(2)
    for piece in pieces:
        expected = expected + piece
    with shards_of(name, pieces) as shards:
        for _ in range(20):
            np.testing.assert_array_equal(shards.reduce("array"), expected)


@each_engine
def test_pieces_by_name_and_alone(name):
    with shards_of(name, [{"values": [1.0], "unit": 3.0}, [2.0]]) as shards:
        np.testing.assert_array_equal(shards.map("scaled", 1.0, 0.0), [[3.0], [2.0]])


@each_engine
def test_errors_come_through(name):
    with shards_of(name, PIECES) as shards:
        with pytest.raises(LookupError, match="shard 2"):
            shards.map("refuse", 2.0)
        with pytest.raises(LookupError, match="shard 4"):
            shards.call(4, "refuse", 4.0)
        with pytest.raises(AttributeError, match="fly"):
            shards.reduce("fly")
        assert len(shards.map("array")) == 5  # still there


class Slow:
    """A block whose work ends with Ctrl-C from the first shard."""

    running = 0
    lock = threading.Lock()

    def __init__(self, number):
        self.number = number

    def work(self):
        with Slow.lock:
            Slow.running += 1
        try:
            time.sleep(0.05)
            if self.number == 0:
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        finally:
            with Slow.lock:
                Slow.running -= 1


@each_engine
def test_ctrl_c_comes_through_and_leaves_nobody_at_work(name):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with resolve_engine(name, 2).scatter(Slow, range(20)) as shards:
            begin = time.perf_counter()
            with pytest.raises(KeyboardInterrupt):
                shards.map("work")
            assert Slow.running == 0
            assert time.perf_counter() - begin < 0.9  # all of them take a second or two
    finally:
        signal.signal(signal.SIGINT, before)


class Meeting:
    """A block that waits for another one."""

    def __init__(self, barrier):
        self.barrier = barrier

    def meet(self):
        self.barrier.wait(timeout=20.0)


def test_threads_work_side_by_side():
    barrier = threading.Barrier(3)
    with Threads(3).scatter(Meeting, [barrier] * 3) as shards:
        shards.map("meet")


def test_threads_end_with_their_shards():
    before = threading.active_count()
    for _ in range(5):
        with Threads(4).scatter(Numbers, PIECES) as shards:
            shards.map("array")
    assert threading.active_count() <= before


def test_engines_survive_a_pickle():
    for engine in (Serial(), Threads(3)):
        again = pickle.loads(pickle.dumps(engine))
        assert type(again) is type(engine) and again.n_workers == engine.n_workers


def test_names_and_objects():
    assert resolve_engine(None, 3).n_workers == 3 and isinstance(resolve_engine(None, 3), Threads)
    assert isinstance(resolve_engine("serial", 3), Serial) and Serial().n_workers == 1
    mine = Threads(7)
    assert resolve_engine(mine, 2) is mine
    with pytest.raises(ValueError, match=r"unknown engine 'cloud'.*serial, threads"):
        resolve_engine("cloud", 2)
    with pytest.raises(ValueError, match=r"'serial', 'threads'.*scatter, got 3"):
        resolve_engine(3, 2)
    with pytest.raises(ValueError, match="n_workers=0"):
        Threads(0)


def test_estimators_take_engines():
    X, y = load("bc")
    models = [
        ODMClassifier(kernel="linear", solver=VarianceReduced(partitions=2), engine=engine)
        for engine in ("serial", "threads", None, Serial())
    ]
    first, *others = [model.fit(X, y).coef_ for model in models]
    for coef in others:
        np.testing.assert_array_equal(coef, first)
    for engine in ("nonsense", 3):
        with pytest.raises(ValueError, match="engine"):
            ODMClassifier(engine=engine).fit(X, y)
