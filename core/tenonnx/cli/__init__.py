"""The ``tenonnx`` command. Importing this costs nothing; typer and rich come when it runs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with a code that ``tenonnx --help`` explains.

    Args:
        arguments: What follows the program's name; ``sys.argv``'s if ``None``.
    """
    try:
        from tenonnx.cli.app import app

        app(args=arguments, prog_name="tenonnx")
    except KeyboardInterrupt:  # before the command itself takes care of it
        sys.exit(130)


def subcommands(**modules: str) -> Callable[[], typer.Typer]:
    """Return what the hook ``register_commands`` takes: a function that makes an application.

    Args:
        modules: By subcommand, the module that has a function of that name, and its ``HELP``. It
            is imported when the command line asks for the application.
    """

    def application() -> typer.Typer:
        import typer

        from tenonnx.cli.usage import Command

        app = typer.Typer(rich_markup_mode=None)
        for name, path in modules.items():
            module = importlib.import_module(path)
            app.command(name, cls=Command, help=module.HELP)(getattr(module, name))
        return app

    return application
