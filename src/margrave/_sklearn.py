"""Everything that margrave uses of scikit-learn's private modules, so that a new release can break
only this file."""

from __future__ import annotations

from sklearn.calibration import _sigmoid_calibration
from sklearn.metrics._scorer import _MultimetricScorer
from sklearn.model_selection._validation import (
    _insert_error_scores,
    _score,
    _warn_or_raise_about_fit_failures,
)
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import (
    _check_feature_names,
    _check_feature_names_in,
    _check_method_params,
    _check_sample_weight,
    _num_samples,
)

__all__ = [
    "HasMethods",
    "Interval",
    "StrOptions",
    "_MultimetricScorer",
    "_check_feature_names",
    "_check_feature_names_in",
    "_check_method_params",
    "_check_sample_weight",
    "_insert_error_scores",
    "_num_samples",
    "_safe_indexing",
    "_safe_split",
    "_score",
    "_sigmoid_calibration",
    "_warn_or_raise_about_fit_failures",
]
