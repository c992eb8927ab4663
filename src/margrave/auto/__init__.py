"""AutoClassifier and AutoRegressor: one call that finds a model within a time.

columns.py     categories, gaps and numbers, by scikit-learn's transformers
candidates.py  settings, and the moves from one to others
splits.py      folds; views.py  their rows as a candidate sees them, in its metric
budget.py      seconds or fits; search.py  from many settings on few rows to few on all
board.py       the leaderboard; importances.py  of the columns, in the learned metric
last_fit.py    the best candidates on all rows, in pipelines, with calibrated probabilities
base.py        what both estimators have in common; estimators.py  labels, targets, predictions
"""

from margrave.auto.estimators import AutoClassifier, AutoRegressor

__all__ = ["AutoClassifier", "AutoRegressor"]
