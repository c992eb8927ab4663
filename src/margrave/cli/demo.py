"""``margrave demo`` and ``margrave bench``: compare SVC with scikit-learn's."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.svm
from numpy.typing import NDArray
from rich.table import Table
from sklearn.model_selection import train_test_split

from margrave.cli import estimators
from margrave.cli.console import say, show
from margrave.cli.data import Table as Rows
from margrave.cli.data import read_table
from margrave.estimators import SVC
from margrave.extras import install
from margrave.rows import Matrix

ROWS, TEST_ROWS, SUBSAMPLE = 100_000, 20_000, 40_000
C, GAMMA = 1.0, 3.0
OUTPUT = Path("demo_output")


@dataclass(frozen=True)
class Result:
    """A fitted model, with the number of its training rows, its time and its gap."""

    name: str
    rows: int
    seconds: float
    model: SVC | sklearn.svm.SVC
    gap: float


def spirals(n: int, seed: int) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Two interleaved spirals with n rows in total, and noise that grows along the arms."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    along = np.sqrt(rng.random(n))  # evenly spread over the disc
    angle = 3.5 * np.pi * along + np.pi * y
    radius = 4.0 * along
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    X += rng.normal(size=(n, 2)) * (0.15 + 0.3 * along)[:, None]
    return X.astype(np.float32), np.where(y == 1, "orange", "blue")


def gap_of(model: sklearn.svm.SVC, X: Matrix, y: NDArray[Any], C: float) -> float:
    """Relative duality gap of a binary scikit-learn model, which does not report one.

    P = 1/2 beta'K beta + C sum_i max(0, 1 - y_i f_i),   D = 1/2 beta'K beta - sum_i |beta_i|
    """
    beta = model.dual_coef_.ravel()
    decisions = model.decision_function(X)
    norm = float(beta @ (decisions[model.support_] - model.intercept_))
    margins = np.where(y == model.classes_[1], decisions, -decisions)
    primal = 0.5 * norm + C * float(np.maximum(0.0, 1.0 - margins).sum())
    dual = 0.5 * norm - float(np.abs(beta).sum())
    return (primal + dual) / max(abs(primal), abs(dual))


def timed(model: SVC | sklearn.svm.SVC, X: Matrix, y: NDArray[Any]) -> float:
    """Fit, and return the time in seconds."""
    begin = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - begin


def table_of(title: str, results: list[Result], X: Matrix, y: NDArray[Any]) -> Table:
    """Table of the results, with the accuracy on held-out rows."""
    table = Table(title=title)
    table.add_column("model", no_wrap=True)
    for column in ("rows", "seconds", "support vectors", "duality gap", "test accuracy"):
        table.add_column(column, justify="right")
    for one in results:
        table.add_row(
            one.name,
            f"{one.rows:,}",
            f"{one.seconds:.3g}",
            f"{len(one.model.support_):,}",
            "-" if np.isnan(one.gap) else f"{one.gap:.1e}",
            f"{100 * one.model.score(X, y):.2f} %",
        )
    return table


def main() -> None:
    """Train on generated rows, print a table and draw the models."""
    X, y = spirals(ROWS + TEST_ROWS, seed=0)
    X_test, y_test = X[ROWS:], y[ROWS:]
    X, y = X[:ROWS], y[:ROWS]
    say(f"Training margrave.SVC on {ROWS:,} rows ...")
    ours = SVC(C=C, gamma=GAMMA, verbose=1)
    our_seconds = timed(ours, X, y)
    say(f"Training sklearn.svm.SVC on a subsample of {SUBSAMPLE:,} rows ...")
    X_part, y_part = X[:SUBSAMPLE], y[:SUBSAMPLE]
    theirs = sklearn.svm.SVC(C=C, gamma=GAMMA)
    their_seconds = timed(theirs, X_part, y_part)
    gap = gap_of(theirs, X_part, y_part, C)
    results = [
        Result("margrave", ROWS, our_seconds, ours, ours.gap_),
        Result("scikit-learn (subsample)", SUBSAMPLE, their_seconds, theirs, gap),
    ]
    title = f"Two noisy spirals, rbf kernel, C={C:g}, gamma={GAMMA:g}"
    show(table_of(title, results, X_test, y_test))
    say(
        f"scikit-learn was trained on {SUBSAMPLE / ROWS:.0%} of the rows; it reports no gap, so"
        " margrave computed it."
    )
    draw(ours, theirs, X_test, y_test)


def draw(ours: SVC, theirs: sklearn.svm.SVC, X: NDArray[np.float32], y: NDArray[Any]) -> None:
    """Save the figures, and print their paths."""
    try:
        import matplotlib
    except ImportError:
        say(f"for pictures: {install('plots')}")
        return
    matplotlib.use("Agg")  # files only: works without a display
    from matplotlib import pyplot

    from margrave import plots

    OUTPUT.mkdir(exist_ok=True)
    boundary, ax = pyplot.subplots(figsize=(6.5, 6.5), layout="constrained")
    plots.decision_boundary(ours, X, y, ax)
    ax.set_title(f"margrave.SVC on {ROWS:,} rows", loc="left", fontweight="bold")
    ax.set_aspect("equal")
    margins, ax = pyplot.subplots(figsize=(7.0, 4.6), layout="constrained")
    names = [f"margrave, {ROWS:,} rows", f"scikit-learn, {SUBSAMPLE:,} rows"]
    plots.margin_distribution([ours, theirs], X, y, ax, names)
    for figure, name in ((boundary, "demo_boundary.png"), (margins, "demo_margins.png")):
        figure.savefig(OUTPUT / name, dpi=150)
        say(f"wrote {(OUTPUT / name).resolve()}")


def compare(
    data: str | None,
    C: float,
    gamma: str | float | None,
    scale: str,
    label: str | None,
    most: int,
    jobs: int | None,
) -> int:
    """Train both on the same rows, score them on a held-out fifth, and print a table."""
    if data is None:
        table = Rows(*spirals(most, seed=0))
        title, gamma = "Two noisy spirals", GAMMA if gamma is None else gamma
    else:
        table, title = read_table(data, label), data
    X, X_test, y, y_test = train_test_split(table.X, table.y, test_size=0.2, random_state=0)
    X, y = X[:most], y[:most]
    scaler = estimators.make_scaler(scale, X)
    if scaler is not None:
        X, X_test = scaler.fit_transform(X), scaler.transform(X_test)
    parameters: dict[str, Any] = {"C": C, "gamma": "scale" if gamma is None else gamma}
    ours = SVC(verbose=1, n_jobs=jobs, **parameters)
    our_seconds = timed(ours, X, y)
    theirs = sklearn.svm.SVC(**parameters)
    their_seconds = timed(theirs, X, y)
    binary = len(ours.classes_) == 2 and not hasattr(theirs.dual_coef_, "toarray")
    gap = gap_of(theirs, X, y, C) if binary else float("nan")
    results = [
        Result("margrave", X.shape[0], our_seconds, ours, ours.gap_),
        Result("scikit-learn", X.shape[0], their_seconds, theirs, gap),
    ]
    show(table_of(f"{title}, rbf kernel, C={C:g}", results, X_test, y_test))
    show(f"margrave is {their_seconds / our_seconds:.2g} times as fast as scikit-learn here")
    return 0
