"""A live table of the best settings so far, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from margrave.tuning.plan import Setting
from margrave.tuning.samples import Scores

_ROWS = 10


class Display:
    """Context manager of a live display on the terminal. Nothing is shown unless `verbose`."""

    def __init__(self, verbose: int) -> None:
        self.live: Any = None
        if verbose > 0:
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(stderr=True), refresh_per_second=4)

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live is not None:
            self.live.stop()
            if not self.live.console.is_terminal:  # to a file rich writes no end of the last line
                self.live.console.line()


class LiveTable(Display):
    """The best settings of a grid."""

    def __init__(
        self, settings: Sequence[Setting], n_splits: int, metric: str, verbose: int
    ) -> None:
        super().__init__(verbose)
        self.settings, self.n_splits, self.metric = settings, n_splits, metric
        self.names = list(dict.fromkeys(name for s in settings for name in s.params))

    def show(self, results: dict[tuple[int, int], dict[str, Any]], note: str) -> None:
        """Show the results so far."""
        if self.live is not None:
            self.live.update(self._table(dict(results), note))

    def _table(self, results: dict[tuple[int, int], dict[str, Any]], note: str) -> Any:
        from rich.table import Table

        rows = []
        for setting in self.settings:
            own = [results.get((setting.number, split)) for split in range(self.n_splits)]
            scores = [_number(r["test_scores"], self.metric) for r in own if r is not None]
            if scores:
                gap = max(r["gap"] for r in own if r is not None)
                rows.append(
                    (len(scores), float(np.mean(scores)), float(np.std(scores)), gap, setting)
                )
        rows.sort(key=lambda row: (row[0], row[1]), reverse=True)
        done = len(results)
        table = Table(
            title=f"{len(self.settings)} settings, {self.n_splits} splits: {note}, {done} fits"
        )
        for name in self.names:
            table.add_column(name, justify="right")
        for name in ("splits", "mean score", "deviation", "worst gap"):
            table.add_column(name, justify="right", style="cyan")
        for n, mean, deviation, gap, setting in rows[:_ROWS]:
            values = [_short(setting.params.get(name, "")) for name in self.names]
            table.add_row(*values, f"{n}", f"{mean:.5g}", f"{deviation:.2g}", f"{gap:.1e}")
        return table


def _number(scores: Scores, metric: str) -> float:
    return float(scores.get(metric, np.nan) if isinstance(scores, dict) else scores)


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
