"""Estimators with scikit-learn's API, one file per family."""

from margrave.estimators._files import load
from margrave.estimators._libsvm_model import load_libsvm_model, save_libsvm_model
from margrave.estimators.bayesian import BayesianSVC, BayesianSVR
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
    "BayesianSVC",
    "BayesianSVR",
    "HardMarginSVC",
    "KernelLogisticRegression",
    "NuSVC",
    "NuSVR",
    "ODMClassifier",
    "OneClassSVM",
    "load",
    "load_libsvm_model",
    "save_libsvm_model",
]
