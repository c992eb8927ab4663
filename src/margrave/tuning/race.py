"""Successive pruning: after each of the first splits only the best settings are kept.

    split 1: all settings, coarse tolerance      ->  keep the best third
    split 2: these, coarse tolerance             ->  keep the best third of them
    all splits: these, to their own tolerance    ->  the best setting

or, with rows that grow, on the first split alone: all settings on a ninth of its training rows, the
best third of them on a third, and the best third of these on all rows and all splits.

Settings with equal scores are kept or pruned together. The last round has at least five settings,
so that small grids are searched in full; so are grids on few rows, where scores are too noisy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from margrave.tuning.plan import Setting

Results = Mapping[tuple[int, int], dict[str, Any]]

COARSE = 1e-2  # gap of the first rounds: accuracies then change by less than a thousandth
_LEAST = 5
_FEW_ROWS = 1000
_SHARE = 3  # one in three settings is kept
_ROUNDS = 2


def rounds(n_settings: int, n_splits: int, n_rows: int) -> list[int]:
    """Number of settings that are kept after each of the first splits."""
    counts: list[int] = []
    left = n_settings
    if n_rows < _FEW_ROWS:
        return counts
    while len(counts) < min(_ROUNDS, n_splits - 1) and left > _LEAST:
        left = max(_LEAST, math.ceil(left / _SHARE))
        counts.append(left)
    return counts


def shares(n_settings: int, n_rows: int) -> list[tuple[float, int]]:
    """Shares of the training rows, and the number of settings that are kept after each."""
    counts = rounds(n_settings, _ROUNDS + 1, n_rows)
    return [(_SHARE ** (place - len(counts)), most) for place, most in enumerate(counts)]


def best_of(
    settings: Sequence[Setting], results: Results, n_splits: int, metric: str, left: int
) -> list[Setting]:
    """Return the settings with the best mean scores over the first splits, including ties."""
    means = [mean_score(setting, results, n_splits, metric) for setting in settings]
    least = sorted(means, reverse=True)[min(left, len(means)) - 1]
    return [setting for setting, mean in zip(settings, means, strict=True) if mean >= least]


def mean_score(setting: Setting, results: Results, n_splits: int, metric: str) -> float:
    """Mean score over the first splits; minus infinity if a fit failed."""
    found = [results[setting.number, split]["test_scores"] for split in range(n_splits)]
    numbers = [float(scores[metric] if isinstance(scores, dict) else scores) for scores in found]
    mean = sum(numbers) / len(numbers)
    return mean if math.isfinite(mean) else -math.inf
