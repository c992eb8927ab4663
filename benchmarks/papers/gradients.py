"""The linear kernel over the work: Figures 3 and 4 of the SODM paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.papers.common import read
from benchmarks.papers.picture import Curves
from benchmarks.papers.sodm import DATASETS, ODM_FIXED, PAPER, STRATEGIES, TABLE_3
from benchmarks.papers.study import Found, Study
from benchmarks.papers.worker import facts
from margrave import ODMClassifier
from margrave.solvers import VarianceReduced

NODES = 5  # workers of the paper
EPOCHS = (1, 2, 3, 5, 10, 20, 40)
TREES = {"cascade": "Ca-ODM", "dip": "DiP-ODM", "dc": "DC-ODM"}
GRADIENTS = {"dsvrg": "SODM", "svrg": "ODM_svrg", "csvrg": "ODM_csvrg"}
ENOUGH = 1e-3  # the gap at which the work is compared
MOST_ROWS = 30_000


class StopAtLevel:
    """A callback that ends a fit when so many levels of parts have been solved."""

    def __init__(self, levels: int) -> None:
        self.levels = levels

    def __call__(self, record: dict[str, Any]) -> bool:
        self.levels -= record.get("parts") is not None
        return self.levels <= 0


def measure(case: str, quick: bool) -> dict[str, Any]:
    """Points of each method: products of a row with another vector, accuracy and gap by then."""
    data = DATASETS[case].load(quick).in_form("float32-dense")
    X, y = data.X[:MOST_ROWS], data.y[:MOST_ROWS]
    stored = {} if quick else read(PAPER, TABLE_3)[case]["parameters"]
    fixed = {**ODM_FIXED, "lam": 16.0, **stored, "kernel": "linear"}
    found: dict[str, Any] = {"rows": len(y), "ways": {}}

    def point(model: Any) -> dict[str, Any]:
        told = facts(model)
        products = (told["passes"] or 0.0) * len(y) + told["kernel_values"]
        accuracy = 100.0 * float(model.score(data.X_new, data.y_new))
        gap = told["gap"] if told["certificate"] == "full" else float(model.certify(X, y))
        return {"products": float(products), "accuracy": accuracy, "gap": gap}

    def levels(way: str) -> Iterator[dict[str, Any]]:
        for number in range(1, 10):
            model = ODMClassifier(**fixed, solver=STRATEGIES[way][0]())
            model.set_params(callbacks=StopAtLevel(number)).fit(X, y)
            yield point(model)
            if not any(record.get("parts") for record in model.history_[number:]):
                break
        yield point(ODMClassifier(**fixed, solver=STRATEGIES[way][0]()).fit(X, y))

    for way, title in TREES.items():
        found["ways"][title] = list(levels(way))
    for method, title in GRADIENTS.items():
        points = []
        for epochs in EPOCHS[:2] if quick else EPOCHS:
            solver = VarianceReduced(method, partitions=NODES if method == "dsvrg" else None)
            model = ODMClassifier(**{**fixed, "tol": 1e-9}, solver=solver, max_iter=epochs)
            points.append(point(model.fit(X, y)))
        found["ways"][title] = points
    newton = ODMClassifier(**fixed, solver="newton").fit(X, y)
    found["ways"]["ODM (Newton)"] = [point(newton)]
    return found


def until(points: list[dict[str, Any]]) -> float | None:
    """Products until the gap is small enough; None if it never is."""
    enough = [one["products"] for one in points if one["gap"] is not None and one["gap"] <= ENOUGH]
    return min(enough, default=None)


def _rows(case: str, found: Found) -> list[list[str]]:
    rows = []
    for title, points in found["ways"].items():
        products = until(points)
        best = points[-1]
        rows.append(
            [
                *(title, f"{points[0]['accuracy']:.2f}", f"{best['accuracy']:.2f}"),
                f"{best['gap']:.1e}" if best["gap"] is not None else "-",
                f"{best['products'] / found['rows']:,.0f}",
                f"{products / found['rows']:,.0f}" if products is not None else "-",
            ]
        )
    return rows


def _curves(case: str, found: Found) -> Curves:
    panels: list[dict[str, Any]] = [{}, {}]
    for title, points in found["ways"].items():
        for panel, key in zip(panels, ("accuracy", "gap"), strict=True):
            panel[title] = [
                (one["products"] / found["rows"], one[key]) for one in points if one[key]
            ]
    return panels


STUDIES = {
    "sodm-linear": Study(
        "Figures 3 and 4: the linear kernel, over the work",
        f"At most {MOST_ROWS:,} rows, parameters of Table 3. A pass is a product of every row with"
        " a vector; of the strategies with parts, it is as many kernel values, which are such"
        " products too. Their points are the levels at which they are stopped. SODM, which is"
        f" stochastic gradients on {NODES} nodes one after the other, and the other gradient"
        f" methods are stopped after {', '.join(map(str, EPOCHS))} epochs. Gaps are those of the"
        " whole problem.",
        tuple(DATASETS),
        measure,
        (
            *("data set", "method", "first accuracy (%)", "last accuracy (%)", "last gap"),
            *("passes", f"passes to a gap of {ENOUGH:g}"),
        ),
        _rows,
        curves=_curves,
        axes=("passes over the rows", "test accuracy (%)", "gap of the whole problem"),
    )
}
