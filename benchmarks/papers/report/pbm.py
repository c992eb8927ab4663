"""The page of PBM."""

from __future__ import annotations

from pathlib import Path

from benchmarks.papers import pbm, published
from benchmarks.papers.common import FOLDER, read
from benchmarks.papers.report.cells import by_method, ending, shape


def text(folder: Path = FOLDER) -> str:
    found = read(pbm.PAPER, pbm.TABLE_2, folder)
    parts = ["## Table 2"]
    for name, dataset in pbm.DATASETS.items():
        parts.append(f"### {dataset.title}\n\n{shape(found.get(name))}.")
        numbers = published.PBM_TABLE_2[name]
        parts.append(by_method(pbm.PAPER, pbm.TABLE_2, found.get(name), numbers))
    return "\n\n".join([*parts, *ending(pbm.PAPER, list(found.values()))])


def pictures(folder: Path, output: Path) -> None:
    """None so far."""
