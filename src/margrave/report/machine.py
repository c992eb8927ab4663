"""Sections about the model: parameters, certificate, convergence, weights, vectors, parts."""

from __future__ import annotations

import inspect
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from scipy import sparse

from margrave.kernels import KERNELS
from margrave.report.axis import Axis
from margrave.report.page import (
    Absent,
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
from margrave.report.scored import Features, Scored, margins_of
from margrave.report.svg import Line, bars, figure, lines, steps

_MOST_VECTORS = 10
_CANDIDATES = 200  # among equal coefficients, candidates for the smallest margins
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
    usual: list[Any] = []
    for name, value in given.items():
        owner, _, own = name.rpartition("__")
        default = _defaults(given[owner] if owner else estimator)[own].default
        if repr(value) == repr(default):
            usual += [tag("code", short(f"{name}={_words(value)}")), " "]
        else:
            words = (name, _words(value), _words(default))
            table.add(*(tag("code", short(word)) for word in words), class_="changed")
    count, kernel = len(table.rows), estimator._kernel
    lead = "All parameters are at their defaults."
    if count:
        lead = f"{plural(count, 'parameter')} differ{'s' if count == 1 else ''} from the default."
    lead += f" The kernel is {'a function' if kernel.is_callable else kernel.name}"
    read = () if kernel.is_callable else KERNELS[kernel.name]
    numbers = ", ".join(f"{name} = {number(getattr(kernel, name))}" for name in read)
    lead += f" with {numbers}." if numbers else "."
    if rows.steps:
        lead += f" Rows are first transformed by {', '.join(rows.steps)}."
    return Section(
        "Parameters", lead, [table.html() if count else None, note("At their defaults: ", usual)]
    )


def _defaults(owner: Any) -> Any:
    """Parameters of the constructor, with their defaults."""
    return inspect.signature(type(owner).__init__).parameters


def _words(value: Any) -> str:
    return type(value).__name__ if hasattr(value, "get_params") else repr(value)


def certificate(rows: Scored) -> Section:
    """Objective, lower bound and gap."""
    estimator = rows.estimator
    if hasattr(estimator, "posterior_"):
        lead = (
            "A posterior has no duality gap; its chains have diagnostics instead, which are below."
        )
        table = Table(["", "value"], ["value"])
        table.add("objective J at the mean", number(estimator.objective_, 6))
        table.add("chains have mixed", "yes" if estimator.converged_ else "no")
        table.add("iterations of the chains", number(estimator.n_iter_))
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
    table.add("rounds", number(estimator.n_iter_))
    if estimator.history_:
        table.add("seconds", number(estimator.history_[-1]["seconds"], 3))
    body: list[Any] = [table.html()]
    if len(gaps) > 1:
        body = [beside(table.html(), _problems(rows, gaps, objectives))]
    lead = _PROMISES.get(estimator.certificate_, _PROMISES["none"])
    if np.isinf(estimator.gap_):
        lead = (
            "The kernel is not positive semidefinite on these rows, so that no optimum can be"
            " certified: use the model with care, or choose another kernel."
        )
    return Section("Certificate", lead, body)


def _problems(rows: Scored, gaps: Any, objectives: Any) -> list[Any]:
    """The binary problems with the largest gaps."""
    names = [str(name) for name in rows.classes]
    if len(gaps) == len(names):
        named = [f"{name} against the rest" for name in names]
    else:
        named = [f"{a} against {b}" for a, b in combinations(names, 2)]
    order = np.argsort(-np.nan_to_num(gaps), kind="stable")[:_MOST_LISTED]
    table = Table(["problem", "objective", "gap"], ["objective", "gap"])
    for p in order:
        name = named[p] if p < len(named) else f"problem {p + 1}"
        table.add(short(name, 60), number(objectives[p]), number(gaps[p]))
    which = "The gap of the model is the largest gap of its problems."
    if len(order) < len(gaps):
        which = f"The {len(order)} largest gaps of {len(gaps)} problems."
    return [tag("div", table.html(), note(which))]


def runs_of(history: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Split a history into runs of the solver, each of which counts its own rounds."""
    runs: list[list[dict[str, Any]]] = []
    current: dict[str, list[dict[str, Any]]] = {}
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
    title, history = "Convergence", rows.estimator.history_
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
    lead = f"{plural(len(history), 'round')} in {number(history[-1]['seconds'], 3)} seconds."
    if gaps:
        pictures.insert(0, picture("relative duality gap", "gap", True, [rows.estimator.tol]))
        lead += " The dashed line is the tolerance, below which the fit ends."
    if len(runs) > 1:
        most = f", of which the {_MOST_RUNS} longest are shown" if len(runs) > _MOST_RUNS else ""
        lead += f" There is a line for each of {len(runs):,} runs of the solver{most}."
    return Section(title, lead, [beside(*pictures)])


def weights(rows: Scored) -> Section | Absent:
    """The largest feature weights of a linear model."""
    title, estimator = "Feature weights", rows.estimator
    if estimator._kernel.name != "linear" or getattr(estimator, "_local", None) is not None:
        return Absent(title, "only linear models that are not made of parts have feature weights.")
    if hasattr(estimator, "posterior_"):
        return Absent(title, "see the posterior, which has their standard deviations.")
    found = (
        estimator.coef_.toarray()
        if sparse.issparse(estimator.coef_)
        else np.asarray(estimator.coef_)
    )
    names = rows.estimator_names
    values = found[0] if len(found) == 1 else np.sqrt((found**2).sum(axis=0))
    order = np.argsort(-np.abs(values), kind="stable")[:_MOST_LISTED]
    what = "weight" if len(found) == 1 else f"norm over {len(found)} problems"
    picture = bars(title, [names[i] for i in order], values[order], what)
    lead = f"The {len(order)} largest of {plural(len(values), 'weight')}."
    if rows.is_classifier and len(found) == 1:
        lead += f" Positive weights favour class {short(rows.classes[1], 40)}."
    lead += " They are comparable only if the features have the same scale."
    return Section(title, lead, [figure("Largest weights", picture)])


def support(rows: Scored) -> Section | Absent:
    """The support vectors with the largest coefficients."""
    title, estimator = "Most influential support vectors", rows.estimator
    if hasattr(estimator, "posterior_"):
        return Absent(title, "a posterior is over weights; there are no dual coefficients.")
    if not len(estimator.support_):
        return Absent(title, "the model consists of feature weights and stores no support vectors.")
    try:
        vectors = None if rows.precomputed else estimator.support_vectors_
    except AttributeError as reason:
        return Absent(title, f"{reason}.")
    size = np.abs(estimator._dual).max(axis=0)
    what = "margin" if rows.is_classifier else "prediction" if rows.is_regressor else "score"
    lead = plural(len(size), "support vector")
    if estimator.certificate_ != "none":
        lead += f" among {plural(estimator._n_rows, 'training row')}"
    lead += "; these have the largest coefficients. Wrong labels and outliers are often among them."
    equal = int(np.sum(size >= size.max() * (1 - 1e-9)))
    if equal > 1:
        lead += f" {equal:,} share the largest coefficient"
        lead += "." if rows.is_regressor else f"; those with the smallest {what}s come first."
    after = note(f"Feature values are those after {', '.join(rows.steps)}.") if rows.steps else None
    return Section(title, lead, [_vectors(rows, vectors, size, what), after])


def _vectors(rows: Scored, vectors: Any, size: Any, what: str) -> Markup:
    """A table of the vectors with the largest coefficients."""
    estimator, dual = rows.estimator, rows.estimator._dual
    labels, scores, usual = None, None, Features()
    if rows.is_classifier:
        labels = np.repeat(np.arange(len(rows.classes)), estimator.n_support_)
    first = np.argsort(-size, kind="stable")[:_CANDIDATES]
    if vectors is not None:
        scores = _scores(rows, vectors[first], None if labels is None else labels[first])
        usual.add(vectors)
    # among equal coefficients the smallest margin comes first
    worse = np.zeros(len(first)) if scores is None or rows.is_regressor else scores
    columns = ["row", "coefficient", what, "most unusual features"]
    if labels is not None:
        columns.insert(1, "class")
    table = Table(columns, ["row", "coefficient", what])
    for place in np.lexsort((worse, -np.round(size[first], 12)))[:_MOST_VECTORS]:
        v = first[place]
        label = [] if labels is None else [short(rows.classes[labels[v]], 30)]
        coefficient = float(dual[np.argmax(np.abs(dual[:, v])), v])
        told = "unknown" if scores is None else number(scores[place], 3)
        leading = "" if vectors is None else _leading(rows.estimator_names, usual, vectors[[v]])
        table.add(number(estimator.support_[v]), *label, number(coefficient), told, leading)
    return table.html()


def _scores(rows: Scored, vectors: Any, own: Any) -> Any:
    """Margins of support vectors of these classes, or their predictions."""
    if rows.is_regressor:
        return rows.ask("predict", vectors)
    scores = rows.ask("decision_function", vectors)
    return scores if own is None else np.nan_to_num(margins_of(scores, own))


def _leading(names: list[str], usual: Features, vector: Any) -> str:
    """The features in which a vector differs most from the mean of all vectors, with its values."""
    values = np.asarray(vector.toarray() if sparse.issparse(vector) else vector).ravel()
    far = np.abs(values - usual.mean) / np.maximum(usual.deviation, 1e-300)
    order = np.argsort(-np.where(usual.deviation > 0.0, far, 0.0), kind="stable")[:3]
    return ", ".join(f"{short(names[i], 24)} = {number(values[i], 3)}" for i in order)


def parts(rows: Scored) -> Section | Absent:
    """Levels and sizes of the parts."""
    title, estimator, divided = "Parts", rows.estimator, rows.divided
    levels = [record for record in estimator.history_ if "parts" in record]
    if divided is None and not levels:
        return Absent(title, "the solver did not divide the rows.")
    body: list[Any] = []
    columns = ["level", "parts", "rows of a part", "support vectors", "gap", "seconds"]
    table = Table(columns, columns[1:])
    for record in levels[-_MOST_LISTED:]:
        sizes = ""
        if "largest_part" in record:
            sizes = f"{number(record['smallest_part'])} to {number(record['largest_part'])}"
        where = str(record.get("where", "")).rpartition(",")[0]
        known = [number(record["support"]), number(record["gap"], 3), number(record["seconds"], 3)]
        table.add(short(where or "parts"), number(record["parts"]), sizes, *known)
    if levels:
        body.append(table.html())
    lead = "The rows were divided into parts, which were solved separately and then combined."
    if divided is not None:
        if divided is estimator:
            lead += " The model consists of the parts of the last level."
        else:
            lead += " The figures show the last model of parts; the final model is of all rows."
        body.append(beside(*_sizes(rows, divided)))
    return Section(title, lead, body)


def _sizes(rows: Scored, divided: Any) -> list[Markup]:
    held = np.array([len(own) for own in divided._part_support])
    pictures = [_sorted("Support vectors of each part", held, "support vectors")]
    if rows.parts is not None:
        counts = np.bincount(rows.parts, rows.weight, len(held))
        pictures.insert(0, _sorted("Rows of this data in each part", counts, "rows"))
    return pictures


def _sorted(title: str, sizes: Any, what: str) -> Markup:
    """Sizes from the largest to the smallest; means of groups if there are very many."""
    sizes = np.sort(sizes)[::-1]
    edges = np.unique(np.linspace(0, len(sizes), min(len(sizes), 100) + 1).round().astype(int))
    heights = [float(sizes[a:b].mean()) for a, b in pairwise(edges)]
    axis = Axis("parts, the largest first", 0.0, float(len(sizes)))
    return figure(title, steps(title, [Line(what, edges, heights)], axis, what))
