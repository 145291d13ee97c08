"""The plug-in: a subcommand."""

from __future__ import annotations

from tenonnx import hookimpl
from tenonnx.cli import subcommands
from tenonnx.hookspecs import RegisterCommands


@hookimpl
def register_commands(register: RegisterCommands) -> None:
    """Add the subcommand; what it needs is imported when it runs."""
    register(subcommands(generate="tenonnx_generate.command"))
