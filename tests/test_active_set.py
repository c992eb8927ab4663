"""The way through active rows and clusters, forced on small problems: the same optimum."""

import numpy as np
import pytest
from scipy import sparse

from margrave.solvers import active_set, clusters, working_set
from tests import build, cases, golden

TOL = 1e-8


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch):
    monkeypatch.setattr(working_set, "_MANY_ROWS", 60)
    monkeypatch.setattr(active_set, "_SPARE_ROWS", 5)
    monkeypatch.setattr(clusters, "_PART_SIZES", (20, 60))


def used_active_rows(progress):
    return any("active" in record for record in progress.history)


RECORDS = [r for r in golden.RECORDS if r.loss != "logistic"]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_golden(record):
    X, y = record.arrays()
    kernel, loss = (record.kernel, record.kernel_parameters), (record.loss, record.loss_parameters)
    problem = build.problem(X, y, record.C, loss, kernel, record.intercept)
    solution, progress = build.run(problem, tol=1e-10)
    assert solution.converged and solution.gap <= 1e-10
    assert solution.objective == pytest.approx(record.objective, rel=1e-8)
    assert used_active_rows(progress)
    duals = [r["dual"] for r in progress.history]
    assert np.all(np.diff(duals) <= 1e-9 * np.abs(duals[-1]))


@pytest.mark.parametrize("loss", [case for case in cases.MACHINES if case[0] != "logistic"])
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


def test_labels_of_kmeans_are_those_of_the_nearest_centre():
    rng = np.random.default_rng(0)
    blobs = np.repeat(np.arange(4), 100)
    X = 100.0 * np.c_[blobs, blobs % 2] + rng.standard_normal((400, 2))
    for rows in (X, sparse.csr_array(X)):
        label = clusters.kmeans(rows, 40, np.random.default_rng(1))
        for one in np.unique(label):
            assert len(np.unique(blobs[label == one])) == 1
