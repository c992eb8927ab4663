"""Checkpoints on disk: arrays and numbers in one file, written atomically.

Local folders, or any place that fsspec knows ("s3://bucket/run"). Nothing is executed on reading.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import version as version_of
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from margrave.problem import Problem
from margrave.rows import digests_of

logger = logging.getLogger("margrave")

_FORMAT = 2
_FILE = "margrave-checkpoint.npz"
_ROWS = 1 << 14  # rows at a time


class Checkpoint:
    """A folder that holds the checkpoint of a run.

    Parameters
    ----------
    folder : str or path
    identity : dict
        Of the problems, from `identity`: a checkpoint of others is refused.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> mine = {"version": "1", "parameters": "a1", "targets": "b2", "weights": "c3", "rows": []}
    >>> with TemporaryDirectory() as folder:
    ...     kept = Checkpoint(folder, mine)
    ...     kept.load() is None
    ...     kept.save({"beta": np.array([1.0, 2.0])}, {"round": 3})
    ...     arrays, numbers = kept.load()
    ...     arrays["beta"].tolist(), numbers["round"]
    True
    ([1.0, 2.0], 3)
    """

    def __init__(self, folder: str | PathLike[str], identity: Mapping[str, Any]) -> None:
        self.folder, self.identity = os.fspath(folder), identity
        self.is_remote = "://" in self.folder

    def save(self, arrays: Mapping[str, NDArray[Any]], numbers: Mapping[str, Any]) -> None:
        """Write a checkpoint, replacing the last one."""
        note = {"format": _FORMAT, "identity": self.identity, "numbers": dict(numbers)}
        text = json.dumps({**note, "digest": _content(note, arrays)}).encode()
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, note=np.frombuffer(text, dtype=np.uint8), **arrays)
        if self.is_remote:
            self._write_elsewhere(buffer.getbuffer())
            return
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f"{_FILE}.part"
        try:
            with open(scratch, "wb") as local:
                local.write(buffer.getbuffer())
                local.flush()
                os.fsync(local.fileno())
            os.replace(scratch, folder / _FILE)
        except OSError:
            with suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise

    def _write_elsewhere(self, data: memoryview) -> None:
        """Object stores replace a file as a whole; each has errors of its own."""
        try:
            with self._remote("wb") as file:
                file.write(data)
        except ImportError:
            raise
        except Exception as error:
            raise OSError(f"{type(error).__name__}: {error}") from error

    def load(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """Read the checkpoint; None if there is none."""
        try:
            data = self._read()
        except FileNotFoundError:
            return None
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            note = json.loads(arrays.pop("note").tobytes())
            if note.get("format") != _FORMAT:
                raise ValueError(f"its format is {note.get('format')}, this one is {_FORMAT}")
            if note.pop("digest") != _content(note, arrays):
                raise ValueError("it was altered")
        except (ValueError, KeyError, OSError, EOFError, BadZipFile, zlib.error) as error:
            raise ValueError(
                f"the checkpoint in {self.folder!r} cannot be read ({error}); remove it to begin"
                " anew"
            ) from error
        if difference := _difference(self.identity, note["identity"]):
            raise ValueError(
                f"the checkpoint in {self.folder!r} belongs to other data or parameters"
                f" ({difference}); remove it or use another folder"
            )
        return arrays, note["numbers"]

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


@contextmanager
def warned(what: str) -> Iterator[None]:
    """A full disk, or one that is gone, costs the checkpoint and not the fit."""
    try:
        yield
    except OSError as error:
        logger.warning("%s: %s", what, error)


def identity(problems: Sequence[Problem], **parameters: object) -> dict[str, Any]:
    """What a checkpoint belongs to: digests of rows, targets, weights and parameters; the version.

    Nothing that is only known by its address in memory, which would change between runs.
    """
    data, kernel = problems[0].data, problems[0].data.kernel
    name = kernel.name if isinstance(kernel.name, str) else kernel.name.__qualname__
    kinds = [(problem.loss, problem.intercept, problem.total) for problem in problems]
    both = [(problem.y, problem.shift) for problem in problems]
    targets = [numbers for pair in both for numbers in pair if numbers is not None]
    return {
        "version": version_of("margrave"),
        "parameters": _digest(repr((data.X.shape, name, kernel.numbers, kinds, parameters))),
        "targets": _digest(*targets),
        "weights": _digest(*(problem.C for problem in problems)),
        "rows": [list(one) for one in digests_of(data.X, _ROWS)],
    }


def _content(note: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """A digest of all that a checkpoint holds."""
    known = {name: _digest(array) for name, array in sorted(arrays.items())}
    return _digest(json.dumps([note, known], sort_keys=True))


def _digest(*parts: str | NDArray[Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if not isinstance(part, str):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
        digest.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _difference(now: Mapping[str, Any], then: Mapping[str, Any]) -> str | None:
    """What does not belong to the checkpoint, in words."""
    words = {"parameters": "parameters", "targets": "labels or targets", "weights": "weights, or C"}
    if then.get("version") != now["version"]:
        return f"version {then.get('version')} of margrave, this is {now['version']}"
    for name, word in words.items():
        if then.get(name) != now[name]:
            return f"other {word}"
    first = 0
    if len(now["rows"]) != len(then.get("rows", ())):
        return "rows that were divided in another way"
    for mine, other in zip(now["rows"], then["rows"], strict=True):
        if mine != other:
            return f"other rows, from {first:,} to {mine[0] - 1:,}"
        first = mine[0]
    return None
