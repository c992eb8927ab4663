"""margrave: kernel machines for large data, each with a certificate of optimality.

Every estimator solves

    min over beta   1/2 beta' K beta + sum_i h_i(beta_i)        one signed dual variable per row

and reports the relative duality gap of what it returns.
"""

from importlib.metadata import version

from margrave.estimators import (
    SVC,
    SVR,
    HardMarginSVC,
    KernelLogisticRegression,
    NuSVC,
    NuSVR,
    ODMClassifier,
    OneClassSVM,
)
from margrave.rows import RowBlocks

__version__ = version("margrave")

__all__ = [
    "SVC",
    "SVR",
    "HardMarginSVC",
    "KernelLogisticRegression",
    "NuSVC",
    "NuSVR",
    "ODMClassifier",
    "OneClassSVM",
    "RowBlocks",
    "__version__",
]
