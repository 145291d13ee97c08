"""``tenonnx bench``, ``compare``, ``profile`` and ``memory``: a model's time and memory."""

from __future__ import annotations

from tenonnx import hookimpl
from tenonnx.cli import subcommands
from tenonnx.hookspecs import RegisterCommands


@hookimpl
def register_commands(register: RegisterCommands) -> None:
    """Add the subcommands; typer is imported when the command line asks for them."""
    register(
        subcommands(
            bench="tenonnx_bench.bench",
            compare="tenonnx_bench.compare",
            profile="tenonnx_bench.profile",
            memory="tenonnx_bench.memory",
        )
    )
