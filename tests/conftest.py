"""Shared fixtures."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from tests.clusters import local_cluster
from tests.systems import ELSEWHERE

# Tests run side by side, with one thread each unless they ask for more (Dask leaves this here too).
os.environ["OMP_NUM_THREADS"] = "1"
# MPICH, once started, listens to every computer until the process ends, unless it is told not to.
os.environ["UCX_NET_DEVICES"] = "lo"

collect_ignore = [f"test_{name}.py" for name in ELSEWHERE]


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread():
    """The oracle's small factorisations are faster alone, and must not fight for the cores."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@pytest.fixture(scope="session", autouse=True)
def ctrl_c():
    """Ctrl-C works in the tests and in what they start, even where pytest itself ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def rng():
    return np.random.default_rng(20260501)


@pytest.fixture(scope="session")
def dask_client():
    """Two workers of one thread each, processes of their own."""
    with local_cluster(set_as_default=True) as client:
        yield client


@pytest.fixture
def engine_of(request):
    """An engine by name: what a user would pass."""

    def find(name):
        if name == "dask":
            return request.getfixturevalue("dask_client")
        if name == "mpi":
            try:
                import mpi4py.MPI  # noqa: F401
            except Exception as error:  # no package, or no MPI library
                pytest.skip(f"needs the extra mpi: {error}")
        return name

    return find


@pytest.fixture
def closed_folder():
    """A folder that nobody may write, with `data` and a file `secret` that nobody may read.

    Root may do everything, and is somebody else as long as the test lasts.
    """
    if os.name != "posix":
        pytest.skip("needs POSIX permissions")
    folder = Path(tempfile.mkdtemp(prefix="margrave_closed"))
    for name, mode in (("data", 0o444), ("secret", 0o000)):
        (folder / name).write_text("1 1:1\n-1 1:2\n")
        (folder / name).chmod(mode)
    folder.chmod(0o555)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        os.seteuid(me)
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a command in this process: its exit code and what it printed."""
    from margrave import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def runner(*words, command=None):
        monkeypatch.setattr(sys, "argv", ["margrave", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            (command or cli.main)()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        if end.value.code == 2:
            assert len(err.splitlines()) == 1, err
        return end.value.code, out, err

    return runner
