"""The leaderboard: every setting that was tried, live on the terminal and after the search."""

from __future__ import annotations

from typing import Any

import numpy as np

from margrave.auto.search import AutoSearch
from margrave.tuning.table import Display

_SHOWN = 10
_COLUMNS = ("kernel", "power", "metric", "multiple", "C", "loss", "columns", "rows")


def leaderboard(search: AutoSearch) -> list[dict[str, Any]]:
    """Settings with plain values, the best first: those on most rows and folds lead."""
    rows = []
    for one in dict.fromkeys(one for one, _ in search.outcomes):
        own = [(at, out) for (other, at), out in search.outcomes.items() if other == one]
        most = max(at.rows for at, _ in own if at.fold.number == 0)
        last = [out for at, out in own if at.rows == most or at.fold.number > 0]
        rows.append(
            {
                "score": float(np.mean([out.score for out in last])),
                **one.described(),
                "rows": most,
                "folds": len(last),
                "seconds": float(np.mean([out.seconds for out in last])),
                "gap": float(max(out.gap for out in last)),
                "at": min(out.at for out in last),
            }
        )
    rows.sort(key=lambda row: (-row["rows"], -row["folds"], -row["score"], row["at"]))
    return [{"rank": place, **row} for place, row in enumerate(rows, start=1)]


def history(search: AutoSearch) -> list[dict[str, float]]:
    """The best score on the first fold's rows, whenever it changed or there were more rows."""
    records: list[dict[str, float]] = []
    for (_, at), out in sorted(search.outcomes.items(), key=lambda pair: pair[1].at):
        if at.fold.number > 0 or not np.isfinite(out.score):
            continue
        last = records[-1] if records else None
        if last is None or at.rows > last["rows"] or out.score > last["score"]:
            records.append({"seconds": out.at, "rows": at.rows, "score": out.score})
    return records


def tuning(
    board: list[dict[str, Any]], records: list[dict[str, float]], metric: str
) -> dict[str, Any]:
    """The search in plain values for reports and model files, see `margrave.report.tuning`.

    The settings are those that were tried on as many rows as the best.
    """
    rows = [row for row in board if row["rows"] == board[0]["rows"]]
    return {
        "metric": metric,
        "names": list(_COLUMNS[:-1]),
        "settings": [[row[name] for name in _COLUMNS[:-1]] for row in rows],
        "mean": np.array([row["score"] for row in rows]),
        "deviation": np.zeros(len(rows)),
        "splits": np.array([row["folds"] for row in rows]),
        "course": [[float(r["seconds"]), float(r["rows"]), float(r["score"])] for r in records],
    }


class LiveBoard(Display):
    """The best settings of a search."""

    def show(self, search: AutoSearch) -> None:
        """Show the results so far."""
        if self.live is not None:
            self.live.update(_table(leaderboard(search), search.budget.seconds))


def _table(rows: list[dict[str, Any]], seconds: float) -> Any:
    from rich.table import Table

    table = Table(title=f"{len(rows)} settings in {seconds:.0f} s")
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    table.add_column("score", justify="right", style="cyan")
    for row in rows[:_SHOWN]:
        cells = [row[name] for name in _COLUMNS]
        words = [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells]
        table.add_row(*words, f"{row['score']:.5g}")
    return table
