"""``tenonnx new``: writes a plug-in as a distribution of its own, with its tests."""

from __future__ import annotations

from tenonnx import hookimpl
from tenonnx.cli import subcommands
from tenonnx.hookspecs import RegisterCommands


@hookimpl
def register_commands(register: RegisterCommands) -> None:
    """Add the subcommand; typer is imported when the command line asks for it."""
    register(subcommands(new="tenonnx_scaffold.command"))
