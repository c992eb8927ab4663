"""Fuzzing of what reads files: LIBSVM's text, model files, models of LIBSVM and LIBLINEAR.

    python -m tests.fuzz [seconds]          `make fuzz` does it for a minute per reader

The text is compared with a naive twin: the same rows, or an error in the same line. Model files are
changed at random, with the digest made right again: what is loaded must predict, everything else
must be a ValueError. A crash of the compiled core ends the program, which is a finding too.
"""

from __future__ import annotations

import copy
import re
import sys
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import margrave
from margrave import SVC, SVR, KernelLogisticRegression, OneClassSVM
from margrave.estimators._files import save
from margrave.io import model_file, read_libsvm
from margrave.solvers import DivideAndConquer

FOLDER = Path(tempfile.mkdtemp(prefix="margrave_fuzz"))

# --- LIBSVM's text -------------------------------------------------------------------------

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
WORDS = [
    *(b"1", b"-1", b"+1", b"0", b"1:1", b"2:0.5", b"3:-1e3", b"0:7", b"10:1e-300", b"7:.5"),
    *(b"8:5.", b"9:1e999", b"5:nan", b"4:", b":3", b"qid:3", b"qid:", b"#", b"# 1:1", b"\r"),
    *(b"99999999999:1", b"2147483646:1", b"2147483647:1", b"x", b"1,2", b"6:0x1", b"\x00", b"\xff"),
    *(b"123456789012345678901:1", b"1e", b"11:1e+", b"12:1#c", b"-0", b"13:123456789012345678901"),
]
LINE = st.lists(st.one_of(st.sampled_from(WORDS), st.binary(max_size=4)), max_size=7).map(
    lambda words: b" ".join(words)
)
TEXT = st.one_of(st.lists(LINE, max_size=6).map(b"\n".join), st.binary(max_size=80))


def twin(content: bytes):
    """Rows as (label, {index: value}), or the number of the first wrong line."""
    rows = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        words = [w for w in re.split(rb"[ \t\r\v\f]+", line.partition(b"#")[0]) if w]
        if not words:
            continue
        row: dict[int, float] = {}
        values = [words[0]]
        for word in words[1:]:
            if re.fullmatch(rb"qid:\d+", word) and not row:
                continue
            index, colon, value = word.partition(b":")
            if not colon or not re.fullmatch(rb"\d{1,18}", index):
                return number
            if int(index) <= max(row, default=-1) or int(index) > 2**31 - 2:
                return number
            if not NUMBER.fullmatch(value):
                return number
            row[int(index)] = float(value)
            values.append(value)
        if not all(NUMBER.fullmatch(v) and np.isfinite(float(v)) for v in values):
            return number
        rows.append((float(words[0]), row))
    return rows


@given(TEXT, st.integers(1, 3))
def check_text(content, jobs):
    path = FOLDER / "text"
    path.write_bytes(content)
    expected = twin(content)
    try:
        found = read_libsvm(path, n_jobs=jobs)
    except ValueError as error:
        if expected == [] and ("contains no rows" in str(error) or "damaged" in str(error)):
            return
        assert isinstance(expected, int), (content, error)
        assert str(error).startswith(f"{path}:{expected}: ") or "damaged" in str(error), content
        return
    assert isinstance(expected, list), content
    first = 0 if found.zero_based else 1
    assert found.zero_based == any(0 in row for _, row in expected), content
    assert found.heads[:, 0].tolist() == [label for label, _ in expected], content
    for i, (_, row) in enumerate(expected):
        own = slice(found.X.indptr[i], found.X.indptr[i + 1])
        assert (found.X.indices[own] + first).tolist() == list(row), content
        assert found.X.data[own].tolist() == list(row.values()), content


# --- model files ---------------------------------------------------------------------------


def models():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.5])
    early = DivideAndConquer(early=1)
    committee = DivideAndConquer(early=1, combine="committee")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            SVC().fit(X, y),
            SVC(kernel="linear").fit(X, y > 0),
            SVC().fit(sparse.csr_matrix(X), np.array(["a", "b", "c"])[y]),
            SVC(solver=early).fit(X, y),
            SVC(solver=committee, kernel="poly").fit(X, y > 0),
            SVC(kernel="precomputed").fit(X @ X.T, y),
            KernelLogisticRegression(multi_class="softmax").fit(X, y),
            OneClassSVM().fit(X),
            Pipeline([("scale", StandardScaler()), ("model", SVR())]).fit(X, X[:, 0]),
        ]


@cache
def described():
    found = []
    for model in models():
        save(model, FOLDER / "model")
        found.append(model_file.read_model(FOLDER / "model"))
    return found


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "ovo", "binary", "rbf", "float32", "SVC", "csr_matrix", "nan"]),
    st.just([]),
    st.just({}),
    st.just({"float": "nan"}),
    st.just({"object": "SVC", "parameters": {}, "fitted": {}}),
)


def leaves(value, path=()):
    """Paths to everything in nested JSON values."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(entry, (*path, key))


def change_description(draw, description):
    paths = list(leaves(description))
    path = draw(st.sampled_from(paths))
    at = description
    for key in path[:-1]:
        at = at[key]
    if draw(st.booleans()):
        at[path[-1]] = copy.deepcopy(draw(VALUES))
    else:
        other = description
        for key in draw(st.sampled_from(paths)):
            other = other[key]
        at[path[-1]] = copy.deepcopy(other)


def change_arrays(draw, arrays):
    name = draw(st.sampled_from(sorted(arrays)))
    array = arrays[name]
    ways = {
        "nan": lambda: np.full_like(array, np.nan) if array.dtype.kind == "f" else array - 10**5,
        "huge": lambda: array * np.array(10, array.dtype) ** 8,
        "shorter": lambda: array[1:].copy(),
        "longer": lambda: np.concatenate([array, array]),
        "flat": lambda: array.ravel().copy(),
        "other type": lambda: array.astype(draw(st.sampled_from(["f4", "f8", "i4", "i8", "u1"]))),
        "turned": lambda: np.ascontiguousarray(array.T),
        "reversed": lambda: array[::-1].copy(),
        "negative": lambda: -array if array.dtype.kind != "b" else ~array,
        "another": lambda: arrays[draw(st.sampled_from(sorted(arrays)))],
        "empty": lambda: array[:0].copy(),
    }
    with np.errstate(all="ignore"):
        arrays[name] = ways[draw(st.sampled_from(sorted(ways)))]()


@given(st.data())
def check_model_file(data):
    path = FOLDER / "forged"
    description, arrays = copy.deepcopy(data.draw(st.sampled_from(described())))
    for _ in range(data.draw(st.integers(1, 2))):
        if data.draw(st.booleans()):
            change_description(data.draw, description)
        else:
            change_arrays(data.draw, arrays)
    model_file.write_model(path, description, arrays)
    if data.draw(st.integers(0, 9)) == 0:  # and sometimes bytes of the file itself
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
    try:
        model = margrave.load(path)
    except ValueError as error:
        assert str(error).startswith(str(path)), error
        return
    predict(model)


def predict(model):
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    rows = np.random.default_rng(1).standard_normal((5, min(last.n_features_in_, 10**5)))
    try:
        found = model.predict(rows)
    except ValueError:
        return
    assert len(found) == 5


SVM = b"""svm_type c_svc
kernel_type rbf
gamma 0.5
degree 3
coef0 1
nr_class 3
total_sv 3
rho 0.1 0.2 0.3
label 1 -1 4
nr_sv 1 1 1
SV
1 0.5 1:0.5 3:1
-1 0 2:0.25
1 1 1:1
"""
LINEAR = (
    b"solver_type MCSVM_CS\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias 1\nw\n0.5 1\n-1 0\n1 1\n"
)
PIECES = sorted({*re.split(rb"[ \n]", SVM + LINEAR), b"linear", b"precomputed", b"polynomial"})
PIECES += [b"one_class", b"nu_svr", b"0:1", b"0:2.5", b"-7", b"1e308", b"99999999", b"nan", b"\xff"]


@given(
    st.sampled_from([SVM, LINEAR]),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(PIECES)), max_size=3),
)
def check_libsvm_model(text, changes):
    words = re.split(rb"([ \n])", text)
    for place, piece in changes:
        words[2 * place % len(words)] = piece
    path = FOLDER / "libsvm"
    path.write_bytes(b"".join(words))
    try:
        model = margrave.load_libsvm_model(path)
    except ValueError:
        return
    predict(model)
    save(model, FOLDER / "saved")
    margrave.load(FOLDER / "saved")


def main() -> None:
    """Run each check for some seconds, with fresh examples."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for check in (check_text, check_model_file, check_libsvm_model):
        end, rounds = time.monotonic() + seconds, 0
        some = settings(
            max_examples=300,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )(check)
        while time.monotonic() < end:
            some()
            rounds += 1
        print(f"{check.__name__}: {300 * rounds:,} files, nothing found", flush=True)


if __name__ == "__main__":
    main()
