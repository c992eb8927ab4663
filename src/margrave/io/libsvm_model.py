"""Read and write the text of LIBSVM's and LIBLINEAR's model files.

svm_type c_svc                 solver_type L2R_L2LOSS_SVC_DUAL
kernel_type rbf                nr_class 2
gamma 0.5                      label 1 -1
nr_class 2                     nr_feature 3
total_sv 2                     bias -1
rho 0.1                        w
label 1 -1                     0.5
nr_sv 1 1                      0
SV                             -0.25
1 1:0.5 3:1
-1 2:0.25
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margrave.io.files import PathLike, read_bytes, replacing
from margrave.io.libsvm import lines, parse
from margrave.rows import Matrix

Floats = NDArray[np.float64]
Number = TypeVar("Number", int, float)

SVM_TYPES = ("c_svc", "nu_svc", "one_class", "epsilon_svr", "nu_svr")
KERNEL_TYPES = ("linear", "polynomial", "rbf", "sigmoid", "precomputed")
SOLVER_TYPES = (
    *("L2R_LR", "L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC", "L2R_L1LOSS_SVC_DUAL", "MCSVM_CS"),
    *("L1R_L2LOSS_SVC", "L1R_LR", "L2R_LR_DUAL", "L2R_L2LOSS_SVR", "L2R_L2LOSS_SVR_DUAL"),
    *("L2R_L1LOSS_SVR_DUAL", "ONECLASS_SVM"),
)
_MOST_CLASSES = 1_000_000


@dataclass(frozen=True)
class SvmText:
    """A LIBSVM model; `coef` has a row per support vector."""

    svm_type: str
    kernel_type: str
    rho: Floats
    coef: Floats
    X: Matrix
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0
    label: NDArray[np.int64] | None = None
    nr_sv: NDArray[np.int64] | None = None
    probA: Floats | None = None  # of each pair: P(first) = 1 / (1 + exp(probA score + probB))
    probB: Floats | None = None


@dataclass(frozen=True)
class LinearText:
    """A LIBLINEAR model; `w` has a row per feature, and one more if there is a bias."""

    solver_type: str
    w: Floats
    n_features: int
    bias: float = -1.0
    label: NDArray[np.int64] | None = None
    rho: float = 0.0


def read_libsvm_model(path: PathLike) -> SvmText | LinearText:
    """Read a model file of LIBSVM or LIBLINEAR; errors name the file and the line."""
    header = _Header(path, read_bytes(path))
    if "svm_type" in header.fields:
        return _svm(header)
    if "solver_type" in header.fields:
        return _linear(header)
    raise ValueError(
        f"{header.name}:1: not a model file of LIBSVM or LIBLINEAR, which begin with svm_type or"
        " solver_type"
    )


def is_libsvm_model(path: PathLike) -> bool:
    """Whether the first bytes of a file are those of a LIBSVM or LIBLINEAR model."""
    return bytes(read_bytes(path)[:12]).startswith((b"svm_type ", b"solver_type "))


class _Header:
    """The lines of names and values before the table of numbers."""

    def __init__(self, path: PathLike, content: NDArray[np.uint8]) -> None:
        self.name = os.fspath(path)
        self.fields: dict[str, tuple[int, list[str]]] = {}
        at, self.line = 0, 0
        while True:
            self.line += 1
            if at >= len(content) or self.line > 100:
                raise ValueError(
                    f"{self.name}:{self.line}: the model file ends before its table (SV or w)"
                )
            window = content[at : at + (1 << 24)]
            ends = np.flatnonzero(window[: 1 << 12] == 10)
            ends = ends if len(ends) else np.flatnonzero(window == 10)
            size = int(ends[0]) if len(ends) else len(window)
            words = bytes(window[:size]).decode("ascii", "replace").split()
            at += size + 1
            if words in (["SV"], ["w"]):
                self.table = content[at:]
                return
            if words:
                self.fields[words[0]] = (self.line, words[1:])

    def fail(self, key: str, what: str) -> ValueError:
        line = self.fields[key][0] if key in self.fields else self.line
        return ValueError(f"{self.name}:{line}: {key} {what}")

    def word(self, key: str, known: tuple[str, ...]) -> str:
        _, words = self.fields.get(key, (0, []))
        if len(words) != 1 or words[0] not in known:
            raise self.fail(key, f"is {' '.join(words)[:40]!r}, must be one of {', '.join(known)}")
        return words[0]

    def numbers(
        self, key: str, count: int, kind: Callable[[str], Number], default: Number | None = None
    ) -> list[Number]:
        if key not in self.fields and default is not None:
            return [default] * count
        _, words = self.fields.get(key, (0, []))
        try:
            found = [kind(word) for word in words]
        except ValueError:
            found = []
        if len(found) != count or not np.isfinite(found).all():
            raise self.fail(key, f"needs {count} number{'s' if count > 1 else ''}")
        return found

    def number(
        self, key: str, kind: Callable[[str], Number], default: Number | None = None
    ) -> Number:
        return self.numbers(key, 1, kind, default)[0]

    def labels(self, k: int) -> NDArray[np.int64] | None:
        if "label" not in self.fields:
            return None
        found = self.numbers("label", k, int)
        if len(set(found)) < k or max(map(abs, found)) > 1 << 53:
            raise self.fail("label", "must be distinct integers")
        return np.array(found, dtype=np.int64)

    def classes(self) -> int:
        k = self.number("nr_class", int)
        if not 2 <= k <= _MOST_CLASSES:
            raise self.fail("nr_class", f"is {k}, must be from 2 to {_MOST_CLASSES}")
        return k


def _svm(header: _Header) -> SvmText:
    svm_type = header.word("svm_type", SVM_TYPES)
    kernel_type = header.word("kernel_type", KERNEL_TYPES)
    k = header.classes()
    label, nr_sv = header.labels(k), None
    if svm_type in ("c_svc", "nu_svc"):
        if label is None:
            raise header.fail("label", "is missing")
        nr_sv = np.array(header.numbers("nr_sv", k, int), dtype=np.int64)
    elif k != 2:
        raise header.fail("nr_class", f"is {k}, must be 2 for {svm_type}")
    found = parse(
        header.table,
        header.name,
        heads=k - 1,
        zero_based=kernel_type == "precomputed",
        first_line=header.line + 1,
    )
    total = header.number("total_sv", int)
    if found.X.shape[0] != total:
        raise header.fail("total_sv", f"is {total}, but there are {found.X.shape[0]} lines of SV")
    if nr_sv is not None and (nr_sv.min() < 0 or nr_sv.sum() != total):
        raise header.fail("nr_sv", f"must add up to total_sv, {total}")
    pairs = k * (k - 1) // 2
    sigmoids: list[Floats | None] = [None, None]
    if nr_sv is not None and "probA" in header.fields:
        sigmoids = [np.array(header.numbers(name, pairs, float)) for name in ("probA", "probB")]
    return SvmText(
        svm_type,
        kernel_type,
        np.array(header.numbers("rho", pairs, float)),
        found.heads,
        found.X,
        header.number("gamma", float, 1.0),
        header.number("degree", int, 3),
        header.number("coef0", float, 0.0),
        label if nr_sv is not None else None,
        nr_sv,
        *sigmoids,
    )


def _linear(header: _Header) -> LinearText:
    solver_type = header.word("solver_type", SOLVER_TYPES)
    k, d = header.classes(), header.number("nr_feature", int)
    bias = header.number("bias", float, -1.0)
    single = k == 2 and solver_type != "MCSVM_CS"
    found = parse(header.table, header.name, heads=1 if single else k, first_line=header.line + 1)
    rows = d + int(bias >= 0)
    if found.X.nnz or found.heads.shape[0] != rows or d < 1:
        raise header.fail("nr_feature", f"needs {rows} lines of w, there are {len(found.heads)}")
    rho = header.number("rho", float, 0.0)
    label = header.labels(k)
    if label is None and not solver_type.endswith(("SVR", "SVR_DUAL", "ONECLASS_SVM")):
        raise header.fail("label", "is missing")
    return LinearText(solver_type, found.heads, d, bias, label, rho)


def write_libsvm_model(path: PathLike, model: SvmText | LinearText) -> None:
    """Write a model file; numbers read back unchanged."""
    with replacing(path) as file:
        for piece in _svm_pieces(model) if isinstance(model, SvmText) else _linear_pieces(model):
            file.write(piece)


def _svm_pieces(model: SvmText) -> Iterator[bytes]:
    reads = {"polynomial": "gamma degree coef0", "rbf": "gamma", "sigmoid": "gamma coef0"}
    yield _line("svm_type", model.svm_type)
    yield _line("kernel_type", model.kernel_type)
    for name in ("degree", "gamma", "coef0"):
        if name in reads.get(model.kernel_type, "").split():
            yield _line(name, getattr(model, name))
    yield _line("nr_class", model.coef.shape[1] + 1)
    yield _line("total_sv", len(model.coef))
    yield _line("rho", *model.rho)
    if model.label is not None and model.nr_sv is not None:
        yield _line("label", *model.label)
        if model.probA is not None and model.probB is not None:
            yield _line("probA", *model.probA)
            yield _line("probB", *model.probB)
        yield _line("nr_sv", *model.nr_sv)
    yield b"SV\n"
    yield from lines(model.X, model.coef, zero_based=model.kernel_type == "precomputed")


def _linear_pieces(model: LinearText) -> Iterator[bytes]:
    yield _line("solver_type", model.solver_type)
    yield _line("nr_class", max(2, model.w.shape[1]))
    if model.label is not None:
        yield _line("label", *model.label)
    yield _line("nr_feature", model.n_features)
    yield _line("bias", model.bias)
    if model.solver_type == "ONECLASS_SVM":
        yield _line("rho", model.rho)
    yield b"w\n"
    yield from lines(np.zeros((len(model.w), 0)), model.w)


def _line(name: str, *values: str | float | np.integer[Any]) -> bytes:
    words = [repr(float(v)) if isinstance(v, (float, np.floating)) else str(v) for v in values]
    return (" ".join([name, *words]) + "\n").encode()
