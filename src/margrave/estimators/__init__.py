"""The scikit-learn face of margrave: one file per family, thin."""

from margrave.estimators.bayesian import BayesianSVC, BayesianSVR
from margrave.estimators.klr import KernelLogisticRegression
from margrave.estimators.odm import ODMClassifier
from margrave.estimators.one_class import OneClassSVM
from margrave.estimators.svc import SVC
from margrave.estimators.svr import SVR

__all__ = [
    "SVC",
    "SVR",
    "BayesianSVC",
    "BayesianSVR",
    "KernelLogisticRegression",
    "ODMClassifier",
    "OneClassSVM",
]
