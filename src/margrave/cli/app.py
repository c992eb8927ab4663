"""The command ``margrave`` itself."""

from __future__ import annotations

from typing import Annotated

import typer

from margrave import __version__
from margrave.cli.console import show

# in the order of the help: as a new user meets them
COMMANDS = (
    "train",
    "predict",
    "evaluate",
    "tune",
    "auto",
    "info",
    "report",
    "bench",
    "demo",
)

app = typer.Typer(
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="show the version")] = False,
) -> None:
    """Support vector machines and other kernel methods, with certified solutions."""
    if version:
        show(__version__)
        raise typer.Exit()


def complete() -> typer.Typer:
    """The command with all of its commands, sorted: modules add theirs when they are imported."""
    from margrave.cli import auto, report, train, use  # noqa: F401

    app.registered_commands.sort(
        key=lambda command: COMMANDS.index(getattr(command.callback, "__name__", ""))
    )
    return app
