"""
Recovering from a lost worker
=============================

Two local Dask workers share the rows of one fit, and one of them is killed in the middle. Its rows
are sent to other workers, the fit goes back to the last checkpoint, and the resulting model is
identical to the last bit to that of an undisturbed fit.
"""

import os
import signal
import time

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from margrave import SVC
from margrave.engines import Dask


def spirals(n):
    """Two noisy spirals in ten features, eight of which are pure noise."""
    rng = np.random.default_rng(0)
    y, along = rng.integers(0, 2, n), np.sqrt(rng.random(n))
    angle = 3.5 * np.pi * along + np.pi * y
    X = 4.0 * along[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    X += 0.3 * rng.standard_normal((n, 2))
    return np.hstack([X, 0.2 * rng.standard_normal((n, 8))]).astype(np.float32), y


def train(client, X, y, kill_at=None):
    """Fit on the workers; kill one of them in round `kill_at`."""
    moments = []

    def watch(record):
        moments.append((time.perf_counter() - begin, record["gap"]))
        if len(moments) == kill_at:
            address, process = next(iter(client.run(os.getpid).items()))
            print(f"round {kill_at}: killing the worker {address.split(':')[-1]}")
            os.kill(process, getattr(signal, "SIGKILL", signal.SIGTERM))

    begin = time.perf_counter()
    # a worker that is killed is missed at once; a busy one has two minutes for a sign of life
    engine = Dask(client, timeout=120.0)
    model = SVC(C=8.0, gamma=0.5, solver="pbm", engine=engine, callbacks=watch).fit(X, y)
    return model, moments


def main():
    X, y = spirals(8_000)
    # separate local processes; Dask's nanny restarts one that died
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        train(client, X[:500], y[:500])  # warm-up: the workers import what they need
        calm, quiet = train(client, X, y)
        disturbed, loud = train(client, X, y, kill_at=len(quiet) // 2)
    same = np.array_equal(calm.dual_coef_, disturbed.dual_coef_)
    print(f"gap {calm.gap_:.1e} and {disturbed.gap_:.1e}; the same model to the last bit: {same}")

    _, ax = plt.subplots(figsize=(7.0, 4.0), layout="constrained")
    for moments, name in ((quiet, "undisturbed"), (loud, "a worker killed")):
        ax.semilogy(*zip(*moments, strict=True), ".-", label=name)
    ax.set(xlabel="seconds", ylabel="relative duality gap")
    ax.legend(frameon=False)
    plt.show()


if __name__ == "__main__":  # workers import this file
    main()
