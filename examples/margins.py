"""
All margins, not only the smallest
==================================

A support vector machine cares for its smallest margins and lets the others go where they like. The
optimal margin distribution machine (ODM) draws all of them into a band around one: what is too
small pays, and what is too large pays a little.
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
# The curves tell how many rows have at most a margin. The ODM's is steep: eight tenths of its rows
# lie within the shaded stretch, which is much shorter than that of the support vector machine.

plots.margin_distribution([svm, odm], X_test, y_test)
plt.show()

# %%
# Its boundary is smooth, and its scores are of the same size everywhere.

plots.decision_boundary(odm, X_test, y_test)
plt.show()

# %%
# The certificate goes further than the objective. The ODM's objective is strongly convex, so that
# the gap bounds how far any score can be from that of the optimum: a label whose score is farther
# from zero than that is final.

share = 100 * odm.certified(X_test).mean()
print(f"{share:.1f} % of the labels are final: no further training could change them")

# %%
# Both went to the same tolerance.

plots.convergence([svm, odm])
plt.show()
