"""What is published: one version, types, the source with its tests; and the plans of CI."""

import importlib.machinery
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib import metadata, resources
from pathlib import Path

import pytest

import margrave
from margrave import SVC, _core, cli

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def printed(capsys, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["margrave", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    return capsys.readouterr().out.strip()


def writer(folder):
    """Who wrote a model, by the header of its file."""
    SVC().fit([[0.0], [1.0]], [0, 1]).save(folder / "model")
    content = (folder / "model").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header["__metadata__"]["writer"]


def test_one_version(capsys, monkeypatch, tmp_path):
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    assert metadata.version("margrave") == margrave.__version__ == VERSION
    assert printed(capsys, monkeypatch, "--version") == VERSION
    assert writer(tmp_path) == f"margrave {VERSION}"
    assert citation["version"] == VERSION and citation["license"] == PROJECT["project"]["license"]


def test_types_are_part_of_the_package():
    assert (resources.files(margrave) / "py.typed").is_file()
    assert (resources.files(margrave) / "_core.pyi").is_file()


def test_the_core_is_for_the_stable_abi_where_there_is_one():
    suffix = Path(_core.__file__).name.removeprefix("_core")
    assert suffix in importlib.machinery.EXTENSION_SUFFIXES
    if sys.version_info < (3, 12):
        assert f"{sys.version_info.major}{sys.version_info.minor}" in suffix
    else:
        assert suffix == (".pyd" if sys.platform == "win32" else ".abi3.so")
    assert PROJECT["tool"]["scikit-build"]["wheel"]["py-api"] == "cp312"


def test_the_source_is_whole(tmp_path, monkeypatch):
    """Everything that is kept under version control: with the tests, and all that they read."""
    backend = pytest.importorskip("scikit_build_core.build")
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("there is no repository to compare with")
    monkeypatch.chdir(ROOT)
    with tarfile.open(tmp_path / backend.build_sdist(str(tmp_path))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    done = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
    tracked = {name for name in done.stdout.splitlines() if (ROOT / name).exists()}
    assert tracked <= held, tracked - held
    assert not any(name.endswith((".so", ".pyc")) for name in held)


def test_changes_are_reported():
    """Every fragment is of a kind that the changelog knows, and no release is without a word."""
    fragments = [p for p in (ROOT / "changes").iterdir() if not p.name.startswith(".")]
    for fragment in fragments:
        assert re.fullmatch(r"\+\w+\.(feature|bugfix|misc)\.md", fragment.name)
        assert fragment.read_text().strip()
    assert fragments or f"## {VERSION} (" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows(path):
    """Jobs are complete, wait for jobs that exist, and run chores that exist."""
    yaml = pytest.importorskip("yaml")
    chores = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    jobs = yaml.safe_load(path.read_text())["jobs"]
    for job in jobs.values():
        assert job["runs-on"] and job["steps"]
        assert set(job.get("needs", ())) <= set(jobs)
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert set(re.findall(r"^make (\w+)", step.get("run", ""), re.M)) <= chores
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d[\d.]*|release/v1)", step["uses"])


def test_plans_agree():
    """The Pythons that are promised, tested and built for are the same ones."""
    yaml = pytest.importorskip("yaml")
    ci, release = (
        yaml.safe_load((ROOT / f".github/workflows/{n}.yml").read_text()) for n in ("ci", "release")
    )
    promised = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    assert PROJECT["project"]["requires-python"] == f">={promised[0]}"
    matrix = ci["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == promised
    wheels = PROJECT["tool"]["cibuildwheel"]
    assert wheels["build"] == [f"cp{python.replace('.', '')}-*" for python in promised]
    tested = {*matrix["os"], *(more["os"] for more in matrix["include"])}
    assert set(release["jobs"]["wheels"]["strategy"]["matrix"]["os"]) == tested
    for name in re.findall(r"tests/\S+", wheels["test-command"]):
        assert (ROOT / name).is_file()
    assert all((ROOT / name).exists() for name in wheels["test-sources"])
