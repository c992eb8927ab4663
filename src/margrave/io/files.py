"""Read files, compressed or not, and write them atomically."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import mmap
import os
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

PathLike = str | os.PathLike[str]

# first bytes of compressed files, and functions that open them
_PACKED: list[tuple[bytes, Callable[..., Any]]] = [
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\x00", lzma.open),
]
_PACKERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}


def read_bytes(path: PathLike) -> NDArray[np.uint8]:
    """Bytes of a file, decompressed (gzip, bzip2, xz) or memory-mapped.

    Raises
    ------
    ValueError
        If a compressed file is damaged or ends too early.
    """
    with open(path, "rb") as file:
        begin = file.peek(6)[:6]
        for magic, opener in _PACKED:
            if begin.startswith(magic):
                return np.frombuffer(_unpacked(path, opener, file), dtype=np.uint8)
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size > 0:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        return np.frombuffer(file.read(), dtype=np.uint8)


def _unpacked(path: PathLike, opener: Callable[..., Any], file: IO[bytes]) -> bytes:
    try:
        with opener(file) as packed:
            content: bytes = packed.read()
            return content
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise ValueError(f"{os.fspath(path)}: the compressed file is damaged: {error}") from None


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[IO[bytes]]:
    """Write a file that replaces an existing one only when it is complete and on the disk.

    After an error an existing file is unchanged. A file whose name ends in .gz, .bz2 or .xz is
    compressed. Anything but a regular file (a pipe, a device) is written directly.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "numbers")
    >>> with replacing(path) as file:
    ...     _ = file.write(b"1 2 3")
    >>> open(path).read()
    '1 2 3'
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(21, "is a directory", os.fspath(path))
    try:
        if target.exists() and not target.is_file():
            with open(target, "wb") as file:
                yield file
        else:
            with _beside(target) as file:
                yield file
    except OSError as error:
        if error.filename != os.fspath(path):  # report the name that the user gave
            error.filename = os.fspath(path)
        raise


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[IO[bytes]]:
    """Write a temporary file in the same directory, then rename it."""
    packer = _PACKERS.get(target.suffix)
    number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(number, "wb") as file:
            with contextlib.ExitStack() as stack:
                yield stack.enter_context(packer(file, "wb")) if packer else file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, _mode(target))
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    with contextlib.suppress(OSError):  # write the new name to disk, if the system supports it
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _mode(target: Path) -> int:
    """Permissions of the existing file, or the default ones."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
