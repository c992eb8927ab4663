"""Problems on a graphics card, behind the interface of the compiled core.

device.py       the card: memory, programs compiled for it when first used, Ctrl-C between steps
rows.py         rows on the card: sums of their kernel values, and scores of new rows
streamed.py     rows that do not fit there
kernel_rows.py  products with the kernel matrix of either
batch.py        many problems side by side, a working set each: one round of all
working_set.py  the solver of one problem, in place of the core's WorkingSet
linear_rows.py  passes over the rows of a linear model
arrays.py       users' arrays that lie on a card
clusters.py     nearest centres, and an order of rows in which neighbours are close

The arithmetic of losses and kernels is that of ``cpp/loss.hpp`` and ``cpp/kernel.hpp``; the folder
``cpp/cuda`` has tiles, points, choices and the inner solver. CuPy is imported when a card is used.
"""

from __future__ import annotations

from typing import TypeAlias

from margrave import _core
from margrave.cuda.arrays import in_kind, is_on_card, on_host
from margrave.cuda.batch import RUNNING, STALLED, Batch, Outline
from margrave.cuda.clusters import nearest_centres, spatial_order
from margrave.cuda.device import Device, cards, deferred_interrupt, own_card
from margrave.cuda.kernel_rows import KernelRows
from margrave.cuda.linear_rows import LinearRows
from margrave.cuda.rows import scores_of
from margrave.cuda.working_set import WorkingSet, start_of

AnyKernelRows: TypeAlias = "_core.KernelRows | KernelRows"
AnyLinearRows: TypeAlias = "_core.LinearRows | LinearRows"
AnyWorkingSet: TypeAlias = "_core.WorkingSet | WorkingSet"

__all__ = [
    "RUNNING",
    "STALLED",
    "AnyKernelRows",
    "AnyLinearRows",
    "AnyWorkingSet",
    "Batch",
    "Device",
    "KernelRows",
    "LinearRows",
    "Outline",
    "WorkingSet",
    "cards",
    "deferred_interrupt",
    "in_kind",
    "is_on_card",
    "nearest_centres",
    "on_host",
    "own_card",
    "scores_of",
    "spatial_order",
    "start_of",
]
