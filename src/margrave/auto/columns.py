"""From a table with categories and gaps to numbers, by scikit-learn's transformers.

    numbers                     median for missing values, with an indicator; standardised, robustly
                                where heavy-tailed, or their normal scores (style "normal")
    categories, few levels      one column per level; unknown ones have none
    categories, many levels     the mean target of the level, cross-fitted

Sparse rows are only divided by the largest entry of each column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    OneHotEncoder,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.utils import check_array

from margrave.typing import MatrixLike

STYLES = ("standard", "normal")  # of numbers
_FEW_LEVELS = 30
_HEAVY = 30.0  # kurtosis from which on the median and the quartiles are used
_QUANTILES = 1000

Columns = Sequence[int] | Sequence[str]


@dataclass(frozen=True)
class Kinds:
    """Positions of a table's columns, by how they are treated."""

    plain: list[int]  # numbers
    heavy: list[int]  # numbers with heavy tails
    few: list[int]  # categories with few levels
    many: list[int]  # categories with many levels


def is_frame(X: MatrixLike) -> bool:
    """Whether a table has typed columns: a pandas or polars data frame."""
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def checked_table(X: MatrixLike) -> Any:
    """A table with numbers that are finite or missing, else ValueError; frames stay frames."""
    if is_frame(X):
        frame: Any = X
        if frame.shape[0] == 0 or frame.shape[1] == 0:
            raise ValueError(f"the table is empty: its shape is {tuple(frame.shape)}")
        return frame
    if sparse.issparse(X):
        return check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    rows = np.asarray(X)
    if rows.dtype.kind in "OUS":
        try:
            return check_array(X, ensure_all_finite="allow-nan", dtype=np.float64)
        except (ValueError, TypeError) as error:
            if rows.ndim != 2 or not any(isinstance(v, str) for v in rows.ravel()[:10_000]):
                raise
            del error
            return check_array(X, dtype=object, ensure_all_finite=False)
    return check_array(X, ensure_all_finite="allow-nan", dtype=[np.float64, np.float32])


def column(X: Any, place: int) -> NDArray[Any]:
    """One column as an array: numbers as float64, anything else as objects."""
    if hasattr(X, "iloc"):
        values: Any = X.iloc[:, place]
    elif is_frame(X):
        values = X[:, place]
    else:
        values = X[:, place]
    array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    return array.astype(object)


def kinds_of(X: Any, categorical: Columns | NDArray[np.bool_] | None) -> Kinds:
    """Divide the columns of a checked table; `categorical` adds numbers that are categories."""
    given = _places(X, categorical)
    if sparse.issparse(X):
        if given:
            raise ValueError("categorical_features: sparse rows consist of numbers")
        return Kinds(list(range(X.shape[1])), [], [], [])
    kinds = Kinds([], [], [], [])
    for place in range(X.shape[1]):
        values = column(X, place)
        name = X.columns[place] if is_frame(X) else place
        dtype = X.dtypes.iloc[place] if hasattr(X, "iloc") else None
        is_level = place in given or str(dtype) == "category"
        if not is_level and values.dtype.kind == "O":
            numbers = _as_numbers(values)
            is_level = numbers is None
            values = values if numbers is None else numbers
        if is_level:
            levels = len({v for v in values.tolist() if v is not None and v == v})
            (kinds.few if levels <= _FEW_LEVELS else kinds.many).append(place)
            continue
        if np.isinf(values).any():
            raise ValueError(f"column {name!r} contains infinite values")
        (kinds.heavy if _is_heavy(values) else kinds.plain).append(place)
    return kinds


def _as_numbers(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """Objects that are numbers or missing, as numbers; None if there is anything else."""
    known = [v for v in values.tolist() if v is not None and v == v]
    if any(isinstance(v, (str, bytes)) for v in known):
        return None
    try:
        return np.array([np.nan if v is None or v != v else float(v) for v in values.tolist()])
    except (TypeError, ValueError):
        return None


def _places(X: Any, categorical: Columns | NDArray[np.bool_] | None) -> set[int]:
    if categorical is None:
        return set()
    given = list(np.asarray(categorical).tolist())
    if len(given) == X.shape[1] and all(isinstance(one, bool) for one in given):
        return {place for place, one in enumerate(given) if one}
    names = list(X.columns) if is_frame(X) else []
    found = set()
    for one in given:
        if isinstance(one, str) and one in names:
            found.add(names.index(one))
        elif isinstance(one, int) and not isinstance(one, bool) and 0 <= one < X.shape[1]:
            found.add(one)
        else:
            raise ValueError(f"categorical_features: there is no column {one!r}")
    return found


def _is_heavy(values: NDArray[np.float64]) -> bool:
    """Whether a few entries are so far out that they would decide the standard deviation."""
    known = values[~np.isnan(values)]
    spread = known.std() if len(known) else 0.0
    low, high = np.quantile(known, [0.25, 0.75]) if len(known) else (0.0, 0.0)
    if not spread > 0.0 or not high > low:
        return False
    return bool((((known - known.mean()) / spread) ** 4).mean() > _HEAVY)


def transformer(kinds: Kinds, style: str, n_rows: int, is_sparse: bool) -> BaseEstimator:
    """The first step of a pipeline, not yet fitted."""
    if is_sparse:
        return MaxAbsScaler()
    numbers = [*kinds.plain, *kinds.heavy]
    parts: list[tuple[str, Pipeline, list[int]]] = []

    def add(name: str, places: list[int], *steps: BaseEstimator) -> None:
        if places:
            parts.append((name, make_pipeline(*steps), sorted(places)))

    if style == "normal":
        quantiles = min(_QUANTILES, n_rows)
        normal = QuantileTransformer(
            n_quantiles=quantiles, output_distribution="normal", random_state=0
        )
        add("numbers", numbers, _imputer(), normal, StandardScaler())
    else:
        add("numbers", kinds.plain, _imputer(), StandardScaler())
        add("heavy_tailed", kinds.heavy, _imputer(), RobustScaler(unit_variance=True))
    levels = OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.float32)
    add("categories", kinds.few, levels)
    means = TargetEncoder(cv=KFold(min(5, n_rows), shuffle=True, random_state=0))
    add("many_levels", kinds.many, means, StandardScaler())
    return ColumnTransformer(parts, sparse_threshold=0.0)


def _imputer() -> SimpleImputer:
    return SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
