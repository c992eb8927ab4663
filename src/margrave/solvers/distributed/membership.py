"""The members of a distributed working set, and the choice of new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave.blocks import Candidates, Fresh
from margrave.blocks.point import stack
from margrave.problem import Floats

Rows = NDArray[np.int64]


class Members:
    """The working set: rows with their targets, weights and scores, the oldest first."""

    def __init__(self) -> None:
        self.points: Any = None
        self.y = self.C = self.beta = self.scores = np.empty(0)
        self.owner, self.place = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.y)

    def replaced(self, leave: int, fresh: Fresh, numbers: Sequence[Floats]) -> Members:
        """Remove the first members and add others; `numbers` are targets, weights, scores."""
        new = Members()
        y, C, scores = numbers
        kept = [] if self.points is None else [self.points[leave:]]
        new.points = stack([*kept, fresh.points])
        new.y, new.C = np.concatenate([self.y[leave:], y]), np.concatenate([self.C[leave:], C])
        new.beta = np.concatenate([self.beta[leave:], fresh.beta])
        new.scores = np.concatenate([self.scores[leave:], scores])
        new.owner = np.concatenate([self.owner[leave:], fresh.owner])
        new.place = np.concatenate([self.place[leave:], fresh.place])
        return new


def worst_pairs(offers: Sequence[Candidates], middle: float, count: int) -> tuple[Rows, Rows]:
    """Owners and places of the worst KKT violations: half that rise, half that fall."""
    up = _merged([(o.up - middle, o.up_places) for o in offers])
    low = _merged([(middle - o.low, o.low_places) for o in offers])
    rising = max((count + 1) // 2, count - min(count, len(low[0])))
    rising = min(len(up[0]), rising)
    falling = min(len(low[0]), count - min(count, rising))
    return (
        np.concatenate([up[0][:rising], low[0][:falling]]),
        np.concatenate([up[1][:rising], low[1][:falling]]),
    )


def worst_rows(offers: Sequence[Candidates], count: int) -> tuple[Rows, Rows]:
    """Owners and places of the worst KKT violations, in either direction."""
    owner, place = _merged([(o.up, o.up_places) for o in offers])
    return owner[:count], place[:count]


def _merged(offers: Sequence[tuple[Floats, Rows]]) -> tuple[Rows, Rows]:
    """Owners and places of all candidates with a positive rate, the largest first."""
    rate = np.concatenate([rates for rates, _ in offers])
    owner = np.repeat(np.arange(len(offers)), [len(rates) for rates, _ in offers])
    place = np.concatenate([places for _, places in offers])
    order = np.lexsort((place, owner, -rate))
    order = order[rate[order] > 0.0]
    return owner[order], place[order]
