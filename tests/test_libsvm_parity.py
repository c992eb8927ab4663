"""The same optimum, predictions and layout as LIBSVM through scikit-learn, on real small sets."""

import numpy as np
import pytest
import sklearn.svm
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from margrave import SVC

SETS = {
    "iris": lambda: load_iris(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
    "digits": lambda: tuple(a[:700] for a in load_digits(return_X_y=True)),
}
# parameters that both sides understand
MODELS = {
    "default": {},
    "rbf": {"C": 10.0, "gamma": 0.02},
    "linear": {"kernel": "linear", "C": 0.1},
    "poly": {"kernel": "poly", "degree": 2, "coef0": 1.0, "C": 0.5},
    "balanced": {"class_weight": "balanced", "C": 0.5},
    "auto": {"gamma": "auto", "decision_function_shape": "ovo"},
}


@pytest.fixture(scope="module", params=list(SETS))
def rows(request):
    X, y = SETS[request.param]()
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module", params=list(MODELS))
def pair(request, rows):
    """(margrave, LIBSVM) fitted alike."""
    X, y = rows
    parameters = MODELS[request.param]
    ours = SVC(tol=1e-8, **parameters).fit(X, y)
    theirs = sklearn.svm.SVC(tol=1e-8, **parameters).fit(X, y)
    return ours, theirs, X, y


def pairwise_coefficients(model):
    """(pairs, n_SV) coefficients from scikit-learn's layout of dual_coef_."""
    coef, counts = dense(model.dual_coef_), model.n_support_
    if len(counts) == 2:
        return coef
    ends = np.cumsum(counts)
    block = [slice(end - size, end) for size, end in zip(counts, ends, strict=True)]
    found = []
    for i in range(len(counts)):
        for j in range(i + 1, len(counts)):
            beta = np.zeros(coef.shape[1])
            beta[block[i]] = coef[j - 1, block[i]]
            beta[block[j]] = coef[i, block[j]]
            found.append(beta)
    return np.array(found)


def dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else matrix


def objectives(model, X, y, kernel, C):
    """Primal value of every binary problem, from the public attributes alone."""
    classes = model.classes_
    values = []
    pairs = [(i, j) for i in range(len(classes)) for j in range(i + 1, len(classes))]
    coefficients = pairwise_coefficients(model)
    K = kernel(X, X[model.support_])
    for beta, b, (i, j) in zip(coefficients, model.intercept_, pairs, strict=True):
        f = K @ beta
        norm = beta @ f[model.support_]
        # two classes: positive is the second; pairs: positive is the first
        positive = classes[j if len(classes) == 2 else i]
        rows = np.isin(y, classes[[i, j]])
        sign = np.where(y[rows] == positive, 1.0, -1.0)
        slack = np.maximum(0.0, 1.0 - sign * (f[rows] + b))
        values.append(norm / 2 + (C[rows] * slack).sum())
    return np.array(values)


def kernel_of(model, X):
    def values(A, B):
        gamma = {"scale": 1 / (X.shape[1] * X.var()), "auto": 1 / X.shape[1]}
        g = gamma.get(model.gamma, model.gamma)
        if model.kernel == "linear":
            return A @ B.T
        if model.kernel == "poly":
            return (g * A @ B.T + model.coef0) ** model.degree
        squares = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1) - 2 * A @ B.T
        return np.exp(-g * np.maximum(squares, 0))

    return values


def row_weights(model, y):
    C = np.full(len(y), float(model.C))
    if model.class_weight == "balanced":
        for label, count in zip(*np.unique(y, return_counts=True), strict=True):
            C[y == label] *= len(y) / (len(model.classes_) * count)
    return C


def test_objective(pair):
    ours, theirs, X, y = pair
    kernel, C = kernel_of(ours, X), row_weights(ours, y)
    mine = objectives(ours, X, y, kernel, C)
    np.testing.assert_allclose(ours.objectives_, mine, rtol=1e-7)
    np.testing.assert_allclose(mine, objectives(theirs, X, y, kernel, C), rtol=1e-5)
    assert ours.objective_ == pytest.approx(mine.sum(), rel=1e-7)
    assert ours.gap_ == ours.gaps_.max() <= 1e-8


def test_decisions_and_predictions(pair):
    ours, theirs, X, _ = pair
    for shape in ("ovo", "ovr"):
        ours.decision_function_shape = theirs.decision_function_shape = shape
        mine, reference = ours.decision_function(X), theirs.decision_function(X)
        assert mine.shape == reference.shape
        # votes jump where a pair is undecided: compare those columns through the pairs alone
        if shape == "ovo" or len(ours.classes_) == 2:
            np.testing.assert_allclose(mine, reference, atol=2e-3)
            decided = np.abs(reference).reshape(len(X), -1).min(axis=1) > 4e-3
            assert decided.mean() > 0.8
        else:
            np.testing.assert_allclose(mine[decided], reference[decided], atol=2e-3)
        np.testing.assert_array_equal(ours.predict(X)[decided], theirs.predict(X)[decided])


def test_layout_of_the_attributes(pair):
    ours, theirs, X, y = pair
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    assert ours.n_support_.sum() == len(ours.support_) == dense(ours.dual_coef_).shape[1]
    assert dense(ours.dual_coef_).shape[0] == theirs.dual_coef_.shape[0] == len(ours.classes_) - 1
    assert ours.intercept_.shape == theirs.intercept_.shape
    np.testing.assert_array_equal(ours.support_vectors_, X[ours.support_])
    # grouped by class, in the order of the rows inside a class
    labels = np.searchsorted(ours.classes_, y[ours.support_])
    np.testing.assert_array_equal(
        np.bincount(labels, minlength=len(ours.classes_)), ours.n_support_
    )
    assert np.all(np.diff(labels) >= 0)
    for label in range(len(ours.classes_)):
        assert np.all(np.diff(ours.support_[labels == label]) > 0)
    # the same rows carry the weight; columns of the two are matched by row of X
    mine, reference = np.zeros((len(y), theirs.dual_coef_.shape[0])), 0
    mine[ours.support_] = dense(ours.dual_coef_).T
    reference = np.zeros_like(mine)
    reference[theirs.support_] = theirs.dual_coef_.T
    f_mine = kernel_of(ours, X)(X, X) @ mine
    f_reference = kernel_of(ours, X)(X, X) @ reference
    np.testing.assert_allclose(f_mine, f_reference, atol=2e-3 * (1 + np.abs(f_reference).max()))


def test_linear_coefficients(rows):
    X, y = rows
    ours = SVC(kernel="linear", C=0.1, tol=1e-8).fit(X, y)
    theirs = sklearn.svm.SVC(kernel="linear", C=0.1, tol=1e-8).fit(X, y)
    assert ours.coef_.shape == theirs.coef_.shape
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    with pytest.raises(AttributeError, match="linear kernel"):
        _ = SVC().fit(X, y).coef_


def test_string_labels(rows):
    X, y = rows
    names = np.array([f"class {chr(97 + label)}" for label in range(10)])
    numbers, strings = SVC(tol=1e-8).fit(X, y), SVC(tol=1e-8).fit(X, names[y])
    np.testing.assert_array_equal(strings.classes_, names[numbers.classes_])
    np.testing.assert_array_equal(strings.predict(X), names[numbers.predict(X)])
    np.testing.assert_array_equal(strings.decision_function(X), numbers.decision_function(X))


@pytest.mark.parametrize("weights", ["sample", "class", "both"])
def test_weights(rows, weights, rng):
    """Per-row C as in LIBSVM; gamma is given, since "scale" deliberately counts weights here."""
    X, y = rows
    sample = rng.uniform(0.2, 3.0, len(y)) if weights != "class" else None
    classes = np.unique(y)
    by_class = {c: 1.0 + 0.5 * c for c in classes} if weights != "sample" else None
    parameters = {"gamma": 0.05, "class_weight": by_class, "decision_function_shape": "ovo"}
    ours = SVC(tol=1e-8, **parameters).fit(X, y, sample_weight=sample)
    theirs = sklearn.svm.SVC(tol=1e-8, **parameters).fit(X, y, sample_weight=sample)
    C = np.ones(len(y)) if sample is None else sample.copy()
    if by_class:
        C *= 1.0 + 0.5 * y
        np.testing.assert_allclose(ours.class_weight_, theirs.class_weight_)
    np.testing.assert_allclose(
        ours.objectives_, objectives(theirs, X, y, kernel_of(ours, X), C), rtol=1e-5
    )
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=2e-3)


def test_integer_weights_are_repeated_rows(rows, rng):
    X, y = rows
    counts = rng.integers(0, 4, len(y))
    weighted = SVC(tol=1e-10).fit(X, y, sample_weight=counts)
    repeated = SVC(tol=1e-10).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-9)
    np.testing.assert_allclose(
        weighted.decision_function(X), repeated.decision_function(X), atol=1e-4
    )


@pytest.mark.parametrize("form", ["csr_matrix", "csr_array", "csc_matrix", "coo_array"])
def test_sparse(rows, form):
    X, y = rows
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    S = getattr(sparse, form)(X)
    parameters = {"gamma": 0.05, "decision_function_shape": "ovo", "tol": 1e-8}
    ours, dense_model = SVC(**parameters).fit(S, y), SVC(**parameters).fit(X, y)
    theirs = sklearn.svm.SVC(**parameters).fit(S, y)
    assert sparse.issparse(ours.support_vectors_) and sparse.issparse(ours.dual_coef_)
    assert ours.objective_ == pytest.approx(dense_model.objective_, rel=2e-8)
    for matrix in (S, X):  # a model takes either form, whatever it was fitted on
        np.testing.assert_allclose(
            ours.decision_function(matrix), theirs.decision_function(S), atol=2e-3
        )
    np.testing.assert_allclose(
        dense_model.decision_function(S), theirs.decision_function(S), atol=2e-3
    )


def test_precomputed_and_callable_kernels(rows):
    X, y = rows
    K = X @ X.T
    parameters = {"C": 0.1, "tol": 1e-8, "decision_function_shape": "ovo"}
    built_in = SVC(kernel="linear", **parameters).fit(X, y)
    theirs = sklearn.svm.SVC(kernel="precomputed", **parameters).fit(K, y)
    precomputed = SVC(kernel="precomputed", **parameters).fit(K, y)
    called = SVC(kernel=lambda A, B: A @ B.T, **parameters).fit(X, y)
    for model, form in ((built_in, X), (precomputed, K), (called, X)):
        assert model.objective_ == pytest.approx(built_in.objective_, rel=2e-8)
        np.testing.assert_allclose(
            model.decision_function(form[::3]), theirs.decision_function(K[::3]), atol=2e-3
        )


def test_one_against_the_rest(rows):
    X, y = rows
    model = SVC(multi_class="ovr", gamma=0.05, tol=1e-8).fit(X, y)
    classes = np.unique(y)
    if len(classes) == 2:
        assert model.decision_function(X).shape == (len(y),)
        return
    assert model.decision_function(X).shape == (len(y), len(classes))
    assert model.dual_coef_.shape[0] == len(classes) and len(model.intercept_) == len(classes)
    for column, label in enumerate(classes):
        theirs = sklearn.svm.SVC(gamma=0.05, tol=1e-8).fit(X, y == label)
        np.testing.assert_allclose(
            model.decision_function(X)[:, column], theirs.decision_function(X), atol=2e-3
        )
    np.testing.assert_array_equal(
        model.predict(X), classes[model.decision_function(X).argmax(axis=1)]
    )


def test_break_ties(rows):
    X, y = rows
    model = SVC(break_ties=True, gamma=0.05, tol=1e-6).fit(X, y)
    scores = model.decision_function(X)
    best = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
    np.testing.assert_array_equal(model.predict(X), model.classes_[best])
