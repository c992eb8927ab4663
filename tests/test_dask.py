"""Dask: workers that die, freeze or are merely busy; rows of collections."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from margrave import SVC
from margrave.engines import Serial, ShardLost, is_collection, resolve_engine
from margrave.rows import RemoteRows
from tests.clusters import local_cluster
from tests.shards import Holder, Inner, Numbers, Outer, Slow

dask = pytest.importorskip("dask", reason='needs "margrave[dask]"')
distributed = pytest.importorskip("distributed", reason='needs "margrave[dask]"')
dask_array = pytest.importorskip("dask.array", reason='needs "margrave[dask]"')
dask_frame = pytest.importorskip("dask.dataframe", reason='needs "margrave[dask]"')

from margrave.engines import Dask  # noqa: E402

PIECES = [[float(k), 1.0] for k in range(5)]


def pids(client):
    """Processes of the workers, by address."""
    return client.run(os.getpid)


def slow(tmp_path, count):
    return [{"number": k, "folder": tmp_path} for k in range(count)]


def impatient(client, timeout):
    """An engine with little patience, for workers that have imported all that they need."""
    client.wait_for_workers(2, timeout=30)
    with Dask(client).scatter(Numbers, PIECES) as shards:
        shards.map("array")
    return Dask(client, timeout=timeout, wait=timeout)


def until(condition):
    """Wait for something that takes a moment."""
    end = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def later(seconds, pid, sign):
    """Send a signal from another thread, so that a call is under way meanwhile."""
    timer = threading.Timer(seconds, os.kill, (pid, sign))
    timer.start()
    return timer


# --- losses ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def losing():
    """A cluster whose workers come back: their nannies see to that."""
    with local_cluster() as client:
        yield client
        for pid in pids(client).values():
            os.kill(pid, signal.SIGCONT)


def test_a_worker_killed_between_calls(losing):
    engine = Dask(losing, timeout=10.0)
    with engine.scatter(Numbers, PIECES) as shards:
        victim = shards.call(1, "place")
        [address] = [worker for worker, pid in pids(losing).items() if pid == victim]
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(ShardLost) as caught:
            for _ in range(100):
                shards.map("array")
        assert caught.value.workers == [address] and address in str(caught.value)
        with pytest.raises(ShardLost):  # and stays so
            shards.map("array")
    with engine.scatter(Numbers, PIECES) as shards:
        np.testing.assert_array_equal(shards.reduce("array"), [10.0, 5.0])


def test_a_worker_killed_during_a_call(losing, tmp_path):
    losing.wait_for_workers(2, timeout=20)
    engine = Dask(losing, timeout=10.0)
    with engine.scatter(Slow, slow(tmp_path, 2)) as shards:
        victim = shards.call(0, "place")
        [address] = [worker for worker, pid in pids(losing).items() if pid == victim]
        timer = later(0.5, victim, signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(ShardLost) as caught:
            shards.map("work", 60.0)
        timer.join()
        assert caught.value.workers == [address]
        assert time.monotonic() - begin < 20.0  # the other one was cancelled
        assert not (tmp_path / "1").exists()
    losing.wait_for_workers(2, timeout=20)
    with engine.scatter(Numbers, PIECES) as shards:
        np.testing.assert_array_equal(shards.reduce("array"), [10.0, 5.0])
        assert address not in engine.workers.live()


def test_a_frozen_worker(losing, tmp_path):
    engine = impatient(losing, 3.0)
    with engine.scatter(Slow, slow(tmp_path, 2)) as shards:
        victim = shards.call(1, "place")
        [address] = [worker for worker, pid in pids(losing).items() if pid == victim]
        os.kill(victim, signal.SIGSTOP)
        begin = time.monotonic()
        try:
            with pytest.raises(ShardLost, match="no sign of life for 3 s") as caught:
                shards.map("work", 60.0)
            assert caught.value.workers == [address]
            assert time.monotonic() - begin < 20.0
            assert engine.n_workers == 1
            with engine.scatter(Numbers, PIECES) as others:
                assert victim not in others.map("place")
        finally:
            os.kill(victim, signal.SIGCONT)
        until(lambda: engine.n_workers == 2)  # heard of again
        with pytest.raises(ShardLost, match="came back without its shards"):
            shards.map("place")
    with engine.scatter(Numbers, PIECES) as others:
        assert victim in others.map("place")
    until(lambda: not list(tmp_path.iterdir()))  # what it began when it woke up has ended


def test_who_is_busy_is_not_lost(losing, tmp_path):
    engine = impatient(losing, 2.0)
    with engine.scatter(Slow, slow(tmp_path, 2)) as shards:
        assert shards.map("work_or_ponder", 3.5) == [0, 1]


# --- losses in a tree of four workers: 0 passes on to 2 and 1, and 2 to 3 ---------------------


@pytest.fixture(scope="module")
def wide():
    # a cluster gives up a worker that is gone twice, so long after each other
    patience = dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
    with patience, local_cluster(4) as client:
        yield client
        for pid in pids(client).values():
            os.kill(pid, signal.SIGCONT)


def ready(client, timeout):
    """An engine for four workers that have imported all that they need."""
    client.wait_for_workers(4, timeout=60)
    with Dask(client).scatter(Numbers, PIECES[:4]) as shards:
        shards.map("array")
    return Dask(client, timeout=timeout)


def calls(shards, how, number):
    return getattr(shards, how)("die_or_work", number, np.zeros(2_000_000))


@pytest.mark.parametrize("how", ["map", "reduce"])
@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_worker_killed_in_a_tree(wide, tmp_path, how, number):
    engine = ready(wide, 10.0)
    with engine.scatter(Slow, slow(tmp_path, 4)) as shards:
        places = shards.map("place")
        [address] = [worker for worker, pid in pids(wide).items() if pid == places[number]]
        begin = time.monotonic()
        with pytest.raises(ShardLost) as caught:
            calls(shards, how, number)
        assert caught.value.workers == [address]
        assert time.monotonic() - begin < 15.0
        assert list(tmp_path.iterdir()) == []  # no worker is busy, not even below the lost one
        with pytest.raises(ShardLost):
            shards.map("place")
        assert time.monotonic() - begin < 20.0
    with engine.scatter(Numbers, PIECES) as shards:
        np.testing.assert_array_equal(shards.reduce("array"), [10.0, 5.0])


@pytest.mark.parametrize("how", ["map", "reduce"])
def test_a_frozen_worker_in_a_tree(wide, tmp_path, how):
    engine = ready(wide, 3.0)
    with engine.scatter(Slow, slow(tmp_path, 4)) as shards:
        victim = shards.map("place")[2]
        [address] = [worker for worker, pid in pids(wide).items() if pid == victim]
        timer = later(0.5, victim, signal.SIGSTOP)
        begin = time.monotonic()
        try:
            with pytest.raises(ShardLost, match="no sign of life for 3 s") as caught:
                getattr(shards, how)("work", 60.0)
            timer.join()
            assert caught.value.workers == [address] and time.monotonic() - begin < 20.0
            assert {path.name for path in tmp_path.iterdir()} <= {"2"}
        finally:
            os.kill(victim, signal.SIGCONT)
    until(lambda: engine.n_workers == 4)
    until(lambda: not list(tmp_path.iterdir()))


def test_a_silent_worker_does_not_get_the_letter(wide, tmp_path):
    engine = ready(wide, 3.0)
    with engine.scatter(Slow, slow(tmp_path, 4)) as shards:
        victim = shards.map("place")[2]
        os.kill(victim, signal.SIGSTOP)
        begin = time.monotonic()
        try:
            with pytest.raises(ShardLost, match="no sign of life for 3 s"):
                shards.reduce("is_cancelled")
            assert time.monotonic() - begin < 20.0
        finally:
            os.kill(victim, signal.SIGCONT)
    until(lambda: engine.n_workers == 4)


def test_ctrl_c_in_a_tree(wide, tmp_path):
    engine = ready(wide, 10.0)
    with engine.scatter(Slow, slow(tmp_path, 8)) as shards:
        timer = later(0.5, os.getpid(), signal.SIGINT)
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            shards.reduce("work", 60.0)
        timer.join()
        assert time.monotonic() - begin < 10.0 and list(tmp_path.iterdir()) == []
        assert len(shards.map("place")) == 8  # still there


def test_errors_end_the_work_of_later_shards(wide, tmp_path):
    engine = ready(wide, 10.0)
    with engine.scatter(Slow, slow(tmp_path, 4)) as shards:
        begin = time.monotonic()
        with pytest.raises(LookupError, match="shard 2"):
            shards.map("refuse_or_work", [2, 3], 30.0, 1.0)
        assert time.monotonic() - begin < 10.0 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_the_same_bits_on_four_workers(wide, rng, count):
    pieces = rng.normal(size=(count, 3)) * 10.0 ** rng.integers(-9, 9, size=(count, 3))

    def found(engine):
        with engine.scatter(Numbers, pieces) as shards:
            made = [shards.reduce("array"), shards.reduce("several", 3)[0]]
            return made, shards.traffic

    (here, traffic), (there, traffic_there) = found(Serial()), found(ready(wide, 10.0))
    np.testing.assert_array_equal(here, there)
    assert traffic == traffic_there


def test_without_nannies_nobody_comes_back():
    command = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny", "--no-dashboard"]
    command += ["--nthreads", "1", "--host", "127.0.0.1"]
    with local_cluster(0) as client:
        workers = [
            subprocess.Popen(
                [*command, client.scheduler.address],
                cwd=Path(__file__).parents[1],
                stderr=subprocess.DEVNULL,
            )
            for _ in range(2)
        ]
        try:
            engine = impatient(client, 2.0)
            first, second = workers
            with engine.scatter(Numbers, PIECES) as shards:
                first.kill()
                with pytest.raises(ShardLost):
                    for _ in range(100):
                        shards.map("array")
            assert engine.n_workers == 1
            with engine.scatter(Numbers, PIECES) as shards:
                assert set(shards.map("place")) == {second.pid}
                second.kill()
                with pytest.raises(ShardLost):
                    for _ in range(100):
                        shards.map("array")
            with pytest.raises(RuntimeError, match="no Dask worker is left"):
                engine.scatter(Numbers, PIECES)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def test_a_cluster_without_workers(monkeypatch):
    monkeypatch.setattr("margrave.engines.dask_workers._PATIENCE", 0.5)
    with local_cluster(0) as client:
        engine = Dask(client)
        with pytest.raises(ValueError, match="has no workers"):
            engine.scatter(Numbers, PIECES)


# --- clients --------------------------------------------------------------------------------


def test_no_client():
    with pytest.raises(ValueError, match="got 3"):
        Dask(3)
    code = "from margrave.engines import Dask; Dask()"  # here there may be one
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "ValueError: there is no Dask client: create a dask.distributed.Client" in done.stderr


def test_names_of_clusters(dask_client):
    address = dask_client.scheduler.address
    for name in ("dask", address.replace("tcp", "dask"), dask_client, Dask(address)):
        engine = resolve_engine(name, 1)
        assert isinstance(engine, Dask) and engine.n_workers == 2 and engine.is_remote
        assert engine.workers.client is dask_client  # no second one to the same scheduler


def test_a_client_of_its_own(dask_client, losing):
    losing.wait_for_workers(2, timeout=20)
    engine = Dask(losing.scheduler.address)
    client = engine.workers.client
    assert client is not losing and engine.n_workers == 2
    assert distributed.get_client() is dask_client  # still the current one
    del engine
    assert client.status == "closed"


def test_copies_and_pickles_keep_the_cluster(dask_client):
    engine = Dask(dask_client, timeout=7.0, wait=8.0)
    assert clone(SVC(engine=engine)).engine is engine
    again = pickle.loads(pickle.dumps(engine))
    assert (again.timeout, again.wait) == (7.0, 8.0) and again.workers.client is dask_client


def test_actors_go_with_their_engine(dask_client):
    def actors(dask_worker):
        return len(dask_worker.state.actors)

    engine = Dask(dask_client)
    before = sum(dask_client.run(actors).values())
    with engine.scatter(Numbers, PIECES), engine.scatter(Numbers, PIECES):
        assert sum(dask_client.run(actors).values()) == before + 2  # one per worker
    del engine
    until(lambda: sum(dask_client.run(actors).values()) == before)


def test_budgets_are_those_of_the_workers(dask_client):
    threads, memory = Dask(dask_client).share(2, 64, 1)
    [limit] = {known["memory_limit"] for known in Dask(dask_client).workers.live().values()}
    assert threads == 1 and memory == limit // 4
    assert Dask(dask_client).share(4, 64, 1) == (1, limit // 8)


# --- rows -----------------------------------------------------------------------------------


def as_array(partition):
    """What the tests keep of a partition, and its sum."""
    rows = partition if sparse.issparse(partition) else np.asarray(partition)
    if not np.isfinite(rows.sum()):
        raise ValueError("X contains NaN")
    return rows, float(rows.sum())


@pytest.fixture
def X(rng):
    return rng.normal(size=(30, 4)).astype(np.float32)


def collections(X, client):
    """The same rows in all ways that Dask has."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    lazy = dask_array.from_array(X, chunks=(8, 4))
    return {
        "array": lazy,
        "columns": dask_array.from_array(X, chunks=(8, 3)),
        "persisted": lazy.persist(),
        "unknown": lazy[lazy[:, 0] > -100.0],
        "empty": dask_array.concatenate([lazy[:0], lazy, lazy[:0]]),
        "frame": dask_frame.from_pandas(frame, npartitions=3),
        "futures": client.scatter([X[:11], X[11:]]),
        "delayed": [client.submit(np.asarray, X[:5]), *lazy[5:].to_delayed().ravel()],
        "sparse": client.scatter([sparse.csr_matrix(X[:11]), sparse.csr_matrix(X[11:])]),
    }


def test_rows_of_collections(dask_client, X):
    engine = Dask(dask_client)
    for name, collection in collections(X, dask_client).items():
        assert is_collection(collection), name
        rows = engine.rows(collection, as_array)
        assert rows.shape == (30, 4) and rows.dtype == np.float32, name
        assert rows.is_sparse == (name == "sparse")
        np.testing.assert_allclose(sum(rows.facts), X.sum(), rtol=1e-4)
        some = np.array([29, 0, 7, 7, 15])
        loaded = rows[some].load()
        values = loaded.toarray() if rows.is_sparse else loaded
        np.testing.assert_array_equal(values, X[some], err_msg=name)


def test_rows_go_from_worker_to_worker(dask_client, X, monkeypatch):
    engine = Dask(dask_client)
    parts = [
        dask_client.submit(np.asarray, X[a:b], workers=[worker], pure=False)
        for (a, b), worker in zip(((0, 15), (15, 30)), pids(dask_client), strict=True)
    ]
    rows = engine.rows(parts, as_array)

    def refuse(*_):
        raise AssertionError("rows came here")

    monkeypatch.setattr(RemoteRows, "load", refuse)
    monkeypatch.setattr(type(rows.pieces[0]), "take", refuse)
    chosen = [np.array([0, 16, 1, 2, 20]), np.array([29, 28, 3, 27]), np.arange(0)]
    pieces = [{"outers": [Outer(Inner(rows[part]))]} for part in chosen]
    with engine.scatter(Holder, pieces) as shards:
        for part, found in zip(chosen, shards.map("rows"), strict=True):
            np.testing.assert_array_equal(found, X[part])
        # each where most of its rows are
        assert shards.map("place")[:2] == list(pids(dask_client).values())


def test_rows_of_a_lost_worker_are_made_again(losing, X):
    losing.wait_for_workers(2, timeout=20)
    engine = Dask(losing, timeout=10.0)
    rows = engine.rows(dask_array.from_array(X, chunks=(8, 4)), as_array)
    pieces = [{"outers": [Outer(Inner(rows[part]))]} for part in (np.arange(20), np.arange(30))]
    with engine.scatter(Holder, pieces) as shards:
        victim = shards.call(0, "place")
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(ShardLost):
            for _ in range(100):
                shards.map("rows")
    with engine.scatter(Holder, pieces) as shards:
        assert victim not in shards.map("place")
        np.testing.assert_array_equal(shards.map("rows")[1], X)


def unrepeatable():
    return np.random.default_rng().normal(size=(20, 4))


def test_rows_that_are_made_again_must_be_the_same(losing):
    losing.wait_for_workers(2, timeout=20)
    engine = Dask(losing, timeout=10.0)
    rows = engine.rows([losing.submit(unrepeatable, pure=False)], as_array)
    pieces = [{"outers": [Outer(Inner(rows))]}]
    with engine.scatter(Holder, pieces) as shards:
        os.kill(shards.call(0, "place"), signal.SIGKILL)
        with pytest.raises(ShardLost):
            for _ in range(100):
                shards.map("rows")
    for ask in (lambda: engine.scatter(Holder, pieces), rows.load):
        with pytest.raises(ValueError, match="computed again, and are not the same"):
            ask()


def test_a_worker_lost_while_the_driver_fetches_rows(losing, X):
    losing.wait_for_workers(2, timeout=20)
    engine = Dask(losing, timeout=10.0)
    rows = engine.rows(dask_array.from_array(X, chunks=(8, 4)), as_array)
    engine.workers.open(engine.workers.staff())
    for pid in list(pids(losing).values())[:1]:
        os.kill(pid, signal.SIGKILL)
    np.testing.assert_array_equal(rows.load(), X)
    y = dask_array.arange(30, chunks=8)
    np.testing.assert_array_equal(engine.vector(y, [8, 8, 8, 6]), np.arange(30))


def test_a_scheduler_that_is_gone():
    with local_cluster() as client:
        engine = Dask(client)
        with engine.scatter(Numbers, PIECES) as shards:
            client.close()
            with pytest.raises(RuntimeError, match="the Dask client is closed"):
                engine.scatter(Numbers, PIECES)
            assert len(shards) == 5


def test_a_broken_connection_to_the_scheduler(dask_client, monkeypatch):
    workers, asked = Dask(dask_client).workers, []
    spawn = workers._spawn

    async def broken():
        raise OSError("in between")

    def failing(work):
        asked.append(work)
        if len(asked) > 2:
            return spawn(work)
        work.close()
        return spawn(broken())

    monkeypatch.setattr(workers, "_spawn", failing)
    assert workers.live()
    assert len(asked) == 3
    monkeypatch.setattr(workers, "timeout", 0.3)
    monkeypatch.setattr("margrave.engines.dask_workers._BUSY", 0.3)
    monkeypatch.setattr(workers, "_spawn", lambda work: (work.close(), spawn(broken()))[1])
    with pytest.raises(RuntimeError, match="the Dask scheduler does not answer"):
        workers.live()


def test_a_frozen_worker_that_has_rows(losing, X):
    engine = impatient(losing, 2.0)
    (near, _), (far, victim) = pids(losing).items()
    parts = [
        losing.submit(np.asarray, X[a:b], workers=[worker], pure=False)
        for (a, b), worker in (((0, 20), near), ((20, 30), far))
    ]
    rows = engine.rows(parts, as_array)
    pieces = [{"outers": [Outer(Inner(rows))]}]
    with engine.scatter(Holder, pieces) as shards:
        assert shards.call(0, "place") != victim
    os.kill(victim, signal.SIGSTOP)
    begin = time.monotonic()
    try:
        with pytest.raises(ShardLost, match="no sign of life") as caught:
            engine.scatter(Holder, pieces)
        assert caught.value.workers == [far]
        assert time.monotonic() - begin < 20.0
        with pytest.raises(RuntimeError, match="has some of the rows, and does not answer"):
            engine.scatter(Holder, pieces)
    finally:
        os.kill(victim, signal.SIGCONT)
    until(lambda: engine.n_workers == 2)
    with engine.scatter(Holder, pieces) as shards:
        np.testing.assert_array_equal(shards.call(0, "rows"), X)


def test_a_bad_partition_is_named(dask_client, X):
    X[17, 2] = np.nan
    with pytest.raises(ValueError, match="partition 2: X contains NaN"):
        Dask(dask_client).rows(dask_array.from_array(X, chunks=(8, 4)), as_array)
    parts = dask_client.scatter([X[:3], X[3:6, :2]])
    with pytest.raises(ValueError, match="partition 0 of X has 4 columns, partition 1 has 2"):
        Dask(dask_client).rows(parts, as_array)


def test_vectors(dask_client, X):
    pandas = pytest.importorskip("pandas")
    engine, y = Dask(dask_client), np.arange(30)
    series = dask_frame.from_pandas(pandas.Series(y), npartitions=3)
    for given, lengths in (
        (dask_array.from_array(y, chunks=8), [8, 8, 8, 6]),
        (series, [10, 10, 10]),
        (dask_client.scatter([y[:4], y[4:4].astype(float), y[4:]]), [4, 0, 26]),
        (y, [8, 22]),
        (y.tolist(), [30]),
    ):
        found = engine.vector(given, lengths)
        np.testing.assert_array_equal(found, y)
        assert found.dtype == y.dtype
    with pytest.raises(ValueError, match="partition 1 has 9 rows in X and 8 in y"):
        engine.vector(dask_array.from_array(y, chunks=8), [8, 9, 8, 5])
    with pytest.raises(ValueError, match="X has 2 partitions, y has 4"):
        engine.vector(dask_array.from_array(y, chunks=8), [8, 22])
    with pytest.raises(ValueError, match="X has 31 rows, sample_weight has 30"):
        engine.vector(y, [8, 23], "sample_weight")
