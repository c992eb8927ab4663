"""The programs of the card under a checker of memory and races: `make sanitize-gpu`.

With a card compute-sanitizer runs small fits of every loss, kernel and strategy; without one the
emulated card does, compiled with checks of undefined behaviour. Exit code 1: something is wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
import types
import warnings

import numpy as np

from margrave import SVC, SVR, KernelLogisticRegression, NuSVC, ODMClassifier, OneClassSVM, cuda
from margrave.solvers import DivideAndConquer
from tests import emulated
from tests.cases import INTERCEPTS, KERNELS

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
CHECKED = "-O1 -g -fsanitize=undefined,bounds -fno-sanitize-recover=all"


def main(arguments: list[str]) -> int:
    """Check with each tool, or run the fits that are checked."""
    if arguments == ["fits"]:
        if cuda.cards() == 0:
            with emulated.card():
                fits()
        else:
            _one_allocation_each()
            fits()
        return 0
    fit = [sys.executable, "-m", "tests.sanitize", "fits"]
    if cuda.cards() == 0:
        return subprocess.run(fit, env={**os.environ, "MARGRAVE_EMULATED": CHECKED}).returncode
    found = 0
    for tool in arguments or TOOLS:
        print(tool, flush=True)
        checker = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"]
        found |= subprocess.run([*checker, *fit]).returncode
    return int(found != 0)


def fits() -> None:
    """Small fits of all kinds, in both precisions."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(70, 9)), rng.integers(0, 2, 70)
    target = np.sin(X[:, 0])
    tries = [
        (SVR, target, {"loss": loss, "intercept": intercept})
        for loss in sorted(SVR._parameter_constraints["loss"][0].options)
        for intercept in INTERCEPTS
    ]
    tries += [
        (make, y, {"intercept": intercept})
        for make in (SVC, KernelLogisticRegression, ODMClassifier)
        for intercept in INTERCEPTS
    ]
    tries += [(SVC, y, {"kernel": kernel, **more}) for kernel, more in KERNELS]
    tries += [(SVC, y, {"solver": DivideAndConquer(levels=1)})]
    tries += [(SVC, y, {"loss": "squared_hinge"}), (NuSVC, y, {"nu": 0.3}), (OneClassSVM, y, {})]
    for make, targets, parameters in tries:
        for tol in (1e-2, 1e-7):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of indefinite kernels
                model = make(engine="cuda", tol=tol, max_iter=30, **parameters).fit(X, targets)
            scores = model.decision_function if hasattr(model, "decision_function") else None
            found = (scores or model.predict)(X)
            print(make.__name__, parameters, tol, float(np.abs(found).sum()), flush=True)


def _one_allocation_each() -> None:
    """Give each array memory of its own: from a pool, arrays would hide what is beside them."""
    import cupy

    def allocate(size: int) -> object:
        return cupy.cuda.MemoryPointer(cupy.cuda.Memory(size), 0)

    cupy.cuda.MemoryPool = lambda: types.SimpleNamespace(
        set_limit=lambda size: None, malloc=allocate, free_all_blocks=lambda: None
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
