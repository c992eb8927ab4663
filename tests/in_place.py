"""A pytest plugin that puts margrave's classes in the place of scikit-learn's."""

import sklearn.svm

import margrave


def pytest_configure():
    for name in ("SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM"):
        setattr(sklearn.svm, name, getattr(margrave, name))
