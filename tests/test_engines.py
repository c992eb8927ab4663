"""Every engine in the list: the same answers, in the same order, to the last bit."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from scipy import sparse

from margrave import ODMClassifier
from margrave.engines import ENGINES, Serial, Threads, is_collection, resolve_engine
from margrave.engines.base import ShardLost, size_of
from margrave.rows import LocalPiece, RemoteRows
from margrave.solvers import VarianceReduced
from tests.data import load
from tests.shards import Awful, Holder, Inner, Numbers, Outer, Refusing, Slow
from tests.systems import posix


@pytest.fixture(params=ENGINES)
def engine(request, engine_of):
    return resolve_engine(engine_of(request.param), 3)


PIECES = [[float(k), 1.0] for k in range(5)]


def test_results_are_in_the_order_of_the_shards(engine):
    with engine.scatter(Numbers, PIECES) as shards:
        assert len(shards) == 5
        found = shards.map("scaled", 2.0, np.array([0.0, 1.0]))
        np.testing.assert_array_equal(found, 2.0 * np.array(PIECES) + [0.0, 1.0])


def test_each_shard_has_its_arguments(engine):
    with engine.scatter(Numbers, PIECES) as shards:
        found = shards.each("scaled", [(float(k), np.array([k, 0.0])) for k in range(5)])
        expected = [[k * k + k, float(k)] for k in range(5)]
        np.testing.assert_array_equal(found, expected)
        with pytest.raises(ValueError, match="5 shards need as many arguments, got 2"):
            shards.each("array", [(), ()])


def test_one_shard_is_called(engine):
    with engine.scatter(Numbers, PIECES) as shards:
        shards.call(3, "grow")
        np.testing.assert_array_equal(shards.map("array"), np.array(PIECES) + np.eye(5)[:, [3]])
        np.testing.assert_array_equal(shards.call(4, "array"), [4.0, 1.0])


def test_sums_of_arrays_numbers_and_tuples(engine):
    with engine.scatter(Numbers, PIECES) as shards:
        np.testing.assert_array_equal(shards.reduce("array"), [10.0, 5.0])
        squares, firsts, counts = shards.reduce("several", 2)
        np.testing.assert_array_equal(squares, [30.0, 5.0])
        assert firsts == 10.0 and isinstance(firsts, float)
        assert counts == 10 and isinstance(counts, int)
        np.testing.assert_array_equal(shards.map("array"), PIECES)  # no block's own has grown


def test_sums_repeat_to_the_last_bit(engine):
    pieces = [[0.1 * 10.0**k, 1.0 / (k + 1)] for k in range(-8, 9) if k != -1]
    expected = np.zeros(2)
    for piece in pieces:
        expected = expected + piece
    with engine.scatter(Numbers, pieces) as shards:
        for _ in range(20):
            np.testing.assert_array_equal(shards.reduce("array"), expected)


def test_pieces_by_name_and_alone(engine):
    with engine.scatter(Numbers, [{"values": [1.0], "unit": 3.0}, [2.0]]) as shards:
        np.testing.assert_array_equal(shards.map("scaled", 1.0, 0.0), [[3.0], [2.0]])


def test_fewer_shards_than_workers_and_several_at_a_time(engine):
    with engine.scatter(Numbers, PIECES[:1]) as one, engine.scatter(Numbers, PIECES[1:]) as four:
        one.call(0, "grow")
        np.testing.assert_array_equal(one.map("array"), [[1.0, 2.0]])
        np.testing.assert_array_equal(four.map("array"), PIECES[1:])
        one.close()
        np.testing.assert_array_equal(four.map("array"), PIECES[1:])


def test_blocks_anew_from_a_checkpoint(engine):
    with engine.scatter(Numbers, PIECES) as shards:
        shards.call(2, "grow")
        states = shards.checkpoint()
    with engine.scatter(Numbers, states) as shards:
        np.testing.assert_array_equal(shards.call(2, "array"), [3.0, 2.0])


def test_bytes_are_counted_alike(engine):
    with engine.scatter(Numbers, PIECES) as shards:
        assert shards.moved == 0
        shards.map("scaled", 2.0, np.zeros(2))
        # what is the same for all shards goes to each worker once
        first = min(5, engine.n_workers) * (8 + 16) + 5 * 16
        assert shards.moved == first
        shards.call(1, "several", 2)
        assert shards.moved == first + 8 + (16 + 8 + 8)
        shards.map("nothing")
        assert shards.moved == first + 40
        shards.each("scaled", [(2.0, np.zeros(2)) for _ in range(5)])
        assert shards.moved == first + 40 + 5 * (8 + 16) + 5 * 16


def test_large_arrays_arrive(engine):
    large = np.arange(300_000.0)
    with engine.scatter(Numbers, [large, large + 1.0]) as shards:
        shards.map("grow")
        first, second = shards.map("scaled", 1.0, large)
        np.testing.assert_array_equal(first, 2.0 * large + 1.0)
        np.testing.assert_array_equal(second, 2.0 * large + 2.0)
    np.testing.assert_array_equal(large, np.arange(300_000.0))


def test_what_a_block_gets_it_may_write_to(engine):
    with engine.scatter(Holder, [{"outers": [], "extra": np.zeros(n)} for n in (2, 50_000)]) as it:
        assert it.map("is_writable") == [True, True]


def test_errors_come_through(engine):
    with engine.scatter(Numbers, PIECES) as shards:
        with pytest.raises(LookupError, match="shard 2"):
            shards.map("refuse", 2.0)
        with pytest.raises(LookupError, match="shard 4"):
            shards.call(4, "refuse", 4.0)
        with pytest.raises(AttributeError, match="fly"):
            shards.reduce("fly")
        assert len(shards.map("array")) == 5  # still there


def test_errors_of_building_come_through(engine):
    with pytest.raises(ArithmeticError, match="no block of -1"):
        engine.scatter(Refusing, [1, 2, -1, -2])
    with engine.scatter(Refusing, [1, 2]) as shards:
        assert len(shards) == 2


def test_errors_that_cannot_travel_are_told(engine):
    with engine.scatter(Awful, [1, 2, 3]) as shards:
        with pytest.raises(Exception, match="this and that"):
            shards.map("fail")
        if engine.is_remote:
            with pytest.raises(TypeError, match="lock"):
                shards.map("lock")


@posix
def test_ctrl_c_comes_through_and_leaves_nobody_at_work(engine, tmp_path):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        pieces = [{"number": k, "folder": tmp_path, "pid": os.getpid()} for k in range(20)]
        with engine.scatter(Slow, pieces) as shards:
            begin = time.perf_counter()
            with pytest.raises(KeyboardInterrupt):
                shards.map("work", 2.0)
            assert list(tmp_path.iterdir()) == []
            assert time.perf_counter() - begin < 5.0  # all of them take longer
            assert len(shards.map("place")) == 20  # still there
    finally:
        signal.signal(signal.SIGINT, before)


def test_budgets_are_shared(engine):
    threads, memory = engine.share(1, 8, 1 << 20)
    assert threads >= 1 and memory > 0
    less = engine.share(2 * engine.n_workers, 8, 1 << 20)
    assert 1 <= less[0] <= threads and less[1] <= memory
    assert engine.share(100, 1, 1 << 20)[0] == 1  # never none


# --- rows that are elsewhere ----------------------------------------------------------------


def rows_in_pieces(kind, dtype=np.float32):
    X = np.arange(60.0, dtype=dtype).reshape(20, 3)
    X[::3, 1] = 0.0
    made = X if kind == "dense" else sparse.csr_matrix(X)
    pieces = [LocalPiece(made[a:b]) for a, b in ((0, 7), (7, 7), (7, 12), (12, 20))]
    return X, RemoteRows.of(pieces, ["a", "b", "c", "d"])


each_kind = pytest.mark.parametrize("kind", ["dense", "sparse"])


@each_kind
def test_remote_rows_are_chosen_and_loaded(kind):
    X, rows = rows_in_pieces(kind)
    assert rows.shape == (20, 3) and len(rows) == 20 and rows.dtype == np.float32
    assert rows.is_sparse == (kind == "sparse") and rows.facts == ["a", "b", "c", "d"]
    for chosen in (np.array([13, 0, 19, 8, 8]), slice(3, 15), X[:, 0] > 20.0, np.arange(0)):
        some = rows[chosen]
        loaded = some.load()
        assert sparse.issparse(loaded) == rows.is_sparse and loaded.dtype == np.float32
        values = loaded.toarray() if rows.is_sparse else loaded
        np.testing.assert_array_equal(values, X[chosen])
        assert some.shape == X[chosen].shape
    np.testing.assert_array_equal(rows[5:][np.array([0])].load()[0, 0], 15.0)
    assert [(n, p.tolist()) for n, p in rows[np.array([13, 0, 19, 8])].by_piece()] == [
        (0, [1]),
        (2, [3]),
        (3, [0, 2]),
    ]
    assert 0 < rows[:10].nbytes < rows.nbytes


def test_pieces_have_to_go_together():
    wide, narrow = LocalPiece(np.zeros((2, 3))), LocalPiece(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="rank 0 of X has 3 columns, rank 1 has 2"):
        RemoteRows.of([wide, narrow], noun="rank")
    with pytest.raises(ValueError, match="at least one partition"):
        RemoteRows.of([])
    empty = LocalPiece(np.zeros((0, 3)))
    single = LocalPiece(np.zeros((1, 3), dtype=np.float32))
    assert RemoteRows.of([empty, single]).dtype == np.float32  # the empty one tells nothing


@each_kind
def test_blocks_get_rows_in_the_place_of_remote_ones(engine, kind):
    X, rows = rows_in_pieces(kind)
    parts = [np.array([19, 3, 8]), np.arange(20), np.arange(0)]
    pieces = []
    for part in parts:
        inner = Inner(rows[part], others=[part, None])
        pieces.append({"outers": [Outer(inner), Outer(inner, "again")], "extra": {"by": (part,)}})
    with engine.scatter(Holder, pieces) as shards:
        for part, found in zip(parts, shards.map("rows"), strict=True):
            np.testing.assert_array_equal(found, X[part])
        name = "ndarray" if kind == "dense" else "csr_matrix"
        assert shards.map("kinds") == [[name, name]] * 3
        assert shards.map("is_shared") == [True] * 3
    assert all(isinstance(piece["outers"][0].inner.X, RemoteRows) for piece in pieces)


def test_local_engines_copy_no_array():
    large, (_, rows) = np.zeros(10), rows_in_pieces("dense")
    for extra in ([large], [large, rows]):
        with Serial().scatter(Holder, [{"outers": [], "extra": extra}]) as shards:
            assert shards.call(0, "first_extra") is large


# --- single engines -------------------------------------------------------------------------


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


def test_engines_survive_a_pickle_and_a_copy(engine):
    for again in (pickle.loads(pickle.dumps(engine)), copy.copy(engine), copy.deepcopy(engine)):
        assert type(again) is type(engine) and again.n_workers == engine.n_workers
        with again.scatter(Numbers, PIECES) as shards:
            np.testing.assert_array_equal(shards.reduce("array"), [10.0, 5.0])


def test_local_budgets():
    assert Serial().share(1, 4, 100) == (4, 100)
    assert Threads(4).share(3, 4, 100) == (1, 33)
    assert not Serial().is_remote and not Threads(2).is_remote


def test_sizes():
    csr = sparse.csr_matrix(np.eye(3))
    assert size_of(csr) == csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes
    assert size_of(Outer(Inner(np.zeros(2), [np.float32(1.0), True]), "ab")) == 16 + 8 + 8 + 2
    assert size_of({"a": None, "b": (1, 2.0)}) == 16


def test_a_loss_survives_a_pickle():
    error = pickle.loads(pickle.dumps(ShardLost(["a", "b"], "gone")))
    assert error.workers == ["a", "b"] and str(error) == "lost a, b: gone"


def test_names_and_objects():
    assert resolve_engine(None, 3).n_workers == 3 and isinstance(resolve_engine(None, 3), Threads)
    assert isinstance(resolve_engine("serial", 3), Serial) and Serial().n_workers == 1
    mine = Threads(7)
    assert resolve_engine(mine, 2) is mine
    with pytest.raises(ValueError, match=r"unknown engine 'cloud'.*serial, threads, dask, mpi"):
        resolve_engine("cloud", 2)
    with pytest.raises(ValueError, match=r"'serial', 'threads'.*scatter, got 3"):
        resolve_engine(3, 2)
    with pytest.raises(ValueError, match="n_workers=0"):
        Threads(0)


def test_collections_are_told_from_other_things():
    for other in (np.zeros((2, 2)), [[1.0]], [], sparse.csr_matrix((2, 2)), "abc", None, 3):
        assert not is_collection(other)


def test_clusters_are_imported_when_asked_for():
    code = (
        "import sys, margrave; from margrave.engines import is_collection; is_collection([1]);"
        "print([name for name in ('dask', 'distributed', 'mpi4py') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "[]", found.stderr


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
