"""The section about the importance of features: how much worse predictions are without them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from margrave._sklearn import _safe_indexing
from margrave.report.estimator import Floats, has_posterior
from margrave.report.input import numbers_of
from margrave.report.page import Absent, Section, number, percent, plural
from margrave.report.scored import Scored
from margrave.report.svg import bars, figure
from margrave.rows import in_blocks, is_csr

_MOST_FEATURES = 30  # that are shuffled: those with the largest deviations
_MOST_LISTED = 15
_ROWS = 500
_REPEATS = 3
_MOST_VALUES = 1e9  # kernel values that may be computed
_MOST_CELLS = 5_000_000


def importance(rows: Scored) -> Section | Absent:
    """What shuffling the values of one feature costs."""
    title, estimator = "Importance of features", rows.estimator
    if estimator._kernel.name == "linear":
        return Absent(title, "a linear model has weights, which say more.")
    if rows.precomputed or estimator._kernel.is_callable:
        return Absent(title, "the kernel values are given, or computed by a function.")
    if not rows.has_truth or in_blocks(rows.X) or has_posterior(estimator):
        return Absent(title, "it needs labels, and rows in memory.")
    n_features = len(rows.estimator_names)
    tries = _REPEATS * min(n_features, _MOST_FEATURES) * max(1, len(estimator.support_))
    n = min(rows.n_rows, _ROWS, max(50, int(_MOST_VALUES / tries)))
    if n < 10 or n * n_features > _MOST_CELLS:
        return Absent(title, "there are too few rows, or too many features.")
    rng = np.random.default_rng(0)
    pick = np.sort(rng.choice(rows.n_rows, n, replace=False))
    sample = numbers_of(rows.transformed(_safe_indexing(rows.X, pick)))
    X = sample.toarray() if is_csr(sample) else np.array(sample)
    before = _quality(rows, X, pick)
    tried = np.argsort(-X.std(axis=0), kind="stable")[:_MOST_FEATURES]
    costs = np.array([[before - _shuffled(rows, X, pick, k, rng) for k in tried]
                      for _ in range(_REPEATS)])  # fmt: skip
    order = np.argsort(-costs.mean(axis=0), kind="stable")[:_MOST_LISTED]
    names = [rows.estimator_names[k] for k in tried[order]]
    what = "R2" if rows.is_regressor else "accuracy"
    whole = number(before, 3) if rows.is_regressor else percent(before)
    lead = (
        f"How much {what} is lost on {plural(n, 'row')} when the values of one feature are"
        f" shuffled among them, by a model whose {what} there is {whole}: means of {_REPEATS}"
        " shuffles, with their standard deviations. Features that say the same share their loss."
    )
    if len(tried) < n_features:
        lead += f" Only the {len(tried)} features with the largest deviations were tried."
    unit = f"loss of {what}" + ("" if rows.is_regressor else " (percentage points)")
    scale = 1.0 if rows.is_regressor else 100.0
    mean, deviation = scale * costs.mean(axis=0)[order], scale * costs.std(axis=0)[order]
    return Section(title, lead, [figure(title, bars(title, names, mean, unit, deviation))])


def _shuffled(
    rows: Scored, X: Floats, pick: NDArray[np.intp], k: int, rng: np.random.Generator
) -> float:
    """The quality of predictions when the values of a feature are shuffled."""
    changed = X.copy()
    rng.shuffle(changed[:, k])
    return _quality(rows, changed, pick)


def _quality(rows: Scored, X: Floats, pick: NDArray[np.intp]) -> float:
    """Accuracy, or R2, of predictions for these rows."""
    predicted, truth, weight = rows.call("predict", X), rows.truth[pick], rows.weight[pick]
    if not rows.is_regressor:
        right = np.searchsorted(rows.classes, predicted) == truth
        return float(weight @ right / weight.sum())
    spread = float(weight @ (truth - np.average(truth, weights=weight)) ** 2)
    return 1.0 - float(weight @ (truth - predicted) ** 2) / max(spread, 1e-300)
