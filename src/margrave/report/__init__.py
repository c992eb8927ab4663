"""One page that shows what a model has learned and how far it can be trusted.

    Scored (one pass over the rows)  ->  sections (predictions, machine, tuning)  ->  page

A section shows something or says why it is left out. The page is one HTML file: it needs no network
and no script, and its pictures are SVG that follow the reader's screen, phone or printer. Machines
are known here by their fitted attributes alone, so that the estimators can call this package.
"""

from __future__ import annotations

import datetime
import html
import os
from importlib.metadata import version
from typing import Any

import numpy as np

from margrave.io.files import replacing
from margrave.report import machine, predictions
from margrave.report.page import Markup, number, page, percent, plural, short, tag, tiles
from margrave.report.scored import Scored
from margrave.report.tuning import tuning

__all__ = ["SECTIONS", "Report", "make_report"]

# in the order of the page
SECTIONS = (
    machine.data,
    machine.parameters,
    machine.certificate,
    machine.convergence,
    predictions.margins,
    predictions.residuals,
    predictions.confusion,
    predictions.curves,
    predictions.calibration,
    predictions.posterior,
    machine.weights,
    machine.support,
    machine.parts,
    tuning,
)


class Report(str):
    """A page of HTML; notebooks show it, and `save` writes it to a file."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, which is replaced when it is complete.

        Parameters
        ----------
        path : path
            The file.
        """
        with replacing(path) as file:
            file.write(self.encode("utf-8"))

    def __repr__(self) -> str:
        return f"<Report of {len(self.encode()) / 1000:.0f} kB: save(path) writes it>"

    def _repr_html_(self) -> str:
        frame = "width:100%;height:80vh;border:0"
        return f'<iframe srcdoc="{html.escape(self)}" style="{frame}"></iframe>'


def make_report(
    model: Any, X: Any, y: Any = None, sample_weight: Any = None, names: Any = None
) -> Report:
    """Make the page of a fitted machine (or a pipeline that ends with one) on some rows.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted kernel machine of this package.
    X : {array-like, sparse, RowBlocks} of shape (n_samples, n_features)
        Rows; best such that the machine has not seen.
    y : array-like of shape (n_samples,), optional
        Labels or targets; a one-class machine needs none.
    sample_weight : array-like of shape (n_samples,), optional
        How often each row counts in the figures.
    names : sequence of str, optional
        Names of the features, if X has none.

    Returns
    -------
    report : Report
        The page, which is a string.
    """
    rows = Scored(model, X, y, sample_weight, names)
    found = [section(rows) for section in SECTIONS]
    name = type(rows.machine).__name__
    today = datetime.date.today().isoformat()
    foot = f"Made by margrave {version('margrave')} on {today}. This file needs no network."
    head = [_verdict(rows), tiles(_figures(rows))]
    return Report(page(f"{name}: report", _subtitle(rows), head, found, foot))


def _subtitle(rows: Scored) -> str:
    kernel = rows.machine._kernel.name
    words = [f"{kernel} kernel" if isinstance(kernel, str) else "kernel of its own"]
    if rows.is_classifier:
        words.append(plural(len(rows.classes), "class"))
    words.append(plural(rows.n_rows, "row"))
    words.append(plural(rows.X.shape[1], "kernel value" if rows.precomputed else "feature"))
    return ", ".join(words)


def _verdict(rows: Scored) -> Markup:
    """One sentence on how far the fit can be trusted."""
    fitted, gap = rows.machine, rows.machine.gap_
    if hasattr(fitted, "posterior_"):
        good = fitted.converged_
        text = "The chains agree: the posterior can be relied on." if good else (
            "The chains do not agree yet: raise n_samples or burn_in before relying on this."
        )  # fmt: skip
        kind = "good" if good else "bad"
    elif fitted.certificate_ == "none" or np.isnan(gap):
        kind, text = "fair", "The model comes without a certificate: how well it was solved is open."
    elif np.isinf(gap):
        kind, text = "bad", "Nothing can be certified: the kernel is not positive semidefinite."
    elif fitted.certificate_ != "full":
        kind = "fair"
        text = f"A model of {'parts' if fitted.certificate_ == 'blocks' else 'landmarks'}: its own"
        text += f" problem is solved to {percent(gap)}, which says nothing of the whole one."
    elif fitted.converged_:
        kind = "good"
        text = f"Certified: the objective is within {percent(gap)} of the best possible value."
    else:
        kind = "bad"
        text = f"Not converged: the objective may be {percent(gap)} above the best possible value,"
        text += f" more than the {percent(fitted.tol)} asked for."
    return tag("p", text, class_=f"verdict {kind}")


def _figures(rows: Scored) -> list[tuple[str, str, str]]:
    """The key figures: what the predictions are worth, and what the machine is."""
    fitted = rows.machine
    found: list[tuple[str, str, str]] = []
    whose = "on the rows of the fit" if rows.is_of_the_fit else "on rows that are new to it"
    if rows.is_regressor:
        error = rows.truth - rows.predicted
        mean = float(rows.weight @ rows.truth) / float(rows.weight.sum())
        around = float(rows.weight @ (rows.truth - mean) ** 2)
        if around > 0.0:
            found.append(("R²", f"{1.0 - float(rows.weight @ error**2) / around:.4f}", whose))
        size = float(rows.weight.sum())
        root = float(np.sqrt(rows.weight @ error**2 / size))
        found.append(("root mean squared error", number(root), whose))
        found.append(("mean absolute error", number(rows.weight @ np.abs(error) / size), whose))
    elif rows.truth is not None:
        right = rows.predicted == rows.truth
        found.append(("accuracy", percent(rows.share(right)), whose))
        k = len(rows.classes)
        all_, hit = (np.bincount(rows.truth, rows.weight * w, k) for w in (1.0, right))
        recalls = hit[all_ > 0.0] / all_[all_ > 0.0]
        found.append(("balanced accuracy", percent(float(recalls.mean())), "mean of the classes"))
    if not rows.is_regressor and not rows.is_classifier:
        found.insert(0, ("inliers", percent(rows.share(rows.predicted == 1)), whose))
    if hasattr(fitted, "posterior_"):
        r_hat = fitted.diagnostics_["max_r_hat"]
        found.append(("largest R-hat", number(r_hat), "good: at most 1.05"))
        found.append(("draws", number(fitted.n_draws_), "of all chains"))
    else:
        found.append(("duality gap", number(fitted.gap_, 3), f"certificate: {fitted.certificate_}"))
        vectors = len(fitted.support_)
        share = "" if fitted.certificate_ == "none" else (
            f"{percent(vectors / fitted._n_rows)} of the rows of the fit"
        )  # fmt: skip
        found.append(("support vectors", number(vectors), share))
    if fitted.history_:
        seconds = number(fitted.history_[-1]["seconds"], 3)
        found.append(("seconds to fit", seconds, short(f"solver: {fitted.solver_}", 40)))
    return found
