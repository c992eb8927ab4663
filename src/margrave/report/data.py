"""The section about the data."""

from __future__ import annotations

import numpy as np

from margrave.report.estimator import class_weights, has_posterior
from margrave.report.page import (
    Content,
    Markup,
    Section,
    Table,
    bar,
    beside,
    counted,
    joined,
    note,
    number,
    percent,
    plural,
    short,
    tag,
)
from margrave.report.scored import Scored

_MOST_FEATURES = 12
_MOST_CLASSES = 20
_MOST_LISTED = 15  # if there are more classes than that
_ORIGIN = {
    True: "They are the training rows: figures for new rows are usually worse.",
    False: "They are not the training rows, but may include some of them, which would make the"
    " figures too optimistic.",
    None: "It is unknown whether the model was trained on them; if so, the figures are too"
    " optimistic.",
}


def data(rows: Scored) -> Section:
    """Rows, features, classes and weights."""
    n, d = rows.n_rows, rows.X.shape[1]
    found = rows.features
    facts = Table(["", "value"], ["value"])
    facts.add("rows", number(n))
    facts.add("kernel values per row" if rows.precomputed else "features", number(d))
    filled = float(np.sum(found.filled)) / (n * d)
    facts.add("nonzero entries", percent(filled))
    if not rows.precomputed:
        constant = int(np.sum(found.low == found.high))
        facts.add("constant features", number(constant))
        facts.add("features that are always zero", number(int(np.sum(found.filled == 0))))
    if not rows.has_weights:
        facts.add("weights", "every row counts once")
    else:
        low, high = number(rows.weight.min()), number(rows.weight.max())
        facts.add("weights", f"from {low} to {high}, sum {number(rows.weight.sum())}")
        facts.add("rows of weight zero", number(int(np.sum(rows.weight == 0.0))))
    if rows.is_regressor:
        middle = [number(v) for v in rows.quantiles(rows.truth, [0.0, 0.5, 1.0])]
        facts.add("targets", f"from {middle[0]} to {middle[2]}, median {middle[1]}")
    parts: list[Content] = [facts.html()]
    if rows.has_truth and not rows.is_regressor:
        parts.append(_class_table(rows))
    body: list[Content] = [beside(*parts)]
    if not rows.precomputed:
        body += [tag("h3", "Features"), _feature_table(rows)]
    return Section("Data", f"The rows used for this report. {_ORIGIN[rows.of_the_fit]}", body)


def _feature_table(rows: Scored) -> list[Content]:
    found, names = rows.features, rows.feature_names
    columns = ["feature", "minimum", "mean", "maximum", "std. deviation", "nonzero"]
    table = Table(columns, columns[1:])
    for i in range(min(len(names), _MOST_FEATURES)):
        low, high, deviation = found.low[i], found.high[i], found.deviation[i]
        mean = found.mean[i] if abs(found.mean[i]) > 1e-12 * deviation else 0.0  # rounding
        filled = percent(float(found.filled[i]) / found.count)
        table.add(
            short(names[i], 60), *(number(v, 3) for v in (low, mean, high, deviation)), filled
        )
    more = len(names) - _MOST_FEATURES
    return [table.html(), note(f"And {plural(more, 'more feature')}.") if more > 0 else None]


def _class_table(rows: Scored) -> Markup:
    """Class frequencies, with class weights and support vectors of the fit."""
    estimator = rows.estimator
    counts = np.bincount(rows.truth, rows.weight, len(rows.classes))
    total = counts.sum()
    factors, vectors = class_weights(estimator), None
    columns = ["class", "rows", "share"]
    if factors is not None:
        columns.insert(3, "weight in the fit")
    if rows.is_classifier and not has_posterior(estimator) and estimator.n_support_.any():
        vectors = estimator.n_support_
        columns.append("support vectors")
    table = Table(columns, ["rows", "share", "weight in the fit", "support vectors"])
    order = np.arange(len(counts))
    if len(counts) > _MOST_CLASSES:
        order = np.argsort(-counts, kind="stable")[:_MOST_LISTED]
    for c in order:
        share = counts[c] / total
        drawn = joined([bar(share), " ", percent(share)])
        cells_: list[str] = [short(rows.classes[c], 60), counted(counts[c]), drawn]
        if factors is not None:
            cells_.append(number(factors[c]))
        if vectors is not None:
            cells_.append(number(vectors[c]))
        table.add(*cells_)
    more = len(counts) - len(order)
    after = note(f"And {plural(more, 'smaller class')}.") if more else None
    return tag("div", table.html(), after)
