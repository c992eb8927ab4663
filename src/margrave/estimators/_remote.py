"""Rows on the workers of an engine: Dask collections, and the ranks of MPI."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from margrave._sklearn import _check_feature_names
from margrave.cuda import in_kind, is_on_card, on_host
from margrave.engines import EngineLike, Recovery, is_collection, resolve_engine
from margrave.engines.cuda import is_card
from margrave.rows import AnyRows, Matrix, RemoteRows, is_csr, is_remote
from margrave.typing import MatrixLike, SparseLike, VectorLike

if TYPE_CHECKING:
    from margrave.estimators._base import KernelEstimator
    from margrave.estimators._input import CheckedInput

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="KernelEstimator")


@runtime_checkable
class RowEngine(Protocol):
    """An engine whose workers can hold the rows of a fit."""

    def rows(
        self, X: MatrixLike, prepare: Callable[[Any], tuple[Matrix, dict[str, Any]]]
    ) -> RemoteRows:
        """Keep the rows of a collection on the workers."""
        ...

    def vector(self, y: VectorLike, lengths: Sequence[int], name: str) -> VectorLike:
        """Fetch an entry per row; `name` is what errors call them."""
        ...


@runtime_checkable
class RankEngine(RowEngine, Protocol):
    """An engine whose workers run the same program, as those of MPI do."""

    rows_are: str  # "local" if each rank has its own

    def everywhere(
        self, lead: Callable[[], R], X: MatrixLike, vectors: Mapping[str, VectorLike | None]
    ) -> R:
        """Run `lead` on rank 0, while all other ranks serve it; its result on all ranks."""
        ...


def prepare(partition: ArrayLike | SparseLike) -> tuple[Matrix, dict[str, Any]]:
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
    rows = canonical(X)
    entries: Any = rows  # with the arithmetic that arrays and CSR matrices have
    values = rows.data if is_csr(rows) else entries
    squared = entries.multiply(entries) if is_csr(rows) else np.square(entries, dtype=np.float64)
    facts = {
        "sums": np.asarray(entries.sum(axis=1, dtype=np.float64)).ravel(),
        "squares": np.asarray(squared.sum(axis=1, dtype=np.float64)).ravel(),
        "largest": float(np.abs(values).max()) if values.size else 0.0,
    }
    return rows, facts


def canonical(X: Matrix) -> Matrix:
    """Return X with the entries of sparse rows sorted and unique; a copy only if they are not."""
    if is_csr(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def has_remote_rows(engine: EngineLike, X: MatrixLike) -> bool:
    """Whether the rows of a fit are on an engine's workers."""
    return is_collection(X) or (isinstance(engine, RankEngine) and engine.rows_are == "local")


def fetch_rows(estimator: CheckedInput, X: MatrixLike) -> RemoteRows:
    """Validate X on the workers."""
    if estimator.kernel == "precomputed":
        raise ValueError("a precomputed kernel matrix must be one array, not a collection")
    rows = remote_engine(estimator.engine).rows(X, prepare)
    if 0 in rows.shape:
        raise ValueError(f"X is empty: it has {rows.shape[0]} rows and {rows.shape[1]} columns")
    _check_feature_names(estimator, X._meta if hasattr(X, "_meta") else X, reset=True)
    estimator.n_features_in_ = rows.shape[1]
    return rows


def fetch_vector(
    estimator: CheckedInput, vector: VectorLike | None, X: AnyRows, name: str
) -> VectorLike | None:
    """Collect targets or weights, the argument `name` of fit, of rows on workers."""
    if vector is None or not is_remote(X):
        return vector
    lengths = [int(piece.shape[0]) for piece in X.pieces]
    return remote_engine(estimator.engine).vector(vector, lengths, name)


def remote_engine(engine: EngineLike) -> RowEngine:
    """The engine whose workers hold the rows; by default Dask's current client."""
    found = resolve_engine("dask" if engine is None else engine, 1)
    if not isinstance(found, RowEngine):
        raise ValueError(
            f"rows in a Dask collection need engine=None, 'dask' or a client, got {engine!r}"
        )
    return found


def portable(engine: EngineLike) -> EngineLike:
    """An engine in a form that can be pickled: a Dask client becomes its address.

    The address keeps its protocol if it is not the usual one: a TLS scheduler answers no other.
    """
    distributed = sys.modules.get("distributed")
    if distributed is None or not isinstance(engine, distributed.Client):
        return engine
    protocol, _, place = str(engine.scheduler.address).rpartition("://")
    return f"dask://{place}" if protocol == "tcp" else f"dask+{protocol}://{place}"


def on_every_rank(
    fit: Callable[Concatenate[S, MatrixLike, P], S],
) -> Callable[Concatenate[S, MatrixLike, P], S]:
    """Decorate `fit`: it survives lost workers; under MPI rank 0 leads, and all get the model."""
    signature = inspect.signature(fit)

    @functools.wraps(fit)
    def led(self: S, X: MatrixLike, *args: P.args, **kwargs: P.kwargs) -> S:
        engine = self.engine if self.engine != "mpi" else resolve_engine("mpi", 1)
        if not isinstance(engine, RankEngine):
            return _steadily(self, lambda: fit(self, X, *args, **kwargs))

        def lead() -> dict[str, Any]:
            given, self.engine = self.engine, engine  # the one that all ranks use
            try:
                _steadily(self, lambda: fit(self, X, *args, **kwargs))
            finally:
                self.engine = given
            mine = self.get_params(deep=False)
            leads.append(True)
            return {name: value for name, value in self.__getstate__().items() if name not in mine}

        leads: list[bool] = []
        # by name: ranks may pass them in any order
        given = signature.bind(self, X, *args, **kwargs).arguments
        vectors = {name: given[name] for name in list(given)[2:]}
        fitted = engine.everywhere(lead, X, vectors)
        if not leads:
            self.__dict__.update(fitted)
        return self

    return led  # type: ignore[return-value]  # X may be a keyword


def _steadily(estimator: KernelEstimator, fit: Callable[[], R]) -> R:
    """The loop of recovery around a whole fit; solvers repeat their own steps.

    Here only what has no checkpoint is repeated, such as fetching labels. It begins with the
    attributes that the estimator had.
    """
    before = dict(vars(estimator))
    recovery = Recovery()

    def begin_anew() -> None:
        estimator.__dict__.clear()
        estimator.__dict__.update(before, _recovery=recovery)

    begin_anew()
    try:
        return recovery.steadily(fit, begin_anew)
    finally:
        estimator.__dict__.pop("_recovery", None)


def lazily(
    method: Callable[Concatenate[S, MatrixLike, P], R],
) -> Callable[Concatenate[S, MatrixLike, P], R]:
    """Decorate a method: for a Dask collection it is lazy and runs on the workers.

    With a graphics card, rows that lie there give results that do.
    """

    @functools.wraps(method)
    def applied(self: S, X: MatrixLike, *args: P.args, **kwargs: P.kwargs) -> R:
        if is_card(self.engine) and is_on_card(X):
            there: R = in_kind(np.asarray(method(self, on_host(X), *args, **kwargs)), X)
            return there
        if not is_collection(X):
            return method(self, X, *args, **kwargs)
        check_is_fitted(self)
        call = functools.partial(method, self, *args, **kwargs)
        later: R = _on_partitions(call, X, self.n_features_in_)
        return later

    return applied  # type: ignore[return-value]  # X may be a keyword


def _on_partitions(call: Callable[[Any], Any], collection: MatrixLike, n_features: int) -> Any:
    """Apply a function of rows lazily to each partition of a collection."""
    array, delayed = import_module("dask.array"), import_module("dask").delayed

    X: Any = collection  # Dask has no types
    is_frame = hasattr(X, "_meta_nonempty")  # it keeps its names
    example = X._meta_nonempty[:1].astype(np.float64) if is_frame else np.zeros((1, n_features))
    found = np.asarray(call(example))
    apply = functools.partial(_of_partition, call, found[:0])
    if hasattr(X, "rechunk"):
        X = X.rechunk({1: -1})
        if found.ndim == 1:
            return X.map_blocks(apply, dtype=found.dtype, drop_axis=1, meta=found[:0])
        chunks = (X.chunks[0], (found.shape[1],))
        return X.map_blocks(apply, dtype=found.dtype, chunks=chunks, meta=found[:0])
    shape = (np.nan, *found.shape[1:])
    parts = [
        array.from_delayed(delayed(apply)(part), shape=shape, dtype=found.dtype)
        for part in (X.to_delayed() if is_frame else X)
    ]
    return array.concatenate(parts)


def _of_partition(call: Callable[[Any], Any], nothing: NDArray[Any], part: Matrix) -> Any:
    """Apply a function to the rows of a partition, which may have none."""
    return call(part) if part.shape[0] else nothing
