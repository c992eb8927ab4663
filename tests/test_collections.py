"""Dask collections in estimators: predictions of any partitions, refusals, tasks, TLS."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris, make_moons

from margrave import SVC, SVR, KernelLogisticRegression, NuSVC, NuSVR, ODMClassifier
from margrave.solvers import BlockMinimization, Gibbs, MergeTree

dask = pytest.importorskip("dask", reason='needs "margrave[dask]"')
distributed = pytest.importorskip("distributed", reason='needs "margrave[dask]"')
dask_array = pytest.importorskip("dask.array", reason='needs "margrave[dask]"')

ROOT = Path(__file__).parents[1]
X, Y = make_moons(240, noise=0.2, random_state=0)


def lazy(values, chunks=100):
    return dask_array.from_array(values, chunks=(chunks, *np.shape(values)[1:]))


# --- predictions ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    return KernelLogisticRegression(gamma=1.0).fit(X, Y)


METHODS = ["predict", "decision_function", "predict_proba"]


def partitions(client):
    """Rows in all ways that Dask has, some of them in partitions without rows."""
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    table = frames.from_pandas(pandas.DataFrame(X), npartitions=4)
    parts = [X[:90], X[90:90], X[90:]]
    array = lazy(X)
    # The keys of futures must not depend on their values: Dask does not order the release of a key
    # and a new `scatter` of the same values, which are then "lost dependencies".
    return {
        "empty": dask_array.concatenate([array[:0], array, array[:0]]),
        "unknown": array[array[:, 0] > -100.0],
        "filtered": dask_array.concatenate([array[array[:, 0] > 100.0], array]),
        "futures": client.scatter(parts, hash=False),
        "sparse": client.scatter([sparse.csr_matrix(part) for part in parts], hash=False),
        "delayed": list(lazy(X, 80).to_delayed().ravel()),
        "columns": dask_array.from_array(X, chunks=(100, 1)),
        "frame": table[table[0] > -100.0],
    }


@pytest.mark.parametrize("method", METHODS)
def test_predictions_of_any_partitions(dask_client, fitted, method):
    expected = getattr(fitted, method)(X)
    for name, rows in partitions(dask_client).items():
        found = getattr(fitted, method)(rows)
        assert isinstance(found, dask_array.Array) and found.dtype == expected.dtype, name
        accuracy = 1e-4 if name == "sparse" else 1e-12  # other sums, in single precision
        np.testing.assert_allclose(found.compute(), expected, rtol=accuracy, err_msg=name)


def test_predictions_of_no_rows_at_all(dask_client, fitted):
    assert fitted.predict(lazy(X)[:0]).compute().shape == (0,)
    assert fitted.predict_proba(dask_client.scatter([X[:0]])).compute().shape == (0, 2)


def test_a_model_that_is_not_fitted_says_so_at_once(dask_client):
    with pytest.raises(Exception, match="not fitted"):
        SVC().predict(lazy(X))


# --- refusals -------------------------------------------------------------------------------

IRIS = load_iris(return_X_y=True)
CURES = {  # what a refusal advises, as parameters
    "solver='auto'": {"solver": "auto"},
    "SVC(solver='auto')": {"solver": "auto"},
    "SVR(solver='auto')": {"solver": "auto"},
    "multi_class='ovr' with solver='auto'": {"multi_class": "ovr", "solver": "auto"},
    "solver=MergeTree(partition='random')": {"solver": MergeTree(partition="random")},
}
REFUSED = [
    (SVC(multi_class="crammer_singer"), SVC, IRIS),
    (SVC(multi_class="crammer_singer", solver="exact"), SVC, IRIS),
    (KernelLogisticRegression(multi_class="softmax"), KernelLogisticRegression, IRIS),
    (SVC(solver="exact"), SVC, (X, Y)),
    (SVC(solver="dsvrg"), SVC, (X, Y)),
    (SVC(solver="pairs"), SVC, (X, Y)),
    (ODMClassifier(solver="dsvrg", intercept=None), ODMClassifier, (X, Y)),
    (SVC(solver=Gibbs()), SVC, (X, Y)),
    (SVC(solver="sodm"), SVC, (X, Y)),
    (NuSVC(), SVC, (X, Y)),
    (NuSVC(solver="pairs"), SVC, (X, Y)),
    (NuSVR(), SVR, (X, np.sin(X[:, 0]))),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_a_refusal_advises_works(dask_client, number):
    estimator, family, (rows, y) = REFUSED[number]
    with pytest.raises(ValueError, match="solver") as refused:
        estimator.set_params(engine=dask_client).fit(lazy(rows), lazy(y))
    said = str(refused.value)
    [*_, cure] = sorted((text for text in CURES if text in said), key=len) or [None]
    assert cure is not None, said
    model = family(engine=dask_client, **CURES[cure]).fit(lazy(rows), lazy(y))
    assert model.converged_


def test_weights_of_another_length_are_called_weights(dask_client):
    model = SVC(engine=dask_client)
    weights = lazy(np.ones(240), 120)
    with pytest.raises(ValueError, match="sample_weight has 2"):
        model.fit(lazy(X), lazy(Y), sample_weight=weights)


# --- tasks ----------------------------------------------------------------------------------


def fit_in_a_task(rows, y):
    model = SVC(gamma=1.0, engine="dask", solver=BlockMinimization(blocks=2)).fit(rows, y)
    return model.dual_coef_, model.fit(lazy(rows), lazy(y)).gap_


def test_a_fit_inside_a_task(dask_client):
    expected = SVC(gamma=1.0, engine="serial", solver=BlockMinimization(blocks=2)).fit(X, Y)
    tasks = [dask_client.submit(fit_in_a_task, X, Y, pure=False) for _ in range(3)]
    for task in tasks:  # more than there are threads
        coef, gap = task.result(timeout=60)
        np.testing.assert_array_equal(coef, expected.dual_coef_)
        assert gap <= 1e-3


# --- addresses ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure():
    """A cluster that speaks TLS, and knows its clients by their certificates."""
    pytest.importorskip("cryptography")
    security = distributed.Security.temporary()
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            host="127.0.0.1",
            protocol="tls",
            security=security,
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        distributed.Client(cluster, security=security, set_as_default=False) as client,
    ):
        yield client, security


def test_a_cluster_with_certificates(secure):
    client, _ = secure
    assert client.scheduler.address.startswith("tls://")
    expected = SVC(gamma=1.0, engine="serial", solver=BlockMinimization(blocks=2)).fit(X, Y)
    model = SVC(gamma=1.0, engine=client, solver=BlockMinimization(blocks=2)).fit(X, Y)
    np.testing.assert_array_equal(model.dual_coef_, expected.dual_coef_)
    with client.as_current():
        assert model.fit(lazy(X), lazy(Y)).converged_
    again = pickle.loads(pickle.dumps(model))
    assert again.engine == "dask+" + client.scheduler.address
    with client.as_current():
        assert again.fit(X, Y).converged_


def test_certificates_come_from_the_configuration(secure, tmp_path):
    client, security = secure
    files = {}
    for name in ("tls_ca_file", "tls_client_cert", "tls_client_key"):
        files[name] = tmp_path / name
        files[name].write_text(getattr(security, name))
    engine = "dask+" + client.scheduler.address
    model = SVC(gamma=1.0, engine=engine, solver=BlockMinimization(blocks=2))
    known = {
        "distributed.comm.tls.ca-file": str(files["tls_ca_file"]),
        "distributed.comm.tls.client.cert": str(files["tls_client_cert"]),
        "distributed.comm.tls.client.key": str(files["tls_client_key"]),
    }
    with dask.config.set(known):
        assert model.fit(X, Y).converged_
    with pytest.raises(ValueError, match="needs certificates"):
        model.fit(X, Y)


CLUSTER = re.compile(r"(?:Client|LocalCluster)\(((?:[^()]|\([^()]*\))*)\)")
STARTS = re.compile(r"n_workers|processes|\*\*")


@pytest.mark.parametrize("folder", ["docs", "examples", "benchmarks", "src", "tests", "README.md"])
def test_clusters_started_here_listen_to_this_computer_only(folder):
    top = ROOT / folder
    files = [top] if top.is_file() else [*top.rglob("*.py"), *top.rglob("*.md")]
    for file in files:
        text = file.read_text()
        for call in CLUSTER.findall(text):
            if STARTS.search(call):
                options = text if "**" in call else call
                assert re.search(r"host['\"]?\s*[=:]\s*['\"]127\.0\.0\.1", options), (file, call)


def test_the_example_in_the_documentation_listens_to_this_computer_only():
    psutil = pytest.importorskip("psutil")
    page = (ROOT / "docs" / "distributed.md").read_text()
    [options] = re.findall(r"^local = (\{.*\})$", page, re.MULTILINE)

    found = set()
    with distributed.Client(**eval(options), dashboard_address=None):
        for one in psutil.Process().net_connections("inet"):
            if one.status == psutil.CONN_LISTEN:
                found.add(one.laddr.ip)
    assert found == {"127.0.0.1"}
