"""What the documents say is true: code blocks run, and the tables are those of the result files."""

import re
from pathlib import Path

import pytest

from benchmarks import report, results

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/README.md"]


def code_blocks():
    for page in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
        for number, block in enumerate(blocks):
            yield pytest.param(block, id=f"{page}-{number}")


@pytest.mark.parametrize("block", code_blocks())
def test_code_block_runs(block):
    exec(compile(block, "<documentation>", "exec"), {})


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target


def test_table_is_that_of_the_result_files():
    text = (ROOT / "README.md").read_text()
    shown = re.search(r"<!-- benchmarks -->\n(.*?)\n<!-- /benchmarks -->", text, re.DOTALL)
    assert shown is not None
    assert shown[1].strip() == report.table(results.read()).strip()


def test_files_named_in_the_architecture_exist():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for name in re.findall(r"\b(\w+\.(?:hpp|cpp|py))\b", text):
        found = [
            *ROOT.glob(f"cpp/{name}"),
            *ROOT.glob(f"src/**/{name}"),
            *ROOT.glob(f"tests/{name}"),
        ]
        assert found, name
