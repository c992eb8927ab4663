"""
Searching for C and gamma
=========================

``Tuner`` has the interface of ``GridSearchCV``. Its fits share kernel values between folds and
settings and start from each other's solutions, and settings that score badly on the first folds
are pruned.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV

from margrave import SVC, Tuner

X, y = make_moons(3000, noise=0.3, random_state=0)
X = np.hstack([X, np.random.default_rng(0).normal(size=(3000, 4))])  # and four noise features
grid = {"C": [2.0**k for k in range(-3, 8, 2)], "gamma": [2.0**k for k in range(-6, 3)]}

searches = {
    "Tuner": Tuner(SVC(), grid, cv=5),
    "GridSearchCV": GridSearchCV(SVC(), grid, cv=5),
}
for name, search in searches.items():
    begin = time.perf_counter()
    search.fit(X, y)
    seconds = time.perf_counter() - begin
    print(f"{name:13s} {seconds:5.2f} s  {search.best_score_:.4f}  {search.best_params_}")

# %%
# The scores of all settings. Pruned settings show the mean over the folds they ran, and no dot.

tuner = searches["Tuner"]
results = tuner.cv_results_
shape = len(grid["C"]), len(grid["gamma"])
scores = results["mean_test_score"].reshape(shape)
ran = ~results["pruned"].astype(bool).reshape(shape)

fig, ax = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
shown = ax.imshow(scores, origin="lower", cmap="viridis", aspect="auto")
ax.plot(*np.argwhere(ran)[:, ::-1].T, ".", color="white", label="ran on all folds")
best = np.unravel_index(tuner.best_index_, shape)
ax.plot(best[1], best[0], "o", ms=16, mfc="none", mec="red", mew=2.0, label="best")
ax.set_xticks(range(shape[1]), [f"{value:g}" for value in grid["gamma"]])
ax.set_yticks(range(shape[0]), [f"{value:g}" for value in grid["C"]])
ax.set(xlabel="gamma", ylabel="C")
ax.legend(loc="upper left")
fig.colorbar(shown, ax=ax, label="mean accuracy on the held-out folds")
plt.show()

# %%
# The best setting has been fitted to all rows, with a certificate.

print(tuner.best_estimator_, f"gap {tuner.best_estimator_.gap_:.1e}")
