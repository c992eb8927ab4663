"""The benchmark harness on generated data: no data sets, no rivals beyond scikit-learn needed."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, OneClassSVM

import margrave
from benchmarks import (
    data,
    generated,
    large,
    moving,
    plot,
    reading,
    report,
    results,
    run,
    shortest,
    tuning,
)
from benchmarks.adapters import LIBRARIES, SHORTEST, adapter, is_installed
from benchmarks.adapters.margrave_ import kernel_values, passes
from benchmarks.data import FORMS, MAPPED, Data
from benchmarks.linear_objective import linear_objective
from benchmarks.measure import timed
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
    elif problem.dataset == "news20_18k":
        assert list(loaded.labels) == list(range(1, 21))
    else:
        assert list(loaded.labels) == [-1, 1]
    linear_tables = problem.kernel == "linear" and problem.dataset in ("covtype", "susy30k")
    if problem.estimator in ("SVR", "OneClassSVM") or linear_tables:
        np.testing.assert_allclose(loaded.X.std(axis=0), 1)
    elif problem.dataset in ("covtype", "mnist"):
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


def test_mapped_rows_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    X = PROBLEMS["linear-svr-flights-3m"].tiny().load(True).X
    mapped = data.convert(X, MAPPED)
    assert isinstance(mapped, np.memmap) and mapped.dtype == np.float32
    np.testing.assert_array_equal(mapped, X.astype(np.float32))
    assert list(tmp_path.iterdir()) == []


def test_mapped_rows_do_not_count_as_memory() -> None:
    mapped = data.convert(np.ones((1 << 20, 8)), MAPPED)  # 32 MiB
    _, cost = timed(lambda: mapped.sum(), anonymous=True)
    assert cost.anonymous and cost.memory_beyond < 16 << 20

    def hold() -> None:
        held = np.ones(8 << 20)  # 64 MiB, and freed again
        time.sleep(0.5)  # the watching process may have to wait for a core
        del held

    _, cost = timed(hold, anonymous=True)
    assert cost.memory_beyond > 48 << 20


def test_the_best_error_of_generated_rows_is_known(tmp_path: Path) -> None:
    X, y = generated.draw(300_000, seed=3)
    wrong = generated.best(X) != y
    deviation = np.sqrt(generated.BEST_ERROR * (1.0 - generated.BEST_ERROR) / len(y))
    assert abs(wrong.mean() - generated.BEST_ERROR) < 4.0 * deviation
    # it is the same everywhere: in halves of the cube, and for both labels
    for half in (X @ generated._constants()[0][:, 0] > 0.0, y > 0, generated.best(X) > 0):
        for part in (half, ~half):
            assert abs(wrong[part].mean() - generated.BEST_ERROR) < 0.01
    linear = margrave.SVC(kernel="linear").fit(X[:20_000], y[:20_000])
    assert linear.score(X[20_000:], y[20_000:]) < 0.6
    kernel = margrave.SVC(C=2.0, gamma=6.0).fit(X[:4000], y[:4000])
    assert kernel.score(X[20_000:30_000], y[20_000:30_000]) > 0.85
    np.testing.assert_array_equal(X[:5000], generated.draw(5000, seed=3)[0])
    assert not np.array_equal(X[:5000], generated.draw(5000, seed=4)[0])
    generated.main([str(tmp_path), "--rows", "150000", "--seed", "3"])
    rows, labels = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "Xy")
    assert rows.dtype == np.float32 and labels.dtype == np.int8
    np.testing.assert_array_equal(rows, X[:150_000])
    np.testing.assert_array_equal(labels, y[:150_000])


def test_many_rows_are_measured_and_reported(tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    assert large.main(f"--rows 20000 --seconds 20 --output {file}".split()) == 0
    found = json.loads(file.read_text())["ways"]
    assert list(found) == list(large.WAYS) and not any("error" in one for one in found.values())
    assert found["early"]["accuracy"] == found["blocks"]["accuracy"] > 0.85
    assert found["linear"]["accuracy"] < 0.6
    assert found["dc"]["certificate"] == "full" and found["early"]["certificate"] == "blocks"
    assert all(0.9 < one["best_accuracy"] < 0.96 for one in found.values())
    assert "| early model, memory-mapped array | 20,000 |" in large.report(file)


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


def linear_problem(labels: int = 2) -> tuple[Data, np.ndarray]:
    """Noisy classes (two of them: -1 and 1) and noisy numbers over the same few rows."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 4))
    scores = X @ rng.normal(size=(4, labels)) + rng.normal(size=(80, labels))
    y = scores.argmax(axis=1)
    return Data(X, 2 * y - 1 if labels == 2 else y), scores[:, 0]


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_linear_objective_against_a_plain_formula(loss: str) -> None:
    fit, _ = linear_problem()
    model = LinearSVC(C=3.0, loss=loss, max_iter=100_000).fit(fit.X, fit.y)
    short = np.maximum(0, 1 - fit.y * model.decision_function(fit.X))
    paid = (short**2 if loss == "squared_hinge" else short).sum()
    plain = (model.coef_**2).sum() / 2 + model.intercept_[0] ** 2 / 2 + 3 * paid
    parameters = {"C": 3.0, "loss": loss, "intercept": "regularized"}
    assert linear_objective(model, fit, "SVC", parameters) == {"primal": pytest.approx(plain)}

    numbers = Data(fit.X, linear_problem()[1])
    parameters = {"C": 3.0, "epsilon": 0.2, "intercept": "regularized"}
    regression = LinearSVR(C=3.0, epsilon=0.2, max_iter=100_000).fit(numbers.X, numbers.y)
    outside = np.maximum(0, np.abs(numbers.y - regression.predict(fit.X)) - 0.2).sum()
    plain = (regression.coef_**2).sum() / 2 + regression.intercept_[0] ** 2 / 2 + 3 * outside
    found = linear_objective(regression, numbers, "SVR", parameters)
    assert found == {"primal": pytest.approx(plain)}

    logistic = LogisticRegression(C=3.0).fit(fit.X, fit.y)
    chances = expit(fit.y * logistic.decision_function(fit.X))
    plain = (logistic.coef_**2).sum() / 2 - 3 * np.log(chances).sum()
    parameters = {"C": 3.0, "intercept": "free"}
    found = linear_objective(logistic, fit, "KernelLogisticRegression", parameters)
    assert found == {"primal": pytest.approx(plain)}


LINEAR_MODELS = [
    ("SVC", {"C": 3.0, "loss": "hinge", "intercept": "regularized"}),
    ("SVC", {"C": 3.0, "loss": "squared_hinge", "intercept": "regularized"}),
    ("SVC", {"C": 3.0, "loss": "hinge", "intercept": "free"}),
    ("SVR", {"C": 3.0, "epsilon": 0.2, "intercept": "regularized"}),
    ("KernelLogisticRegression", {"C": 3.0, "intercept": "free"}),
    ("ODMClassifier", {"lam": 50.0, "upsilon": 0.5, "theta": 0.1}),
]


@pytest.mark.parametrize("form", ["float64-dense", "float64-csr"])
@pytest.mark.parametrize(("estimator", "parameters"), LINEAR_MODELS)
def test_linear_objectives_close_their_gap(
    estimator: str, parameters: dict[str, Any], form: str
) -> None:
    fit, numbers = linear_problem()
    if estimator == "SVR":
        fit = Data(fit.X, numbers)
    model = getattr(margrave, estimator)(kernel="linear", tol=1e-9, **parameters)
    model.fit(data.convert(fit.X, form), fit.y)
    found = linear_objective(model, fit, estimator, parameters)
    assert abs(found["gap"]) < 1e-6 and found["above_C"] < 1e-9 and found["imbalance"] < 1e-9
    assert found["primal"] == pytest.approx(model.objective_, rel=1e-6)
    # Away from the optimum, and still feasible, the gap opens: weights and beta count both.
    model.dual_coef_ = 0.99 * model.dual_coef_
    assert linear_objective(model, fit, estimator, parameters)["gap"] > 1e-6


def test_linear_objectives_of_classes_against_the_rest_are_added() -> None:
    fit, _ = linear_problem(labels=4)
    parameters = {"C": 3.0, "loss": "hinge", "intercept": "regularized"}
    kind = {"kernel": "linear", "tol": 1e-9, "multi_class": "ovr"}
    found = linear_objective(margrave.SVC(**kind, **parameters).fit(fit.X, fit.y), fit, "SVC",
                             parameters)  # fmt: skip
    parts = []
    for label in range(4):
        part = Data(fit.X, np.where(fit.y == label, 1, -1))
        alone = margrave.SVC(**kind, **parameters).fit(part.X, part.y)
        parts.append(linear_objective(alone, part, "SVC", parameters))
    for key in ("primal", "dual"):
        assert found[key] == pytest.approx(sum(p[key] for p in parts), rel=1e-6)
    rival = LinearSVC(C=3.0, loss="hinge", tol=1e-8, max_iter=100_000).fit(fit.X, fit.y)
    assert linear_objective(rival, fit, "SVC", parameters)["primal"] == pytest.approx(
        found["primal"], rel=1e-6
    )


def skip_unless_measurable(library: str) -> None:
    if not is_installed(library):
        pytest.skip(f"{LIBRARIES[library].title} is not installed")


@pytest.mark.parametrize(("name", "library"), MEASURED)
def test_every_problem_is_measured(name: str, library: str) -> None:
    skip_unless_measurable(library)
    problem = PROBLEMS[name]
    form = MAPPED if MAPPED in problem.forms else "float32-dense"
    found = measure(Task(name, library, form, tiny=True, generated=True))
    assert found["seconds"] > 0 and found["memory_beyond_data"] >= 0
    has_dual = library != "nystroem" and (
        problem.kernel == "rbf" or LIBRARIES[library].adapter == "margrave"
    )
    if has_dual:
        assert found["support_vectors"] > 0
    if problem.timed == "score":
        assert found["checks"]["score_error"] < 1e-3
    elif has_dual:
        assert abs(found["checks"]["gap"]) < 0.05
    elif problem.kernel == "linear":
        assert found["checks"]["primal"] > 0
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


@pytest.mark.parametrize("library", ["margrave-svrg", "margrave-dsvrg"])
def test_variants_of_linear_solvers_count_passes(library: str) -> None:
    skip_unless_measurable(library)
    found = measure(Task("linear-odm-susy30k", library, "float64-dense", tiny=True, generated=True))
    assert found["extras"]["solver"] == library.removeprefix("margrave-")
    assert found["extras"]["passes"] > 0


def test_passes_are_those_of_the_last_record_that_counts() -> None:
    assert passes([]) is None and passes([{"gap": 1.0}]) is None
    assert passes([{"passes": 1.5}, {"passes": 4.5}, {"gap": 0.1}]) == 4.5


def test_linear_models_of_sklearn() -> None:
    make = adapter("sklearn").make
    hinge = {"kernel": "linear", "C": 2.0, "loss": "hinge", "intercept": "regularized"}
    model = make("SVC", {**hinge, "max_iter": 7})
    assert isinstance(model, LinearSVC) and (model.loss, model.max_iter) == ("hinge", 7)
    logistic = {"kernel": "linear", "C": 2.0, "intercept": "free", "solver": "newton-cg"}
    assert isinstance(make("KernelLogisticRegression", logistic), LogisticRegression)
    assert isinstance(make("SVC", {"kernel": "rbf", "C": 2.0}), SVC)
    with pytest.raises(ValueError, match="intercept of LinearSVC is regularized"):
        make("SVC", hinge | {"intercept": "free"})
    with pytest.raises(ValueError, match="no linear ODMClassifier"):
        make("ODMClassifier", {"kernel": "linear"})


def test_runs_cut_short_say_so() -> None:
    task = {"tiny": True, "generated": True, "form": "float64-dense", "library": SHORTEST}
    name = "linear-squared-hinge-covtype-C1"
    short = measure(Task(name, **task, options={"max_iter": 1}))["extras"]
    assert (short["iterations"], short["max_iter"], short["converged"]) == (1, 1, False)
    assert "failed to converge" in short["warnings"][0]
    whole = measure(Task(name, **task))["extras"]
    assert whole["max_iter"] == 1000 and whole["converged"] and "warnings" not in whole


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
        problem: Any, library: str, form: str, limit: float, *rest: Any, **more: Any
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
    def pretend(problem: Any, library: str, form: str, *rest: Any, **more: Any) -> results.Entry:
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


def run_of_liblinear(primals: dict[int, float], stops_at: int = 1000) -> Any:
    """A stand-in for measurements: primal objectives by iterations, an optimum of 100."""

    def pretend(problem: Any, library: str, form: str, *rest: Any, **more: Any) -> results.Entry:
        measured = {"form": form, "versions": {}}
        if library == "margrave":
            checks = {"primal": 100.05, "dual": -100.0, "gap": 5e-4}
            return {**measured, "seconds": 2.0, "checks": checks,
                    "extras": {"gap": 5e-4, "converged": True}}  # fmt: skip
        max_iter = (more.get("options") or {}).get("max_iter", 1000)
        done = min(max_iter, stops_at)
        extras = {"iterations": done, "max_iter": max_iter, "converged": done < max_iter}
        checks = {"primal": primals[done]}
        return {**measured, "seconds": 0.01 * done, "checks": checks, "extras": extras}

    return pretend


def liblinear_results(
    folder: Path, monkeypatch: pytest.MonkeyPatch, pretend: Any
) -> results.Results:
    monkeypatch.setattr(run, "_measure", pretend)
    arguments = f"--generated --only linear-hinge-reuters --output {folder}"
    assert run.main(arguments.split()) == 0
    (found,) = results.read(folder)
    found["run"]["generated"] = False  # as of a real run
    return found


def test_the_shortest_run_near_the_optimum_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    primals = {1: 150.0, 2: 100.2, 5: 100.09, 1000: 100.01}
    found = liblinear_results(tmp_path, monkeypatch, run_of_liblinear(primals))
    entry = found["libraries"][SHORTEST]
    assert [(t["max_iter"], round(t["excess"], 4)) for t in entry["trials"]] == [
        (1, 0.3333), (2, 0.0020), (5, 0.0009)
    ]  # fmt: skip
    assert len(entry["repeats"]) == run.SHORT_REPEATS  # 0.05 s
    assert entry["seconds"] == pytest.approx(0.05)
    assert found["objective_differences"]["margrave / sklearn"] == {
        "primal": pytest.approx(0.0004, rel=0.01)
    }
    text = report.table([found])
    assert "| its shortest run within 1e-3 |" in text
    cut = "0.05 s (float32 csr), max_iter=5"
    assert f"| 2 s (float32 csr) | 10 s (float32 csr) | {cut} | 5.0x | 0.025x |" in text
    assert results.concerns(found) == ["scikit-learn: not converged within its 1,000 iterations"]
    plot.main([str(tmp_path)])


def test_a_run_that_stops_by_itself_is_not_repeated_with_more_iterations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend = run_of_liblinear({1: 150.0, 2: 120.0, 4: 100.01}, stops_at=4)
    found = liblinear_results(tmp_path, monkeypatch, pretend)
    entry = found["libraries"][SHORTEST]
    assert [t["max_iter"] for t in entry["trials"]] == [1, 2, 5]
    assert entry["trials"][-1]["extras"]["max_iter"] == 1000  # the default run itself


def test_no_run_near_the_optimum_is_a_result_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend = run_of_liblinear(dict.fromkeys(shortest.MAX_ITER, 101.0))
    found = liblinear_results(tmp_path, monkeypatch, pretend)
    assert found["libraries"][SHORTEST]["repeats"] == []
    assert [t["max_iter"] for t in found["libraries"][SHORTEST]["trials"]] == [*shortest.MAX_ITER]
    assert "| 10 s (float32 csr) | no run came that close | 5.0x | - |" in report.table([found])
    assert "scikit-learn, shortest run within 1e-3: there is none" in results.concerns(found)
    assert any("objectives differ" in concern for concern in results.concerns(found))


def test_without_a_certificate_there_is_no_search() -> None:
    assert shortest.search(lambda max_iter: {}, None, [{"checks": {"primal": 1.0}}]) == []
    given_up = {"form": "x", "error": "given up"}
    optimum = [{"checks": {"dual": -1.0}}]
    runs = shortest.search(lambda max_iter: given_up, None, optimum)
    assert [run["error"] for run in runs] == ["given up"] and shortest.near(runs) is None


def test_a_whole_linear_run(tmp_path: Path) -> None:
    name = "linear-squared-hinge-covtype-C1"  # few iterations of LIBLINEAR, so few processes
    arguments = f"--tiny --generated --repeat 1 --forms float64-dense --only {name}"
    assert run.main([*arguments.split(), "--output", str(tmp_path)]) == 0
    (found,) = results.read(tmp_path)
    assert list(found["libraries"]) == ["margrave", "sklearn", SHORTEST]
    tried = found["libraries"]["sklearn"]["trials"]
    assert [(t["form"], "primal" in t["checks"]) for t in tried] == [("float64-dense", True)]
    entry = found["libraries"][SHORTEST]
    assert entry["repeats"][0]["extras"]["max_iter"] == entry["trials"][-1]["max_iter"]
    assert set(found["objective_differences"]["margrave / sklearn"]) == {"primal"}
    assert "max_iter=" in report.table([found])


def measured_as(seconds: float, **more: Any) -> results.Entry:
    """The result of one library."""
    measured = {"form": "float32-dense", "seconds": seconds, "versions": {}}
    return results.entry([], [{**measured, "checks": {"primal": 1.0}, "extras": {}} | more])


def test_the_best_solver_of_a_rival_counts() -> None:
    solvers = {"lbfgs": 8.0, "newton-cholesky": 3.0, "newton-cg": 9.0}
    rivals = {f"sklearn-{solver}": measured_as(s) for solver, s in solvers.items()}
    found = made_up_of("linear-logistic-covtype", {"margrave": measured_as(2.0), **rivals})
    text, title = report.table([found]), found["problem"]["title"]
    best = "3 s (float32 dense), solver=newton-cholesky"
    assert f"| {title} | 2 s (float32 dense) | {best} | - | 1.5x | - |" in text
    lbfgs = 'scikit-learn, solver="lbfgs"'
    assert f"| {title} | {lbfgs} | 8 s (float32 dense) | - | - | 4.0x |" in text
    ((goal, reached),) = results.goals(found)
    assert reached and goal == 'scikit-learn, solver="newton-cholesky": 1.5x, goal 1x'


def test_report_of_solvers_that_fell_short() -> None:
    def solved(seconds: float, passes: float, gap: float) -> results.Entry:
        extras = {"passes": passes, "gap": gap, "converged": gap <= 1e-6}
        return measured_as(seconds, extras=extras)

    libraries = {
        "margrave": solved(2.0, 12.0, 5e-7),
        "margrave-svrg": solved(60.0, 431.5, 2e-4),
        "margrave-dsvrg": solved(19.0, 90.0, 9e-7),
    }
    found = made_up_of("linear-odm-susy30k", libraries)
    text, title = report.table([found]), found["problem"]["title"]
    svrg, dsvrg = (LIBRARIES[f"margrave-{solver}"].title for solver in ("svrg", "dsvrg"))
    assert f"| {title} | margrave | 2 s (float32 dense) | 12.0 | 5.0e-07 |  |" in text
    assert (
        f"| {title} | {svrg} | 60 s (float32 dense) | 431.5 | 2.0e-04 | more than 30.0x |" in text
    )
    assert f"| {title} | {dsvrg} | 19 s (float32 dense) | 90.0 | 9.0e-07 | 9.5x |" in text
    assert [reached for _, reached in results.goals(found)] == [True, False]
    assert results.concerns(found) == [f"{svrg}: not converged, gap 2.0e-04"]
    libraries["margrave"] = solved(2.0, 12.0, 1e-5)  # whoever is not there is not faster
    assert not any(reached for _, reached in results.goals(found))


def test_report_of_mapped_rows() -> None:
    extras = {"passes": 8.0, "gap": 4e-4, "converged": True}
    entry = measured_as(7.0, extras=extras, memory_beyond_data=1 << 29)
    entry["form"] = MAPPED
    found = made_up_of("linear-svr-flights-3m", {"margrave": entry})
    row = "| 7 s (float32 mapped) | 8.0 | 4.0e-04 | 0.50 GiB |"
    assert f"| {found['problem']['title']} {row}" in report.table([found])
    assert [reached for _, reached in results.goals(found)] == [True]


def test_a_goal_of_several_problems_is_reached_by_one() -> None:
    def faster(name: str, ratio: float) -> dict[str, Any]:
        rivals = {"margrave": measured_as(1.0), "sklearn": measured_as(ratio)}
        return made_up_of(name, rivals)

    slow, fast = faster("linear-hinge-a9a", 1.5), faster("linear-hinge-news20", 2.5)
    assert [reached for _, reached in results.goals_of_several([slow])] == [False]
    assert [reached for _, reached in results.goals_of_several([slow, fast])] == [True]
    assert results.goals_of_several([made_up()]) == []
    assert "reached  one of linear-hinge-a9a, " in report.goals([slow, fast])


def test_plot_is_drawn(tmp_path: Path) -> None:
    results.write(made_up(), tmp_path)
    plot.main([str(tmp_path)])
    assert (tmp_path / "ratios.png").stat().st_size > 5000


def test_tuning_is_measured_and_reported(tmp_path: Path) -> None:
    status = tuning.main(
        f"--generated --only ijcnn1 --ways tuner margrave-1 --output {tmp_path}".split()
    )
    assert status == 0
    ways = json.loads((tmp_path / "tuning-ijcnn1.json").read_text())["ways"]
    assert set(ways) == {"tuner", "margrave-1"}
    assert abs(ways["tuner"]["best_score"] - ways["margrave-1"]["best_score"]) < 0.02
    table = tuning.report(tmp_path)
    assert "| Tuner |" in table
    assert "1.0x" in table


def test_reading_is_measured_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_REPEATS", {"margrave": 1, "scikit-learn": 1})
    assert reading.main(f"--megabytes 1 --output {tmp_path / 'reading.json'}".split()) == 0
    found = json.loads((tmp_path / "reading.json").read_text())
    assert found["bytes"] >= 1e6 and found["entries"] == 100 * found["rows"]
    assert "| scikit-learn |" in reading.report(tmp_path / "reading.json")


@pytest.mark.parametrize("name", ["nu-kin40k", "shards-ijcnn1", "joint-covtype"])
def test_ways_in_turn(name):
    found = moving.measure(moving.CASES[name], generated=True)
    objectives = [way["objective"] for way in found["ways"].values()]
    assert len(objectives) == len(moving.CASES[name].ways)
    assert objectives[1:] == pytest.approx(objectives[:1] * (len(objectives) - 1), rel=2e-3)
    machine = {"cpu": "one", "cores": 2, "load_at_start": 0.0}
    table = moving.report({"cases": {name: found}, "machine": machine, "started": "2026-01-01T"})
    assert table.count(found["title"]) == 1 and table.count("1.00x") >= 1
