"""Models of LIBSVM and LIBLINEAR: labels and scores of their own tools, in both directions."""

import shutil
import subprocess

import numpy as np
import pytest
from scipy import sparse

import margrave
from margrave import SVC, SVR, KernelLogisticRegression, ODMClassifier, OneClassSVM
from margrave.io import save_libsvm
from margrave.solvers import DivideAndConquer

libsvm = pytest.mark.skipif(
    shutil.which("svm-predict") is None, reason="svm-predict is not there (libsvm-tools)"
)
liblinear = pytest.mark.skipif(
    shutil.which("liblinear-predict") is None,
    reason="liblinear-predict is not there (liblinear-tools)",
)


def rows(kind, n=200):
    """Rows and labels; LIBSVM sees the labels in another order than sorted."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((n, 5)).round(3)
    X[rng.random((n, 5)) < 0.2] = 0.0
    X[::17] = 0.0  # where scores are equal
    score = X[:, 0] + X[:, 1] ** 2 + rng.standard_normal(n) / 2
    if kind == "targets":
        return X, score.round(3)
    labels = [1, -1] if kind == "two" else [3, -1, 7, 0]
    return X, np.array(labels)[np.digitize(score, [0.5] if kind == "two" else [-0.2, 0.6, 1.6])]


def write(path, X, y, kernel=False):
    if not kernel:
        save_libsvm(path, X, y)
        return
    with open(path, "w") as file:
        for i, (row, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
            pairs = " ".join(f"{j + 1}:{value!r}" for j, value in enumerate(row))
            file.write(f"{label} 0:{i + 1} {pairs}\n")


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def same(kind, found, expected):
    if kind == "targets":
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    else:
        np.testing.assert_array_equal(found, expected)


@libsvm
@pytest.mark.parametrize("kernel", range(5))
@pytest.mark.parametrize("svm_type", range(5))
@pytest.mark.parametrize("kind", ["two", "four"])
def test_models_of_libsvm_predict_the_same(tmp_path, kind, svm_type, kernel):
    kind = "targets" if svm_type > 2 else kind
    X, y = rows(kind)
    X = X @ X.T if kernel == 4 else X
    write(tmp_path / "data", X, y, kernel == 4)
    options = ["-q", "-s", str(svm_type), "-t", str(kernel), "-n", "0.1", "-c", "5", "-r", "0.5"]
    run("svm-train", *options, "data", "model", cwd=tmp_path)
    run("svm-predict", "data", "model", "out", cwd=tmp_path)
    theirs = np.loadtxt(tmp_path / "out")
    model = margrave.load_libsvm_model(tmp_path / "model", n_features=X.shape[1])
    same(kind, model.predict(X), theirs)
    if kernel != 4:
        same(kind, model.predict(sparse.csr_matrix(X)), theirs)
    # and back
    margrave.save_libsvm_model(model, tmp_path / "again")
    run("svm-predict", "data", "again", "out", cwd=tmp_path)
    same(kind, np.loadtxt(tmp_path / "out"), theirs)


@liblinear
@pytest.mark.parametrize("bias", ["-1", "1"])
@pytest.mark.parametrize("solver", [0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13])
@pytest.mark.parametrize("kind", ["two", "four"])
def test_models_of_liblinear_predict_the_same(tmp_path, kind, solver, bias):
    kind = "targets" if solver > 10 else kind
    X, y = rows(kind)
    write(tmp_path / "data", X, y)
    run("liblinear-train", "-q", "-s", str(solver), "-B", bias, "data", "model", cwd=tmp_path)
    run("liblinear-predict", "data", "model", "out", cwd=tmp_path)
    theirs = np.loadtxt(tmp_path / "out")
    model = margrave.load_libsvm_model(tmp_path / "model")
    same(kind, model.predict(X), theirs)
    margrave.save_libsvm_model(model, tmp_path / "again", format="liblinear")
    run("liblinear-predict", "data", "again", "out", cwd=tmp_path)
    same(kind, np.loadtxt(tmp_path / "out"), theirs)


OWN = [
    ("two", SVC(tol=1e-6)),
    ("four", SVC(tol=1e-6)),
    ("four", SVC(kernel="poly", coef0=1.0, tol=1e-6)),
    ("two", SVC(kernel="sigmoid", gamma=0.05, tol=1e-6)),
    ("two", SVC(kernel="linear")),
    ("four", SVC(kernel="linear")),
    ("four", SVC(kernel="precomputed")),
    ("two", SVC(intercept=None, tol=1e-6)),
    ("four", SVC(kernel="linear", multi_class="ovr")),
    ("four", SVC(kernel="linear", multi_class="crammer_singer")),
    ("two", SVC(kernel="linear", multi_class="crammer_singer")),
    ("four", ODMClassifier(tol=1e-6)),
    ("two", KernelLogisticRegression(tol=1e-6)),
    ("four", KernelLogisticRegression(kernel="linear")),
    ("targets", SVR(tol=1e-6)),
    ("targets", SVR(kernel="linear")),
]


@libsvm
@liblinear
@pytest.mark.parametrize(("kind", "model"), OWN)
def test_their_tools_predict_with_our_models(tmp_path, kind, model):
    X, y = rows(kind)
    X = X @ X.T if model.kernel == "precomputed" else X
    write(tmp_path / "data", X, y, model.kernel == "precomputed")
    model.fit(X, y)
    margrave.save_libsvm_model(model, tmp_path / "model")
    linear = (tmp_path / "model").read_text().startswith("solver_type")
    run("liblinear-predict" if linear else "svm-predict", "data", "model", "out", cwd=tmp_path)
    same(kind, np.loadtxt(tmp_path / "out"), model.predict(X))


def test_scores_go_through_a_file(tmp_path):
    """One-class models too, whose rows on the border could fall on either side."""
    for kind, model in [*OWN, ("two", OneClassSVM(nu=0.2, tol=1e-8))]:
        X, y = rows(kind)
        X = X @ X.T if model.kernel == "precomputed" else X
        model.fit(X, y)
        margrave.save_libsvm_model(model, tmp_path / "model")
        again = margrave.load_libsvm_model(tmp_path / "model", n_features=X.shape[1])
        score = "predict" if kind == "targets" else "decision_function"
        np.testing.assert_allclose(
            getattr(again, score)(X), getattr(model, score)(X), rtol=1e-4, atol=1e-5
        )
        if hasattr(model, "classes_"):
            np.testing.assert_array_equal(again.classes_, model.classes_)


def test_rows_that_are_wider_than_the_model(tmp_path):
    """A feature that no support vector has is part of a distance."""
    X, y = rows("two")
    margrave.save_libsvm_model(SVC(gamma=0.5, tol=1e-8).fit(X, y), tmp_path / "model")
    wide = np.hstack([X, np.ones((len(X), 2))])
    narrow = margrave.load_libsvm_model(tmp_path / "model")
    model = margrave.load_libsvm_model(tmp_path / "model", n_features=7)
    base, far = narrow.decision_function(X), model.decision_function(wide)
    b = model.intercept_[0]
    np.testing.assert_allclose(far - b, (base - b) * np.exp(-1.0), rtol=1e-9)
    with pytest.raises(ValueError, match="more than 2"):
        margrave.load_libsvm_model(tmp_path / "model", n_features=2)


@pytest.mark.parametrize(
    ("kind", "model", "words"),
    [
        ("four", SVC(multi_class="ovr"), "multi_class='ovr'"),
        ("two", SVC(kernel="laplacian"), "no kernel 'laplacian'"),
        ("two", SVC(kernel="exponential"), "no kernel 'exponential'"),
        ("two", SVC(kernel="matern52"), "no kernel 'matern52'"),
        ("two", SVC(solver=DivideAndConquer(early=1)), "models of parts"),
    ],
)
def test_what_libsvm_has_not(tmp_path, kind, model, words):
    X, y = rows(kind)
    model.fit(X, y)
    with pytest.raises(ValueError, match=words):
        margrave.save_libsvm_model(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_labels_and_formats_that_do_not_fit(tmp_path):
    X, y = rows("four")
    with pytest.raises(ValueError, match="must be integers"):
        names = np.array(["a", "b"])[(y > 0).astype(int)]
        margrave.save_libsvm_model(SVC().fit(X, names), tmp_path / "model")
    model = SVC(kernel="linear").fit(X, y)
    with pytest.raises(ValueError, match="LIBLINEAR has no one-vs-one models"):
        margrave.save_libsvm_model(model, tmp_path / "model", format="liblinear")
    with pytest.raises(ValueError, match="only has the linear kernel"):
        margrave.save_libsvm_model(SVC().fit(X, y), tmp_path / "model", format="liblinear")
    with pytest.raises(ValueError, match="format must be"):
        margrave.save_libsvm_model(model, tmp_path / "model", format="pickle")


GOOD = """svm_type c_svc
kernel_type rbf
gamma 0.5
nr_class 2
total_sv 2
rho 0.1
label 1 -1
nr_sv 1 1
SV
1 1:0.5 3:1
-1 2:0.25
"""
LINEAR = "solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias -1\nw\n0.5\n-1\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "model:1: the model file ends before its table"),
        ("hello\nSV\n1 1:1\n", "model:1: not a model file"),
        (GOOD.replace("c_svc", "d_svc"), "model:1: svm_type is 'd_svc', must be one of c_svc"),
        (GOOD.replace("rbf", "magic"), "model:2: kernel_type is 'magic'"),
        (GOOD.replace("gamma 0.5", "gamma x"), "model:3: gamma needs 1 number"),
        (GOOD.replace("gamma 0.5", "gamma nan"), "model:3: gamma needs 1 number"),
        (GOOD.replace("gamma 0.5", "gamma -1"), "model: gamma must be"),
        (GOOD.replace("nr_class 2", "nr_class 1"), "model:4: nr_class is 1"),
        (GOOD.replace("nr_class 2", "nr_class 3"), "label needs 3 numbers"),
        (GOOD.replace("nr_class 2", "nr_class 99999999999"), "nr_class is 99999999999"),
        (GOOD.replace("total_sv 2", "total_sv 3"), "model:5: total_sv is 3, but there are 2"),
        (GOOD.replace("rho 0.1", "rho inf"), "model:6: rho needs 1 number"),
        (GOOD.replace("rho 0.1\n", ""), "rho needs 1 number"),
        (GOOD.replace("label 1 -1", "label 1 1"), "model:7: label must be distinct integers"),
        (GOOD.replace("nr_sv 1 1", "nr_sv 2 1"), "model:8: nr_sv must add up"),
        (GOOD.replace("nr_sv 1 1", "nr_sv 3 -1"), "model:8: nr_sv must add up"),
        (GOOD.replace("-1 2:0.25", "-1 2:x"), "model:11: the value 'x' of index 2"),
        (GOOD.replace("-1 2:0.25", "2:0.25"), "model:11: the label is missing"),
        (GOOD[: GOOD.index("SV\n1")], "ends before its table"),
        (GOOD.replace("kernel_type rbf", "kernel_type precomputed"), "model: support vectors of a"),
        (LINEAR.replace("L2R_LR", "L9"), "model:1: solver_type is 'L9'"),
        (LINEAR.replace("-1\n", "", 2), ""),
        (LINEAR + "3\n", "model:4: nr_feature needs 2 lines of w, there are 3"),
        (LINEAR.replace("bias -1", "bias 1"), "needs 3 lines"),
        (LINEAR.replace("0.5", "a"), "model:7: 'a' is not a finite number"),
        (LINEAR.replace("label 1 -1\n", ""), "label is missing"),
    ],
)
def test_broken_models_of_libsvm(tmp_path, text, words):
    (tmp_path / "model").write_text(text)
    with pytest.raises(ValueError) as caught:
        margrave.load_libsvm_model(tmp_path / "model")
    assert words in str(caught.value)


def test_a_loaded_model_can_be_trained_anew(tmp_path):
    """Nothing of the file's labels is left."""
    X, y = rows("four")
    (tmp_path / "model").write_text(GOOD)
    model = margrave.load_libsvm_model(tmp_path / "model").set_params(gamma="scale")
    np.testing.assert_array_equal(model.fit(X, y).predict(X), SVC().fit(X, y).predict(X))
    assert model.certificate_ == "full"


def test_the_good_ones_are_read(tmp_path):
    (tmp_path / "model").write_text(GOOD)
    model = margrave.load_libsvm_model(tmp_path / "model")
    expected = np.exp(-0.5 * 1.25) - np.exp(-0.5 * 0.0625) - 0.1
    np.testing.assert_allclose(model.decision_function([[0.0, 0.0, 0.0]]), expected)
    assert model.classes_.tolist() == [-1, 1] and model.certificate_ == "none"
    (tmp_path / "model").write_text(LINEAR)
    model = margrave.load_libsvm_model(tmp_path / "model")
    np.testing.assert_allclose(model.decision_function([[2.0, 1.0]]), [0.0])
    # LIBLINEAR gives what is undecided to the label that its file has last
    assert model.predict([[2.0, 1.0]]) == [-1]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_bayesian_models_are_refused(tmp_path):
    from margrave import BayesianSVC, save_libsvm_model

    X = np.random.default_rng(0).standard_normal((40, 2))
    model = BayesianSVC(kernel="linear", n_samples=20, burn_in=5, chains=2, random_state=0)
    model.fit(X, (X[:, 0] > 0).astype(int))
    with pytest.raises(ValueError, match="LIBSVM has no model like BayesianSVC"):
        save_libsvm_model(model, tmp_path / "model")
