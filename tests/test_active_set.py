"""The ways for many rows (active rows, clusters, samples), forced on small problems."""

import numpy as np
import pytest
from scipy import sparse

from margrave.losses import Loss
from margrave.progress import Progress
from margrave.solvers import Settings, WorkingSet
from margrave.solvers.divide import levels
from margrave.solvers.kernel import active_set, descent, sample_start, working_set
from tests import build, cases, golden

TOL = 1e-8


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch):
    monkeypatch.setattr(working_set, "_MANY_ROWS", 60)
    monkeypatch.setattr(active_set, "SPARE_ROWS", 5)
    monkeypatch.setattr(levels, "_FINEST_SIZE", 20)
    monkeypatch.setattr(levels, "_COARSEST_SIZE", 60)
    monkeypatch.setattr(sample_start, "_SMALLEST_SAMPLE", 20)


def used_active_rows(progress):
    return any("active" in record for record in progress.history)


@pytest.mark.parametrize("record", golden.RECORDS, ids=lambda r: r.name)
def test_golden(record):
    solution, progress = build.run(build.problem(*record.problem()), tol=1e-10)
    assert solution.converged and solution.gap <= 1e-10
    assert solution.objective == pytest.approx(record.objective, rel=1e-8)
    is_dense = Loss(record.loss, **record.loss_parameters).is_dense
    assert used_active_rows(progress) != is_dense
    duals = [r["dual"] for r in progress.history]
    assert np.all(np.diff(duals) <= 1e-9 * np.abs(duals[-1]))


def test_a_sample_gives_a_good_start():
    """Its dual is below that of a cold start, for smooth losses and for one class."""
    X, y = golden.load("moons")
    smooth = build.problem(X, y, 1.0, ("logistic", {}), ("rbf", {"gamma": 1.0}), "free")
    one_class = build.problem(
        X, np.ones(400), 1.0, ("one_class", {}), ("rbf", {"gamma": 1.0}), "free", total=40.0
    )
    for problem in (smooth, one_class):
        solution, progress = build.run(problem, tol=1e-9)
        assert solution.converged
        assert abs(solution.beta.sum() - problem.total) < 1e-9 * np.abs(solution.beta).sum()
        first = progress.history[0]["dual"]
        cold = build.run(problem, tol=0.9, start=np.zeros(400), max_iter=0)[1].history[-1]["dual"]
        assert first - solution.dual < 0.8 * (cold - solution.dual)


@pytest.mark.parametrize("loss", cases.ZERO_SUM, ids=cases.name_of)
@pytest.mark.parametrize("intercept", cases.INTERCEPTS)
def test_sparse_rows_and_a_warm_start(loss, intercept):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((150, 6)) * (rng.random((150, 6)) < 0.5)
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(150) > 0, 1.0, -1.0)
    kernel = ("rbf", {"gamma": 0.5})
    dense = build.problem(X, y, 1.0, loss, kernel, intercept)
    compressed = build.problem(sparse.csr_array(X), y, 1.0, loss, kernel, intercept)
    first, _ = build.run(dense, tol=TOL)
    second, _ = build.run(compressed, tol=TOL)
    assert second.objective == pytest.approx(first.objective, rel=2 * TOL)
    again, _ = build.run(dense, tol=TOL * (1 + 1e-6), start=first.beta)
    assert again.n_iter == 0 and again.converged


def test_no_time_for_the_scores_of_a_start():
    """Without scores there are no violations by which active rows could be chosen."""
    X, y = golden.load("moons")
    problem = build.problem(X, y, 1.0, ("hinge", {}), ("rbf", {"gamma": 1.0}), "free")
    start, _ = build.run(problem, tol=1e-2)
    with Progress(1e-6, time_limit=0.0) as progress:
        settings = Settings(1e-6, 1 << 26, 1, 0, progress, None)
        (found,) = WorkingSet().solve_after([problem], settings, [start.beta], moving=True)
    assert not found.converged and found.certificate == "estimate"


def test_results_do_not_depend_on_the_clock(monkeypatch):
    """Rounds are run in slices of time, between which values of the active rows may be copied."""
    monkeypatch.setattr(active_set, "_MUCH_WORK", 1e5)
    monkeypatch.setattr(active_set, "_DEAR", 0)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 2))
    y = np.where(np.sin(3 * X[:, 0]) + 0.3 * rng.standard_normal(1500) > X[:, 1], 1.0, -1.0)
    problem = build.problem(X, y, 100.0, ("hinge", {}), ("rbf", {"gamma": 2.0}), "free")
    copies, adopt = [], active_set.ActiveSet._adopt
    monkeypatch.setattr(
        active_set.ActiveSet, "_adopt", lambda core, left: copies.append(1) or adopt(core, left)
    )
    found = []
    for seconds in (1e-4, 1e-2, 100.0):
        monkeypatch.setattr(descent, "_SLICE", seconds)
        found.append(build.run(problem, tol=1e-6, size=16)[0])
    assert len(copies) > 10
    assert len({one.beta.tobytes() for one in found}) == 1
