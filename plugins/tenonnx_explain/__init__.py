"""``tenonnx explain``: what transforms and providers do with a model, as text or as a page."""

from __future__ import annotations

from tenonnx import hookimpl
from tenonnx.cli import subcommands
from tenonnx.hookspecs import RegisterCommands


@hookimpl
def register_commands(register: RegisterCommands) -> None:
    """Add the subcommand; typer is imported when the command line asks for it."""
    register(subcommands(explain="tenonnx_explain.command"))
