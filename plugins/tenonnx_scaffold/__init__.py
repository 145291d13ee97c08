"""``tenonnx new``: writes a plugin as a distribution of its own, with its tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenonnx import hookimpl

if TYPE_CHECKING:
    import typer


@hookimpl
def register_commands(register: Callable[[Callable[[], typer.Typer]], Any]) -> None:
    """Add the subcommand; typer is imported when the command line asks for it."""
    register(_application)


def _application() -> typer.Typer:
    from tenonnx.cli.arguments import application
    from tenonnx_scaffold import command

    return application(new=(command.new, command.HELP))
