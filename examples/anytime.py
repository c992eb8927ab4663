"""
A model long before the fit ends
================================

From 40,000 rows on, a kernel SVM with a narrow kernel is first solved on small clusters of rows,
each by itself; their solutions are the start for all rows. Once the clusters are solved there is a
model that can predict, ``early_``, so that a fit is not lost when it reaches a time limit or is
stopped with Ctrl-C.

The synthetic data resemble covtype: a few measurements of a location, indicators of its soil
type, and a class boundary with many islands.
"""

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from margrave import SVC, plots

ROWS, TEST = 60_000, 10_000


def terrain(n, seed):
    """Locations in a landscape, and which of two trees grows there."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(0.0, 1.0, (n, 2))
    height = np.sin(9.0 * place[:, 0]) * np.cos(7.0 * place[:, 1])
    height += 0.3 * np.sin(31.0 * place.sum(axis=1))
    wet = np.cos(13.0 * place[:, 0] - 5.0 * place[:, 1])
    soil = (place @ [3.0, 5.0]).astype(int) % 4
    measures = [place, 0.5 * height, 0.3 * wet, 0.05 * rng.standard_normal((n, 4))]
    X = np.column_stack([*measures, np.eye(4)[soil]]).astype(np.float32)
    grows = height + 0.6 * wet * (soil % 2) + 0.15 * rng.standard_normal(n) > 0.1
    return X, np.where(grows, "pine", "spruce")


X, y = terrain(ROWS + TEST, seed=0)
X, X_test, y, y_test = X[:ROWS], X[ROWS:], y[:ROWS], y[ROWS:]

# %%
# A callback is called after every round of a fit. This one scores every new early model on
# held-out rows; the time this takes is not counted.

model = SVC(C=32.0, gamma=32.0)
seen = []


class Watch:
    """Record the accuracy of every early model, and when it was available."""

    def __init__(self):
        self.begin, self.last = time.perf_counter(), None

    def __call__(self, record):
        early = getattr(model, "early_", None)
        if early is not None and early is not self.last:
            self.last, now = early, time.perf_counter()
            where = record.get("where", "all rows")
            seen.append((now - self.begin, early.score(X_test, y_test), where))
            self.begin += time.perf_counter() - now


watch = Watch()
model.set_params(callbacks=watch).fit(X, y)
seen.append((time.perf_counter() - watch.begin, model.score(X_test, y_test), "all rows"))
for seconds, accuracy, where in seen:
    print(f"{seconds:6.2f} s   {100 * accuracy:.2f} %   {where}")

# %%
# The early models predict about as well as the final one. The rest of the time is spent on the
# certificate: no other model has an objective that is lower by more than the gap.

fig, (left, right) = plt.subplots(1, 2, figsize=(11.0, 4.2), layout="constrained")
times, shares, _ = zip(*seen, strict=True)
left.step(times, [100 * share for share in shares], where="post", lw=2.0, marker="o")
left.set(xlabel="seconds", ylabel="accuracy on new rows (%)", xlim=(0.0, None), ylim=(80.0, 100.0))
left.set_title("Accuracy of the best model so far", loc="left", fontweight="bold")
plots.convergence(model, ax=right)
plt.show()

# %%
# A fit with a time limit returns the early model if there is no better one. ``certificate_`` is
# then "blocks", and ``gap_`` is the gap of the clusters' independent problems.

with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    hasty = SVC(C=32.0, gamma=32.0, time_limit=0.4 * times[-1]).fit(X, y)
print(f"{hasty.certificate_}: gap {hasty.gap_:.1e}, {100 * hasty.score(X_test, y_test):.2f} %")
