"""The tables and pictures of docs/papers, from result files: a module for each page.

    python -m benchmarks.papers.report [FOLDER]

What is between the marks of a page is written here; the words around it are written by hand.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.marks import placed
from benchmarks.papers import studies
from benchmarks.papers.common import FOLDER, ROOT
from benchmarks.papers.report import dcsvm, pbm, saddle, sodm

DOCS = ROOT / "docs" / "papers"
PAGES = {"dcsvm": dcsvm, "pbm": pbm, "sodm": sodm, "saddle": saddle}


def main(arguments: list[str] | None = None) -> None:
    """Write pages and pictures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.papers.report", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--output", type=Path, default=DOCS, help="default: docs/papers")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        text = placed((DOCS / f"{name}.md").read_text(), page.text(options.folder))
        (options.output / f"{name}.md").write_text(text)
        page.pictures(options.folder, options.output)
    studies.pictures(options.folder, options.output)
