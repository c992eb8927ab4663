"""The scikit-learn face of margrave: one file per family, thin."""

from margrave.estimators.klr import KernelLogisticRegression
from margrave.estimators.nu import HardMarginSVC, NuSVC
from margrave.estimators.nu_svr import NuSVR
from margrave.estimators.odm import ODMClassifier
from margrave.estimators.one_class import OneClassSVM
from margrave.estimators.svc import SVC
from margrave.estimators.svr import SVR

__all__ = [
    "SVC",
    "SVR",
    "HardMarginSVC",
    "KernelLogisticRegression",
    "NuSVC",
    "NuSVR",
    "ODMClassifier",
    "OneClassSVM",
]
