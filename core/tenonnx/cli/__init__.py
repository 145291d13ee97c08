"""The ``tenonnx`` command. Importing this costs nothing; typer and rich come when it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with a code that ``tenonnx --help`` explains.

    Args:
        arguments: What follows the program's name; ``sys.argv``'s if ``None``.
    """
    try:
        from tenonnx.cli.app import app

        app(args=arguments, prog_name="tenonnx")
    except KeyboardInterrupt:  # before the command itself takes care of it
        sys.exit(130)
