"""The scikit-learn face of margrave: one file per family, thin."""

from margrave.estimators.svc import SVC

__all__ = ["SVC"]
