"""The benchmark harness on generated data: no data sets, no rivals beyond scikit-learn needed."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC

from benchmarks import data, plot, report, results, run
from benchmarks.data import FORMS, Data
from benchmarks.objective import objective, score_error
from benchmarks.problems import PROBLEMS
from benchmarks.worker import Task, measure


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARGRAVE_DATA", raising=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run: fits and scores, both libraries, each measurement in its own process."""
    output = tmp_path_factory.mktemp("results")
    status = run.main(
        "--tiny --generated --libraries margrave sklearn --repeat 1 --forms float32-dense "
        f"--only covtype-50k --only covtype-50k-scores --output {output}".split()
    )
    assert status == 0
    return output


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_are_prepared(name: str) -> None:
    problem = PROBLEMS[name].tiny()
    loaded = problem.load(generated=True)
    assert loaded.X.shape[0] == len(loaded.y) == 200
    assert loaded.X.dtype == np.float64
    assert set(np.unique(loaded.y)) == {-1, 1}
    assert (loaded.X_new is None) == (problem.timed == "fit")
    if problem.dataset in ("covtype", "mnist"):
        assert loaded.X.min() >= 0 and loaded.X.max() <= 1


def test_scores_are_of_the_rows_after_those_fitted() -> None:
    fit, score = (PROBLEMS[n].tiny().load(True) for n in ("covtype-50k", "covtype-50k-scores"))
    np.testing.assert_array_equal(fit.X, score.X)
    assert score.X_new is not None and score.X_new.shape[0] == 50
    assert not any((row == score.X).all(axis=1).any() for row in score.X_new)


@pytest.mark.parametrize("form", FORMS)
def test_forms_hold_the_same_rows(form: str) -> None:
    X = PROBLEMS["a9a"].tiny().load(True).X
    converted = data.convert(X, form)
    assert f"{converted.dtype}-{'csr' if hasattr(converted, 'indptr') else 'dense'}" == form
    np.testing.assert_array_equal(data.convert(converted, "float64-dense"), X.toarray())


def test_archives_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = data.generate("a9a")["X_train"]
    np.savez(
        tmp_path / "set.npz",
        X_data=X.data,
        X_indices=X.indices.astype(np.uint16),
        X_indptr=X.indptr,
        X_shape=X.shape,
        y=np.ones(X.shape[0]),
    )
    monkeypatch.setenv("MARGRAVE_DATA", str(tmp_path))
    assert (data.read("set")["X"] != X).nnz == 0
    with pytest.raises(SystemExit, match=r"no other\.npz"):
        data.read("other")


def test_missing_folder_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match="MARGRAVE_DATA is not set"):
        data.read("ijcnn1")
    monkeypatch.setenv("MARGRAVE_DATA", "/does/not/exist")
    with pytest.raises(SystemExit, match="not a folder"):
        data.read("ijcnn1")


def test_objective_against_a_plain_formula() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(60, 3)), np.where(rng.random(60) < 0.5, 1, -1)
    model = SVC(C=3.0, gamma=0.7, tol=1e-10).fit(X, y)
    found = objective(model, Data(X, y), C=3.0, gamma=0.7)

    beta = np.zeros(60)
    beta[model.support_] = model.dual_coef_[0]
    K = np.exp(-0.7 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    hinge = np.maximum(0, 1 - y * model.decision_function(X)).sum()
    assert found["primal"] == pytest.approx(beta @ K @ beta / 2 + 3 * hinge, rel=1e-12)
    assert found["dual"] == pytest.approx(beta @ K @ beta / 2 - beta @ y, rel=1e-12)
    assert -1e-12 <= found["gap"] < 1e-6
    assert found["above_C"] == 0 and found["imbalance"] < 1e-12

    scores = model.decision_function(X)
    assert score_error(model, X, scores, 0.7) < 1e-12
    assert score_error(model, X, scores + 0.1, 0.7) > 1e-3


@pytest.mark.parametrize("library", ["margrave", "sklearn"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_is_measured(name: str, library: str) -> None:
    found = measure(Task(name, library, "float32-dense", tiny=True, generated=True))
    assert found["seconds"] > 0 and found["support_vectors"] > 0
    assert found["memory_beyond_data"] >= 0
    if PROBLEMS[name].timed == "fit":
        assert abs(found["checks"]["gap"]) < 0.05
    else:
        assert found["checks"]["score_error"] < 1e-3
    json.dumps(found)


def test_a_slow_call_ends_its_process() -> None:
    code = "import time; from benchmarks.measure import timed; timed(lambda: time.sleep(9), 0.1)"
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=run.ROOT)
    assert done.returncode == -signal.SIGALRM


def test_result_files(finished: Path) -> None:
    fit, score = results.read(finished)
    assert {"cpu", "cores", "instruction_set"} <= set(fit["machine"])
    assert list(fit["objective_differences"]) == ["margrave / sklearn"]
    assert score["objective_differences"] == {}
    for found in (fit, score):
        assert list(found["libraries"]) == ["margrave", "sklearn"]
        for entry in found["libraries"].values():
            assert [m["form"] for m in entry["repeats"]] == ["float32-dense"]
            assert entry["versions"]["scikit-learn"] and entry["from_run"] is None
    assert "not a measurement" in report.table([fit, score])


def test_fastest_form_is_repeated_and_libraries_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"float32-dense": 40.0, "float64-dense": 20.0, "float32-csr": 30.0}
    asked = []

    def pretend(
        problem: Any, library: str, form: str, limit: float, settings: Any, label: str
    ) -> results.Entry:
        asked.append((library, form, limit))
        if form not in seconds:
            return {"form": form, "error": "given up"}
        checks = {"primal": 1.0, "dual": -1.0}
        return {"form": form, "seconds": seconds[form], "versions": {}, "checks": checks,
                "extras": {}}  # fmt: skip

    monkeypatch.setattr(run, "_measure", pretend)
    arguments = "--generated --libraries margrave sklearn --repeat 3 --repeat sklearn=2 --only a9a"
    assert run.main([*arguments.split(), "--output", str(tmp_path)]) == 0
    (found,) = results.read(tmp_path)
    assert [t["form"] for t in found["libraries"]["sklearn"]["trials"]] == list(FORMS)
    assert found["libraries"]["sklearn"]["form"] == "float64-dense"
    tried, repeated = asked[:8], asked[8:]
    limit = PROBLEMS["a9a"].limit
    assert [t[2] for t in tried if t[0] == "sklearn"] == [limit, 80.0, 40.0, 40.0]
    assert [r[0] for r in repeated] == ["margrave", "sklearn", "sklearn", "margrave", "margrave"]


def test_reused_results_are_marked(finished: Path) -> None:
    arguments = f"--tiny --generated --libraries sklearn --reuse sklearn --output {finished}"
    before = json.loads(results.path("covtype-50k", finished).read_text())
    assert run.main([*arguments.split(), "--only", "covtype-50k"]) == 0
    after = json.loads(results.path("covtype-50k", finished).read_text())
    assert after["libraries"]["sklearn"]["from_run"] == before["run"]["started"]
    assert "another run" in report.table([after])
    results.write(before, finished)
    with pytest.raises(SystemExit, match="there is no"):
        run.main([*arguments.split(), "--only", "a9a"])


def made_up() -> dict[str, Any]:
    """Results as of a real run: margrave 2 s, scikit-learn 30 s."""

    def entry(seconds: float, primal: float) -> results.Entry:
        measured = {
            "form": "float32-dense",
            "seconds": seconds,
            "versions": {"numpy": "2"},
            "checks": {"primal": primal, "dual": -primal},
            "extras": {},
        }
        return results.entry([], [measured])

    libraries = {"margrave": entry(2.0, 100.0), "sklearn": entry(30.0, 100.05)}
    return {
        "problem": PROBLEMS["ijcnn1"].describe(),
        "run": {"started": "2026-01-01T00:00:00Z", "tiny": False, "generated": False},
        "machine": {"cpu": "a", "cores": 2, "instruction_set": "b"},
        "libraries": libraries,
        "objective_differences": results.objective_differences(libraries),
    }


def test_report_states_ratios_goals_and_concerns() -> None:
    found = made_up()
    assert "| 2 s (float32 dense) | 30 s (float32 dense) | 15.0x |" in report.table([found])
    assert results.concerns(found) == []
    assert [reached for _, reached in results.goals(found)] == [True, False]

    worse = copy.deepcopy(found)
    worse["libraries"]["sklearn"]["repeats"][0]["checks"]["primal"] = 100.2
    worse["objective_differences"] = results.objective_differences(worse["libraries"])
    assert results.concerns(worse) == [
        "objectives differ by 2.0e-03 (margrave / sklearn); margrave reached the lower primal value"
    ]

    boasting = copy.deepcopy(found)
    measured = boasting["libraries"]["margrave"]["repeats"][0]
    measured["extras"] = {"gap": 1e-3, "converged": True}
    measured["checks"]["gap"] = 1e-2
    assert results.concerns(boasting) == ["margrave: claims a gap of 1.0e-03, the check 1.0e-02"]

    failed = copy.deepcopy(found)
    failed["libraries"]["sklearn"] = results.entry([{"form": "x", "error": "too slow"}], [])
    assert results.concerns(failed) == ["scikit-learn: no result (too slow)"]
    assert results.ratio(failed, "sklearn") is None


def test_plot_is_drawn(tmp_path: Path) -> None:
    results.write(made_up(), tmp_path)
    plot.main([str(tmp_path)])
    assert (tmp_path / "ratios.png").stat().st_size > 5000
