"""Metrics that are learned from targets: which features, and which directions, distances depend on.

iteration.py  the metric of a fitted machine's gradients, and gamma for given rows
learner.py    MetricLearner, a transformer: fit, gradients, next metric; the best is kept
"""

from margrave.metric.learner import MetricLearner

__all__ = ["MetricLearner"]
