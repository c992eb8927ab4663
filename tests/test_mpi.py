"""MPI: several ranks that run the same program."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from margrave.engines import resolve_engine

try:
    from margrave.engines import MPI
except ImportError as error:
    pytest.skip(str(error), allow_module_level=True)

MPIEXEC = Path(sys.executable).with_name("mpiexec")
needs_mpiexec = pytest.mark.skipif(not MPIEXEC.exists(), reason="needs the package mpich")


def run(name, ranks, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [MPIEXEC, "-n", str(ranks), sys.executable, "-m", "tests.mpi_programs", name, folder]
    done = subprocess.run(
        list(map(str, command)),
        cwd=Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stdout.count("fine") == ranks, done.stdout + done.stderr
    return done.stdout


@needs_mpiexec
@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("calls", 1),
        ("calls", 2),
        ("calls", 4),
        ("errors", 1),
        ("errors", 3),
        ("local", 1),
        ("local", 3),
        ("frozen", 2),
        ("cancel", 1),
        ("cancel", 3),
    ],
)
def test_programs(name, ranks, tmp_path):
    run(name, ranks, tmp_path)


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
