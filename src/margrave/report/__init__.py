"""An HTML report that shows what a model has learned and how far it can be trusted.

    Scored (one pass over the rows)  ->  sections (predictions, model, tuning)  ->  page

input.py, scored.py     the model and the rows, checked; predictions, margins, scores
estimator.py            what a report reads of an estimator; features.py  statistics of features
head.py                 verdict and key figures; then the sections:
data.py fit.py predictions.py uncertainty.py model.py importance.py learned.py tuning.py
page.py svg.py axis.py  HTML, figures, axes

A section that does not apply says why it is left out. The page is one HTML file without scripts or
network access; its figures are SVG and adapt to phones, dark mode and print. This package only uses
the fitted attributes of estimators and does not import them, so that estimators can import it.
"""

from __future__ import annotations

import datetime
import html
import os
from collections.abc import Sequence
from importlib.metadata import version

from sklearn.pipeline import Pipeline

from margrave.io.files import replacing
from margrave.report import data, fit, importance, learned, model, predictions, uncertainty
from margrave.report.estimator import Model
from margrave.report.head import figures, subtitle, verdict
from margrave.report.page import page, tiles
from margrave.report.scored import Scored
from margrave.report.tuning import tuning
from margrave.typing import MatrixLike, VectorLike

__all__ = ["SECTIONS", "Report", "make_report"]

# in the order of the page
SECTIONS = (
    data.data,
    fit.parameters,
    fit.certificate,
    fit.convergence,
    predictions.margins,
    predictions.residuals,
    predictions.confusion,
    predictions.curves,
    uncertainty.calibration,
    uncertainty.posterior,
    model.weights,
    importance.importance,
    model.support,
    model.parts,
    learned.importances,
    learned.metric,
    learned.course,
    tuning,
)


class Report(str):
    """An HTML page; notebooks display it, and `save` writes it to a file."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, which is replaced only when the new one is complete.

        Parameters
        ----------
        path : path-like
            The file to write.
        """
        with replacing(path) as file:
            file.write(self.encode("utf-8"))

    def __repr__(self) -> str:
        return f"<Report, {len(self.encode()) / 1000:.0f} kB: write it with save(path)>"

    def _repr_html_(self) -> str:
        frame = "width:100%;height:80vh;border:0"
        return f'<iframe srcdoc="{html.escape(self)}" style="{frame}"></iframe>'


def make_report(
    model: Model | Pipeline,
    X: MatrixLike,
    y: VectorLike | None = None,
    sample_weight: VectorLike | None = None,
    names: Sequence[str] | None = None,
) -> Report:
    """Make a report about a fitted estimator (or a pipeline that ends with one) on some rows.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted estimator of this package.
    X : {array-like, sparse, RowBlocks} of shape (n_samples, n_features)
        Rows, preferably not those of the fit.
    y : array-like of shape (n_samples,), optional
        Labels or targets; not needed for a one-class SVM.
    sample_weight : array-like of shape (n_samples,), optional
        Weight of each row in the figures.
    names : sequence of str, optional
        Names of the features, if X has none.

    Returns
    -------
    report : Report
        The page, a subclass of str.

    Examples
    --------
    >>> import margrave
    >>> from sklearn.datasets import make_moons
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> pipeline = make_pipeline(StandardScaler(), margrave.SVC()).fit(X, y)
    >>> page = margrave.report(pipeline, X, y)
    >>> page.save("moons.html")  # doctest: +SKIP
    """
    rows = Scored(model, X, y, sample_weight, names)
    found = [section(rows) for section in SECTIONS]
    name = type(rows.estimator).__name__
    today = datetime.date.today().isoformat()
    foot = f"Made by margrave {version('margrave')} on {today}. It loads nothing from the network."
    head = [verdict(rows), tiles(figures(rows))]
    return Report(page(name, subtitle(rows), head, found, foot))
