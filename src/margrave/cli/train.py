"""Commands that train: ``train``, ``tune``, ``bench``, ``demo``."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from sklearn.base import clone, is_classifier

from margrave.cli import estimators, model_files, quality
from margrave.cli.app import app
from margrave.cli.console import INTERRUPTED, MESSAGES, say, show
from margrave.cli.data import Table, read_table
from margrave.cli.options import (
    Coef0,
    Data,
    Degree,
    Engine,
    Epsilon,
    Estimator,
    Format,
    Gamma,
    Jobs,
    KernelName,
    Label,
    Memory,
    Nu,
    Output,
    Penalty,
    Probabilities,
    Probability,
    Quiet,
    Scale,
    Set,
    Solver,
    TimeLimit,
    Tol,
    Weight,
)
from margrave.cli.use import kernel_values
from margrave.estimators._base import KernelEstimator
from margrave.extras import install
from margrave.kernels import KERNELS
from margrave.tuner import Tuner


def estimator_from(
    kind: str,
    kernel: str | None,
    gamma: str | None,
    memory: str | None,
    rest: Mapping[str, object],
    settings: list[str] | None,
) -> KernelEstimator:
    """Make the estimator that the options describe."""
    given = dict(rest)
    given["kernel"] = None if kernel is None else estimators.kernel_name(kernel)
    given["gamma"] = None if gamma is None else estimators.word_or_number(gamma)
    given["memory_limit"] = megabytes(memory)
    for text in settings or []:
        name, value = estimators.assignment(text, "--set")
        given[name] = estimators.word_or_number(value)
    return estimators.make(kind, given)


def megabytes(memory: str | None) -> str | None:
    """Memory sizes without a unit are in MB, as in LIBSVM.

    >>> megabytes("200"), megabytes("4GiB")
    ('200MiB', '4GiB')
    """
    return memory if memory is None or not memory.replace(".", "", 1).isdigit() else memory + "MiB"


@app.command()
def train(
    data: Data,
    output: Output = None,
    kind: Estimator = "SVC",
    kernel: KernelName = None,
    C: Penalty = None,
    gamma: Gamma = None,
    degree: Degree = None,
    coef0: Coef0 = None,
    nu: Nu = None,
    epsilon: Epsilon = None,
    tol: Tol = None,
    memory: Memory = None,
    probabilities: Probabilities = False,
    probability: Probability = 0,
    weight: Weight = None,
    folds: Annotated[
        int | None,
        typer.Option(
            "-v", "--folds", metavar="N", help="cross-validate instead of writing a model"
        ),
    ] = None,
    scale: Scale = "none",
    label: Label = None,
    settings: Set = None,
    solver: Solver = None,
    engine: Engine = None,
    time_limit: TimeLimit = None,
    jobs: Jobs = None,
    format: Format = "auto",
    quiet: Quiet = False,
) -> int:
    """Train a model on DATA and write it.

    Files ending in .model or .libsvm are written in LIBSVM's format; any other file also contains
    the scaler and the certificate. Ctrl-C writes the model reached so far.
    """
    leads = is_leader(engine)
    MESSAGES.quiet = not leads
    rest: dict[str, object] = {
        "C": C,
        "degree": degree,
        "coef0": coef0,
        "nu": nu,
        "epsilon": epsilon,
        "tol": tol,
    }
    rest |= {"solver": solver, "engine": engine, "time_limit": time_limit, "n_jobs": jobs}
    rest["verbose"] = None if quiet or not leads else 1
    estimator = estimator_from(kind, kernel, gamma, memory, rest, settings)
    probabilities = probabilities or bool(probability)
    if probabilities:
        estimators.check_probabilities(estimator)
    path = model_files.chosen_name(output, data)
    format = model_files.chosen_format(path, format, scale)
    if folds is None:
        model_files.check_output(path)
    table = load(data, estimator, label)
    y = table.labels(data)
    if weight:
        estimator.set_params(class_weight=estimators.class_weights(weight, y))
    scaler = estimators.make_scaler(scale, table.X)
    if folds is not None:
        predicted = estimators.cross_validate(estimator, scaler, table.X, y, folds)
        for name, value in quality.figures(estimator, y, predicted).items():
            show(f"{name} ({folds} folds): {value:.6g}")
        return 0
    with local_dask(estimator):
        done = estimators.train(estimator, scaler, table.X, y, probabilities)
    if leads:
        model_files.write(done.model, path, format, table.notes)
        if not quiet or done.interrupted:
            say(summary(done, table.X.shape[0], path))
    return INTERRUPTED if done.interrupted else 0


def is_leader(engine: str | None) -> bool:
    """Whether this process prints messages and writes the model: under MPI, rank 0 does."""
    if engine != "mpi":
        return True
    try:
        from mpi4py import MPI
    except ImportError:
        raise ValueError(f"--engine mpi needs mpi4py: {install('mpi')}") from None
    return bool(MPI.COMM_WORLD.rank == 0)


@contextmanager
def local_dask(estimator: KernelEstimator) -> Iterator[None]:
    """Start a local Dask cluster for ``--engine dask`` (without an address)."""
    if estimator.engine != "dask":
        yield
        return
    try:
        import distributed
    except ImportError:
        raise ValueError(f"--engine dask needs Dask: {install('dask')}") from None
    with distributed.Client(host="127.0.0.1", dashboard_address=None) as client:
        estimator.set_params(engine=client)
        yield


def load(data: str, estimator: KernelEstimator, label: str | None) -> Table:
    """Read rows and labels for training."""
    table = read_table(data, label)
    if table.notes.pop("qid", False):
        say(f"margrave: {data}: query ids (qid) are ignored")
    if estimator.kernel == "precomputed":
        table.X = kernel_values(data, table)
    if not is_classifier(estimator) and table.y is not None and table.y.dtype.kind in "US":
        raise ValueError(f"{data}: {type(estimator).__name__} needs numbers as labels")
    return table


def summary(done: estimators.Trained, rows: int, path: str) -> str:
    """One line about a trained model."""
    estimator = done.estimator
    state = (
        "interrupted, " if done.interrupted else "" if estimator.converged_ else "not converged, "
    )
    return (
        f"{type(estimator).__name__}: {rows:,} rows, {len(estimator.support_):,} support vectors,"
        f" {state}duality gap {estimator.gap_:.2g} ({estimator.certificate_}),"
        f" {done.seconds:.2f} s; wrote {path}"
    )


@app.command()
def tune(
    data: Data,
    output: Output = None,
    kind: Estimator = "SVC",
    kernel: KernelName = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="NAME=VALUE,VALUE,...",
            help="values to try; may be repeated",
            show_default="powers of two for C and gamma, unless -c or -g is given",
        ),
    ] = None,
    C: Penalty = None,
    gamma: Gamma = None,
    degree: Degree = None,
    coef0: Coef0 = None,
    nu: Nu = None,
    epsilon: Epsilon = None,
    tol: Tol = None,
    memory: Memory = None,
    weight: Weight = None,
    folds: Annotated[
        int, typer.Option("-v", "--folds", metavar="N", help="cross-validation folds")
    ] = 5,
    scoring: Annotated[
        str | None,
        typer.Option(
            "--scoring",
            metavar="NAME",
            help="scorer of scikit-learn",
            show_default="accuracy or R2",
        ),
    ] = None,
    prune: Annotated[
        bool, typer.Option(help="drop settings that score badly on the first folds")
    ] = True,
    scale: Scale = "none",
    label: Label = None,
    settings: Set = None,
    solver: Solver = None,
    time_limit: TimeLimit = None,
    jobs: Jobs = None,
    format: Format = "auto",
    quiet: Quiet = False,
) -> int:
    """Cross-validate a grid of parameters, write the best model.

    Without --grid it tries powers of two for C and gamma. Parameters that are given as options
    keep their value.
    """
    rest: dict[str, object] = {
        "C": C,
        "degree": degree,
        "coef0": coef0,
        "nu": nu,
        "epsilon": epsilon,
        "tol": tol,
    }
    rest |= {"solver": solver, "n_jobs": jobs}
    estimator = estimator_from(kind, kernel, gamma, memory, rest, settings)
    path = model_files.chosen_name(output, data)
    format = model_files.chosen_format(path, format, scale)
    model_files.check_output(path)
    fixed = {name for name, value in {**rest, "gamma": gamma}.items() if value is not None}
    values = grid_of(grid, estimator, fixed)
    table = load(data, estimator, label)
    y = table.labels(data)
    if weight:
        estimator.set_params(class_weight=estimators.class_weights(weight, y))
    scaler = estimators.make_scaler(scale, table.X)
    X = table.X if scaler is None else scaler.fit_transform(table.X)
    begin = time.perf_counter()
    search = Tuner(
        estimator,
        values,
        cv=folds,
        scoring=scoring,
        prune=prune,
        n_jobs=jobs,
        time_limit=time_limit,
        verbose=0 if quiet else 1,
    )
    try:
        search.fit(X, y)
    except KeyboardInterrupt:
        if hasattr(search, "best_params_"):
            show(f"best so far: {best_of(search)}")
        raise
    model = estimators.with_scaler(scaler, search.best_estimator_)
    model_files.write(model, path, format, table.notes)
    show(f"best: {best_of(search)}")
    if not quiet:
        count, seconds = len(search.cv_results_["params"]), time.perf_counter() - begin
        say(f"{count} settings, {folds} folds, {seconds:.1f} s; wrote {path}")
    return 0


def best_of(search: Tuner) -> str:
    """The best setting and its score, as text."""
    words = [f"{name}={value}" for name, value in search.best_params_.items()]
    return f"{', '.join(words)}; score {search.best_score_:.6g}"


def grid_of(
    grid: list[str] | None, estimator: KernelEstimator, fixed: Collection[str]
) -> dict[str, list[Any]]:
    """Values to try: as given, or powers of two for C and gamma; none of fixed parameters."""
    known = estimator.get_params(deep=False)
    found: dict[str, list[Any]] = {}
    for text in grid or []:
        name, listed = estimators.assignment(text, "--grid")
        if name not in known:
            raise ValueError(f"{type(estimator).__name__} has no parameter {name!r}")
        if name in fixed:
            raise ValueError(f"--grid {name}: it has a value already, by an option of its own")
        found[name] = [estimators.word_or_number(value) for value in listed.split(",")]
        for value in found[name]:
            _check_value(estimator, name, value)
    if grid:
        return found
    powers = [2.0**e for e in range(-3, 10, 2)]
    main = next((name for name in ("C", "lam", "nu") if name in known), None)
    if main is not None:
        found[main] = [0.1, 0.2, 0.3, 0.5, 0.7] if main == "nu" else powers
        if known[main] == "scale":  # this penalty grows with the number of rows
            found[main] = [*(10.0**e for e in range(1, 6)), "scale"]
    if "gamma" in KERNELS.get(estimator.kernel, ()):
        found["gamma"] = [2.0**e for e in range(-9, 4, 2)]
    return {name: values for name, values in found.items() if name not in fixed}


def _check_value(estimator: KernelEstimator, name: str, value: object) -> None:
    """Raise for a value that every fit would refuse."""
    try:
        clone(estimator).set_params(**{name: value})._check_parameters()
    except ValueError as error:
        raise ValueError(f"--grid {name}=VALUE,VALUE,...: {error}") from None


@app.command()
def bench(
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="as for train", show_default="generated rows"),
    ] = None,
    C: Penalty = None,
    gamma: Gamma = None,
    scale: Scale = "none",
    label: Label = None,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", help="maximum number of training rows")
    ] = 20_000,
    jobs: Jobs = None,
) -> int:
    """Compare SVC with scikit-learn's SVC on the same rows.

    A fifth of the rows is held out for the accuracy.
    """
    from margrave.cli.demo import compare

    given = None if gamma is None else estimators.word_or_number(gamma)
    return compare(data, 1.0 if C is None else C, given, scale, label, rows, jobs)


@app.command()
def demo() -> int:
    """Train on 100,000 generated rows; a table and pictures."""
    from margrave.cli.demo import main

    main()
    return 0
