"""The command ``report``."""

from __future__ import annotations

from sklearn.base import is_classifier, is_regressor

from margrave.cli import model_files, quality
from margrave.cli.app import app
from margrave.cli.console import say
from margrave.cli.options import Data, Label, Model, Page, Quiet
from margrave.cli.use import rows_for
from margrave.report import make_report
from margrave.report.estimator import final_estimator


@app.command()
def report(
    model: Model,
    data: Data,
    output: Page = None,
    label: Label = None,
    quiet: Quiet = False,
) -> int:
    """Write an HTML report about MODEL on DATA.

    It shows the data, the parameters, the certificate, the convergence of the fit, and the
    quality of the predictions.
    """
    path = output or f"{model}.html"
    model_files.check_output(path)
    found, table = rows_for(model, data, label)
    estimator = final_estimator(found)
    y = table.y
    if y is None and (is_classifier(estimator) or is_regressor(estimator)):
        raise ValueError(f"{data}: there are no labels to compare with")
    if y is not None:
        y = quality.labels_for(estimator, y)
        if is_regressor(estimator) and y.dtype.kind in "US":
            raise ValueError(f"{data}: {type(estimator).__name__} needs numbers as labels")
    try:
        page = make_report(found, table.X, y, names=table.notes.get("names"))
    except ValueError as error:
        raise ValueError(f"{data}: {error}") from None
    page.save(path)
    if not quiet:
        say(f"wrote {path}, {len(page.encode()) / 1000:.0f} kB")
    return 0
