"""margrave: kernel methods for large data, with a certificate of optimality for every fit.

Every estimator solves

    min over beta   1/2 beta' K beta + sum_i h_i(beta_i)        one signed dual variable per row

and reports the relative duality gap of its solution.
"""

from importlib.metadata import version

from margrave.auto import AutoClassifier, AutoRegressor
from margrave.estimators import (
    SVC,
    SVR,
    BayesianSVC,
    BayesianSVR,
    HardMarginSVC,
    KernelLogisticRegression,
    NuSVC,
    NuSVR,
    ODMClassifier,
    OneClassSVM,
    load,
    load_libsvm_model,
    save_libsvm_model,
)
from margrave.metric import MetricLearner
from margrave.report import make_report as report
from margrave.rows import RowBlocks
from margrave.tuner import Tuner

__version__ = version("margrave")

__all__ = [
    "SVC",
    "SVR",
    "AutoClassifier",
    "AutoRegressor",
    "BayesianSVC",
    "BayesianSVR",
    "HardMarginSVC",
    "KernelLogisticRegression",
    "MetricLearner",
    "NuSVC",
    "NuSVR",
    "ODMClassifier",
    "OneClassSVM",
    "RowBlocks",
    "Tuner",
    "__version__",
    "load",
    "load_libsvm_model",
    "report",
    "save_libsvm_model",
]
