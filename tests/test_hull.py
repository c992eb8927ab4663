"""Distances of hulls: every solver against goldens, bounds and properties; projections; shards."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from margrave import SVC, HardMarginSVC, NuSVC, NuSVR
from margrave.blocks.hull import fill, level, project
from margrave.blocks.saddle import rotated
from margrave.engines import Serial
from margrave.engines.base import size_of
from margrave.solvers import BlockMinimization, FrankWolfe, PairSwaps, Saddle, WorkingSet
from margrave.solvers.hull.distance import bounds
from margrave.solvers.hull.shards import find_levels
from tests.data import GOLDEN, load

ROWS = {"iris": [0, 75, 149], "bc": [0, 284, 568], "moons": [0, 199, 399]}
# (solver, whether it takes every kernel)
SOLVERS = [
    (PairSwaps(), True),
    (PairSwaps(size=16), True),
    (PairSwaps(partitions=3), True),
    (PairSwaps(size=8, partitions=2), True),
    (BlockMinimization(blocks=3, rounds=4), True),
    (WorkingSet(), True),
    (FrankWolfe(), True),
    (FrankWolfe(steps="plain"), True),
    (FrankWolfe(partitions=3), False),
    (Saddle(), False),
    (Saddle(size=1), False),
    (Saddle(size=8, partitions=3), False),
    (Saddle(rotate=True), False),
]
each_solver = pytest.mark.parametrize(("solver", "any_kernel"), SOLVERS, ids=str)


@dataclass(frozen=True)
class Record:
    data: str
    kernel: dict
    nu: float  # the cap
    U: float
    rho: float
    b: float
    decisions: np.ndarray

    def __str__(self):
        return f"{self.data}-{'-'.join(map(str, self.kernel.values()))}-{self.nu:.3g}"

    def model(self, **parameters):
        if self.nu == 1.0:
            return HardMarginSVC(**self.kernel, **parameters)
        return NuSVC(2.0 / (len(load(self.data)[1]) * self.nu), **self.kernel, **parameters)


RECORDS = [
    Record(
        r["ds"],
        {"kernel": "rbf", "gamma": r["kernel"][1]}
        if r["kernel"][0] == "rbf"
        else {"kernel": "linear"},
        r["nu"],
        r["U"],
        r["rho_z"],
        r["b_z"],
        np.array(r["dec"]),
    )
    for r in json.loads((GOLDEN / "dual.json").read_text())
    if "loss" not in r
]
each_record = pytest.mark.parametrize("record", RECORDS, ids=str)


def blobs(n=60, d=4, seed=0, apart=2.0):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.4, 1, -1)
    return rng.standard_normal((n, d)) + apart * np.outer(y, np.eye(d)[0]), y


def fit(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*data)


# --- goldens -------------------------------------------------------------------------------------


def test_all_records_are_there():
    assert len(RECORDS) == 9


@each_record
def test_golden(record):
    X, y = load(record.data)
    model = record.model(tol=1e-10).fit(X, y)
    assert model.converged_ and model.solver_ in ("pairs", "gilbert")
    assert model.objective_ == pytest.approx(record.U, rel=1e-8)
    assert model.certify(X, y) == pytest.approx(model.gap_, abs=1e-11)
    if record.data == "moons" and record.kernel["kernel"] == "linear":  # an offset of many
        return
    found = model.decision_function(X[ROWS[record.data]])
    np.testing.assert_allclose(found, record.decisions, atol=1e-5)
    assert model.rho_ == pytest.approx(record.rho, rel=1e-6)
    assert -model.intercept_[0] * model.rho_ == pytest.approx(record.b, rel=1e-5, abs=1e-8)
    if record.nu == 1.0:
        assert model.rho_ == pytest.approx(record.U, rel=1e-6)
        assert model.margin_ == pytest.approx(np.sqrt(record.U / 2.0), rel=1e-8)


@pytest.mark.parametrize(
    ("solver", "record"),
    [
        (solver, record)
        for solver, any_kernel in SOLVERS
        for record in RECORDS
        if any_kernel or record.kernel["kernel"] == "linear"
    ],
    ids=str,
)
def test_bounds_enclose_the_optimum_in_every_round(solver, record):
    """L <= U* <= U at every certificate of every solver, and S holds the weights."""
    X, y = load(record.data)
    model = fit(record.model(solver=solver, tol=1e-2, time_limit=3.0), X, y)
    for told in model.history_:
        assert -told["dual"] <= record.U * (1 + 1e-6) and told["objective"] >= record.U * (1 - 1e-6)
    assert 0.0 <= model.gap_ <= 1.0
    cap = 2.0 if record.nu == 1.0 else record.nu
    weights = np.abs(model.dual_coef_[0]) * model.rho_
    assert weights.max() <= cap * (1 + 1e-12)
    for side in (model.dual_coef_[0] > 0, model.dual_coef_[0] < 0):
        assert weights[side].sum() == pytest.approx(1.0, abs=1e-12)
    if not (isinstance(solver, Saddle) and solver.size == 1):  # which may take longer
        assert model.converged_


# --- properties ----------------------------------------------------------------------------------


@each_solver
def test_invariances(solver, any_kernel):
    X, y = blobs(apart=1.5)
    rng = np.random.default_rng(1)
    Q, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    order = rng.permutation(len(y))

    gap = 1e-2 if isinstance(solver, Saddle) else 1e-3

    def model(X, y):
        return fit(NuSVC(0.3, kernel="linear", solver=solver, tol=gap), X, y)

    base = model(X, y)
    U, tol = base.objective_, 2 * gap
    for moved, labels in [(X + 1e3, y), (X @ Q, y), (X[order], y[order]), (X, -y)]:
        assert model(moved, labels).objective_ == pytest.approx(U, rel=tol)
    assert model(1e3 * X, y).objective_ == pytest.approx(1e6 * U, rel=tol)
    decisions = base.decision_function(X)
    swapped = model(X, -y)
    np.testing.assert_allclose(swapped.decision_function(X), -decisions, atol=100 * gap)


def test_hulls_shrink_with_nu():
    """U* does not rise with the cap; at the largest nu the smaller class has uniform weights."""
    X, y = blobs()
    largest = 2.0 * min((y > 0).mean(), (y < 0).mean())
    found = [NuSVC(nu, tol=1e-9).fit(X, y).objective_ for nu in np.linspace(0.05, 1, 8) * largest]
    assert np.all(np.diff(found) >= -1e-8 * found[-1])
    model = NuSVC(largest, kernel="linear", tol=1e-9).fit(X, y)
    weights = np.zeros(len(y))
    weights[model.support_] = np.abs(model.dual_coef_[0]) * model.rho_
    np.testing.assert_allclose(weights[y > 0], 1.0 / (y > 0).sum(), rtol=1e-9)


def test_no_cap_is_the_hard_margin():
    X, y = blobs(n=20, apart=4.0)
    hard = HardMarginSVC(kernel="linear", tol=1e-10).fit(X, y)
    soft = NuSVC(2.0 / len(y), kernel="linear", tol=1e-10).fit(X, y)  # a cap of one
    assert soft.objective_ == pytest.approx(hard.objective_, rel=1e-9)


def test_bounds():
    assert bounds(1.0, 0.0) == (1.0, 0.0)
    assert bounds(1.0, 2.0) == (0.0, 1.0) and bounds(0.0, 0.0) == (0.0, 1.0)
    U, m = 0.7, 1.1
    L, gap = bounds(U, 2 * U - m)
    assert pytest.approx(m * m / (4 * U)) == L and gap == pytest.approx((U - L) / U)


def brute_fill(s, cap):
    x, left = np.zeros(len(s)), 1.0
    for i in np.argsort(s, kind="stable"):
        x[i] = min(cap[i], left)
        left -= x[i]
    return x


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40))
def test_fill_and_level(seed, n):
    rng = np.random.default_rng(seed)
    s, cap = rng.integers(0, 9, n) + 0.5 * rng.random(n), rng.uniform(1.0, 3.0, n) / n
    x = fill(s, cap)
    np.testing.assert_allclose(x, brute_fill(s, cap), atol=1e-12)
    p = level(s, cap)  # what it pays is the least sum of scores
    assert p - cap @ np.maximum(0.0, p - s) == pytest.approx(s @ x, abs=1e-12)


class _Lists:
    """Shards of one list each, without an engine."""

    def __init__(self, parts):
        from margrave.blocks.corners import Lists

        self.blocks = [Lists([part]) for part in parts]

    def map(self, method, *args):
        return [getattr(block, method)(*args) for block in self.blocks]

    def reduce(self, method, *args):
        return sum(self.map(method, *args))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([5, 40, 3000]), st.sampled_from([None, 0, -1, -9]))
def test_levels_of_shards(seed, n, ties):
    rng = np.random.default_rng(seed)
    s = rng.standard_normal(n) ** 3
    if ties is not None:  # from here on: the level, with very many rows, may be zero too
        s = rng.integers(ties, ties + 3, n) * 0.3
    cap = rng.uniform(1.0, 3.0, n) / n
    cuts = np.array_split(np.arange(n), 3)
    shards = _Lists([(s[rows], cap[rows]) for rows in cuts])
    (p,), (share,) = find_levels(shards, shards.map("ends"), np.ones(1))
    x = np.where(s < p, cap, np.where(s == p, share * cap, 0.0))
    assert x.sum() == pytest.approx(1.0, abs=1e-9)
    assert s @ x == pytest.approx(s @ fill(s, cap), abs=1e-9 * (1 + np.abs(s).max()))


# --- the projection ------------------------------------------------------------------------------


def bisected(logs, cap):
    low, high = -np.max(logs) - 800.0, -np.min(logs) + 800.0
    for _ in range(300):
        c = (low + high) / 2
        full = np.minimum(cap, np.exp(np.minimum(logs + c, 700.0))).sum() > 1.0
        low, high = (low, c) if full else (c, high)
    return np.minimum(cap, np.exp(np.minimum(logs + low, 700.0)))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.sampled_from([1.0, 30.0, 1e4]))
def test_projection(seed, n, spread):
    rng = np.random.default_rng(seed)
    logs = spread * rng.standard_normal(n)
    cap = rng.uniform(1.0, 4.0, n) / n if seed % 2 else np.full(n, rng.uniform(1.0, n) / n)
    x = project(logs, cap)
    assert np.isfinite(x).all() and np.all(x >= 0) and np.all(x <= cap * (1 + 1e-15))
    assert x.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(x, bisected(logs, cap), atol=1e-11)
    if np.all(x > 0):  # again: the same point
        np.testing.assert_allclose(project(np.log(x), cap), x, atol=1e-12)
    if seed % 2 == 0:  # one cap for all: the order stays
        assert np.all(np.diff(x[np.argsort(logs)]) >= -1e-15)


def test_projection_where_the_published_loop_divides_by_zero():
    x = project(np.array([0.0, -800.0, -900.0]), np.full(3, 0.5))
    np.testing.assert_allclose(x, [0.5, 0.5, 0.0], atol=1e-14)


@pytest.mark.parametrize("d", [1, 3, 8, 12])
def test_rotation_keeps_distances(d):
    X = np.random.default_rng(0).standard_normal((d, 7))
    Y = rotated(X, 5)
    np.testing.assert_allclose(Y.T @ Y, X.T @ X, atol=1e-12)
    spike = rotated(np.eye(d)[:, :1], 5)
    assert np.abs(spike).max() == pytest.approx(1 / np.sqrt(len(Y)))


# --- saddle: blocks, stages, and the published form ----------------------------------------------


def test_block_sizes_agree():
    X, y = blobs(n=80, d=6, apart=3.0)
    best = HardMarginSVC(kernel="linear", tol=1e-9).fit(X, y).objective_
    for size in (1, 4, None):  # 4 does not divide 6
        model = HardMarginSVC(kernel="linear", solver=Saddle(size=size), tol=1e-3).fit(X, y)
        assert model.converged_ and best <= model.objective_ * (1 + 1e-9) <= best * 1.0011


def test_the_published_form_stops_too_early_and_is_found_out():
    """|U_t - U_(t-T)| < eps is met long before the optimum: the certificate tells."""
    X, y = blobs(n=80, d=6, apart=0.4)
    published = Saddle(as_published=True, beta=1.0)
    model = NuSVC(0.6, kernel="linear", solver=published, tol=0.02)
    with pytest.warns(UserWarning, match="relative duality gap"):
        model.fit(X, y)
    assert model.n_iter_ > 100 and model.gap_ > 0.1
    assert NuSVC(0.6, kernel="linear", solver=Saddle(), tol=0.02).fit(X, y).converged_


# --- shards --------------------------------------------------------------------------------------


def numbers_of(model, X, y):
    return [record["numbers"] for record in fit(model, X, y).history_]


def test_communication_of_gilbert_on_three_nodes():
    """By hand: z to each node, a proposed row of each class with its score and weight back."""
    X, y = blobs(n=70, d=5, apart=3.0)
    solver = FrankWolfe(steps="plain", partitions=3)
    found = numbers_of(HardMarginSVC(kernel="linear", solver=solver, tol=1e-2), X, y)
    point = 3 * 5  # the parts of the first z
    first = 3 * 5 + 3 * 2 * (5 + 2)
    # then the kind of the last step and its length, and whose rows were the corner
    later = 3 * (5 + 2 + 2) + 3 * 2 * (5 + 2)
    assert len(found) > 3
    assert found == [point + first + number * later for number in range(len(found))]


def test_communication_of_saddle_on_three_nodes():
    """By hand, for the hard margin: a round sends dw, two constants, and two numbers per class."""
    X, y = blobs(n=70, d=5, apart=3.0)
    for size, columns in ((None, 5), (1, 1)):
        solver = Saddle(size=size, rotate=False, partitions=3)
        model = fit(HardMarginSVC(kernel="linear", solver=solver, tol=1e-2), X, y)
        sums = 2 * (4 + 3 * columns)  # a class's largest logarithm, sums, and three of features
        start = 3 * 2 + 3 * sums
        # projection shifts; z; along two directions: ends of the lists, levels, and the margin
        certificate = 3 * 2 + 3 * 5 + 2 * (3 * (5 + 1 + 6) + 3 * (4 + 1))
        a_round = 3 * (columns + 2 + 2 + 2) + 3 * sums
        for number, record in enumerate(model.history_):
            rounds = record["round"]
            assert record["numbers"] == start + (number + 1) * certificate + rounds * a_round


class Spying(Serial):
    """Counts what passes between its blocks and the caller, call by call."""

    def __init__(self):
        self.bytes = 0

    def scatter(self, block_type, pieces):
        engine = self

        class Spied:
            def __init__(self, block):
                self.block = block

            def __getattr__(self, name):
                def call(*args):
                    result = getattr(self.block, name)(*args)
                    if name != "state":  # of checkpoints
                        engine.bytes += size_of(args) + size_of(result)
                    return result

                return call

        shards = super().scatter(block_type, pieces)
        shards._blocks = [Spied(block) for block in shards._blocks]
        return shards


def test_communication_of_the_working_set_on_three_nodes():
    """All calls count, also those that find the bias, and so does the sample of the start."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4200, 3))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=4200) > 0, 1, -1)
    for n in (300, 4200):
        engine = Spying()
        solver = PairSwaps(partitions=3)
        model = NuSVC(0.5, kernel="linear", solver=solver, engine=engine, random_state=0)
        found = numbers_of(model, X[:n], y[:n])
        start = found[-1] - engine.bytes // 8
        if n == 300:
            assert start == 0
            continue
        # 2,000 rows and labels to the driver; rows and variables of its model, about nu of them, to
        # three nodes; and a score of each row back
        model_rows, rest = divmod(start - (3 + 1) * 2000 - 4200, 3 * (3 + 1))
        assert rest == 0 and 1000 <= model_rows <= 1050


DISTRIBUTED = [
    FrankWolfe,
    lambda **k: FrankWolfe(steps="plain", **k),
    Saddle,
    lambda **k: Saddle(size=2, **k),
    lambda **k: Saddle(rotate=True, **k),
]


@pytest.mark.parametrize("make", DISTRIBUTED)
@pytest.mark.parametrize("nu", [None, 0.4])
def test_shards_walk_the_same_way(make, nu):
    """Several blocks of rows do what one does, but for rounding; what is sent is counted."""
    X, y = blobs(n=70, d=5, apart=3.0)

    def run(partitions, engine="serial"):
        kind = HardMarginSVC if nu is None else NuSVC
        given = {} if nu is None else {"nu": nu}
        solver = make(partitions=partitions)
        return fit(
            kind(kernel="linear", solver=solver, engine=engine, tol=1e-3, max_iter=150, **given),
            X,
            y,
        )

    one = run(1)
    for other in (run(4), run(3, "threads")):
        assert len(one.history_) == len(other.history_)
        for a, b in zip(one.history_, other.history_, strict=True):
            assert a["objective"] == pytest.approx(b["objective"], rel=1e-6)
        assert one.objective_ == pytest.approx(other.objective_, rel=1e-6)
        numbers = [told["numbers"] for told in other.history_]
        assert numbers == sorted(numbers) and numbers[-1] > numbers[0] > 0


@pytest.mark.parametrize("solver", [FrankWolfe(), Saddle()])
def test_on_dask(solver, dask_client):
    X, y = blobs(n=70, d=5, apart=3.0)
    here = HardMarginSVC(kernel="linear", solver=type(solver)(partitions=2), max_iter=12)
    there = HardMarginSVC(kernel="linear", solver=solver, engine=dask_client, max_iter=12)
    fit(here, X, y)
    fit(there, X, y)
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-9)
    assert there.history_[-1]["numbers"] > 0


def test_one_exchange_per_round_of_the_hard_margin():
    """Numbers per round and block: dw, the constants and two shifts, and one table."""
    X, y = blobs(n=70, d=8, apart=3.0)
    model = fit(HardMarginSVC(kernel="linear", solver=Saddle(size=8), tol=1e-9, max_iter=40), X, y)
    a, b = model.history_[-2], model.history_[-1]
    rounds = b["round"] - a["round"]
    per_round = (8 + 2 + 2 + 2) + 2 * (4 + 3 * 8)
    certificate = 2 + 8 + 2 * (8 + 1 + 6 + 4 + 1)  # settle; z; for z and w: aim, ends, levels, sum
    assert b["numbers"] - a["numbers"] == rounds * per_round + certificate


@pytest.mark.parametrize(("steps", "rows"), [("plain", 2), ("pairwise", 4)])
def test_one_exchange_per_round_of_gilbert(steps, rows):
    """Numbers per round and block: z and the step; some rows with score and weight."""
    X, y = blobs(n=70, d=8, apart=1.5, seed=3)
    solver = FrankWolfe(steps=steps, partitions=5)
    model = fit(HardMarginSVC(kernel="linear", solver=solver, tol=1e-12, max_iter=20), X, y)
    a, b = model.history_[-3:-1]
    assert b["round"] - a["round"] == 1
    most = 5 * ((8 + 2 + rows) + rows * (8 + 2))
    assert 0 < b["numbers"] - a["numbers"] <= most


@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
@pytest.mark.parametrize("engine", ["threads", "dask"])
def test_auto_among_workers(engine, kernel, engine_of):
    """Workers elsewhere get the working set: the same optimum, three classes, weights of rows."""
    X, y = load("iris")
    X, y = X[::2], y[::2]
    rows = X @ X.T if kernel == "precomputed" else X
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    given = {"nu": 0.2, "kernel": kernel, "tol": 1e-6}
    here = NuSVC(**given).fit(rows, y, sample_weight=weight)
    there = NuSVC(**given, engine=engine_of(engine)).fit(rows, y, sample_weight=weight)
    assert there.solver_ == "pairs" and there.converged_
    np.testing.assert_allclose(there.objectives_, here.objectives_, rtol=2e-6)
    assert there.certify(rows, y, weight) <= 1e-6


# --- refusals ------------------------------------------------------------------------------------


def test_overlap_is_named():
    X, y = load("iris12")  # versicolor and virginica are not separable by a plane
    for solver in (PairSwaps(), PairSwaps(size=30), WorkingSet()):
        with pytest.raises(ValueError, match=r"hulls overlap.*come as close as.*not separable"):
            HardMarginSVC(kernel="linear", solver=solver).fit(X, y)
    with pytest.raises(ValueError, match=r"hulls overlap.*nu is too small"):
        NuSVC(0.05, kernel="linear").fit(X, y)
    assert NuSVC(0.5, kernel="linear").fit(X, y).converged_
    twins = np.array([[0.0], [1.0], [0.0], [2.0]])
    for solver in (PairSwaps(), FrankWolfe(), Saddle()):
        with pytest.raises(ValueError, match="hulls overlap"):
            HardMarginSVC(kernel="linear", solver=solver, time_limit=5.0).fit(twins, [0, 0, 1, 1])


@pytest.mark.parametrize("name", ["newton", "cd", "dc", "cascade", "sodm", "dip", "dsvrg"])
def test_other_solvers_are_refused(name):
    X, y = blobs()
    for model in (NuSVC(0.3, solver=name), HardMarginSVC(solver=name), NuSVR(solver=name)):
        with pytest.raises(
            ValueError, match=rf"{name}.*'pairs', 'pbm', 'gilbert', 'saddle', 'exact'"
        ):
            model.fit(X, y)


@pytest.mark.parametrize("name", ["pairs", "gilbert", "saddle"])
def test_hull_solvers_refuse_other_estimators(name):
    X, y = blobs()
    with pytest.raises(ValueError, match=rf"solver '{name}' cannot work with the loss 'hinge'"):
        SVC(solver=name).fit(X, y)
    if name != "pairs":
        with pytest.raises(ValueError, match=rf"solver '{name}' cannot work with .*NuSVR"):
            NuSVR(solver=name).fit(X, y.astype(float))


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (PairSwaps(size=1), "size must be a whole number, at least 2"),
        (FrankWolfe(steps="away"), "steps must be 'pairwise' or 'plain'"),
        (FrankWolfe(partitions=0), "partitions must be a whole number"),
        (FrankWolfe(partitions=2), "with kernel='linear'"),
        (Saddle(), "kernel='linear', got 'rbf'.*Nystroem"),
        (Saddle(size=0), "size must be a whole number"),
        (Saddle(beta=0.0), "beta must be a number > 0"),
    ],
    ids=str,
)
def test_wrong_parameters_of_solvers(solver, message):
    X, y = blobs()
    with pytest.raises(ValueError, match=message):
        NuSVC(0.3, solver=solver).fit(X, y)


@each_solver
def test_budgets(solver, any_kernel):
    X, y = blobs(n=200, d=20, apart=0.8)
    model = NuSVC(0.5, kernel="linear", solver=solver, tol=1e-12, max_iter=2)
    with pytest.warns(UserWarning, match="max_iter=2"):
        model.fit(X, y)
    assert model.n_iter_ <= 2 and np.isfinite(model.objective_) and model.history_
    assert np.isfinite(model.decision_function(X)).all()
    seen = []
    model.set_params(max_iter=-1, callbacks=lambda record: seen.append(record) or len(seen) > 3)
    with pytest.warns(UserWarning, match="callback"):
        model.fit(X, y)
