"""Save fitted estimators to model files, and load them.

Parameters and fitted attributes are written as JSON values, with arrays stored separately
(:mod:`margrave.io.model_file`):

    null, true, 1, 0.5, "text", [...]      themselves
    {"float": "inf"}                       a float that JSON cannot represent
    {"tuple": [...]}  {"dict": [[k, v]]}   tuples, and dictionaries with any keys
    {"array": name, "order": "C"}          an array of numbers
    {"strings": [...], "dtype": "<U4"}     an array of strings
    {"csr": class, "shape": [n, d], ...}   compressed sparse rows
    {"objects": [...]}                     an array of strings, numbers and missing values
    {"slice": [a, b, c]}  {"type": name}   slices, and NumPy's types of numbers
    {"object": class, ...}                 an object of a class that is listed here

Loading only creates objects of listed classes and validates them, so that no file can run code. New
estimators are supported once they are listed in `margrave.estimators`; new kinds of models or
solvers must be listed here.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)

from margrave import solvers
from margrave.estimators._base import KernelEstimator
from margrave.estimators._check_fitted import check_fitted
from margrave.estimators._margin import Sigmoids
from margrave.io.files import PathLike
from margrave.io.model_file import Arrays, read_model, write_model
from margrave.kernels import Kernel
from margrave.models import Committee, Landmarks, LocalModels, Posterior
from margrave.partitions import Centres, KernelCentres, nearest
from margrave.rows import CSR, is_csr

logger = logging.getLogger("margrave")

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

# dataclasses in fitted attributes
VALUES = {
    cls.__name__: cls
    for cls in (
        *(Kernel, LocalModels, Committee, Landmarks, Posterior),
        *(Centres, KernelCentres, Sigmoids),
    )
}
# parameters that are objects
SOLVERS = {
    name: found
    for name in solvers.__all__
    if isinstance(found := getattr(solvers, name), type) and issubclass(found, BaseEstimator)
}
# steps of a pipeline before an estimator that turn columns into numbers
COLUMNS = {
    cls.__name__: cls
    for cls in (
        *(ColumnTransformer, MissingIndicator, OneHotEncoder, QuantileTransformer),
        *(RobustScaler, SimpleImputer, TargetEncoder),
    )
}
SPLITTERS = {"KFold": KFold}  # their parameters
# steps that scale numbers
SCALERS = {cls.__name__: cls for cls in (MinMaxScaler, MaxAbsScaler, StandardScaler)}


def savable(step: type[BaseEstimator]) -> type[BaseEstimator]:
    """Decorate a transformer of a module above this one: it may be a step of a saved pipeline."""
    SCALERS[step.__name__] = step
    return step


# not saved: early models, the rows of the last fit and of a stream, and scikit-learn's settings
_LEFT_OUT = (
    "_early",
    "_kept",
    "_memory",
    "_slack",
    "_tally",
    "_metadata_request",
    "_sklearn_output_config",
)
_SPARSE = {"csr_matrix": sparse.csr_matrix, "csr_array": sparse.csr_array}
_PLAIN = (str, int, float, type(None))  # what arrays of objects may hold
_DEPTH = 40  # of nested values: far more than any valid file has


def load(path: PathLike) -> Any:
    """Load a model written by `save`.

    Nothing in the file is executed; a file that is damaged, modified or of a later version is
    rejected. Predictions are identical, bit for bit.

    Parameters
    ----------
    path : path-like
        The model file.

    Returns
    -------
    model : estimator or Pipeline
        The fitted estimator, or a pipeline with its scaler if it was trained with one (``margrave
        train --scale``).

    Examples
    --------
    >>> import os, tempfile
    >>> import margrave
    >>> model = margrave.SVC().fit([[0.0], [1.0]], [0, 1])
    >>> path = os.path.join(tempfile.mkdtemp(), "model")
    >>> model.save(path)
    >>> print(*margrave.load(path).predict([[0.1], [0.8]]))
    0 1
    """
    return load_with_notes(path)[0]


def load_with_notes(path: PathLike) -> tuple[Any, dict[str, Any]]:
    """Load a model, and the notes about its training data."""
    description, arrays = read_model(path)
    try:
        decoder = _Decoder(arrays)
        model = decoder.value(_get(description, "model"))
        notes = decoder.value(_get(description, "notes"))
        if not isinstance(model, (Pipeline, BaseEstimator)) or not isinstance(notes, dict):
            raise ValueError("it contains no estimator")
        check_fitted(model)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
        what = str(error) if isinstance(error, ValueError) else repr(error)
        raise ValueError(f"{os.fspath(path)}: the model file is damaged: {what}") from None
    return model, notes


def save(model: BaseEstimator, path: PathLike, notes: dict[str, Any] | None = None) -> None:
    """Write a fitted estimator, or a Pipeline of scalers and an estimator, with some notes."""
    encoder = _Encoder()
    description = {
        "model": encoder.value(model, "model"),
        "notes": encoder.value(notes or {}, "notes"),
    }
    write_model(path, description, encoder.arrays)


def estimators() -> dict[str, type[KernelEstimator]]:
    """All estimators of the package, by name."""
    import margrave.estimators as package

    found = {name: getattr(package, name) for name in package.__all__}
    return {name: cls for name, cls in found.items() if isinstance(cls, type)}


class _Encoder:
    """Turns values into JSON values; arrays are collected in `arrays`, named by their path."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self.is_mixed = False  # whether arrays of objects may hold numbers and None: categories

    def value(self, value: object, place: str) -> Json:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, (list, tuple)):
            items = [self.value(item, f"{place}.{i}") for i, item in enumerate(value)]
            return items if isinstance(value, list) else {"tuple": items}
        if isinstance(value, dict):
            pairs = value.items()
            return {
                "dict": [[self.value(k, place), self.value(v, f"{place}.{k}")] for k, v in pairs]
            }
        if isinstance(value, np.ndarray):
            return self._array(value, place)
        if is_csr(value):
            return self._sparse(value, place)
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if isinstance(value, np.dtype) or (
            isinstance(value, type) and issubclass(value, np.generic)
        ):
            return {"type": np.dtype(value).str}
        return self._object(value, place)

    def _array(self, array: NDArray[Any], place: str) -> Json:
        if array.dtype.kind in "UO":
            items = array.ravel().tolist()
            flat = array.ndim == 1
            if self.is_mixed and flat and all(isinstance(item, _PLAIN) for item in items):
                if not all(isinstance(item, str) for item in items):
                    return {"objects": [self.value(item, place) for item in items]}
            elif not flat or not all(isinstance(item, str) for item in items):
                raise ValueError(f"{place}: only numbers and strings can be saved, not {array!r}")
            return {"strings": items, "dtype": "object" if array.dtype.kind == "O" else "str"}
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise ValueError(f"{place}: arrays of type {array.dtype} cannot be saved")
        # the memory order affects the last bit of products
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        self.arrays[place] = np.ascontiguousarray(array.T if order == "F" else array)
        return {"array": place, "order": order}

    def _sparse(self, matrix: CSR, place: str) -> Json:
        name = type(matrix).__name__
        if name not in _SPARSE:
            raise ValueError(f"{place}: a {name} cannot be saved")
        parts: dict[str, Json] = {
            part: self._array(getattr(matrix, part), f"{place}.{part}")
            for part in ("data", "indices", "indptr")
        }
        return {"csr": name, "shape": [int(side) for side in matrix.shape], **parts}

    def _object(self, value: object, place: str) -> Json:
        name = type(value).__name__
        if SPLITTERS.get(name) is type(value):
            return {"object": name, "parameters": self.value(vars(value), place)}
        if isinstance(value, partial) and value.func is nearest:
            return {"object": "nearest", "places": self.value(value.args[0], f"{place}.places")}
        if isinstance(value, Pipeline):
            return {"object": name, "steps": self.value(list(value.steps), place)}
        if dataclasses.is_dataclass(value) and VALUES.get(name) is type(value):
            if isinstance(value, Kernel) and value.is_callable:
                raise _callable_kernel()
            names = [field.name for field in dataclasses.fields(value)]
            fields = {key: self.value(getattr(value, key), f"{place}.{key}") for key in names}
            return {"object": name, "fields": fields}
        if not isinstance(value, BaseEstimator):
            raise ValueError(f"{place}: a {name} cannot be saved")
        if SOLVERS.get(name) is type(value):
            return {"object": name, "parameters": self._parameters(value, place)}
        if SCALERS.get(name) is type(value):
            fitted = {k: v for k, v in vars(value).items() if k.endswith("_")}
            return self._fitted(value, fitted, place)
        if COLUMNS.get(name) is type(value):
            given = value.get_params(deep=False)
            fitted = {k: v for k, v in vars(value).items() if k not in (*given, *_LEFT_OUT)}
            self.is_mixed, before = True, self.is_mixed
            found = self._fitted(value, fitted, place)
            self.is_mixed = before
            return found
        if name in estimators() and estimators()[name] is type(value):
            if callable(value.kernel):
                raise _callable_kernel()
            state = value.__getstate__()
            given = value.get_params(deep=False)
            fitted = {k: v for k, v in state.items() if k not in given and k not in _LEFT_OUT}
            if "n_features_in_" not in fitted:
                raise ValueError(f"this {name} is not fitted: call fit before save")
            return self._fitted(value, fitted, place)
        raise ValueError(f"{place}: a {name} cannot be saved")

    def _fitted(self, value: BaseEstimator, fitted: dict[str, Any], place: str) -> Json:
        return {
            "object": type(value).__name__,
            "parameters": self._parameters(value, f"{place}.parameters"),
            "fitted": {k: self.value(v, f"{place}.{k}") for k, v in fitted.items()},
        }

    def _parameters(self, value: BaseEstimator, place: str) -> dict[str, Json]:
        """Parameters; those that are code or connections are replaced by None."""
        found: dict[str, Json] = {}
        for name, parameter in value.get_params(deep=False).items():
            code = name == "callbacks" or (name == "engine" and not isinstance(parameter, str))
            if code or isinstance(parameter, (np.random.RandomState, np.random.Generator)):
                if parameter is not None:
                    logger.warning("%s=%r is not part of a model file", name, parameter)
                parameter = None
            found[name] = self.value(parameter, f"{place}.{name}")
        return found


class _Decoder:
    """Turns JSON values back; raises for anything that the encoder does not write."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    def value(self, value: Json, depth: int = 0) -> Any:
        if depth > _DEPTH:
            raise ValueError("values are nested too deeply")
        if isinstance(value, list):
            return [self.value(item, depth + 1) for item in value]
        if not isinstance(value, dict):
            return value
        if "float" in value:
            return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[_get(value, "float", str)]
        if "tuple" in value:
            return tuple(self.value(_get(value, "tuple", list), depth + 1))
        if "dict" in value:
            pairs = self.value(_get(value, "dict", list), depth + 1)
            return dict(pairs)
        if "array" in value:
            array = self.arrays[_get(value, "array", str)]
            return array.T if value.get("order") == "F" else array
        if "strings" in value:
            items = _get(value, "strings", list)
            if not all(isinstance(item, str) for item in items):
                raise ValueError("an array of strings contains something else")
            return np.array(items, dtype=object if value.get("dtype") == "object" else str)
        if "objects" in value:
            found = np.empty(len(_get(value, "objects", list)), dtype=object)
            found[:] = self.value(_get(value, "objects", list))
            return found
        if "slice" in value:
            return slice(*_get(value, "slice", list))
        if "type" in value:
            return np.dtype(_get(value, "type", str))
        if "csr" in value:
            return self._sparse(value)
        return self._object(value, depth + 1)

    def _sparse(self, value: dict[str, Json]) -> CSR:
        parts = [self.value(value[part]) for part in ("data", "indices", "indptr")]
        if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in parts):
            raise ValueError("sparse rows do not consist of arrays")
        shape = tuple(_get(value, "shape", list))
        matrix = _SPARSE[_get(value, "csr", str)](tuple(parts), shape=shape)
        matrix.check_format(full_check=True)
        rows: CSR = matrix
        return rows

    def _object(self, value: dict[str, Json], depth: int) -> Any:
        name = _get(value, "object", str)
        if name == "nearest":
            return partial(nearest, self.value(value["places"], depth))
        if name == "Pipeline":
            return Pipeline([tuple(step) for step in self.value(value["steps"], depth)])
        if name in SPLITTERS:
            return SPLITTERS[name](**self.value(value["parameters"], depth))
        if name in VALUES:
            return VALUES[name](**self._values(value, "fields", depth))
        listed = {**SOLVERS, **SCALERS, **COLUMNS, **estimators()}
        if name not in listed:
            raise ValueError(f"this version of margrave has no {name!r}")
        found = listed[name](**self._values(value, "parameters", depth))
        if name not in SOLVERS:
            vars(found).update(self._values(value, "fitted", depth))
        return found

    def _values(self, value: dict[str, Json], key: str, depth: int) -> dict[str, Any]:
        return {k: self.value(v, depth) for k, v in _get(value, key, dict).items()}


def _get(value: Json, key: str, kind: type = object) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get(key), kind):
        raise ValueError(f"{key!r} is missing")
    return value[key]


def _callable_kernel() -> ValueError:
    return ValueError(
        "a model with a callable kernel cannot be saved: model files contain no code; use a named"
        " kernel, or kernel='precomputed' with the values of your function"
    )
