"""Model files: named arrays and a description, in one safetensors file.

    8 bytes       length of the header
    header        JSON: type, shape and offset of every array, and `__metadata__`:
                      format    "margrave model"
                      version   of the description, an integer
                      writer    the version of margrave that wrote it, for information
                      digest    SHA-256 of the file, with zeros in place of the digest
                      model     JSON: the description
    the arrays

Any tool for safetensors can show the header and the arrays; the same model always gives the same
bytes. Reading executes no code: it checks format, version and digest, lets the safetensors library
check types, shapes and offsets, and returns arrays and plain Python values.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from margrave.io.files import PathLike, read_bytes, replacing

VERSION = 1
_FORMAT = "margrave model"
_ZEROS = "0" * 64
_TYPES = {"f": "F", "i": "I", "u": "U", "b": "BOOL"}  # by kind of dtype

Arrays = dict[str, NDArray[Any]]
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def write_model(path: PathLike, description: Json, arrays: Arrays) -> None:
    """Write a description (JSON values) and the arrays that it names, atomically."""
    model = json.dumps(description, allow_nan=False, separators=(",", ":"))
    metadata = {
        "format": _FORMAT,
        "version": str(VERSION),
        "writer": f"margrave {importlib.metadata.version('margrave')}",
        "digest": _ZEROS,
        "model": model,
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    pieces, end = [], 0
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].itemsize):  # aligned
        begin, end = end, end + array.nbytes
        kind = _TYPES[array.dtype.kind] + str(8 * array.itemsize)
        header[name] = {
            "dtype": "BOOL" if kind == "BOOL8" else kind,
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
        pieces.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    text = _framed(header)
    metadata["digest"] = _digest(text, pieces)
    with replacing(path) as file:
        file.write(_framed(header))
        for piece in pieces:
            file.write(piece)


def _framed(header: dict[str, Any]) -> bytes:
    """The header preceded by its length, padded so that the arrays begin at a multiple of 8."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_model(path: PathLike) -> tuple[Json, Arrays]:
    """Read a description and its arrays.

    Raises
    ------
    ValueError
        If the file is not a model file, damaged, or of a later version.
    """
    name = os.fspath(path)
    content = bytes(read_bytes(path))
    metadata, length = _metadata(name, content)
    version = metadata.get("version", "")
    if not (isinstance(version, str) and version.isdecimal() and len(version) < 10):
        raise ValueError(f"{name}: the model file has no version")
    if int(version) > VERSION:
        raise ValueError(
            f"{name}: the model file has version {version}, but this version of margrave reads up"
            f" to {VERSION}: use {metadata.get('writer', 'a later one')!r}, which wrote it"
        )
    digest, model = metadata.get("digest"), metadata.get("model")
    if not (isinstance(digest, str) and len(digest) == 64 and isinstance(model, str)):
        raise ValueError(f"{name}: the model file is incomplete")
    header = content[:length].replace(_quoted(digest), _quoted(_ZEROS), 1)
    if _digest(header, [memoryview(content)[length:]]) != digest:
        raise ValueError(f"{name}: the model file was altered or damaged: wrong digest")
    try:
        found = safetensors.numpy.load(content)
        description = json.loads(model)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{name}: the model file is damaged: {error}") from None
    return description, {key: array.copy() for key, array in found.items()}  # writable


def is_model(path: PathLike) -> bool:
    """Whether the first bytes of a file are those of a model file."""
    begin = bytes(read_bytes(path)[:9])
    return len(begin) == 9 and begin[8:] == b"{" and begin[4:8] == b"\0\0\0\0"


def _metadata(name: str, content: bytes) -> tuple[dict[str, Any], int]:
    """The metadata of a safetensors file, and the offset of its arrays."""
    length = 8 + int.from_bytes(content[:8], "little")
    if len(content) < 9 or content[8:9] != b"{":
        raise ValueError(f"{name}: not a model file of margrave")
    if length > len(content):
        raise ValueError(f"{name}: the model file is truncated")
    try:
        header = json.loads(content[8:length])
        metadata = header.get("__metadata__")
    except (ValueError, AttributeError, RecursionError):
        raise ValueError(f"{name}: the header of the model file is damaged") from None
    if not isinstance(metadata, dict) or metadata.get("format") != _FORMAT:
        raise ValueError(f"{name}: not a model file of margrave")
    return metadata, length


def _quoted(digest: str) -> bytes:
    return json.dumps(digest).encode()


def _digest(header: bytes, pieces: Sequence[bytes | memoryview]) -> str:
    digest = hashlib.sha256(header)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
