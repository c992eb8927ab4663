"""The section about a search: the settings that were tried, and their scores.

The best estimator of a search has an attribute `tuning_`, a table of plain values that is also
saved in model files:

    metric      name of the score        names     parameters that were tried
    settings    one list of values each  mean, deviation, splits    of their scores
"""

from __future__ import annotations

import math

import numpy as np

from margrave.report.axis import Axis
from margrave.report.estimator import Floats, Search, search_of
from margrave.report.page import Absent, Markup, Section, Table, number, plural, short
from margrave.report.scored import Scored
from margrave.report.svg import Line, cells, figure, lines

_MOST_LISTED = 10
_MOST_WORDS = 8  # columns whose scores fit into the cells


def tuning(rows: Scored) -> Section | Absent:
    """Scores of all settings."""
    title, found = "Tuning", search_of(rows.estimator)
    if found is None:
        return Absent(title, "the parameters were not chosen by a search (see Tuner).")
    mean = np.asarray(found["mean"], dtype=np.float64)
    names, settings = found["names"], found["settings"]
    columns = [*names, found["metric"], "std. deviation", "splits"]
    order, dropped = _order(found), _dropped(found)
    table = Table(columns, columns)
    for s in order[:_MOST_LISTED]:
        values = [short(_word(value), 40) for value in settings[s]]
        table.add(
            *values,
            number(mean[s], 5),
            number(found["deviation"][s], 2),
            f"{number(found['splits'][s])}{' (dropped)' if dropped[s] else ''}",
            class_="best" if s == order[0] else "dropped" if dropped[s] else None,
        )
    tried = [len({_word(setting[i]) for setting in settings}) for i in range(len(names))]
    axes = sorted(range(len(names)), key=lambda i: -tried[i])[:2]
    axes = sorted(i for i in axes if tried[i] > 1)
    lead = f"{plural(len(settings), 'setting')}, compared by cross-validation; the best is marked."
    if max(found["splits"]) > min(found["splits"]):
        lead += (
            " The worst settings were dropped after the first splits: their scores are means over"
            " fewer splits, and have no colour in the figure."
        )
    if len([count for count in tried if count > 1]) > 2:
        lead += " The figure shows the best score over all other parameters."
    picture = [] if not axes else [_map(found, axes, order)]
    return Section(title, lead, [*picture, table.html()])


def _order(found: Search) -> list[int]:
    """Settings from the best to the worst; those with more splits come first."""
    keys = [
        (math.isnan(mean), -splits, -mean if not math.isnan(mean) else 0.0)
        for mean, splits in zip(found["mean"], found["splits"], strict=True)
    ]
    return sorted(range(len(keys)), key=lambda s: keys[s])


def _dropped(found: Search) -> list[bool]:
    """Whether each setting was dropped before all splits had been scored."""
    return [splits < max(found["splits"]) for splits in found["splits"]]


def _map(found: Search, axes: list[int], order: list[int]) -> Markup:
    """A heat map of two parameters, or a line over one."""
    names, settings = found["names"], found["settings"]
    values = [_distinct([setting[i] for setting in settings]) for i in axes]
    shape = [len(one) for one in values] if len(axes) == 2 else [1, len(values[0])]
    scores, whole = np.full(shape, np.nan), np.full(shape, np.nan)
    best: tuple[int, int] | None = None
    dropped = _dropped(found)
    for s in order:  # the best comes first and is not overwritten
        at = [one.index(_word(settings[s][i])) for i, one in zip(axes, values, strict=True)]
        place = (at[0], at[1]) if len(at) == 2 else (0, at[0])
        best = best or place
        if np.isnan(scores[place]):
            scores[place] = found["mean"][s]
            whole[place] = np.nan if dropped[s] else found["mean"][s]
    title = f"{found['metric']} by {' and '.join(names[i] for i in axes)}"
    if len(axes) == 1:
        return _line(title, found, axes[0], values[0], whole[0])
    low, high = np.nanmin(whole), np.nanmax(whole)
    shades = (whole - low) / (high - low) if high > low else np.where(np.isnan(whole), whole, 0.5)
    texts = None
    if shape[1] <= _MOST_WORDS:
        texts = [["" if np.isnan(v) else f"{v:.3g}" for v in row] for row in scores]
    picture = cells(
        title, shades, values[0], values[1], names[axes[0]], names[axes[1]], texts, best
    )
    return figure(title, picture, wide=True)


def _line(title: str, found: Search, axis: int, values: list[str], scores: Floats) -> Markup:
    """Scores over one parameter; values that are not numbers are spaced evenly."""
    name = found["names"][axis]
    try:
        places = [float(value) for value in values]
    except ValueError:
        places = []
    if not places or not all(math.isfinite(place) for place in places):
        texts = [[f"{v:.3g}" if not np.isnan(v) else "" for v in scores]]
        return figure(
            title,
            cells(title, np.nan_to_num(scores[None]) * 0.4, [""], values, "", name, texts),
            wide=True,
        )
    log = min(places) > 0.0 and max(places) >= 30.0 * min(places)
    x = Axis.over(name, places, log=log, pad=0.04)
    y = Axis.over(found["metric"], scores, pad=0.1)
    return figure(title, lines(title, [Line("", places, scores)], x, y))


def _distinct(values: list[object]) -> list[str]:
    """Distinct values: numbers in ascending order, others in the order of appearance."""
    found = list(dict.fromkeys(_word(value) for value in values))
    try:
        return sorted(found, key=float)
    except ValueError:
        return found


def _word(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
