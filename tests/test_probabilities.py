"""Probabilities fitted to cross-validated scores, against LIBSVM's and scikit-learn's."""

import warnings

import numpy as np
import pytest
import sklearn.svm
from scipy.optimize import minimize
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import margrave
from margrave import SVC, HardMarginSVC, KernelLogisticRegression, NuSVC, ODMClassifier
from margrave.cli import libsvm as libsvm_commands
from margrave.estimators._margin import Sigmoids, add_probabilities, coupled
from margrave.io import save_libsvm
from margrave.solvers.hull.distance import HullsOverlap
from tests.test_cli import good

MODELS = [
    SVC(),
    NuSVC(nu=0.5),
    NuSVC(nu=0.2),  # for four classes, hulls of folds are very close to each other
    ODMClassifier(lam=100.0),
    SVC(multi_class="ovr"),
    SVC(multi_class="crammer_singer"),
]


def blobs(k):
    return make_blobs(150, centers=k, cluster_std=3.0, random_state=k)


def new_rows(k):
    """Many rows like those of `blobs`."""
    _, _, centres = make_blobs(150, centers=k, cluster_std=3.0, random_state=k, return_centers=True)
    return make_blobs(3000, centers=centres, cluster_std=3.0, random_state=100)


def log_loss(probabilities, y):
    return -np.log(probabilities[np.arange(len(y)), y]).mean()


@pytest.mark.parametrize("k", [2, 3, 5])
def test_pairs_are_coupled_as_in_libsvm(k):
    """LIBSVM's slopes and offsets on its own decision values give its own probabilities."""
    X, y = blobs(k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        theirs = sklearn.svm.SVC(
            probability=True, decision_function_shape="ovo", random_state=0
        ).fit(X, y)
        slope, offset = theirs.probA_, theirs.probB_
    decisions = theirs.decision_function(X).reshape(len(X), -1)
    if k == 2:  # LIBSVM's decision values are positive for the first of two classes
        offset = -offset
    found = coupled(Sigmoids(slope, offset)(decisions), "binary" if k == 2 else "ovo", k)
    np.testing.assert_allclose(found, theirs.predict_proba(X), atol=0.005)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_coupling_is_the_least_squares_solution():
    rng = np.random.default_rng(0)
    sides, k = rng.uniform(0.05, 0.95, (5, 6)), 4
    for row, found in zip(sides, coupled(sides, "ovo", k), strict=True):
        r = np.zeros((k, k))
        r[np.triu_indices(k, 1)] = row
        r[np.tril_indices(k, -1)] = 1.0 - r.T[np.tril_indices(k, -1)]

        def error(p, r=r):
            return ((r.T * p[:, None] - r * p[None, :]) ** 2)[np.triu_indices(k, 1)].sum()

        best = minimize(
            error,
            np.full(k, 1.0 / k),
            bounds=[(0.0, 1.0)] * k,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1.0},
            tol=1e-12,
        )
        assert error(found) <= best.fun + 1e-9 and abs(found.sum() - 1.0) < 1e-12


def like_libsvm(model):
    """scikit-learn's estimator with LIBSVM's coupling, or, where it has none, its calibration."""
    if isinstance(model, (SVC, NuSVC)) and model.multi_class == "ovo":
        given = {"nu": model.nu} if isinstance(model, NuSVC) else {}
        name = type(model).__name__
        return getattr(sklearn.svm, name)(probability=True, random_state=0, **given)
    return CalibratedClassifierCV(model, ensemble=False)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_probabilities_are_as_good_as_scikit_learns(model, k, tmp_path):
    """On new rows: less than 0.02 worse in loss, accuracy, and agreement with predictions."""
    X, y = blobs(k)
    new, labels = new_rows(k)
    model.fit(X, y)
    with pytest.raises(AttributeError, match=r"CalibratedClassifierCV.*KernelLogisticRegression"):
        _ = model.predict_proba
    assert not hasattr(model, "predict_proba")
    add_probabilities(model, X, y)
    found = model.predict_proba(new)
    assert (found >= 0.0).all() and np.allclose(found.sum(axis=1), 1.0)
    reference = CalibratedClassifierCV(model, ensemble=False).fit(X, y).predict_proba(new)
    assert log_loss(found, labels) <= log_loss(reference, labels) + 0.02
    ours, theirs = ((p.argmax(axis=1) == labels).mean() for p in (found, reference))
    assert ours >= theirs - 0.02
    # coupled pairs do not vote: LIBSVM's probabilities disagree with its votes, too
    other = like_libsvm(model).fit(X, y)
    votes = other.predict(new) if hasattr(other, "support_") else model.predict(new)
    agreed = (other.predict_proba(new).argmax(axis=1) == votes).mean()
    assert (found.argmax(axis=1) == model.predict(new)).mean() >= min(agreed - 0.02, 0.93)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(margrave.load(tmp_path / "model").predict_proba(new), found)
    assert not hasattr(model.fit(X, y), "predict_proba")  # those of the last fit are gone


def test_hulls_that_overlap_in_folds():
    """A fold without a model is left out, with a warning."""
    X, y = blobs(4)
    with pytest.warns(match="no direction was found that separates"):
        model = NuSVC(nu=0.1).fit(X, y)
    with pytest.warns(match=r"hulls of 0 and 1 \(59% of the rows\).* in some folds.*raise nu"):
        add_probabilities(model, X, y)
    left_out = log_loss(model.predict_proba(X), y)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(NuSVC, "_held_out", NuSVC._columns)  # as if it were a model
        add_probabilities(model, X, y)
    assert left_out < log_loss(model.predict_proba(X), y) - 0.05


def test_hulls_that_are_known_to_overlap_in_folds():
    """Fits of two folds raise; the others calibrate the model."""
    rng = np.random.default_rng(15)
    X, y = rng.normal(size=(30, 2)), np.arange(30) % 2
    X[y == 1, 0] += 0.7
    model = NuSVC(nu=0.6, kernel="linear").fit(X, y)
    with pytest.warns(match=r"hulls of 0 and 1 \(40% of the rows\)"):
        add_probabilities(model, X, y)
    assert log_loss(model.predict_proba(X), y) < np.log(2.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NuSVC, "fit", overlapping)
        with pytest.raises(ValueError, match="classes 0 and 1 have no probabilities"):
            add_probabilities(model, X, y)


def overlapping(*_):
    raise HullsOverlap


def test_two_classes_as_in_scikit_learn():
    """With the same folds the same probabilities, as there is nothing to couple."""
    X, y = blobs(2)
    model = SVC(tol=1e-8).fit(X, y)
    add_probabilities(model, X, y)
    folds = margrave.estimators._margin.StratifiedKFold(5, shuffle=True, random_state=0)
    theirs = CalibratedClassifierCV(SVC(tol=1e-8), cv=folds, ensemble=False).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("labels", [[1, -1], [-1, 1], [3, 1, 2], [2, 3, 1]])
def test_files_of_libsvm(labels, tmp_path):
    """Whatever the order of the labels, a file gives the same probabilities again."""
    X, y = blobs(len(labels))
    y = np.array(labels)[y]
    model = SVC(tol=1e-6).fit(X, y)
    add_probabilities(model, X, y)
    path = tmp_path / "a.model"
    margrave.save_libsvm_model(model, path)
    text = path.read_text()
    assert "probA " in text and "probB " in text
    again = margrave.load_libsvm_model(path)
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-6)
    margrave.save_libsvm_model(again, path)
    assert path.read_text().split("nr_sv")[0] == text.split("nr_sv")[0]


def test_a_file_with_its_labels_in_another_order(tmp_path):
    """Reordering the labels of a file by hand, with their numbers, changes no probability."""
    path = tmp_path / "a.model"
    head = "svm_type c_svc\nkernel_type linear\nnr_class 2\ntotal_sv 2\n"
    path.write_text(
        f"{head}rho 0.5\nlabel 1 -1\nprobA -2\nprobB 0.25\nnr_sv 1 1\nSV\n1 1:1\n-1 1:-1\n"
    )
    one = margrave.load_libsvm_model(path)
    score = 2.0 * 0.75 - 0.5  # of the file, for its first label, 1
    expected = 1.0 / (1.0 + np.exp(-2.0 * score + 0.25))
    np.testing.assert_allclose(one.predict_proba([[0.75]]), [[1.0 - expected, expected]])
    path.write_text(
        f"{head}rho -0.5\nlabel -1 1\nprobA -2\nprobB -0.25\nnr_sv 1 1\nSV\n1 1:-1\n-1 1:1\n"
    )
    other = margrave.load_libsvm_model(path)
    np.testing.assert_allclose(other.predict_proba([[0.75]]), [[1.0 - expected, expected]])


def test_pipelines_and_kernel_matrices():
    X, y = load_iris(return_X_y=True)
    whole = make_pipeline(StandardScaler(), SVC()).fit(X, y)
    add_probabilities(whole, X, y)
    assert log_loss(whole.predict_proba(X), y) < 0.2
    K = X @ X.T
    matrix, rows = SVC(kernel="precomputed").fit(K, y), SVC(kernel="linear").fit(X, y)
    for model, given in ((matrix, K), (rows, X)):
        add_probabilities(model, given, y)
    np.testing.assert_allclose(matrix.predict_proba(K), rows.predict_proba(X), atol=0.05)


def test_what_cannot_be_calibrated():
    X, y = np.arange(8.0)[:, None], np.array([0, 1, 1, 1, 1, 1, 1, 1])
    with pytest.raises(ValueError, match="at least two rows of each class"):
        add_probabilities(SVC().fit(X, y), X, y)
    with pytest.raises(ValueError, match="no classes"):
        add_probabilities(margrave.SVR().fit(X, y), X, y)
    own = KernelLogisticRegression().fit(X, y)
    add_probabilities(own, X, y)
    assert own.predict_proba(X).shape == (8, 2)
    with pytest.raises(AttributeError, match="HardMarginSVC has no predict_proba"):
        _ = HardMarginSVC().predict_proba


def test_commands(run, tmp_path):
    X, y = blobs(3)
    save_libsvm(tmp_path / "data.txt", X, y + 1)
    names = "--probabilities", "--scale", "standard", "-q"
    good(run("train", "data.txt", "-o", "model", *names))
    assert "probabilities: from cross-validated scores" in good(run("info", "model"))
    good(run("predict", "model", "data.txt", "--probabilities", "-o", "out"))
    np.testing.assert_array_equal(
        np.loadtxt(tmp_path / "out"), margrave.load(tmp_path / "model").predict_proba(X)
    )
    train, predict = libsvm_commands.train, libsvm_commands.predict
    good(run("-b", "1", "-q", "data.txt", "a.model", command=train))
    good(run("-b", "1", "data.txt", "a.model", "out", command=predict))
    head, *lines = (tmp_path / "out").read_text().splitlines()
    assert head == "labels 1 2 3"
    table = np.array([line.split() for line in lines], dtype=float)
    np.testing.assert_allclose(table[:, 1:].sum(axis=1), 1.0, atol=1e-4)
    np.testing.assert_array_equal(table[:, 0], table[:, 1:].argmax(axis=1) + 1)
    good(run("-q", "data.txt", "b.model", command=train))
    code, _, err = run("-b", "1", "data.txt", "b.model", "out", command=predict)
    assert code == 2 and "SVC has no predict_proba" in err
