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
