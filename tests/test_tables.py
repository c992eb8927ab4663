"""The benchmark of tables: splits, one process, and its report, on made-up rows."""

import json
from importlib import util

import numpy as np
import pytest

from benchmarks import data, tables

KNOWN = [name for name in tables.CASES if tables.CASES[name].archive in data._STAND_INS]


def test_splits():
    case = tables.CASES["cadata"]
    rows, again, other = (tables.split(case, seed, generated=True) for seed in (0, 0, 1))
    assert (rows.X == again.X).all() and not (rows.X == other.X).all()
    assert len(rows.y_new) == (len(rows.y) + len(rows.y_new)) // 5
    assert set(tables.split(tables.CASES["covtype"], 0, generated=True).y) <= {0, 1}
    assert len(KNOWN) > 5


@pytest.mark.parametrize("method", list(tables.TITLES))
@pytest.mark.parametrize("name", ["cadata", "pendigits"])
def test_methods(name, method):
    package = None if method == "margrave" else tables.RIVALS[method].package
    if package not in (None, "scikit-learn") and util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    found = tables.measure(tables.CASES[name], method, 0, 2.0, generated=True)
    assert np.isfinite(found["score"]) and found["settings"] >= 1


def test_results_are_kept_and_reported(tmp_path, monkeypatch):
    asked = []

    def apart(name, method, seed, seconds, generated):
        asked.append((name, method, seed))
        if method == "xrfm":
            return {"error": "xrfm is not installed"}
        score = {"margrave": 0.9, "lightgbm": 0.91, "extra-trees": 0.8}[method] + 0.01 * seed
        return {"score": score, "seconds": 1.0, "versions": {method: "1.0"}}

    monkeypatch.setattr(tables, "apart", apart)
    methods = list(tables.TITLES)
    assert tables.run(["cadata", "magic04"], methods, 2, 60.0, folder=tmp_path) == 1
    assert len(asked) == 16
    tables.run(["cadata", "magic04"], methods, 2, 60.0, folder=tmp_path)
    assert len(asked) == 20  # only what failed
    text = tables.report(tmp_path)
    assert "0.9050 ± 0.0071" in text and "-1.00 points" in text and "on 0." in text
    assert json.loads(tables.path_of("cadata", 1, tmp_path).read_text())["split"] == 1
    assert "Nothing has been measured" in tables.report(tmp_path / "nowhere")
