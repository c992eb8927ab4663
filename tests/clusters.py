"""Dask clusters on this machine."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@contextmanager
def local_cluster(n_workers=2, set_as_default=False, **options):
    """A client of a cluster of so many processes of one thread each.

    Dask tells workers by the environment of this process to use one thread, and leaves it there:
    later tests would have one thread too. So the workers are told in their own.
    """
    dask = pytest.importorskip("dask", reason="needs the extra dask")
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    with (
        dask.config.set({f"distributed.nanny.pre-spawn-environ.{name}": None for name in _THREADS}),
        distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            env=dict.fromkeys(_THREADS, "1"),
            **options,
        ) as made,
        distributed.Client(made, set_as_default=set_as_default) as client,
    ):
        yield client
