"""Shared set-up: one BLAS thread for the oracle, warnings of convergence are errors by default."""

from __future__ import annotations

import os

# set before numpy is imported anywhere: the oracle's small factorisations are faster on one thread,
# and the library under test must not compete with it for the cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(20260501)
