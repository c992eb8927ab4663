"""The papers' tables on generated data: every method is measured, and the pages are those of the
result files."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_moons

from benchmarks import augmentation, engines
from benchmarks.adapters import is_installed
from benchmarks.marks import placed
from benchmarks.papers import (
    common,
    dcsvm,
    pbm,
    published,
    report,
    saddle,
    sodm,
    studies,
    study,
    worker,
    workload,
)
from benchmarks.papers.data import official_split
from benchmarks.papers.picture import draw_curves
from benchmarks.papers.published_grids import GRIDS
from benchmarks.papers.report import cells
from benchmarks.papers.studies import STUDIES
from benchmarks.papers.worker import Task
from margrave import SVC

PAPERS = {paper.PAPER.name: paper.PAPER for paper in (dcsvm, pbm, sodm, saddle)}
SETS = [(paper.name, name) for paper in PAPERS.values() for name in paper.datasets]
NUMBERS = {
    ("dcsvm", "table2"): published.DCSVM_TABLE_2,
    ("pbm", "table2"): published.PBM_TABLE_2,
    ("sodm", "table2"): published.SODM_TABLE_2,
    ("sodm", "table3"): published.SODM_TABLE_3,
    ("sodm", "table4"): published.SODM_TABLE_4,
    ("saddle", "table1"): published.SADDLE_TABLE_1,
    ("saddle", "table3"): published.SADDLE_TABLE_3,
    ("saddle", "table4"): published.SADDLE_TABLE_4,
}


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARGRAVE_DATA", raising=False)


# every table has one of these data sets
MEASURED = {
    "dcsvm": ["ijcnn1"],
    "pbm": ["covtype"],
    "sodm": ["ijcnn1", "covtype"],
    "saddle": ["iris", "synthetic128", "phishing", "filled10"],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Result files of all methods on one data set, measured in this process."""

    def measured_here(task: dict[str, Any]) -> dict[str, Any]:
        found = worker.measure(Task(**{**task, "limit": None}))
        return json.loads(json.dumps(found))

    output = tmp_path_factory.mktemp("papers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "measured_apart", measured_here)
        patch.setattr(common.Search, "best", _first_of_grid)
        patch.setattr(worker, "SHORT_REPEATS", 1)
        patch.setitem(saddle.FIXED, "max_iter", 20)  # some of its methods take for ever
        for name, method in saddle.PAPER.methods.items():
            patch.setitem(saddle.PAPER.methods, name, replace(method, early=method.early[:2]))
        for paper in PAPERS.values():
            for name in MEASURED[paper.name]:
                arguments = f"--generated --only {name} --output {output}"
                assert common.run(paper, arguments.split()) == 0
    return output


def _first_of_grid(search: common.Search, dataset: Any, generated: bool) -> dict[str, Any]:
    return {name: values[0] for name, values in search.grid.items()}


@pytest.mark.parametrize(("paper", "name"), SETS)
def test_data_sets_are_prepared(paper: str, name: str) -> None:
    dataset = PAPERS[paper].datasets[name]
    data = dataset.load(generated=True)
    assert data.X_new is not None and data.y_new is not None
    assert data.X.shape[0] == len(data.y) and data.X_new.shape[0] == len(data.y_new)
    assert set(data.y) == set(data.y_new) and len(set(data.y)) == 2
    for form in set(dataset.forms.values()):
        assert data.in_form(form).X.shape == data.X.shape
    # official splits are as they come, and so are those that are made up
    if dataset.archive and dataset.prepare is not official_split:
        assert data.X.min() >= 0.0 and data.X.max() <= 1.0


@pytest.mark.parametrize(
    ("paper", "table"), [(p.name, t) for p in PAPERS.values() for t in p.tables]
)
def test_every_method_is_measured(finished: Path, paper: str, table: common.Table) -> None:
    (results, *_) = common.read(PAPERS[paper], table, finished).values()
    assert list(results["methods"]) == list(table.methods)
    assert results["machine"]["cores"] >= 1 and results["run"]["generated"]
    for name, entry in results["methods"].items():
        method = PAPERS[paper].methods[name]
        if not is_installed(method.library):
            assert "not installed" in entry["skipped"]
            continue
        found = common.last(entry)
        assert found is not None and not common.has_failed(entry)
        assert found["seconds"] > 0 and 0 <= found["accuracy"] <= 100
        assert found["versions"]["numpy"] == np.__version__
        assert (found["rows"] < found["whole_rows"]) == (method.rows == common.SAMPLE)
        assert ("full_gap" in found) == method.certified
        if "certificate" in found:
            assert len(found["history"]["seconds"]) <= worker.MOST_RECORDS
            assert found["history"]["seconds"][-1] <= found["seconds"]


def test_parameters_are_searched_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[str] = []

    def best(search: common.Search, dataset: Any, generated: bool) -> dict[str, Any]:
        searches.append(search.estimator)
        return _first_of_grid(search, dataset, generated)

    monkeypatch.setattr(common.Search, "best", best)
    monkeypatch.setattr(common, "measured_apart", lambda task: _made_up(100, 1.0))
    arguments = f"--generated --only phishing --output {tmp_path} --methods".split()
    common.run(sodm.PAPER, [*arguments, "odm-whole"])
    common.run(sodm.PAPER, [*arguments, "odm-sodm"])
    assert searches == ["ODMClassifier"]
    results = common.read(sodm.PAPER, sodm.TABLE_2, tmp_path)["phishing"]
    assert list(results["methods"]) == ["odm-whole", "odm-sodm"]  # the first is kept


def test_search_finds_the_better_parameters() -> None:
    grid = {"C": [1.0], "gamma": [1e-9, 1.0]}
    search = common.Search("SVC", sodm.SVM_FIXED, grid, rows=200)
    assert search.best(sodm.DATASETS["svmguide1"], generated=True)["gamma"] == 1.0


def _made_up(rows: int, seconds: float, **more: Any) -> dict[str, Any]:
    found = {"rows": rows, "whole_rows": 1000, "test_rows": 10, "features": 2, "seconds": seconds}
    return {**found, "accuracy": 90.0, "versions": {}, "warnings": [], **more}


def test_seconds_follow_a_power_law() -> None:
    runs = [_made_up(rows, 1e-4 * rows**2) for rows in (100, 200, 500)]
    found = common.extrapolate(runs)
    assert found is not None and found["rows"] == 1000
    assert found["exponent"] == pytest.approx(2.0) and found["seconds"] == pytest.approx(100.0)
    assert common.extrapolate(runs[:1]) is None
    assert common.extrapolate([*runs, _made_up(1000, 5.0)]) is None
    entry = {"runs": runs, "extrapolated": found}
    assert cells.seconds_of(entry) == "~100"
    assert cells.accuracy_of(entry) == "90.00 (500 rows)"


def test_sizes_end_with_the_first_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([_made_up(100, 1.0), {"rows": 200, "error": "no", "given_up": True}])
    monkeypatch.setattr(common, "measured_apart", lambda task: next(answers))
    runs = common._runs({}, dcsvm.METHODS["libsvm"], dcsvm.DATASETS["covtype"])
    entry = {"runs": runs, "extrapolated": common.extrapolate(runs)}
    assert len(runs) == 2 and not common.has_failed(entry)
    assert cells.notes_of(dcsvm.PAPER, "libsvm", entry) == ["no", "measured with 100 rows only"]


def test_a_fit_has_a_process_and_a_limit_of_its_own() -> None:
    dataset = dcsvm.DATASETS["ijcnn1"]
    task = {"paper": "dcsvm", "dataset": "ijcnn1", "parameters": dict(dataset.parameters)}
    task |= {"rows": None, "generated": True}
    given_up = common.measured_apart({**task, "method": "libsvm", "limit": 1e-6})
    assert given_up["given_up"] and "given up" in given_up["error"]
    failed = common.measured_apart({**task, "method": "unknown", "limit": 60.0})
    assert "unknown" in failed["error"] and "given_up" not in failed
    assert common.has_failed({"runs": [failed]})


def test_kernel_values_of_parts_and_whole_are_added() -> None:
    same = {"seconds": 1.0, "gap": 1.0, "objective": 1.0}
    history = [
        {**same, "where": "level 2, 16 parts", "kernel_values": 10, "parts": 16},
        {**same, "where": "level 1, 4 parts", "kernel_values": 15, "parts": 4},
        {**same, "where": "all rows"},
        {**same, "steps": 0, "kernel_values": 20},
        {**same, "steps": 9, "kernel_values": 40},
    ]
    figures = {"objective_": 1.0, "gap_": np.inf, "certificate_": "full", "converged_": True}
    found = worker.facts(SimpleNamespace(history_=history, n_iter_=2, **figures))
    assert found["kernel_values"] == 15 + 40
    assert found["gap"] is None  # JSON has no infinity


def test_short_fits_are_repeated() -> None:
    parameters = dict(dcsvm.DATASETS["ijcnn1"].parameters)
    found = worker.measure(Task("dcsvm", "ijcnn1", "exact", parameters, generated=True))
    assert len(found["repeats"]) == worker.SHORT_REPEATS
    assert found["seconds"] == np.median(found["repeats"])


def test_early_fits_are_points_on_the_way() -> None:
    told: list[dict[str, Any]] = []
    task = Task("saddle", "phishing", "nu-published-gilbert", {}, generated=True, limit=60.0)
    found = worker.measure(task, told.append)
    assert found["early"] == told and [point["iterations"] for point in told][:2] == [1, 3]
    # Frank-Wolfe steps never go up, and what is sent adds up
    objectives = [*(point["objective"] for point in told), found["objective"]]
    assert objectives == sorted(objectives, reverse=True)
    numbers = [*(point["numbers"] for point in told), found["numbers"]]
    assert numbers == sorted(numbers) and numbers[0] < numbers[-1]
    assert common.way({"runs": [found]}) == [*told, found]


def test_early_fits_outlive_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*args: Any, **options: Any) -> Any:
        return SimpleNamespace(returncode=-signal.SIGALRM, stdout='{"seconds": 1.0}\n', stderr="")

    monkeypatch.setattr(common.subprocess, "run", ended)
    given_up = common.measured_apart({"rows": None, "limit": 1.0})
    assert common.way({"runs": [given_up]}) == [{"seconds": 1.0}]


def test_distance_of_libsvm_is_ours() -> None:
    data = saddle.SOFT["phishing"].load(generated=True)
    for form in ("float64-dense", "float64-csr"):
        X = data.in_form(form).X
        ours = saddle.SOFT_METHODS["nu-pairs"].make({}).set_params(machine__tol=1e-8)
        theirs = saddle.SOFT_METHODS["libsvm"].make({}).set_params(machine__tol=1e-8)
        expected = ours.fit(X, data.y).objective_
        assert theirs.fit(X, data.y).objective_ == pytest.approx(expected, rel=1e-6)


def test_a_stochastic_gradient_reads_and_writes_every_entry() -> None:
    data = saddle.SOFT["phishing"].load(generated=True)
    model = saddle.LINEAR_METHODS["sgd"].make({}).set_params(max_iter=3, tol=None)
    sent = 2 * 3 * np.count_nonzero(data.in_form("float64-dense").X)
    for form in ("float64-dense", "float64-csr"):
        assert model.fit(data.in_form(form).X, data.y).numbers_ == sent


def test_made_up_labels_are_random_near_the_plane_only() -> None:
    data = saddle.SOFT["filled90"].load(generated=True)
    X, y = np.vstack([data.X, data.X_new]), np.concatenate([data.y, data.y_new])
    w = np.random.default_rng(saddle.SEED).standard_normal(X.shape[1])
    distance = X @ w / np.linalg.norm(w)
    wrong = np.sign(distance) != y
    # nearly a third of the points is near, and half of those is wrong: 0.83 of them in the paper
    assert 0.03 < np.mean(wrong) < 0.25
    assert np.abs(distance[wrong]).max() <= 0.1 * np.abs(distance).max()


def test_bagging_is_a_majority_vote(rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 2))
    y = np.where(X[:, 0] > 0, 5, 3)
    model = dcsvm._bagging({"C": 1.0, "gamma": 1.0}, parts=8).fit(X, y)
    assert len(model.members_) == 8 and np.mean(model.predict(X) == y) > 0.9
    tiny = dcsvm._bagging({"C": 1.0, "gamma": 1.0}, parts=100).fit(X, y)  # some see one class only
    assert any(isinstance(member, int) for member in tiny.members_)
    assert np.mean(tiny.predict(X) == y) > 0.8


def test_what_is_printed_belongs_to_methods_and_data_sets() -> None:
    for (paper, table), numbers in NUMBERS.items():
        methods = next(t.methods for t in PAPERS[paper].tables if t.name == table)
        assert list(numbers) and set(numbers) <= set(PAPERS[paper].datasets)
        known = {*methods, *(name.rsplit("-", 1)[0] for name in methods)}  # several beta
        assert all(set(row) <= known for row in numbers.values())
    assert set(published.DCSVM_ROWS) == set(dcsvm.DATASETS)
    for grid in GRIDS.values():
        assert len(grid) == 25 and all(len(numbers) == 6 for numbers in grid.values())
    for tables in published.AS_PRINTED.values():
        assert all(len(row) == len(head) for _, head, rows in tables for row in rows)


def test_pages_and_pictures_are_made(finished: Path, tmp_path: Path) -> None:
    report.main([str(finished), "--output", str(tmp_path)])
    page = (tmp_path / "dcsvm.md").read_text()
    assert "| DC-SVM (early) |" in page and "300 x 22 (the paper: 49,990)" in page
    assert "Conditions" in page and (tmp_path / "dcsvm.png").stat().st_size > 10_000
    page = (tmp_path / "sodm.md").read_text()
    assert "| SODM as printed |" in page and "lam=1, theta=0.1, gamma=0.0625" in page
    assert (tmp_path / "sodm.png").stat().st_size > 10_000
    page = (tmp_path / "saddle.md").read_text()
    assert "| Saddle-SVC as printed, beta=" in page and "| working set among nodes |" in page
    for name, picture in report.saddle.PICTURES.items():
        made = tmp_path / f"saddle-{name}.png"
        assert made.exists() == bool(picture.read(finished))
        assert not made.exists() or made.stat().st_size > 10_000


@pytest.mark.parametrize("name", PAPERS)
def test_pages_are_those_of_the_result_files(name: str) -> None:
    text = (report.DOCS / f"{name}.md").read_text()
    results = report.PAGES[name].text()
    assert text == placed(text, results)
    for picture in [line.split("(")[1].rstrip(")") for line in text.splitlines() if "![" in line]:
        assert (report.DOCS / picture).exists()


# --- studies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUDIES)
def test_studies_run(name: str, tmp_path: Path) -> None:
    """One case of each on a few made-up rows, its lines in the table, and its picture."""
    told = STUDIES[name]
    assert name.split("-")[0] in studies.PAPERS
    case = told.cases[0]
    counted = json.loads(json.dumps(told.measure(case, True)))
    timed = json.loads(json.dumps(told.seconds(case, True))) if told.seconds else {}
    for found in ({**counted, "timed": {}}, {**counted, "timed": timed}):
        rows = study.lines(told, case, found)
        assert rows[0][0] == case and all(len(row) == len(told.head) for row in rows)
        assert told.below is None or told.below({case: found}).endswith(".")
    assert not timed or study.lines(told, case, {**counted, "timed": {}}) != rows
    if told.curves is not None:
        draw_curves({case: told.curves(case, found)}, told.axes, tmp_path / "picture.png")
        assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_seconds_are_measured_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def counts(case: str, quick: bool) -> dict[str, Any]:
        return {"count": 7}

    def seconds(case: str, quick: bool) -> dict[str, Any]:
        return {"seconds": 0.5}

    def rows(case: str, found: study.Found) -> list[list[str]]:
        return [[str(found["count"]), str(found["timed"].get("seconds", "-"))]]

    told = study.Study("t", "x", ("a", "b"), counts, ("c", "n", "s"), rows, seconds)
    monkeypatch.setattr(study, "path", lambda name, where=None: tmp_path / f"{name}.json")
    options = SimpleNamespace(cases=None, again=False, quick=False, counted=True)
    study.run("paper-claim", told, options)
    assert "| a | 7 | - |" in study.section("paper-claim", told, tmp_path)
    options.counted, options.cases = False, ["[b-z]"]
    study.run("paper-claim", told, options)
    text = study.section("paper-claim", told, tmp_path)
    assert "| a | 7 | - |" in text and "| b | 7 | 0.5 |" in text
    assert f"numpy {np.__version__}" in text
    assert not study.section("another", told, tmp_path)  # nothing of what was not measured


def test_work_of_the_busiest_worker() -> None:
    tally = workload.Tally(2, lambda method, result: result if method == "index" else None)
    with tally.scatter(list, ["aaab", "ab", "aaaaaab"]) as shards:
        assert shards.map("index", "b") == [3, 1, 6]
        shards.map("count", "a")  # is not counted
    assert tally.all() == 10 and tally.busiest(1) == 10
    assert tally.busiest(2) == 6 and tally.busiest(3) == 6  # the largest shard by itself
    told = workload.Tally(1, lambda method, result: result, is_sum=True)
    with told.scatter(list, ["ab"]) as shards:
        shards.map("index", "b")
        shards.map("__len__")
    assert [float(work.sum()) for _, work in told.calls] == [1.0, 1.0]  # 1, then 1 more


def test_kernel_values_of_predictions_are_counted() -> None:
    X, y = make_moons(60, noise=0.3, random_state=0)
    model = SVC(gamma=2.0, solver="exact").fit(X, y)
    with workload.counted_predictions() as counter:
        model.predict(X[:7])
    assert counter.values == 7 * len(model.support_)


def test_a_case_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def measure(case: str, quick: bool) -> dict[str, Any]:
        calls.append(case)
        return {"value": len(calls)}

    told = study.Study("t", "x", ("a", "b"), measure, ("c", "v"), lambda c, f: [[str(f["value"])]])
    monkeypatch.setattr(study, "path", lambda name, where=None: tmp_path / f"{name}.json")
    options = SimpleNamespace(cases=["a"], again=False, quick=False, counted=False)
    study.run("paper-claim", told, options)
    options.cases = None
    study.run("paper-claim", told, options)
    assert calls == ["a", "b"]
    assert "| a | 1 |" in study.section("paper-claim", told, tmp_path)
    options.again, options.quick = True, True
    study.run("paper-claim", told, options)  # writes nothing
    assert calls == ["a", "b", "a", "b"] and study.read("paper-claim")["cases"]["b"]["found"] == {
        "value": 2
    }


# --- augmentation --------------------------------------------------------------------------------


def test_the_page_of_augmentation_has_the_measured_numbers() -> None:
    page = augmentation.PAGE.read_text()
    assert placed(page, augmentation.report()) == page


def test_augmentation_is_measured(monkeypatch, tmp_path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 3))
    y = np.where(X[:, 0] > 0.1 * rng.standard_normal(900), 2, 1)
    monkeypatch.setattr(augmentation.data, "read", lambda name: {"X": X, "y": y})
    monkeypatch.setattr(augmentation, "FOLDER", tmp_path)
    best = augmentation.optimum("covtype")
    (tmp_path / "pemsvm-covtype.json").write_text(json.dumps({"optimum": best}))
    ways = {way: augmentation.measure("covtype", way) for way in augmentation.WAYS}
    for found in ways.values():
        assert found["objective"] >= best * (1.0 - 1e-5)
    assert all(ways[way]["objective"] <= best * 1.002 for way in ("fast", "em", "auto", "shortest"))
    told = {"title": "some", "C": 1.0, "optimum": best, "ways": ways}
    assert augmentation._table(told).count("\n|") == len(ways) + 2
    failed = {**told, "ways": {"fast": {"error": "given up"}}}
    assert "given up" in augmentation._table(failed)


# --- engines -------------------------------------------------------------------------------------


def test_engines_are_measured() -> None:
    found = {
        name: engines.measure(engines.CASES["ijcnn1"], engines.WAYS[name], generated=True)
        for name in ("exact", "serial", "threads-2")
    }
    assert all(one["converged"] and one["seconds"] > 0 for one in found.values())
    assert found["threads-2"]["objective"] == pytest.approx(found["exact"]["objective"], rel=2e-3)
    table = engines._table(found)
    assert table.count("\n") == len(engines.WAYS) + 1 and "1.00x" in table


def test_the_page_of_engines_is_that_of_the_result_files() -> None:
    page = engines.PAGE.read_text()
    assert page == placed(page, engines.report())
