"""``tenonnx convert``, ``warmup`` and ``cache``: files that processes find when they start."""

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
    from tenonnx_deploy import cache, convert, warmup

    return application(
        convert=(convert.convert, convert.HELP),
        warmup=(warmup.warmup, warmup.HELP),
        cache=(cache.cache, cache.HELP),
    )
