"""Commands that use models: ``predict``, ``evaluate``, ``info``."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import numpy as np
import typer
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

from margrave.cli import model_files, quality
from margrave.cli.app import app
from margrave.cli.console import say, show
from margrave.cli.data import Table, read_table, text_of
from margrave.cli.options import (
    Data,
    Label,
    Model,
    Predictions,
    Quiet,
)
from margrave.estimators import load_libsvm_model
from margrave.estimators._base import KernelEstimator
from margrave.estimators._margin import MarginClassifier
from margrave.io.files import replacing
from margrave.report.estimator import final_estimator
from margrave.rows import Matrix, is_csr


@app.command()
def predict(
    model: Model,
    data: Data,
    output: Predictions = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="decision values instead of labels")
    ] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="if the model has them")
    ] = False,
    label: Label = None,
    quiet: Quiet = False,
) -> int:
    """Predict the rows of DATA, one line each."""
    if output is not None:
        model_files.check_output(output)
    found, table = rows_for(model, data, label)
    method = "predict_proba" if probabilities else "decision_function" if scores else "predict"
    check_has(found, method, model)
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


def check_has(found: KernelEstimator | Pipeline, method: str, model: str) -> None:
    """Raise, with the reason, for a model without a method."""
    estimator = final_estimator(found)
    try:
        getattr(estimator, method)
    except AttributeError as error:
        own = method == "predict_proba" and isinstance(estimator, MarginClassifier)
        reason = str(error) if own else f"{type(estimator).__name__} has no {method}"
        raise ValueError(f"{model}: {reason}") from None


def rows_for(
    model: str, data: str, label: str | None = None
) -> tuple[KernelEstimator | Pipeline, Table]:
    """Read a model, and rows in the form that it expects."""
    read = model_files.read(model)
    estimator, notes = read.estimator, read.notes
    precomputed = estimator.kernel == "precomputed"
    libsvm = notes.get("zero_based") is not None and estimator.certificate_ == "none"
    if precomputed or libsvm:  # the number of features is not fixed by the model
        table = read_table(data, label, notes={} if precomputed else notes)
        if precomputed:
            table.X = kernel_values(data, table)
        if libsvm and table.X.shape[1] != estimator.n_features_in_:
            estimator, table.X = fit_width(model, estimator, table.X)
            return estimator, table
        return read.model, table
    first = read.model.steps[0][1] if isinstance(read.model, Pipeline) else estimator
    return read.model, read_table(data, label, first.n_features_in_, notes)


def fit_width(path: str, model: KernelEstimator, X: Matrix) -> tuple[KernelEstimator, Matrix]:
    """Give rows and a LIBSVM model the same number of features, which its file does not store."""
    if X.shape[1] > model.n_features_in_:
        return load_libsvm_model(path, n_features=X.shape[1]), X
    wide = sparse.csr_matrix(X)
    wide.resize(X.shape[0], model.n_features_in_)
    return model, wide if is_csr(X) else wide.toarray()


def kernel_values(data: str, table: Table) -> Matrix:
    """Kernel values from LIBSVM's format ``label 0:number 1:value 2:value``, or unchanged."""
    X = table.X.toarray() if is_csr(table.X) else table.X
    if table.notes.get("zero_based"):
        return np.ascontiguousarray(X[:, 1:])
    if "zero_based" in table.notes:
        raise ValueError(f"{data}: with a precomputed kernel every row must begin with 0:number")
    return X


@app.command()
def evaluate(
    model: Model,
    data: Data,
    label: Label = None,
    as_json: Annotated[bool, typer.Option("--json", help="figures as JSON")] = False,
) -> int:
    """Compare the predictions for DATA with its labels."""
    found, table = rows_for(model, data, label)
    estimator = final_estimator(found)
    y = quality.labels_for(estimator, table.labels(data))
    predicted = found.predict(table.X)
    facts = {"rows": len(y), **quality.figures(estimator, y, predicted)}
    if as_json:
        show(json.dumps(facts))
        return 0
    for name, value in facts.items():
        show(f"{name}: {value:.6g}")
    if is_classifier(estimator):
        show(quality.confusion(y, predicted))
    return 0


@app.command()
def info(
    model: Model,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> int:
    """Show what a model file contains."""
    read = model_files.read(model)
    estimator = read.estimator
    facts: dict[str, Any] = {
        "file": f"{read.format} model file",
        "estimator": type(estimator).__name__,
        "kernel": estimator._kernel.name,
        "features": estimator.n_features_in_,
        "support vectors": len(estimator.support_),
        "duality gap": estimator.gap_,
        "certificate": estimator.certificate_,
        "converged": estimator.converged_,
        "objective": estimator.objective_,
        "solver": estimator.solver_,
    }
    if hasattr(estimator, "classes_"):
        facts["classes"] = text_of(estimator.classes_).decode().split("\n")[:-1]
    if hasattr(estimator, "predict_proba"):
        calibrated = isinstance(estimator, MarginClassifier)
        facts["probabilities"] = "from cross-validated scores" if calibrated else "of the model"
    if isinstance(read.model, Pipeline):
        facts["scaler"] = type(read.model.steps[0][1]).__name__
    defaults = type(estimator)().get_params(deep=False)
    facts["parameters"] = {
        name: repr(value)
        for name, value in estimator.get_params(deep=False).items()
        if repr(value) != repr(defaults[name])
    }
    facts["data"] = {name: value for name, value in read.notes.items() if name != "names"}
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
