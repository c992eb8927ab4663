"""The commands of ``margrave``; each is a few calls of what a Python program would call."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table as RichTable
from sklearn.base import is_classifier

from margrave import __version__
from margrave.cli import machines
from margrave.cli.console import INTERRUPTED, say, show
from margrave.cli.data import read_table, text_of
from margrave.io.files import replacing

app = typer.Typer(
    add_completion=False,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="LIBSVM text (.gz .bz2 .xz), CSV, Parquet, .npy, .npz")
]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="model file")]
Label = Annotated[
    str | None, typer.Option("--label", help="column of the labels, by name or position")
]
Output = Annotated[str | None, typer.Option("-o", "--output", help="file to write")]
Estimator = Annotated[
    str,
    typer.Option(
        "-s",
        "--estimator",
        help="0 SVC, 1 NuSVC, 2 OneClassSVM, 3 SVR, 4 NuSVR, or any estimator by name",
    ),
]
KernelName = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--kernel",
        help="0 linear, 1 poly, 2 rbf, 3 sigmoid, 4 precomputed, or any kernel by name",
    ),
]
Price = Annotated[float | None, typer.Option("-c", "--C", help="price of errors")]
Gamma = Annotated[str | None, typer.Option("-g", "--gamma", help="number, scale or auto")]
Degree = Annotated[int | None, typer.Option("-d", "--degree", help="degree of poly")]
Coef0 = Annotated[float | None, typer.Option("-r", "--coef0", help="constant of poly, sigmoid")]
Nu = Annotated[float | None, typer.Option("-n", "--nu", help="nu of NuSVC, OneClassSVM, NuSVR")]
Epsilon = Annotated[float | None, typer.Option("-p", "--epsilon", help="tube of SVR")]
Tol = Annotated[float | None, typer.Option("-e", "--tol", help="relative duality gap to reach")]
Memory = Annotated[
    str | None, typer.Option("-m", "--memory", help="memory for caches: MB, or like 4GiB")
]
Shrinking = Annotated[
    int | None, typer.Option("-h", hidden=True, help="LIBSVM's shrinking; not needed")
]
Probability = Annotated[int, typer.Option("-b", hidden=True, help="LIBSVM's probabilities")]
Weight = Annotated[
    list[str] | None,
    typer.Option("--weight", help="LABEL=W: factor of C for a class; also -wLABEL W"),
]
Scale = Annotated[str, typer.Option("--scale", help="minmax, standard or none; kept in the model")]
Set = Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE: any other parameter")]
Solver = Annotated[str | None, typer.Option("--solver", help="strategy; auto chooses")]
Engine = Annotated[str | None, typer.Option("--engine", help="threads, dask, dask://..., mpi")]
Jobs = Annotated[int | None, typer.Option("-j", "--jobs", help="threads; all cores by default")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="no progress bar, no summary")]


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="tell the version")] = False,
) -> None:
    """Kernel and margin machines that scale, each fit with its certificate."""
    if version:
        show(__version__)
        raise typer.Exit()


def machine_from(
    estimator: str,
    kernel: str | None,
    gamma: str | None,
    memory: str | None,
    probability: int,
    rest: dict[str, Any],
    settings: list[str] | None,
) -> Any:
    """Make the estimator that the options describe."""
    if probability:
        raise ValueError(machines.NO_PROBABILITIES)
    given = dict(rest)
    given["kernel"] = None if kernel is None else machines.kernel_name(kernel)
    given["gamma"] = None if gamma is None else machines.word_or_number(gamma)
    given["memory_limit"] = megabytes(memory)
    for text in settings or []:
        name, value = machines.assignment(text, "--set")
        given[name] = machines.word_or_number(value)
    return machines.make(estimator, given)


def megabytes(memory: str | None) -> str | None:
    """LIBSVM counts in MB where no unit is said.

    >>> megabytes("200"), megabytes("4GiB")
    ('200MiB', '4GiB')
    """
    return memory if memory is None or not memory.replace(".", "", 1).isdigit() else memory + "MiB"


@app.command()
def train(
    data: Data,
    output: Output = None,
    estimator: Estimator = "SVC",
    kernel: KernelName = None,
    C: Price = None,
    gamma: Gamma = None,
    degree: Degree = None,
    coef0: Coef0 = None,
    nu: Nu = None,
    epsilon: Epsilon = None,
    tol: Tol = None,
    memory: Memory = None,
    shrinking: Shrinking = None,
    probability: Probability = 0,
    weight: Weight = None,
    folds: Annotated[
        int | None, typer.Option("-v", "--folds", help="cross-validate instead of writing a model")
    ] = None,
    scale: Scale = "none",
    label: Label = None,
    settings: Set = None,
    solver: Solver = None,
    engine: Engine = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", help="seconds; the best model so far is kept")
    ] = None,
    jobs: Jobs = None,
    format: Annotated[
        str,
        typer.Option("--format", help="margrave, libsvm or liblinear; by default by the name"),
    ] = "auto",
    quiet: Quiet = False,
) -> int:
    """Train a model on DATA and write it.

    A file called .model or .libsvm is written as LIBSVM's own; any other holds the scaler and the
    certificate too. Ctrl-C writes the model reached so far.
    """
    leads = is_leader(engine)
    rest: dict[str, Any] = {
        "C": C,
        "degree": degree,
        "coef0": coef0,
        "nu": nu,
        "epsilon": epsilon,
        "tol": tol,
    }
    rest |= {"solver": solver, "engine": engine, "time_limit": time_limit, "n_jobs": jobs}
    rest["verbose"] = None if quiet or not leads else 1
    machine = machine_from(estimator, kernel, gamma, memory, probability, rest, settings)
    path = output or f"{data}.margrave"
    format = machines.chosen_format(path, format, scale)
    if folds is None:
        machines.check_output(path)
    table = load(data, machine, label)
    if weight:
        machine.set_params(class_weight=machines.class_weights(weight, table.y))
    scaler = machines.make_scaler(scale, table.X)
    if folds is not None:
        predicted = machines.cross_validate(machine, scaler, table.X, table.y, folds)
        for name, value in machines.figures(machine, table.y, predicted).items():
            show(f"{name} ({folds} folds): {value:.6g}")
        return 0
    with local_dask(machine):
        done = machines.train(machine, scaler, table.X, table.y)
    if leads:
        machines.write(done.model, path, format, table.notes)
        if not quiet or done.interrupted:
            say(summary(done, table.X.shape[0], path))
    return INTERRUPTED if done.interrupted else 0


def is_leader(engine: str | None) -> bool:
    """Whether this process speaks and writes: under MPI that is rank 0."""
    if engine != "mpi":
        return True
    try:
        from mpi4py import MPI
    except ImportError:
        raise ValueError("--engine mpi needs mpi4py: pip install 'margrave[mpi]'") from None
    return bool(MPI.COMM_WORLD.rank == 0)


@contextmanager
def local_dask(machine: Any) -> Iterator[None]:
    """Start a Dask cluster on this machine for ``--engine dask``; an address has one already."""
    if machine.engine != "dask":
        yield
        return
    try:
        import distributed
    except ImportError:
        raise ValueError("--engine dask needs Dask: pip install 'margrave[dask]'") from None
    with distributed.Client(host="127.0.0.1", dashboard_address=None) as client:
        machine.set_params(engine=client)
        yield


def load(data: str, machine: Any, label: str | None) -> Any:
    """Rows and labels to train on."""
    table = read_table(data, label)
    if table.notes.pop("qid", False):
        say(f"margrave: {data}: query numbers (qid) are ignored")
    if machine.kernel == "precomputed":
        table.X = kernel_values(data, table)
    if not is_classifier(machine) and table.y is not None and table.y.dtype.kind in "US":
        raise ValueError(f"{data}: {type(machine).__name__} needs numbers as labels")
    return table


def kernel_values(data: str, table: Any) -> Any:
    """Kernel values of LIBSVM's form ``label 0:number 1:value 2:value``, or as they are."""
    X = table.X.toarray() if hasattr(table.X, "toarray") else table.X
    if table.notes.get("zero_based"):
        return np.ascontiguousarray(X[:, 1:])
    if "zero_based" in table.notes:
        raise ValueError(f"{data}: a precomputed kernel needs 0:number in front of every row")
    return X


def summary(done: Any, rows: int, path: str) -> str:
    """One line about a trained model."""
    machine = done.machine
    state = "interrupted, " if done.interrupted else "" if machine.converged_ else "not converged, "
    return (
        f"{type(machine).__name__}: {rows:,} rows, {len(machine.support_):,} support vectors,"
        f" {state}duality gap {machine.gap_:.2g} ({machine.certificate_}), {done.seconds:.2f} s;"
        f" wrote {path}"
    )


@app.command()
def predict(
    model: Model,
    data: Data,
    output: Output = None,
    scores: Annotated[bool, typer.Option("--scores", help="decision values, not labels")] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="where the model has them")
    ] = False,
    label: Label = None,
    quiet: Quiet = False,
) -> int:
    """Predict the rows of DATA, one line each."""
    if output is not None:
        machines.check_output(output)
    found, table = rows_for(model, data, label)
    method = "predict_proba" if probabilities else "decision_function" if scores else "predict"
    if not hasattr(found, method):
        raise ValueError(f"{model}: {type(machines.machine_of(found)).__name__} has no {method}")
    predicted = np.asarray(getattr(found, method)(table.X))
    if output is None:
        sys.stdout.buffer.write(text_of(predicted))
        sys.stdout.buffer.flush()
        return 0
    with replacing(output) as file:
        file.write(text_of(predicted))
    if not quiet:
        say(f"wrote {len(predicted):,} predictions to {output}")
    return 0


def rows_for(model: str, data: str, label: str | None = None) -> tuple[Any, Any]:
    """A model, and rows that fit it."""
    found, notes, _ = machines.read(model)
    machine = machines.machine_of(found)
    precomputed = machine.kernel == "precomputed"
    libsvm = notes.get("zero_based") is not None and machine.certificate_ == "none"
    if precomputed or libsvm:  # the width is the file's business
        table = read_table(data, label, None, {} if precomputed else notes)
        if precomputed:
            table.X = kernel_values(data, table)
        if libsvm and table.X.shape[1] != machine.n_features_in_:
            found, table.X = fit_width(model, found, table.X)
        return found, table
    return found, read_table(data, label, machine, notes)


def fit_width(path: str, model: Any, X: Any) -> tuple[Any, Any]:
    """Rows and a model of LIBSVM, which does not know its number of features, of equal width."""
    from scipy import sparse

    from margrave.estimators import load_libsvm_model

    if X.shape[1] > model.n_features_in_:
        return load_libsvm_model(path, n_features=X.shape[1]), X
    wide = sparse.csr_matrix(X)
    wide.resize(X.shape[0], model.n_features_in_)
    return model, wide if sparse.issparse(X) else wide.toarray()


@app.command()
def evaluate(
    model: Model,
    data: Data,
    label: Label = None,
    as_json: Annotated[bool, typer.Option("--json", help="figures as JSON")] = False,
) -> int:
    """Compare the predictions for DATA with its labels."""
    found, table = rows_for(model, data, label)
    machine = machines.machine_of(found)
    if table.y is None:
        raise ValueError(f"{data}: there are no labels to compare with")
    y = machines.in_terms(machine, table.y)
    predicted = found.predict(table.X)
    worth = {"rows": float(len(y)), **machines.figures(machine, y, predicted)}
    if as_json:
        show(json.dumps(worth))
        return 0
    for name, value in worth.items():
        show(f"{name}: {value:.6g}")
    if is_classifier(machine):
        show(confusion(y, predicted))
    return 0


def confusion(y: Any, predicted: Any, most: int = 20) -> Any:
    """Table of the labels and what they were predicted as; of many classes per class."""
    from sklearn import metrics

    names = np.unique(np.concatenate([y, predicted]))
    texts = text_of(names).decode().splitlines()
    if len(names) > most:
        return metrics.classification_report(y, predicted, zero_division=0)
    table = RichTable()
    table.add_column("label, predicted as")
    for name in texts:
        table.add_column(name, justify="right")
    for name, row in zip(texts, metrics.confusion_matrix(y, predicted, labels=names), strict=True):
        table.add_row(name, *(f"{count:,}" for count in row))
    return table


@app.command()
def tune(
    data: Data,
    output: Output = None,
    estimator: Estimator = "SVC",
    kernel: KernelName = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", help="NAME=VALUE,VALUE,...; by default C and gamma"),
    ] = None,
    folds: Annotated[int, typer.Option("-v", "--folds", help="of cross-validation")] = 5,
    scoring: Annotated[str | None, typer.Option("--scoring", help="scikit-learn's name")] = None,
    tol: Tol = None,
    memory: Memory = None,
    scale: Scale = "none",
    label: Label = None,
    settings: Set = None,
    jobs: Jobs = None,
    format: Annotated[str, typer.Option("--format", help="margrave, libsvm, liblinear")] = "auto",
    quiet: Quiet = False,
) -> int:
    """Cross-validate a grid of parameters on DATA and write the best model."""
    import margrave

    tuner = getattr(margrave, "Tuner", None)
    if tuner is None:
        raise ValueError("this margrave has no Tuner: upgrade margrave")
    rest = {"tol": tol, "n_jobs": jobs}
    machine = machine_from(estimator, kernel, None, memory, 0, rest, settings)
    path = output or f"{data}.margrave"
    format = machines.chosen_format(path, format, scale)
    machines.check_output(path)
    values = grid_of(grid, machine)
    table = load(data, machine, label)
    scaler = machines.make_scaler(scale, table.X)
    X = table.X if scaler is None else scaler.fit_transform(table.X)
    begin = time.perf_counter()
    search = tuner(machine, values, cv=folds, scoring=scoring, refit=True)
    if not quiet and "verbose" in search.get_params(deep=False):
        search.set_params(verbose=1)
    search.fit(X, table.y)
    best = search.best_estimator_
    machines.write(machines.behind(scaler, best), path, format, table.notes)
    words = ", ".join(f"{name}={value:g}" for name, value in search.best_params_.items())
    show(f"best: {words}; score {search.best_score_:.6g}")
    if not quiet:
        say(
            f"{len(search.cv_results_['params'])} settings, {folds} folds,"
            f" {time.perf_counter() - begin:.1f} s; wrote {path}"
        )
    return 0


def grid_of(grid: list[str] | None, machine: Any) -> dict[str, list[Any]]:
    """Values to try: as told, or powers of two of C and gamma."""
    known = machine.get_params(deep=False)
    if not grid:
        prices = [2.0**e for e in range(-3, 10, 2)]
        name = next((name for name in ("C", "lam", "nu") if name in known), None)
        values: dict[str, list[Any]] = {}
        if name is not None:
            values[name] = [0.1, 0.2, 0.3, 0.5, 0.7] if name == "nu" else prices
        if machine.kernel not in ("linear", "precomputed"):
            values["gamma"] = [2.0**e for e in range(-9, 4, 2)]
        return values
    found = {}
    for text in grid:
        name, listed = machines.assignment(text, "--grid")
        if name not in known:
            raise ValueError(f"{type(machine).__name__} has no parameter {name!r}")
        found[name] = [machines.word_or_number(value) for value in listed.split(",")]
    return found


@app.command()
def info(
    model: Model,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> int:
    """Tell what a model file holds."""
    found, notes, kind = machines.read(model)
    machine = machines.machine_of(found)
    facts: dict[str, Any] = {
        "file": f"{kind} model file",
        "estimator": type(machine).__name__,
        "kernel": machine._kernel.name,
        "features": machine.n_features_in_,
        "support vectors": len(machine.support_),
        "duality gap": machine.gap_,
        "certificate": machine.certificate_,
        "converged": machine.converged_,
        "objective": machine.objective_,
        "solver": machine.solver_,
    }
    if hasattr(machine, "classes_"):
        facts["classes"] = text_of(machine.classes_).decode().split("\n")[:-1]
    if found is not machine:
        facts["scaler"] = type(found.steps[0][1]).__name__
    defaults = type(machine)().get_params(deep=False)
    facts["parameters"] = {
        name: repr(value)
        for name, value in machine.get_params(deep=False).items()
        if repr(value) != repr(defaults[name])
    }
    facts["data"] = {name: value for name, value in notes.items() if name != "names"}
    if as_json:
        show(json.dumps(facts, default=str))
        return 0
    for name, value in facts.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key}={entry}" for key, entry in value.items()) or "-"
        elif isinstance(value, list):
            value = ", ".join(value[:20]) + (", ..." if len(value) > 20 else "")
        show(f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}")
    return 0


@app.command()
def bench(
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="your data; generated if none")
    ] = None,
    C: Price = None,
    gamma: Gamma = None,
    scale: Scale = "none",
    label: Label = None,
    rows: Annotated[int, typer.Option("--rows", help="rows to train on at most")] = 20_000,
    jobs: Jobs = None,
) -> int:
    """Train SVC and scikit-learn's SVC on the same rows; a fifth of them is held out."""
    from margrave.cli.demo import compare

    given = None if gamma is None else machines.word_or_number(gamma)
    return compare(data, 1.0 if C is None else C, given, scale, label, rows, jobs)


@app.command()
def demo() -> int:
    """Train on 100,000 generated rows; table and pictures."""
    from margrave.cli.demo import main

    main()
    return 0
