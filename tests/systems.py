"""What some tests need of the operating system."""

from __future__ import annotations

import os
import sys

import pytest

posix = pytest.mark.skipif(os.name != "posix", reason="staged by POSIX signals, limits or pipes")
linux = pytest.mark.skipif(sys.platform != "linux", reason="staged by what only Linux has")

# Modules that are about nothing else: lost processes by signals, measurements by /proc.
ELSEWHERE = [
    *(() if os.name == "posix" else ("dask", "distributed", "interrupt", "mpi")),
    *(() if sys.platform == "linux" else ("benchmarks", "papers")),
]
