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

from margrave.io.files import replacing
from margrave.report import beliefs, data, machine, predictions
from margrave.report.head import figures, subtitle, verdict
from margrave.report.page import page, tiles
from margrave.report.scored import Scored
from margrave.report.tuning import tuning

__all__ = ["SECTIONS", "Report", "make_report"]

# in the order of the page
SECTIONS = (
    data.data,
    machine.parameters,
    machine.certificate,
    machine.convergence,
    predictions.margins,
    predictions.residuals,
    predictions.confusion,
    predictions.curves,
    beliefs.calibration,
    beliefs.posterior,
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
    head = [verdict(rows), tiles(figures(rows))]
    return Report(page(name, subtitle(rows), head, found, foot))
