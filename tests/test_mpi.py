"""MPI: several ranks that run the same program."""

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from margrave.engines import resolve_engine

try:
    from margrave.engines import MPI
except ImportError as error:
    pytest.skip(str(error), allow_module_level=True)

MPIEXEC = Path(sys.executable).with_name("mpiexec")
needs_mpiexec = pytest.mark.skipif(not MPIEXEC.exists(), reason="needs the package mpich")


def run(ranks, folder, *names):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [MPIEXEC, "-n", ranks, sys.executable, "-m", "tests.mpi_programs", folder, *names]
    done = subprocess.run(
        list(map(str, command)),
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stdout.count("fine") == ranks, done.stdout + done.stderr


@needs_mpiexec
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_programs(ranks, tmp_path):
    run(ranks, tmp_path, "calls", "trees", "errors", "local", "cancel", "latency")


@needs_mpiexec
def test_more_ranks_than_cores(tmp_path):
    run(4, tmp_path, "calls", "trees", "cancel")


@needs_mpiexec
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_frozen_rank(ranks, tmp_path):
    run(ranks, tmp_path, "frozen")


@needs_mpiexec
def test_fits_while_a_rank_freezes(tmp_path):
    run(3, tmp_path, "survive")


def test_whose_rows_count():
    assert MPI(rows="local").rows_are == "local" and MPI().rows_are == "root"
    with pytest.raises(ValueError, match="'root' or 'local', got 'leaf'"):
        MPI(rows="leaf")


def test_one_rank_needs_no_others():
    engine = resolve_engine("mpi", 1)
    assert isinstance(engine, MPI) and engine.n_workers == 1
    assert engine.everywhere(lambda: engine.everywhere(lambda: 3)) == 3
    with pytest.raises(ZeroDivisionError):
        engine.everywhere(lambda: 1 // 0)
    again = pickle.loads(pickle.dumps(MPI(rows="local", timeout=5.0)))
    assert again.rows_are == "local" and again.timeout == 5.0 and again.comm == engine.comm


def test_a_single_message_leaves_the_others_to_the_next_engine():
    from margrave.engines.mpi_post import Post

    comm = MPI().comm
    sender, first, second = Post(comm), Post(comm), Post(comm)
    messages = ["small", np.arange(100_000), "after it"]
    for message in messages:
        sender.send(comm.Get_rank(), message)
    found = []
    for post in (first, first, second):
        end = time.monotonic() + 10.0
        while not (came := post.receive(single=True)):
            assert time.monotonic() < end
        found += came
    assert [message if isinstance(message, str) else message.sum() for _, message in found] == [
        "small",
        4999950000,
        "after it",
    ]
    sender.close(timeout=10.0)
    assert not sender.is_busy
