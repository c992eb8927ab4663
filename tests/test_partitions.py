"""Splits of rows: covers, sizes, seeds, places, and the naive twins of what is computed fast."""

import numpy as np
import pytest
from scipy import sparse

from margrave import SVC
from margrave.kernels import Kernel
from margrave.partitions import (
    PARTITIONS,
    KernelKMeans,
    KMeans,
    Parts,
    Stratified,
    deal,
    pivots,
    resolve_partition,
)
from margrave.problem import Data
from margrave.solvers import BlockMinimization, DivideAndConquer, MergeTree
from tests import cases
from tests.data import load

each_partition = pytest.mark.parametrize("name", PARTITIONS)


def data_of(X, kernel=("rbf", {"gamma": 0.5})):
    return Data(X, Kernel(kernel[0], **kernel[1]), np.array([0, X.shape[0]]))


def blobs(n=120, d=3, seed=0):
    rng = np.random.default_rng(seed)
    centres = 3.0 * rng.standard_normal((6, d))
    return centres[rng.integers(6, size=n)] + rng.standard_normal((n, d))


@each_partition
@pytest.mark.parametrize("kernel", cases.KERNELS, ids=cases.name_of)
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_every_row_is_in_one_part(name, kernel, layout):
    X = blobs()
    data = data_of(X if layout == "dense" else sparse.csr_array(X), kernel)
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    for k in (1, 2, 7, 40):
        parts = PARTITIONS[name]().split(data, k, seed=3, y=y, threads=2)
        assert 1 <= len(parts) <= k and parts.sizes.min() >= 1
        np.testing.assert_array_equal(np.sort(np.concatenate(parts.rows)), np.arange(120))
        again = PARTITIONS[name]().split(data, k, seed=3, y=y, threads=1)
        np.testing.assert_array_equal(again.label, parts.label)
        if parts.places is None:
            assert parts.sizes.max() - parts.sizes.min() <= 1
            with pytest.raises(ValueError, match="no centres"):
                parts.assign(data.X)
        else:  # the part of a row is the one that a new row in its place would get
            np.testing.assert_array_equal(parts.assign(data.X, threads=2), parts.label)
    if name not in ("kmeans", "kernel_kmeans"):
        assert not np.array_equal(
            parts.label, PARTITIONS[name]().split(data, 40, seed=4, y=y).label
        )


@each_partition
def test_more_parts_than_rows_are_refused(name):
    data = data_of(blobs(10))
    for k in (11, 0, -1):
        with pytest.raises(ValueError, match=f"10 rows cannot be split into {k} parts"):
            PARTITIONS[name]().split(data, k, seed=0)


class Given:
    """A user's partition, which returns what it was given."""

    def __init__(self, found):
        self.found = found

    def split(self, data, k, seed, among=None, y=None, threads=1):
        return self.found

    def __repr__(self):
        return "Given"


HALVES = np.arange(600) % 2
WRONG = [
    (None, "the split of Given must be margrave.partitions.Parts, got NoneType"),
    (HALVES, "the split of Given must be margrave.partitions.Parts, got ndarray"),
    (Parts(HALVES.tolist()), "one-dimensional array of whole numbers"),
    (Parts(HALVES[:, None]), "one-dimensional array of whole numbers"),
    (Parts(HALVES.astype(float)), "one-dimensional array of whole numbers"),
    (Parts(HALVES > 0), "one-dimensional array of whole numbers"),
    (Parts(HALVES[:599]), "Given has labelled 599 rows, and there are 600"),
    (Parts(HALVES - 1), "the labels of Given must not be negative, got -1"),
    (Parts(2 * HALVES), "part 1 of Given has no row: number its 2 parts from zero"),
    (Parts(HALVES + 10**12), "part 0 of Given has no row"),
]
CALLERS = [
    lambda partition: MergeTree(partition=partition, levels=1, branching=2),
    lambda partition: DivideAndConquer(partition=partition, levels=1),
    lambda partition: BlockMinimization(partition=partition, blocks=2, rounds=1),
]


@pytest.mark.parametrize(("found", "message"), WRONG)
def test_what_a_users_partition_returns_is_checked(found, message):
    X = blobs(600)
    y = X[:, 0] > X[:, 1]
    for make in CALLERS:
        with pytest.raises(ValueError, match=message):
            SVC(solver=make(Given(found))).fit(X, y)


@pytest.mark.parametrize(("found", "message"), WRONG)
def test_so_are_partitions_of_blocks_that_move(found, message):
    class Later(Given):
        done = 0

        def split(self, *args, **kwargs):
            self.done += 1
            return Parts(HALVES) if self.done == 1 else self.found

    X = blobs(600)
    y = np.where(np.random.default_rng(0).random(600) < 0.3, X[:, 0] > 0, X[:, 1] > 0)
    solver = BlockMinimization(partition=Later(found), blocks=2, rounds=3)
    with pytest.raises(ValueError, match=message):
        SVC(solver=solver, tol=1e-6).fit(X, y)


def test_labels_of_any_whole_type():
    X = blobs(600)
    y = X[:, 0] > X[:, 1]
    fits = [
        SVC(solver=MergeTree(partition=Given(Parts(HALVES.astype(kind))), levels=1, branching=2))
        for kind in (np.int64, np.uint64, np.int8)
    ]
    one, *others = [model.fit(X, y).dual_coef_ for model in fits]
    for other in others:
        np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize("make", CALLERS)
def test_a_class_is_no_partition(make):
    X = blobs(600)
    with pytest.raises(ValueError, match="got the class KMeans"):
        SVC(solver=make(KMeans)).fit(X, X[:, 0] > X[:, 1])


@each_partition
def test_equal_rows(name):
    """Centres fall together: one part is left of clusters, and others have their equal sizes."""
    parts = PARTITIONS[name]().split(data_of(np.ones((50, 2))), 4, seed=0, y=np.ones(50))
    assert len(parts) == (1 if parts.places is not None else 4)


def test_names():
    with pytest.raises(ValueError, match=r"unknown partition 'k-means'.*random, kmeans"):
        resolve_partition("k-means")
    with pytest.raises(ValueError, match="needs a method split"):
        resolve_partition(3)
    with pytest.raises(ValueError, match=r"an object, got the class KMeans: pass KMeans\(\.\.\.\)"):
        resolve_partition(KMeans)
    chosen = Stratified(landmarks=5)
    assert resolve_partition(chosen) is chosen


# --- clusters ------------------------------------------------------------------------------------


def test_kmeans_keeps_blobs_together():
    rng = np.random.default_rng(0)
    blob = np.repeat(np.arange(4), 100)
    X = 100.0 * np.c_[blob, blob % 2] + rng.standard_normal((400, 2))
    for rows in (X, X.astype(np.float32), sparse.csr_array(X)):
        parts = KMeans().split(data_of(rows), 40, seed=1)
        for one in parts.rows:
            assert len(np.unique(blob[one])) == 1


@pytest.mark.parametrize("kernel", cases.KERNELS, ids=cases.name_of)
def test_kernel_kmeans_is_the_naive_one(kernel):
    X = blobs(80)
    parts = KernelKMeans(sample=40).split(data_of(X, kernel), 4, seed=2)
    places = parts.places
    # the naive distance to the mean of the sampled rows of each part, new rows included
    new = blobs(30, seed=9)
    k = cases.oracle_kernel(kernel)
    distance = np.stack(
        [
            -2.0 * k(new, places.points) @ share + share @ k(places.points, places.points) @ share
            for share in places.shares.T
        ],
        axis=1,
    )
    np.testing.assert_array_equal(parts.assign(new), distance.argmin(axis=1))
    members = places.shares > 0
    assert np.all(members.sum(axis=1) <= 1)  # a sampled row belongs to one mean
    own = members.argmax(axis=1)
    np.testing.assert_allclose(places.shares[members], 1.0 / np.bincount(own)[own[members.any(1)]])


def test_a_precomputed_kernel_has_kernel_kmeans_only():
    X = blobs(60)
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    data = Data(K, Kernel("precomputed"), np.array([0, 60]))
    with pytest.raises(ValueError, match=r"precomputed.*kernel_kmeans"):
        KMeans().split(data, 4, seed=0)
    parts = KernelKMeans().split(data, 4, seed=0)
    same = KernelKMeans().split(data_of(X), 4, seed=0)
    np.testing.assert_array_equal(parts.label, same.label)
    np.testing.assert_array_equal(parts.assign(K[:7]), same.assign(X[:7]))
    for name in ("random", "stratified", "dip"):
        assert len(PARTITIONS[name]().split(data, 4, seed=0)) == 4


@pytest.mark.parametrize("partition", [KMeans(balanced=True), KernelKMeans(balanced=True)])
@pytest.mark.parametrize("k", [2, 5, 12])
def test_balanced_parts_are_those_of_rows_that_choose_in_turn(partition, k):
    rng = np.random.default_rng(1)
    X = np.r_[0.1 * rng.standard_normal((90, 2)), 4.0 * rng.standard_normal((30, 2))]
    parts = partition.split(data_of(X), k, seed=0)
    assert parts.sizes.max() <= np.ceil(1.3 * 120 / k)
    # the same centres, one row after the other, the most decided first
    from dataclasses import replace

    plain = replace(partition, balanced=False).split(data_of(X), k, seed=0)
    if len(plain) < k:
        return
    D = plain.places.distances(X)
    best = np.sort(D, axis=1)
    room, expected = np.full(k, int(np.ceil(1.3 * 120 / k))), np.empty(120, dtype=int)
    for row in np.argsort(best[:, 0] - best[:, 1], kind="stable"):
        expected[row] = np.where(room > 0, D[row], np.inf).argmin()
        room[expected[row]] -= 1
    np.testing.assert_array_equal(np.unique(expected, return_inverse=True)[1], parts.label)


def test_rows_far_from_zero():
    X = blobs(400).astype(np.float32)
    near, far = (KMeans().split(data_of(rows), 8, seed=0) for rows in (X, X + np.float32(1e4)))
    assert np.mean(near.label == far.label) > 0.9


def test_adaptive_centres_come_from_the_rows_named():
    X = np.r_[blobs(50), 1000.0 + blobs(50)]
    parts = KMeans(rounds=0).split(data_of(X), 8, seed=0, among=np.arange(50))
    assert parts.places.points.max() < 500
    few = KMeans(rounds=0).split(data_of(X), 8, seed=0, among=np.arange(31))  # too few for 8 parts
    assert few.places.points.max() > 500


# --- strata --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", cases.KERNELS[:4], ids=cases.name_of)
def test_pivots_are_the_greedy_determinant(kernel):
    X = blobs(40)
    K = cases.oracle_kernel(kernel)(X, X)
    found, L = pivots(data_of(X, kernel), 3)
    chosen = [0]
    while len(chosen) < 3:
        gains = [
            np.linalg.det(K[np.ix_([*chosen, j], [*chosen, j])]) if j not in chosen else -np.inf
            for j in range(40)
        ]
        chosen.append(int(np.argmax(gains)))
    np.testing.assert_array_equal(found, chosen)
    np.testing.assert_allclose(L[found] @ L[found].T, K[np.ix_(found, found)], atol=1e-9)
    residual = np.diag(K) - (L**2).sum(axis=1)
    assert residual.min() > -1e-9 * K.max()


def test_pivots_end_with_the_rank():
    X, _ = load("iris")
    found, L = pivots(data_of(X, ("linear", {})), 50)
    assert len(found) == X.shape[1]
    np.testing.assert_allclose(L @ L.T, X @ X.T, atol=1e-9 * np.abs(X).max() ** 2)
    twice = np.r_[X[:20], X[:20]]
    found, _ = pivots(data_of(twice, ("rbf", {"gamma": 1.0})), 40)
    assert len(found) <= 20 and len({tuple(twice[j]) for j in found}) == len(found)


def test_strata_are_dealt_evenly():
    stratum = np.repeat([0, 1, 2], [50, 31, 9])
    parts = deal(stratum, 4, seed=0)
    for one in range(3):
        share = np.bincount(parts.label[stratum == one], minlength=4)
        assert share.max() - share.min() <= 1
    assert parts.sizes.max() - parts.sizes.min() <= 1


def test_distribution_preserving_parts_have_their_share_of_each_class():
    X = blobs(200)
    y = np.where(np.arange(200) < 30, 1.0, -1.0)
    parts = PARTITIONS["dip"]().split(data_of(X), 5, seed=0, y=y)
    share = np.bincount(parts.label[y > 0], minlength=5)
    assert share.max() - share.min() <= 1


def test_parts_tell_their_sizes():
    parts = Parts(np.array([2, 0, 2, 1]))
    assert len(parts) == 3 and parts.sizes.tolist() == [1, 1, 2]
    assert [rows.tolist() for rows in parts.rows] == [[1], [3], [0, 2]]
