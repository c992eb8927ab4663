"""Ctrl-C in every estimator: the model so far is kept with its gap, and the signal passed on."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

# each would run for minutes at this tolerance
ESTIMATORS = [
    "SVC(C=1e4, gamma=5.0, tol=1e-9)",
    "SVC(C=1e4, gamma=5.0, tol=1e-9, multi_class='crammer_singer', intercept=None)",
    "SVR(C=1e4, gamma=5.0, epsilon=1e-3, tol=1e-9)",
    "KernelLogisticRegression(C=1e4, gamma=5.0, tol=1e-9)",
    "KernelLogisticRegression(C=1e4, gamma=5.0, tol=1e-9, multi_class='softmax')",
    "ODMClassifier(lam=1e9, gamma=0.05, tol=1e-12)",
    "ODMClassifier(lam=1e9, gamma=0.05, tol=1e-12, solver='newton')",
    "ODMClassifier(lam=1e9, gamma=0.05, tol=1e-12, solver='cd')",
]
SCRIPT = textwrap.dedent("""
    import sys, threading, time, os, signal
    import numpy as np
    from margrave import *
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12_000, 12))
    y = np.digitize(X[:, 0] + rng.standard_normal(12_000), [0.0])
    model = {estimator}
    pressed = []
    def press():
        time.sleep(1.0)
        pressed.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=press, daemon=True).start()
    try:
        model.fit(X, y)
    except KeyboardInterrupt:
        late = time.perf_counter() - pressed[0]
        model.predict(X[:5])
        print("kept", model.gap_, model.converged_, late)
""")


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_model_so_far_is_kept(estimator):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT.replace("{estimator}", estimator)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.stdout.startswith("kept "), done.stderr[-2000:]
    _, gap, converged, late = done.stdout.split()
    assert float(gap) >= 0.0 and converged == "False"
    assert float(late) < 2.0  # a second on an idle machine
