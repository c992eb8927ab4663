"""Shared fixtures."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread():
    """The oracle's small factorisations are faster alone, and must not fight for the cores."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(20260501)


@pytest.fixture(scope="session")
def dask_client():
    """Two workers of one thread each, processes of their own."""
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
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
