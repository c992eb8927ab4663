"""Partitions of the rows into parts that are solved separately.

    random         every part is a sample of the whole
    kmeans         rows near each other, around centres in input space
    kernel_kmeans  rows near each other in the feature space of the kernel
    stratified     every part gets equally many of the rows nearest to each landmark (SODM)
    dip            every part gets equally many rows of each cluster of each class (DiP-SVM)

With kmeans and kernel_kmeans new rows belong to a part as well, whose own model can predict them.
The same seed gives the same split; empty parts are left out.

base.py      what a partition is; random
clusters.py  kmeans, kernel_kmeans; strata.py  stratified, dip
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margrave.partitions.base import Partition, Parts, Places, Rows, check_count, nearest
from margrave.partitions.clusters import (
    Centres,
    KernelCentres,
    KernelKMeans,
    KMeans,
    clustering,
)
from margrave.partitions.strata import DistributionPreserving, Random, Stratified, deal, pivots
from margrave.problem import Data
from margrave.progress import forever

PARTITIONS: dict[str, Callable[[], Partition]] = {
    "random": Random,
    "kmeans": KMeans,
    "kernel_kmeans": KernelKMeans,
    "stratified": Stratified,
    "dip": DistributionPreserving,
}

__all__ = [
    "PARTITIONS",
    "Centres",
    "DistributionPreserving",
    "KMeans",
    "KernelCentres",
    "KernelKMeans",
    "Partition",
    "Parts",
    "Places",
    "Random",
    "Stratified",
    "check_count",
    "clustering",
    "deal",
    "is_built_in",
    "nearest",
    "pivots",
    "resolve_partition",
    "split",
]


def is_built_in(partition: object) -> bool:
    """Whether a partition is one of PARTITIONS, which do not ask for the numbers of rows."""
    return partition is None or isinstance(
        partition, (str, *(type(make()) for make in PARTITIONS.values()))
    )


def resolve_partition(partition: str | Partition) -> Partition:
    """Turn a name from PARTITIONS or an object with a method split into such an object."""
    if isinstance(partition, str):
        if partition not in PARTITIONS:
            raise ValueError(
                f"unknown partition {partition!r}; known partitions: {', '.join(PARTITIONS)}"
            )
        return PARTITIONS[partition]()
    if isinstance(partition, type):
        raise ValueError(
            f"a partition is an object, got the class {partition.__name__}: pass"
            f" {partition.__name__}(...)"
        )
    if not isinstance(partition, Partition):
        raise ValueError(f"a partition needs a method split, got {partition!r}")
    return partition


def split(
    partition: Partition,
    data: Data,
    k: int,
    seed: int,
    among: Rows | None = None,
    y: NDArray[Any] | None = None,
    threads: int = 1,
    left: Callable[[], float] = forever,
) -> Parts:
    """Split the rows with any partition; raise for a result that is no split of all rows."""
    ours = isinstance(partition, tuple(type(make()) for make in PARTITIONS.values()))
    watched: dict[str, Any] = {"left": left} if ours else {}  # a user's may not take it
    found = partition.split(data, k, seed, among, y=y, threads=threads, **watched)
    return _checked(found, partition, data.n_rows)


def _checked(parts: object, partition: Partition, n_rows: int) -> Parts:
    """Return parts with int64 labels, or raise for what a user's partition did wrong."""
    if not isinstance(parts, Parts):
        raise ValueError(
            f"the split of {partition!r} must be margrave.partitions.Parts,"
            f" got {type(parts).__name__}"
        )
    label: object = parts.label
    if not isinstance(label, np.ndarray) or label.ndim != 1 or label.dtype.kind not in "iu":
        raise ValueError(
            f"the labels of {partition!r} must be a one-dimensional array of whole numbers"
        )
    if len(label) != n_rows:
        raise ValueError(f"{partition!r} has labelled {len(label)} rows, and there are {n_rows}")
    if label.min() < 0:
        raise ValueError(f"the labels of {partition!r} must not be negative, got {label.min()}")
    used = np.unique(label)
    if used[-1] != len(used) - 1:
        empty = int(np.argmax(used != np.arange(len(used))))
        raise ValueError(
            f"part {empty} of {partition!r} has no row: number its {len(used)} parts from zero"
        )
    return replace(parts, label=label.astype(np.int64, copy=False))
