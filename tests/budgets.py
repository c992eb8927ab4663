"""Fits in another process, with time and memory watched from outside.

    python -m tests.budgets [pattern]       `make budgets`: a table of the cases with such a name

A process has one set of rows and fits one case after the other. Before each it says so, and waits;
this process then takes the memory that it holds for the baseline, lets it go on, and watches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from itertools import product
from pathlib import Path

ROWS, FEATURES = 300_000, 10
SECONDS, MEMORY = 0.5, 200 << 20
LIMITS = [(SECONDS, MEMORY), (3.0, 100 << 20), (3.0, 1 << 30)]  # of the longer run

# names of cases -> estimators; those of SOLVERS are all there
KERNEL = {
    "auto": "SVC()",
    "exact": "SVC(solver='exact')",
    "exact, double": "SVC(solver='exact', tol=1e-6)",
    "exact, logistic": "KernelLogisticRegression(solver='exact')",
    "exact, one-class": "OneClassSVM(nu=0.2, solver='exact')",
    "exact, regression": "SVR(solver='exact')",
    "newton": "KernelLogisticRegression(solver='newton', intercept=None)",
    "cd": "SVC(solver='cd', intercept=None)",
    "dc": "SVC(solver='dc')",
    "dc, one level": "SVC(solver=DivideAndConquer(early=1))",
    "dc, finest level": "SVC(solver=DivideAndConquer(early=4))",
    "cascade": "SVC(solver='cascade')",
    "pbm": "SVC(solver='pbm')",
    "pbm, hulls": "NuSVC(nu=0.6, solver='pbm')",
    "pbm, nu regression": "NuSVR(solver='pbm')",
    "sodm": "ODMClassifier(solver='sodm')",
    "dip": "SVC(solver='dip')",
    "em": "SVC(solver='em')",
    "em, features": "SVC(solver=ExpectationMaximization(features=500))",
    "em, few features": "SVC(solver=ExpectationMaximization(features=20))",
    "gibbs": "BayesianSVC(features=500)",
    "gibbs, few features": "BayesianSVC(features=20)",
    "gibbs, all features": "BayesianSVC()",
    "pairs": "NuSVC(nu=0.6, solver='pairs')",
    "pairs, blocks": "NuSVC(nu=0.6, solver=PairSwaps(partitions=3))",
    "pairs, hard margin": "HardMarginSVC(gamma=1.0, solver='pairs')",
    "pairs, regression": "NuSVR(solver='pairs')",
    "gilbert": "NuSVC(nu=0.6, solver='gilbert')",
    "kernel kmeans": "SVC(kernel='poly', solver=DivideAndConquer(partition='kernel_kmeans'))",
    "tuner": "Tuner(SVC(), {'C': [0.1, 1.0, 10.0]}, cv=3, time_limit=SECONDS)",
}
LINEAR = {
    "auto, linear": "SVC(kernel='linear')",
    "auto, linear logistic": "KernelLogisticRegression(kernel='linear')",
    "exact, linear": "SVC(kernel='linear', solver='exact')",
    "newton, linear": "SVC(kernel='linear', solver='newton')",
    "newton, exactly": "SVC(kernel='linear', solver='newton', tol=1e-9)",
    "cd, linear": "SVC(kernel='linear', solver='cd')",
    "dc, linear": "SVC(kernel='linear', solver='dc')",
    "cascade, linear": "SVC(kernel='linear', solver='cascade')",
    "pbm, linear": "SVC(kernel='linear', solver='pbm')",
    "sodm, linear": "ODMClassifier(kernel='linear', solver='sodm')",
    "dip, linear": "SVC(kernel='linear', solver='dip')",
    "svrg": "KernelLogisticRegression(kernel='linear', intercept=None, solver='svrg')",
    "csvrg": "KernelLogisticRegression(kernel='linear', intercept=None, solver='csvrg')",
    "csvrg, landmarks": "KernelLogisticRegression(kernel='linear', intercept=None,"
    " solver=VarianceReduced('csvrg', landmarks=500))",
    "dsvrg": "KernelLogisticRegression(kernel='linear', intercept=None, solver='dsvrg')",
    "em, linear": "SVC(kernel='linear', solver='em')",
    "em, regression": "SVR(kernel='linear', solver='em')",
    "gibbs, linear": "BayesianSVC(kernel='linear')",
    "gibbs, regression": "BayesianSVR(kernel='linear')",
    "pairs, linear": "NuSVC(nu=0.6, kernel='linear', solver='pairs')",
    "gilbert, linear": "NuSVC(nu=0.6, kernel='linear', solver='gilbert')",
    "saddle": "NuSVC(nu=0.6, kernel='linear', solver='saddle')",
    "saddle, in turns": "NuSVC(nu=0.6, kernel='linear', solver=Saddle(size=1))",
}
CLASSES = {
    "ovo": "SVC()",
    "ovr": "SVC(multi_class='ovr')",
    "ovo, linear": "SVC(kernel='linear')",
    "joint": "SVC(multi_class='crammer_singer', intercept=None)",
    "joint, softmax": "KernelLogisticRegression(multi_class='softmax')",
    "joint, linear": "SVC(multi_class='crammer_singer', kernel='linear', intercept=None)",
    "joint, em": "SVC(multi_class='crammer_singer', kernel='linear', solver='em')",
    "joint, pbm": "SVC(multi_class='crammer_singer', solver='pbm')",
    "joint, sodm": "SVC(multi_class='crammer_singer', intercept=None, solver='sodm')",
    "joint, gibbs": "BayesianSVC(multi_class='crammer_singer', kernel='linear')",
    "pairs of classes": "NuSVC(nu=0.3)",
}
GROUPS = {
    "kernel": (KERNEL, "y = X[:, 0] * X[:, 1] > 0.3 * rng.standard_normal(n)"),
    "linear": (LINEAR, "y = X[:, 0] > 0.3 * rng.standard_normal(n)"),
    "classes": (CLASSES, "y = np.digitize(X[:, 0] + 0.3 * rng.standard_normal(n), [-0.5, 0.5])"),
}

CHILD = """
    import ctypes, gc, json, sys, time, warnings
    import numpy as np
    from sklearn.base import is_regressor
    from sklearn.exceptions import ConvergenceWarning
    from margrave import *
    from margrave.solvers import *

    SECONDS, cases = {seconds}, {cases}
    n, rng = {rows}, np.random.default_rng(0)
    X = rng.standard_normal((n, {features})).astype(np.float32)
    {labels}
    trim = ctypes.CDLL(None).malloc_trim

    def fit(estimator, X, y):
        model = eval(estimator)
        own = getattr(model, "estimator", model)
        own.set_params(memory_limit={memory}, n_jobs=2)
        if "time_limit" not in estimator:
            model.set_params(time_limit=SECONDS)
        said = ""
        begin = time.perf_counter(), time.process_time()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model.fit(X, y.astype(float) if is_regressor(model) else y)
            except ValueError as error:
                said = str(error)
        # on a busy machine others' time passes too: what this process has worked is its own
        worked = time.process_time() - begin[1]
        seconds = min(time.perf_counter() - begin[0], worked)
        told = [str(w.message) for w in caught if issubclass(w.category, ConvergenceWarning)]
        converged = getattr(model, "converged_", None)
        return dict(seconds=seconds, error=said, warning=" ".join(told), converged=converged)

    for estimator in cases:
        fit(estimator, X[:3000], y[:3000])  # what it imports is there
        gc.collect()
        trim(0)
        print("begin", flush=True)
        sys.stdin.readline()
        print(json.dumps(fit(estimator, X, y)), flush=True)
"""


def run(group, pattern="", rows=ROWS, seconds=SECONDS, memory=MEMORY):
    """Fit the cases of a group; yields their names and what was seen."""
    listed, labels = GROUPS[group]
    cases = {name: code for name, code in listed.items() if pattern in name}
    script = textwrap.dedent(CHILD).format(
        rows=rows,
        features=FEATURES,
        seconds=seconds,
        memory=memory,
        labels=labels,
        cases=list(cases.values()),
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as child:
        for name in cases:
            assert child.stdout.readline() == "begin\n", "the process died"
            before = peak = held(child.pid)
            print(file=child.stdin, flush=True)
            os.set_blocking(child.stdout.fileno(), False)
            line = ""
            while not line.endswith("\n") and child.poll() is None:
                peak = max(peak, held(child.pid))
                time.sleep(0.002)
                line += child.stdout.readline()
            os.set_blocking(child.stdout.fileno(), True)
            yield name, {**json.loads(line), "memory": peak - before}


def held(pid):
    """Bytes of memory that a process holds."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, IndexError):
        return 0


def exceeded(seen, seconds=SECONDS, memory=MEMORY):
    """Which budgets were not kept: within 1 s and a tenth of the time, a tenth of the memory."""
    late, large = seen["seconds"] > 1.1 * seconds + 1.0, seen["memory"] > 1.1 * memory
    return ["time"] * late + ["memory"] * large


def main(pattern=""):
    wrong = 0
    for group, (seconds, memory) in product(GROUPS, LIMITS):
        for name, seen in run(group, pattern, seconds=seconds, memory=memory):
            missed = exceeded(seen, seconds, memory)
            wrong += len(missed)
            print(
                f"{name:25} {seen['seconds']:7.2f} of {seconds:.1f} s"
                f" {seen['memory'] / 2**20:6.0f} of {memory >> 20} MiB"
                f" {' and '.join(missed):16} {(seen['error'] or seen['warning'])[:150]}",
                flush=True,
            )
    return wrong


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
