"""All studies, by the names of their result files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.papers import clusters, forms, overlap, parts, rounds
from benchmarks.papers.common import FOLDER
from benchmarks.papers.study import Study, section

STUDIES: Mapping[str, Study] = {
    **clusters.STUDIES,
    **rounds.STUDIES,
    **parts.STUDIES,
    **forms.STUDIES,
    **overlap.STUDIES,
}
PAPERS = ("dcsvm", "pbm", "sodm", "pemsvm", "saddle")


def report(paper: str, folder: Path = FOLDER) -> str:
    """The sections of the page of one paper."""
    own = {name: study for name, study in STUDIES.items() if name.split("-")[0] == paper}
    return "\n\n".join(section(name, study, folder) for name, study in own.items())
