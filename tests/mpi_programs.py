"""Programs for several MPI ranks: `mpiexec -n 3 python -m tests.mpi_programs folder name ...`.

All ranks end with "fine", or with an error.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse

from margrave.engines import MPI, Serial, ShardLost
from margrave.engines.tree import add_up
from tests.shards import Holder, Inner, Numbers, Outer, Slow

PIECES = [[0.1 * 10.0**k, 1.0 / (k + 9)] for k in range(-8, 9)]


class Mine(Exception):
    """An error of the script that all ranks run."""


def raises(kind, match, function):
    try:
        function()
    except kind as error:
        assert match in str(error), str(error)
        return error
    raise AssertionError(f"no {kind.__name__}")


def calls(engine, folder):
    """All kinds of calls, equal to one process bit for bit."""

    def lead(engine=engine):
        found = []
        with engine.scatter(Numbers, PIECES) as shards:
            found.append(shards.map("scaled", 3.0, np.array([0.1, 0.2])))
            found.append(shards.each("scaled", [(1.0 / (k + 1), 0.3) for k in range(len(PIECES))]))
            found.append([shards.reduce("several", 3)[0], shards.call(1, "array")])
            found.append(shards.reduce("array"))
        with engine.scatter(Numbers, [np.arange(400_000.0)] * 2) as shards:
            found.append(shards.reduce("scaled", 2.0, np.ones(400_000)))
        return found

    expected, found = lead(Serial()), engine.everywhere(lead)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    sizes = engine.everywhere(lambda: (engine.n_workers, engine.everywhere(lambda: 5)))
    assert sizes == (engine.comm.Get_size(), 5)
    places = engine.everywhere(lambda: engine.scatter(Numbers, PIECES).map("place"))
    assert len(set(places)) == engine.comm.Get_size()
    assert engine.everywhere(lambda: engine.share(99, 8, 800)) == (
        max(1, 8 // engine.comm.Get_size()),
        800 // engine.comm.Get_size(),
    )


def trees(engine, folder):
    """Sums and traffic of more and fewer shards than ranks, small and large."""

    def lead(engine):
        found = []
        for count in (1, 2, 3, 5, 8):
            with engine.scatter(Numbers, PIECES[:count]) as shards:
                found += [shards.reduce("array"), shards.reduce("several", 3)[0]]
                found += [np.array(shards.traffic.workers), shards.moved]
        with engine.scatter(Numbers, [np.arange(200_000.0) + k for k in range(5)]) as shards:
            found += [shards.reduce("scaled", 0.1, np.arange(200_000.0))]
        return found

    expected = lead(Serial())
    for each in (engine, engine, MPI(), MPI()):  # one at once after the other
        found = each.everywhere(partial(lead, each))
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(one, other)


def errors(engine, folder):
    """Errors at shards and in the lead are everybody's."""

    def shard():
        with engine.scatter(Numbers, [[float(k)] for k in range(7)]) as shards:
            try:
                shards.map("refuse", 3.0)
            finally:
                assert len(shards.map("array")) == 7

    def lead():
        raise Mine("in the lead")

    def interrupted():
        raise KeyboardInterrupt

    raises(LookupError, "shard 3", lambda: engine.everywhere(shard))
    raises(Mine, "in the lead", lambda: engine.everywhere(lead))
    raises(KeyboardInterrupt, "", lambda: engine.everywhere(interrupted))
    raises(TypeError, "lock", lambda: engine.everywhere(threading.Lock))
    assert engine.everywhere(lambda: [1, 2]) == [1, 2]
    if engine.comm.Get_size() > 1 and engine.comm.Get_rank() == 0:
        raises(RuntimeError, "everywhere", lambda: engine.scatter(Numbers, PIECES))


def prepare(X):
    """What the tests keep of a rank's rows, and its sum."""
    rows = X if sparse.issparse(X) else np.asarray(X)
    if not np.isfinite(rows.sum()):
        raise ValueError("X contains NaN")
    return rows, float(rows.sum())


def local(engine, folder):
    """Every rank has rows of its own."""
    engine = MPI(rows="local")
    rank, size = engine.comm.Get_rank(), engine.comm.Get_size()
    whole = np.arange(4.0 * 5 * size).reshape(5 * size, 4)
    target = np.arange(5 * size)
    for kind in (np.asarray, sparse.csr_matrix):
        X, y = kind(whole[5 * rank : 5 * rank + 5]), target[5 * rank : 5 * rank + 5]

        def lead(X=X, y=y):
            rows = engine.rows(X, prepare)
            assert rows.shape == whole.shape and sum(rows.facts) == whole.sum()
            np.testing.assert_array_equal(engine.vector(y, [5] * size), target)
            chosen = [np.arange(5 * size)[::-1], np.array([5 * size - 1, 0, 5 * size - 2])]
            pieces = [{"outers": [Outer(Inner(rows[part]))]} for part in chosen]
            with engine.scatter(Holder, pieces) as shards:
                for part, found in zip(chosen, shards.map("rows"), strict=True):
                    np.testing.assert_array_equal(found, whole[part])
                return shards.map("place")

        pids = engine.comm.allgather(os.getpid())
        places = engine.everywhere(lead, X, {"y": y})
        assert places[1] == pids[-1]  # where most of the rows are

    X = np.zeros((3, 4 if rank < size - 1 or size == 1 else 2))
    if size > 1:
        raises(
            ValueError,
            f"rank 0 of X has 4 columns, rank {size - 1} has 2",
            lambda: engine.everywhere(lambda: engine.rows(X, prepare), X),
        )
    y = np.zeros(3 if rank < size - 1 else 2)
    raises(
        ValueError,
        f"rank {size - 1} has 3 rows in X and 2 in y",
        lambda: engine.everywhere(lambda: engine.vector(y, [3] * size), X, {"y": y}),
    )
    bad = np.full((2, 2), np.nan if rank == size - 1 else 1.0)
    raises(
        ValueError,
        f"rank {size - 1}: X contains NaN",
        lambda: engine.everywhere(lambda: engine.rows(bad, prepare), bad),
    )
    raises(
        ValueError,
        "all ranks must give",
        lambda: MPI().everywhere(lambda: MPI().rows(X, prepare), X),
    )


def frozen(engine, folder):
    """A rank that freezes is noticed, and may come back; of four, it passes on to another one."""
    engine = MPI(timeout=2.0)
    size = engine.comm.Get_size()
    victim = 2 if size > 3 else size - 1
    pids = engine.comm.allgather(os.getpid())
    pieces = [{"number": k, "folder": folder} for k in range(size)]

    def lead():
        with engine.scatter(Slow, pieces) as shards:
            assert shards.map("work", 3.0) == list(range(size))  # busy is not frozen
            for one in {0, size - 1}:
                assert shards.map("work_alone", one, 3.0) == list(range(size))  # nor is idle
        lose("map")
        lose("reduce")
        return 7

    def lose(how):
        with engine.scatter(Slow, pieces) as shards:
            threading.Timer(0.5, os.kill, (pids[victim], signal.SIGSTOP)).start()
            begin = time.monotonic()
            error = raises(ShardLost, f"rank {victim}", lambda: getattr(shards, how)("work", 60.0))
            assert error.workers == [f"rank {victim}"] and time.monotonic() - begin < 15.0
            assert {path.name for path in Path(folder).iterdir()} <= {str(victim)}
            raises(ShardLost, "it was lost before", lambda: shards.map("place"))
        assert engine.n_workers == size - 1
        with engine.scatter(Numbers, PIECES) as shards:
            assert pids[victim] not in shards.map("place")
            np.testing.assert_array_equal(shards.reduce("array"), add_up(PIECES))
            os.kill(pids[victim], signal.SIGCONT)
            while engine.n_workers < size or list(Path(folder).iterdir()):
                shards.map("nothing")

    assert engine.everywhere(lead) == 7


def survive(engine, folder):
    """Whole fits while a rank freezes: the same model, unless it has taken its rows along."""
    from margrave import SVC
    from margrave.solvers import BlockMinimization

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=300) > 0
    engine = MPI(timeout=2.0)
    rank, size = engine.comm.Get_rank(), engine.comm.Get_size()
    pids = engine.comm.allgather(os.getpid())
    struck = []

    def freeze(record):
        if record["round"] >= 2 and not struck:
            struck.append(True)
            os.kill(pids[-1], signal.SIGSTOP)
            threading.Timer(6.0, os.kill, (pids[-1], signal.SIGCONT)).start()

    given = {"C": 10.0, "gamma": 0.5, "tol": 1e-5, "solver": BlockMinimization(blocks=3)}
    expected = SVC(engine="serial", **given).fit(X, y)
    model = SVC(engine=engine, callbacks=freeze if rank == 0 else None, **given).fit(X, y)
    np.testing.assert_array_equal(model.dual_coef_, expected.dual_coef_)
    engine.comm.Barrier()
    struck.clear()
    local = MPI(rows="local", timeout=2.0)
    model.set_params(engine=local, solver=BlockMinimization())
    own = np.array_split(np.arange(300), size)[rank]
    raises(RuntimeError, f"rank {size - 1} was lost", lambda: model.fit(X[own], y[own]))


def cancel(engine, folder):
    """Ctrl-C at rank 0, or at another one, ends the work of all."""
    pids = engine.comm.allgather(os.getpid())
    last = len(pids) - 1

    for victim, how in itertools.product({0, last}, ("map", "reduce")):
        pieces = [{"number": k, "folder": folder, "pid": pids[victim]} for k in range(6)]

        def lead(pieces=pieces, how=how):
            with engine.scatter(Slow, pieces) as shards:
                begin = time.monotonic()
                raises(KeyboardInterrupt, "", lambda: getattr(shards, how)("work", 60.0))
                assert time.monotonic() - begin < 10.0
                assert list(Path(folder).iterdir()) == []
                return shards.map("is_cancelled")

        assert True in engine.everywhere(lead)


def latency(engine, folder):
    """How long a trivial call takes, back to back."""

    def lead():
        with engine.scatter(Numbers, PIECES[: engine.n_workers]) as shards:
            shards.map("nothing")
            begin = time.perf_counter()
            for _ in range(200):
                shards.map("nothing")
            return 1e3 * (time.perf_counter() - begin) / 200

    milliseconds = engine.everywhere(lead)
    assert milliseconds < 100.0
    if engine.comm.Get_rank() == 0:
        sys.stdout.write(f"{milliseconds:.2f} ms per map\n")


if __name__ == "__main__":
    for name in sys.argv[2:]:
        globals()[name](MPI(), sys.argv[1])
    os.write(1, b"fine\n")  # in one piece, whatever the other ranks write
