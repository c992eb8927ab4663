"""Partitions: rows into parts that are solved apart.

    random         every part is a sample of the whole
    kmeans         rows near each other, around centres in input space
    kernel_kmeans  rows near each other in the feature space of the kernel
    stratified     every part has its share of the surroundings of each landmark (SODM)
    dip            every part has its share of each cluster of each class (distribution preserving)

The second and third know the part of a new row, so that a part's own model can speak for it. Every
split is the same for the same seed; parts that stay empty are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    "nearest",
    "pivots",
    "resolve_partition",
]


def resolve_partition(partition: Any) -> Partition:
    """Turn a name from PARTITIONS or an object with a method split into such an object."""
    if isinstance(partition, str):
        if partition not in PARTITIONS:
            raise ValueError(
                f"unknown partition {partition!r}; known partitions: {', '.join(PARTITIONS)}"
            )
        return PARTITIONS[partition]()
    if not callable(getattr(partition, "split", None)):
        raise ValueError(f"a partition needs a method split, got {partition!r}")
    chosen: Partition = partition
    return chosen
