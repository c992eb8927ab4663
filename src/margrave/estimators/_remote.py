"""Rows on the workers of an engine: Dask collections, and the ranks of MPI."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite, check_array, column_or_1d

from margrave._sklearn import _check_feature_names
from margrave.engines import is_collection, resolve_engine
from margrave.rows import RemoteRows

F = TypeVar("F", bound=Callable[..., Any])


def prepare(partition: Any) -> tuple[Any, dict[str, Any]]:
    """Validate rows on their worker: returns the array to keep there, and facts for the driver.

    Sums and squares of the rows give the variance for ``gamma="scale"``.
    """
    X = check_array(
        partition,
        accept_sparse="csr",
        accept_large_sparse=True,
        dtype=[np.float64, np.float32],
        ensure_min_samples=0,
    )
    if sparse.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    values = X.data if sparse.issparse(X) else X
    squared = X.multiply(X) if sparse.issparse(X) else np.square(X, dtype=np.float64)
    facts = {
        "sums": np.asarray(X.sum(axis=1, dtype=np.float64)).ravel(),
        "squares": np.asarray(squared.sum(axis=1, dtype=np.float64)).ravel(),
        "largest": float(np.abs(values).max()) if values.size else 0.0,
    }
    return X, facts


def has_remote_rows(engine: Any, X: Any) -> bool:
    """Whether the rows of a fit are on an engine's workers."""
    return is_collection(X) or getattr(engine, "rows_are", "root") == "local"


def bring(estimator: Any, X: Any, y: Any, numbers: bool) -> Any:
    """Validate X on the workers and y here; return (rows, y), or the rows if there is no y."""
    if estimator.kernel == "precomputed":
        raise ValueError("a precomputed kernel matrix must be one array, not a collection")
    engine = remote_engine(estimator.engine)
    rows: RemoteRows = engine.rows(X, prepare)
    if 0 in rows.shape:
        raise ValueError(f"X is empty: it has {rows.shape[0]} rows and {rows.shape[1]} columns")
    _check_feature_names(estimator, getattr(X, "_meta", X), reset=True)
    estimator.n_features_in_ = rows.shape[1]
    if isinstance(y, str) and y == "no_validation":
        return rows
    y = column_or_1d(bring_vector(estimator, y, rows), warn=True)
    assert_all_finite(y, input_name="y")
    return rows, y.astype(np.float64) if numbers else y


def bring_vector(estimator: Any, vector: Any, X: Any) -> Any:
    """Collect targets or weights of rows on workers."""
    if vector is None or not isinstance(X, RemoteRows):
        return vector
    lengths = [int(piece.shape[0]) for piece in X.pieces]
    return remote_engine(estimator.engine).vector(vector, lengths)


def remote_engine(engine: Any) -> Any:
    """The engine whose workers hold the rows; by default Dask's current client."""
    found = resolve_engine("dask" if engine is None else engine, 1)
    if not hasattr(found, "rows"):
        raise ValueError(
            f"rows in a Dask collection need engine=None, 'dask' or a client, got {engine!r}"
        )
    return found


def portable(engine: Any) -> Any:
    """An engine in a form that can be pickled: a Dask client becomes its address."""
    distributed = sys.modules.get("distributed")
    if distributed is None or not isinstance(engine, distributed.Client):
        return engine
    return "dask://" + str(engine.scheduler.address).rpartition("://")[2]


def on_every_rank(fit: F) -> F:
    """Decorate `fit`: under MPI rank 0 is the driver, and all ranks get the fitted model."""

    @functools.wraps(fit)
    def led(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        engine = self.engine if self.engine != "mpi" else resolve_engine("mpi", 1)
        if not hasattr(engine, "everywhere"):
            return fit(self, X, *args, **kwargs)

        def lead() -> dict[str, Any]:
            given, self.engine = self.engine, engine  # the one that the ranks listen to
            try:
                fit(self, X, *args, **kwargs)
            finally:
                self.engine = given
            mine = self.get_params(deep=False)
            leads.append(True)
            return {name: value for name, value in self.__getstate__().items() if name not in mine}

        leads: list[bool] = []
        fitted = engine.everywhere(lead, X, (*args, *kwargs.values()))
        if not leads:
            vars(self).update(fitted)
        return self

    return led  # type: ignore[return-value]


def lazily(method: F) -> F:
    """Decorate a method: for a Dask collection it is lazy and runs on the workers."""

    @functools.wraps(method)
    def applied(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_collection(X):
            return method(self, X, *args, **kwargs)
        return _on_partitions(functools.partial(method, self, *args, **kwargs), X)

    return applied  # type: ignore[return-value]


def _on_partitions(call: Callable[[Any], Any], X: Any) -> Any:
    """Apply a function of rows lazily to each partition of a collection."""
    array, delayed = import_module("dask.array"), import_module("dask").delayed

    example = np.zeros((1, X.shape[1]))
    if hasattr(X, "to_delayed") and hasattr(X, "_meta_nonempty"):  # a data frame keeps its names
        example = X._meta_nonempty[:1].astype(np.float64)
        found = np.asarray(call(example))
        shape = (np.nan, *found.shape[1:])
        parts = [
            array.from_delayed(delayed(call)(part), shape=shape, dtype=found.dtype)
            for part in X.to_delayed()
        ]
        return array.concatenate(parts)
    found = np.asarray(call(example))
    X = X.rechunk({1: -1})
    if found.ndim == 1:
        return X.map_blocks(call, dtype=found.dtype, drop_axis=1, meta=found[:0])
    chunks = (X.chunks[0], (found.shape[1],))
    return X.map_blocks(call, dtype=found.dtype, chunks=chunks, meta=found[:0])
