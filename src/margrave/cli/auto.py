"""The command ``auto``: find a model within a time."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from margrave.auto import AutoClassifier, AutoRegressor
from margrave.cli import model_files
from margrave.cli.app import app
from margrave.cli.console import INTERRUPTED, say, show
from margrave.cli.data import read_table
from margrave.cli.options import Data, Engine, Jobs, Label, Memory, Output, Quiet
from margrave.cli.train import megabytes

_MOST_CLASSES = 50  # whole numbers with more values are targets of a regression


@app.command()
def auto(
    data: Data,
    output: Output = None,
    label: Label = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="SECONDS", help="seconds for everything")
    ] = 60.0,
    regression: Annotated[
        bool | None,
        typer.Option(
            "--regression/--classification",
            help="what the labels are",
            show_default="a regression if they are fractions, or have more than 50 values",
        ),
    ] = None,
    scoring: Annotated[
        str | None,
        typer.Option(
            "--scoring",
            metavar="NAME",
            help="scorer of scikit-learn",
            show_default="accuracy or R2",
        ),
    ] = None,
    memory: Memory = None,
    engine: Engine = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
) -> int:
    """Find a model for DATA within a time and write it.

    The file contains the preprocessing too. Tables may have text and missing values. Ctrl-C writes
    the best model so far.
    """
    path = model_files.chosen_name(output, data)
    model_files.check_output(path)
    table = read_table(data, label, mixed=True)
    y = table.labels(data)
    if regression is None:
        fractions = y.dtype.kind == "f" and bool((y != np.round(y)).any())
        regression = y.dtype.kind in "iuf" and (fractions or len(np.unique(y)) > _MOST_CLASSES)
    kind = AutoRegressor if regression else AutoClassifier
    model = kind(
        time_limit,
        scoring=scoring,
        n_jobs=jobs,
        engine=engine,
        memory_limit=megabytes(memory),
        verbose=0 if quiet else 1,
    )
    interrupted = False
    try:
        model.fit(table.X, y)
    except KeyboardInterrupt:
        if not hasattr(model, "pipeline_"):
            raise
        interrupted = True
    model_files.write(model.pipeline_, path, "margrave", table.notes)
    best = model.leaderboard_[0]
    words = ("kernel", "power", "metric", "multiple", "C", "loss")
    setting = ", ".join(
        f"{name}={best[name]:.4g}" if isinstance(best[name], float) else f"{name}={best[name]}"
        for name in words
    )
    show(f"best: {setting}; score {model.best_score_:.6g}")
    if not quiet:
        say(
            f"{type(model).__name__}: {model.n_fits_} fits, duality gap {model.gap_:.2g}"
            f" ({model.best_.certificate_}); wrote {path}"
        )
    return INTERRUPTED if interrupted else 0
