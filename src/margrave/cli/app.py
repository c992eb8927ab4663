"""The command ``margrave`` itself."""

from __future__ import annotations

from typing import Annotated

import typer

from margrave import __version__
from margrave.cli.console import show

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
