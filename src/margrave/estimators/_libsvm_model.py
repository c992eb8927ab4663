"""Read and write model files of LIBSVM and LIBLINEAR.

LIBSVM computes sum_j coef_j k(x, x_j) - rho, and a positive value means the first of two labels in
the order of its file. Here classes are sorted, so that the order of a pair may have to be swapped.
"""

from __future__ import annotations

import os
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from margrave.estimators._base import KernelEstimator
from margrave.estimators._files import estimators
from margrave.estimators._input import Floats
from margrave.estimators._margin import MarginClassifier, Sigmoids
from margrave.estimators.klr import KernelLogisticRegression
from margrave.estimators.one_class import OneClassSVM
from margrave.estimators.svc import SVC
from margrave.estimators.svr import SVR
from margrave.io.files import PathLike
from margrave.io.libsvm_model import (
    KERNEL_TYPES,
    LinearText,
    SvmText,
    read_libsvm_model,
    write_libsvm_model,
)
from margrave.kernels import Kernel
from margrave.rows import Matrix

Integers = NDArray[np.int64]

_KERNELS = {"polynomial": "poly"}  # kernels with another name in LIBSVM
_TYPES: dict[
    str, tuple[str, type[KernelEstimator]]
] = {  # the estimator, and a substitute if it does not exist
    "c_svc": ("SVC", SVC),
    "nu_svc": ("NuSVC", SVC),
    "one_class": ("OneClassSVM", OneClassSVM),
    "epsilon_svr": ("SVR", SVR),
    "nu_svr": ("NuSVR", SVR),
}


def load_libsvm_model(path: PathLike, *, n_features: int | None = None) -> Any:
    """Read a model file of LIBSVM or LIBLINEAR as a fitted estimator.

    Labels and scores agree with LIBSVM's own tools, up to the digits in the file. The file does not
    contain the training data: `certificate_` is "none", `gap_` and `objective_` are NaN.

    Parameters
    ----------
    path : path-like
        The file.
    n_features : int, default=None
        Number of features of the rows to predict, which LIBSVM's files do not contain; None for
        the largest index of a support vector.

    Returns
    -------
    model : estimator
        SVC, NuSVC, OneClassSVM, SVR, NuSVR or (LIBLINEAR's logistic regression)
        KernelLogisticRegression.
    """
    found = read_libsvm_model(path)
    try:
        model = _from_svm(found) if isinstance(found, SvmText) else _from_linear(found)
        if n_features is not None:
            _widen(model, n_features)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from None
    return model


def save_libsvm_model(model: KernelEstimator, path: PathLike, *, format: str = "auto") -> None:
    """Write a fitted estimator as a model file for LIBSVM's or LIBLINEAR's tools.

    Parameters
    ----------
    model : estimator
        A classifier (binary or one-vs-one), regressor or one-class SVM with one of LIBSVM's
        kernels; with the linear kernel also a one-vs-rest classifier.
    path : path-like
        The file to write; an existing one is replaced only when the new one is complete.
    format : {"auto", "libsvm", "liblinear"}, default="auto"
        "auto" is LIBSVM's format if it can represent the model, else LIBLINEAR's, which has no
        place for the probabilities of a calibrated model.
    """
    if format not in ("auto", "libsvm", "liblinear"):
        raise ValueError(f"format must be 'auto', 'libsvm' or 'liblinear', got {format!r}")
    check_is_fitted(model)
    if model._local is not None:
        raise ValueError("LIBSVM has no models of parts; use save, or fit the whole problem")
    per_class = model._scheme not in (None, "binary", "ovo")
    linear = model._kernel.name == "linear"
    if format == "liblinear" or (format == "auto" and per_class and linear):
        write_libsvm_model(path, _to_linear(model))
    elif per_class:
        raise ValueError(
            f"LIBSVM has no models with multi_class={model._scheme!r}; train with"
            " multi_class='ovo', or use save"
        )
    else:
        write_libsvm_model(path, _to_svm(model))


# --- from files ----------------------------------------------------------------------------


def _from_svm(text: SvmText) -> KernelEstimator:
    name = _KERNELS.get(text.kernel_type, text.kernel_type)
    kernel = Kernel(name, text.gamma, text.degree, text.coef0)
    listed, otherwise = _TYPES[text.svm_type]
    cls = estimators().get(listed, otherwise)
    model = cls(kernel=name, gamma=text.gamma, degree=text.degree, coef0=text.coef0)
    coef, rho = text.coef, text.rho
    order: Integers = np.arange(len(coef))
    counts, sign = np.array([len(order)], dtype=np.int64), 1.0
    if text.label is not None and text.nr_sv is not None:
        _store_classes(model, text.label, "binary" if len(text.label) == 2 else "ovo")
        given = np.argsort(text.label)
        coef, order, counts, rho = _rearranged(coef, text.nr_sv, rho, given)
        sign = -1.0 if len(given) == 2 else 1.0  # a positive score means the second class
        if text.probA is not None and text.probB is not None:
            assert isinstance(model, MarginClassifier)
            places, signs = _pairs_in(given)
            model._sigmoids = Sigmoids(text.probA[places], sign * signs * text.probB[places])
    X, support = text.X[order], np.arange(len(order))
    width, n_rows = max(1, X.shape[1]), max(1, len(order))
    X.resize(len(order), width)
    if kernel.is_precomputed:
        serials = X[:, [0]].toarray().ravel()
        if not (serials == np.round(serials)).all() or serials.min(initial=1) < 1:
            raise ValueError("support vectors of a precomputed kernel need 0:number of the row")
        X, support = np.empty((0, 0)), serials.astype(np.intp) - 1
        width = n_rows = max(1, int(serials.max(initial=1)))
    _store(model, kernel, -sign * rho, width)
    model.support_, model._support_vectors, model._n_rows = support, X, n_rows
    model.dual_coef_ = np.ascontiguousarray(sign * coef.T)
    model.n_support_ = counts.astype(np.int32)
    return model


def _rearranged(
    coef: Floats, counts: Integers, rho: Floats, given: Integers
) -> tuple[Floats, Integers, Integers, Floats]:
    """Coefficients, order of the points, counts and rho for another order of the classes.

    `given` are the present classes in the new order. A pair whose order is swapped changes its
    sign.
    """
    k, ends = len(given), np.cumsum(counts)
    blocks = [np.arange(ends[i] - counts[i], ends[i]) for i in given]
    places, counts = np.concatenate(blocks), counts[given]
    starts = np.concatenate([[0], np.cumsum(counts)])
    turned = np.zeros((len(places), k - 1))
    pairs, signs = _pairs_in(given)
    for (a, b), sign in zip(combinations(range(k), 2), signs, strict=True):
        i, j = given[a], given[b]
        for own, other, mine, theirs in ((a, b, i, j), (b, a, j, i)):
            # columns are numbered by the other classes
            to, column = slice(starts[own], starts[own + 1]), other - int(other > own)
            turned[to, column] = sign * coef[blocks[own], theirs - int(theirs > mine)]
    return turned, places, counts, signs * rho[pairs]


def _pairs_in(given: Integers) -> tuple[Integers, Floats]:
    """Number and sign of each pair of classes in another order: swapped pairs change their sign."""
    k = len(given)
    number = {pair: p for p, pair in enumerate(combinations(range(k), 2))}
    pairs = [(given[a], given[b]) for a, b in number]
    places = np.array([number[min(pair), max(pair)] for pair in pairs], dtype=np.int64)
    return places, np.array([1.0 if i < j else -1.0 for i, j in pairs])


def _from_linear(text: LinearText) -> KernelEstimator:
    d = text.n_features
    weights = np.ascontiguousarray(text.w[:d].T)
    intercepts = text.bias * text.w[d] if text.bias >= 0 else np.zeros(len(weights))
    kind = text.solver_type
    cls: type[KernelEstimator] = SVC
    parameters: dict[str, Any] = {"kernel": "linear"}
    if kind == "ONECLASS_SVM":
        cls, intercepts = OneClassSVM, np.array([-text.rho])
    elif "SVR" in kind:
        cls = SVR
        if "L2LOSS" in kind:
            parameters["loss"] = "squared_epsilon_insensitive"
    else:
        cls = KernelLogisticRegression if "LR" in kind.split("_") else SVC
        parameters["multi_class"] = "crammer_singer" if kind == "MCSVM_CS" else "ovr"
        if "L2LOSS" in kind:
            parameters["loss"] = "squared_hinge"
        parameters["intercept"] = "regularized" if text.bias >= 0 else None
    model = cls(**parameters)
    counts = np.zeros(1, dtype=np.int32)
    if text.label is not None and cls not in (SVR, OneClassSVM):
        k, given = len(text.label), np.argsort(text.label)
        binary = k == 2 and kind != "MCSVM_CS"
        _store_classes(model, text.label, "binary" if binary else parameters["multi_class"])
        counts = np.zeros(k, dtype=np.int32)
        if binary:
            sign = -1.0 if given[0] == 0 else 1.0
            weights, intercepts = sign * weights, sign * intercepts
        else:
            weights, intercepts = np.ascontiguousarray(weights[given]), intercepts[given]
    _store(model, Kernel("linear"), intercepts, d)
    model._weights = weights
    model.support_, model._support_vectors = np.empty(0, dtype=np.intp), np.empty((0, d))
    model.dual_coef_, model.n_support_ = np.zeros((len(weights), 0)), counts
    return model


def _store_classes(model: KernelEstimator, label: Integers, scheme: str) -> None:
    model.classes_ = np.sort(label).astype(np.float64)
    model.class_weight_ = np.ones(len(label))
    model._scheme = scheme
    # ties go to the first label of LIBSVM's file, but with two classes to the second
    order = np.argsort(label).argsort()
    model._tie_order = order if len(label) > 2 else order[::-1].copy()


def _store(model: KernelEstimator, kernel: Kernel, intercepts: Floats, d: int) -> None:
    """Store the attributes common to all models; there is no certificate."""
    model._kernel, model.n_features_in_ = kernel, d
    model.intercept_ = np.asarray(intercepts, dtype=np.float64)
    model._weights = model._fit_rows = model._local = None
    model._precision, model._n_rows = "float64", 1
    if isinstance(model, OneClassSVM):
        model._store(float(intercepts[0]))
    unknown = np.full(len(model.intercept_), np.nan)
    model.objectives_ = model.gaps_ = model._absolute_gaps = unknown
    model.objective_ = model.gap_ = float("nan")
    model.converged_, model.certificate_, model.solver_ = False, "none", "libsvm"
    model.n_iter_, model.history_ = model._count_rounds([]), []


def _widen(model: KernelEstimator, d: int) -> None:
    if d < model.n_features_in_:
        raise ValueError(f"the model has {model.n_features_in_} features, more than {d}")
    model.n_features_in_ = d
    if model._kernel.is_precomputed:
        model._n_rows = d
        return
    vectors = sparse.csr_matrix(model._support_vectors)
    vectors.resize(vectors.shape[0], d)
    model._support_vectors = vectors
    if model._weights is not None:
        wider = np.zeros((len(model._weights), d))
        wider[:, : model._weights.shape[1]] = model._weights
        model._weights = wider


# --- to files ------------------------------------------------------------------------------


def _to_svm(model: KernelEstimator) -> SvmText:
    kernel = model._kernel
    names = {_KERNELS.get(name, name): name for name in KERNEL_TYPES}
    if kernel.name not in names:
        raise ValueError(f"LIBSVM has no kernel {kernel.name!r}; use save")
    types = {name: svm_type for svm_type, (name, _) in _TYPES.items()}
    is_classifier = hasattr(model, "classes_") and not hasattr(model, "posterior_")
    svm_type = types.get(type(model).__name__, "c_svc" if is_classifier else "")
    if not svm_type:
        raise ValueError(f"LIBSVM has no model like {type(model).__name__}; use save")
    label = _integer_labels(model) if hasattr(model, "classes_") else None
    k = 2 if label is None else len(label)
    X: Matrix
    if model._weights is not None:
        X, coef, counts = _weights_as_points(model._weights, k)
    else:
        X = model.support_[:, None] + 1.0 if kernel.is_precomputed else model.support_vectors_
        coef, counts = model._dual.T, model.n_support_
    rho = -model.intercept_
    probA = probB = None
    if label is not None:
        # for two classes a positive score means the first class in LIBSVM, here the second
        sign, given = -1.0 if k == 2 else 1.0, _label_order(model)
        coef, places, counts, rho = _rearranged(sign * coef, counts, sign * rho, given)
        X, label = X[places], label[given]
        if isinstance(model, MarginClassifier) and model._sigmoids is not None:
            pairs, signs = _pairs_in(given)
            probA = model._sigmoids.slope[pairs]
            probB = sign * signs * model._sigmoids.offset[pairs]
    return SvmText(
        svm_type,
        names[kernel.name],
        rho,
        coef,
        X,
        kernel.gamma,
        kernel.degree,
        kernel.coef0,
        label,
        counts if label is not None else None,
        probA,
        probB,
    )


def _label_order(model: KernelEstimator) -> Integers:
    """The order of the classes in the file by which LIBSVM breaks ties as this model does."""
    order: Integers | None = model._tie_order
    k = len(model.classes_)
    if order is None:
        return np.arange(k)
    return order if k > 2 else order[::-1]


def _weights_as_points(weights: Floats, k: int) -> tuple[Floats, Floats, Integers]:
    """Represent the weights of each pair of classes by one support vector of its first class."""
    pairs = list(combinations(range(k), 2))
    coef = np.zeros((len(pairs), k - 1))
    for p, (_, j) in enumerate(pairs):
        coef[p, j - 1] = 1.0
    return weights, coef, np.arange(k - 1, -1, -1)


def _to_linear(model: KernelEstimator) -> LinearText:
    if model._kernel.name != "linear":
        raise ValueError(f"LIBLINEAR only has the linear kernel, not {model._kernel.name!r}")
    scheme = model._scheme
    if scheme == "ovo":
        raise ValueError("LIBLINEAR has no one-vs-one models; use multi_class='ovr'")
    weights = model.coef_.toarray() if sparse.issparse(model.coef_) else np.asarray(model.coef_)
    b, rho = model.intercept_, 0.0
    label = None
    if isinstance(model, OneClassSVM):
        kind, rho, b = "ONECLASS_SVM", -float(b[0]), np.zeros(1)
    elif scheme is None:
        kind = "L2R_L1LOSS_SVR_DUAL"
    else:
        given = _label_order(model)
        label = _integer_labels(model)[given]
        kind = {"crammer_singer": "MCSVM_CS"}.get(scheme, "L2R_L1LOSS_SVC_DUAL")
        if isinstance(model, KernelLogisticRegression):
            kind = "L2R_LR"
        if scheme == "binary":
            sign = -1.0 if given[0] == 0 else 1.0
            weights, b = sign * weights, sign * b
        else:
            weights, b = weights[given], b[given]
            if len(label) == 2 and kind != "MCSVM_CS":  # a single score, the difference of the two
                weights, b = weights[:1] - weights[1:], b[:1] - b[1:]
    bias = 1.0 if np.any(b) else -1.0
    table = np.vstack([weights.T, b]) if bias > 0 else weights.T
    return LinearText(kind, np.ascontiguousarray(table), weights.shape[1], bias, label, rho)


def _integer_labels(model: KernelEstimator) -> Integers:
    classes = model.classes_
    numbers = classes.astype(np.float64) if classes.dtype.kind in "biuf" else np.array([0.5])
    if not (numbers == np.round(numbers)).all() or np.abs(numbers).max() >= 1 << 31:
        shown = ", ".join(map(repr, classes[:3].tolist()))
        raise ValueError(f"LIBSVM's labels must be integers, but the classes are {shown}, ...")
    return numbers.astype(np.int64)
