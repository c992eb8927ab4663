"""Sections about predictions: margins, confusion matrix, residuals, curves."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from margrave.report.axis import Axis
from margrave.report.estimator import Floats, tube
from margrave.report.page import (
    Absent,
    Markup,
    Section,
    Table,
    beside,
    counted,
    note,
    number,
    percent,
    short,
)
from margrave.report.scored import MOST_CURVES, Scored
from margrave.report.svg import Line, cells, dots, figure, lines, steps

_BINS = 48
_MOST_CLASSES = 20  # up to which the confusion matrix has a row for each
_GROUPS = 40  # rows of the confusion matrix if there are more classes
_MOST_WORDS = 12  # classes whose counts fit into the cells
_MOST_LISTED = 15

Group: TypeAlias = slice | NDArray[np.bool_]  # rows of a distribution


def margins(rows: Scored) -> Section | Absent:
    """Distribution of the margins."""
    if rows.is_regressor:
        return Absent("Margins", "a regression model has residuals instead.")
    if not rows.is_classifier:
        return _one_class_scores(rows)
    k, found = len(rows.classes), rows.margins
    groups: dict[str, Group] = {"all classes": slice(None)}
    marks = [0.0]
    what = "the score of a row's own class minus the best score of the others"
    more = ""
    if k == 2:
        groups = {str(rows.classes[c]): rows.truth == c for c in range(k)}
        marks, what = [0.0, 1.0], "y f(x), with y = +1 or \u22121"
        more = " Margins above 1 (dashed) have no hinge loss."
    lead = (
        f"The margin of a row is {what}. Rows with a negative margin (shaded) are misclassified:"
        f" {percent(rows.share(found < 0))} of the rows.{more}"
    )
    picture = _distribution(rows, "Margin distribution", found, "margin", marks, groups, 1.1)
    table, listed = _margin_table(rows)
    return Section("Margins", lead, [beside(picture, table), listed])


def _margin_table(rows: Scored) -> tuple[Markup, Markup | None]:
    columns = ["class", "wrong", "lowest 10 %", "median", "highest 10 %"]
    table = Table(columns, columns[1:])
    wrong = rows.margins < 0
    listed, which = _worst(rows, wrong)
    for c in listed:
        own = rows.truth == c
        middle = [number(v, 3) for v in rows.quantiles(rows.margins, [0.1, 0.5, 0.9], own)]
        missed = float(rows.weight @ (own & wrong)) / float(rows.weight @ own)
        table.add(short(rows.classes[c], 40), percent(missed), *middle)
    return table.html(), which


def _one_class_scores(rows: Scored) -> Section:
    found, nu = rows.scores[:, 0], rows.estimator.get_params(deep=False)["nu"]
    lead = (
        "Rows with a negative decision value (shaded) are predicted to be outliers:"
        f" {percent(rows.share(found < 0))} of the rows. With the given nu, about"
        f" {percent(nu)} of the training rows are outliers."
    )
    picture = _distribution(rows, "Distribution of scores", found, "decision value", [0.0])
    return Section("Scores", lead, [picture])


def _distribution(
    rows: Scored,
    title: str,
    values: Floats,
    x_title: str,
    marks: list[float],
    groups: dict[str, Group] | None = None,
    least_high: float = 0.0,
    shaded: bool = True,
) -> Markup:
    """A histogram with groups of rows in different colours; the outer bins include the tails."""
    # a few extreme rows must not squeeze the rest into one bar
    low, high = rows.quantiles(values, [0.002, 0.998])
    low, high = min(low, 0.0), max(high, least_high)
    room = 0.02 * (high - low) or 0.5
    axis = Axis(x_title, low - room, high + room)
    edges = np.linspace(axis.low, axis.high, _BINS + 1)
    inside, total = np.clip(values, axis.low, axis.high), rows.weight.sum()
    series = []
    for colour, (name, which) in enumerate((groups or {"rows": slice(None)}).items(), 1):
        counts, _ = np.histogram(inside[which], edges, weights=rows.weight[which])
        series.append(Line(name, edges, 100.0 * counts / total, colour))
    wrong_below = 0.0 if shaded else None
    picture = steps(title, series, axis, "share of rows (%)", marks, wrong_below)
    return figure(title, picture, _legend(series) if len(series) > 1 else [])


def confusion(rows: Scored) -> Section | Absent:
    """Labels against predictions."""
    title = "Confusion matrix"
    if rows.is_regressor:
        return Absent(title, "a regression model has no classes; see its residuals.")
    if not rows.has_truth:
        return Absent(title, "there are no labels +1 and \u22121 to compare with.")
    k = len(rows.classes)
    counts = metrics.confusion_matrix(
        rows.truth, rows.predicted, labels=np.arange(k), sample_weight=rows.weight
    )
    right, total = float(np.trace(counts)), float(counts.sum())
    lead = (
        f"Rows are the labels, columns the predictions; {percent(right / total)} are on the"
        " diagonal. The stronger the colour of a cell, the larger its share of its row."
    )
    if not total - right:
        lead += " No row is misclassified."
    names = [str(name) for name in rows.classes]
    if k <= _MOST_CLASSES:
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
        texts = [[counted(v) if v and k <= _MOST_WORDS else "" for v in row] for row in counts]
        what = "Labels against predictions"
        picture = cells(what, shares, names, names, "label", "predicted", texts)
        shown = figure(what, picture)
    else:
        shown = _grouped(counts, k)
        lead += f" There are {k} classes: several consecutive labels share a cell."
    table, more = _per_class(rows, counts)
    return Section(title, lead, [beside(shown, table), more, _pairs(counts, names)])


def _grouped(counts: NDArray[Any], k: int) -> Markup:
    """The confusion matrix of many classes, in groups of consecutive labels."""
    ends = np.unique(np.linspace(0, k, min(k, _GROUPS) + 1).round().astype(int))[:-1]
    grouped = np.add.reduceat(np.add.reduceat(counts, ends, axis=0), ends, axis=1)
    shares = grouped / np.maximum(grouped.sum(axis=1, keepdims=True), 1e-300)
    places = [f"{first + 1}" for first in ends]
    title, axes = "Labels against predictions, in groups", ("label number", "predicted")
    return figure(title, cells(title, np.sqrt(shares), places, places, *axes))


def _per_class(rows: Scored, counts: NDArray[Any]) -> tuple[Markup, Markup | None]:
    found = np.diag(counts)
    actual, predicted = counts.sum(axis=1), counts.sum(axis=0)
    listed, more = _worst(rows, rows.truth != rows.predicted)
    table = Table(["class", "rows", "recall", "precision"], ["rows", "recall", "precision"])
    for c in listed:
        precision = percent(found[c] / predicted[c]) if predicted[c] else "never predicted"
        recall = percent(found[c] / actual[c])
        table.add(short(rows.classes[c], 40), counted(actual[c]), recall, precision)
    return table.html(), more


def _worst(rows: Scored, wrong: NDArray[np.bool_]) -> tuple[list[int], Markup | None]:
    """Classes to list: all that have rows, or if there are many, those with most errors."""
    weights = np.bincount(rows.truth, rows.weight, len(rows.classes))
    present = np.flatnonzero(weights)
    if len(present) <= _MOST_CLASSES:
        return present.tolist(), None
    missed = np.bincount(rows.truth, rows.weight * wrong, len(rows.classes))[present]
    worst = present[np.argsort(-missed / weights[present], kind="stable")[:_MOST_LISTED]]
    return worst.tolist(), note(
        f"The {_MOST_LISTED} of {len(present)} classes with the highest error rates."
    )


def _pairs(counts: NDArray[Any], names: list[str]) -> list[Markup] | None:
    """The most frequent errors, if there are too many classes to read the matrix."""
    if len(counts) <= _MOST_WORDS:
        return None
    mistakes = counts - np.diag(np.diag(counts))
    order = np.argsort(-mistakes, axis=None, kind="stable")[:_MOST_LISTED]
    table = Table(
        ["label", "predicted", "rows", "share of the label"], ["rows", "share of the label"]
    )
    for i, j in zip(*np.unravel_index(order, mistakes.shape), strict=True):
        if mistakes[i, j] > 0.0:
            share = mistakes[i, j] / counts[i].sum()
            table.add(
                short(names[i], 40), short(names[j], 40), counted(mistakes[i, j]), percent(share)
            )
    return [note("The most frequent errors:"), table.html()] if table.rows else None


def residuals(rows: Scored) -> Section | Absent:
    """Differences between targets and predictions."""
    if not rows.is_regressor:
        return Absent("Residuals", "only regression models have residuals.")
    found = rows.truth - rows.predicted
    middle = rows.quantiles(np.abs(found), [0.5, 0.9])
    lead = (
        "Exact predictions lie on the diagonal. Half of the absolute residuals are at most"
        f" {number(middle[0], 3)}, 90 % at most {number(middle[1], 3)}."
    )
    marks, epsilon = [0.0], tube(rows.estimator)
    given = rows.estimator.get_params(deep=False)
    if given.get("loss") == "pinball":
        below, wanted = rows.share(found <= 0.0), given["quantile"]
        lead += f" {percent(below)} of the targets are at most the prediction; the fit asked for"
        lead += f" {percent(wanted)} (quantile = {number(wanted)})."
    elif epsilon is not None:
        marks, within = [-float(epsilon), float(epsilon)], rows.share(np.abs(found) <= epsilon)
        lead += f" {percent(within)} are within epsilon = {number(epsilon)} (dashed)."
    x = Axis.over("target", [rows.truth, rows.predicted], pad=0.04)
    y = Axis("prediction", x.low, x.high)
    title = "Predictions against targets"
    cloud = figure(title, dots(title, rows.truth, rows.predicted, x, y, diagonal=True))
    what = "target minus prediction"
    spread = _distribution(rows, "Distribution of residuals", found, what, marks, shaded=False)
    return Section("Residuals", lead, [beside(cloud, spread)])


def curves(rows: Scored) -> Section | Absent:
    """ROC and precision-recall."""
    title = "ROC and precision-recall"
    if rows.is_regressor:
        return Absent(title, "a regression model has no classes.")
    if not rows.has_truth:
        return Absent(title, "there are no labels +1 and \u22121 to compare with.")
    k = len(rows.classes)
    if k > MOST_CURVES:
        return Absent(title, f"{k} classes would need as many curves; see the confusion matrix.")
    present = [c for c in range(k) if rows.weight @ (rows.truth == c) > 0.0]
    if len(present) < 2:
        only = short(rows.classes[present[0]], 40)
        return Absent(title, f"all rows are of one class, {only}; a curve needs two.")
    wanted = [1] if k == 2 else present
    used = rows.weight > 0.0
    weight = {"sample_weight": rows.weight[used]}
    roc, recall = [], []
    for colour, c in enumerate(wanted, 1):
        own, scores = (rows.truth == c)[used], rows.scores[used, c if k > 2 else 0]
        false, true, _ = metrics.roc_curve(own, scores, **weight)
        precision, found, _ = metrics.precision_recall_curve(own, scores, **weight)
        average = metrics.average_precision_score(own, scores, **weight)
        name = short(rows.classes[c], 30)
        roc.append(Line(f"{name}: area {metrics.auc(false, true):.4f}", false, true, colour))
        recall.append(Line(f"{name}: average {average:.4f}", found, precision, colour))
    which = f"class {short(rows.classes[1], 40)}" if k == 2 else "each class against the others"
    lead = (
        f"Every point is a threshold of the score, for {which}. The closer a curve is to the upper"
        " edge, the better the classes are separated; the dashed diagonal is random guessing."
    )
    pictures = [
        figure(name, _unit_square(name, series, x, y, diagonal), _legend(series))
        for name, series, x, y, diagonal in (
            ("ROC", roc, "false positive rate", "true positive rate", True),
            ("Precision and recall", recall, "recall", "precision", False),
        )
    ]
    return Section(title, lead, [beside(*pictures)])


def _unit_square(title: str, series: list[Line], x: str, y: str, diagonal: bool) -> Markup:
    return lines(title, series, Axis(x, 0.0, 1.0), Axis(y, 0.0, 1.0), diagonal=diagonal)


def _legend(series: list[Line]) -> list[tuple[str, int]]:
    return [(line.name, line.colour) for line in series]
