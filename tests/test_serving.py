"""The web service of docs/serving.md, and predictions of a few rows."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from benchmarks import latency
from margrave import SVC, SVR, OneClassSVM, _core
from margrave.kernels import Kernel, core_rows

PAGE = Path(__file__).parent.parent / "docs" / "serving.md"
KERNELS = ["rbf", "linear", "poly", "sigmoid", "laplacian", "exponential", "matern32", "matern52"]


# --- the service ---------------------------------------------------------------------------------


class Refused(Exception):
    """Stands for fastapi.HTTPException."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class App:
    """Stands for fastapi.FastAPI: keeps the routes, and calls them as a request would."""

    def __init__(self) -> None:
        self.routes = {}

    def post(self, path):
        return lambda function: self.routes.setdefault(path, function)

    def request(self, path, body):
        try:
            return 200, json.loads(json.dumps(self.routes[path](json.loads(body))))
        except Refused as refused:
            return refused.status, str(refused)


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Sends a request to the service of the page, by FastAPI's test client if it is there."""
    if not PAGE.exists():
        pytest.skip("the documentation is not part of this copy")
    monkeypatch.chdir(tmp_path)
    train, serve = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len([line for line in serve.splitlines() if line.strip()]) <= 20
    exec(train, {})
    try:
        from fastapi.testclient import TestClient
    except (ImportError, RuntimeError):  # without httpx
        stand_in = types.SimpleNamespace(FastAPI=App, HTTPException=Refused)
        monkeypatch.setitem(sys.modules, "fastapi", stand_in)
        names: dict = {}
        exec(serve, names)
        return lambda body: names["app"].request("/predict", body)
    names = {}
    exec(serve, names)
    client = TestClient(names["app"])

    def request(body):
        answer = client.post("/predict", content=body)
        return answer.status_code, answer.json()

    return request


def test_the_service_answers_and_refuses(service):
    status, labels = service("[[0.0, 1.0], [1.0, -0.5]]")
    assert status == 200 and labels == [0, 1]
    status, text = service("[[0.0, 1.0, 2.0]]")
    assert status == 422 and "features" in json.dumps(text)
    assert service("[]")[0] == 422


# --- a few rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rows", [1, 3, 4, 5])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_scores_of_a_few_rows(kernel, rows, kind):
    rng = np.random.default_rng(0)
    numbers = {"gamma": 0.2, "degree": 3, "coef0": 0.5, "power": 1.0}
    for n, d in ((1, 1), (7, 3), (50, 21)):
        X, points = rng.standard_normal((rows, d)).astype(kind), rng.standard_normal((n, d))
        points, coef = points.astype(kind), rng.standard_normal((n, 2))
        description = Kernel(kernel, **numbers)
        found, values = _core.scores(
            description.core(), core_rows(X), core_rows(points), coef, "float64", 1, seconds=1e18
        )
        exact = X.astype(np.float64), points.astype(np.float64)
        expected = description.values(*exact) @ coef
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(coef).sum() * d**3)
        assert values == rows * n or (kernel == "linear" and rows > 4)  # by weights


def test_a_row_alone_has_the_score_that_it_has_among_others():
    X, y = labelled_rows()
    for model in (SVC(), SVC(kernel="poly", tol=1e-6), SVR(), OneClassSVM(kernel="laplacian")):
        model.fit(X, y)
        scores = getattr(model, "decision_function", model.predict)
        alone = np.concatenate([scores(X[i : i + 1]) for i in range(20)])
        np.testing.assert_allclose(alone, scores(X)[:20], rtol=1e-6, atol=1e-6)


def labelled_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4))
    return X, (X[:, 0] > 0.0).astype(int)


def test_bad_rows_are_refused_as_by_scikit_learn():
    X, y = labelled_rows()
    with pytest.raises(NotFittedError):
        SVC().predict(X[:1])
    model = SVC().fit(X, y)
    for bad, message in (
        (X[:1, :3], "features"),
        (X[:0], "minimum of 1"),
        (X[0], "2D array"),
        (X[:1] * np.nan, "NaN"),
        (X[:1] * np.inf, "infinity"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(bad)
    named = SVC().fit(pd.DataFrame(X, columns=list("abcd")), y)
    with pytest.warns(UserWarning, match="valid feature names"):
        named.predict(X[:1])


def test_latency_is_measured_with_a_thousand_support_vectors(monkeypatch):
    monkeypatch.setattr(latency, "CALLS", 5)
    found = latency.measure(10)
    assert found["support"] == {"margrave": 1000, "scikit-learn": 1000}
    assert all(seconds > 0.0 for seconds in found["seconds"].values())
    if latency.FILE.exists():
        cases = {case["features"]: case for case in json.loads(latency.FILE.read_text())["cases"]}
        assert cases[20]["seconds"]["margrave predict"] < latency.GOAL
