"""Dask clusters on this machine."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

IMPORTED = ["distributed", "dask.array", "dask.dataframe", "margrave.engines.dask"]


@contextmanager
def local_cluster(n_workers=2, set_as_default=False, **options):
    """A client of a cluster of so many processes of one thread each.

    Workers are forked from one process that has imported what they need. That takes a twentieth
    of the time of new interpreters, also when nannies restart them.
    """
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    import dask
    from distributed.utils import get_mp_context

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(IMPORTED)
        with (
            distributed.LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                **options,
            ) as made,
            distributed.Client(made, set_as_default=set_as_default) as client,
        ):
            yield client
