"""What a new user meets first: help, standard input, a narrow terminal, missing extras."""

import io
import json
import re
import shlex
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import margrave
from margrave import plots
from margrave.cli.app import COMMANDS
from margrave.cli.libsvm import predict, train
from margrave.extras import install
from margrave.io import save_libsvm
from margrave.progress import Progress
from tests.data import load


def good(result):
    code, out, err = result
    assert code == 0, err
    return out


@pytest.fixture
def data(tmp_path):
    X, y = load("moons")
    save_libsvm(tmp_path / "rows", X[:200], y[:200])
    return "rows"


@pytest.fixture
def stdin(monkeypatch):
    """What arrives at standard input."""
    return lambda content: monkeypatch.setattr(
        sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content))
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help(run, command):
    short, long = good(run(command, "-h")), good(run(command, "--help"))
    assert short == long and f"margrave {command}" in short
    assert "list[" not in short and "[[" not in short


def test_the_help_lists_every_command_in_order(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = good(run("-h"))
    assert text == good(run("--help")) == good(run())
    listed = re.findall(r"^  (\w+) ", text.partition("Commands:")[2], re.MULTILINE)
    assert tuple(listed) == COMMANDS and "..." not in text.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("option", "name", "estimator"),
    [
        ("--C", "C", margrave.SVC),
        ("--degree", "degree", margrave.SVC),
        ("--coef0", "coef0", margrave.SVC),
        ("--gamma", "gamma", margrave.SVC),
        ("--kernel", "kernel", margrave.SVC),
        ("--tol", "tol", margrave.SVC),
        ("--solver", "solver", margrave.SVC),
        ("--nu", "nu", margrave.NuSVC),
        ("--epsilon", "epsilon", margrave.SVR),
    ],
)
@pytest.mark.parametrize("command", ["train", "tune"])
def test_help_shows_the_defaults(run, command, option, name, estimator):
    words = " ".join(good(run(command, "-h")).split())
    about = words[words.index(f"{option} ") :]
    value = estimator().get_params()[name]
    shown = value if isinstance(value, str) else f"{value:g}"
    assert about[about.index("[default:") :].startswith(f"[default: ({shown})]")


@pytest.mark.parametrize("command", [train, predict])
def test_libsvm_programs_list_their_options(run, command):
    code, out, err = run(command=command)
    assert code == 1 and not err and "options:" in out and "-b probability" in out
    assert good(run("--help", command=command)) == out


def test_standard_input(run, data, stdin, tmp_path):
    content = (tmp_path / data).read_bytes()
    good(run("train", data, "-o", "model", "-q"))
    stdin(content)
    good(run("train", "-", "-o", "piped", "-q"))
    expected = good(run("predict", "model", data))
    stdin(content)
    assert good(run("predict", "piped", "-")) == expected
    stdin(b"a,b,label\n" + b"0.5,1,yes\n-1,0.5,no\n" * 10)
    good(run("train", "-", "-o", "table", "-q"))
    assert list(margrave.load(tmp_path / "table").classes_) == ["no", "yes"]
    stdin(content)
    good(run("-q", "-", "libsvm.model", command=train))
    stdin(content)
    good(run("-q", "-", "libsvm.model", "labels", command=predict))
    for words, command in ((["train", "-"], None), (["-"], train)):
        code, _, err = run(*words, command=command)
        assert code == 2 and "name the model file" in err
    stdin(b"1 1:2\n1 x\n")
    code, _, err = run("predict", "model", "-")
    assert code == 2 and "standard input:2: " in err


@pytest.mark.parametrize(
    "words", [["tune", "--grid", "C=1,2", "-v", "2"], ["auto", "--time-limit", "0.5"]]
)
def test_a_table_in_a_file_ends_its_line(run, data, words):
    _, _, err = run(words[0], data, *words[1:], "-o", "m")
    (last,) = [line for line in err.splitlines() if "wrote m" in line]
    assert "└" not in last and "┘" not in last


def test_tune_with_fixed_parameters(run, data, tmp_path):
    out = good(run("tune", data, "-c", "3", "--grid", "gamma=0.5,1", "-v", "2", "-o", "m", "-q"))
    assert "gamma=" in out and "C=" not in out and margrave.load(tmp_path / "m").C == 3.0
    words = ["-t", "linear", "-w1", "2", "--time-limit", "60", "--no-prune", "-v", "2", "-o", "m"]
    assert "C=" in good(run("tune", data, *words, "-q"))
    assert margrave.load(tmp_path / "m").class_weight == {1.0: 2.0}
    for words, text in (
        (["--grid", "C=1:10"], "--grid C=VALUE,VALUE,...: The 'C' parameter"),
        (["-c", "3", "--grid", "C=1,2"], "--grid C: it has a value already"),
    ):
        code, _, err = run("tune", data, *words, "-o", "m")
        assert code == 2 and text in err


def test_rows_are_counted(run, data):
    good(run("train", data, "-o", "model", "-q"))
    facts = json.loads(good(run("evaluate", "model", data, "--json")))
    assert type(facts["rows"]) is int and facts["rows"] == 200


def test_bench_compares(run, data):
    out = good(run("bench", data))
    assert "times as fast as scikit-learn" in out and "0.0 " not in out


@pytest.mark.parametrize("width", [80, 100, 140])
def test_the_progress_bar_fits_into_the_terminal(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    with Progress(1e-3, verbose=1, label="KernelLogisticRegression") as progress:
        progress.report(-1234567.8, 1234000.0, 3e-2, 123_456, where="problem 12 of 45")
    (line,) = capsys.readouterr().err.split("\n")[:-1]
    assert "gap 3.0e-02 of 1e-03" in line and "123,456 SVs" in line and line.endswith("0:00:00")
    assert ("objective -1.23457e+06" in line) == (width >= 100)
    assert len(line) <= width


def test_what_is_missing_is_installed_by_the_command_that_is_shown(monkeypatch):
    """By the Python that runs, which need not be the first on the path; no index is asked."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError) as error:
        plots.convergence(margrave.SVC().fit([[0.0], [1.0]], [0, 1]))
    command = str(error.value).partition(": ")[2]
    assert command == install("plots")
    program, *words = shlex.split(command)
    assert program == sys.executable and words == ["-m", "pip", "install", "margrave[plots]"]
    pip = [program, "-m", "pip", "--version"]
    if subprocess.run(pip, capture_output=True, check=False).returncode == 0:
        dry = [program, *words, "--dry-run", "--no-index", "--quiet"]
        assert subprocess.run(dry, capture_output=True, check=False).returncode == 0


def test_rows_of_a_table_need_no_header(run, stdin, tmp_path):
    X = np.arange(20.0).reshape(10, 2)
    lines = [f"{a:g},{b:g},{int(a > 9)}\n" for a, b in X]
    stdin("".join(lines).encode())
    good(run("train", "-", "--label", "-1", "-o", "model", "-q"))
    assert margrave.load(tmp_path / "model").n_features_in_ == 2
