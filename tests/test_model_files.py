"""Model files: the same predictions bit for bit, and no file that is not one is believed."""

import json
import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
import safetensors.numpy
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

import margrave
from margrave import (
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
)
from margrave.estimators._files import estimators, load_with_notes, save
from margrave.io import model_file
from margrave.solvers import (
    Cascade,
    DivideAndConquer,
    ExpectationMaximization,
    Gibbs,
    VarianceReduced,
)
from tests.systems import posix

EARLY = DivideAndConquer(early=1)
COMMITTEE = DivideAndConquer(early=1, combine="committee")
# estimators, and what they are trained on; a new estimator is tested by being listed
MODELS = [
    ("binary", SVC()),
    ("three", SVC()),
    ("names", SVC(class_weight={"red": 2.0}, C=3)),
    ("three", SVC(kernel="linear")),
    ("three", SVC(kernel="poly", coef0=1.0, decision_function_shape="ovo")),
    ("three", SVC(kernel="sigmoid", gamma=0.01)),
    ("three", SVC(kernel="laplacian", multi_class="ovr")),
    ("three", SVC(multi_class="crammer_singer")),
    ("three", SVC(tol=1e-8, break_ties=True)),
    ("three", SVC(solver=EARLY)),
    ("three", SVC(kernel="poly", solver=EARLY)),
    ("binary", SVC(solver=COMMITTEE)),
    ("sparse", SVC(solver=EARLY)),
    ("sparse", SVC()),
    ("sparse", SVC(kernel="linear")),
    ("single", SVC()),
    ("single", SVC(kernel="linear", multi_class="ovr")),
    ("kernel", SVC(kernel="precomputed")),
    ("kernel", SVC(kernel="precomputed", multi_class="crammer_singer")),
    ("kernel", SVC(kernel="precomputed", solver=EARLY)),
    ("binary", SVC(solver=Cascade())),
    ("frame", SVC()),
    ("targets", SVR()),
    ("targets", SVR(kernel="linear", loss="huber")),
    ("targets", SVR(solver=EARLY)),
    ("binary", OneClassSVM(nu=0.2)),
    ("binary", OneClassSVM(nu=0.2, kernel="linear")),
    ("three", ODMClassifier()),
    ("binary", ODMClassifier(kernel="linear", solver=VarianceReduced(method="svrg"))),
    ("binary", KernelLogisticRegression()),
    ("three", KernelLogisticRegression()),
    ("three", KernelLogisticRegression(multi_class="softmax")),
    ("three", SVC(solver=ExpectationMaximization(features=20))),
    ("binary", BayesianSVC(n_samples=20)),
    ("three", BayesianSVC(n_samples=20, features=15, keep_draws=True)),
    ("three", BayesianSVC(n_samples=20, kernel="linear", multi_class="ovr")),
    ("kernel", BayesianSVC(n_samples=20, kernel="precomputed", features=4)),
    ("three", NuSVC(nu=0.3)),
    ("binary", NuSVC(nu=0.3, kernel="linear", solver="gilbert")),
    ("binary", HardMarginSVC(gamma=5.0)),
    ("targets", NuSVR()),
    ("targets", NuSVR(kernel="linear")),
    ("targets", BayesianSVR(n_samples=20, intercept=None)),
    ("targets", BayesianSVR(kernel="linear", solver=Gibbs(n_samples=20))),
    ("three", SVC(kernel="exponential", power=0.7)),
    ("sparse", SVC(kernel="exponential", solver=EARLY)),
    ("binary", SVC(kernel="matern32", solver=COMMITTEE)),
    ("three", SVC(kernel="matern52")),
    ("targets", SVR(loss="pinball", quantile=0.8)),
]
METHODS = ["predict", "decision_function", "predict_proba", "score_samples", "certified"]


def rows_of(kind):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((160, 4))
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, [-0.2, 1.0])
    if kind == "binary":
        return X, np.minimum(y, 1)
    if kind == "names":
        return X, np.array(["blue", "green", "red"])[y]
    if kind == "sparse":
        return sparse.csr_matrix(np.where(np.abs(X) < 0.5, 0.0, X)), y
    if kind == "single":
        return X.astype(np.float32), y
    if kind == "kernel":
        return X @ X.T, y
    if kind == "targets":
        return X, X[:, 0] ** 2
    if kind == "frame":
        pandas = pytest.importorskip("pandas")
        return pandas.DataFrame(X, columns=list("abcd")), np.array(list("xyz"), dtype=object)[y]
    return X, y


@pytest.fixture(scope="module")
def fitted():
    """Fit each of MODELS once."""
    found = {}

    def get(number):
        if number not in found:
            kind, model = MODELS[number]
            X, y = rows_of(kind)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[number] = (model.fit(X, y), X)
        return found[number]

    return get


def test_every_estimator_is_listed():
    assert {type(model).__name__ for _, model in MODELS} == set(estimators())


@pytest.mark.parametrize("number", range(len(MODELS)), ids=lambda n: f"{MODELS[n][1]}"[:60])
def test_predictions_are_the_same_to_the_last_bit(fitted, tmp_path, number):
    model, X = fitted(number)
    model.save(tmp_path / "model")
    again = margrave.load(tmp_path / "model")
    assert type(again) is type(model)
    methods = [name for name in METHODS if hasattr(model, name)]
    for name in methods:
        try:
            expected = getattr(model, name)(X)
        except ValueError:  # `certified` of a model of parts
            continue
        found = getattr(again, name)(X)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_equal(again.gap_, model.gap_)
    assert again.certificate_ == model.certificate_
    assert str(again.get_params(deep=True)) == str(model.get_params(deep=True))
    assert set(vars(model)) - set(vars(again)) <= {"_early"}
    # the same model makes the same file, also when it went through one
    first = (tmp_path / "model").read_bytes()
    again.save(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == first


@pytest.mark.parametrize("number", [1, 3, 17, 22])
def test_a_loaded_model_is_like_the_fitted_one(fitted, tmp_path, number):
    """It certifies, shows its support vectors and goes on from where it was."""
    model, X = fitted(number)
    y = rows_of(MODELS[number][0])[1]
    model.save(tmp_path / "model")
    again = margrave.load(tmp_path / "model")
    assert again.certify(X, y) == model.certify(X, y)
    if not model._kernel.is_precomputed:
        np.testing.assert_array_equal(again.support_vectors_, model.support_vectors_)
    again.warm_start = True
    assert np.sum(again.fit(X, y).n_iter_) <= np.sum(model.n_iter_)
    assert again.history_ is not model.history_


@pytest.mark.parametrize("scaler", [MinMaxScaler((-1, 1)), StandardScaler(), MaxAbsScaler()])
def test_a_scaler_in_front(tmp_path, scaler):
    X, y = rows_of("three")
    pipeline = Pipeline([("scale", scaler), ("model", SVC())]).fit(X * [1, 10, 100, 1000], y)
    save(pipeline, tmp_path / "model", {"label": "y", "names": ["a", "b"]})
    again, notes = load_with_notes(tmp_path / "model")
    assert notes == {"label": "y", "names": ["a", "b"]}
    np.testing.assert_array_equal(again.decision_function(X), pipeline.decision_function(X))


def test_a_model_of_libsvm(tmp_path):
    """Nothing is known of its gap, and that is kept too."""
    X, y = rows_of("three")
    margrave.save_libsvm_model(SVC().fit(X, y), tmp_path / "text")
    model = margrave.load_libsvm_model(tmp_path / "text")
    model.save(tmp_path / "model")
    again = margrave.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert np.isnan(again.gap_)


# --- what cannot be saved ------------------------------------------------------------------


def dot(A, B):
    return A @ B.T


def test_code_is_not_saved(tmp_path, caplog):
    X, y = rows_of("binary")
    with pytest.raises(ValueError, match="callable kernel cannot be saved"):
        SVC(kernel=dot).fit(X, y).save(tmp_path / "model")
    model = SVC(callbacks=[lambda record: None], random_state=np.random.RandomState(0)).fit(X, y)
    model.save(tmp_path / "model")
    assert "callbacks" in caplog.text and "random_state" in caplog.text
    again = margrave.load(tmp_path / "model")
    assert again.callbacks is None and again.random_state is None


def test_what_is_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        SVC().save(tmp_path / "model")
    mixed = SVC().fit([[0.0], [1.0]], np.array([0, 1]))
    mixed.classes_ = np.array([0, "a"], dtype=object)
    with pytest.raises(ValueError, match="only numbers and strings"):
        mixed.save(tmp_path / "model")
    assert os.listdir(tmp_path) == []


# --- files that are refused ----------------------------------------------------------------


@pytest.fixture
def path(tmp_path, fitted):
    model, _ = fitted(0)
    model.save(tmp_path / "model")
    return tmp_path / "model"


def test_every_altered_byte_is_noticed(path):
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    places = [*range(0, 120), *rng.integers(0, len(content), 200), len(content) - 1]
    for place in places:
        altered = bytearray(content)
        altered[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(altered)
        with pytest.raises(ValueError, match="model"):
            margrave.load(path)


def test_cut_short_or_too_long(path):
    content = path.read_bytes()
    for size in (0, 4, 8, 9, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match="model file"):
            margrave.load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(ValueError, match="altered or damaged"):
        margrave.load(path)


def test_a_name_that_asks_for_compression(path, tmp_path):
    model = margrave.load(path)
    model.save(tmp_path / "model.gz")
    assert (tmp_path / "model.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert margrave.load(tmp_path / "model.gz").gap_ == model.gap_


def test_a_later_version_is_said_to_be_one(path, monkeypatch):
    description, arrays = model_file.read_model(path)
    monkeypatch.setattr(model_file, "VERSION", 7)
    model_file.write_model(path, description, arrays)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=rf"version 7.*up to 1.*'margrave {margrave.__version__}'"):
        margrave.load(path)


def test_other_files_are_no_models(path, tmp_path):
    safetensors.numpy.save_file({"x": np.zeros(3)}, path, {"format": "other"})
    with pytest.raises(ValueError, match="not a model file"):
        margrave.load(path)
    path.write_bytes(b"\x80\x04\x95pickled")
    with pytest.raises(ValueError, match="not a model file"):
        margrave.load(path)
    with pytest.raises(FileNotFoundError):
        margrave.load(tmp_path / "nothing")


def forge(path, change):
    """Write a file with a right digest and something wrong in it."""
    description, arrays = model_file.read_model(path)
    change(description["model"], arrays)
    model_file.write_model(path, description, arrays)


def _set(name, value):
    def change(model, arrays):
        key = f"model.{name}"
        if key in arrays:
            arrays[key] = value(arrays[key])
        else:
            model["fitted"][name] = value(model["fitted"][name])

    return change


def _nan(array):
    array = array.copy()
    array.flat[0] = np.nan
    return array


FORGERIES = {
    "not finite": _set("dual_coef_", _nan),
    "vectors not finite": _set("_support_vectors", _nan),
    "too few coefficients": _set("dual_coef_", lambda a: a[:, 1:].copy()),
    "too many coefficients": _set("dual_coef_", lambda a: np.vstack([a, a])),
    "numbers of another type": _set("dual_coef_", lambda a: a.astype(np.int64)),
    "no such row": _set("support_", lambda a: a + 10**9),
    "negative rows": _set("support_", lambda a: -a - 1),
    "vectors too narrow": _set("_support_vectors", lambda a: a[:, 1:].copy()),
    "classes twice": _set("classes_", np.zeros_like),
    "one class": _set("classes_", lambda a: a[:1].copy()),
    "counts": _set("n_support_", lambda a: a + 1),
    "intercepts": _set("intercept_", lambda a: np.zeros(3)),
    "features": _set("n_features_in_", lambda d: 10**6),
    "features of a wrong type": _set("n_features_in_", lambda d: "4"),
    "scheme": _set("_scheme", lambda s: "ovo"),
    "unknown scheme": _set("_scheme", lambda s: "best"),
    "precision": _set("_precision", lambda s: "float16"),
    "missing": lambda model, arrays: model["fitted"].pop("intercept_"),
    "missing kernel": lambda model, arrays: model["fitted"].pop("_kernel"),
    "unknown class": lambda model, arrays: model.update(object="Popen"),
    "unknown object": _set("_kernel", lambda k: {"object": "os.system", "fields": {"x": "ls"}}),
    "unknown kernel": _set("_kernel", lambda k: {"object": "Kernel", "fields": {"name": "x"}}),
    "another kernel": _set("_kernel", lambda k: {"object": "Kernel", "fields": {"name": "linear"}}),
    "field": _set("_kernel", lambda k: {"object": "Kernel", "fields": {"evil": 1}}),
    "parameter": lambda model, arrays: model["parameters"].update(C=-1.0),
    "unknown parameter": lambda model, arrays: model["parameters"].update(evil=1),
    "no array": lambda model, arrays: arrays.pop("model.intercept_"),
    "not an estimator": lambda model, arrays: (model.clear(), model.update(dict=[])),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_file_is_refused(path, name):
    forge(path, FORGERIES[name])
    with pytest.raises(ValueError, match="damaged"):
        margrave.load(path)


def test_deep_nesting_is_refused(path):
    deep = 1
    for _ in range(200):
        deep = [deep]
    forge(path, _set("objective_", lambda n: deep))
    with pytest.raises(ValueError, match="nested"):
        margrave.load(path)


def test_sparse_rows_are_checked(fitted, tmp_path):
    model, _ = fitted([kind for kind, _ in MODELS].index("sparse") + 1)
    for part, value in (
        ("indices", lambda a: a + 100),
        ("indices", lambda a: -a - 1),
        ("indptr", lambda a: a[::-1].copy()),
        ("indptr", lambda a: a + 5),
        ("data", lambda a: a[:-1].copy()),
    ):
        model.save(tmp_path / "model")
        forge(tmp_path / "model", _set(f"_support_vectors.{part}", value))
        with pytest.raises(ValueError, match="damaged"):
            margrave.load(tmp_path / "model")


def test_parts_are_checked(fitted, tmp_path):
    model, _ = fitted([m.solver for _, m in MODELS].index(EARLY))

    def elsewhere(description, arrays):
        arrays["model._part_support.0"] = arrays["model._part_support.0"] + 10**6

    for change in (elsewhere, _set("_local.intercept", _nan), _set("_local.known", np.ravel)):
        model.save(tmp_path / "model")
        forge(tmp_path / "model", change)
        with pytest.raises(ValueError, match="damaged"):
            margrave.load(tmp_path / "model")


# --- writing -------------------------------------------------------------------------------


def test_the_header_is_plain_json(path):
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert json.loads(header["__metadata__"]["model"])["model"]["object"] == "SVC"
    assert safetensors.numpy.load(content)["model.dual_coef_"].shape[0] == 1


@posix
def test_a_full_disk_leaves_the_old_model(path):
    before = path.read_bytes()
    script = textwrap.dedent("""
        import resource, signal, sys
        import margrave
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        model = margrave.load(sys.argv[1])
        model.intercept_ = model.intercept_ + 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            model.save(sys.argv[1])
        except OSError as error:
            print(error.filename, error.strerror)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == f"{path} File too large", done.stderr
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["model"]
