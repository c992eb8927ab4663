"""Whole fits on every engine: the same model, to the last bit, wherever its rows are."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_moons

from margrave import (
    SVC,
    SVR,
    HardMarginSVC,
    KernelLogisticRegression,
    NuSVC,
    NuSVR,
    ODMClassifier,
)
from margrave.engines import ENGINES, Serial
from margrave.rows import LocalPiece, RemoteRows
from margrave.solvers import (
    BlockMinimization,
    Cascade,
    DistributionPreserving,
    DivideAndConquer,
    FrankWolfe,
    MergeTree,
    PairSwaps,
    Saddle,
    VarianceReduced,
)
from tests.clusters import local_cluster

X, Y = make_moons(600, noise=0.25, random_state=0)
CORE_ENGINES = [name for name in ENGINES if name != "cuda"]  # a card has tests of its own
LABELS = np.where(Y == 1, "yes", "no")
NUMBERS = np.sin(3.0 * X[:, 0]) + X[:, 1]

ESTIMATORS = [
    (SVC(C=4.0, gamma=1.0, solver=BlockMinimization(blocks=2)), LABELS),
    (SVC(C=4.0, gamma=1.0, solver=BlockMinimization(blocks=5, partition="random")), LABELS),
    (SVC(C=4.0, gamma=1.0, solver=BlockMinimization(blocks=2, rounds=3)), LABELS),
    (SVC(C=4.0, gamma=1.0, solver=DivideAndConquer(levels=2, early=1)), LABELS),
    (SVC(C=4.0, gamma=1.0, solver=Cascade(leaves=4, passes=1)), LABELS),
    (SVC(C=4.0, gamma=1.0, solver=DistributionPreserving(parts=4)), LABELS),
    (ODMClassifier(lam=10.0, gamma=1.0, solver=MergeTree(levels=1, partition="random")), LABELS),
    (SVR(C=2.0, gamma=1.0, solver=BlockMinimization(blocks=3)), NUMBERS),
    (KernelLogisticRegression(gamma=1.0, solver=BlockMinimization(blocks=2)), LABELS),
    (NuSVC(nu=0.3, gamma=1.0, solver=PairSwaps(partitions=3, size=64)), LABELS),
    (NuSVR(nu=0.3, gamma=1.0, solver=PairSwaps(partitions=3)), NUMBERS),
    (NuSVC(nu=0.3, gamma=1.0, solver=BlockMinimization(blocks=3, rounds=3)), LABELS),
    (NuSVR(nu=0.3, gamma=1.0, solver=BlockMinimization(blocks=3, rounds=3)), NUMBERS),
    (HardMarginSVC(gamma=50.0, solver=BlockMinimization(blocks=3, rounds=3)), LABELS),
    (NuSVC(nu=0.6, kernel="linear", solver=FrankWolfe(partitions=3)), LABELS),
    (NuSVC(nu=0.6, kernel="linear", tol=0.1, solver=Saddle(partitions=3)), LABELS),
    (
        ODMClassifier(
            lam=10.0, kernel="linear", solver=VarianceReduced(partitions=3), intercept=None
        ),
        LABELS,
    ),
]
WALKS_ALIKE = (BlockMinimization, VarianceReduced, PairSwaps, FrankWolfe, Saddle)
each_estimator = pytest.mark.parametrize(
    ("estimator", "y"), ESTIMATORS, ids=lambda v: str(v.solver) if hasattr(v, "solver") else ""
)


def fitted(estimator, y, engine, **more):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one pass of a cascade is no solution
        return clone(estimator).set_params(engine=engine, **more).fit(X, y)


@each_estimator
@pytest.mark.parametrize("name", CORE_ENGINES)
def test_every_engine_gives_the_same_model(name, estimator, y, engine_of):
    engine = engine_of(name)
    expected, found = fitted(estimator, y, "serial"), fitted(estimator, y, engine)
    same = isinstance(estimator.solver, WALKS_ALIKE)
    if same or found.certificate_ == "blocks" or not engine_is_remote(engine):
        np.testing.assert_array_equal(found.dual_coef_, expected.dual_coef_)
        np.testing.assert_array_equal(found.support_, expected.support_)
        assert found.gap_ == expected.gap_
    # else the end is the working set among workers, which is another than that of one process
    assert found.objective_ == pytest.approx(expected.objective_, rel=2e-3)
    assert found.certificate_ == expected.certificate_


def engine_is_remote(engine):
    from margrave.engines import resolve_engine

    return resolve_engine(engine, 1).is_remote


@pytest.mark.parametrize("name", CORE_ENGINES)
def test_auto_finds_the_optimum_everywhere(name, engine_of):
    exact = SVC(C=4.0, gamma=1.0, solver="exact", tol=1e-5).fit(X, LABELS)
    for solver in ("auto", "dc", "cascade"):
        found = SVC(C=4.0, gamma=1.0, solver=solver, tol=1e-5, engine=engine_of(name))
        found.fit(X, LABELS)
        assert found.converged_ and found.certificate_ == "full"
        assert found.objective_ == pytest.approx(exact.objective_, rel=2e-5)
        assert (found.predict(X) == exact.predict(X)).mean() > 0.995


# --- rows that are elsewhere ---------------------------------------------------------------------


def remote(array, *ends):
    pieces = np.split(array, ends)
    facts = [
        {
            "sums": p.sum(axis=1),
            "squares": (p**2).sum(axis=1),
            "largest": np.abs(p).max(initial=0.0),
        }
        for p in pieces
    ]
    return RemoteRows.of([LocalPiece(p) for p in pieces], facts)


class Holder(Serial):
    """A local engine whose rows are in pieces."""

    ends = (100, 250, 250)

    def rows(self, X, prepare):
        return remote(np.asarray(X), *self.ends)

    def vector(self, y, lengths, name):
        return np.asarray(y)


REMOTE_SOLVERS = ["auto", "pbm", "dc", "cascade", BlockMinimization(partition="kmeans", blocks=3)]


@pytest.mark.parametrize("solver", REMOTE_SOLVERS, ids=str)
def test_rows_stay_in_their_pieces(solver, monkeypatch):
    monkeypatch.setattr("margrave.estimators._input.has_remote_rows", lambda engine, X: True)
    model = SVC(C=4.0, tol=1e-5, solver=solver, engine=Holder()).fit(X, LABELS)
    monkeypatch.undo()
    exact = SVC(C=4.0, tol=1e-5, solver="exact").fit(X, LABELS)
    assert model.converged_ and model.objective_ == pytest.approx(exact.objective_, rel=2e-5)
    assert model._kernel.gamma == pytest.approx(exact._kernel.gamma, rel=1e-12)
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    assert model.certify(X, LABELS) <= 1.01e-5
    pickle.loads(pickle.dumps(model)).predict(X)


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_several_classes_in_pieces(scheme, monkeypatch):
    rows, labels = load_iris(return_X_y=True)
    exact = SVC(gamma=0.5, multi_class=scheme, tol=1e-5, solver="exact").fit(rows, labels)
    monkeypatch.setattr("margrave.estimators._input.has_remote_rows", lambda engine, X: True)
    holder = Holder()
    holder.ends = (20, 90)
    model = SVC(gamma=0.5, multi_class=scheme, tol=1e-5, engine=holder).fit(rows, labels)
    monkeypatch.undo()
    np.testing.assert_allclose(model.objectives_, exact.objectives_, rtol=1e-4)
    assert (model.predict(rows) == exact.predict(rows)).all()


@pytest.mark.parametrize("solver", ["exact", "newton", "cd"])
def test_solvers_that_need_all_rows_say_so(solver, monkeypatch):
    monkeypatch.setattr("margrave.estimators._input.has_remote_rows", lambda engine, X: True)
    with pytest.raises(ValueError, match=f"'{solver}' needs all rows in one array"):
        SVC(loss="squared_hinge", solver=solver, engine=Holder()).fit(X, LABELS)


# --- Dask ----------------------------------------------------------------------------------------


@pytest.fixture
def client(engine_of):
    return engine_of("dask")


def test_collections(client):
    array = pytest.importorskip("dask.array")
    exact = SVC(C=4.0, tol=1e-5, solver="exact").fit(X, LABELS)
    rows, labels = array.from_array(X, chunks=(150, 1)), array.from_array(LABELS, chunks=150)
    weight = array.from_array(np.ones(600), chunks=150)
    for engine in (client, None, "dask"):
        model = SVC(C=4.0, tol=1e-5, engine=engine).fit(rows, labels, sample_weight=weight)
        assert model.converged_ and model.solver_ == "pbm"
        assert model.objective_ == pytest.approx(exact.objective_, rel=2e-5)
    lazy = model.predict(rows)
    assert hasattr(lazy, "compute") and lazy.shape == (600,)
    np.testing.assert_array_equal(lazy.compute(), model.predict(X))
    np.testing.assert_allclose(
        model.decision_function(rows).compute(), model.decision_function(X), rtol=1e-12
    )
    with pytest.raises(ValueError, match="needs all rows in one array"):
        model.certify(rows, labels)


def test_data_frames(client):
    pd = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    table = pd.DataFrame(X, columns=["east", "north"])
    lazy = frames.from_pandas(table, npartitions=3)
    target = frames.from_pandas(pd.Series(Y), npartitions=3)
    model = KernelLogisticRegression(gamma=1.0, engine=client).fit(lazy, target)
    assert model.feature_names_in_.tolist() == ["east", "north"]
    proba = model.predict_proba(lazy)
    np.testing.assert_allclose(proba.compute(), model.predict_proba(table), rtol=1e-12)


def test_early_models_predict_lazily(client):
    array = pytest.importorskip("dask.array")
    model = SVC(C=4.0, gamma=1.0, solver=DivideAndConquer(levels=2, early=1), engine=client)
    model.fit(X, LABELS)
    rows = array.from_array(X, chunks=(200, 2))
    np.testing.assert_array_equal(model.predict(rows).compute(), model.predict(X))


BAD_COLLECTIONS = [
    (lambda a: (a(X, (300, 2)), a(Y, 200)), "X has 2 partitions, y has 3"),
    (lambda a: (a(np.where(X[400] == X, np.nan, X), (150, 2)), a(Y, 150)), "partition 2: .*NaN"),
    (lambda a: (a(X, (150, 2)), a(np.ones(600), 150)), "only 1 class"),
    (lambda a: (a(X, (150, 2)), a(np.full(600, np.nan), 150)), "NaN"),
    (lambda a: (a(X, (150, 2))[:0], a(Y, 150)[:0]), "0 rows"),
]


@pytest.mark.parametrize("number", range(len(BAD_COLLECTIONS)))
def test_bad_collections(client, number):
    array = pytest.importorskip("dask.array")
    make, message = BAD_COLLECTIONS[number]
    rows, labels = make(lambda values, chunks: array.from_array(values, chunks=chunks))
    with pytest.raises(ValueError, match=message):
        SVC(engine=client).fit(rows, labels)


def test_collections_need_dask(client):
    array = pytest.importorskip("dask.array")
    with pytest.raises(ValueError, match="Dask collection need"):
        SVC(engine="threads").fit(array.from_array(X), array.from_array(Y))


def test_clones_and_pickles_of_a_client(client):
    model = SVC(C=4.0, gamma=1.0, engine=client, solver=BlockMinimization(blocks=2)).fit(X, Y)
    assert clone(model).engine is client
    again = pickle.loads(pickle.dumps(model))
    assert again.engine == "dask://" + client.scheduler.address.rpartition("://")[2]
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.fit(X, Y).dual_coef_, model.dual_coef_)


@pytest.fixture
def fragile():
    """A cluster of its own, whose workers may be killed."""
    with local_cluster(set_as_default=True) as client:
        yield client


def disturb(model, client, number, at):
    """Send a signal to a worker when the fit has come to these rounds."""
    seen = []

    def strike(record):
        seen.append(record)
        if len(seen) in at:
            pids = client.run(os.getpid)
            os.kill(sorted(pids.values())[0], number)

    return model.set_params(callbacks=strike), seen


@pytest.mark.parametrize("how", [{"moving": False}, {"rounds": 8}], ids=["fixed", "moving"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_lost_workers(fragile, number, how, monkeypatch):
    from margrave.engines.dask import Dask

    monkeypatch.setattr("margrave.solvers.distributed.working_set._LARGEST_SET", 40)
    solver = BlockMinimization(blocks=3, **how)
    expected = SVC(C=10.0, gamma=4.0, tol=1e-4, solver=solver, engine="serial").fit(X, LABELS)
    engine = Dask(fragile, timeout=3.0)
    frozen = []
    if number == signal.SIGSTOP:
        frozen = list(fragile.run(os.getpid).values())
    model = SVC(C=10.0, gamma=4.0, tol=1e-4, solver=solver, engine=engine)
    at = (3, 9) if number == signal.SIGKILL else (4,)
    model, seen = disturb(model, fragile, number, at)
    try:
        model.fit(X, LABELS)
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    np.testing.assert_array_equal(model.dual_coef_, expected.dual_coef_)
    assert model.gap_ == expected.gap_ and model.n_iter_ == expected.n_iter_
    assert len(seen) > expected.n_iter_  # some rounds were made again


SCRIPT = """
import os, sys
import numpy as np
from sklearn.datasets import make_moons
from margrave import SVC
from margrave.solvers import BlockMinimization
from margrave.solvers.distributed import working_set as distributed
distributed._LARGEST_SET = 40
distributed._BETWEEN_CHECKPOINTS = 1
X, y = make_moons(600, noise=0.25, random_state=0)
def slowly(record):
    if {kill} and record["round"] == 3 and "active" in record:
        os.kill(os.getpid(), 9)
model = SVC(C=10.0, gamma=4.0, tol=1e-4, engine="threads", n_jobs=2, callbacks=slowly,
            solver=BlockMinimization(blocks=3, rounds=6, checkpoint={folder!r}))
model.fit(X, y)
print(model.gap_.hex(), model.n_iter_, float(np.abs(model.dual_coef_).sum()).hex())
"""


def test_a_killed_driver_is_resumed(tmp_path):
    def run(folder, kill):
        script = SCRIPT.format(folder=str(tmp_path / folder), kill=kill)
        return subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
        )

    expected = run("undisturbed", False)
    assert expected.returncode == 0, expected.stderr
    assert run("kept", True).returncode == -signal.SIGKILL
    assert (tmp_path / "kept" / "margrave-checkpoint.npz").exists()
    again = run("kept", False)
    assert again.returncode == 0, again.stderr
    assert again.stdout == expected.stdout
    assert not (tmp_path / "kept" / "margrave-checkpoint.npz").exists()


def test_ctrl_c_keeps_the_model(client):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 10))
    labels = rng.integers(0, 2, 20_000)
    model = SVC(C=1e3, gamma=0.5, tol=1e-9, engine=client, solver=BlockMinimization(blocks=2))
    timer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        model.fit(rows, labels)
    assert time.perf_counter() - begin < 60.0
    assert np.isfinite(model.decision_function(rows[:10])).all()
    assert not model.converged_


# --- MPI -----------------------------------------------------------------------------------------

RANKS = """
import sys
import numpy as np
from sklearn.datasets import make_moons
from margrave import SVC, SVR, NuSVC, NuSVR
from margrave.engines import MPI
from margrave.solvers import BlockMinimization
from mpi4py import MPI as mpi
X, y = make_moons(600, noise=0.25, random_state=0)
rank, size = mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size
def tell(*found):  # in a file of its own: standard output mixes the ranks
    with open(f"{{sys.argv[1]}}/{{rank}}", "w") as file:
        print(rank, *found, file=file)
{body}
"""
SAME = """
found = []
for model in (
    SVC(C=4.0, gamma=1.0, solver=BlockMinimization(blocks=3)),
    NuSVC(nu=0.3, gamma=1.0, solver=BlockMinimization(blocks=3, rounds=3)),
    NuSVR(nu=0.3, gamma=1.0, solver=BlockMinimization(blocks=3, rounds=3)),
):
    model.set_params(engine={engine!r})
    model.fit(X if rank == 0 else None, y if rank == 0 else None)
    found += [model.gap_.hex(), float(np.abs(model.dual_coef_).sum()).hex()]
tell(*found, model.engine)
"""
LOCAL = """
own = np.array_split(np.arange(600), size)[rank]
model = SVC(C=4.0, tol=1e-5, engine=MPI(rows="local"))
model.fit(X[own], y[own], sample_weight=np.ones(len(own)))
tell(model.objective_.hex(), model.support_vectors_.shape, model.converged_)
"""
ANY_ORDER = """
own = np.array_split(np.arange(600), size)[rank]
weight = 1.0 + (own % 3)
target = np.sin(3.0 * X[own, 0])
given = {"y": target, "sample_weight": weight}
model = SVR(gamma=1.0, engine=MPI(rows="local"))
if rank == 0:
    model.fit(X[own], target, weight)
elif rank == 1:
    model.fit(sample_weight=weight, y=target, X=X[own])
else:
    model.fit(X[own], **given)
tell(model.objective_.hex())
try:
    model.fit(X[own], target, weight if rank == 1 else None)
except ValueError as error:
    tell(model.objective_.hex(), error)
"""
BAD_RANK = """
own = X[rank::size].copy()
if rank == size - 1:
    own[3] = np.nan
try:
    SVC(engine=MPI(rows="local")).fit(own, y[rank::size])
except ValueError as error:
    tell(error)
"""


def on_ranks(count, folder, body):
    pytest.importorskip("mpi4py")
    launcher = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    if not os.path.exists(launcher):
        pytest.skip("there is no mpiexec beside this Python")
    done = subprocess.run(
        [launcher, "-n", str(count), sys.executable, "-c", RANKS.format(body=body), str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [(folder / str(rank)).read_text().strip() for rank in range(count)]


@pytest.mark.parametrize("count", [1, 3])
def test_ranks_end_with_the_same_model(count, tmp_path):
    (alone,) = on_ranks(1, tmp_path, SAME.format(engine="serial"))
    expected = [f"{rank} {alone[2:]}".replace("serial", "mpi") for rank in range(count)]
    assert on_ranks(count, tmp_path, SAME.format(engine="mpi")) == expected


def test_ranks_with_rows_of_their_own(tmp_path):
    exact = SVC(C=4.0, tol=1e-5, solver="exact").fit(X, Y)
    lines = on_ranks(3, tmp_path, LOCAL)
    found = {line.partition(" ")[2] for line in lines}
    assert len(lines) == 3 and len(found) == 1
    objective, *_, converged = found.pop().split()
    assert float.fromhex(objective) == pytest.approx(exact.objective_, rel=2e-5)
    assert converged == "True"


def test_ranks_pass_their_vectors_by_name(tmp_path):
    weight, target = 1.0 + np.arange(600) % 3, np.sin(3.0 * X[:, 0])
    exact = SVR(gamma=1.0, solver="exact").fit(X, target, weight)
    for line in on_ranks(3, tmp_path, ANY_ORDER):
        _, objective, refusal = line.split(" ", 2)
        assert float.fromhex(objective) == pytest.approx(exact.objective_, rel=2e-3)
        assert "rank 1 has passed sample_weight, and rank 0 has not" in refusal


def test_a_rank_with_bad_rows_is_named(tmp_path):
    lines = on_ranks(2, tmp_path, BAD_RANK)
    assert [line[0] for line in lines] == ["0", "1"]
    assert all("rank 1" in line and "NaN" in line for line in lines)
