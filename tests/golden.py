"""Golden objectives and decisions, as one flat list of records.

The numbers come from an interior point method and Newton's method with relative duality gaps
below 1.5e-13, checked against LIBSVM, LIBLINEAR and Clarabel; they are facts, not outputs of this
library, and must never be regenerated from it.

Every loss and kernel of cases.py has records. After a new one is listed there,

    python -m tests.golden

adds those that are missing to listed.json, by the oracle's solver and without the library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from tests import cases, oracle
from tests.data import GOLDEN, load

KERNEL = {"lin": "linear", "linear": "linear", "rbf": "rbf"}
INTERCEPT = {"none": None, "k1": "regularized", "free": "free"}
LOSS = {
    "hinge": "hinge",
    "sqhinge": "squared_hinge",
    "logistic": "logistic",
    "svr": "epsilon_insensitive",
}
ROWS = {
    "iris": (0, 75, 149),
    "bc": (0, 284, 568),
    "moons": (0, 199, 399),
    "diabetes": (0, 220, 441),
}


@dataclass(frozen=True)
class Record:
    data: str
    kernel: str
    kernel_parameters: dict
    loss: str
    loss_parameters: dict
    intercept: str | None
    C: float
    objective: float
    rows: tuple
    decisions: np.ndarray

    @property
    def name(self):
        kernel = "-".join([self.kernel, *map(str, self.kernel_parameters.values())])
        loss = "-".join([self.loss, *map(str, self.loss_parameters.values())])
        return f"{self.data}-{kernel}-{loss}-C{self.C:.3g}-{self.intercept}"

    @property
    def kernel_case(self):
        return self.kernel, self.kernel_parameters

    @property
    def loss_case(self):
        return self.loss, self.loss_parameters

    def arrays(self):
        return load(self.data)

    def problem(self):
        """What `build.problem` takes."""
        return *self.arrays(), self.C, self.loss_case, self.kernel_case, self.intercept


def _dual():
    for r in json.loads((GOLDEN / "dual.json").read_text()):
        if "loss" not in r:  # records of the nu problems
            continue
        yield Record(
            r["ds"],
            KERNEL[r["kernel"][0]],
            {"gamma": r["kernel"][1]} if len(r["kernel"]) > 1 else {},
            LOSS[r["loss"]],
            {"epsilon": r["eps"]} if "eps" in r else {},
            INTERCEPT[r["bias"]],
            r["C"],
            r["primal"],
            ROWS[r["ds"]],
            np.array(r["dec"]),
        )


def _margin_distribution():
    for r in json.loads((GOLDEN / "odm.json").read_text()):
        name = "moons200" if r["data"] == "moons" else r["data"]
        n = len(load(name)[1])
        yield Record(
            name,
            KERNEL[r["kern"]],
            {"gamma": r["g"]} if r["g"] else {},
            "margin_distribution",
            {"theta": r["theta"], "upsilon": r["v"]},
            None,
            r["lam"] / (n * (1.0 - r["theta"]) ** 2),
            r["p"],
            tuple(r["rows"]),
            np.array(r["f"]),
        )


def _augmentation():
    """Hinge and eps-insensitive models with C = 2/lam and, if linear, a constant feature."""
    for r in json.loads((GOLDEN / "augmentation.json").read_text()):
        if r["task"] == "mlt":
            continue
        linear = r["kern"] == "linear+1"
        yield Record(
            "moons200" if r["data"] == "moons" else r["data"],
            "linear" if linear else "rbf",
            {} if linear else {"gamma": float(r["kern"].split("=")[1])},
            "hinge" if r["task"] == "cls" else "epsilon_insensitive",
            {} if r["task"] == "cls" else {"epsilon": r["eps"]},
            "regularized" if linear else None,
            2.0 / r["lam"],
            r["J"] / r["lam"],
            tuple(r["rows"]),
            np.array(r["f"]),
        )


def _listed():
    for r in json.loads((GOLDEN / "listed.json").read_text()):
        yield Record(**{**r, "rows": tuple(r["rows"]), "decisions": np.array(r["decisions"])})


RECORDS = [*_dual(), *_margin_distribution(), *_augmentation(), *_listed()]


# --- records of listed losses and kernels --------------------------------------------------------


def missing():
    """Problems (data, kernel, loss, intercept, C) of listed cases that have no record."""
    kernels, losses = [r.kernel_case for r in RECORDS], [r.loss_case for r in RECORDS]
    for kernel in cases.KERNELS:
        if kernel not in kernels:
            data = "wide" if kernel[0] == "sigmoid" else "moons200"
            yield data, kernel, ("hinge", {}), "free", 10.0
            data = "wide" if kernel[0] == "sigmoid" else "diabetes"
            yield data, kernel, ("epsilon_insensitive", {"epsilon": 0.1}), "regularized", 1.0
    for loss in cases.ZERO_SUM:
        if loss not in losses:
            data = "iris12" if cases.oracle_loss(loss).labels else "diabetes"
            for kernel in (("linear", {}), ("rbf", {"gamma": 0.1})):
                for intercept in cases.INTERCEPTS:
                    yield data, kernel, loss, intercept, 2.0


def solved(data, kernel, loss, intercept, C):
    """The record of a problem, as it is written to listed.json."""
    X, y = load(data)
    K = cases.oracle_kernel(kernel)(X, X)
    found = oracle.solve(K, y, C, cases.oracle_loss(loss), intercept)
    if not -1e-14 <= found.gap <= 1.2e-13:
        raise ArithmeticError(f"{data}, {kernel}, {loss}: the oracle ends at a gap of {found.gap}")
    rows = [0, len(y) // 2, len(y) - 1]
    return {
        "data": data,
        "kernel": kernel[0],
        "kernel_parameters": kernel[1],
        "loss": loss[0],
        "loss_parameters": loss[1],
        "intercept": intercept,
        "C": C,
        "objective": found.primal,
        "rows": rows,
        "decisions": found.decisions[rows].tolist(),
    }


if __name__ == "__main__":
    file = GOLDEN / "listed.json"
    records = json.loads(file.read_text()) + [solved(*problem) for problem in missing()]
    file.write_text("[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n")
