"""The command line: ``margrave train | predict | evaluate | tune | auto | info | report | ...``.

app.py         the command itself; options.py  options that several commands share
train.py       train, tune, bench, demo (demo.py); auto.py  auto
use.py         predict, evaluate, info; report.py  report
libsvm.py      margrave-train and margrave-predict
data.py        rows and labels from files; columns.py  columns of tables
estimators.py  estimators from options; model_files.py, quality.py, console.py  output
"""

from __future__ import annotations

import re
import sys

from margrave.cli.console import run


def main() -> None:
    """Run ``margrave``."""
    from margrave.cli.app import complete

    arguments = from_libsvm(sys.argv[1:]) or ["--help"]
    app = complete()
    sys.exit(
        run(lambda: app(args=arguments, prog_name="margrave", standalone_mode=False), "margrave")
    )


def from_libsvm(arguments: list[str]) -> list[str]:
    """LIBSVM's ``-w1 5`` as ``--weight 1=5``, and without its ``-h 0``: shrinking is automatic.

    >>> from_libsvm(["train", "-w-1", "5", "-h", "0", "data"])
    ['train', '--weight', '-1=5', 'data']
    >>> from_libsvm(["train", "-h"])
    ['train', '-h']
    """
    found, rest = [], list(arguments)
    while rest:
        word = rest.pop(0)
        if re.fullmatch(r"-w[^=]+", word) and rest:
            found += ["--weight", f"{word[2:]}={rest.pop(0)}"]
        elif word == "-h" and rest and rest[0] in ("0", "1"):
            rest.pop(0)
        else:
            found.append(word)
    return found
