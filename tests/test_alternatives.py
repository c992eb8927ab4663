"""Alternatives to kernel methods, beside margrave: the harness on generated data."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from sklearn.model_selection import ParameterGrid

from benchmarks import alternatives, data


@pytest.mark.parametrize("name", list(alternatives.CASES))
def test_splits_of_alternatives(name: str) -> None:
    case = alternatives.CASES[name]
    rows = case.prepare(data.generate(case.archive))
    assert rows.X_new is not None and len(rows.y) >= 300 and len(rows.y_new) >= 100
    assert bool(len(rows.labels)) != case.is_regression
    budgets = {len(ParameterGrid(dict(m.grid))) for m in alternatives.METHODS.values()}
    assert budgets == {8}


@pytest.mark.parametrize("method", list(alternatives.METHODS))
def test_alternatives_are_measured_and_reported(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == "lightgbm":
        pytest.importorskip("lightgbm", reason="needs the extra bench")
    few = dataclasses.replace(
        alternatives.METHODS[method],
        grid={name: values[:1] for name, values in alternatives.METHODS[method].grid.items()},
    )
    for name in ("cadata", "magic04"):
        found = alternatives.measure(alternatives.CASES[name], few, generated=True)
        assert found["rows"] == 480 and found["test_rows"] == 120 and found["settings"] == 1
        assert found["score"] > (0.5 if name == "magic04" else -0.5)
        assert min(found["fit_seconds"], found["predict_seconds"], found["tune_seconds"]) > 0
        monkeypatch.setattr(alternatives, "apart", lambda *_, found=found: found)
        assert alternatives.run([name], [method], True, tmp_path) == 0
    text = alternatives.report(tmp_path)
    assert text.count(f"| {few.title} |") == 2 and text.count("not measured") == 6
    assert f"**The most accurate:** {few.title} on cadata, magic04." in text
