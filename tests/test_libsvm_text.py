"""LIBSVM's text: numbers to the last bit, every line in its place, errors with file and line."""

import gzip
import math
import os
import random
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from margrave.io import load_libsvm, read_libsvm, save_libsvm
from tests.systems import linux, posix


@pytest.fixture
def read(tmp_path):
    """Write a text to a file and read it."""

    def reader(text, **options):
        path = tmp_path / "data.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_libsvm(path, **options)

    return reader


HARD = [
    *("0.1", "1e23", "8.5e22", "9007199254740993", "6929495644600919.5", "1.e5", ".5", "-.5e-3"),
    *("5.", "0e999", "-0", "4.9e-324", "2.4703282292062328e-324", "2.4703282292062327e-324"),
    *("2.2250738585072011e-308", "1.7976931348623157e308", "1e-400", "123456789012345678901234"),
    *("0." + "0" * 330 + "1", "0" * 400 + "1", "1" + "0" * 300, "1" * 30 + "e-30", "+7", "3e-07"),
]


def random_numbers(count, seed=0):
    rng = random.Random(seed)
    kinds = [
        lambda: repr(rng.uniform(-1, 1) * 10.0 ** rng.randint(-320, 308)),
        lambda: f"{rng.randrange(10**20)}.{rng.randrange(10**9)}e{rng.randint(-340, 280)}",
        lambda: f"{rng.gauss(0, 1):.{rng.randint(1, 20)}g}",
        lambda: f"{rng.randrange(2**52, 2**60)}e{rng.randint(-30, 30)}",
    ]
    return [rng.choice(kinds)() for _ in range(count)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_numbers_are_rounded_as_python_rounds_them(read, dtype):
    words = [w for w in HARD + random_numbers(20_000) if abs(float(w)) < float(np.finfo(dtype).max)]
    X, y = read("".join(f"{w} 1:{w}\n" for w in words), dtype=dtype)
    expected = np.array([float(w) for w in words])
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(X.toarray()[:, 0], expected.astype(dtype))
    assert X.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("zero_based", [False, True])
def test_what_is_written_is_read_again(tmp_path, rng, dtype, form, zero_based):
    X = rng.standard_normal((300, 7)).astype(dtype) * 10.0 ** rng.integers(-30, 30, (300, 7))
    X[rng.random((300, 7)) < 0.4] = 0.0
    X[:, 0] = 1.0  # else "auto" could not tell
    X, y = X.astype(dtype), rng.standard_normal(300)
    save_libsvm(tmp_path / "data", form(X), y, zero_based=zero_based)
    A, b = load_libsvm(tmp_path / "data", n_features=7, dtype=dtype)
    np.testing.assert_array_equal(A.toarray(), X)
    np.testing.assert_array_equal(b, y)
    assert read_libsvm(tmp_path / "data").zero_based == zero_based
    B, c = load_svmlight_file(str(tmp_path / "data"), n_features=7, dtype=dtype)
    np.testing.assert_array_equal(B.toarray(), X)
    np.testing.assert_array_equal(c, y)


def large_text(rng, size):
    """Some megabytes with everything that a line may hold, and how it should come out."""
    lines, rows, labels = [], [], []
    while size > 0:
        kind = rng.random()
        if kind < 0.03:
            lines.append(rng.choice(["", "   ", "# only a comment 3:4", "\t"]))
        else:
            columns = sorted(rng.sample(range(1, 40), rng.randint(0, 20)))
            values = [round(rng.gauss(0, 1), rng.randint(0, 8)) for _ in columns]
            label = rng.randint(-3, 3)
            words = [str(label), *(["qid:7"] if kind < 0.2 else [])]
            words += [f"{c}:{v!r}" for c, v in zip(columns, values, strict=True)]
            lines.append(rng.choice([" ", "\t", "  "]).join(words))
            lines[-1] += rng.choice(["", " ", "\r", " # 1:2 2:x", "#"] if kind < 0.4 else [""])
            rows.append(dict(zip(columns, values, strict=True)))
            labels.append(label)
        size -= len(lines[-1]) + 1
    return lines, rows, labels


def test_stretches_of_a_large_file_fit_together(tmp_path, caplog):
    """Against a list of what was written: gaps of comments and query numbers are closed."""
    lines, rows, labels = large_text(random.Random(1), 3 << 20)
    path = tmp_path / "large"
    path.write_text("\n".join(lines))  # the last line without an end
    expected = np.zeros((len(rows), 39))
    for i, row in enumerate(rows):
        expected[i, [c - 1 for c in row]] = list(row.values())
    for jobs in (1, 3):
        X, y = load_libsvm(path, n_features=39, n_jobs=jobs)
        np.testing.assert_array_equal(X.toarray(), expected)
        np.testing.assert_array_equal(y, labels)
    assert "qid" in caplog.text
    assert X.nnz == sum(map(len, rows))  # zeros that are written are kept


def test_the_first_error_of_a_large_file_is_raised(tmp_path):
    lines, _, _ = large_text(random.Random(2), 5 << 19)
    for wrong in (len(lines) // 7, len(lines) // 2, len(lines) - 1):
        broken = list(lines)
        broken[wrong], broken[-1] = "1 5:1 4:1", "x"
        if wrong == len(lines) - 1:
            broken[wrong] = "1 5:1 4:1"
        (tmp_path / "large").write_text("\n".join(broken))
        with pytest.raises(ValueError, match=rf"large:{wrong + 1}: index 4 comes after index 5"):
            load_libsvm(tmp_path / "large", n_jobs=2)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("abc 1:2", 1, "'abc' is not a finite number"),
        ("1 1:1\n2:2 3:4\n", 2, "the label is missing in front of '2:2'"),
        ("1 1:1\n\n# c\n1 3:1 2:1", 4, "index 2 comes after index 3"),
        ("1 1:1 1:2", 1, "index 1 comes after index 1"),
        ("1 1:nan", 1, "the value 'nan' of index 1 is not a finite number"),
        ("1 1:-inf", 1, "not a finite number"),
        ("1 1:1e400", 1, "not a finite number"),
        ("nan 1:1", 1, "'nan' is not a finite number"),
        ("1e999 1:1", 1, "not a finite number"),
        ("1 1:", 1, "the value of index 1 is missing"),
        ("1 1:1 2: 3:1", 1, "the value of index 2 is missing"),
        ("1,2 1:1", 1, "several labels"),
        ("1 7", 1, "'7' is not an index:value pair"),
        ("1 -1:2", 1, "'-1:2' is not an index:value pair"),
        ("1 1:2x 2:1", 1, "'2x'"),
        ("1 1:2:3", 1, "'2:3'"),
        ("1 1 :2", 1, "'1' is not an index:value pair"),
        ("1 3000000000:2", 1, "index 3000000000 is larger than"),
        ("1 123456789012345678901:2", 1, "too large"),
        ("1 qid:a 1:1", 1, "'qid:a'"),
        ("1 1:1 qid:3", 1, "'qid:3'"),
        (b"1 1:1\n\x00\x01\xff\xfe", 2, r"'\x00\x01\xff\xfe'"),
        (b"\x89PNG\r\n\x1a\n", 1, r"'\x89PNG' is not a finite number"),
        ("1 1:0x10", 1, "'0x10'"),
    ],
)
def test_an_error_names_the_line(read, text, line, words):
    with pytest.raises(ValueError) as caught:
        read(text)
    assert f"data.txt:{line}: " in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "   "])
def test_a_file_without_rows_is_refused(read, text):
    with pytest.raises(ValueError, match="contains no rows"):
        read(text)


def test_where_indices_begin(read):
    assert read("1 1:5\n1 2:6")[0].toarray().tolist() == [[5, 0], [0, 6]]
    assert read("1 1:5\n1 0:6")[0].toarray().tolist() == [[0, 5], [6, 0]]
    assert read("1 1:5", zero_based=True)[0].toarray().tolist() == [[0, 5]]
    with pytest.raises(ValueError, match=r":2: index 0 in a file whose indices begin at 1"):
        read("1 1:5\n1 0:6", zero_based=False)


def test_number_of_features(read):
    assert read("1 1:5\n2", n_features=4)[0].shape == (2, 4)
    with pytest.raises(ValueError, match=r":2: index 5 is larger than 4"):
        read("1 4:5\n2 5:1", n_features=4)
    with pytest.raises(ValueError, match="begin at 0 and end at 4"):
        read("1 0:1 4:5", n_features=4)
    with pytest.raises(ValueError, match="n_features must be"):
        read("1 1:1", n_features=0)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_compressed_files(tmp_path, rng, suffix):
    X, y = rng.standard_normal((50, 3)), rng.standard_normal(50)
    path = tmp_path / f"data{suffix}"
    save_libsvm(path, X, y)
    A, b = load_libsvm(path)
    np.testing.assert_array_equal(A.toarray(), X)
    np.testing.assert_array_equal(b, y)
    whole = path.read_bytes()
    assert not whole.startswith(b"0") and b":" not in whole[:4]  # really packed
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"damaged"):
        load_libsvm(path)


@posix
def test_a_pipe_can_be_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = subprocess.Popen(["sh", "-c", f"printf '1 1:2\\n' > {path}"])
    X, _ = load_libsvm(path)
    writer.wait()
    assert X.toarray().tolist() == [[2.0]]


def test_lines_of_other_systems(read):
    X, y = read("1\t1:1\r\n-1  2:3   \r\n+1 1:.5 2:1E1\r\n")
    assert X.toarray().tolist() == [[1, 0], [0, 3], [0.5, 10]]
    assert y.tolist() == [1, -1, 1]


@given(st.binary(max_size=60))
def test_any_bytes_are_rows_or_a_clear_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(content)
    try:
        X, y = load_libsvm(path)
    except ValueError as error:
        assert str(error).startswith(str(path))
        return
    assert X.shape[0] == len(y) > 0
    assert np.isfinite(X.data).all() and np.isfinite(y).all()
    assert (X.indices >= 0).all() and (X.indices < X.shape[1]).all()


def test_bad_rows_are_not_written(tmp_path):
    path = tmp_path / "data"
    for X, y, words in (
        ([[math.nan]], [1], "finite"),
        ([[1.0]], [math.inf], "finite"),
        ([[1.0]], [1, 2], "which does not match 2 labels"),
    ):
        with pytest.raises(ValueError, match=words):
            save_libsvm(path, X, y)
    assert os.listdir(tmp_path) == []


@posix
def test_a_failed_write_leaves_the_old_file(tmp_path):
    """A limit on the size of files stands for a full disk."""
    path = tmp_path / "data"
    path.write_text("1 1:1\n")
    script = textwrap.dedent("""
        import resource, signal, sys
        import numpy as np
        from margrave.io import save_libsvm
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            save_libsvm(sys.argv[1], np.random.rand(1000, 5), np.zeros(1000))
        except OSError as error:
            print(error.filename, error.strerror)
    """)
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == f"{path} File too large", done.stderr
    assert path.read_text() == "1 1:1\n"
    assert os.listdir(tmp_path) == ["data"]


@linux
def test_devices_and_folders(tmp_path):
    with pytest.raises(OSError, match="No space left") as caught:
        save_libsvm("/dev/full", [[1.0]], [1])
    assert caught.value.filename == "/dev/full"
    with pytest.raises(IsADirectoryError):
        save_libsvm(tmp_path, [[1.0]], [1])
    with pytest.raises(FileNotFoundError):
        load_libsvm(tmp_path / "nothing")


def test_a_folder_without_permission(closed_folder):
    with pytest.raises(PermissionError) as caught:
        save_libsvm(closed_folder / "data", [[1.0]], [1])
    assert caught.value.filename == str(closed_folder / "data")


@posix
def test_permissions_of_a_new_and_of_a_replaced_file(tmp_path):
    path = tmp_path / "data"
    save_libsvm(path, [[1.0]], [1])
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    save_libsvm(link, [[2.0]], [1])
    assert path.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink() and path.read_text() == "1 1:2\n"


@posix
def test_ctrl_c_ends_reading(tmp_path):
    """A signal whose handler raises, as that of Ctrl-C does, a few milliseconds after the start."""
    line = b"1 " + b" ".join(b"%d:0.123456" % k for k in range(1, 80)) + b"\n"
    (tmp_path / "large").write_bytes(line * ((64 << 20) // len(line)))
    before = signal.signal(signal.SIGPROF, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_PROF, 0.005)
        with pytest.raises(KeyboardInterrupt):
            load_libsvm(tmp_path / "large", n_jobs=1)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def test_gzip_of_another_program(tmp_path):
    (tmp_path / "x").write_bytes(gzip.compress(b"1 1:2\n") + gzip.compress(b"2 1:3\n"))
    assert load_libsvm(tmp_path / "x")[0].toarray().ravel().tolist() == [2, 3]
