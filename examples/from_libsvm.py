"""
Coming from LIBSVM
==================

margrave reads LIBSVM's data and model files and accepts its command lines. This example trains
models with LIBSVM (the copy inside scikit-learn) and with margrave on the same text file and
compares them; then it saves a model in LIBSVM's format and loads it again.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import sklearn.svm
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import minmax_scale

from margrave import SVC, load_libsvm_model, save_libsvm_model
from margrave.io import load_libsvm, save_libsvm

folder = Path(tempfile.mkdtemp())
X, y = load_breast_cancer(return_X_y=True)
save_libsvm(folder / "cancer", minmax_scale(X), np.where(y == 1, 1, -1))
print((folder / "cancer").read_text()[:78], "...")

# %%
# The parameters have LIBSVM's meaning, so that both find the same optimum. LIBSVM stops when the
# KKT violation is small, margrave when the duality gap is small, hence the small difference.

rows, labels = load_libsvm(folder / "cancer")
theirs = sklearn.svm.SVC(C=10.0, gamma=0.5).fit(rows, labels)
ours = SVC(C=10.0, gamma=0.5, tol=1e-6).fit(rows, labels)
apart = np.abs(theirs.decision_function(rows) - ours.decision_function(rows)).max()
print(f"support vectors {theirs.n_support_.sum()} and {ours.n_support_.sum()}")
print(f"scores differ by at most {apart:.1e}; gap {ours.gap_:.1e}")

_, ax = plt.subplots(figsize=(5.0, 4.4), layout="constrained")
ax.axline((0.0, 0.0), slope=1.0, color="#a0aec0", lw=1.0)
ax.scatter(theirs.decision_function(rows), ours.decision_function(rows), c=labels, s=10)
ax.set(xlabel="score by LIBSVM", ylabel="score by margrave")
plt.show()

# %%
# The model file is in LIBSVM's format and can be used with svm-predict.

save_libsvm_model(ours, folder / "cancer.model")
print("\n".join((folder / "cancer.model").read_text().splitlines()[:9]))
back = load_libsvm_model(folder / "cancer.model")
print("the same labels:", bool((back.predict(rows) == ours.predict(rows)).all()))

# %%
# ``margrave-train`` and ``margrave-predict`` replace svm-train and svm-predict.


def run(*command):
    """Run an installed program in the folder, and show what it prints."""
    program = Path(sys.executable).with_name(command[0])
    print("$", *command)
    done = subprocess.run([program, *command[1:]], cwd=folder, capture_output=True, text=True)
    print(done.stdout.strip() or done.stderr.strip())


run("margrave-train", "-c", "10", "-g", "0.5", "-q", "cancer", "cancer.model")
run("margrave-predict", "cancer", "cancer.model", "out")
run("margrave", "evaluate", "cancer.model", "cancer")
