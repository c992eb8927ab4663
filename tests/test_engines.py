"""Every engine in the list: the same answers, in the same order, to the last bit."""

import copy
import os
import pickle
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
from margrave.engines.tree import Traffic
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


def pairwise(values):
    """The first half of a sum is the largest power of two, in all of its parts."""
    if len(values) == 1:
        return values[0]
    half = 1 << ((len(values) - 1).bit_length() - 1)
    return pairwise(values[:half]) + pairwise(values[half:])


COUNTS = [1, 2, 3, 5, 8, 17]


def cancelling(count):
    """Pieces whose sum depends on the order: most of it cancels."""
    rng = np.random.default_rng(count)
    large = rng.normal(size=(count, 3)) * 10.0 ** rng.integers(0, 17, size=(count, 3))
    return large - np.roll(large, 1, axis=0) * (1.0 + 1e-15)


@pytest.mark.parametrize("count", COUNTS)
def test_sums_repeat_to_the_last_bit(engine, count):
    pieces = cancelling(count)
    expected = pairwise(pieces)
    if count > 3:
        assert np.any(expected != sum(pieces))  # the order matters
    with engine.scatter(Numbers, pieces) as shards:
        for _ in range(5):
            np.testing.assert_array_equal(shards.reduce("array"), expected)
        squares, first, length = shards.reduce("several", 2)
        np.testing.assert_array_equal(squares, pairwise(pieces**2))
        assert first == expected[0] and length == 3 * count


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


class Links:
    """A cluster with a worker per shard, message by message; -1 is the driver."""

    def __init__(self, count):
        self.count, self.messages = count, []

    def path(self, number):
        """From a worker to the driver."""
        found = [number]
        while found[-1] > 0:
            found.append(found[-1] & (found[-1] - 1))
        return [*found, -1]

    def down(self, size):
        self.messages += [(self.path(k)[1], k, size) for k in range(self.count)]

    def up(self, sizes):
        for k in range(self.count):
            below = [other for other in range(self.count) if k in self.path(other)]
            self.messages.append((k, self.path(k)[1], sum(sizes[other] for other in below)))

    def traffic(self):
        def at(node, end):
            return sum(size for *ends, size in self.messages if ends[end] == node)

        workers = tuple(at(k, 0) + at(k, 1) for k in range(self.count))
        total = sum(size for *_, size in self.messages)
        return Traffic(at(-1, 0), at(-1, 1), workers, total, len(self.messages))


@pytest.mark.parametrize("count", COUNTS)
def test_traffic_is_counted_alike(engine, count):
    pieces, links = [np.arange(1.0, 3.0 + k) for k in range(count)], Links(count)
    with engine.scatter(Numbers, pieces) as shards:
        assert shards.moved == 0
        assert shards.traffic == links.traffic()
        shards.map("scaled", 2.0, np.float64(3.0))
        links.down(16)
        links.up([8 * len(piece) for piece in pieces])
        assert shards.traffic == links.traffic()
        shards.reduce("one", np.zeros(7))
        links.down(56)
        links.messages += [(k, links.path(k)[1], 8) for k in range(count)]
        assert shards.traffic == links.traffic()
        shards.each("scaled", [(2.0, np.zeros(len(piece))) for piece in pieces])
        shards.call(count - 1, "several", 2)
        for k, piece in enumerate(pieces):
            links.messages += [(-1, k, 8 + 8 * len(piece)), (k, -1, 8 * len(piece))]
        links.messages += [(-1, count - 1, 8), (count - 1, -1, 8 * (count + 1) + 16)]
        assert shards.traffic == links.traffic()
        assert shards.moved == shards.traffic.total
        shards.map("nothing")
        assert shards.traffic.total == links.traffic().total


def test_what_is_exchanged_with_three_workers(engine):
    """Every argument once for each worker, every result once: nothing that is forwarded."""
    with engine.scatter(Numbers, [np.ones(1), np.ones(2), np.ones(4)]) as shards:
        assert shards.exchanged == 0
        shards.map("scaled", 2.0, 3.0)  # two numbers to each; one, two and four back
        assert shards.exchanged == 8 * (3 * 2 + 7)
        shards.reduce("one", np.zeros(5))  # five to each, one back
        assert shards.exchanged == 8 * (13 + 3 * 5 + 3)
        shards.each("scaled", [(2.0, np.zeros(k)) for k in (1, 2, 4)])
        assert shards.exchanged == 8 * (31 + 3 + 7 + 7)
        shards.call(1, "array")
        assert shards.exchanged == 8 * (48 + 2)


@pytest.mark.parametrize("count", [1, 2, 5, 64, 1000])
def test_traffic_of_a_broadcast_and_a_sum(count):
    size = 8 * 1000
    with Serial().scatter(Numbers, np.ones((count, 1000))) as shards:
        shards.map("none_of", np.zeros(1000))
        down = shards.traffic
        assert down.total == count * size and down.messages == 2 * count
        assert down.driver_sent == size and down.driver_received == 0
        assert down.worker_most <= (1 + np.ceil(np.log2(count))) * size
        shards.reduce("array")
        up = shards.traffic - down
        assert up.total == count * size and up.driver_received == size and up.driver_sent == 0
        assert up.worker_most <= (1 + np.ceil(np.log2(count))) * size


def test_items_are_shared(engine):
    items = [(np.arange(1.0 + k),) for k in range(7)]
    with engine.scatter(Numbers, PIECES[:3]) as shards:
        found = shards.deal("doubled", items, [len(item) for (item,) in items])
        for (item,), twice in zip(items, found, strict=True):
            np.testing.assert_array_equal(twice, 2.0 * item)
        # 10, 9 and 9 entries: the largest item first, to the least busy one
        assert shards.traffic == Traffic(224, 224, (160, 144, 144), 448, 6)


def test_checkpoints_are_not_forwarded(engine):
    with engine.scatter(Numbers, PIECES) as shards:
        shards.checkpoint()
        assert shards.traffic.driver_received == shards.traffic.total == 5 * 24


@pytest.mark.parametrize("count", [3, 5])
def test_large_arguments_and_sums_arrive(engine, count):
    large = np.arange(200_000.0)
    with engine.scatter(Numbers, [large * 0.1**k for k in range(count)]) as shards:
        expected = pairwise([3.0 * (large * 0.1**k) + large for k in range(count)])
        np.testing.assert_array_equal(shards.reduce("scaled", 3.0, large), expected)


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


def test_errors_that_cannot_be_pickled_are_raised(engine):
    with engine.scatter(Awful, [1, 2, 3]) as shards:
        with pytest.raises(Exception, match="this and that"):
            shards.map("fail")
        if engine.is_remote:
            with pytest.raises(TypeError, match="lock"):
                shards.map("lock")


@posix
def test_ctrl_c_comes_through_and_leaves_nobody_at_work(engine, tmp_path):
    pieces = [{"number": k, "folder": tmp_path, "pid": os.getpid()} for k in range(20)]
    with engine.scatter(Slow, pieces) as shards:
        begin = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            shards.map("work", 2.0)
        assert list(tmp_path.iterdir()) == []
        assert time.perf_counter() - begin < 5.0  # all of them take longer
        assert len(shards.map("place")) == 20  # still there


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
