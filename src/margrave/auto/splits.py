"""Folds of the rows: what is trained on, in which order samples grow, and what validates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold

from margrave.auto.views import Fold
from margrave.tuning.folds import growing

_FOLDS = 5
_MOST_VALIDATED = 20_000  # rows that validate


def folds_of(y: NDArray[Any], is_class: bool, rng: np.random.RandomState) -> list[Fold]:
    """Five folds; rows of classes with a single row are always trained on.

    Where there are too few rows for that, one fold, which validates on the rows that it trains on.
    """
    n = len(y)
    labels = np.unique(y, return_inverse=True)[1] if is_class else np.zeros(n, dtype=np.intp)
    often = np.flatnonzero(np.bincount(labels)[labels] > 1)
    alone = np.setdiff1d(np.arange(n), often)
    count = min(_FOLDS, int(np.bincount(labels[often]).max())) if len(often) else 0
    if count < 2:
        return [Fold(0, rng.permutation(n), np.arange(n))]
    if is_class:
        least = np.bincount(labels[often])
        count = min(count, max(2, int(least[least > 0].min())))
        splits = StratifiedKFold(count, shuffle=True, random_state=rng).split(often, labels[often])
    else:
        splits = KFold(count, shuffle=True, random_state=rng).split(often)
    return [
        Fold(
            number,
            growing(np.concatenate([often[train], alone]), labels, rng),
            often[test][:_MOST_VALIDATED],
        )
        for number, (train, test) in enumerate(splits)
    ]
