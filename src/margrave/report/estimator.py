"""What a report reads of a fitted estimator.

`Model` is every fitted estimator of this package: one that has a dual solution with a certificate,
or one that has a posterior. What only some of them have is found by a function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, Self, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from margrave.kernels import Kernel
from margrave.models import Committee, Landmarks, LocalModels, Posterior
from margrave.progress import Record
from margrave.rows import Matrix
from margrave.typing import MatrixLike

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Floats = NDArray[np.float64]
RowNumbers = NDArray[np.intp]
T = TypeVar("T")


class Fitted(Protocol):
    """What all fitted estimators have."""

    n_jobs: int | None
    n_features_in_: int
    classes_: NDArray[Any]  # only of classifiers
    intercept_: Floats
    support_: RowNumbers  # not of posteriors over feature weights
    objective_: float
    gap_: float
    converged_: bool
    certificate_: str
    solver_: str
    n_iter_: int | NDArray[np.int32]
    history_: list[Record]
    _kernel: Kernel
    _n_rows: int
    _local: LocalModels | Committee | None  # the models of the parts, if it consists of them

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name."""
        ...

    def set_params(self, **parameters: object) -> Self:
        """Change parameters."""
        ...

    @property
    def support_vectors_(self) -> Matrix:
        """The support vectors; an AttributeError says why there are none."""
        ...

    def _check_rows(self, X: MatrixLike, *, reset: bool) -> Any: ...


class DualModel(Fitted, Protocol):
    """An estimator with a dual solution and its certificate."""

    tol: float
    objectives_: Floats
    gaps_: Floats
    n_support_: NDArray[np.int32]
    _absolute_gaps: Floats
    _scheme: str | None  # "ovo" where problems are pairs of classes
    _part_support: list[RowNumbers]  # only of models of parts

    @property
    def coef_(self) -> Matrix:
        """Weights of the features."""
        ...

    @property
    def _dual(self) -> Floats: ...


class PosteriorModel(Fitted, Protocol):
    """An estimator with samples of a posterior."""

    posterior_: Posterior
    diagnostics_: dict[str, float]
    n_draws_: int
    _landmarks: Landmarks | None


Model: TypeAlias = DualModel | PosteriorModel


class Search(TypedDict):
    """The settings that a search has tried, and their scores."""

    metric: str
    names: list[str]
    settings: list[list[Any]]
    mean: Sequence[float]
    deviation: Sequence[float]
    splits: Sequence[int]
    # of a search within a time: seconds, rows and score whenever the best score rose
    course: NotRequired[list[list[float]]]


class Metric(Protocol):
    """A transformer that has learned a metric."""

    metric_: Floats
    feature_importances_: Floats


def has_posterior(model: Model) -> TypeIs[PosteriorModel]:
    """Whether a model has a posterior instead of a dual solution."""
    return hasattr(model, "posterior_")


def final_estimator(model: T | Pipeline) -> T:
    """The estimator at the end of a pipeline, or the model itself."""
    found: T = model.steps[-1][1] if isinstance(model, Pipeline) else model
    return found


def feature_names(model: object) -> Sequence[str] | None:
    """Names of the features in training, if there were any."""
    return model.feature_names_in_ if hasattr(model, "feature_names_in_") else None


def model_of_parts(model: Model) -> DualModel | None:
    """The model itself if it consists of parts, or else the last one of parts during its fit."""
    early: DualModel | None = model.early_ if hasattr(model, "early_") else None
    for found in (model, early):
        if found is not None and not has_posterior(found) and found._local is not None:
            return found
    return None


def search_of(model: Model) -> Search | None:
    """The search that has chosen the parameters, if there was one."""
    found: Search | None = vars(model).get("tuning_")
    return found


def class_weights(model: Model) -> Floats | None:
    """Factors of C for each class, if the classes have weights."""
    found: Floats | None = vars(model).get("class_weight_")
    return None if found is None or np.all(found == 1.0) else found


def tube(model: Model) -> float | None:
    """Half width of the insensitive tube: found by the fit, or given."""
    given: float | None = model.get_params(deep=False).get("epsilon")
    found: float | None = vars(model).get("epsilon_", given)
    return found
