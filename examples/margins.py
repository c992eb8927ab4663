"""
Optimising the distribution of margins
======================================

A support vector machine maximises the smallest margins and ignores the others. The optimal margin
distribution machine (ODM) keeps all margins in a band around one: margins that are too small are
penalised, and those that are too large are penalised a little.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons

from margrave import SVC, ODMClassifier, plots

X, y = make_moons(6000, noise=0.25, random_state=0)
X, X_test, y, y_test = X[:3000], X[3000:], y[:3000], y[3000:]
svm = SVC(C=100.0, gamma=2.0).fit(X, y)
odm = ODMClassifier(lam=1000.0, gamma=2.0, upsilon=0.8, theta=0.2).fit(X, y)
for model in (svm, odm):
    name, accuracy = type(model).__name__, 100 * model.score(X_test, y_test)
    print(f"{name:14s} gap {model.gap_:.1e}  accuracy on new rows {accuracy:.2f} %")

# %%
# The curves are the cumulative distributions of the margins. The ODM's is steep: 80 % of its rows
# lie within the shaded interval, which is much shorter than that of the support vector machine.

plots.margin_distribution([svm, odm], X_test, y_test)
plt.show()

# %%
# Its boundary is smooth, and its scores are of similar size everywhere.

plots.decision_boundary(odm, X_test, y_test)
plt.show()

# %%
# The certificate covers predictions too. The ODM's objective is strongly convex, so that
# the gap bounds how far any score can be from that of the optimum: if a score is farther from zero
# than that, the optimum predicts the same label.

share = 100 * odm.certified(X_test).mean()
print(f"{share:.1f} % of the labels are certified: the optimum predicts the same")

# %%
# Both were fitted to the same tolerance.

plots.convergence([svm, odm])
plt.show()
