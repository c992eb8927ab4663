"""Sections about the model: feature weights, support vectors, parts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave.report.axis import Axis
from margrave.report.estimator import DualModel, Floats, has_posterior
from margrave.report.features import Features
from margrave.report.page import (
    Absent,
    Content,
    Markup,
    Section,
    Table,
    beside,
    note,
    number,
    plural,
    short,
)
from margrave.report.scored import Scored, margins_of
from margrave.report.svg import Line, bars, figure, steps
from margrave.rows import Matrix, is_csr

_MOST_VECTORS = 10
_CANDIDATES = 200  # among equal coefficients, candidates for the smallest margins
_MOST_LISTED = 15


def weights(rows: Scored) -> Section | Absent:
    """The largest feature weights of a linear model."""
    title, estimator = "Feature weights", rows.estimator
    if estimator._kernel.name != "linear" or estimator._local is not None:
        return Absent(title, "only linear models that are not made of parts have feature weights.")
    if has_posterior(estimator):
        return Absent(title, "see the posterior, which has their standard deviations.")
    coef = estimator.coef_
    found = coef.toarray() if is_csr(coef) else np.asarray(coef)
    names = rows.estimator_names
    values = found[0] if len(found) == 1 else np.sqrt((found**2).sum(axis=0))
    order = np.argsort(-np.abs(values), kind="stable")[:_MOST_LISTED]
    what = "weight" if len(found) == 1 else f"norm over {len(found)} problems"
    picture = bars(title, [names[i] for i in order], values[order], what)
    lead = f"The {len(order)} largest of {plural(len(values), 'weight')}."
    if rows.is_classifier and len(found) == 1:
        lead += f" Positive weights favour class {short(rows.classes[1], 40)}."
    lead += " They are comparable only if the features have the same scale."
    return Section(title, lead, [figure("Largest weights", picture)])


def support(rows: Scored) -> Section | Absent:
    """The support vectors with the largest coefficients."""
    title, estimator = "Most influential support vectors", rows.estimator
    if has_posterior(estimator):
        return Absent(title, "a posterior is over weights; there are no dual coefficients.")
    if not len(estimator.support_):
        return Absent(title, "the model consists of feature weights and stores no support vectors.")
    try:
        vectors = None if rows.precomputed else estimator.support_vectors_
    except AttributeError as reason:
        return Absent(title, f"{reason}.")
    size = np.abs(estimator._dual).max(axis=0)
    what = "margin" if rows.is_classifier else "prediction" if rows.is_regressor else "score"
    lead = plural(len(size), "support vector")
    if estimator.certificate_ != "none":
        lead += f" among {plural(estimator._n_rows, 'training row')}"
    lead += "; these have the largest coefficients. Wrong labels and outliers are often among them."
    equal = int(np.sum(size >= size.max() * (1 - 1e-9)))
    residuals = _residuals(rows, estimator)
    if equal > 1:
        lead += f" {equal:,} share the largest coefficient"
        if not rows.is_regressor:
            lead += f"; those with the smallest {what}s come first."
        elif residuals is not None:
            lead += "; those with the largest residuals come first."
        else:
            lead += "; a report about the training rows would show those with large residuals."
    after = note(f"Feature values are those after {', '.join(rows.steps)}.") if rows.steps else None
    return Section(title, lead, [_vectors(rows, estimator, vectors, size, what, residuals), after])


def _residuals(rows: Scored, estimator: DualModel) -> Floats | None:
    """Residuals of the support vectors, if a regressor is shown with its training rows."""
    if not (rows.is_regressor and rows.of_the_fit):
        return None
    return np.asarray((rows.truth - rows.predicted)[estimator.support_])


def _vectors(
    rows: Scored,
    estimator: DualModel,
    vectors: Matrix | None,
    size: Floats,
    what: str,
    residuals: Floats | None,
) -> Markup:
    """A table of the vectors with the largest coefficients."""
    dual, labels, scores, usual = estimator._dual, None, None, Features()
    if rows.is_classifier:
        labels = np.repeat(np.arange(len(rows.classes)), estimator.n_support_)
    rounded, large = np.round(size, 12), np.zeros(len(size))
    if residuals is not None:
        large = np.abs(residuals)
    first = np.lexsort((-large, -rounded))[:_CANDIDATES]
    if vectors is not None:
        scores = _scores(rows, vectors[first], None if labels is None else labels[first])
        usual.add(vectors)
    # among equal coefficients the smallest margin, or the largest residual, comes first
    worse = -large[first] if scores is None or rows.is_regressor else scores
    columns = ["row", "coefficient", what, "most unusual features"]
    if labels is not None:
        columns.insert(1, "class")
    if residuals is not None:
        columns.insert(-1, "residual")
    table = Table(columns, ["row", "coefficient", what, "residual"])
    for place in np.lexsort((worse, -rounded[first]))[:_MOST_VECTORS]:
        v = first[place]
        label = [] if labels is None else [short(rows.classes[labels[v]], 30)]
        coefficient = float(dual[np.argmax(np.abs(dual[:, v])), v])
        shown = "unknown" if scores is None else number(scores[place], 3)
        leading = "" if vectors is None else _leading(rows.estimator_names, usual, vectors[[v]])
        apart = [] if residuals is None else [number(residuals[v], 3)]
        table.add(
            number(estimator.support_[v]), *label, number(coefficient), shown, *apart, leading
        )
    return table.html()


def _scores(rows: Scored, vectors: Matrix, own: NDArray[np.integer[Any]] | None) -> NDArray[Any]:
    """Margins of support vectors of these classes, or their predictions."""
    if rows.is_regressor:
        return rows.call("predict", vectors)
    scores = rows.call("decision_function", vectors)
    return scores if own is None else np.nan_to_num(margins_of(scores, own))


def _leading(names: list[str], usual: Features, vector: Matrix) -> str:
    """The features in which a vector differs most from the mean of all vectors, with its values."""
    values = np.asarray(vector.toarray() if is_csr(vector) else vector).ravel()
    far = np.abs(values - usual.mean) / np.maximum(usual.deviation, 1e-300)
    order = np.argsort(-np.where(usual.deviation > 0.0, far, 0.0), kind="stable")[:3]
    return ", ".join(f"{short(names[i], 24)} = {number(values[i], 3)}" for i in order)


def parts(rows: Scored) -> Section | Absent:
    """Levels and sizes of the parts."""
    title, estimator, divided = "Parts", rows.estimator, rows.divided
    levels = [record for record in estimator.history_ if "parts" in record]
    if divided is None and not levels:
        return Absent(title, "the solver did not divide the rows.")
    body: list[Content] = []
    columns = ["level", "parts", "rows of a part", "support vectors", "gap", "seconds"]
    table = Table(columns, columns[1:])
    for record in levels[-_MOST_LISTED:]:
        sizes = ""
        if "largest_part" in record:
            sizes = f"{number(record['smallest_part'])} to {number(record['largest_part'])}"
        where = str(record.get("where", "")).rpartition(",")[0]
        known = [number(record["support"]), number(record["gap"], 3), number(record["seconds"], 3)]
        table.add(short(where or "parts"), number(record["parts"]), sizes, *known)
    if levels:
        body.append(table.html())
    lead = "The rows were divided into parts, which were solved separately and then combined."
    if divided is not None:
        if divided is estimator:
            lead += " The model consists of the parts of the last level."
        else:
            lead += " The figures show the last model of parts; the final model is of all rows."
        body.append(beside(*_sizes(rows, divided)))
    return Section(title, lead, body)


def _sizes(rows: Scored, divided: DualModel) -> list[Markup]:
    held = np.array([len(own) for own in divided._part_support])
    pictures = [_sorted("Support vectors of each part", held, "support vectors")]
    if rows.parts is not None:
        counts = np.bincount(rows.parts, rows.weight, len(held))
        pictures.insert(0, _sorted("Rows of this data in each part", counts, "rows"))
    return pictures


def _sorted(title: str, sizes: NDArray[Any], what: str) -> Markup:
    """Sizes from the largest to the smallest; means of groups if there are very many."""
    sizes = np.sort(sizes)[::-1]
    edges = np.unique(np.linspace(0, len(sizes), min(len(sizes), 100) + 1).round().astype(int))
    heights = [float(sizes[a:b].mean()) for a, b in pairwise(edges)]
    axis = Axis("parts, the largest first", 0.0, float(len(sizes)))
    return figure(title, steps(title, [Line(what, edges, heights)], axis, what))
