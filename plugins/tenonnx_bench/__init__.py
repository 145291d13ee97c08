"""``tenonnx bench``, ``profile`` and ``memory``: what running a model takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenonnx import hookimpl

if TYPE_CHECKING:
    import typer


@hookimpl
def register_commands(register: Callable[[Callable[[], typer.Typer]], Any]) -> None:
    """Add the subcommands; typer is imported when the command line asks for them."""
    register(_application)


def _application() -> typer.Typer:
    from tenonnx.cli.arguments import application
    from tenonnx_bench import bench, memory, profile

    return application(
        bench=(bench.bench, bench.HELP),
        profile=(profile.profile, profile.HELP),
        memory=(memory.memory, memory.HELP),
    )
