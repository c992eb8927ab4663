"""The command line as people use it: real files in every format, and every kind of bad one."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import margrave
from margrave.cli import libsvm as libsvm_commands
from margrave.cli import train as train_commands
from margrave.io import save_libsvm
from margrave.report.estimator import final_estimator
from tests.systems import linux, posix

ROWS, FEATURES = 150, 4
FORMATS = ["libsvm", "gz", "csv", "tsv", "parquet", "npy", "npz", "sparse"]


def numbers():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((ROWS, FEATURES)).round(4) * [1, 10, 100, 1000]
    return X, np.where(X[:, 0] + rng.standard_normal(ROWS) / 4 > 0.2, 1, -1)


def write(folder, form, X, y, name="data"):
    """Write rows as a file of some format; the words for the command line."""
    names = [*"abcd"[: X.shape[1]]]
    if form in ("libsvm", "gz"):
        path = folder / (name + (".gz" if form == "gz" else ".txt"))
        save_libsvm(path, X, y)
        return [str(path)]
    if form in ("csv", "tsv"):
        mark = "," if form == "csv" else "\t"
        lines = [mark.join([*names, "label"])]
        lines += [
            mark.join(map(repr, [*row, label]))
            for row, label in zip(X.tolist(), y.tolist(), strict=True)
        ]
        path = folder / f"{name}.{form}"
        path.write_text("\n".join(lines) + "\n")
        return [str(path)]
    if form == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        columns = {column: X[:, i] for i, column in enumerate(names)}
        parquet.write_table(pyarrow.table({**columns, "label": y}), folder / f"{name}.parquet")
        return [str(folder / f"{name}.parquet")]
    if form == "npy":
        np.save(folder / f"{name}.npy", np.column_stack([y, X]))
        return [str(folder / f"{name}.npy"), "--label", "0"]
    if form == "npz":
        np.savez(folder / f"{name}.npz", X=X, y=y)
        return [str(folder / f"{name}.npz")]
    S = sparse.csr_matrix(X)
    parts = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": S.shape}
    np.savez(folder / f"{name}.npz", y=y, **parts)
    return [str(folder / f"{name}.npz")]


def good(outcome):
    code, out, err = outcome
    assert code == 0, err
    return out


@pytest.mark.parametrize(
    ("form", "scale"),
    [*((form, "standard") for form in FORMATS), ("csv", "none"), ("csv", "minmax")],
)
def test_train_and_predict_in_every_format(run, tmp_path, form, scale):
    X, y = numbers()
    data = write(tmp_path, form, X, y)
    good(run("train", *data, "-o", "model", "--scale", scale, "-c", "5", "-q"))
    assert good(run("predict", "model", *data, "-o", "out")) == ""
    predicted = np.loadtxt("out")
    model = margrave.load("model")
    np.testing.assert_array_equal(model.predict(X), predicted)
    # what it should be, by hand
    if scale == "standard":
        scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    elif scale == "minmax":
        scaled = 2 * (X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0)) - 1
    else:
        scaled = X
    expected = margrave.SVC(C=5).fit(scaled, y)
    assert np.mean(expected.predict(scaled) == predicted) > 0.98
    facts = json.loads(good(run("evaluate", "model", *data, "--json")))
    assert facts["accuracy"] == pytest.approx(np.mean(predicted == y))


def test_sparse_rows_stay_sparse(run, tmp_path):
    rng = np.random.default_rng(0)
    X = sparse.random(80, 300, 0.05, "csr", random_state=0)
    y = rng.integers(0, 2, 80)
    write(tmp_path, "libsvm", X, y)
    for scale in ("none", "minmax", "standard"):
        good(run("train", "data.txt", "-o", "model", "--scale", scale, "-q"))
        model = margrave.load("model")
        assert sparse.issparse(final_estimator(model).support_vectors_)
        good(run("predict", "model", "data.txt", "-o", "out"))


def test_labels_of_a_table(run, tmp_path):
    """By name, by position, as words, and not at all where rows are to be predicted."""
    (tmp_path / "a.csv").write_text("x;kind;z\n1;no;2\n2;yes;1\n3;yes;0\n0;no;3\n")
    good(run("train", "a.csv", "--label", "kind", "-o", "model", "-q"))
    assert good(run("predict", "model", "a.csv")).split() == ["no", "yes", "yes", "no"]
    (tmp_path / "b.csv").write_text("x;z\n1;2\n3;0\n")
    assert good(run("predict", "model", "b.csv")).split() == ["no", "yes"]
    (tmp_path / "c.csv").write_text("x;w\n1;2\n")
    assert "a column is named 'w', the model expects 'z'" in run("predict", "model", "c.csv")[2]
    good(run("train", "a.csv", "--label", "1", "-o", "again", "-q"))
    assert margrave.load("again").classes_.tolist() == ["no", "yes"]
    code, _, err = run("train", "a.csv", "-o", "model")
    assert code == 2 and "a.csv: which column is the label?" in err
    code, _, err = run("train", "a.csv", "--label", "colour", "-o", "model")
    assert code == 2 and "a.csv: there is no column 'colour'" in err
    code, _, err = run("train", "a.csv", "--label", "9", "-o", "model")
    assert code == 2 and "there is no column 9, only 3" in err
    code, _, err = run("train", "a.csv", "--label", "kind", "-s", "SVR", "-o", "model")
    assert code == 2 and "needs numbers as labels" in err


def test_options_reach_the_estimator(run, tmp_path):
    X, y = numbers()
    (data,) = write(tmp_path, "libsvm", X / [1, 10, 100, 1000], y)
    letters = "-s 0,-t 1,-c 3,-g 0.1,-d 2,-r 1,-e 1e-5,-m 50,-h 0,-b 0,-w1 2,-w-1 0.5,-q 1"
    letters = [word for pair in letters.split(",") for word in pair.split()][:-1]
    good(run("train", *letters, data, "-o", "model", "--solver", "exact", "-j", "2"))
    found = margrave.load("model").get_params()
    expected = {"kernel": "poly", "C": 3.0, "gamma": 0.1, "degree": 2, "coef0": 1.0, "tol": 1e-5}
    expected |= {"memory_limit": "50MiB", "class_weight": {1.0: 2.0, -1.0: 0.5}, "n_jobs": 2}
    assert expected.items() <= found.items() and found["solver"] == "exact"
    good(run("train", data, "-s", "odmclassifier", "--set", "lam=50", "-o", "model", "-q"))
    assert margrave.load("model").lam == 50
    good(run("train", data, "-s", "2", "-n", "0.3", "-o", "model", "-q"))
    assert margrave.load("model").nu == 0.3
    good(run("train", data, "-s", "3", "-p", "0.3", "-t", "linear", "-o", "model", "-q"))
    assert margrave.load("model").epsilon == 0.3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-b", "1", "-s", "SVR"], "SVR has no classes, and so no probabilities"),
        (["-c", "-3"], "'C' parameter of SVC must be"),
        (["-c", "x"], "Invalid value for '-c'"),
        (["-t", "9"], "'kernel' parameter of SVC must be"),
        (["-s", "magic"], "unknown estimator 'magic'"),
        (["-n", "0.5"], "SVC has no parameter 'nu'"),
        (["--set", "C"], "--set needs NAME=VALUE"),
        (["-w5", "2"], "there is a weight for label 5, which is not in the data"),
        (["-w1", "x"], "the weight of label 1 must be positive"),
        (["--scale", "log"], "--scale must be minmax, standard or none"),
        (["--format", "pickle"], "--format must be"),
        (["-o", "x.model", "--scale", "minmax"], "cannot contain a scaler"),
        (["-o", "nowhere/model"], "nowhere: no such directory"),
        (["-v", "1"], "at least 2 folds"),
        (["--nonsense"], "No such option"),
        (["-g", "many"], "'gamma' parameter of SVC must be"),
        (["--solver", "magic"], "'solver' parameter of SVC must be"),
        (["--engine", "magic"], "magic"),
    ],
)
def test_wrong_options_are_one_line(run, tmp_path, words, message):
    X, y = numbers()
    (data,) = write(tmp_path, "libsvm", X, y)
    code, _, err = run("train", data, *words)
    assert code == 2 and message in err
    assert sorted(os.listdir(tmp_path)) == ["data.txt"]


# --- bad files -----------------------------------------------------------------------------

BAD_FILES = {
    "empty.txt": (b"", "empty.txt: the file contains no rows"),
    "empty.csv": (b"", "empty.csv: the file contains no rows"),
    "header.csv": (b"a,label\n", "header.csv: the file contains no rows"),
    "binary.txt": (bytes(range(256)), r"binary.txt:1: '\x00"),
    "binary.csv": (b"a,b\n\xff\xfe,1\n", "binary.csv: not a text file (byte 4)"),
    "null.csv": (b"a,label\n1,\x002\n", "null.csv: not a text file (byte 10)"),
    "order.txt": (b"1 1:1\n-1 3:1 2:1\n", "order.txt:2: index 2 comes after index 3"),
    "nan.txt": (b"1 1:1\n-1 1:nan\n", "nan.txt:2: the value 'nan' of index 1"),
    "nan.csv": (b"a,label\n1,1\nnan,2\n", "nan.csv:3: a: 'nan' is not a finite number"),
    "word.csv": (b"a,label\n1,1\n\nred,2\n", "word.csv:4: a: 'red' is not a finite number"),
    "mark.csv": (b"a,label\n1,1\n1_0,2\n", "mark.csv:3: a: '1_0' is not a finite number"),
    "cell.csv": (b"a,label\n1,1\n,2\n", "cell.csv:3: a: a cell is empty"),
    "nolabel.csv": (b"a,label\n1,1\n2,\n", "nolabel.csv:3: label: the label is missing"),
    "nolabel.txt": (b"1 1:1\n2:1\n", "nolabel.txt:2: the label is missing"),
    "ragged.csv": (b"a,label\n1,1\n2\n", "ragged.csv:3: 1 cells, the first line has 2"),
    "quote.csv": (b'a,label\n1,1\n"2,2\n', "quote.csv:"),
    "short.txt": (b"1 1:1\n-1 1:", "short.txt:2: the value of index 1 is missing"),
    "short.gz": (b"\x1f\x8b\x08\x00\x00\x00", "short.gz: the compressed file is damaged"),
    "one.txt": (b"1 1:1\n1 1:2\n", "only 1 class"),
    "bad.npy": (b"\x93NUMPY", "bad.npy: not a file of NumPy arrays"),
    "text.npy": (b"hello", "text.npy: not a file of NumPy arrays"),
    "bad.npz": (b"PK\x03\x04", "bad.npz: not a file of NumPy arrays"),
    "bad.parquet": (b"PAR1", "bad.parquet: "),
    "labels.txt": (b"0.5 1:1\n1.5 1:2\n", "label"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_data_is_one_line_and_no_model(run, tmp_path, name):
    content, message = BAD_FILES[name]
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    code, out, err = run("train", name, "-o", "model", "-q")
    assert (code, out) == (2, "") and message in err
    assert os.listdir(tmp_path) == [name]


def test_bad_arrays(run, tmp_path):
    for name, array, message in (
        ("flat.npy", np.zeros(3), "the array has 1 dimensions instead of 2"),
        ("nan.npy", np.array([[1.0, np.nan]]), "the array: row 1 is not a finite number"),
        ("words.npy", np.array([["a", "b"]]), "is not numeric"),
        ("object.npy", np.array([[1, "b"]], dtype=object), "not a file of NumPy arrays"),
    ):
        np.save(tmp_path / name, array)
        code, _, err = run("train", name, "--label", "0", "-o", "model")
        assert code == 2 and name in err and message in err
    for arrays, message in (
        ({"X": np.zeros((3, 2))}, "there is no array 'y'"),
        ({"X": np.zeros((3, 2)), "y": np.zeros(2)}, "y has shape (2,), X has 3 rows"),
        ({"Z": np.zeros(3), "y": np.zeros(3)}, "there is no array 'X'"),
        (
            {"data": np.ones(1), "indices": [9], "indptr": [0, 1], "shape": [1, 2], "y": [1]},
            "sparse matrix is damaged",
        ),
    ):
        np.savez(tmp_path / "bad.npz", **arrays)
        code, _, err = run("train", "bad.npz", "-o", "model")
        assert code == 2 and "bad.npz: " in err and message in err


def test_rows_of_another_width(run, tmp_path):
    X, y = numbers()
    (data,) = write(tmp_path, "libsvm", X, y)
    good(run("train", data, "-o", "model", "-q"))
    (tmp_path / "wide.txt").write_text("1 1:1\n1 1:1 5:1\n")
    code, _, err = run("predict", "model", "wide.txt", "-o", "out")
    assert code == 2 and "wide.txt:2: index 5 is larger than 4" in err
    (tmp_path / "narrow.csv").write_text("1,2\n3,4\n")
    code, _, err = run("predict", "model", "narrow.csv", "--label", "0", "-o", "out")
    assert code == 2 and "narrow.csv: the rows have 1 features, the model expects 4" in err
    assert not (tmp_path / "out").exists()
    (tmp_path / "narrow.txt").write_text("1 1:1\n")  # entries that are zero are not written
    good(run("predict", "model", "narrow.txt", "-o", "out"))


def test_indices_count_as_in_training(run, tmp_path):
    """A file without an index of zero, for a model of a file that had one."""
    (tmp_path / "a.txt").write_text("1 0:1 1:5\n-1 0:-1 1:5\n1 0:2\n-1 0:-2\n")
    good(run("train", "a.txt", "-o", "model", "-t", "linear", "-q"))
    (tmp_path / "b.txt").write_text("1 1:3\n")
    good(run("predict", "model", "b.txt", "--scores", "-o", "out"))
    expected = margrave.load("model").decision_function([[0.0, 3.0]])
    np.testing.assert_array_equal(np.loadtxt("out"), expected[0])


def test_bad_models(run, tmp_path):
    X, y = numbers()
    (data,) = write(tmp_path, "libsvm", X, y)
    good(run("train", data, "-o", "model", "-q"))
    content = bytearray((tmp_path / "model").read_bytes())
    content[-5] ^= 1
    (tmp_path / "altered").write_bytes(content)
    (tmp_path / "short").write_bytes(content[:100])
    (tmp_path / "text").write_text("hello")
    (tmp_path / "svm").write_text("svm_type c_svc\nkernel_type rbf\nrho x\n")
    for name, message in (
        ("altered", "altered: the model file was altered or damaged"),
        ("short", "short: the model file is truncated"),
        ("text", "text: not a model file"),
        ("svm", "svm:4: the model file ends before its table"),
        ("missing", "missing: No such file or directory"),
        (".", ".: Is a directory"),
    ):
        for command in (["info", name], ["predict", name, data], ["evaluate", name, data]):
            code, _, err = run(*command)
            assert code == 2 and message in err


@linux
def test_a_full_disk(run, tmp_path):
    X, y = numbers()
    (data,) = write(tmp_path, "libsvm", X, y)
    code, _, err = run("train", data, "-o", "/dev/full", "-q")
    assert code == 2 and err == "margrave: /dev/full: No space left on device\n"
    good(run("train", data, "-o", "model", "-q"))
    code, _, err = run("predict", "model", data, "-o", "/dev/full")
    assert code == 2 and "/dev/full: No space left" in err


def test_no_permission(run, closed_folder):
    data, secret = closed_folder / "data", closed_folder / "secret"
    code, _, err = run("train", data, "-o", closed_folder / "model", "-q")
    assert code == 2 and f"{closed_folder}/model: Permission denied" in err
    code, _, err = run("train", secret, "-o", "/dev/null", "-q")
    assert code == 2 and f"{secret}: Permission denied" in err
    assert sorted(os.listdir(closed_folder)) == ["data", "secret"]


# --- the other commands --------------------------------------------------------------------


def test_cross_validation(run, tmp_path):
    X, y = numbers()
    (data,) = write(tmp_path, "libsvm", X, y)
    out = good(run("train", data, "-v", "5", "--scale", "standard"))
    assert out.startswith("accuracy (5 folds): 0.") and sorted(os.listdir()) == ["data.txt"]
    out = good(run("train", data, "-v", "3", "-s", "SVR", "--scale", "minmax"))
    assert "mean squared error (3 folds)" in out


def test_info(run, tmp_path):
    X, y = numbers()
    data = write(tmp_path, "csv", X, y)
    good(run("train", *data, "-o", "model", "--scale", "standard", "-c", "7", "-q"))
    out = good(run("info", "model"))
    for line in ("estimator: SVC", "kernel: rbf", "features: 4", "classes: -1, 1"):
        assert line in out.splitlines()
    assert "scaler: StandardScaler" in out and "C=7.0" in out and "verbose" not in out
    facts = json.loads(good(run("info", "model", "--json")))
    assert facts["converged"] is True and 0 <= facts["duality gap"] <= 1e-3
    assert facts["data"]["label"] == "label"


def test_evaluate(run, tmp_path):
    X, y = numbers()
    data = write(tmp_path, "csv", X, y)
    good(run("train", *data, "-o", "model", "-q"))
    out = good(run("evaluate", "model", *data))
    assert "accuracy: " in out and "true \\ predicted" in out
    good(run("train", *data, "-s", "SVR", "-o", "model", "-q"))
    assert "mean squared error: " in good(run("evaluate", "model", *data))
    good(run("train", *data, "-s", "OneClassSVM", "-o", "model", "-q"))
    assert "inliers: " in good(run("evaluate", "model", *data))
    (tmp_path / "rows.csv").write_text("1,2,3,4\n")
    code, _, err = run("evaluate", "model", "rows.csv")
    assert code == 2 and "there are no labels" in err


def test_scores_and_probabilities(run, tmp_path):
    X, y = numbers()
    (data,) = write(tmp_path, "libsvm", X, y)
    good(run("train", data, "-s", "KernelLogisticRegression", "-o", "model", "-q"))
    good(run("predict", "model", data, "--probabilities", "-o", "out"))
    np.testing.assert_array_equal(np.loadtxt("out"), margrave.load("model").predict_proba(X))
    good(run("train", data, "-o", "model", "-q"))
    code, _, err = run("predict", "model", data, "--probabilities")
    assert code == 2 and "SVC has no predict_proba" in err and "CalibratedClassifierCV" in err


def test_precomputed_kernel(run, tmp_path):
    X, y = numbers()
    K = X @ X.T / 1e5 + np.eye(ROWS)
    lines = [
        f"{y[i]} 0:{i + 1} " + " ".join(f"{j + 1}:{float(K[i, j])!r}" for j in range(ROWS))
        for i in range(ROWS)
    ]
    (tmp_path / "kernel.txt").write_text("\n".join(lines))
    good(run("train", "kernel.txt", "-t", "4", "-o", "model", "-q"))
    good(run("predict", "model", "kernel.txt", "-o", "out"))
    expected = margrave.SVC(kernel="precomputed").fit(K, y).predict(K)
    np.testing.assert_array_equal(np.loadtxt("out"), expected)
    write(tmp_path, "libsvm", X, y)
    code, _, err = run("train", "data.txt", "-t", "4", "-o", "model", "-q")
    assert code == 2 and "with a precomputed kernel every row must begin with 0:number" in err


def test_tune(run, tmp_path, monkeypatch):
    X, y = numbers()
    (data,) = write(tmp_path, "libsvm", X, y)
    grid = ["--grid", "C=0.1,10", "--grid", "gamma=0.01,scale", "-v", "3", "--scale", "standard"]
    out = good(run("tune", data, *grid, "-o", "model", "-q"))
    model = margrave.load("model")
    assert out.startswith("best: C=") and str(model.steps[-1][1].C) in out

    class Stopped(margrave.Tuner):
        def fit(self, X, y):
            self.best_params_, self.best_score_ = {"C": 10.0, "gamma": "scale"}, 0.5
            raise KeyboardInterrupt

    monkeypatch.setattr(train_commands, "Tuner", Stopped)
    code, out, _ = run("tune", data, *grid, "-o", "stopped", "-q")
    assert (code, out) == (130, "best so far: C=10.0, gamma=scale; score 0.5\n")
    assert not (tmp_path / "stopped").exists()
    code, _, err = run("tune", data, "--grid", "colour=1", "-o", "model")
    assert code == 2 and "SVC has no parameter 'colour'" in err


def test_bench(run, tmp_path):
    X, y = numbers()
    (data,) = write(tmp_path, "libsvm", X, y)
    out = good(run("bench", data, "--scale", "standard"))
    assert "margrave" in out and "scikit-learn" in out
    assert "spirals" in good(run("bench", "--rows", "500"))


def test_demo_with_few_rows(run, tmp_path, monkeypatch):
    from margrave.cli import demo

    for name, rows in (("ROWS", 600), ("TEST_ROWS", 200), ("SUBSAMPLE", 200)):
        monkeypatch.setattr(demo, name, rows)
    out = good(run("demo"))
    assert "600" in out and "duality gap" in out
    if shutil.which("python") and pytest.importorskip("matplotlib"):
        assert (tmp_path / "demo_output" / "demo_boundary.png").stat().st_size > 1000


def test_help(run):
    assert "train" in good(run())
    assert "train" in good(run("--help"))
    assert "--scale" in good(run("train", "--help"))
    assert good(run("--version")).strip() == margrave.__version__
    code, _, err = run("fly")
    assert code == 2 and "No such command" in err


# --- LIBSVM's command lines ----------------------------------------------------------------


def test_their_command_lines(run, tmp_path):
    X, y = numbers()
    (data,) = write(tmp_path, "libsvm", X / [1, 10, 100, 1000], y)
    train, predict = libsvm_commands.train, libsvm_commands.predict
    out = good(run("-c", "10", "-w1", "2", "-h", "0", "-m", "100", data, command=train))
    assert "optimization finished" in out and "Total nSV = " in out
    assert (tmp_path / "data.txt.model").read_text().startswith("svm_type c_svc\n")
    out = good(run(data, "data.txt.model", "out", command=predict))
    right = int(np.sum(np.loadtxt("out") == y))
    assert out == f"Accuracy = {100 * right / ROWS:g}% ({right}/{ROWS}) (classification)\n"
    if shutil.which("svm-predict"):
        theirs = subprocess.run(
            ["svm-predict", data, "data.txt.model", "theirs"], capture_output=True, text=True
        )
        assert theirs.stdout == out
        assert (tmp_path / "theirs").read_text() == (tmp_path / "out").read_text()
    out = good(run("-s", "3", "-q", data, "svr", command=train))
    assert out == ""
    out = good(run(data, "svr", "out", command=predict))
    assert out.startswith("Mean squared error = ") and "Squared correlation" in out
    out = good(run("-v", "5", data, command=train))
    assert out.startswith("Cross Validation Accuracy = ") and out.endswith("%\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-z", "1", "data.txt"], "unknown option -z"),
        (["-c"], "option -c needs a value"),
        (["-c", "x", "data.txt"], "-c needs a number"),
        (["-b", "1", "-s", "2", "data.txt"], "OneClassSVM has no classes"),
        (["-b", "2", "data.txt"], "-b must be 0 or 1"),
        (["-t", "7", "data.txt"], "-t must be from 0 to 4"),
        (["missing"], "missing: No such file"),
    ],
)
def test_their_command_lines_with_errors(run, words, message):
    code, _, err = run(*words, command=libsvm_commands.train)
    assert code == 2 and message in err
    code, _, err = run("a", "b", command=libsvm_commands.predict)
    assert code == 2 and "usage: margrave-predict" in err


# --- real processes ------------------------------------------------------------------------


def program(name):
    path = shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed beside this Python")
    return path


@posix
def test_ctrl_c_keeps_the_model(tmp_path):
    """The signal comes after the first round: the model so far is on the disk, with its gap."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 12))
    y = np.digitize(X[:, 0] + rng.standard_normal(6000), [0.0])
    save_libsvm(tmp_path / "data", X, y)
    words = ["train", "data", "-o", "model", "-c", "1e4", "-g", "5", "-e", "1e-9"]
    words += ["--set", "verbose=2"]  # a line per round
    process = subprocess.Popen(
        [program("margrave"), *words],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "gap" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "interrupted, duality gap" in err and "wrote model" in err
    model = margrave.load(tmp_path / "model")
    assert not model.converged_ and model.gap_ >= 0.0
    assert sorted(os.listdir(tmp_path)) == ["data", "model"]


def test_ranks_of_mpi_write_one_model(tmp_path):
    pytest.importorskip("mpi4py")
    X, y = numbers()
    X = X / [1, 10, 100, 1000]
    save_libsvm(tmp_path / "data", X, y)
    words = ["train", "data", "-o", "model", "--solver", "pbm", "--engine", "mpi"]
    done = subprocess.run(
        [program("mpiexec"), "-n", "2", program("margrave"), *words],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("wrote model") == 1
    check_engine(tmp_path, X, y)


def test_dask_has_workers_of_its_own(run, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")

    class Client(distributed.Client):
        """Workers in this process, which start faster."""

        def __init__(self, host, **options):
            super().__init__(processes=False, n_workers=2, threads_per_worker=1, **options)

    monkeypatch.setattr(distributed, "Client", Client)
    X, y = numbers()
    X = X / [1, 10, 100, 1000]
    save_libsvm(tmp_path / "data", X, y)
    good(run("train", "data", "-o", "model", "--solver", "pbm", "--engine", "dask", "-q"))
    monkeypatch.undo()
    check_engine(tmp_path, X, y)


def check_engine(folder, X, y):
    model = margrave.load(folder / "model")
    assert model.converged_ and model.solver_ == "pbm" and model.engine is None
    assert model.certify(X, y) <= 1e-3


def test_whoever_reads_may_go(tmp_path):
    X, y = numbers()
    save_libsvm(tmp_path / "data", np.tile(X, (200, 1)), np.tile(y, 200))
    margrave.SVC().fit(X, y).save(tmp_path / "model")
    done = subprocess.run(
        f"{program('margrave')} predict model data --scores | head -1",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert len(done.stdout.split()) == 1 and done.stderr == ""
