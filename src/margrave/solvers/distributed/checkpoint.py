"""Checkpoints on disk: arrays and numbers in one file, written atomically.

Local folders, or any place that fsspec knows ("s3://bucket/run"). Nothing is executed on reading.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from margrave.problem import Problem
from margrave.rows import blocks_of, is_csr

_FILE = "margrave-checkpoint.npz"
_ROWS = 1 << 14  # rows at a time


class Checkpoint:
    """A folder that holds the checkpoint of a run.

    Parameters
    ----------
    folder : str or path
    fingerprint : str
        Of the problems: another run's checkpoint is refused.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     kept = Checkpoint(folder, "mine")
    ...     kept.load() is None
    ...     kept.save({"beta": np.array([1.0, 2.0])}, {"round": 3})
    ...     arrays, numbers = kept.load()
    ...     arrays["beta"].tolist(), numbers["round"]
    True
    ([1.0, 2.0], 3)
    """

    def __init__(self, folder: str | PathLike[str], fingerprint: str) -> None:
        self.folder, self.fingerprint = os.fspath(folder), fingerprint
        self.is_remote = "://" in self.folder

    def save(self, arrays: Mapping[str, NDArray[Any]], numbers: Mapping[str, Any]) -> None:
        """Write a checkpoint, replacing the last one."""
        note = json.dumps({"fingerprint": self.fingerprint, **numbers}).encode()
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, note=np.frombuffer(note, dtype=np.uint8), **arrays)
        if self.is_remote:
            with self._remote("wb") as file:  # object stores replace a file as a whole
                file.write(buffer.getbuffer())
            return
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f"{_FILE}.{os.getpid()}.part"
        with open(scratch, "wb") as local:
            local.write(buffer.getbuffer())
            local.flush()
            os.fsync(local.fileno())
        os.replace(scratch, folder / _FILE)

    def load(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """Read the checkpoint; None if there is none."""
        try:
            data = self._read()
        except FileNotFoundError:
            return None
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            numbers = json.loads(arrays.pop("note").tobytes())
        except (ValueError, KeyError, OSError, EOFError, BadZipFile, zlib.error) as error:
            raise ValueError(
                f"the checkpoint in {self.folder!r} cannot be read ({error}); remove it to begin"
                " anew"
            ) from error
        if numbers.pop("fingerprint", None) != self.fingerprint:
            raise ValueError(
                f"the checkpoint in {self.folder!r} belongs to other data or parameters; remove it"
                " or use another folder"
            )
        return arrays, numbers

    def remove(self) -> None:
        """Remove the checkpoint: the run is complete."""
        if self.is_remote:
            system, path = self._system()
            if system.exists(path):
                system.rm(path)
        else:
            (Path(self.folder) / _FILE).unlink(missing_ok=True)

    def _read(self) -> bytes:
        if self.is_remote:
            with self._remote("rb") as file:
                data: bytes = file.read()
                return data
        return (Path(self.folder) / _FILE).read_bytes()

    def _remote(self, mode: str) -> Any:
        system, path = self._system()
        return system.open(path, mode)

    def _system(self) -> tuple[Any, str]:
        try:
            url_to_fs = import_module("fsspec.core").url_to_fs
        except ImportError:
            raise ImportError(
                f"a checkpoint at {self.folder!r} needs fsspec: pip install fsspec, or name a local"
                " folder"
            ) from None
        system, path = url_to_fs(f"{self.folder.rstrip('/')}/{_FILE}")
        return system, path


def fingerprint(problems: Sequence[Problem], **parameters: object) -> str:
    """A hash of the problems' parameters, targets, weights and rows."""
    data = problems[0].data
    digest = hashlib.blake2b(digest_size=16)
    kernel = data.kernel
    # a repr with an address would change between runs
    name = kernel.name if isinstance(kernel.name, str) else kernel.name.__qualname__
    for part in (data.X.shape, name, kernel.numbers, parameters):
        digest.update(repr(part).encode())
    for _, block in blocks_of(data.X):
        for first in range(0, block.shape[0], _ROWS):
            rows = block[first : first + _ROWS]
            arrays = [rows.indptr, rows.indices, rows.data] if is_csr(rows) else [rows]
            for array in arrays:
                digest.update(np.ascontiguousarray(array).data)
    for problem in problems:
        digest.update(repr((problem.loss, problem.intercept, problem.total)).encode())
        digest.update(problem.y.tobytes())
        digest.update(problem.C.tobytes())
    return digest.hexdigest()
