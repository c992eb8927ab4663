"""Bad input fails at once, with a message that names what is wrong."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from margrave import SVC
from tests import build, oracle

X = np.random.default_rng(0).standard_normal((20, 3))
Y = np.r_[np.zeros(10), np.ones(10)]


def spoiled(array, value, at=(3, 1)):
    array = np.array(array, dtype=float)
    array[at if array.ndim == 2 else at[0]] = value
    return array


# (what, arguments of SVC, arguments of fit, error, message)
FITS = [
    ("NaN in X", {}, (spoiled(X, np.nan), Y), ValueError, "NaN"),
    ("infinity in X", {}, (spoiled(X, np.inf), Y), ValueError, "infinity"),
    ("NaN in sparse X", {}, (sparse.csr_array(spoiled(X, np.nan)), Y), ValueError, "NaN"),
    ("NaN in y", {}, (X, spoiled(Y, np.nan)), ValueError, "NaN"),
    ("infinity in y", {}, (X, spoiled(Y, np.inf)), ValueError, "infinity"),
    ("NaN in weights", {}, (X, Y, spoiled(np.ones(20), np.nan)), ValueError, "NaN"),
    ("infinite weight", {}, (X, Y, spoiled(np.ones(20), np.inf)), ValueError, "infinity"),
    ("negative weight", {}, (X, Y, spoiled(np.ones(20), -1)), ValueError, "[Nn]egative.*weight"),
    ("too few weights", {}, (X, Y, np.ones(19)), ValueError, "sample_weight.shape"),
    ("no weight at all", {}, (X, Y, np.zeros(20)), ValueError, "weight"),
    ("no rows", {}, (X[:0], Y[:0]), ValueError, "0 sample"),
    ("no columns", {}, (X[:, :0], Y), ValueError, "0 feature"),
    ("flat X", {}, (X[:, 0], Y), ValueError, "Expected 2D array"),
    ("X and y of different length", {}, (X, Y[:-1]), ValueError, "inconsistent numbers"),
    ("one class", {}, (X, np.full(20, "spam")), ValueError, "two classes.*only 1 class.*'spam'"),
    (
        "one class left by weights",
        {},
        (X, np.where(Y > 0, "spam", "ham"), 1 - Y),
        ValueError,
        "all samples with positive weights belong to the same class: .*'ham'",
    ),
    ("real targets", {}, (X, X[:, 0]), ValueError, "[Uu]nknown label type: .*continuous"),
    ("complex X", {}, (X + 1j, Y), ValueError, "Complex data"),
    ("words in X", {}, (np.full((20, 3), "a"), Y), ValueError, "could not convert string"),
    ("C = 0", {"C": 0.0}, (X, Y), ValueError, "'C' parameter.*0.0"),
    ("C < 0", {"C": -1.0}, (X, Y), ValueError, "'C' parameter.*-1.0"),
    ("C = NaN", {"C": np.nan}, (X, Y), ValueError, "'C' parameter.*nan"),
    ("C = inf", {"C": np.inf, "loss": "squared_hinge"}, (X, Y), ValueError, "C=inf needs loss"),
    ("gamma < 0", {"gamma": -0.1}, (X, Y), ValueError, "'gamma' parameter.*-0.1"),
    ("gamma = NaN", {"gamma": np.nan}, (X, Y), ValueError, "gamma"),
    ("gamma = inf", {"gamma": np.inf}, (X, Y), ValueError, "gamma"),
    ("unknown gamma", {"gamma": "big"}, (X, Y), ValueError, "'gamma' parameter.*'big'"),
    ("degree < 0", {"kernel": "poly", "degree": -1}, (X, Y), ValueError, "'degree' parameter.*-1"),
    ("unknown kernel", {"kernel": "cosine"}, (X, Y), ValueError, "'kernel' parameter.*'cosine'"),
    ("unknown loss", {"loss": "huber"}, (X, Y), ValueError, "'loss' parameter.*'huber'"),
    ("unknown intercept", {"intercept": "yes"}, (X, Y), ValueError, "'intercept' parameter.*'yes'"),
    ("unknown scheme", {"multi_class": "ecoc"}, (X, Y), ValueError, "'multi_class'.*'ecoc'"),
    ("unknown solver", {"solver": "magic"}, (X, Y), ValueError, "'solver' parameter.*'magic'"),
    ("unknown engine", {"engine": "abacus"}, (X, Y), ValueError, "unknown engine 'abacus'"),
    ("tol = 0", {"tol": 0.0}, (X, Y), ValueError, "'tol' parameter.*0.0"),
    ("max_iter < -1", {"max_iter": -2}, (X, Y), ValueError, "'max_iter' parameter.*-2"),
    ("time_limit = 0", {"time_limit": 0.0}, (X, Y), ValueError, "'time_limit' parameter.*0.0"),
    ("memory_limit < 0", {"memory_limit": -1}, (X, Y), ValueError, "'memory_limit' parameter.*-1"),
    ("memory in words", {"memory_limit": "lots"}, (X, Y), ValueError, "cannot read 'lots'.*bytes"),
    ("n_jobs = 0", {"n_jobs": 0}, (X, Y), ValueError, "n_jobs=0"),
    ("callbacks = 3", {"callbacks": 3}, (X, Y), ValueError, "'callbacks' parameter.*3"),
    (
        "class_weight of zero",
        {"class_weight": {0: 0.0, 1: 1.0}},
        (X, Y),
        ValueError,
        "class_weight must be positive",
    ),
    ("class_weight < 0", {"class_weight": {0: -1.0}}, (X, Y), ValueError, "class_weight"),
    (
        "kernel matrix not square",
        {"kernel": "precomputed"},
        (X, Y),
        ValueError,
        "must be square, got 20 x 3",
    ),
    (
        "sparse kernel matrix",
        {"kernel": "precomputed"},
        (sparse.csr_array(X @ X.T), Y),
        TypeError,
        "Sparse precomputed kernels",
    ),
    (
        "callable of the wrong shape",
        {"kernel": lambda A, B: np.ones((len(A), 1))},
        (X, Y),
        ValueError,
        "kernel.*shape",
    ),
    (
        "callable with NaN",
        {"kernel": lambda A, B: np.full((len(A), len(B)), np.nan)},
        (X, Y),
        ValueError,
        "kernel.*(NaN|finite)",
    ),
    (
        "pairs asked of one-vs-rest",
        {"multi_class": "ovr", "decision_function_shape": "ovo"},
        (X, Y),
        ValueError,
        "multi_class='ovo'",
    ),
]


@pytest.mark.parametrize(
    ("parameters", "arguments", "error", "message"),
    [row[1:] for row in FITS],
    ids=[row[0] for row in FITS],
)
def test_fit(parameters, arguments, error, message):
    model = SVC(**parameters)
    with pytest.raises(error, match=message):
        model.fit(*arguments)
    assert not hasattr(model, "support_"), "a failed fit leaves nothing behind"


@pytest.mark.parametrize(
    ("name", "counterpart"),
    [
        ("cache_size", "memory_limit"),
        ("shrinking", "not needed, shrinking is automatic"),
        ("probability", "CalibratedClassifierCV"),
    ],
)
def test_arguments_of_scikit_learn_without_a_place_here(name, counterpart):
    with pytest.raises(TypeError, match=f"SVC.*'{name}'.*{counterpart}"):
        SVC(**{name: True})
    with pytest.raises(TypeError, match="nonsense"):
        SVC(nonsense=1)


def test_predict():
    model = SVC().fit(X, Y)
    with pytest.raises(NotFittedError, match="not fitted"):
        SVC().predict(X)
    with pytest.raises(ValueError, match="2 features, but SVC is expecting 3 features"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="NaN"):
        model.decision_function(spoiled(X, np.nan))
    with pytest.raises(ValueError, match="Expected 2D array"):
        model.predict(X[0])
    with pytest.raises(ValueError, match="the rows and labels of the fit"):
        model.certify(X + 1, Y)


def test_predict_with_a_kernel_matrix_of_the_wrong_width():
    K = X @ X.T
    model = SVC(kernel="precomputed").fit(K, Y)
    assert model.decision_function(K[:4]).shape == (4,)
    with pytest.raises(ValueError, match="19 features, but SVC is expecting 20 features"):
        model.predict(K[:4, :19])


@pytest.mark.parametrize(
    ("loss", "y", "C", "message"),
    [
        ("hinge", Y, 1.0, r"\+-1|-1.*1"),
        ("hinge", 2 * Y - 1, 0.0, "C"),
        ("hinge", 2 * Y - 1, -1.0, "C"),
        ("hinge", 2 * Y - 1, np.nan, "C"),
        ("hinge", 2 * Y - 1, np.inf, "C"),
        ("epsilon_insensitive", np.where(Y > 0, np.nan, 1.0), 1.0, "NaN|finite"),
        ("epsilon_insensitive", np.where(Y > 0, np.inf, 1.0), 1.0, "infinity|finite"),
    ],
)
def test_problem(loss, y, C, message):
    """The core's own gate: labels are +-1 explicitly, weights positive, targets finite."""
    with pytest.raises(ValueError, match=message):
        build.problem(X, y, C, (loss, {}), ("linear", {}), "free")


def test_negative_parameters_of_losses():
    for loss, message in (
        (("epsilon_insensitive", {"epsilon": -0.1}), "epsilon.*-0.1"),
        (("margin_distribution", {"theta": 1.0, "upsilon": 0.5}), "theta.*1.0"),
        (("margin_distribution", {"theta": -0.1, "upsilon": 0.5}), "theta.*-0.1"),
        (("margin_distribution", {"theta": 0.1, "upsilon": -1.0}), "upsilon.*-1.0"),
        (("perceptron", {}), "unknown loss 'perceptron'"),
    ):
        with pytest.raises(ValueError, match=message):
            build.problem(X, 2 * Y - 1, 1.0, loss, ("linear", {}), "free")


def test_start():
    problem = build.problem(X, 2 * Y - 1, 1.0, ("hinge", {}), ("linear", {}), "free")
    for start, message in (
        (np.full(20, np.nan), "finite|NaN"),
        (np.full(20, np.inf), "finite|infinity"),
        (np.zeros(19), "19|length|rows"),
    ):
        with pytest.raises(ValueError, match=message):
            build.run(problem, start=start)


@pytest.mark.parametrize("intercept", [None, "regularized", "free"])
def test_infeasible_starts_are_projected(intercept):
    """Outside the box, or off the sum: moved to a feasible point, never a wrong optimum."""
    y, kernel = 2 * Y - 1, ("rbf", {"gamma": 0.5})
    best = oracle.solve(oracle.rbf(X, X, gamma=0.5), y, 1.0, oracle.LOSSES["hinge"](), intercept)
    problem = build.problem(X, y, 1.0, ("hinge", {}), kernel, intercept)
    for start in (np.full(20, 2.0), -y, 1e9 * y, np.where(Y > 0, 0.5, 0.0)):
        found, _ = build.run(problem, start=start, tol=1e-9)
        assert found.converged and found.objective == pytest.approx(best.primal, rel=1e-8)
        assert np.all(y * found.beta >= 0) and np.all(y * found.beta <= 1)
        if intercept == "free":
            assert abs(found.beta.sum()) <= 1e-12


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_one_class_is_well_posed_in_the_core(sign):
    """Only classifiers refuse it. Free intercept: beta = 0 and b = +-1, at no cost."""
    y = np.full(20, sign)
    kernel, hinge = ("rbf", {"gamma": 0.5}), ("hinge", {})
    free = build.solve(X, y, 1.0, hinge, kernel, "free")
    assert free.converged and free.objective == pytest.approx(0, abs=1e-12)
    np.testing.assert_array_equal(free.beta, np.zeros(20))
    assert free.intercept * sign >= 1 - 1e-12
    for intercept in (None, "regularized"):
        found = build.solve(X, y, 1.0, hinge, kernel, intercept, tol=1e-8)
        K = oracle.rbf(X, X, gamma=0.5)
        best = oracle.solve(K, y, 1.0, oracle.LOSSES["hinge"](), intercept)
        assert found.converged and found.objective == pytest.approx(best.primal, rel=1e-7)


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
def test_targets_inside_the_tube_need_no_model(loss):
    y = np.linspace(-0.4, 0.4, 20)
    kernel = ("rbf", {"gamma": 0.5})
    for intercept in (None, "regularized", "free"):
        shift = 7.0 if intercept == "free" else 0.0  # half the range of y is what counts
        found = build.solve(X, y + shift, 1.0, (loss, {"epsilon": 0.5}), kernel, intercept)
        np.testing.assert_array_equal(found.beta, np.zeros(20))
        assert found.converged and found.objective == 0
        assert np.all(np.abs(found.scores + found.intercept - y - shift) <= 0.5 + 1e-12)


@pytest.mark.parametrize("intercept", [None, "regularized", "free"])
def test_indefinite_kernels_are_never_certified(intercept):
    """beta'K beta < 0: the objective is not convex, and no gap proves anything."""
    K = -(X @ X.T) - 2.0  # negative definite on any direction, with and without the sum
    with pytest.warns(ConvergenceWarning, match="positive semidefinite|indefinite"):
        model = SVC(kernel="precomputed", intercept=intercept, max_iter=50).fit(K, Y)
    assert not model.converged_ and not model.gap_ <= model.tol
