"""MetricLearner: what it finds, its invariances, and input that it refuses."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from margrave import SVC, SVR, KernelLogisticRegression, MetricLearner, _core, load
from margrave.estimators._files import save
from margrave.metric.iteration import next_root, second_moment, transformed

KERNELS = [name for name in _core.KERNELS if _core.Kernel(name).shift_invariant]
MACHINES = [
    SVC(C=5.0),
    SVC(C=5.0, loss="squared_hinge"),
    KernelLogisticRegression(C=20.0),
]


def product(n=600, d=5, seed=0):
    """Labels from the first two features of d."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def rotated(n=600, d=4, seed=0):
    """Targets that depend on one oblique direction."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, np.sin(2 * X @ np.array([1.0, -1.0, 1.0, 0.5]))


def accuracy(model, seed=9):
    X, y = product(2000, seed=seed)
    return model.score(X, y)


@pytest.mark.parametrize("kernel", KERNELS)
def test_useless_features_have_no_importance(kernel):
    X, y = product(1500)
    learner = MetricLearner(kernel=kernel).fit(X, X[:, 0] * X[:, 1])
    assert learner.kind_ != "none"
    assert learner.feature_importances_[:2].min() > 0.4
    assert learner.feature_importances_[2:].max() < 0.1
    assert learner.feature_importances_.max() == pytest.approx(1.0)
    machine = SVC(C=8, kernel=kernel)
    plain, learned = clone(machine).fit(X, y), make_pipeline(learner, machine).fit(X, y)
    assert accuracy(learned) > accuracy(plain) + 0.01


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: type(m).__name__)
def test_machines_of_every_loss(machine):
    X, y = product()
    names = np.array(["red", "green", "blue"])[y + (X[:, 0] > 1.0)]
    for labels in (y, names):
        learner = MetricLearner("diagonal", machine).fit(X, labels)
        assert learner.feature_importances_[2:].max() < 0.2


def test_a_copied_label_is_all_that_matters():
    X, y = product()
    X[:, 3] = y
    found = MetricLearner("diagonal").fit(X, y).feature_importances_
    assert found[3] == pytest.approx(1.0)
    assert np.delete(found, 3).max() < 0.2


def test_full_metrics_find_a_direction():
    X, y = rotated()
    learner = MetricLearner().fit(X, y)
    assert learner.kind_ == "full"
    values, vectors = np.linalg.eigh(learner.metric_)
    direction = np.array([1.0, -1.0, 1.0, 0.5]) / np.sqrt(3.25)
    assert abs(vectors[:, -1] @ direction) > 0.99
    assert values[-1] > 5 * values[-2]
    assert np.allclose(learner.root_ @ learner.root_, learner.metric_)
    assert np.allclose(learner.feature_importances_, np.diag(learner.metric_))
    assert learner.transform(X) == pytest.approx(X @ learner.root_)


def test_rotated_rows_have_the_same_full_metric():
    X, y = rotated()
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    other = rotated(seed=5)[0]
    fitted = [
        make_pipeline(MetricLearner("full"), SVR(C=10)).fit(rows, y) for rows in (X, X @ turn)
    ]
    first, second = fitted[0].predict(other), fitted[1].predict(other @ turn)
    assert np.abs(first - second).max() < 0.1 * np.abs(first).max()
    metrics = [model[0].metric_ for model in fitted]
    assert turn @ metrics[1] @ turn.T / np.trace(metrics[1]) == pytest.approx(
        metrics[0] / np.trace(metrics[0]), abs=0.02
    )


def test_scaled_and_duplicated_columns_change_little():
    X, y = product()
    other, truth = product(2000, seed=9)
    columns = [0, 1, 2, 3, 4, 4, 4]
    scaled = np.array([1e-3, 5.0, 1e4, 1.0, 0.2])
    scores = [
        make_pipeline(StandardScaler(), MetricLearner("diagonal"), SVC(C=8))
        .fit(change(X), y)
        .score(change(other), truth)
        for change in (lambda X: X, lambda X: X * scaled, lambda X: X[:, columns])
    ]
    assert scores[1] == pytest.approx(scores[0], abs=2e-3)
    assert scores[2] == pytest.approx(scores[0], abs=0.02)


@pytest.mark.parametrize("is_full", [False, True])
def test_the_next_metric_is_the_mean_of_finite_differences(is_full):
    """Of the machine's own decision function, by features of rows before the metric."""
    X, y = product(60, 3)
    names = np.array(["a", "b", "c"])[y + (X[:, 2] > 1.0)]
    A = np.array([[1.0, 0.2, 0.0], [0.2, 0.7, 0.1], [0.0, 0.1, 0.4]])
    root = A if is_full else np.diag(A).copy()
    model = SVC(C=5, gamma=0.3, multi_class="ovr").fit(transformed(X, root), names)
    weight = np.random.default_rng(0).random(60)
    step, moment = 1e-4, np.zeros((3, 3))
    gradients = np.empty((60, 3, 3))
    for k in range(3):
        move = step * np.eye(3)[k]
        ahead, back = (model.decision_function(transformed(X + h, root)) for h in (move, -move))
        gradients[:, :, k] = (ahead - back) / (2 * step)
    moment = np.einsum("i,imk,iml->kl", weight, gradients, gradients)
    moment /= np.diag(moment).max()
    found = next_root(root, model, transformed(X, root), weight, is_full, lambda: np.inf)
    if is_full:
        assert found @ found == pytest.approx(moment, abs=1e-2)
    else:
        assert found**2 == pytest.approx(np.diag(moment), abs=1e-2)


def test_sparse_rows_and_dense_ones():
    X, y = product(400)
    X[np.abs(X) < 0.5] = 0.0
    dense = MetricLearner("diagonal").fit(X, y)
    for kind in (sparse.csr_matrix, sparse.csr_array):
        learner = MetricLearner().fit(kind(X), y)
        assert learner.metric_ == pytest.approx(dense.metric_, abs=0.05)
        assert sparse.issparse(learner.transform(kind(X)))
        assert learner.transform(kind(X)).toarray() == pytest.approx(learner.transform(X))


def test_weights_of_zero_leave_rows_out():
    X, y = product(400)
    weight = np.ones(400)
    y[300:], weight[300:] = 1 - y[300:], 0.0
    X[300:] *= 100.0
    weighted = MetricLearner().fit(X, y, weight)
    assert weighted.feature_importances_[:2].min() > 0.3
    assert weighted.feature_importances_[2:].max() < 0.2


def test_what_is_recorded():
    X, y = product()
    learner = MetricLearner(iterations=2).fit(X, y)
    assert [record["kind"] for record in learner.history_][:3] == ["none"] * 3
    assert {record["C"] for record in learner.history_[:3]} == {1.0, 8.0, 64.0}
    best = max(learner.history_, key=lambda record: record["score"])
    assert (best["score"], best["kind"], best["gamma"]) == (
        *(learner.score_, learner.kind_, learner.gamma_),
    )
    again = MetricLearner(iterations=2).fit(X, y)
    assert (again.metric_ == learner.metric_).all()


def test_none_is_a_candidate():
    rng = np.random.default_rng(0)
    learner = MetricLearner().fit(rng.normal(size=(200, 3)), rng.integers(2, size=200))
    assert learner.history_[0]["kind"] == "none"
    if learner.kind_ == "none":
        assert (learner.metric_ == 1.0).all()
    constant = MetricLearner().fit(rng.normal(size=(100, 3)), np.full(100, 2.5))
    assert constant.kind_ == "none" and (constant.metric_ == 1.0).all()


def test_few_rows():
    X, y = product(3)
    with pytest.warns(UserWarning, match="too few"):
        learner = MetricLearner().fit(X, np.array(["a", "b", "c"]))
    assert learner.kind_ == "none" and (learner.transform(X) == X).all()
    X, y = product(100)
    y = y.astype(object)
    y[0] = "alone"  # a class of one row cannot be in both samples
    assert MetricLearner().fit(X, y.astype(str)).kind_ in ("none", "diagonal", "full")


def test_time_limit():
    X, y = product(20_000, 20)
    learner = MetricLearner(time_limit=0.01).fit(X, y)
    assert len(learner.history_) == 1


def test_names_of_features():
    pandas = pytest.importorskip("pandas")
    X, y = product()
    frame = pandas.DataFrame(X, columns=list("abcde"))
    learner = MetricLearner("diagonal").fit(frame, y)
    assert learner.get_feature_names_out().tolist() == list("abcde")
    out = learner.set_output(transform="pandas").transform(frame)
    assert list(out.columns) == list("abcde")
    mixed = MetricLearner("full", SVC(C=10)).fit(frame, y)
    assert mixed.get_feature_names_out()[0] == "metriclearner0"


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_model_files(kind, tmp_path):
    X, y = product()
    model = make_pipeline(StandardScaler(), MetricLearner(kind), SVC(C=8)).fit(X, y)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.predict(X) == model.predict(X)).all()
    assert (again[1].metric_ == model[1].metric_).all()


BAD = [
    (MetricLearner("full", kernel="laplacian"), "diagonal"),
    (MetricLearner(kernel="linear"), "a kernel of a distance"),
    (MetricLearner(kernel="nothing"), "a kernel of a distance"),
    (MetricLearner(estimator=SVC(kernel="precomputed")), "a kernel of a distance"),
    (MetricLearner(estimator=SVC(kernel=lambda A, B: A @ B.T)), "a kernel of a distance"),
    (MetricLearner("oblique"), "'kind' parameter"),
    (MetricLearner(validation=1.0), "'validation' parameter"),
    (MetricLearner(iterations=0), "'iterations' parameter"),
]


@pytest.mark.parametrize("learner, message", BAD)
def test_bad_parameters(learner, message):
    X, y = product(50)
    with pytest.raises(ValueError, match=message):
        learner.fit(X, y)


def test_bad_rows():
    X, y = product(50)
    with pytest.raises(ValueError, match="sparse"):
        MetricLearner("full").fit(sparse.csr_array(X), y)
    with pytest.raises(ValueError, match="1 class"):
        MetricLearner().fit(X, np.full(50, "same"))
    with pytest.raises(ValueError, match="features"):
        MetricLearner().fit(X, y).transform(X[:, :2])
    model = SVC(gamma=1.0).fit(X, y)
    nothing = second_moment(model, X, np.zeros(50), True, lambda: np.inf)
    assert not nothing.any()
