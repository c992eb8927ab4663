"""What the documents say is true: code blocks and commands run, numbers are those of the result
files, links lead somewhere, and the reference has everything.

A block of Python that begins with the comment ``# name.py`` is a file; blocks of a page run one
after the other in one folder. In a ``console`` block the lines after ``$`` are commands. Those that
would fetch, build or measure for long are looked up instead of run.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest

import margrave
from benchmarks import alternatives, marks, pages, tables
from margrave import cuda, engines, io, kernels, losses, plots, solvers
from tests import emulated

ROOT = Path(__file__).parent.parent
if not (ROOT / "docs").exists():
    pytest.skip("the documentation is not part of this copy", allow_module_level=True)
DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
DOCS = [page for page in DOCS if not page.startswith(("docs/_build", "docs/gallery"))]
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/README.md", *DOCS]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of each fenced block, in order."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)


# --- code ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [p for p in PAGES if any(b[0] != "text" for b in blocks(p))])
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {"__name__": "__documentation__"}
    for language, block in blocks(page):
        if language == "python":
            file = re.match(r"# (\w+\.py)\b", block)
            if file:
                (tmp_path / file[1]).write_text(block)
            else:
                with emulated.card() if needs_card(block) else nullcontext():
                    exec(compile(block, page, "exec"), names)
        elif language == "console":
            for line in block.splitlines():
                assert line.startswith("$ "), f"{page}: not a command: {line}"
                run(line.removeprefix("$ "), tmp_path, monkeypatch)
        else:  # formulas and trees, directives of Sphinx, nothing that looks like code
            assert language in ("text", "") or language.startswith("{"), f"{page}: {language}"


def needs_card(block: str) -> bool:
    """Whether the code is for a card, and there is none."""
    return 'engine="cuda"' in block and not cuda.cards()


def run(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command, or see that there is what it names."""
    words = shlex.split(command)
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", text_of("Makefile"), re.MULTILINE), command
    elif words[:2] == ["pip", "install"]:
        named = re.search(r"\[(.*)\]", words[2])
        extras = set(project["optional-dependencies"])
        assert named is None or set(named[1].split(",")) <= extras, command
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2]) is not None, command
    elif words[0] in project["scripts"]:  # in this process, which has imported everything
        module, function = project["scripts"][words[0]].split(":")
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            getattr(importlib.import_module(module), function)()
        assert end.value.code == 0, command
    else:
        scripts = str(Path(sys.executable).parent)
        path = scripts + os.pathsep + os.environ["PATH"]
        program = shutil.which(words[0], path=path)
        if program is None and words[0] == "mpiexec":
            pytest.skip("there is no mpiexec")
        assert program is not None, f"there is no {words[0]}"
        done = subprocess.run(
            [program, *words[1:]],
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.mark.parametrize("page", ["README.md", *DOCS])
def test_code_is_fenced(page):
    """Indented code would not be run."""
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"\n\n    \S.*", text)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_are_of_the_gallery(file):
    """They are run where the documentation is built."""
    tree = ast.parse(file.read_text())
    title, line = (ast.get_docstring(tree) or "\n").splitlines()[:2]
    assert title and line == "=" * len(title), "the gallery needs a title"


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["README.md", *DOCS])
def test_numbers_are_those_of_the_result_files(page):
    assert text_of(page) == pages.written(ROOT / page), "run python -m benchmarks.pages"


def test_the_page_of_alternatives_is_that_of_the_result_files():
    page = alternatives.PAGE.read_text()
    assert page == marks.placed(page, alternatives.report())
    assert page == marks.placed(page, tables.report(), "tables")


# what looks like a measured number but is a setting
SETTINGS = ["30 seconds", "80 %", "20 %", "10 %", "900 s", "600 s", "99 %"]


@pytest.mark.parametrize("page", ["README.md", *DOCS])
def test_measured_numbers_are_between_marks(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", marks.by_hand(text_of(page)), flags=re.DOTALL)
    for setting in SETTINGS:
        text = text.replace(setting, "")
    assert not re.findall(r".*\d(?:x\b| ?%| (?:s|ms|seconds|minutes|times)\b).*", text)


@pytest.mark.parametrize("page", ["README.md", *DOCS])
def test_no_line_begins_with_a_number(page):
    """A comment at the beginning of a line would begin a block of HTML."""
    assert not re.findall(r"^\s*<!-- =.*", text_of(page), re.MULTILINE)


def test_unknown_marks_are_refused():
    assert pages.number("seconds no-such-problem") == pages.MISSING
    with pytest.raises(KeyError):
        pages.number("weight ijcnn1")
    with pytest.raises(KeyError):
        pages.number("seconds ijcnn1 libsvm")


def test_numbers_follow_the_result_files(tmp_path, monkeypatch):
    page = "It takes <!-- = seconds ijcnn1 -->7 s<!-- / -->.\n"
    monkeypatch.setattr(pages.results, "FOLDER", tmp_path)
    assert marks.numbered(page, pages.number) == page.replace("7 s", pages.MISSING)
    (tmp_path / "ijcnn1.json").write_text('{"libraries": {"margrave": {"seconds": 0.125}}}')
    assert marks.numbered(page, pages.number) == page.replace("7 s", "0.125 s")
    assert marks.by_hand(page) == "It takes .\n"


# --- links and lists -----------------------------------------------------------------------------


def slugs(page: Path) -> set[str]:
    """Anchors of the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", text_of(page)):
        if target.startswith("http") or "gallery/" in target:  # Sphinx makes the gallery
            continue
        name, _, anchor = target.partition("#")
        file = (ROOT / page).parent / name if name else ROOT / page
        assert file.exists(), target
        assert not anchor or anchor in slugs(file), target


def test_files_named_in_the_architecture_exist():
    text = text_of("ARCHITECTURE.md")
    for name in re.findall(r"\b(\w+\.(?:hpp|cpp|cuh|cu|py))\b", text):
        found = [
            *ROOT.glob(f"cpp/**/{name}"),
            *ROOT.glob(f"src/**/{name}"),
            *ROOT.glob(f"tests/{name}"),
        ]
        assert found, name


@pytest.mark.parametrize("module", [margrave, solvers, engines, io], ids=lambda m: m.__name__)
def test_the_reference_is_complete(module):
    listed = re.findall(r"^   ([\w.]+)$", text_of("docs/api.md"), re.MULTILINE)
    listed = {name.split(".")[-1] for name in listed}
    public = {name for name in module.__all__ if not name.isupper() and name != "__version__"}
    assert public <= listed


def test_the_reference_has_losses_kernels_and_pictures():
    text = text_of("docs/api.md")
    for owner in (losses.Loss, kernels.Kernel, plots.margins, plots.convergence):
        assert f"{owner.__name__}\n" in text


def test_every_page_is_in_the_table_of_contents():
    listed = set()
    for page in DOCS:
        for language, block in blocks(page):
            if language.startswith("{toctree}"):
                for line in block.splitlines():
                    if line and not line.startswith(":"):
                        folder = (ROOT / page).parent
                        found = folder.glob(f"{line}.md")
                        listed |= {path.relative_to(ROOT).as_posix() for path in found}
    assert set(DOCS) - listed == {"docs/index.md"}


def test_solvers_of_the_decision_table_exist():
    table = text_of("docs/choosing.md").split("## Then the solver")[1].split("##")[0]
    named = set(re.findall(r'`"(\w+)"`', table))
    assert named - {"auto"} <= set(solvers.SOLVERS)
    assert set(solvers.SOLVERS) <= named | {"svrg", "gilbert"}
