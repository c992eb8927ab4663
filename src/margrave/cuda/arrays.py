"""Users' arrays that lie on a graphics card, of CuPy, torch and others."""

from __future__ import annotations

import sys
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from margrave.cuda.device import import_cupy

_CUDA = (2, 13)  # kinds of memory in the DLPack standard: of a card, and managed


def is_on_card(array: object) -> TypeGuard[Any]:
    """Whether an array, or a sparse matrix, is in the memory of a graphics card."""
    if hasattr(type(array), "__dlpack_device__"):
        kind: Any = array
        return kind.__dlpack_device__()[0] in _CUDA
    return hasattr(type(array), "__cuda_array_interface__") or _package(array) == "cupyx"


def on_host(array: Any) -> Any:
    """A copy of a card's array in the machine's memory; anything else as it is."""
    if not is_on_card(array):
        return array
    if _package(array) == "cupyx":  # sparse: as scipy.sparse has it
        return array.get()
    cupy = import_cupy()
    plain = array.detach() if _package(array) == "torch" else array
    find = cupy.from_dlpack if hasattr(plain, "__dlpack__") else cupy.asarray
    return cupy.asnumpy(find(plain))


def in_kind(found: NDArray[Any], like: Any) -> Any:
    """Results as a torch tensor where the rows are one, else as a CuPy array; labels of text stay.

    They are on the card of the rows.
    """
    if found.dtype.kind not in "biuf":
        return found
    if _package(like) == "torch":
        return sys.modules["torch"].as_tensor(np.ascontiguousarray(found), device=like.device)
    cupy = import_cupy()
    with cupy.cuda.Device(getattr(getattr(like, "device", None), "id", 0)):
        return cupy.asarray(found)


def _package(array: object) -> str:
    return type(array).__module__.partition(".")[0]
