"""A stand-in for CuPy on machines without a graphics card.

It has what margrave uses. Arrays are NumPy's, but those of the host and of the card do not mix, as
with CuPy itself; the device code is compiled as it is, for an emulated card (card.hpp).
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import types
import weakref
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy import sparse

HERE = Path(__file__).parent
BUILT = HERE.parent.parent / "build" / "emulated"
COMPILER = next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++"), "g++"))), None)
MEMORY = 8 << 30
ORDER = 0  # of the turns of threads: ascending, descending, or from 2 on by chance
_FUNCTIONS = {
    "tiles": ("sum", "sum_two", "store", "surround_rows"),
    "solver": (
        *("extremes", "middle", "sums", "figures", "best_bias", "violations", "choose_set"),
        *("solve", "add"),
    ),
}
GUARD = 256  # bytes before and after each array
FLAGS = os.environ.get("MARGRAVE_EMULATED", "-O1").split()  # `tests.sanitize` has others
_lock = threading.RLock()
_guarded = {}  # arrays that live, with their guards
uint8, int32, int64, uint64 = np.uint8, np.int32, np.int64, np.uint64
float32, float64 = np.float32, np.float64


class Array(np.ndarray):
    """An array on the card."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)

    def __dlpack_device__(self):
        return 2, 0

    def __array_ufunc__(self, function, method, *inputs, out=(), **rest):
        given = [*inputs, *out]
        if any(type(one) is np.ndarray and one.ndim for one in given):
            raise TypeError("arrays of the host and of the card do not mix")
        plain = [one.view(np.ndarray) if isinstance(one, Array) else one for one in inputs]
        if out:
            rest["out"] = tuple(one.view(np.ndarray) for one in out)
        return _there(getattr(function, method)(*plain, **rest))

    def __setitem__(self, key, value):
        if type(value) is np.ndarray and value.ndim:
            raise TypeError("arrays of the host and of the card do not mix")
        super().__setitem__(key, value)


def _there(found):
    return found.view(Array) if isinstance(found, (np.ndarray, np.generic)) else found


def _counted(array):
    """Put a new array between guards, and count its bytes as long as it lives."""
    guarded = np.full(array.nbytes + 2 * GUARD, 0xFF, dtype=np.uint8)
    pool = getattr(_state, "pool", None)
    if pool is not None:
        pool.take(guarded, array.nbytes)
    found = guarded[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    with _lock:
        _guarded[id(guarded)] = weakref.ref(guarded)
    weakref.finalize(guarded, _guarded.pop, id(guarded), None)
    return found.view(Array)


def _intact():
    """Whether no program has written beside an array."""
    return all(
        (one[:GUARD] == 0xFF).all() and (one[-GUARD:] == 0xFF).all()
        for one in [found() for found in list(_guarded.values())]
        if one is not None
    )


def asarray(values, dtype=None):
    return _counted(np.array(values, dtype=dtype, order="C", copy=True).view(np.ndarray))


def asnumpy(values):
    return np.array(values).view(np.ndarray)


def from_dlpack(values):
    assert values.__dlpack_device__()[0] == 2
    return values


def empty(shape, dtype=float64):
    found = np.empty(shape, dtype=dtype)
    found.view(np.uint8).fill(0xFF) if found.size else None  # NaN, or minus one
    return _counted(found)


def zeros(shape, dtype=float64):
    return _counted(np.zeros(shape, dtype=dtype))


def zeros_like(values):
    return zeros(values.shape, values.dtype)


def arange(*limits, dtype=None):
    return _counted(np.arange(*limits, dtype=dtype))


def ascontiguousarray(values):
    return np.ascontiguousarray(values).view(Array)


def flatnonzero(values):
    return np.flatnonzero(np.asarray(values)).view(Array)


def searchsorted(values, wanted, side="left"):
    return np.searchsorted(np.asarray(values), np.asarray(wanted), side=side).view(Array)


# --- memory, streams and the driver ---------------------------------------------------------------

_state = threading.local()


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


class MemoryPool:
    def __init__(self):
        self.limit, self.used = MEMORY, 0

    def set_limit(self, size):
        self.limit = size

    def malloc(self, size):
        raise AssertionError("arrays are made by NumPy")

    def free_all_blocks(self):
        pass

    def take(self, owner, size):
        if self.used + size > self.limit:
            raise OutOfMemoryError(f"{size} bytes beyond {self.used} of {self.limit}")
        self.used += size
        weakref.finalize(owner, self._give_back, size)

    def _give_back(self, size):
        self.used -= size


@contextmanager
def using_allocator(malloc):
    before, _state.pool = getattr(_state, "pool", None), malloc.__self__
    try:
        yield
    finally:
        _state.pool = before


class _Context:
    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def synchronize(self):
        pass


runtime = types.SimpleNamespace(
    getDeviceCount=lambda: 1,
    memGetInfo=lambda: (MEMORY, MEMORY),
    getDeviceProperties=lambda number: {"name": b"emulated", "totalGlobalMem": MEMORY},
    driverGetVersion=lambda: 0,
    runtimeGetVersion=lambda: 0,
)
__version__ = "emulated"
cuda = types.SimpleNamespace(
    Device=_Context,
    Stream=_Context,
    MemoryPool=MemoryPool,
    using_allocator=using_allocator,
    get_current_stream=_Context,
    memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    runtime=runtime,
)


class csr_matrix(sparse.csr_matrix):
    """Sparse rows on the card."""

    def __matmul__(self, other):
        return np.asarray(super().__matmul__(other.view(np.ndarray))).view(Array)


# --- programs -------------------------------------------------------------------------------------


class RawModule:
    def __init__(self, code, options):
        included = [Path(option[2:]) for option in options if option.startswith("-I")]
        macros = [option for option in options if option.startswith("-D")]
        self.library = ctypes.CDLL(str(_built(code, included[0], macros)))
        self.functions = {}  # their attributes are the driver's, whoever asks for them

    def get_function(self, name):
        return self.functions.setdefault(name, Function(self.library[f"launch_{name}"]))


class Function:
    max_dynamic_shared_size_bytes = 48 << 10

    def __init__(self, launch):
        self.launch = launch
        launch.restype = ctypes.c_char_p

    def __call__(self, grid, block, arguments, shared_mem=0):
        kept, sizes = [], []
        for one in arguments:
            if isinstance(one, Array):
                assert one.flags.c_contiguous or one.ndim == 1, "strided"
                one = np.uint64(one.ctypes.data)
            assert isinstance(one, np.generic), f"an argument of unknown size: {one!r}"
            kept.append(np.array(one))
            sizes.append(one.nbytes)
        assert shared_mem <= self.max_dynamic_shared_size_bytes, "shared memory"
        pointers = (ctypes.c_void_p * len(kept))(*(one.ctypes.data for one in kept))
        lengths = (ctypes.c_size_t * len(kept))(*sizes)
        blocks = (ctypes.c_uint * 3)(*(*grid, 1, 1)[:3])
        with _lock:
            failure = self.launch(
                *(pointers, lengths, ctypes.c_size_t(len(kept)), blocks),
                *(ctypes.c_uint(block[0]), ctypes.c_size_t(shared_mem), ctypes.c_uint(ORDER)),
            )
            assert _intact(), "a program has written beside an array"
        if failure:
            raise RuntimeError(failure.decode())


def _built(code, headers, macros):
    """The program as a library of this machine, kept by its source."""
    program = re.search(r"cuda/(\w+)\.cu", code).group(1)
    launchers = "".join(
        f'extern "C" const char* launch_{name}(void** a, const std::size_t* s, std::size_t n,'
        " const unsigned* g, unsigned t, std::size_t m, unsigned o)"
        f" {{ return emulated::launch({name}, a, s, n, g, t, m, o); }}\n"
        for name in _FUNCTIONS[program]
    )
    sources = [path for path in sorted(headers.rglob("*")) if path.is_file()]
    known = "".join(path.read_text() for path in sources) + (HERE / "card.hpp").read_text()
    macros = [macro for macro in macros if "DIGEST" not in macro]
    name = hashlib.sha256(
        "\n".join([known, code, launchers, *macros, *FLAGS]).encode()
    ).hexdigest()[:24]
    library = BUILT / f"{name}.so"
    BUILT.mkdir(parents=True, exist_ok=True)
    with _alone(name), tempfile.TemporaryDirectory(dir=BUILT) as folder:
        if library.exists():
            return library
        own = Path(folder)
        for path in sources:
            if "std" in path.parts:
                continue
            to = own / path.relative_to(headers)
            to.parent.mkdir(exist_ok=True)
            to.write_text(_translated(path.read_text()))
        (own / "program.cpp").write_text(f'#include "card.hpp"\n{code}{launchers}')
        given = [f"-I{_precompiled()}", f"-I{own}", *macros, "-shared"]
        _compile(own / "program.cpp", own / "made.so", *given)
        os.replace(own / "made.so", library)
    return library


@functools.cache
def _precompiled():
    """The folder of card.hpp, compiled in advance: it and what it includes take half the time."""
    text = (HERE / "card.hpp").read_text()
    folder = BUILT / hashlib.sha256("\n".join([text, *FLAGS]).encode()).hexdigest()[:24]
    with _alone(folder.name), tempfile.TemporaryDirectory(dir=BUILT) as made:
        if not folder.exists():
            own = Path(made, "card")
            own.mkdir()
            shutil.copy(HERE / "card.hpp", own)
            _compile(own / "card.hpp", own / "card.hpp.gch", "-x", "c++-header")
            own.rename(folder)
    return folder


@contextmanager
def _alone(name):
    """One process at a time compiles a program; the others wait for it."""
    with (BUILT / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(source, target, *flags):
    options = ["-std=c++20", *FLAGS, "-ffp-contract=off", "-fPIC", "-w", *flags]
    subprocess.run([COMPILER, *options, str(source), "-o", str(target)], check=True)


def _translated(text):
    """What only a card's compiler understands, in other words."""
    text = re.sub(
        r"extern __shared__ double (\w+)\[\];", r"double* \1 = emulated::dynamic.data();", text
    )
    return re.sub(r'asm\("ex2[^;]*;[^;]*;', "value = exp2f(x > 0 ? 0.0f : x);", text)


def install():
    """Let `import cupy` find this module; only where there is none."""
    extra = types.ModuleType("cupyx")
    names = {"cupyx": extra, "cupyx.scipy": types.ModuleType("cupyx.scipy")}
    names["cupyx.scipy"].sparse = sys.modules[__name__]
    sys.modules.update({"cupy": sys.modules[__name__], **names})


def uninstall():
    """Undo `install`."""
    for name in ("cupy", "cupyx", "cupyx.scipy"):
        sys.modules.pop(name, None)
