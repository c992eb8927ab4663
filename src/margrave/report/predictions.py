"""Sections on predictions: margins, confusion, residuals, curves, calibration, posterior spread."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import metrics

from margrave.report.page import (
    Absent,
    Markup,
    Section,
    Table,
    bar,
    beside,
    note,
    number,
    percent,
    plural,
    short,
)
from margrave.report.scored import MOST_CURVES, Scored
from margrave.report.svg import Axis, Line, bars, cells, dots, figure, lines, steps

_BINS = 48
_MOST_CLASSES = 20  # of a confusion matrix that names each
_GROUPS = 40  # of one that does not
_MOST_WORDS = 12  # classes whose counts fit into the cells
_MOST_LISTED = 15


def margins(rows: Scored) -> Section | Absent:
    """How far rows are on the right side."""
    title = "Margins" if rows.is_classifier else "Scores"
    if rows.is_regressor:
        return Absent(title, "a regression has residuals, and no sides that a row could be on.")
    if not rows.is_classifier:
        return _one_class_scores(rows)
    k = len(rows.classes)
    found, wrong = rows.margins, rows.share(rows.margins < 0)
    low, high = rows.quantiles(found, [0.002, 0.998])
    axis = Axis("margin", *_room(min(low, -0.1), max(high, 1.1)))
    edges = np.linspace(axis.low, axis.high, _BINS + 1)
    groups = [(rows.truth == c, str(rows.classes[c]), c + 1) for c in range(k)] if k == 2 else [
        (np.ones(rows.n_rows, dtype=bool), "all classes", 1)
    ]  # fmt: skip
    series = [
        Line(name, edges, _heights(rows, found, edges, which), colour)
        for which, name, colour in groups if which.any()
    ]  # fmt: skip
    marks = [0.0, 1.0] if k == 2 else [0.0]
    picture = steps("Margin distribution", series, axis, "share of rows (%)", marks, 0.0)
    table = Table(["class", "below zero", "10 % below", "median", "90 % below"],
                  ["below zero", "10 % below", "median", "90 % below"])  # fmt: skip
    listed, more = _worst(rows, found < 0)
    for c in listed:
        own = rows.truth == c
        middle = [number(v, 3) for v in rows.quantiles(found, [0.1, 0.5, 0.9], own)]
        missed = float(rows.weight @ (own & (found < 0))) / float(rows.weight @ own)
        table.add(short(rows.classes[c], 40), percent(missed), *middle)
    what = "y f(x), with y = +1 or \u22121" if k == 2 else (
        "the score of a row's own class minus the best score of the others"
    )  # fmt: skip
    lead = (
        f"The margin of a row is {what}. Below zero (shaded) the row is on the wrong side:"
        f" {percent(wrong)} of the rows."
    )
    if k == 2:
        lead += " Beyond 1 (dashed) a support vector machine has nothing to complain of."
    names = [(line.name, line.colour) for line in series]
    shown = figure("Margin distribution", picture, names if k == 2 else ())
    return Section(title, lead, [beside(shown, table.html()), more])


def _one_class_scores(rows: Scored) -> Section:
    found = rows.scores[:, 0]
    low, high = rows.quantiles(found, [0.002, 0.998])
    axis = Axis("decision value", *_room(min(low, 0.0), max(high, 0.0)))
    edges = np.linspace(axis.low, axis.high, _BINS + 1)
    series = [Line("rows", edges, _heights(rows, found, edges, slice(None)))]
    picture = steps("Distribution of scores", series, axis, "share of rows (%)", [0.0], 0.0)
    lead = (
        "Decision values: negative ones (shaded) are told to be outliers, which is"
        f" {percent(rows.share(found < 0))} of the rows. The machine was told to leave about"
        f" nu = {number(rows.machine.nu)} of its training rows outside."
    )
    return Section("Scores", lead, [figure("Distribution of scores", picture)])


def confusion(rows: Scored) -> Section | Absent:
    """What was predicted for which class."""
    title = "Confusion matrix"
    if rows.is_regressor:
        return Absent(title, "a regression has no classes; its residuals are above.")
    if rows.truth is None:
        return Absent(title, "there are no labels +1 and \u22121 to compare with.")
    k = len(rows.classes)
    counts = metrics.confusion_matrix(
        rows.truth, rows.predicted, labels=np.arange(k), sample_weight=rows.weight
    )
    right, total = float(np.trace(counts)), float(counts.sum())
    lead = (
        f"Rows are the labels, columns the predictions; {percent(right / total)} are on the"
        " diagonal. The darker a cell, the larger its share of its row."
    )
    if not total - right:
        lead += " No row is mistaken for another class."
    names = [str(name) for name in rows.classes]
    if k <= _MOST_CLASSES:
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
        texts = [[_count(v) for v in row] for row in counts] if k <= _MOST_WORDS else None
        picture = cells("Confusion matrix", shares, names, names, "label", "predicted", texts)
        shown = figure("Labels against predictions", picture)
    else:
        shown = _grouped(counts, k)
        lead += f" There are {k} classes: neighbours in the order of their labels share a cell."
    table, more = _per_class(rows, counts)
    return Section(title, lead, [beside(shown, table), more, _pairs(counts, names)])


def _grouped(counts: Any, k: int) -> Markup:
    """The matrix of many classes, neighbours together."""
    ends = np.unique(np.linspace(0, k, min(k, _GROUPS) + 1).round().astype(int))[:-1]
    grouped = np.add.reduceat(np.add.reduceat(counts, ends, axis=0), ends, axis=1)
    shares = grouped / np.maximum(grouped.sum(axis=1, keepdims=True), 1e-300)
    places = [f"{first + 1}" for first in ends]
    picture = cells("Confusion matrix", np.sqrt(shares), places, places, "number of the label",
                    "number of the predicted label")  # fmt: skip
    return figure("Labels against predictions, in groups", picture)


def _per_class(rows: Scored, counts: Any) -> tuple[Markup, Markup | None]:
    k = len(counts)
    found = np.diag(counts)
    actual, told = counts.sum(axis=1), counts.sum(axis=0)
    listed, more = _worst(rows, rows.truth != rows.predicted)
    table = Table(["class", "rows", "recall", "precision"], ["rows", "recall", "precision"])
    for c in listed:
        precision = percent(found[c] / told[c]) if told[c] else "never told"
        recall = percent(found[c] / actual[c])
        table.add(short(rows.classes[c], 40), _count(actual[c]), recall, precision)
    return table.html(), more


def _worst(rows: Scored, wrong: Any) -> tuple[list[int], Markup | None]:
    """Classes to list: all that have rows, or of many those with the largest share of mistakes."""
    weights = np.bincount(rows.truth, rows.weight, len(rows.classes))
    present = np.flatnonzero(weights)
    if len(present) <= _MOST_CLASSES:
        return present.tolist(), None
    missed = np.bincount(rows.truth, rows.weight * wrong, len(rows.classes))[present]
    worst = present[np.argsort(-missed / weights[present], kind="stable")[:_MOST_LISTED]]
    return worst.tolist(), note(
        f"The {_MOST_LISTED} classes with the largest share of mistakes, of {len(present)}."
    )


def _pairs(counts: Any, names: list[str]) -> list[Markup] | None:
    """The most frequent mistakes, where there are too many classes to see them."""
    if len(counts) <= _MOST_WORDS:
        return None
    mistakes = counts - np.diag(np.diag(counts))
    order = np.argsort(-mistakes, axis=None, kind="stable")[:_MOST_LISTED]
    table = Table(["label", "taken for", "rows", "share of the label"],
                  ["rows", "share of the label"])  # fmt: skip
    for i, j in zip(*np.unravel_index(order, mistakes.shape), strict=True):
        if mistakes[i, j] > 0.0:
            share = mistakes[i, j] / counts[i].sum()
            table.add(short(names[i], 40), short(names[j], 40), _count(mistakes[i, j]),
                      percent(share))  # fmt: skip
    return [note("The most frequent mistakes:"), table.html()] if table.rows else None


def residuals(rows: Scored) -> Section | Absent:
    """How far predictions are from targets."""
    title = "Residuals"
    if not rows.is_regressor:
        return Absent(title, "the machine predicts labels, no numbers.")
    found = rows.truth - rows.predicted
    axis = Axis.over("target", [rows.truth, rows.predicted], pad=0.04)
    other = Axis("prediction", axis.low, axis.high)
    cloud = dots("Predictions against targets", rows.truth, rows.predicted, axis, other, True)
    low, high = rows.quantiles(found, [0.002, 0.998])
    around = Axis("target minus prediction", *_room(min(low, 0.0), max(high, 0.0)))
    edges = np.linspace(around.low, around.high, _BINS + 1)
    series = [Line("rows", edges, _heights(rows, found, edges, slice(None)))]
    epsilon = getattr(rows.machine, "epsilon", None)
    marks = [0.0] if epsilon is None else [-float(epsilon), float(epsilon)]
    spread = steps("Distribution of residuals", series, around, "share of rows (%)", marks)
    within = "" if epsilon is None else (
        f" {percent(rows.share(np.abs(found) <= float(epsilon)))} of the rows are within the tube"
        f" of epsilon = {number(epsilon)} (dashed)."
    )  # fmt: skip
    middle = rows.quantiles(np.abs(found), [0.5, 0.9])
    lead = (
        "On the diagonal a prediction is exact. Half of the residuals are at most"
        f" {number(middle[0], 3)}, nine tenths at most {number(middle[1], 3)}.{within}"
    )
    pictures = beside(
        figure("Predictions against targets", cloud), figure("Distribution of residuals", spread)
    )
    return Section(title, lead, [pictures])


def curves(rows: Scored) -> Section | Absent:
    """ROC and precision-recall."""
    title = "ROC and precision-recall"
    if rows.is_regressor:
        return Absent(title, "they are for classes, and a regression has none.")
    if rows.truth is None:
        return Absent(title, "there are no labels +1 and \u22121 to compare with.")
    k = len(rows.classes)
    if k > MOST_CURVES:
        return Absent(title, f"{k} classes would be as many curves; see the confusion matrix.")
    present = [c for c in range(k) if 0.0 < float(rows.weight @ (rows.truth == c))]
    if len(present) < 2:
        only = short(rows.classes[present[0]], 40)
        return Absent(title, f"all rows are of one class, {only}, and a curve needs two.")
    wanted = [1] if rows.scores.shape[1] == 1 else present
    roc, recall, areas, precisions = [], [], [], []
    for place, c in enumerate(wanted):
        own, scores = rows.truth == c, rows.scores[:, c if k > 2 else 0]
        counted = rows.weight > 0.0
        given = {"sample_weight": rows.weight[counted]}
        own, scores = own[counted], scores[counted]
        fpr, tpr, _ = metrics.roc_curve(own, scores, **given)
        precision, found, _ = metrics.precision_recall_curve(own, scores, **given)
        areas.append(metrics.auc(fpr, tpr))
        precisions.append(metrics.average_precision_score(own, scores, **given))
        name, colour = str(rows.classes[c]), place + 1
        roc.append(Line(f"{name}: area {areas[-1]:.4f}", fpr, tpr, colour))
        recall.append(Line(f"{name}: average precision {precisions[-1]:.4f}", found, precision,
                           colour))  # fmt: skip
    whom = f"class {short(rows.classes[1], 40)}" if len(wanted) == 1 else "each class against all"
    lead = (
        f"What every threshold of the score would do, for {whom}. A curve near the upper left"
        " (right picture: upper right) corner tells the classes apart; the dashed diagonal is"
        " chance."
    )
    unit = [Axis(t, 0.0, 1.0) for t in ("false positives", "true positives", "recall", "precision")]
    first = lines("ROC curve", roc, unit[0], unit[1], diagonal=True)
    second = lines("Precision-recall curve", recall, unit[2], unit[3])
    return Section(title, lead, [beside(
        figure("ROC", first, [(line.name, line.colour) for line in roc]),
        figure("Precision and recall", second, [(line.name, line.colour) for line in recall]),
    )])  # fmt: skip


def calibration(rows: Scored) -> Section | Absent:
    """Whether probabilities are frequencies."""
    title, name = "Calibration", type(rows.machine).__name__
    if rows.chances is None:
        how = "wrap it in CalibratedClassifierCV, or use KernelLogisticRegression"
        return Absent(title, f"{name} gives no probabilities"
                      + (f"; {how}." if rows.is_classifier else "."))  # fmt: skip
    two = len(rows.classes) == 2
    happened = rows.truth == 1 if two else rows.truth == rows.predicted
    chances, what = rows.chances, short(rows.classes[1], 30) if two else "the predicted class"
    place = np.minimum((chances * 10).astype(int), 9)
    weight = np.bincount(place, rows.weight, 10)
    used = weight > 0.0
    told = np.bincount(place, rows.weight * chances, 10)[used] / weight[used]
    came = np.bincount(place, rows.weight * happened, 10)[used] / weight[used]
    apart = float(weight[used] @ np.abs(told - came) / weight.sum())
    brier = float(rows.weight @ (chances - happened) ** 2 / rows.weight.sum())
    loss = rows.log_loss / float(rows.weight.sum())
    x, y = Axis("probability told", 0.0, 1.0), Axis("how often it was so", 0.0, 1.0)
    picture = lines("Calibration", [Line("rows", told, came)], x, y, diagonal=True)
    shares = 100.0 * weight / weight.sum()
    counts = steps("Probabilities", [Line("rows", np.linspace(0, 1, 11), shares)], x,
                   "share of rows (%)")  # fmt: skip
    lead = (
        f"Where probability p was told for {what}, it should be so in a share p of the cases: on"
        f" the diagonal. Here it is off by {percent(apart)} on average; the log loss is"
        f" {number(loss)}, the {'Brier score' if two else 'mean squared error of the best class'}"
        f" {number(brier)}."
    )
    body: list[Any] = [
        beside(figure("Told against observed", picture), figure("What was told", counts))
    ]
    if hasattr(rows.machine, "posterior_"):
        body.append(note(
            "The probabilities of a posterior say how sure the machine is of its own decision, not"
            " how often rows like this have the label: they are usually too sure of themselves."
        ))  # fmt: skip
    return Section(title, lead, body)


def posterior(rows: Scored) -> Section | Absent:
    """How sure a Bayesian machine is."""
    title, machine = "Posterior", rows.machine
    if not hasattr(machine, "posterior_"):
        return Absent(title, f"{type(machine).__name__} is one point; BayesianSVC and BayesianSVR"
                      " tell how sure they are.")  # fmt: skip
    known = machine.diagnostics_
    table = Table(["", "value", "good"], ["value", "good"])
    table.add("draws of all chains", number(machine.n_draws_), "")
    table.add("largest split R-hat of a weight", number(known["max_r_hat"]), "at most 1.05")
    table.add("fewest effective draws of a weight", number(known["min_ess"]), "at least 100")
    table.add("split R-hat of the objective", number(known["r_hat_objective"]), "at most 1.05")
    table.add("effective draws of the objective", number(known["ess_objective"]), "at least 100")
    axis = "prediction" if rows.is_regressor else "mean score"
    x = Axis.over(axis, rows.means, pad=0.04)
    y = Axis.over("standard deviation", rows.deviations, also=[0.0], pad=0.04)
    cloud = dots("Spread of the scores", rows.means, rows.deviations, x, y)
    middle = rows.quantiles(rows.deviations, [0.5])[0]
    unsure = rows.share(np.abs(rows.means) < 2.0 * rows.deviations)
    sure = "" if rows.is_regressor else (
        f" {percent(unsure)} of the rows are less than two deviations away from zero."
    )  # fmt: skip
    mixed = "The chains agree" if machine.converged_ else "The chains do not agree well enough"
    lead = (
        f"How far the draws of the posterior lie apart: the median deviation of a score is"
        f" {number(middle, 3)}.{sure} {mixed} (R-hat compares chains, effective draws count"
        " independent ones)."
    )
    body = [beside(figure("Spread of the scores", cloud), table.html())]
    if machine._landmarks is None:
        body.append(_weights(rows))
    return Section(title, lead, body)


def _weights(rows: Scored) -> Markup:
    """The weights that are most certainly not zero, with two deviations on either side."""
    found = rows.machine.posterior_
    output = int(np.argmax(np.abs(found.mean).max(axis=1)))
    d = len(rows.machine_names)
    mean = found.mean[output, :d]
    deviation = np.sqrt(np.maximum(np.diag(found.covariance[output])[:d], 0.0))
    order = np.argsort(-np.abs(mean) / np.maximum(deviation, 1e-300), kind="stable")[:_MOST_LISTED]
    whom = "" if len(found.mean) == 1 else f" for class {short(rows.classes[output], 30)}"
    names = [rows.machine_names[i] for i in order]
    picture = bars("Weights with their spread", names, mean[order], "weight", 2.0 * deviation[order])
    return figure(f"Weights{whom}, two deviations on either side", picture)


def class_table(rows: Scored) -> Table:
    """Classes, their shares and what the fit made of them."""
    machine = rows.machine
    counts = np.bincount(rows.truth, rows.weight, len(rows.classes))
    total = counts.sum()
    vectors = getattr(machine, "n_support_", None)
    factors = getattr(machine, "class_weight_", None)
    weighed = factors is not None and not np.all(factors == 1.0)
    columns = ["class", "rows", "share", ""]
    if weighed:
        columns.insert(3, "weight in the fit")
    if rows.is_classifier and vectors is not None and vectors.any():
        columns.insert(-1, "support vectors")
    table = Table(columns, ["rows", "share", "weight in the fit", "support vectors"])
    order = np.arange(len(counts))
    if len(counts) > _MOST_CLASSES:
        order = np.argsort(-counts, kind="stable")[:_MOST_LISTED]
    for c in order:
        cells_ = [short(rows.classes[c], 60), _count(counts[c]), percent(counts[c] / total)]
        if weighed:
            cells_.append(number(factors[c]))
        if "support vectors" in columns:
            cells_.append(number(vectors[c]))
        table.add(*cells_, bar(counts[c] / total))
    if len(order) < len(counts):
        table.add(f"and {plural(len(counts) - len(order), 'class')} with fewer rows",
                  *[""] * (len(columns) - 1))  # fmt: skip
    return table


def _heights(rows: Scored, values: Any, edges: Any, which: Any) -> Any:
    """Percentage of all rows in each bin; the tails are gathered at the ends."""
    inside = np.clip(values[which], edges[0], edges[-1])
    counts, _ = np.histogram(inside, edges, weights=rows.weight[which])
    return 100.0 * counts / rows.weight.sum()


def _room(low: float, high: float) -> tuple[float, float]:
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        return low - 0.5, high + 0.5
    return low, high


def _count(value: float) -> str:
    """A number of rows, which weights may have made a fraction."""
    return f"{value:,.0f}" if value == round(value) else number(value, 3)
