"""Reports: every estimator has one, its figures are the model's, and nothing in it is executed."""

import importlib
import re
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn import metrics
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import margrave
from margrave import (
    SVC,
    SVR,
    BayesianSVC,
    KernelLogisticRegression,
    OneClassSVM,
    RowBlocks,
    Tuner,
)
from margrave.report import SECTIONS, Report, features, make_report, scored
from margrave.report.axis import Axis
from margrave.report.page import Absent, Markup, escaped, percent, tag
from margrave.solvers import DivideAndConquer
from tests.pages import Browser, Page, browser, value
from tests.test_cli import good, numbers, write
from tests.test_model_files import MODELS, rows_of

ALWAYS = {"data", "parameters", "certificate"}


def quickly(model, X, y):
    """A fitted copy: small problems are faster on one thread, and some are not finished."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(model).set_params(n_jobs=1).fit(X, y)


def expected(model, one_class):
    """The sections that a model has on rows of more than one class."""
    wanted = set(ALWAYS)
    if hasattr(model, "classes_"):
        wanted |= {"margins", "confusion-matrix"} | (set() if one_class else CURVES)
    elif hasattr(model, "offset_"):
        wanted |= {"scores"}
    else:
        wanted |= {"residuals"}
    if model.history_:
        wanted |= {"convergence"}
    if hasattr(model, "predict_proba"):
        wanted |= {"calibration"}
    if hasattr(model, "posterior_"):
        return wanted | {"posterior"}
    if model._local is not None or any("parts" in record for record in model.history_):
        wanted |= {"parts"}
    if model._kernel.name == "linear":
        wanted |= {"feature-weights"}
    elif "residuals" in wanted or hasattr(model, "classes_"):
        numeric = model._kernel.name != "precomputed" and not model._kernel.is_callable
        wanted |= {"importance-of-features"} if numeric and not one_class else set()
    return wanted | {"most-influential-support-vectors"}


CURVES = {"roc-and-precision-recall"}
# sections that are nothing without a picture
PICTURED = {
    "convergence", "margins", "scores", "residuals", "confusion-matrix", "calibration", "posterior",
    "feature-weights", "tuning", *CURVES,
}  # fmt: skip


def check(page, wanted):
    assert set(page.ids) - {"left-out"} == wanted
    for name in PICTURED & wanted:
        assert page.pictures[name]
        assert all(picture["drawn"] for picture in page.pictures[name]), name
    assert not page.tags & {"script", "img", "link", "iframe", "object"}
    assert "nan" not in page.text.lower().split()


@pytest.mark.parametrize("number", range(len(MODELS)))
def test_every_model_has_a_report(number):
    kind, model = MODELS[number]
    X, y = rows_of(kind)
    model = quickly(model, X, y)
    y = None if hasattr(model, "offset_") else y
    text = model.report(X, y)
    page = Page(text)
    check(page, expected(model, one_class=False))
    assert len(text) < 100_000
    left_out = (
        len(page.text) and page.words("left-out").count(": ") if "left-out" in page.ids else 0
    )
    assert len(page.ids) - ("left-out" in page.ids) + left_out == len(SECTIONS)
    check_figures(page, model, X, y)
    # one row is of one class, and everything else is as before
    first = X[:1] if not hasattr(X, "iloc") else X.iloc[:1]
    alone = Page(model.report(first, None if y is None else y[:1]))
    check(alone, expected(model, one_class=True))
    assert value(alone.rows("data")["rows"][0]) == 1


def check_figures(page, model, X, y):
    """Numbers on the page are the model's own."""
    facts = page.rows("certificate")
    objective = facts.get("objective (primal value)", facts.get("objective J at the mean"))
    assert value(objective[0]) == pytest.approx(model.objective_, rel=1e-4)
    if not hasattr(model, "posterior_"):
        assert value(facts["relative duality gap"][0]) == pytest.approx(model.gap_, rel=1e-2)
        bound = float(np.sum(model.objectives_ - model._absolute_gaps))
        assert value(facts["lower bound (dual value)"][0]) == pytest.approx(bound, rel=1e-4)
        assert facts["converged"] == [("no", "yes")[model.converged_]]
        assert value(page.tiles["support vectors"]) == len(model.support_)
        rows = [value(row[0]) for row in page.tables["most-influential-support-vectors"][1:]]
        assert set(rows) <= set(model.support_)
        largest = np.sort(np.abs(model._dual).max(axis=0))[::-1][: len(rows)]
        at = page.tables["most-influential-support-vectors"][0].index("coefficient")
        told = [value(r[at]) for r in page.tables["most-influential-support-vectors"][1:]]
        np.testing.assert_allclose(np.abs(told), largest, rtol=2e-3)
    if y is None:
        assert value(page.tiles["inliers"]) == pytest.approx(
            100 * np.mean(model.predict(X) == 1), abs=0.1
        )
    elif hasattr(model, "classes_"):
        predicted = model.predict(X)
        accuracy = metrics.accuracy_score(y, predicted)
        assert value(page.tiles["accuracy"]) == pytest.approx(100 * accuracy, abs=0.06)
        counts = metrics.confusion_matrix(y, predicted)
        texts = page.pictures["confusion-matrix"][0]["texts"][: np.count_nonzero(counts)]
        assert [value(text) for text in texts] == counts[counts > 0].tolist()
    else:
        apart = y - model.predict(X)
        root = page.tiles["root mean squared error"]
        assert value(root) == pytest.approx(np.sqrt(np.mean(apart**2)), rel=1e-3)


def test_curves_and_calibration_are_those_of_scikit_learn():
    X, y = make_moons(400, noise=0.4, random_state=0)
    model = KernelLogisticRegression(gamma=1.0).fit(X, y)
    page = Page(model.report(X, y))
    scores, chances = model.decision_function(X), model.predict_proba(X)[:, 1]
    words = page.words("roc-and-precision-recall")
    assert f"1: area {metrics.roc_auc_score(y, scores):.4f}" in words
    assert f"1: average {metrics.average_precision_score(y, scores):.4f}" in words
    told = page.words("calibration")
    assert f"the log loss is {metrics.log_loss(y, chances):.4g}" in told
    assert f"the Brier score {metrics.brier_score_loss(y, chances):.4g}" in told


def test_the_function_and_the_package_share_a_name():
    """`margrave.report(...)` is the function, whatever of the package has been imported."""
    importlib.import_module("margrave.report.page")
    assert margrave.report is make_report
    assert importlib.import_module("margrave.report").Report is Report


def test_changed_parameters_are_named():
    X, y = make_moons(300, random_state=0)
    model = SVC(C=7.5, gamma=2, solver=DivideAndConquer(early=1)).fit(X, y)
    page = Page(model.report(X, y))
    told = page.rows("parameters")
    assert told.pop("parameter") == ["value", "default"]
    assert told == {
        "C": ["7.5", "1.0"], "gamma": ["2", "'scale'"], "solver": ["DivideAndConquer", "'auto'"],
        "solver__early": ["1", "None"],
    }  # fmt: skip
    assert "loss='hinge'" in page.words("parameters")


def test_parts_and_levels():
    X, y = make_moons(2000, noise=0.2, random_state=0)
    model = SVC(gamma=2.0, solver=DivideAndConquer(levels=2, early=1)).fit(X, y)
    page = Page(model.report(X, y))
    rows = page.rows("parts")
    assert [rows["level 2"][0], rows["level 1"][0]] == ["16", "4"]
    low, high = (
        record[key] for record in model.history_[-1:] for key in ("smallest_part", "largest_part")
    )
    assert rows["level 1"][1] == f"{low:,} to {high:,}"
    assert "A model of parts" in page.words("head")
    sizes = np.bincount(model._local.assign(X, 1), minlength=4)
    assert sizes.sum() == 2000 and len(page.pictures["parts"]) == 2
    whole = SVC(gamma=2.0, solver="dc").fit(X, y)  # on its way through parts
    page = Page(whole.report(X, y))
    assert "the last model of parts" in page.words("parts")
    assert "models of parts, independent problems" in page.words("convergence")


# --- rows of any kind ----------------------------------------------------------------------


def test_weights_are_repeated_rows():
    X, y = make_moons(200, noise=0.4, random_state=1)
    model = KernelLogisticRegression(gamma=1.0).fit(X, y)
    times = np.random.default_rng(0).integers(0, 4, 200)
    weighed = Page(model.report(X, y, sample_weight=times))
    repeated = Page(model.report(np.repeat(X, times, axis=0), np.repeat(y, times)))
    assert weighed.tiles["accuracy"] == repeated.tiles["accuracy"]
    for name in ("margins", "confusion-matrix", *CURVES, "calibration"):
        assert weighed.words(name) == repeated.words(name)
        assert weighed.tables.get(name) == repeated.tables.get(name)
    assert weighed.rows("data")["rows of weight zero"] == [str(np.sum(times == 0))]


@pytest.mark.parametrize(
    "model",
    [
        SVC(),
        SVC(solver=DivideAndConquer(early=1)),
        KernelLogisticRegression(),
        BayesianSVC(n_samples=10, features=20),
    ],
    ids=["SVC", "parts", "logistic", "posterior"],
)
def test_blocks_of_rows_make_no_difference(monkeypatch, model):
    X, y = load_iris(return_X_y=True)
    model = quickly(model, X, y)
    whole = Page(model.report(X, y))
    monkeypatch.setattr(features, "_VALUES", 4 * 17)
    for again in (Page(model.report(X, y)), Page(model.report(X.tolist(), y.tolist()))):
        assert (again.tiles, again.tables) == (whole.tiles, whole.tables)
        assert again.texts == whole.texts


def test_tables_and_sparse_rows():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    X, y = load_iris(return_X_y=True)
    names = ["sepal length", "sepal width", "petal length", "petal width"]
    frame = pandas.DataFrame(X, columns=names)
    model = SVC(kernel="linear").fit(frame, y)
    page = Page(model.report(frame, pandas.Series(y)))
    assert set(names) <= page.rows("data").keys()
    assert "petal width" in page.pictures["feature-weights"][0]["texts"]
    assert model.report(polars.from_pandas(frame), y) == model.report(frame, y)
    S = sparse.csr_matrix(np.where(X < 1.0, 0.0, X))
    inside = Page(SVC(kernel="linear").fit(S, y).report(S.tocsc(), y))
    dense = Page(SVC(kernel="linear").fit(S, y).report(S.toarray(), y))
    assert inside.tables["data"] == dense.tables["data"]


def test_rows_in_blocks():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] > 0.3).astype(int)
    blocks = RowBlocks([X[:100], lambda: X[100:]])
    model = SVC(kernel="linear", intercept="regularized").fit(blocks, y)
    page = Page(model.report(blocks, y))
    assert page.tiles["accuracy"] == Page(model.report(X, y)).tiles["accuracy"]
    assert "feature-weights" in page.ids
    assert "has no copy of its support vectors" in page.words("left-out")


def test_means_of_features_far_from_zero():
    """A sum of squares would lose all digits here."""
    rng = np.random.default_rng(0)
    X = 1e9 + rng.normal(size=(300, 1))
    found = features.Features()
    for part in (X[:7], X[7:250], X[250:]):
        found.add(part)
    assert found.deviation[0] == pytest.approx(X.std(), rel=1e-5)
    assert found.mean[0] == pytest.approx(X.mean(), rel=1e-14)
    assert (found.low[0], found.high[0], found.filled[0]) == (X.min(), X.max(), 300)


def test_two_hundred_classes():
    X, y = make_blobs(600, n_features=5, centers=200, random_state=0)
    model = SVC(gamma=0.1, tol=0.1).fit(X, y)
    y[:40] = y[40:80]  # so that there are mistakes
    text = model.report(X, y)
    page = Page(text)
    assert len(text) < 200_000
    assert set(page.ids) >= {"margins", "confusion-matrix", "convergence"}
    assert "200 classes would need as many curves" in page.words("left-out")
    counts = metrics.confusion_matrix(y, model.predict(X))
    np.fill_diagonal(counts, 0)
    pairs = [row for row in page.tables["confusion-matrix"] if len(row) == 4 and row[0].isdigit()]
    pairs = [row for row in pairs if row[1].isdigit() and "%" not in row[2]]
    assert len(pairs) == min(15, np.count_nonzero(counts)) > 0
    for label, other, count, _ in pairs:
        assert counts[int(label), int(other)] == int(count)
    assert max(len(page.tables[name]) for name in page.tables) < 60
    assert value(page.tiles["accuracy"]) == pytest.approx(100 - counts.sum() / 6, abs=0.06)


def test_many_rows_are_drawn_together():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 5))
    y = X[:, 0] + 0.2 * rng.normal(size=len(X))
    model = SVR(kernel="linear").fit(X[:500], y[:500])
    tracemalloc.start()
    text = model.report(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(text) < 120_000 and peak < 20 * X.nbytes
    assert "They are not the training rows" in Page(text).text


def test_whose_rows_they_are():
    X, y = make_moons(100, random_state=0)
    model = SVC().fit(X, y)
    assert "They are the training rows" in model.report(X, y)
    assert "They are not the training rows" in model.report(X + 1.0, y)
    assert "They are not the training rows" in model.report(X[:50], y[:50])
    K = X @ X.T
    model = SVC(kernel="precomputed").fit(K, y)
    assert "They are the training rows" in model.report(K, y)
    assert "They are not the training rows" in model.report((X + 0.3) @ X.T, y)


def test_models_without_a_history(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = SVC().fit(X, y)
    margrave.save_libsvm_model(model, tmp_path / "iris.model")
    page = Page(margrave.load_libsvm_model(tmp_path / "iris.model").report(X, y))
    assert "convergence" not in page.ids and "Convergence: " in page.words("left-out")
    assert "There is no certificate" in page.words("head")
    assert page.rows("certificate")["relative duality gap"] == ["unknown"]
    margrave.save_libsvm_model(
        SVC(kernel="linear", multi_class="ovr").fit(X, y), tmp_path / "linear.model"
    )
    page = Page(margrave.load_libsvm_model(tmp_path / "linear.model").report(X, y))
    assert "most-influential-support-vectors" not in page.ids
    model.save(tmp_path / "iris")
    assert margrave.load(tmp_path / "iris").report(X, y) == model.report(X, y)
    model.history_ = []
    assert "convergence" not in Page(model.report(X, y)).ids


def test_outliers_with_labels():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(90, 2)), rng.normal(5.0, 1.0, size=(10, 2))])
    y = np.repeat([1, -1], [90, 10])
    model = OneClassSVM(nu=0.1).fit(X)
    page = Page(model.report(X, y))
    assert {"scores", "confusion-matrix", *CURVES} <= set(page.ids)
    assert value(page.tiles["accuracy"]) == pytest.approx(100 * np.mean(model.predict(X) == y))
    other = Page(model.report(X, np.arange(100)))  # labels that say nothing of outliers
    assert "confusion-matrix" not in other.ids and "+1 and" in other.words("left-out")


# --- searches ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def search():
    X, y = load_iris(return_X_y=True)
    grid = {"C": [0.1, 1.0, 10.0], "gamma": [0.01, 0.1], "loss": ["hinge", "squared_hinge"]}
    return X, y, Tuner(SVC(), grid, cv=3).fit(X, y)


def test_the_map_of_a_search(search, tmp_path):
    X, y, tuner = search
    text = tuner.report(X, y)
    page = Page(text)
    results = tuner.cv_results_
    best = np.array([
        [max(m for m, p in zip(results["mean_test_score"], results["params"], strict=True)
             if (p["C"], p["gamma"]) == (C, gamma)) for gamma in (0.01, 0.1)]
        for C in (0.1, 1.0, 10.0)
    ])  # fmt: skip
    texts = page.pictures["tuning"][0]["texts"]
    assert texts[:6] == [f"{score:.3g}" for score in best.ravel()]
    assert texts[6:] == ["0.1", "1", "10", "0.01", "0.1", "gamma", "C"]
    first = page.tables["tuning"][1]
    assert [float(cell) for cell in first[:2]] == [
        tuner.best_params_["C"],
        tuner.best_params_["gamma"],
    ]
    assert value(first[3]) == pytest.approx(tuner.best_score_, rel=1e-4)
    # the best estimator knows of the search, also out of a file
    assert tuner.best_estimator_.report(X, y) == text
    tuner.best_estimator_.save(tmp_path / "best")
    assert margrave.load(tmp_path / "best").report(X, y) == text


def test_a_new_fit_forgets_the_search(search):
    X, y, tuner = search
    model = SVC(C=2.0).fit(X, y)
    model.tuning_ = tuner.best_estimator_.tuning_
    assert "tuning" in Page(model.report(X, y)).ids
    assert "tuning" not in Page(model.fit(X, y).report(X, y)).ids
    model = quickly(BayesianSVC(n_samples=10, burn_in=5, features=5), X, y)
    model.tuning_ = tuner.best_estimator_.tuning_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not hasattr(model.fit(X, y), "tuning_")


@pytest.mark.parametrize(
    ("grid", "pictures"),
    [({"C": [0.1, 1.0, 10.0, 100.0]}, 1), ({"kernel": ["rbf", "linear"]}, 1), ({"C": [1.0]}, 0)],
)
def test_searches_over_one_parameter(grid, pictures):
    X, y = load_iris(return_X_y=True)
    tuner = Tuner(make_pipeline(StandardScaler(), SVC()), {f"svc__{k}": v for k, v in grid.items()})
    page = Page(tuner.fit(X, y).report(X, y))
    assert len(page.pictures.get("tuning", [])) == pictures
    assert "Rows are first transformed by StandardScaler" in page.words("parameters")
    assert "after StandardScaler" in page.words("most-influential-support-vectors")


def test_searches_without_a_model(search):
    X, y, _ = search
    with pytest.raises(NotFittedError):
        Tuner(SVC(), {"C": [1.0]}).report(X, y)
    with pytest.raises(ValueError, match="set refit=True"):
        Tuner(SVC(), {"C": [1.0, 2.0]}, refit=False).fit(X, y).report(X, y)
    foreign = Tuner(LogisticRegression(max_iter=500), {"C": [1.0, 2.0]}).fit(X, y)
    with pytest.raises(ValueError, match="needs an estimator of margrave, got Logistic"):
        foreign.report(X, y)


# --- what is wrong -------------------------------------------------------------------------

NASTY = [
    "<script>alert(1)</script>",
    '" onload="alert(2)',
    "</style><img src=x>",
    "a\x00b&amp;",
]


def test_names_and_labels_are_text():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.normal(size=(90, 4)), columns=NASTY)
    y = np.array(["<b>red", "</section>", "'\"`"])[np.digitize(X.iloc[:, 0], [-0.4, 0.4])]
    for model in (
        SVC(kernel="linear", class_weight={"<b>red": 2.0}),
        KernelLogisticRegression(),
        BayesianSVC(kernel="linear", n_samples=20),
    ):
        text = quickly(model, X, y).report(X, y)
        page = Page(text)
        assert not page.tags & {"script", "img", "b2"} and "<b>red" not in text
        for name in NASTY[:3]:
            assert name in page.text
        assert {"<b>red", "</section>", "'\"`"} <= page.rows("data").keys()
    tuner = Tuner(SVC(), {"class_weight": [{"<b>red": 1.0}, {"<b>red": 3.0}]}, cv=2).fit(X, y)
    assert "<b>red" not in tuner.report(X, y)


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_text_is_escaped(text):
    made = tag("p", text, title=text)
    assert type(made) is Markup
    inside = made[len('<p title="') : -len("</p>")]
    assert inside.count("<") == 0 and inside.count('"') == 1 and inside.count(">") == 1
    assert escaped(text) in made


def test_what_is_no_character_is_replaced():
    assert escaped("a\x00\ud800\ufffe<") == "a\ufffd\ufffd\ufffd&lt;"


def test_bad_input():
    X, y = load_iris(return_X_y=True)
    model = SVC().fit(X, y)
    for arguments, message in (
        ((X[:, :3], y), "X has 3 features, but SVC is expecting 4"),
        ((X, y[:-1]), "inconsistent numbers of samples"),
        ((X, None), "a report on SVC needs y"),
        ((X, y + 1), "labels that were not in training: 3"),
        ((X, np.full(150, "x")), "labels that were not in training: .*'x'"),
        ((X[:0], y[:0]), "no rows"),
        ((X[0], y[:1]), "1 dimensions instead of 2"),
        ((np.where(X > 7, np.nan, X), y), "NaN"),
        ((X, y, np.zeros(150)), "non-zero"),
        ((X, y, -np.ones(150)), "[Nn]egative"),
        ((X, y, np.ones(3)), "sample_weight.shape"),
    ):
        with pytest.raises(ValueError, match=message):
            model.report(*arguments)
    with pytest.raises(NotFittedError):
        SVC().report(X, y)
    with pytest.raises(ValueError, match="NaN"):
        SVR().fit(X, y).report(X, np.full(150, np.nan))
    with pytest.raises(ValueError, match="estimator of margrave"):
        make_report(LogisticRegression(max_iter=500).fit(X, y), X, y)


def test_missing_certificates_are_named():
    """A fit that was stopped, and a kernel that is none."""
    X, y = make_moons(300, noise=0.3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stopped = SVC(max_iter=1, tol=1e-9).fit(X, y)
        wild = SVC(kernel="sigmoid", gamma=5.0, coef0=-3.0, C=100.0).fit(X, y)
    assert "Not converged" in Page(stopped.report(X, y)).words("head")
    page = Page(wild.report(X, y))
    assert wild.gap_ < np.inf or "Nothing can be certified" in page.words("head")


def test_a_report_is_a_string_that_saves_itself(tmp_path):
    X, y = load_iris(return_X_y=True)
    report = SVC().fit(X, y).report(X, y)
    assert isinstance(report, Report) and isinstance(report, str)
    report.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_bytes().decode() == report
    assert re.fullmatch(r"<Report, \d+ kB: write it with save\(path\)>", repr(report))
    shown = report._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and shown.count("<") == 2
    with pytest.raises(FileNotFoundError):
        report.save(tmp_path / "nowhere" / "report.html")


def test_sections_say_why_they_are_left_out():
    X, y = load_iris(return_X_y=True)
    rows = scored.Scored(SVC().fit(X, y), X, y)
    for section in SECTIONS:
        made = section(rows)
        if isinstance(made, Absent):
            assert made.reason.endswith(".") and made.title
        else:
            assert made.lead.endswith(".") and made.body


# --- the command ---------------------------------------------------------------------------


@pytest.fixture
def files(run, tmp_path):
    """A model behind a scaler, of a table with names, in the folder of the test."""
    X, y = numbers()
    write(tmp_path, "csv", X, y)
    good(run("train", "data.csv", "--scale", "standard", "-o", "model", "-q"))
    return X, y


def test_the_command_writes_a_page(run, files, tmp_path):
    X, y = files
    code, out, err = run("report", "model", "data.csv", "-o", "report.html")
    assert (code, out) == (0, "") and re.fullmatch(r"margrave: .*|wrote report.html, \d+ kB\n", err)
    page = Page((tmp_path / "report.html").read_text())
    accuracy = np.mean(margrave.load("model").predict(X) == y)
    assert value(page.tiles["accuracy"]) == pytest.approx(100 * accuracy, abs=0.06)
    assert {"a", "b", "c", "d"} <= page.rows("data").keys()
    assert "Rows are first transformed by StandardScaler" in page.words("parameters")
    good(run("report", "model", "data.csv", "-q"))
    assert (tmp_path / "model.html").read_text() == (tmp_path / "report.html").read_text()


def test_the_command_shows_the_search(run, tmp_path):
    X, y = numbers()
    (data,) = write(tmp_path, "libsvm", X, y)
    good(
        run(
            "tune", data, "--grid", "C=1,10", "--grid", "gamma=0.1,1", "-v", "2", "-o", "best", "-q"
        )
    )
    good(run("report", "best", data, "-o", "report.html", "-q"))
    assert "tuning" in Page((tmp_path / "report.html").read_text()).ids


def test_the_command_on_models_without_labels(run, tmp_path):
    X, _ = numbers()
    np.savez(tmp_path / "rows.npz", X=X, y=np.zeros(len(X)))
    good(run("train", "rows.npz", "-s", "OneClassSVM", "-n", "0.2", "-o", "model", "-q"))
    np.savez(tmp_path / "rows.npz", X=X)
    good(run("report", "model", "rows.npz", "-o", "report.html", "-q"))
    assert "scores" in Page((tmp_path / "report.html").read_text()).ids


BAD_DATA = {
    "narrow.csv": (
        "a,b,label\n1,2,1\n",
        "narrow.csv: the rows have 2 features, the model expects 4",
    ),
    "nolabel.csv": ("a,b,c,d\n1,2,3,4\n", "nolabel.csv: there are no labels to compare with"),
    "hole.csv": ("a,b,c,d,label\n1,2,3,4,\n", "hole.csv:2: label: the label is missing"),
    "other.csv": (
        "a,b,c,d,label\n1,2,3,4,7\n",
        "other.csv: y contains labels that were not in training: 7",
    ),
    "names.csv": ("a,b,c,x,label\n1,2,3,4,1\n", "names.csv: a column is named 'x'"),
    "empty.csv": ("", "empty.csv: the file contains no rows"),
    "missing.csv": (None, "missing.csv: No such file or directory"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_data_is_one_line_and_no_page(run, files, tmp_path, name):
    content, message = BAD_DATA[name]
    if content is not None:
        (tmp_path / name).write_text(content)
    before = sorted(path.name for path in tmp_path.iterdir())
    code, out, err = run("report", "model", name, "-o", "report.html")
    assert (code, out) == (2, "") and message in err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_pages_that_cannot_be_written(run, files, tmp_path):
    (tmp_path / "old.html").write_text("old")
    for output, message in (
        ("nowhere/report.html", "nowhere: no such directory"),
        (".", ".: is a directory"),
        ("/dev/full", "/dev/full: No space left on device"),
    ):
        code, _, err = run("report", "model", "data.csv", "-o", output)
        assert code == 2 and message in err
    code, _, err = run("report", "data.csv", "data.csv", "-o", "old.html")
    assert code == 2 and "data.csv: not a model file" in err
    assert (tmp_path / "old.html").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"data.csv", "model", "old.html"}


def test_a_page_without_permission(run, closed_folder):
    """Told before anything is read."""
    code, _, err = run("report", "missing", "missing.csv", "-o", closed_folder / "report.html")
    assert code == 2 and f"{closed_folder}/report.html: Permission denied" in err


# --- axes ----------------------------------------------------------------------------------

FLOATS = st.floats(allow_nan=True, allow_infinity=True)


@settings(deadline=None)
@given(st.lists(FLOATS, max_size=6), st.booleans())
def test_axes_hold_their_values(values, log):
    axis = Axis.over("x", values, log=log, pad=0.05)
    assert axis.low < axis.high
    finite = [v for v in values if np.isfinite(v) and abs(v) < 1e100 and (not log or v > 1e-99)]
    for v in finite:
        assert axis.low <= v * (1 + 1e-9) + 1e-300 or log
        assert 0.0 <= axis.at(v) <= 1.0
    places = [place for place, _ in axis.ticks()]
    texts = [text for _, text in axis.ticks()]
    assert 1 <= len(places) <= 13 and len(set(texts)) == len(texts)
    assert np.isfinite(axis.at(places)).all() and np.all(np.diff(axis.at(places)) > 0)


@settings(deadline=None)
@given(st.floats(0.0, 1.0))
def test_shares_are_never_rounded_to_none_or_all(share):
    text = percent(share)
    assert (text == "0 %") == (share == 0.0) or share < 1e-8
    assert (text == "100 %") == (share == 1.0) or share > 1 - 1e-8


# --- a real browser ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def looked_at(tmp_path_factory):
    """A page with everything that a page can have, in a browser."""
    command = browser()
    if command is None:
        pytest.skip("needs a headless browser: Debian's chromium")
    folder = tmp_path_factory.mktemp("browser")
    X, y = make_moons(1200, noise=0.3, random_state=0)
    labels = np.array(["a class with quite a long name", "another one"])[y]
    grid = {"C": [0.1, 1.0, 10.0], "gamma": [0.1, 1.0]}
    model = KernelLogisticRegression(solver=DivideAndConquer(levels=2, early=1))
    tuner = Tuner(model, grid, cv=2).fit(X, labels)
    tuner.best_estimator_.report(X, labels).save(folder / "page.html")
    return Browser(command, folder, folder / "page.html"), Page((folder / "page.html").read_text())


@pytest.mark.parametrize("width", [360, 1100])
def test_a_browser_shows_every_part(looked_at, width):
    chrome, page = looked_at
    found = chrome.look(width)
    assert list(found["sections"]) == page.ids
    assert {"tuning", "parts", "calibration", "convergence"} <= set(page.ids)
    assert found["width"] <= width, "the page is wider than the screen"
    assert not found["outside"], "texts leave their picture"
    assert len(found["pictures"]) == sum(map(len, page.pictures.values()))
    for _, _, wide, high in [*found["sections"].values(), *found["pictures"]]:
        assert wide >= 0.4 * min(width, 600) and high >= 40
    tops = [y for _, y, _, _ in found["sections"].values()]
    assert tops == sorted(tops)
    if width == 360:
        return
    # what the browser paints: every section and picture has ink, also in the dark
    for dark in (False, True):
        image = chrome.picture(width, found["height"], dark)
        assert (image[5, 5].mean() < 0.3) == dark
        for x, y, wide, high in [*found["sections"].values(), *found["pictures"]]:
            part = image[int(y) + 2 : int(y + high) - 2, int(x) + 2 : int(x + wide) - 2]
            apart = np.abs(part - np.median(part, axis=(0, 1))).max(axis=2)
            assert np.mean(apart > 0.25) > 0.002, (x, y, dark)


def test_a_browser_prints_it(looked_at):
    chrome, _ = looked_at
    printed = chrome.printed()
    assert printed.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", printed)) >= 2
