"""Ctrl-C in every estimator: the model so far is kept with its gap, and the signal passed on."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import margrave
from margrave import SVC, SVR, KernelLogisticRegression, ODMClassifier, RowBlocks
from margrave.solvers import DivideAndConquer, ExpectationMaximization
from tests.pressing import press

# each would run for minutes at this tolerance
ESTIMATORS = [
    SVC(C=1e4, gamma=5.0, tol=1e-9),
    SVC(C=1e4, gamma=5.0, tol=1e-9, multi_class="crammer_singer", intercept=None),
    SVR(C=1e4, gamma=5.0, epsilon=1e-3, tol=1e-9),
    KernelLogisticRegression(C=1e4, gamma=5.0, tol=1e-9),
    KernelLogisticRegression(C=1e4, gamma=5.0, tol=1e-9, multi_class="softmax"),
    ODMClassifier(lam=1e9, gamma=0.05, tol=1e-12),
    ODMClassifier(lam=1e9, gamma=0.05, tol=1e-12, solver="newton"),
    ODMClassifier(lam=1e9, gamma=0.05, tol=1e-12, solver="cd"),
    SVC(C=1e4, gamma=5.0, tol=1e-9, solver="dc"),
    SVC(C=1e6, gamma=0.5, solver=DivideAndConquer(early=1, level_tol=1e-12)),
    SVC(C=1e4, gamma=5.0, tol=1e-9, solver=DivideAndConquer(level_tol=1e-9), engine="serial"),
    SVC(C=1e4, gamma=5.0, tol=1e-9, solver="cascade"),
    ODMClassifier(lam=1e9, gamma=0.05, tol=1e-12, solver="sodm"),
    SVC(C=1e4, gamma=5.0, tol=1e-9, solver="dip"),
    SVC(C=1e4, gamma=5.0, tol=1e-9, solver=ExpectationMaximization(features=800)),
]
IN_BLOCKS = [SVC(C=1e6, gamma=0.5, solver=DivideAndConquer(early=1, level_tol=1e-12))]
LINEAR = [
    SVC(C=1e2, kernel="linear", tol=1e-12, solver="newton"),
    SVR(C=1e2, kernel="linear", tol=1e-12),
    SVC(C=1e2, kernel="linear", tol=1e-12, solver="em"),
]
SCALED = [
    ODMClassifier(lam=1e4, kernel="linear", tol=1e-12, solver="svrg"),
    ODMClassifier(lam=1e4, kernel="linear", tol=1e-12, solver="dsvrg"),
]
ROWS = {
    "array": [*ESTIMATORS, SVC(C=1e6, kernel="linear", tol=1e-12, solver="cd")],
    "slow blocks": LINEAR,
    "scaled": SCALED,
    "blocks": IN_BLOCKS,
}


@pytest.fixture(scope="module")
def rows():
    """Rows in each form, and their labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12_000, 12))
    y = np.digitize(X[:, 0] + rng.standard_normal(12_000), [0.0])
    parts = [X[a : a + 3000] for a in range(0, 12_000, 3000)]
    slow = [lambda part=part: (time.sleep(0.05), part)[1] for part in parts]
    # columns of very different scales
    scaled = np.tile(X * np.logspace(0, -3, 12), (16, 1))
    return {
        "array": (X, y),
        "slow blocks": (RowBlocks(slow), y),
        "scaled": (scaled, np.tile(y, 16)),
        "blocks": (RowBlocks(parts), y),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("form", "estimator"),
    [(form, estimator) for form, estimators in ROWS.items() for estimator in estimators],
    ids=lambda value: " ".join(str(value).split()),
)
def test_the_model_so_far_is_kept(form, estimator, rows, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    model = clone(estimator)
    late = press(model, rows[form], 1.0)
    assert late < 2.0  # a second on an idle machine
    assert model.gap_ >= 0.0 and not model.converged_
    assert len(model.predict(rows["array"][0][:5])) == 5


@pytest.mark.parametrize("name", ["NuSVR", "NuSVC", "HardMarginSVC"])
def test_ctrl_c_in_the_certificate_of_a_hull(name, monkeypatch):
    """Certificates of hulls are computed after the solver has ended: its model is kept."""
    from margrave.estimators import _hull, nu_svr

    def struck(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(_hull, "certify_plane", struck)
    monkeypatch.setattr(nu_svr, "certify_tube", struck)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.where(X[:, 0] > 0, 1, -1)
    X[:, 0] += y
    model = getattr(margrave, name)()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.certificate_ == "estimate"
    assert not model.converged_
    assert np.isfinite(model.gap_)
    assert model.predict(X).shape == (60,)


@pytest.mark.parametrize("solver", ["dc", "pbm"])
def test_ctrl_c_among_the_active_rows(solver, monkeypatch):
    """The active rows are given up when the fit ends, but not what has ended it."""
    from margrave.solvers.divide import divide_and_conquer
    from margrave.solvers.kernel import working_set
    from margrave.solvers.kernel.moving_blocks import MovingBlocks

    monkeypatch.setattr(working_set, "_MANY_ROWS", 60)
    for name in ("_MANY_ROWS", "_VERY_MANY_ROWS"):
        monkeypatch.setattr(divide_and_conquer, name, 60)

    def struck(self, *limits):
        self.interrupted = True
        return "stopped", []

    monkeypatch.setattr(MovingBlocks, "interrupted", False)
    monkeypatch.setattr(MovingBlocks, "advance", struck)
    X = np.random.default_rng(0).standard_normal((200, 2))
    model = SVC(solver=solver)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, X[:, 0] * X[:, 1] > 0)
    assert np.isfinite(model.gap_) and not model.converged_


def test_the_suite_runs_where_ctrl_c_is_ignored(pytestconfig):
    """As under nohup, or in the background of a script; and every test has a limit."""
    assert pytestconfig.pluginmanager.hasplugin("timeout")
    assert 0.0 < float(pytestconfig.getini("timeout")) <= 300.0
    words = ["-m", "pytest", "-p", "no:cacheprovider", "tests/test_nu.py", "-k"]
    done = subprocess.run(
        [sys.executable, *words, "test_first_interrupt_keeps_the_model and pairs"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
