"""The top of the page: description of the model, verdict on the fit, and key figures."""

from __future__ import annotations

import numpy as np

from margrave.report.estimator import has_posterior
from margrave.report.page import Markup, number, percent, plural, short, tag
from margrave.report.scored import Scored

Figure = tuple[str, str, str]  # name, value, comment


def subtitle(rows: Scored) -> str:
    """One line about the model and the data."""
    kernel = rows.estimator._kernel
    words = ["custom kernel" if kernel.is_callable else f"{kernel.name} kernel"]
    if rows.is_classifier:
        words.append(plural(len(rows.classes), "class"))
    words.append(plural(rows.n_rows, "row"))
    words.append(plural(rows.X.shape[1], "kernel value" if rows.precomputed else "feature"))
    return "Report: " + ", ".join(words)


def verdict(rows: Scored) -> Markup:
    """One sentence on how far the fit can be trusted."""
    kind, text = _verdict(rows)
    return tag("p", text, class_=f"verdict {kind}")


def _verdict(rows: Scored) -> tuple[str, str]:
    estimator, gap = rows.estimator, max(0.0, rows.estimator.gap_)
    if has_posterior(estimator):
        if estimator.converged_:
            return "good", "The chains have mixed: the samples represent the posterior."
        return "bad", "The chains have not mixed yet: raise n_samples or burn_in."
    if estimator.certificate_ == "none" or np.isnan(estimator.gap_):
        return "fair", "There is no certificate: the distance from the optimum is unknown."
    if np.isinf(gap):
        return "bad", "Nothing can be certified, because of rounding errors or the kernel."
    if estimator.certificate_ == "estimate":
        return "bad", f"Stopped early: the gap is estimated to be {percent(gap)}."
    if estimator.certificate_ != "full":
        made = "parts" if estimator.certificate_ == "blocks" else "landmarks"
        own = f"A model of {made}: the gap of its restricted problem is {percent(gap)}"
        return "fair", f"{own}; the gap of the whole problem is not known."
    if estimator.converged_:
        return "good", f"Certified: the objective is within {percent(gap)} of the optimum."
    missed = f", more than tol ({percent(estimator.tol)})" if gap > estimator.tol else ""
    return "bad", f"Not converged: the objective may be {percent(gap)} from the optimum{missed}."


def figures(rows: Scored) -> list[Figure]:
    """Quality of the predictions, gap, and size of the model."""
    estimator = rows.estimator
    whose = "on the training rows" if rows.of_the_fit else "on these rows"
    found = _errors(rows, whose) if rows.is_regressor else _accuracies(rows, whose)
    if has_posterior(estimator):
        r_hat = number(estimator.diagnostics_["max_r_hat"])
        found.append(("largest R-hat", r_hat, "good: at most 1.05"))
        found.append(("samples", number(estimator.n_draws_), "of all chains"))
    else:
        kind = f"certificate: {estimator.certificate_}"
        found.append(("duality gap", number(estimator.gap_, 3), kind))
        count, share = len(estimator.support_), ""
        if estimator.certificate_ != "none":
            share = f"{percent(count / estimator._n_rows)} of the training rows"
        found.append(("support vectors", number(count), share))
    if estimator.history_:
        seconds = number(estimator.history_[-1]["seconds"], 3)
        found.append(("seconds to fit", seconds, short(f"solver: {estimator.solver_}", 40)))
    return found


def _errors(rows: Scored, whose: str) -> list[Figure]:
    error, total = rows.truth - rows.predicted, float(rows.weight.sum())
    squares = float(rows.weight @ error**2)
    centred = rows.truth - float(rows.weight @ rows.truth) / total
    total_squares = float(rows.weight @ centred**2)
    found = [
        ("root mean squared error", number(np.sqrt(squares / total)), whose),
        ("mean absolute error", number(float(rows.weight @ np.abs(error)) / total), whose),
    ]
    if total_squares > 0.0:
        found.insert(0, ("R\u00b2", f"{1.0 - squares / total_squares:.4f}", whose))
    return found


def _accuracies(rows: Scored, whose: str) -> list[Figure]:
    found = []
    if not rows.is_classifier:
        found.append(("inliers", percent(rows.share(rows.predicted == 1)), whose))
    if rows.has_truth:
        right, k = rows.predicted == rows.truth, len(rows.classes)
        found.append(("accuracy", percent(rows.share(right)), whose))
        counts = np.bincount(rows.truth, rows.weight, k)
        correct = np.bincount(rows.truth, rows.weight * right, k)
        recall = float(np.mean(correct[counts > 0.0] / counts[counts > 0.0]))
        found.append(("balanced accuracy", percent(recall), "mean recall over classes"))
    return found
