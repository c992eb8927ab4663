"""Candidates of the search: kernel, metric, gamma, C and loss; and the moves from one to others.

A metric is known by how it was made: from the gradients of a machine in an earlier metric. So a
chain of metrics, a recursive feature machine, is a chain of candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from margrave import _core
from margrave.auto.columns import STYLES

# kernels and their powers
FAMILIES = (
    *(("laplacian", 0.7), ("exponential", 1.0), ("matern32", 1.0), ("rbf", 1.0)),
    *(("laplacian", 1.0), ("exponential", 0.7)),
)
PENALTIES = (1.0, 8.0, 64.0)
LEAST_C, MOST_C = 2.0**-5, 2.0**20
LEAST_MULTIPLE, MOST_MULTIPLE = 2.0**-8, 2.0**8
# losses with their epsilon, in units of the targets' standard deviation
LOSSES = {
    False: (("hinge", 0.0), ("squared_hinge", 0.0)),
    True: (("squared_epsilon_insensitive", 0.0), ("huber", 0.3), ("epsilon_insensitive", 0.1)),
}


@dataclass(frozen=True)
class Metric:
    """A metric from the gradients of a candidate that was fitted to `rows` rows."""

    kind: str  # "diagonal" or "full"
    source: Candidate
    rows: int

    @cached_property
    def length(self) -> int:
        """How many metrics led to this one, with itself."""
        return 1 + (0 if self.source.metric is None else self.source.metric.length)


@dataclass(frozen=True)
class Candidate:
    """One setting. gamma is `multiple` / the typical distance of its rows in its metric."""

    kernel: str
    power: float
    C: float
    loss: str
    epsilon: float = 0.0
    multiple: float = 1.0
    style: str = STYLES[0]
    metric: Metric | None = None
    class_weight: str | None = None

    @property
    def family(self) -> tuple[str, float, str]:
        """Kernel and kind of metric: what is kept apart when the best are chosen."""
        return self.kernel, self.power, "none" if self.metric is None else self.metric.kind

    @property
    def pairing(self) -> str:
        """What the kernel is a function of, see :attr:`margrave.kernels.Kernel.pairing`."""
        return _core.Kernel(self.kernel).pairing

    def described(self) -> dict[str, Any]:
        """The setting in plain values."""
        return {
            **{"kernel": self.kernel, "power": self.power, "C": self.C, "loss": self.loss},
            **{"multiple": self.multiple, "columns": self.style},
            "metric": "none" if self.metric is None else self.metric.kind,
            "metrics": 0 if self.metric is None else self.metric.length,
            "class_weight": self.class_weight,
        }


def first(is_regression: bool) -> list[Candidate]:
    """What the search begins with: every family, and several C."""
    loss, epsilon = LOSSES[is_regression][0]
    return [Candidate(*family, C, loss, epsilon) for family in FAMILIES for C in PENALTIES]


@dataclass(frozen=True)
class Moves:
    """Which settings are next to each other."""

    is_regression: bool
    can_turn: bool  # whether full metrics are possible
    styles: tuple[str, ...]
    weights: tuple[str | None, ...]  # of classes

    def around(self, one: Candidate, rows: int, step: float) -> Iterator[Candidate]:
        """Settings next to one that was fitted to `rows` rows; `step` is the factor of gamma."""
        for kind in self._kinds(one):
            yield replace(one, metric=Metric(kind, one, rows))
        for factor in (step, 1.0 / step):
            if LEAST_MULTIPLE <= one.multiple * factor <= MOST_MULTIPLE:
                yield replace(one, multiple=one.multiple * factor)
            if LEAST_C <= one.C * factor**2 <= MOST_C:
                yield replace(one, C=one.C * factor**2)
        for loss, epsilon in LOSSES[self.is_regression]:
            if loss != one.loss:
                yield replace(one, loss=loss, epsilon=epsilon)
        if one.kernel in ("laplacian", "exponential"):
            for power in (0.5, 0.7, 1.0):
                if power != one.power:
                    yield replace(one, power=power)
        for style in self.styles:
            if style != one.style and one.metric is None:
                yield replace(one, style=style)
        for weight in self.weights:
            if weight != one.class_weight:
                yield replace(one, class_weight=weight)

    def _kinds(self, one: Candidate) -> list[str]:
        """A diagonal metric can become a full one; a full one stays one."""
        full = ["full"] if self.can_turn and one.pairing == "squares" else []
        return full if one.metric is not None and one.metric.kind == "full" else ["diagonal", *full]
