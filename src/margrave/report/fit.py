"""Sections about the fit: parameters, certificate, convergence."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from itertools import combinations
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave.progress import Record
from margrave.report.axis import Axis
from margrave.report.estimator import Floats, has_posterior
from margrave.report.page import (
    Absent,
    Content,
    Markup,
    Section,
    Table,
    beside,
    note,
    number,
    plural,
    short,
    tag,
)
from margrave.report.scored import Scored
from margrave.report.svg import Line, figure, lines

_MOST_RUNS = 40
_MOST_LISTED = 15

# what each kind of certificate guarantees
_PROMISES = {
    "full": "The gap is that of the whole training problem: no model with these parameters has an"
    " objective below the lower bound, and the gap is the distance of this model from it. It"
    " measures how well the problem was solved, not how good the predictions are.",
    "blocks": "The model consists of parts that were fitted independently, and the gap is that of"
    " these independent problems. It does not bound the distance from the optimum on all rows:"
    " certify(X, y) computes that.",
    "features": "The model is restricted to landmarks, and the gap is that of the restricted"
    " problem. certify(X, y) computes the gap of the whole problem.",
    "estimate": "The fit ended before its certificate was computed, and the gap is an estimate from"
    " the scores during the fit. certify(X, y) computes the certificate.",
    "none": "There is no certificate: it is unknown how well the problem was solved.",
}


def parameters(rows: Scored) -> Section:
    """Parameters that differ from their defaults, and the rest."""
    estimator = rows.estimator
    given = estimator.get_params(deep=True)
    table = Table(["parameter", "value", "default"])
    usual: list[Content] = []
    for name, value in given.items():
        owner, _, own = name.rpartition("__")
        default = _defaults(given[owner] if owner else estimator)[own].default
        if _is_same(value, default):
            usual += [tag("code", short(f"{name}={_words(value)}")), " "]
        else:
            words = (name, _words(value), _words(default))
            table.add(*(tag("code", short(word)) for word in words), class_="changed")
    count, kernel = len(table.rows), estimator._kernel
    lead = "All parameters are at their defaults."
    if count:
        lead = f"{plural(count, 'parameter')} differ{'s' if count == 1 else ''} from the default."
    lead += f" The kernel is {'a function' if kernel.is_callable else kernel.name}"
    numbers = ", ".join(f"{name} = {number(value)}" for name, value in kernel.numbers.items())
    lead += f" with {numbers}." if numbers else "."
    if rows.steps:
        lead += f" Rows are first transformed by {', '.join(rows.steps)}."
    return Section(
        "Parameters", lead, [table.html() if count else None, note("At their defaults: ", usual)]
    )


def _defaults(owner: object) -> Mapping[str, inspect.Parameter]:
    """Parameters of the constructor, with their defaults."""
    return inspect.signature(type(owner).__init__).parameters


def _is_same(value: object, default: object) -> bool:
    """Whether a value is the default, 1 for 1.0 included."""
    if isinstance(value, Number) and isinstance(default, Number):
        return value == default and isinstance(value, bool) == isinstance(default, bool)
    return repr(value) == repr(default)


def _words(value: object) -> str:
    return type(value).__name__ if hasattr(value, "get_params") else repr(value)


def certificate(rows: Scored) -> Section:
    """Objective, lower bound and gap."""
    estimator = rows.estimator
    if has_posterior(estimator):
        lead = (
            "A posterior has no duality gap; its chains have diagnostics instead, which are below."
        )
        table = Table(["", "value"], ["value"])
        table.add("objective J at the mean", number(estimator.objective_, 6))
        table.add("chains have mixed", "yes" if estimator.converged_ else "no")
        table.add("iterations of the chains", number(int(np.sum(estimator.n_iter_))))
        return Section("Certificate", lead, [table.html()])
    gaps, objectives = estimator.gaps_, estimator.objectives_
    table = Table(["", "value"], ["value"])
    table.add("objective (primal value)", number(estimator.objective_, 6))
    bound = float(np.sum(objectives - estimator._absolute_gaps))
    table.add("lower bound (dual value)", number(bound, 6))
    table.add("relative duality gap", number(estimator.gap_))
    table.add("requested gap (tol)", number(estimator.tol))
    table.add("kind of certificate", estimator.certificate_)
    table.add("converged", "yes" if estimator.converged_ else "no")
    table.add("solver", short(estimator.solver_))
    table.add("rounds on all rows", number(int(np.sum(estimator.n_iter_))))
    if estimator.history_:
        table.add("seconds", number(estimator.history_[-1]["seconds"], 3))
    body: list[Content] = [table.html()]
    if len(gaps) > 1:
        body = [beside(table.html(), _problems(rows.classes, estimator._scheme, gaps, objectives))]
    lead = _PROMISES.get(estimator.certificate_, _PROMISES["none"])
    if np.isinf(estimator.gap_):
        lead = (
            "The kernel is not positive semidefinite on these rows, so that no optimum can be"
            " certified: use the model with care, or choose another kernel."
        )
    return Section("Certificate", lead, body)


def _problems(
    classes: NDArray[Any], scheme: str | None, gaps: Floats, objectives: Floats
) -> Markup:
    """The binary problems with the largest gaps."""
    names = [str(name) for name in classes]
    if scheme == "ovo":
        named = [f"{a} against {b}" for a, b in combinations(names, 2)]
    else:
        named = [f"{name} against the rest" for name in names]
    order = np.argsort(-np.nan_to_num(gaps), kind="stable")[:_MOST_LISTED]
    table = Table(["problem", "objective", "gap"], ["objective", "gap"])
    for p in order:
        name = named[p] if p < len(named) else f"problem {p + 1}"
        table.add(short(name, 60), number(objectives[p]), number(gaps[p]))
    which = "The gap of the model is the largest gap of its problems."
    if len(order) < len(gaps):
        which = f"The {len(order)} largest gaps of {len(gaps)} problems."
    return tag("div", table.html(), note(which))


def runs_of(history: list[Record]) -> list[list[Record]]:
    """Split a history into runs of the solver, each of which counts its own rounds."""
    runs: list[list[Record]] = []
    current: dict[str, list[Record]] = {}
    for record in history:
        place = record.get("where", "")
        run = current.get(place)
        if run is None or record["round"] < run[-1]["round"]:
            run = current[place] = []
            runs.append(run)
        run.append(record)
    return runs


def convergence(rows: Scored) -> Section | Absent:
    """Objective and gap over time."""
    title, estimator, history = "Convergence", rows.estimator, rows.estimator.history_
    if not history:
        return Absent(title, "the model has no history (models of other programs have none).")
    divided = [record for record in history if "parts" in record]
    runs = [(run, 1) for run in runs_of([r for r in history if "parts" not in r])]
    shown = sorted(runs, key=lambda run: -len(run[0]))[:_MOST_RUNS]
    if divided:
        shown.append((divided, 2))
    seconds = Axis.over("seconds", [r["seconds"] for r in history], also=[0.0])
    thin = len(shown) > 4

    def picture(name: str, key: str, log: bool, marks: list[float]) -> Markup:
        values = [abs(r[key]) if log else r[key] for run, _ in shown for r in run]
        y = Axis.over(name, values, log=log, also=marks, pad=0.05)
        made = [
            Line("", [r["seconds"] for r in run], [r[key] for r in run], colour, thin)
            for run, colour in shown
        ]
        names = [("the whole problem", 1), ("models of parts, independent problems", 2)]
        known = [pair for pair in names if divided and any(c == pair[1] for _, c in shown)]
        return figure(name.capitalize(), lines(name, made, seconds, y, marks), known)

    objectives = [r["objective"] for r in history if np.isfinite(r["objective"])]
    spans = bool(objectives) and min(objectives) > 0 and max(objectives) > 30 * min(objectives)
    pictures = [picture("objective", "objective", spans, [])]
    gaps = [r["gap"] for r in history if np.isfinite(r["gap"]) and r["gap"] > 0]
    lead = f"{plural(len(history), 'round')} in {number(history[-1]['seconds'], 3)} seconds"
    whole = int(np.sum(estimator.n_iter_))
    if 0 < whole < len(history):
        lead += f", {whole:,} of them on all rows"
    lead += "."
    if gaps and not has_posterior(estimator):
        pictures.insert(0, picture("relative duality gap", "gap", True, [estimator.tol]))
        lead += " The dashed line is the tolerance, below which the fit ends."
    if len(runs) > 1:
        most = f", of which the {_MOST_RUNS} longest are shown" if len(runs) > _MOST_RUNS else ""
        lead += f" There is a line for each of {len(runs):,} runs of the solver{most}."
    return Section(title, lead, [beside(*pictures)])
