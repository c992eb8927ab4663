"""Train an SVC on 100,000 noisy rows, compare it with scikit-learn's, and draw what it learned.

Two spirals, blurred the more the farther they reach. margrave trains on all rows; scikit-learn's
SVC on a subsample that it finishes in about ten seconds. Run it with ``make demo`` or

    python examples/demo.py
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import sklearn.svm
from rich.console import Console
from rich.table import Table

from margrave import SVC, plots

ROWS, TEST_ROWS, SUBSAMPLE = 100_000, 20_000, 40_000
C, GAMMA = 1.0, 3.0
OUTPUT = Path("demo_output")


def spirals(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two interleaved spirals of n rows in all, with noise that grows along the arms."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    along = np.sqrt(rng.random(n))  # evenly spread over the disc
    angle = 3.5 * np.pi * along + np.pi * y
    radius = 4.0 * along
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    X += rng.normal(size=(n, 2)) * (0.15 + 0.3 * along)[:, None]
    return X.astype(np.float32), np.where(y == 1, "orange", "blue")


def gap_of(model: sklearn.svm.SVC, X: np.ndarray, y: np.ndarray) -> float:
    """Relative duality gap of scikit-learn's model, which does not report one.

    P = 1/2 beta'K beta + C sum_i max(0, 1 - y_i f_i),   D = 1/2 beta'K beta - sum_i |beta_i|
    """
    beta = model.dual_coef_.ravel()
    decisions = model.decision_function(X)
    norm = float(beta @ (decisions[model.support_] - model.intercept_))
    margins = np.where(y == model.classes_[1], decisions, -decisions)
    primal = 0.5 * norm + C * float(np.maximum(0.0, 1.0 - margins).sum())
    dual = 0.5 * norm - float(np.abs(beta).sum())
    return (primal + dual) / max(abs(primal), abs(dual))


def main() -> None:
    console = Console()
    X, y = spirals(ROWS + TEST_ROWS, seed=0)
    X_test, y_test = X[ROWS:], y[ROWS:]
    X, y = X[:ROWS], y[:ROWS]

    console.print(f"Training [bold]margrave.SVC[/] on {ROWS:,} rows ...")
    begin = time.perf_counter()
    ours = SVC(C=C, gamma=GAMMA, verbose=1).fit(X, y)
    our_seconds = time.perf_counter() - begin

    console.print(f"Training [bold]sklearn.svm.SVC[/] on a subsample of {SUBSAMPLE:,} rows ...")
    X_part, y_part = X[:SUBSAMPLE], y[:SUBSAMPLE]
    begin = time.perf_counter()
    theirs = sklearn.svm.SVC(C=C, gamma=GAMMA).fit(X_part, y_part)
    their_seconds = time.perf_counter() - begin

    table = Table(title=f"Two noisy spirals, rbf kernel, C={C:g}, gamma={GAMMA:g}")
    table.add_column("model", no_wrap=True)
    for column in ("rows", "seconds", "support vectors", "duality gap", "test accuracy"):
        table.add_column(column, justify="right")
    for name, rows, seconds, model, gap in (
        ("margrave", ROWS, our_seconds, ours, ours.gap_),
        (
            "scikit-learn (subsample)",
            SUBSAMPLE,
            their_seconds,
            theirs,
            gap_of(theirs, X_part, y_part),
        ),
    ):
        accuracy = 100 * model.score(X_test, y_test)
        table.add_row(
            name,
            f"{rows:,}",
            f"{seconds:.1f}",
            f"{len(model.support_):,}",
            f"{gap:.1e}",
            f"{accuracy:.2f} %",
        )
    console.print(table)
    console.print(
        f"scikit-learn saw {SUBSAMPLE / ROWS:.0%} of the rows; its gap is computed here, it reports"
        " none itself.",
        style="dim",
    )
    draw(ours, theirs, X_test, y_test, console)


def draw(ours: SVC, theirs: sklearn.svm.SVC, X: np.ndarray, y: np.ndarray, out: Console) -> None:
    """Write the pictures and say where they are."""
    import matplotlib

    matplotlib.use("Agg")  # files only: works without a screen
    OUTPUT.mkdir(exist_ok=True)
    boundary = plots.decision_boundary(ours, X, y)
    boundary.set_title(f"margrave.SVC on {ROWS:,} rows", loc="left", fontweight="bold")
    boundary.set_aspect("equal")
    boundary.figure.set_size_inches(6.5, 6.5)
    names = [f"margrave, {ROWS:,} rows", f"scikit-learn, {SUBSAMPLE:,} rows"]
    margins = plots.margin_distribution([ours, theirs], X, y, labels=names)
    for ax, name in ((boundary, "demo_boundary.png"), (margins, "demo_margins.png")):
        ax.figure.savefig(OUTPUT / name, dpi=150)
        out.print(f"wrote {(OUTPUT / name).resolve()}", soft_wrap=True)


if __name__ == "__main__":
    main()
