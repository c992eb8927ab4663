"""Sections on what a model says of its own certainty: calibration, posterior spread."""

from __future__ import annotations

from typing import Any

import numpy as np

from margrave.report.axis import Axis
from margrave.report.page import (
    Absent,
    Markup,
    Section,
    Table,
    beside,
    note,
    number,
    percent,
    short,
)
from margrave.report.scored import Scored
from margrave.report.svg import Line, bars, dots, figure, lines, steps

_MOST_LISTED = 15
_BINS = 10
_NOT_CALIBRATED = (
    "The probabilities of a posterior say how sure the machine is of its own decision, not how"
    " often rows like this have the label: they are usually too sure of themselves."
)


def calibration(rows: Scored) -> Section | Absent:
    """Whether probabilities are frequencies."""
    title, name = "Calibration", type(rows.machine).__name__
    if rows.chances is None:
        how = "; wrap it in CalibratedClassifierCV, or use KernelLogisticRegression"
        reason = f"{name} gives no probabilities{how if rows.is_classifier else ''}."
        return Absent(title, reason)
    two = len(rows.classes) == 2
    happened = rows.truth == 1 if two else rows.truth == rows.predicted
    chances, what = rows.chances, short(rows.classes[1], 30) if two else "the predicted class"
    place = np.minimum((chances * _BINS).astype(int), _BINS - 1)
    weight = np.bincount(place, rows.weight, _BINS)
    used = weight > 0.0
    told = np.bincount(place, rows.weight * chances, _BINS)[used] / weight[used]
    came = np.bincount(place, rows.weight * happened, _BINS)[used] / weight[used]
    apart = float(weight[used] @ np.abs(told - came) / weight.sum())
    brier = float(rows.weight @ (chances - happened) ** 2 / rows.weight.sum())
    loss = rows.log_loss / float(rows.weight.sum())
    x, y = Axis("probability told", 0.0, 1.0), Axis("how often it was so", 0.0, 1.0)
    picture = lines("Calibration", [Line("rows", told, came)], x, y, diagonal=True)
    shares = 100.0 * weight / weight.sum()
    bins = Line("rows", np.linspace(0.0, 1.0, _BINS + 1), shares)
    counts = steps("Probabilities", [bins], x, "share of rows (%)")
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
        body.append(note(_NOT_CALIBRATED))
    return Section(title, lead, body)


def posterior(rows: Scored) -> Section | Absent:
    """How sure a Bayesian machine is."""
    title, machine = "Posterior", rows.machine
    if not hasattr(machine, "posterior_"):
        name = type(machine).__name__
        return Absent(title, f"{name} is one point; BayesianSVC and BayesianSVR have a posterior.")
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
    mixed = "The chains agree" if machine.converged_ else "The chains do not agree well enough"
    lead = (
        "How far the draws of the posterior lie apart: the median deviation of a score is"
        f" {number(middle, 3)}. {mixed} (R-hat compares chains, effective draws count independent"
        " ones)."
    )
    if not rows.is_regressor:
        unsure = rows.share(np.abs(rows.means) < 2.0 * rows.deviations)
        lead += f" {percent(unsure)} of the rows are less than two deviations away from zero."
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
    picture = bars(
        "Weights with their spread", names, mean[order], "weight", 2.0 * deviation[order]
    )
    return figure(f"Weights{whom}, two deviations on either side", picture)
