"""Golden objectives (1e-8) and decisions (1e-5) at a relative gap of 1e-10."""

import numpy as np
import pytest
from sklearn.linear_model import QuantileRegressor

from margrave import SVC, SVR, _core
from margrave.losses import LOSSES
from tests import build, golden
from tests.data import load
from tests.golden import RECORDS

ESTIMATORS = {
    "hinge": SVC,
    "squared_hinge": SVC,
    **{name: SVR for name in LOSSES if not _core.Loss(name).labels},
}
ESTIMATED = [r for r in RECORDS if r.loss in ESTIMATORS]


def test_all_records_are_there():
    """Those that came with the specifications, and some of every loss and kernel in cases.py."""
    assert len(RECORDS) >= 90 + 18 + 24 + 66
    assert not list(golden.missing()), "python -m tests.golden adds them"


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_solver(record):
    found = build.solve(*record.problem(), tol=1e-10)
    assert found.converged and found.gap <= 1e-10
    assert found.objective == pytest.approx(record.objective, rel=1e-8)
    assert found.dual == pytest.approx(-record.objective, rel=1e-8)
    rows = list(record.rows)
    decisions = found.scores[rows] + found.intercept
    np.testing.assert_allclose(decisions, record.decisions, atol=1e-5)


@pytest.mark.parametrize("record", ESTIMATED, ids=lambda r: r.name)
def test_estimator(record):
    X, y = record.arrays()
    model = ESTIMATORS[record.loss](
        C=record.C,
        kernel=record.kernel,
        loss=record.loss,
        intercept=record.intercept,
        tol=1e-10,
        n_jobs=1,
        **record.kernel_parameters,
        **record.loss_parameters,
    ).fit(X, y)
    assert model.converged_ and 0 <= model.gap_ <= 1e-10
    assert model.objective_ == pytest.approx(record.objective, rel=1e-8)
    rows = X[list(record.rows)]
    decisions = model.predict(rows) if isinstance(model, SVR) else model.decision_function(rows)
    np.testing.assert_allclose(decisions, record.decisions, atol=1e-5)
    assert model.certify(X, y) == pytest.approx(model.gap_, abs=1e-11)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_linear_quantiles_are_those_of_a_linear_program(quantile):
    """With a large C the weights are exactly those without a penalty, which a simplex finds."""
    X, y = load("diabetes")
    expected = QuantileRegressor(quantile=quantile, alpha=0.0, solver="highs").fit(X, y)
    model = SVR(C=1e3, kernel="linear", loss="pinball", quantile=quantile, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coef_[0], expected.coef_, atol=1e-8)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=1e-8)
