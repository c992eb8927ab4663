"""How much each column of a table matters in the metric of a pipeline."""

from __future__ import annotations

import numpy as np
from sklearn.pipeline import Pipeline

from margrave.estimators._input import Floats


def importances(pipeline: Pipeline, n_columns: int) -> Floats:
    """Importance of each column: the largest of the features made of it; ones without a metric."""
    if "metric" not in pipeline.named_steps:
        return np.ones(n_columns)
    features: Floats = pipeline.named_steps["metric"].feature_importances_
    step = pipeline[0]
    if not hasattr(step, "transformers_"):
        return features
    found = np.zeros(n_columns)
    for name, part, places in step.transformers_:
        if name == "remainder":
            continue
        at = step.output_indices_[name]
        origins = _origins(part, list(places), at.stop - at.start)
        for place, value in zip(origins, features[at], strict=True):
            found[place] = max(found[place], value)
    return found


def _origins(part: Pipeline, places: list[int], count: int) -> list[int]:
    """The table's column behind each output of a part of the first step."""
    step = part[0]
    if hasattr(step, "encodings_"):
        each = count // len(places)
        return [place for place in places for _ in range(each)]
    if hasattr(step, "categories_"):
        counts = [len(levels) for levels in step.categories_]
        return [place for place, k in zip(places, counts, strict=True) for _ in range(k)]
    gaps = [] if step.indicator_ is None else [places[i] for i in step.indicator_.features_]
    return [*places, *gaps]
