"""ONNX: graphs predict what the estimators predict."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import margrave
from margrave import SVC, SVR, KernelLogisticRegression, ODMClassifier, OneClassSVM
from margrave.estimators._files import estimators
from margrave.solvers import DivideAndConquer

pytest.importorskip("skl2onnx", reason="skl2onnx is not installed (margrave[onnx])")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

FINE = {"tol": 1e-8}  # kernel values in double precision, as in the graph
MODELS = [
    ("two", SVC(**FINE)),
    ("four", SVC(**FINE)),
    ("names", SVC(kernel="poly", coef0=1.0, **FINE)),
    ("four", SVC(kernel="sigmoid", gamma=0.02, **FINE)),
    ("four", SVC(kernel="laplacian", multi_class="ovr", **FINE)),
    ("two", SVC(kernel="laplacian", power=0.7, **FINE)),
    ("two", SVC(kernel="exponential", power=0.7, **FINE)),
    ("targets", SVR(kernel="exponential", **FINE)),
    ("four", SVC(kernel="matern32", **FINE)),
    ("sparse", SVC(kernel="matern52", **FINE)),
    ("four", SVC(kernel="linear")),
    ("two", SVC(kernel="linear")),
    ("four", SVC(multi_class="crammer_singer", **FINE)),
    ("two", SVC(multi_class="crammer_singer", **FINE)),
    ("four", SVC(decision_function_shape="ovo", **FINE)),
    ("four", SVC(break_ties=True, **FINE)),
    ("kernel", SVC(kernel="precomputed", **FINE)),
    ("sparse", SVC(**FINE)),
    ("four", ODMClassifier(**FINE)),
    ("two", KernelLogisticRegression(**FINE)),
    ("four", KernelLogisticRegression(**FINE)),
    ("four", KernelLogisticRegression(multi_class="softmax", **FINE)),
    ("targets", SVR(**FINE)),
    ("targets", SVR(kernel="linear")),
    ("two", OneClassSVM(nu=0.2, **FINE)),
]


def rows(kind):
    rng = np.random.default_rng(11)
    X = rng.standard_normal((120, 3))
    score = X[:, 0] + X[:, 1] ** 2
    if kind == "targets":
        return X, score
    if kind == "two":
        return X, np.where(score > 0.5, 1, -1)
    y = np.digitize(score, [-0.2, 0.6, 1.6])
    return (X @ X.T if kind == "kernel" else X), np.array(list("dbca"))[y] if kind == "names" else y


def outputs(graph, X):
    session = runtime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return dict(
        zip(
            [output.name for output in session.get_outputs()],
            session.run(None, {session.get_inputs()[0].name: X}),
            strict=True,
        )
    )


def test_every_estimator_is_listed():
    assert {type(model).__name__ for _, model in MODELS} == set(estimators())


@pytest.mark.parametrize(("kind", "model"), MODELS)
def test_a_graph_predicts_the_same(kind, model):
    from margrave.onnx import to_onnx

    X, y = rows(kind)
    model.fit(sparse.csr_matrix(X) if kind == "sparse" else X, y)
    found = outputs(to_onnx(model, X), X)
    if kind == "targets":
        np.testing.assert_allclose(found["variable"][:, 0], model.predict(X), rtol=1e-7)
        return
    scores = model.predict_proba if hasattr(model, "predict_proba") else model.decision_function
    expected = scores(X)
    shaped = found["scores"].reshape(expected.shape)
    np.testing.assert_allclose(shaped, expected, rtol=1e-6, atol=1e-8)
    near = np.abs(expected).reshape(len(X), -1).min(axis=1) < 1e-6  # of a border
    np.testing.assert_array_equal(found["label"][~near], model.predict(X)[~near])
    assert (~near).mean() > 0.8


def test_pipelines_and_single_precision():
    import skl2onnx

    import margrave.onnx  # noqa: F401

    X, y = rows("four")
    pipeline = make_pipeline(StandardScaler(), SVC(**FINE)).fit(X, y)
    found = outputs(skl2onnx.to_onnx(pipeline, X[:1].astype(np.float32)), X.astype(np.float32))
    assert np.mean(found["label"] == pipeline.predict(X)) > 0.97
    np.testing.assert_allclose(found["scores"], pipeline.decision_function(X), atol=1e-3)


def test_a_model_of_libsvm_with_its_ties(tmp_path):
    from margrave.onnx import to_onnx

    X, y = rows("four")
    path = tmp_path / "model"
    margrave.save_libsvm_model(SVC(**FINE).fit(X, y), path)
    lines = path.read_text().replace("label 0 1 2 3", "label 3 1 0 2")
    path.write_text(lines)
    model = margrave.load_libsvm_model(path)
    np.testing.assert_array_equal(outputs(to_onnx(model, X), X)["label"], model.predict(X))


def test_what_has_no_onnx_form():
    from margrave.onnx import to_onnx

    X, y = rows("two")
    with pytest.raises(ValueError, match="model of parts cannot be exported"):
        to_onnx(SVC(solver=DivideAndConquer(early=1)).fit(X, y), X)
    with pytest.raises(ValueError, match="callable kernel cannot be exported"):
        to_onnx(SVC(kernel=lambda A, B: A @ B.T).fit(X, y), X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", ["BayesianSVC", "BayesianSVR"])
def test_bayesian_models_are_refused(name):
    """Their predictions are not those of one weight vector."""
    from margrave.onnx import to_onnx

    X = np.random.default_rng(0).standard_normal((40, 2))
    make = getattr(margrave, name)
    model = make(kernel="linear", n_samples=20, burn_in=5, chains=2, random_state=0)
    model.fit(X, (X[:, 0] > 0).astype(int))
    with pytest.raises(ValueError, match=f"a {name} cannot be exported"):
        to_onnx(model, X)
