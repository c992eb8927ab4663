"""Sections about a learned metric, and about the course of a search within a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.pipeline import Pipeline

from margrave.report.axis import Axis
from margrave.report.estimator import Metric, search_of
from margrave.report.page import Absent, Section
from margrave.report.scored import Scored
from margrave.report.svg import Line, bars, cells, figure, lines

_MOST_BARS = 20
_MOST_CELLS = 30


def importances(rows: Scored) -> Section | Absent:
    """Importance of the features by the metric."""
    title, metric = "Features in the metric", _metric(rows)
    if metric is None:
        return Absent(title, "no metric was learned (see MetricLearner).")
    values = metric.feature_importances_
    order = np.argsort(-values, kind="stable")[:_MOST_BARS]
    names = _names(rows, len(values))
    lead = "How much distances depend on each feature: the diagonal of the metric, at most one."
    if len(values) > _MOST_BARS:
        lead += f" The {_MOST_BARS} largest of {len(values):,} are shown."
    picture = bars(title, [names[k] for k in order], values[order], "importance")
    return Section(title, lead, [figure(title, picture)])


def metric(rows: Scored) -> Section | Absent:
    """The metric as a heat map."""
    title, found = "Metric", _metric(rows)
    if found is None or found.metric_.ndim == 1:
        return Absent(title, "there is no metric that mixes features.")
    order = np.argsort(-found.feature_importances_, kind="stable")[:_MOST_CELLS]
    sizes = np.abs(found.metric_[np.ix_(order, order)])
    names = [_names(rows, len(found.metric_))[k] for k in order]
    lead = "Sizes of the entries of M in (x - z)'M(x - z): which features act together."
    if len(found.metric_) > _MOST_CELLS:
        lead += f" The {_MOST_CELLS} most important features are shown."
    picture = cells(title, sizes / max(float(sizes.max()), 1e-300), names, names, "", "")
    return Section(title, lead, [figure(title, picture, wide=True)])


def course(rows: Scored) -> Section | Absent:
    """The best score over the seconds of the search."""
    title, search = "Course of the search", search_of(rows.estimator)
    records = [] if search is None else search.get("course", [])
    if search is None or len(records) < 2:
        return Absent(title, "the model was not found within a time (see AutoClassifier).")
    series = []
    counts = list(dict.fromkeys(int(rows) for _, rows, _ in records))
    for colour, count in enumerate(counts, start=1):
        own = [record for record in records if record[1] == count]
        series.append(
            Line(f"{count:,} rows", [o[0] for o in own], [o[2] for o in own], 1 + (colour - 1) % 4)
        )
    x = Axis.over("seconds", [record[0] for record in records], pad=0.04)
    y = Axis.over(search["metric"], [record[2] for record in records], pad=0.1)
    lead = "The best score on held-out rows whenever it rose, by the number of training rows."
    legend = [(line.name, line.colour) for line in series]
    return Section(title, lead, [figure(title, lines(title, series, x, y), legend)])


def _metric(rows: Scored) -> Metric | None:
    """The last step of a pipeline that has learned a metric."""
    steps = rows.model.steps[:-1] if isinstance(rows.model, Pipeline) else []
    found = [step for _, step in steps if hasattr(step, "metric_")]
    metric: Metric | None = found[-1] if found else None
    return metric


def _names(rows: Scored, count: int) -> Sequence[str]:
    names = rows.feature_names
    return names if len(names) == count else [f"feature {k}" for k in range(count)]
