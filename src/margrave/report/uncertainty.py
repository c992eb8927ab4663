"""Sections about uncertainty: calibration and posterior."""

from __future__ import annotations

import numpy as np

from margrave.report.axis import Axis
from margrave.report.estimator import PosteriorModel, has_posterior
from margrave.report.page import (
    Absent,
    Content,
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
    "The probabilities of a posterior express how certain the model is of its own decision, not how"
    " often rows like this one have the label: they are usually overconfident."
)


def calibration(rows: Scored) -> Section | Absent:
    """Compare predicted probabilities with observed frequencies."""
    title, name = "Calibration", type(rows.estimator).__name__
    if rows.probabilities is None:
        how = "; wrap it in CalibratedClassifierCV, or use KernelLogisticRegression"
        reason = f"{name} has no predict_proba{how if rows.is_classifier else ''}."
        return Absent(title, reason)
    two = len(rows.classes) == 2
    occurred = rows.truth == 1 if two else rows.truth == rows.predicted
    what = f"class {short(rows.classes[1], 30)}" if two else "the predicted class"
    probabilities = rows.probabilities
    place = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    weight = np.bincount(place, rows.weight, _BINS)
    used = weight > 0.0
    predicted = np.bincount(place, rows.weight * probabilities, _BINS)[used] / weight[used]
    observed = np.bincount(place, rows.weight * occurred, _BINS)[used] / weight[used]
    difference = float(weight[used] @ np.abs(predicted - observed) / weight.sum())
    brier = float(rows.weight @ (probabilities - occurred) ** 2 / rows.weight.sum())
    loss = rows.log_loss / float(rows.weight.sum())
    x, y = Axis("predicted probability", 0.0, 1.0), Axis("observed frequency", 0.0, 1.0)
    picture = lines("Calibration", [Line("rows", predicted, observed)], x, y, diagonal=True)
    shares = 100.0 * weight / weight.sum()
    bins = Line("rows", np.linspace(0.0, 1.0, _BINS + 1), shares)
    counts = steps("Probabilities", [bins], x, "share of rows (%)")
    lead = (
        f"If the probabilities of {what} are calibrated, observed frequencies equal predicted"
        f" probabilities, and the points lie on the diagonal. Here they differ by"
        f" {percent(difference)} on average; the log loss is"
        f" {number(loss)}, the {'Brier score' if two else 'mean squared error of the best class'}"
        f" {number(brier)}."
    )
    body: list[Content] = [
        beside(figure("Reliability diagram", picture), figure("Predicted probabilities", counts))
    ]
    if has_posterior(rows.estimator):
        body.append(note(_NOT_CALIBRATED))
    return Section(title, lead, body)


def posterior(rows: Scored) -> Section | Absent:
    """Standard deviations of the scores, and diagnostics of the chains."""
    title, estimator = "Posterior", rows.estimator
    if not has_posterior(estimator):
        name = type(estimator).__name__
        return Absent(title, f"{name} has none; BayesianSVC and BayesianSVR sample from one.")
    known = estimator.diagnostics_
    table = Table(["", "value", "good"], ["value", "good"])
    table.add("samples of all chains", number(estimator.n_draws_), "")
    table.add("largest split R-hat of a weight", number(known["max_r_hat"]), "at most 1.05")
    table.add("smallest effective sample size of weights", number(known["min_ess"]), "at least 100")
    table.add("split R-hat of the objective", number(known["r_hat_objective"]), "at most 1.05")
    table.add(
        "effective sample size of the objective", number(known["ess_objective"]), "at least 100"
    )
    axis = "prediction" if rows.is_regressor else "mean score"
    x = Axis.over(axis, rows.means, pad=0.04)
    y = Axis.over("standard deviation", rows.deviations, also=[0.0], pad=0.04)
    cloud = dots("Uncertainty of the scores", rows.means, rows.deviations, x, y)
    middle = rows.quantiles(rows.deviations, [0.5])[0]
    mixed = "The chains have mixed" if estimator.converged_ else "The chains have not mixed yet"
    lead = (
        "Scores vary between the samples of the posterior: the median of their standard deviations"
        f" is {number(middle, 3)}. {mixed} (R-hat compares the chains; the effective sample size is"
        " the number of independent samples that would be as informative)."
    )
    if not rows.is_regressor:
        unsure = rows.share(np.abs(rows.means) < 2.0 * rows.deviations)
        lead += f" {percent(unsure)} of the scores are within two standard deviations of zero."
    body = [beside(figure("Uncertainty of the scores", cloud), table.html())]
    if estimator._landmarks is None:
        body.append(_weights(rows, estimator))
    return Section(title, lead, body)


def _weights(rows: Scored, estimator: PosteriorModel) -> Markup:
    """The weights that are most significantly nonzero, with two standard deviations."""
    found = estimator.posterior_
    output = int(np.argmax(np.abs(found.mean).max(axis=1)))
    d = len(rows.estimator_names)
    mean = found.mean[output, :d]
    deviation = np.sqrt(np.maximum(np.diag(found.covariance[output])[:d], 0.0))
    order = np.argsort(-np.abs(mean) / np.maximum(deviation, 1e-300), kind="stable")[:_MOST_LISTED]
    which = "" if len(found.mean) == 1 else f" for class {short(rows.classes[output], 30)}"
    names = [rows.estimator_names[i] for i in order]
    picture = bars(
        "Weights and their uncertainty", names, mean[order], "weight", 2.0 * deviation[order]
    )
    return figure(f"Weights{which}, plus and minus two standard deviations", picture)
