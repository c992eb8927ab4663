"""Extras: packages that only some functions need."""

from __future__ import annotations

import shlex
import sys


def install(extra: str) -> str:
    """The command that installs an extra for the Python that runs this, also from a checkout.

    >>> install("plots").removeprefix(shlex.quote(sys.executable))
    ' -m pip install "margrave[plots]"'
    """
    return f'{shlex.quote(sys.executable)} -m pip install "margrave[{extra}]"'
