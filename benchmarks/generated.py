"""Rows of any number whose best possible error is known, written to a file block by block.

A row has 28 features, as many as those of HIGGS. Four directions z carry the class, uniform in a
cube; the other 24 are noise, normal and narrow. A fixed rotation mixes all of them, so that no
feature alone shows anything:

    x = Q (z, u),    z ~ U[-1, 1]^4,    u ~ N(0, 0.02^2 I),    Q'Q = I
    g(z) = cos(w_1'z) - cos(w_2'z) + cos(w_3'z) - cos(w_4'z)         w_j of length 2
    y = sign(g(z)), flipped with probability 0.05, independently of everything else

Q is invertible, so x determines z (up to the rounding of x to float32), and the most likely label
of x is sign(g(z)). Given x that is wrong with probability 0.05, wherever x lies: the best possible
error is 0.05 exactly, and no model of any kind has a smaller one on new rows. A linear model is as
good as guessing: z and -z are equally likely and have the same label.

    python -m benchmarks.generated FOLDER --rows 10000000      # X.npy (float32) and y.npy (int8)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FEATURES, INFORMATIVE = 28, 4
NOISE = 0.02  # standard deviation of the directions that carry nothing
BEST_ERROR = 0.05
BLOCK = 100_000  # rows that are drawn at a time; part of the definition
_WAVES = 2.0  # length of the w_j
_PROBLEM = 2014  # seed of Q and the w_j; rows have seeds of their own

Rows = NDArray[np.float32]
Labels = NDArray[np.int8]


@cache
def _constants() -> tuple[Rows, Rows]:
    """Q and the w_j, as columns."""
    rng = np.random.default_rng(_PROBLEM)
    Q = np.linalg.qr(rng.standard_normal((FEATURES, FEATURES)))[0]
    w = rng.standard_normal((INFORMATIVE, 4))
    w *= _WAVES / np.linalg.norm(w, axis=0)
    return Q.astype(np.float32), w.astype(np.float32)


def _signs(z: Rows) -> Labels:
    g = np.cos(z @ _constants()[1]) @ np.array([1.0, -1.0, 1.0, -1.0], np.float32)
    return np.where(g > 0.0, 1, -1).astype(np.int8)


def best(X: Rows) -> Labels:
    """The most likely label of each row, which no model predicts better."""
    return _signs(X @ _constants()[0][:, :INFORMATIVE])


def blocks(n_rows: int, seed: int) -> Iterator[tuple[slice, Rows, Labels]]:
    """Yield the rows and labels with their range; fewer rows are the first ones of more."""
    Q, _ = _constants()
    for number, first in enumerate(range(0, n_rows, BLOCK)):
        rng = np.random.default_rng([seed, number])
        z = 2.0 * rng.random((BLOCK, INFORMATIVE), np.float32) - 1.0
        u = NOISE * rng.standard_normal((BLOCK, FEATURES - INFORMATIVE), np.float32)
        X, sign = np.hstack([z, u], dtype=np.float32) @ Q.T, _signs(z)
        y = np.where(rng.random(BLOCK) < BEST_ERROR, -sign, sign).astype(np.int8)
        last = min(n_rows, first + BLOCK)
        yield slice(first, last), X[: last - first], y[: last - first]


def draw(n_rows: int, seed: int) -> tuple[Rows, Labels]:
    """Rows and labels in memory."""
    X, y = np.empty((n_rows, FEATURES), np.float32), np.empty(n_rows, np.int8)
    for at, rows, labels in blocks(n_rows, seed):
        X[at], y[at] = rows, labels
    return X, y


def write(folder: Path, n_rows: int, seed: int) -> tuple[Path, Path]:
    """Write X.npy and y.npy, of which one block at a time is in memory."""
    paths = folder / "X.npy", folder / "y.npy"
    X = np.lib.format.open_memmap(paths[0], "w+", np.float32, (n_rows, FEATURES))
    y = np.lib.format.open_memmap(paths[1], "w+", np.int8, (n_rows,))
    for at, rows, labels in blocks(n_rows, seed):
        X[at], y[at] = rows, labels
    X.flush()
    y.flush()
    return paths


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generated", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    print(*write(options.folder, options.rows, options.seed), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
