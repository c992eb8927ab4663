"""Pictures: what they return and show; how they look is for eyes, see examples/."""

import runpy
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from sklearn.datasets import load_iris

from margrave import SVC, SVR, ODMClassifier, plots
from tests.data import load

matplotlib.use("Agg")
ROOT = Path(__file__).parent.parent


@pytest.fixture
def models():
    X, y = load("moons200")
    return X, y, SVC(gamma=1.0).fit(X, y), ODMClassifier(lam=50.0, gamma=1.0).fit(X, y)


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_margins_of_one_estimator(models):
    X, y, svm, _ = models
    ax = plots.margin_distribution(svm, X, y)
    assert isinstance(ax, Axes)
    wrong = 100 * np.mean(svm.predict(X) != y)
    assert texts(ax) == [f"SVC: {wrong:.1f} % below zero"]


def test_margins_side_by_side_are_cumulative(models):
    X, y, svm, odm = models
    ax = plots.margin_distribution([svm, odm], X, y, labels=["svm", "odm"])
    assert [text.split(":")[0] for text in texts(ax)] == ["svm", "odm"]
    for line in [line for line in ax.lines if len(line.get_ydata()) > 100]:
        assert np.all(np.diff(line.get_ydata()) >= 0) and line.get_ydata()[-1] == 100.0


def test_margins_of_several_classes():
    d = load_iris()
    model = SVC().fit(d.data, d.target)
    margin = plots.margins(model, d.data, d.target)
    np.testing.assert_array_equal(margin > 0, model.predict(d.data) == d.target)
    assert isinstance(plots.margin_distribution(model, d.data, d.target), Axes)
    with pytest.raises(ValueError, match="y contains labels that were not in training"):
        plots.margins(model, d.data, d.target + 5)


def test_convergence(models):
    X, _, svm, odm = models
    given = matplotlib.figure.Figure().subplots()
    ax = plots.convergence([svm, odm, SVR().fit(X, X[:, 0])], ax=given)
    assert ax is given and ax.get_yscale() == "log"
    assert texts(ax)[:2] == ["SVC: gap", "ODMClassifier: gap"]
    drawn = ax.lines[0].get_ydata()
    np.testing.assert_array_equal(drawn, [record["gap"] for record in svm.history_])


def test_boundary(models):
    X, y, svm, odm = models
    assert isinstance(plots.decision_boundary(odm, X, y, resolution=40), Axes)
    d = load_iris()
    three = SVC().fit(d.data[:, :2], d.target)
    assert isinstance(plots.decision_boundary(three, d.data[:, :2], d.target, resolution=40), Axes)
    with pytest.raises(ValueError, match="exactly two features"):
        plots.decision_boundary(svm, d.data, d.target)
    with pytest.raises(ValueError, match="2 labels for 1 estimators"):
        plots.margin_distribution(svm, X, y, labels=["a", "b"])


def test_example_runs(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(pyplot.gcf()))
    runpy.run_path(str(ROOT / "examples" / "margins.py"), run_name="__main__")
    assert len(shown) == 3 and all(figure.axes for figure in shown)
    assert "labels are certified" in capsys.readouterr().out
