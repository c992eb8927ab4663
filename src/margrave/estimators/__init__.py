"""Estimators with scikit-learn's API, one file per family.

_base.py         all estimators: calling the solver, storing the model, certificates
_input.py        validation of parameters and rows; _docs.py  shared texts of docstrings
_transaction.py  a fit changes the estimator completely or not at all; _early.py  early models
_advice.py       the text of warnings: why a fit missed its tolerance, and what to do
_rows.py         warm starts when rows have come or gone; _stream.py  partial_fit
_classifier.py   svc.py, klr.py, odm.py: from labels to binary problems and back
_margin.py       probabilities of classifiers that have none: Platt's method
_hard.py         C = inf, from finite penalties
_hull.py         nu.py: NuSVC and HardMarginSVC, as distances between convex hulls
_single.py       one problem per fit: one_class.py; _regressor.py  svr.py, nu_svr.py
_bayesian.py     bayesian.py: posteriors
_remote.py       rows on the workers of an engine; _card.py  problems on a graphics card
_context.py      what the fits of a search share
_files.py        model files; _check_fitted.py  validates them; _libsvm_model.py  LIBSVM's
"""

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
