"""Rounds of PBM as in the paper: convergence, communication, and prediction after each round."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.papers.clusters import load
from benchmarks.papers.dcsvm import _svc
from benchmarks.papers.study import Found, Study
from margrave import solvers
from margrave.kernels import Kernel
from margrave.partitions import KMeans, Parts, Random
from margrave.problem import Data as Rows

ROWS, NEW_ROWS, BLOCKS, ROUNDS = 10_000, 5_000, 8, 8


WAYS = {  # partition, and whether the step is that of equation 13
    "clusters": (KMeans(), False),
    "random": (Random(), False),
    "clusters, printed step": (KMeans(), True),
}


class Given:
    """A partition that is known already."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def split(self, *args: object, **options: object) -> Parts:
        """Return it, whatever is asked for."""
        return self.parts


def measure(case: str, quick: bool) -> dict[str, Any]:
    """Models after one, two, ... rounds; their difference is the blocks' last direction."""
    data, parameters = load(case, quick, ROWS)
    kernel = Kernel("rbf", gamma=parameters["gamma"])
    X, X_new = np.asarray(data.X), np.asarray(data.X_new[:NEW_ROWS])
    y_new = data.y_new[:NEW_ROWS]
    rows = Rows(X, kernel, np.array([0, len(X)]))
    best = -_svc({**parameters, "tol": 1e-6}, solver="exact").fit(X, data.y).objective_
    K_new = kernel.values(X_new, X)
    found: dict[str, Any] = {"rows": len(X), "features": X.shape[1], "optimum": best, "ways": {}}
    for title, (partition, printed) in WAYS.items():
        parts = partition.split(rows, 2 if quick else BLOCKS, 0)
        nearest = parts.assign(X_new) if parts.places is not None else None
        told, before = [], np.zeros(len(X))
        for number in range(1, (2 if quick else ROUNDS) + 1):
            solver = solvers.BlockMinimization(
                *(len(parts), Given(parts), number),
                **{"moving": False, "finish": None, "as_published": printed},
            )
            model = _svc({**parameters, "tol": 1e-9}, solver=solver).fit(X, data.y)
            beta = np.zeros(len(X))
            beta[model.support_] = model.dual_coef_[0]
            record = [r for r in model.history_ if "step" in r][-1]
            one = {
                "error": (record["dual"] - best) / abs(best),
                "step": record["step"],
                "bytes": record["bytes"],
                "changed": int(np.count_nonzero(beta != before)),
                "accuracy": _accuracy(K_new @ beta, y_new),
            }
            if nearest is not None and record["step"] > 0.0:
                own = before + (beta - before) / record["step"]
                scores = K_new @ before
                for part in range(len(parts)):
                    inside, there = parts.rows[part], nearest == part
                    change = (own - before)[inside]
                    scores[there] += K_new[np.ix_(there, inside)] @ change
                one["local"] = _accuracy(scores, y_new)
            told.append(one)
            before = beta
        found["ways"][title] = told
    return found


def _accuracy(scores: np.ndarray, y: np.ndarray) -> float:
    return 100.0 * float(np.mean(np.where(scores > 0.0, 1, -1) == y))


def _lines(case: str, found: Found) -> list[list[str]]:
    rows = []
    for title, told in found["ways"].items():
        for number, one in enumerate(told, 1):
            numbers = one["bytes"] / 8 / found["rows"]
            rows.append(
                [
                    title if number == 1 else "",
                    str(number),
                    f"{one['error']:.1e}",
                    f"{one['step']:.2f}",
                    f"{one['accuracy']:.2f}",
                    f"{one['local']:.2f}" if "local" in one else "-",
                    f"{one['changed']:,}",
                    f"{numbers:.1f}",
                ]
            )
    return rows


STUDIES = {
    "pbm-rounds": Study(
        "Figure 1: clusters, random blocks, and local prediction",
        f"Rounds alone with {BLOCKS} fixed blocks, on the first {ROWS:,} rows; the error is that of"
        " the paper, (f - f*) / |f*|, with f* to a gap of 1e-6. Local prediction uses the last"
        f" direction of the nearest block alone ({NEW_ROWS:,} new rows). A round sends the rows"
        " whose variables change to all workers, where the paper sends one number per row; the"
        " last column has the numbers of 64 bits that are sent, by row. The printed step is that of"
        " equation 13, which is zero for ever once a variable is at its bound.",
        ("ijcnn1", "covtype.binary, 50,000 rows"),
        measure,
        (
            *("data set", "blocks", "round", "error", "step", "accuracy (%)"),
            *("local prediction (%)", "variables changed", "numbers sent per row"),
        ),
        _lines,
    )
}
