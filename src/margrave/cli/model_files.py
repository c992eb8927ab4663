"""Model files of the commands: margrave's own format, LIBSVM's and LIBLINEAR's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from sklearn.pipeline import Pipeline

from margrave.cli.data import STANDARD_INPUT
from margrave.estimators import load_libsvm_model, save_libsvm_model
from margrave.estimators._base import KernelEstimator
from margrave.estimators._files import load_with_notes, save
from margrave.io.libsvm_model import is_libsvm_model
from margrave.io.model_file import is_model
from margrave.report.estimator import final_estimator


@dataclass(frozen=True)
class ModelFile:
    """What a model file contains: the model, notes about its training data, and the format."""

    model: KernelEstimator | Pipeline
    notes: dict[str, Any]
    format: str

    @property
    def estimator(self) -> KernelEstimator:
        """The estimator at the end of a pipeline, or the model itself."""
        found: KernelEstimator = final_estimator(self.model)
        return found


def check_output(path: str) -> None:
    """Raise if a file cannot be written, before a long computation."""
    folder = os.path.dirname(os.path.realpath(path))
    if os.path.isdir(path):
        raise IsADirectoryError(21, "is a directory", path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(2, "no such directory", folder)
    place = path if os.path.exists(path) and not os.path.isfile(path) else folder
    if not os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(13, "Permission denied", path)


def chosen_name(output: str | None, data: str) -> str:
    """Name of a model file: as given, or after the rows."""
    if output is None and data == STANDARD_INPUT:
        raise ValueError("rows from standard input: name the model file with -o")
    return output or f"{data}.margrave"


def chosen_format(path: str, format: str, scale: str) -> str:
    """Format of a model file: as given, or according to the file name."""
    if format not in ("auto", "margrave", "libsvm", "liblinear"):
        raise ValueError(f"--format must be margrave, libsvm or liblinear, got {format!r}")
    if format == "auto":
        format = "libsvm" if path.endswith((".libsvm", ".model")) else "margrave"
    if format != "margrave" and scale != "none":
        raise ValueError(
            f"a {format} model file cannot contain a scaler: use --scale none or --format margrave"
        )
    return format


def write(model: KernelEstimator | Pipeline, path: str, format: str, notes: dict[str, Any]) -> None:
    """Write a model file."""
    if format == "margrave":
        save(model, path, notes)
    else:
        save_libsvm_model(model, path, format="auto" if format == "libsvm" else format)


def read(path: str) -> ModelFile:
    """Read a model file of any format."""
    if is_libsvm_model(path):
        model = load_libsvm_model(path)
        format = "LIBSVM" if model._weights is None else "LIBLINEAR"
        return ModelFile(model, {"zero_based": False}, format)
    if not is_model(path):
        raise ValueError(f"{path}: not a model file of margrave, LIBSVM or LIBLINEAR")
    model, notes = load_with_notes(path)
    return ModelFile(model, notes, "margrave")
