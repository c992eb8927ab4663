"""Partitions of the rows into parts that are solved separately.

    random         every part is a sample of the whole
    kmeans         rows near each other, around centres in input space
    kernel_kmeans  rows near each other in the feature space of the kernel
    stratified     every part gets equally many of the rows nearest to each landmark (SODM)
    dip            every part gets equally many rows of each cluster of each class (DiP-SVM)

With kmeans and kernel_kmeans new rows belong to a part as well, whose own model can predict them.
The same seed gives the same split; empty parts are left out.
"""

from __future__ import annotations

from collections.abc import Callable

from margrave.partitions.base import Partition, Parts, Places, check_count, nearest
from margrave.partitions.clusters import (
    Centres,
    KernelCentres,
    KernelKMeans,
    KMeans,
    clustering,
)
from margrave.partitions.strata import DistributionPreserving, Random, Stratified, deal, pivots

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
    if not isinstance(partition, Partition):
        raise ValueError(f"a partition needs a method split, got {partition!r}")
    return partition
