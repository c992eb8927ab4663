"""Output and exit codes of the commands: errors are one line, with exit code 2."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable

from rich.console import Console, RenderableType

INTERRUPTED = 130  # as in shells after Ctrl-C
MESSAGES = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a message to standard error; standard output is for results."""
    MESSAGES.print(text, markup=False)


def show(thing: RenderableType) -> None:
    """Print a result or a table."""
    Console(highlight=False, soft_wrap=isinstance(thing, str)).print(thing, markup=False)


def run(command: Callable[[], int | None], name: str) -> int:
    """Run a command and return its exit code; errors and warnings are printed as one line."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(f"{name}: {_one_line(message)}")
        try:
            return int(command() or 0)
        except KeyboardInterrupt:
            say(f"{name}: interrupted")
            return INTERRUPTED
        except BrokenPipeError:  # the reader of the output has exited
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 2
        except (ValueError, OSError, ImportError, MemoryError, OverflowError) as error:
            say(f"{name}: {_message(error)}")
        except Exception as error:
            if not hasattr(error, "format_message"):  # not an error of the command line parser
                raise
            say(f"{name}: {_one_line(error.format_message())}")
        return 2


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    if isinstance(error, MemoryError):
        return f"not enough memory {_one_line(error)}".strip()
    return _one_line(error)


def _one_line(message: str | BaseException) -> str:
    return " ".join(str(message).split())
