"""Golden objectives (1e-8) and decisions (1e-5) at a relative gap of 1e-10."""

import numpy as np
import pytest

from margrave import SVC
from tests import build
from tests.golden import RECORDS

CLASSIFIER = [r for r in RECORDS if r.loss in ("hinge", "squared_hinge")]


def test_all_records_are_there():
    assert len(RECORDS) == 90 + 18 + 24 and len(CLASSIFIER) == 54 + 18


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_solver(record):
    X, y = record.arrays()
    kernel, loss = (record.kernel, record.kernel_parameters), (record.loss, record.loss_parameters)
    found = build.solve(X, y, record.C, loss, kernel, record.intercept, tol=1e-10)
    assert found.converged and found.gap <= 1e-10
    assert found.objective == pytest.approx(record.objective, rel=1e-8)
    assert found.dual == pytest.approx(-record.objective, rel=1e-8)
    rows = list(record.rows)
    decisions = found.scores[rows] + found.intercept
    np.testing.assert_allclose(decisions, record.decisions, atol=1e-5)


@pytest.mark.parametrize("record", CLASSIFIER, ids=lambda r: r.name)
def test_svc(record):
    X, y = record.arrays()
    model = SVC(
        C=record.C,
        kernel=record.kernel,
        loss=record.loss,
        intercept=record.intercept,
        tol=1e-10,
        n_jobs=1,
        **record.kernel_parameters,
    ).fit(X, y)
    assert model.converged_ and 0 <= model.gap_ <= 1e-10
    assert model.objective_ == pytest.approx(record.objective, rel=1e-8)
    decisions = model.decision_function(X[list(record.rows)])
    np.testing.assert_allclose(decisions, record.decisions, atol=1e-5)
    assert model.certify(X, y) == pytest.approx(model.gap_, abs=1e-11)
