"""What can be known of the device code without a card: it compiles for all cards, and fits Python.

`tests/test_cuda.py` runs it.
"""

from __future__ import annotations

import ctypes
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import margrave
from margrave import SVC, _core
from margrave.cuda import batch, device

FOLDERS = find_spec("nvidia").submodule_search_locations if find_spec("nvidia") else []
NVRTC = next(  # of the package nvidia-cuda-nvrtc, whose folder differs from one CUDA to the next
    (
        found
        for folder in FOLDERS
        for name in ("libnvrtc.so.*", "nvrtc64*.dll")
        for found in sorted(Path(folder).rglob(name))
        if "alt" not in found.name
    ),
    None,
)
ARCHITECTURES = ("compute_80", "sm_90")  # __reduce_max_sync asks for the first
PROGRAMS = [
    *(("tiles", {"KERNEL": k, "REAL": real}) for k in range(-1, len(_core.KERNELS))
      for real in ("float", "double")),
    *(("solver", {"LOSS": loss, "REAL": real, "VARIABLES": each, "THREADS": 512})
      for loss in range(len(_core.LOSSES)) for real, each in (("float", 4), ("double", 1))),
]  # fmt: skip


def name_of(case):
    return "-".join([case[0], *map(str, case[1].values())]) if isinstance(case, tuple) else case


class Program(ctypes.c_void_p):
    """A program of NVIDIA's run-time compiler, which needs no card."""


@pytest.fixture(scope="module")
def compiler():
    if NVRTC is None:
        pytest.skip("needs nvidia-cuda-nvrtc, which exists for Linux and Windows")
    return ctypes.CDLL(str(NVRTC))


@pytest.mark.parametrize("case", PROGRAMS, ids=name_of)
def test_every_program_compiles(compiler, case):
    name, macros = case
    # one architecture for each, in turn
    architecture = ARCHITECTURES[PROGRAMS.index(case) % len(ARCHITECTURES)]
    options = [
        f"--gpu-architecture={architecture}",
        *device.options(name, tuple(sorted(macros.items()))),
    ]
    program, size = Program(), ctypes.c_size_t()
    source = f'#include "cuda/{name}.cu"\n'.encode()
    assert (
        compiler.nvrtcCreateProgram(ctypes.byref(program), source, b"program", 0, None, None) == 0
    )
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = compiler.nvrtcCompileProgram(program, len(options), given)
    compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    compiler.nvrtcGetProgramLog(program, log)
    compiler.nvrtcDestroyProgram(ctypes.byref(program))
    assert not failed, log.value.decode()


def test_headers_are_in_the_package():
    for name in ("kernel.hpp", "loss.hpp", "cuda/tiles.cu", "cuda/solver.cu", "cuda/std/cmath"):
        assert (Path(_core.__file__).parent / "include" / name).is_file()


def test_python_knows_the_fields_of_a_part():
    source = (Path(_core.__file__).parent / "include" / "cuda" / "point.cuh").read_text()
    declared = re.search(r"struct Part \{(.*?)\};", source, re.DOTALL).group(1)
    fields, whole = [], set()
    for kind, names in re.findall(r"(long long|double) (.*?);", declared):
        for name in names.split(", "):
            one = name.removesuffix("[2]").replace("sums", "sum")
            found = [one, f"other_{one}"] if name.endswith("[2]") else [one]
            fields += found
            whole |= set(found) if kind == "long long" else set()
    assert tuple(fields) == batch._FIELDS
    assert whole == batch._WHOLE


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is there")
def test_without_cupy_the_error_says_what_to_install():
    with pytest.raises(ValueError, match=r'needs CuPy: .*pip install "margrave\[cuda\]"'):
        SVC(engine="cuda").fit([[0.0], [1.0]], [0, 1])
    assert margrave.cuda.cards() == 0


def test_importing_margrave_imports_no_cupy():
    import subprocess

    code = "import sys, margrave; sys.exit('cupy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("number", [-1, True, 0.5, "0"])
def test_numbers_of_cards_are_checked(number):
    with pytest.raises(ValueError, match="number of a graphics card"):
        margrave.engines.Cuda(device=number)
