"""``tenonnx compile``, ``convert``, ``warmup`` and ``cache``: files for later processes."""

from __future__ import annotations

from tenonnx import hookimpl
from tenonnx.cli import subcommands
from tenonnx.hookspecs import RegisterCommands


@hookimpl
def register_commands(register: RegisterCommands) -> None:
    """Add the subcommands; typer is imported when the command line asks for them."""
    register(
        subcommands(
            compile="tenonnx_deploy.compile",
            convert="tenonnx_deploy.convert",
            warmup="tenonnx_deploy.warmup",
            cache="tenonnx_deploy.cache",
        )
    )
