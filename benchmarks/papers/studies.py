"""All studies, by the names of their result files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.papers import (
    alphas,
    clusters,
    forms,
    gradients,
    grids,
    logistic,
    overlap,
    parts,
    rounds,
    samples,
    workers,
)
from benchmarks.papers.common import FOLDER
from benchmarks.papers.picture import draw_curves
from benchmarks.papers.study import Study, found_in, read, section

STUDIES: Mapping[str, Study] = {
    **clusters.STUDIES,
    **grids.STUDIES,
    **rounds.STUDIES,
    **logistic.STUDIES,
    **workers.STUDIES,
    **parts.STUDIES,
    **gradients.STUDIES,
    **forms.STUDIES,
    **samples.STUDIES,
    **overlap.STUDIES,
    **alphas.STUDIES,
}
PAPERS = ("dcsvm", "pbm", "sodm", "pemsvm", "saddle")


def report(paper: str, folder: Path = FOLDER) -> str:
    """The sections of the page of one paper."""
    own = {name: study for name, study in STUDIES.items() if name.split("-")[0] == paper}
    sections = [section(name, study, folder) for name, study in own.items()]
    return "\n\n".join(filter(None, sections))


def pictures(folder: Path, output: Path) -> None:
    """The pictures of all studies that have some."""
    for name, study in STUDIES.items():
        entries = read(name, folder)["cases"]
        if study.curves is None:
            continue
        found = {case: found_in(entries[case]) for case in study.cases if case in entries}
        columns = {case: study.curves(case, one) for case, one in found.items()}
        if columns:
            draw_curves(columns, study.axes, output / f"{name}.png")
