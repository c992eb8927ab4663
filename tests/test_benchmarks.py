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
from scipy.special import expit
from sklearn.svm import SVC, SVR, OneClassSVM

from benchmarks import data, plot, report, results, run
from benchmarks.adapters import LIBRARIES, adapter, is_installed
from benchmarks.adapters.margrave_ import kernel_values
from benchmarks.data import FORMS, Data
from benchmarks.objective import TERMS, objective, score_error
from benchmarks.problems import PROBLEMS
from benchmarks.worker import Task, measure
from margrave import KernelLogisticRegression, ODMClassifier

MEASURED = [(p.name, library) for p in PROBLEMS.values() for library in p.libraries]


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
    assert (loaded.X_new is None) == (problem.new_rows == 0)
    if loaded.X_new is not None and loaded.y_new is not None:
        assert loaded.X_new.shape[0] == len(loaded.y_new) == 50
    if problem.estimator == "SVR":
        assert len(loaded.labels) == 0
        assert [loaded.y.mean(), loaded.y.std()] == pytest.approx([0, 1])
    elif problem.estimator == "OneClassSVM":
        assert list(loaded.labels) == [1]
    elif problem.name in ("mnist-10", "pendigits"):
        assert list(loaded.labels) == list(range(10))
    else:
        assert list(loaded.labels) == [-1, 1]
    if problem.estimator in ("SVR", "OneClassSVM"):
        np.testing.assert_allclose(loaded.X.std(axis=0), 1)
    if problem.dataset in ("covtype", "mnist"):
        assert loaded.X.min() >= 0 and loaded.X.max() <= 1


def test_a_constant_column_is_harmless() -> None:
    raw = data.generate("cadata")
    raw["X"][:, 3] = 7.0
    assert np.all(data.regression(raw, 200, 50).X[:, 3] == 0)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_first_fit_sees_every_class(name: str) -> None:
    loaded = PROBLEMS[name].tiny().load(True)
    assert set(loaded.head(2).labels) == set(loaded.labels)
    assert 0 < len(loaded.head().y) <= len(loaded.y)


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
    found = objective(model, Data(X, y), "SVC", {"C": 3.0, "gamma": 0.7})

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


def fitted(estimator: str) -> tuple[Any, Data, dict[str, Any]]:
    """A small problem of each kind, solved nearly to the end."""
    rng = np.random.default_rng(2)
    X, labels = rng.normal(size=(60, 3)), np.where(rng.random(60) < 0.5, 1, -1)
    kinds: dict[str, tuple[Any, np.ndarray, dict[str, Any]]] = {
        "SVC": (SVC, rng.choice([3, 5, 8], size=60), {"C": 3.0}),
        "SVR": (SVR, rng.normal(size=60), {"C": 3.0, "epsilon": 0.2}),
        "OneClassSVM": (OneClassSVM, np.ones(60, dtype=int), {"nu": 0.3}),
        "KernelLogisticRegression": (
            KernelLogisticRegression,
            labels,
            {"C": 3.0, "intercept": "regularized"},
        ),
        "ODMClassifier": (ODMClassifier, labels, {"lam": 50.0, "upsilon": 0.5, "theta": 0.1}),
    }
    kind, y, parameters = kinds[estimator]
    parameters = {"gamma": "scale", **parameters}
    return kind(tol=1e-9, **parameters).fit(X, y), Data(X, y), parameters


@pytest.mark.parametrize("estimator", TERMS)
def test_objectives_of_all_estimators_close_their_gap(estimator: str) -> None:
    model, fit, parameters = fitted(estimator)
    found = objective(model, fit, estimator, parameters)
    assert abs(found["gap"]) < 1e-6 and found["above_C"] < 1e-9 and found["imbalance"] < 1e-9
    if hasattr(model, "objective_"):
        assert found["primal"] == pytest.approx(model.objective_, rel=1e-9)
    # Away from the optimum, and still feasible, the gap opens.
    if estimator == "ODMClassifier":  # has no intercept
        model.dual_coef_ *= 0.99
    else:
        model.intercept_ += 0.01
    assert objective(model, fit, estimator, parameters)["gap"] > 1e-6


def test_one_class_objective_against_a_plain_formula() -> None:
    model, fit, parameters = fitted("OneClassSVM")
    scores, rho = model.score_samples(fit.X), float(model.offset_[0])
    norm = float(model.dual_coef_[0] @ scores[model.support_])
    plain = norm / 2 - rho * 0.3 * 60 + np.maximum(0, rho - scores).sum()
    found = objective(model, fit, "OneClassSVM", parameters)
    assert found["primal"] == pytest.approx(plain, rel=1e-9)


def test_objectives_of_pairs_of_classes_are_added() -> None:
    model, fit, parameters = fitted("SVC")
    found = objective(model, fit, "SVC", parameters)
    parameters["gamma"] = model._gamma  # "scale" depends on the rows, and a pair has only some
    pairs = []
    for first, second in ((3, 5), (3, 8), (5, 8)):
        rows = np.flatnonzero((fit.y == first) | (fit.y == second))
        pair = Data(fit.X[rows], np.where(fit.y[rows] == first, 1, -1))
        alone = SVC(tol=1e-9, **parameters).fit(pair.X, pair.y)
        pairs.append(objective(alone, pair, "SVC", parameters))
    for key in ("primal", "dual"):
        assert found[key] == pytest.approx(sum(p[key] for p in pairs), rel=1e-6)


@pytest.mark.parametrize(("name", "library"), MEASURED)
def test_every_problem_is_measured(name: str, library: str) -> None:
    if not is_installed(library):
        pytest.skip(f"{LIBRARIES[library].title} is not installed")
    found = measure(Task(name, library, "float32-dense", tiny=True, generated=True))
    assert found["seconds"] > 0 and found["memory_beyond_data"] >= 0
    if library != "nystroem":
        assert found["support_vectors"] > 0
    if PROBLEMS[name].timed == "score":
        assert found["checks"]["score_error"] < 1e-3
    elif library != "nystroem":
        assert abs(found["checks"]["gap"]) < 0.05
    if PROBLEMS[name].timed == "fit" and PROBLEMS[name].new_rows:
        assert all(np.isfinite(value) for value in found["checks"]["held_out"].values())
    json.dumps(found)


def test_tries_are_not_checked() -> None:
    for name in ("covtype-50k", "covtype-50k-scores"):
        task = Task(name, "sklearn", "float32-dense", checked=False, tiny=True, generated=True)
        assert measure(task)["checks"] == {}


def test_variants_of_margrave_use_their_solvers() -> None:
    for library in ("margrave-cd", "margrave-newton"):
        found = measure(Task("odm-ijcnn1", library, "float64-csr", tiny=True, generated=True))
        assert found["extras"]["solver"] == library.removeprefix("margrave-")
        assert found["extras"]["kernel_values"] > 0


def test_nystroem_stands_for_logistic_regression_alone() -> None:
    with pytest.raises(ValueError, match="not SVC"):
        adapter("nystroem").make("SVC", {"C": 1.0, "gamma": 1.0})


def test_log_loss_is_that_of_the_model() -> None:
    found = measure(Task("klr-ijcnn1", "margrave", "float64-dense", tiny=True, generated=True))
    problem = PROBLEMS["klr-ijcnn1"].tiny()
    fit = problem.load(True)
    model = KernelLogisticRegression(random_state=0, **problem.parameters).fit(fit.X, fit.y)
    chances = expit(fit.y_new * model.decision_function(fit.X_new))
    plain = -np.log(chances).mean()
    assert found["checks"]["held_out"] == {"log-loss": pytest.approx(plain, rel=1e-6)}


def test_kernel_values_of_several_problems_and_precisions_are_added() -> None:
    def record(values: int, where: str = "") -> dict[str, Any]:
        return {"kernel_values": values} | ({"where": where} if where else {})

    assert kernel_values([]) == 0
    assert kernel_values([record(5), record(9)]) == 9
    assert kernel_values([record(5), record(9), record(4), record(6)]) == 15  # starts anew
    assert kernel_values([record(5, "a"), record(2, "b"), record(7, "a"), record(3, "b")]) == 10


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
        problem: Any, library: str, form: str, limit: float, *rest: Any, checked: bool = True
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


@pytest.mark.parametrize(("seconds", "expected"), [(0.3, 20), (0.7, 5)])
def test_short_fits_are_repeated_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, expected: int
) -> None:
    def pretend(
        problem: Any, library: str, form: str, *rest: Any, checked: bool = True
    ) -> results.Entry:
        taken = seconds if library == "margrave" else 3.0
        return {"form": form, "seconds": taken, "versions": {}, "checks": {}, "extras": {}}

    monkeypatch.setattr(run, "_measure", pretend)
    arguments = "--generated --libraries margrave sklearn --repeat sklearn=4 --only pendigits"
    assert run.main([*arguments.split(), "--output", str(tmp_path)]) == 0
    (found,) = results.read(tmp_path)
    counts = {name: len(entry["repeats"]) for name, entry in found["libraries"].items()}
    assert counts == {"margrave": expected, "sklearn": 4}  # what is asked for by name stays


def test_files_without_an_estimator_are_of_svc(tmp_path: Path) -> None:
    old = made_up()
    del old["problem"]["estimator"]
    file = results.write(old, tmp_path)
    assert results.load(file)["problem"] == PROBLEMS["ijcnn1"].describe()


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


def made_up_of(name: str, libraries: dict[str, results.Entry]) -> dict[str, Any]:
    return made_up() | {
        "problem": PROBLEMS[name].describe(),
        "libraries": libraries,
        "objective_differences": results.objective_differences(libraries),
    }


def test_report_of_predictions_and_of_other_ways() -> None:
    def entry(
        seconds: float, figure: str, value: float, has_dual: bool = True, **extras: Any
    ) -> results.Entry:
        checks: dict[str, Any] = {"held_out": {figure: value}}
        if has_dual:
            checks |= {"primal": 1.0, "dual": -1.0}
        measured = {"form": "float32-dense", "seconds": seconds, "versions": {}}
        return results.entry([], [{**measured, "checks": checks, "extras": extras}])

    svr = made_up_of(
        "svr-cadata", {"margrave": entry(1.0, "R2", 0.75), "sklearn": entry(9.0, "R2", 0.752)}
    )
    klr = made_up_of(
        "klr-ijcnn1",
        {
            "margrave": entry(2.0, "log-loss", 0.05, kernel_values=1_000_000),
            "nystroem": entry(1.0, "log-loss", 0.1, has_dual=False),
        },
    )
    text = report.table([made_up(), svr, klr])
    title, other = svr["problem"]["title"], klr["problem"]["title"]
    assert f"| {title} | 1 s (float32 dense) | 9 s (float32 dense) | 9.0x |" in text
    assert f"| {title} | R2 | 0.7500 | 0.7520 |" in text
    assert results.concerns(svr) == [
        "R2 on the rows held out differs by 2.0e-03 (margrave / sklearn)"
    ]
    assert results.concerns(klr) == []  # another model may predict differently
    assert f"| {other} | margrave | 2 s (float32 dense) | 1.00e+06 |  | 0.0500 |" in text
    assert f'| {other} | margrave, solver="cd" | - | - | - | - |' in text
    pipeline = LIBRARIES["nystroem"].title
    assert f"| {other} | {pipeline} | 1 s (float32 dense) | - | 0.5x | 0.1000 |" in text


def test_plot_is_drawn(tmp_path: Path) -> None:
    results.write(made_up(), tmp_path)
    plot.main([str(tmp_path)])
    assert (tmp_path / "ratios.png").stat().st_size > 5000
