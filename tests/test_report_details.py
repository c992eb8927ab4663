"""Reports: what is compared, ordered and marked, and what a figure must not hide."""

import re

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import margrave
from margrave import SVC, SVR, plots
from margrave.report import Report
from tests.data import load


@pytest.fixture(scope="module")
def moons():
    X, y = load("moons")
    return X[:200], y[:200]


def section(page, name):
    return page.split(f'id="{name}"')[1].split("</section>")[0]


def cells(text):
    rows = re.findall("<tr[^>]*>(.*?)</tr>", text)
    return [re.findall("<td[^>]*>(.*?)</td>", row) for row in rows][1:]


def test_ties_are_broken_by_the_residual():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] + rng.normal(size=300)
    y[[77, 200]] += 20.0, -15.0
    model = SVR(C=0.05, gamma=0.5).fit(X, y)
    assert np.sum(np.abs(model.dual_coef_) > 0.05 * (1 - 1e-9)) > 100
    text = section(model.report(X, y), "most-influential-support-vectors")
    assert "those with the largest residuals come first" in text and "residual</th>" in text
    assert [row[0] for row in cells(text)[:2]] == ["77", "200"]
    residuals = np.abs(y - model.predict(X))
    shown = [float(row[3].replace("\u2212", "-")) for row in cells(text)]
    np.testing.assert_allclose(np.abs(shown), np.sort(residuals)[::-1][:10], rtol=5e-3)
    other = section(model.report(X[:50], y[:50]), "most-influential-support-vectors")
    assert "residual</th>" not in other and "about the training rows would show" in other


def test_a_whole_number_is_the_default(moons):
    page = SVC(C=1, degree=3, coef0=0).fit(*moons).report(*moons)
    assert "All parameters are at their defaults." in section(page, "parameters")
    assert "2 parameters differ" in SVC(C=2, gamma=1).fit(*moons).report(*moons)


def test_rounds_are_counted_once(moons):
    model = SVC(C=100.0, gamma=5.0, tol=1e-8).fit(*moons)
    model.history_ = [{**model.history_[0], "where": "sample"}, *model.history_]
    page = model.report(*moons)
    assert "rounds on all rows" in section(page, "certificate")
    expected = f"{len(model.history_)} rounds in"
    assert expected in section(page, "convergence")
    assert f"{np.sum(model.n_iter_)} of them on all rows" in section(page, "convergence")


def test_settings_that_were_dropped_are_marked(moons):
    model = SVC().fit(*moons)
    model.tuning_ = {
        "metric": "score",
        "names": ["C", "gamma"],
        "settings": [[1.0, 0.1], [1.0, 1.0], [10.0, 0.1], [10.0, 1.0]],
        "mean": np.array([0.8, 0.99, 0.85, 0.9]),  # the best mean is over one split
        "deviation": np.full(4, 0.01),
        "splits": np.array([1, 1, 5, 5]),
    }
    text = section(model.report(*moons), "tuning")
    assert text.count('class="dropped"') == text.count("(dropped)") == 2
    assert text.count('class="none"') == 2 and "have no colour in the figure" in text
    (best,) = re.findall('<tr class="best">(.*?)</tr>', text)
    assert re.findall("<td[^>]*>(.*?)</td>", best)[:3] == ["10", "1", "0.9"]


def test_importance_finds_what_matters():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    y = X[:, 3] * X[:, 1] > 0
    names = list("abcde")
    page = margrave.report(SVC(C=10.0, gamma=0.5).fit(X[:200], y[:200]), X[200:], y[200:],
                           names=names)  # fmt: skip
    text = section(page, "importance-of-features")
    found = re.findall(r">([a-e])<", text)
    assert set(found[:2]) == {"b", "d"} and len(found) == 5
    target = X[:, 2] ** 2
    page = margrave.report(SVR(C=10.0, gamma=0.5).fit(X, target), X, target, names=names)
    text = section(page, "importance-of-features")
    assert re.findall(r">([a-e])<", text)[0] == "c" and "loss of R2" in text


def test_pipelines_have_a_report(moons):
    X, y = moons
    pipeline = make_pipeline(StandardScaler(), SVC()).fit(X, y)
    page = margrave.report(pipeline, X, y)
    assert isinstance(page, Report)
    assert "Rows are first transformed by" in section(page, "parameters")
    assert "Feature values are those after" in section(page, "most-influential-support-vectors")


def test_every_class_has_its_name_in_the_confusion_matrix():
    rng = np.random.default_rng(0)
    names = np.array([f"species {letter}" for letter in "abcdefgh"])
    y = np.repeat(names, 20)
    X = rng.normal(size=(160, 2)) + np.repeat(np.arange(8), 20)[:, None]
    text = section(SVC().fit(X, y).report(X, y), "confusion-matrix").split("</svg>")[0]
    assert all(len(re.findall(f">{name}<", text)) == 2 for name in names)


def test_shades_are_described_for_light_and_dark(moons):
    page = SVC().fit(*moons).report(*moons)
    assert "darker" not in page
    assert re.search('class="bar">.*?</span></span> [0-9.]+ %</td>', section(page, "data"))


def test_margins_need_a_classifier(moons):
    X, y = moons
    with pytest.raises(ValueError, match="SVR is no fitted classifier, and has no margins"):
        plots.margin_distribution(SVR().fit(X, y), X, y)
    with pytest.raises(ValueError, match="SVC is no fitted classifier"):
        plots.margin_distribution([SVC().fit(X, y), SVC()], X, y)


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_three_classes_have_three_pairs_and_three_rests(scheme):
    X, y = load_iris(return_X_y=True)
    page = SVC(multi_class=scheme).fit(X, y).report(X, y)
    names = {"ovo": ["0 against 1", "0 against 2", "1 against 2"]}.get(
        scheme, [f"{name} against the rest" for name in range(3)]
    )
    assert {
        row[0] for row in cells(section(page, "certificate")) if row and "against" in row[0]
    } == {*names}
    shown = re.search("within ([^ ]+) % of the optimum", page)[1]
    assert len(shown.replace("e-", "")) <= 5
