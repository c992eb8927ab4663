"""Validation of parameters and rows, common to all estimators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from margrave._sklearn import HasMethods, Interval, StrOptions, _check_sample_weight
from margrave.cuda import on_host
from margrave.engines import is_collection, resolve_engine
from margrave.engines.cuda import is_card
from margrave.estimators._remote import canonical, fetch_rows, fetch_vector, has_remote_rows
from margrave.kernels import KERNELS, NUMBERS, Kernel, resolve_kernel
from margrave.resources import parse_bytes, thread_count
from margrave.rows import AnyRows, RowBlocks, as_items, in_blocks, in_memory
from margrave.solvers import SOLVERS, resolve_solver
from margrave.typing import MatrixLike, VectorLike

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
P = ParamSpec("P")
T = TypeVar("T")

# how scikit-learn is to check rows in memory
_ACCEPTED: dict[str, Any] = {
    "accept_sparse": "csr",
    "accept_large_sparse": True,
    "dtype": [np.float64, np.float32],
}
_PLAIN = (np.dtype(np.float64), np.dtype(np.float32))
_FEW_ENTRIES = 10_000  # of rows that are checked without scikit-learn


# LIBSVM's parameters that no estimator has, and what there is instead
_COUNTERPARTS = {
    "cache_size": "use memory_limit (bytes, or for example '4GiB')",
    "shrinking": "not needed, shrinking is automatic",
}


def refuses(**counterparts: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a constructor: unsupported arguments raise a TypeError that names the alternative.

    The signature is unchanged, since scikit-learn reads the parameters from it.
    """
    refused = {**_COUNTERPARTS, **counterparts}

    def decorate(init: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(init)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            for name in kwargs.keys() & refused.keys():
                owner = type(args[0]).__name__
                raise TypeError(f"{owner} has no argument {name!r}: {refused[name]}")
            return init(*args, **kwargs)

        return checked

    return decorate


class CheckedInput(BaseEstimator):  # type: ignore[misc]
    """Checks parameters and rows before anything is computed."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kernel": [StrOptions(set(KERNELS)), callable],
        "gamma": [StrOptions({"scale", "auto"}), Interval(Real, 0.0, None, closed="left")],
        "degree": [Interval(Integral, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "power": [Interval(Real, 0.0, 1.0, closed="right")],
        "solver": [StrOptions({"auto", *SOLVERS}), HasMethods("solve")],
        "engine": [None, str, HasMethods("scatter")],
        "tol": [Interval(Real, 0.0, None, closed="neither")],
        "max_iter": [Interval(Integral, -1, None, closed="left")],
        "time_limit": [None, Interval(Real, 0.0, None, closed="neither")],
        "memory_limit": [None, str, Interval(Integral, 0, None, closed="neither")],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
        "callbacks": [None, callable, list, tuple],
    }

    def _check_parameters(self) -> None:
        """Raise for a wrong parameter before anything is computed."""
        self._validate_params()
        if self.memory_limit is not None:
            parse_bytes(self.memory_limit)
        resolve_solver(self.solver)
        resolve_engine(self.engine, thread_count(self.n_jobs))

    def _check_rows(self, X: MatrixLike, reset: bool = True) -> AnyRows:
        """Validate X without a copy; float32 stays float32."""
        if not reset:
            if isinstance(X, np.ndarray) and self._is_plain(X):
                return X
            check_is_fitted(self)
        if in_blocks(X):
            return self._check_blocks(X, reset)
        items = as_items(X) if callable(self.kernel) else None
        if items is not None:
            return self._check_items(items, reset)
        X = self._on_host(X)
        if reset and has_remote_rows(self.engine, X):
            return fetch_rows(self, X)
        self._refuse_kind(X)
        return canonical(validate_data(self, X, reset=reset, **_ACCEPTED))

    def _is_plain(self, X: NDArray[Any]) -> bool:
        """Whether a few rows for a fitted model need no further checks: they cost more than scores.

        scikit-learn's checks would accept such rows and return them as they are.
        """
        known = vars(self)
        return (
            type(X) is np.ndarray
            and X.dtype in _PLAIN
            and X.ndim == 2
            and X.shape[0] > 0
            and X.size <= _FEW_ENTRIES
            and "gap_" in known
            and X.shape[1] == known["n_features_in_"]
            and "feature_names_in_" not in known
            and isinstance(self.kernel, str)
            and self.kernel != "precomputed"
            and bool(np.isfinite(X).all())
        )

    def _check_training(
        self, X: MatrixLike, y: VectorLike | None, reset: bool = True, numbers: bool = False
    ) -> tuple[AnyRows, NDArray[Any]]:
        """Validate the rows and targets of a fit, which must be `numbers` in a regression."""
        X, y = self._on_host(X), self._on_host(y)
        if in_blocks(X):
            self._refuse_blocks(reset)
        if in_blocks(X) or (reset and has_remote_rows(self.engine, X)):
            rows = self._check_rows(X, reset)
            targets: NDArray[Any] = column_or_1d(fetch_vector(self, y, rows, "y"), warn=True)
            assert_all_finite(targets, input_name="y")
            check_consistent_length(targets, np.empty(rows.shape[0]))
            return rows, targets.astype(np.float64) if numbers else targets
        if not reset:
            check_is_fitted(self)
        items = as_items(X) if callable(self.kernel) else None
        if items is not None:
            targets = column_or_1d(y, warn=True)
            assert_all_finite(targets, input_name="y")
            check_consistent_length(items, targets)
            checked = self._check_items(items, reset)
            return checked, targets.astype(np.float64) if numbers else targets
        self._refuse_kind(X)
        more = {"y_numeric": True} if numbers else {}
        checked, targets = validate_data(self, X, y, reset=reset, **_ACCEPTED, **more)
        self._check_square(checked)
        return canonical(checked), targets

    def _check_items(self, items: AnyRows, reset: bool) -> AnyRows:
        """Rows for a callable kernel that are no vectors of numbers."""
        if items.shape[0] == 0:
            raise ValueError("X is empty: it has no rows")
        if reset:
            self.n_features_in_ = 1
            self.__dict__.pop("feature_names_in_", None)
        return items

    def _check_weights(self, X: AnyRows, sample_weight: VectorLike | None) -> Floats:
        """Sample weights as an array, ones by default."""
        given = fetch_vector(self, self._on_host(sample_weight), X, "sample_weight")
        weight: Floats = _check_sample_weight(
            given, X, dtype=np.float64, allow_all_zero_weights=True
        )
        if not (weight > 0.0).any():
            raise ValueError("Invalid input - all samples have zero or negative weights.")
        if (weight < 0.0).any():
            raise ValueError(
                "Negative values in data passed to `sample_weight`: weights must be at least 0"
            )
        return weight

    def _on_host(self, array: Any) -> Any:
        """An array of the graphics card that computes, in the machine's memory, for checks."""
        return on_host(array) if is_card(self.engine) else array

    def _refuse_kind(self, X: MatrixLike) -> None:
        """Raise for a kind of rows that is not supported here."""
        if is_collection(X):
            raise ValueError(
                "this method needs all rows in one array; fit and predictions take Dask collections"
            )
        if self.kernel == "precomputed" and sparse.issparse(X):
            raise TypeError(
                "Sparse precomputed kernels are not supported: the kernel matrix must be dense"
            )

    def _refuse_blocks(self, reset: bool) -> None:
        """Raise for training rows in blocks where a kernel needs all of them at once."""
        if self.kernel == "linear":
            return
        if not reset:
            raise ValueError(
                f"with kernel={self.kernel!r} the gap needs all rows in one array (it may be"
                " memory-mapped), got rows in blocks"
            )
        if self.kernel == "precomputed" or not getattr(self.solver, "visits_blocks", False):
            raise ValueError(
                "rows in blocks need kernel='linear' or solver=DivideAndConquer(early=...), got"
                f" kernel={self.kernel!r} and solver={self.solver!r}, which need all rows in one"
                " array (it may be memory-mapped)"
            )

    def _check_blocks(self, X: RowBlocks, reset: bool) -> RowBlocks:
        """Validate rows in blocks."""
        if X.shape[0] == 0 or X.shape[1] == 0:
            raise ValueError(f"X is empty: it has {X.shape[0]} rows and {X.shape[1]} columns")
        if reset:
            self.n_features_in_ = X.shape[1]
        elif X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting"
                f" {self.n_features_in_} features as input"
            )
        X.check()
        return X

    def _check_square(self, X: AnyRows) -> None:
        if self.kernel == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"a precomputed kernel matrix must be square, got {X.shape[0]} x {X.shape[1]}"
            )

    def _kernel_for(self, X: AnyRows, weight: Floats) -> Kernel:
        given = {name: getattr(self, name) for name in NUMBERS}
        return resolve_kernel(self.kernel, X=X, sample_weight=weight, **given)


def take(X: AnyRows, rows: Rows, square: bool = False) -> AnyRows:
    """Return these rows of X (and columns, if `square`); X itself if these are all rows."""
    if len(rows) == X.shape[0] and np.array_equal(rows, np.arange(len(rows))):
        return X
    if in_blocks(X):
        raise ValueError(
            "rows in blocks can be neither sorted nor left out: use multi_class='ovr' for several"
            " classes, and no weights of zero"
        )
    some: AnyRows = X[np.ix_(rows, rows)] if square and in_memory(X) else X[rows]
    return some
