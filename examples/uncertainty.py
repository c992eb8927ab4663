"""
Uncertainty of predictions
==========================

A support vector machine is the mode of a posterior distribution. ``BayesianSVC`` samples from the
whole distribution (Gibbs sampling) and so estimates the uncertainty of every score: small where
there were many training rows, large where there were none.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from margrave import SVC, BayesianSVC

X, y = make_moons(300, noise=0.2, random_state=0)
model = BayesianSVC(lam=0.5, gamma=1.0, features=60, n_samples=1000, random_state=0).fit(X, y)

# %%
# Samples can only be used if the chains have mixed. Four chains start at different points; the
# split R-hat compares them (below 1.05 is fine), and the effective sample size is the number of
# independent samples that would be as informative.

found = model.diagnostics_
print(f"R-hat {found['max_r_hat']:.3f}, ESS {found['min_ess']:.0f}", model.converged_)

# %%
# Mean and standard deviation of the score over the plane. Far from all training rows the mean
# falls to zero and the standard deviation rises to that of the prior.

edge = np.linspace(-3.0, 4.0, 140)
grid = np.stack([part.ravel() for part in np.meshgrid(edge, edge)], axis=1)
mean, deviation = model.decision_function(grid, return_std=True)

fig, axes = plt.subplots(1, 2, figsize=(11.0, 4.6), layout="constrained")
for ax, values, title, colours in (
    (axes[0], mean, "mean of the score", "RdBu_r"),
    (axes[1], deviation, "its standard deviation", "viridis"),
):
    shown = ax.pcolormesh(edge, edge, values.reshape(140, 140), cmap=colours, shading="nearest")
    ax.contour(edge, edge, mean.reshape(140, 140), levels=[0.0], colors="black")
    ax.scatter(*X.T, c=y, cmap="RdBu_r", s=8, edgecolor="white", linewidth=0.3)
    ax.set_title(title, loc="left", fontweight="bold")
    fig.colorbar(shown, ax=ax)
plt.show()

# %%
# One use: abstain for rows whose score is within two standard deviations of zero.

X_new, y_new = make_moons(4000, noise=0.3, random_state=1)
mean, deviation = model.decision_function(X_new, return_std=True)
sure = np.abs(mean) > 2.0 * deviation
right = model.predict(X_new) == y_new
print(f"all rows              {100 * right.mean():.1f} % correct")
print(f"certain               {100 * right[sure].mean():.1f} % correct ({100 * sure.mean():.0f} %)")
print(f"uncertain             {100 * right[~sure].mean():.1f} % correct")

# %%
# The point estimate for comparison: an SVC with C = 2 / lam is the mode of the posterior.

point = SVC(C=2.0 / 0.5, gamma=1.0, intercept="regularized").fit(X, y)
print(f"SVC                   {100 * point.score(X_new, y_new):.1f} % correct")
