"""Golden objectives and decisions, as one flat list of records.

The numbers come from an interior point method and Newton's method with relative duality gaps
below 1.2e-13, checked against LIBSVM, LIBLINEAR and Clarabel; they are facts, not outputs of this
library, and must never be regenerated from it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

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

    def arrays(self):
        return load(self.data)


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


RECORDS = [*_dual(), *_margin_distribution(), *_augmentation()]
