"""``tenonnx plugins``: which plug-ins there are and what they brought."""

from __future__ import annotations

from dataclasses import asdict

import typer

from tenonnx.cli.arguments import Json
from tenonnx.cli.output import duration, emit_json, grouped, lines, table
from tenonnx.cli.state import state_of

HELP = """Lists the plug-ins: what each registered, or why it is not in use.

The variable TENONNX_PLUGINS allows plug-ins by name, TENONNX_BLOCK_PLUGINS blocks them; names are
separated by commas. A plug-in that fails, or that was written for another version of the plug-in
interface, is not in use; the others are. --trace-hooks, before the subcommand, prints every call
of a hook.

\b
Examples:
  tenonnx plugins
  tenonnx --trace-hooks plugins
  tenonnx --plugin my_plugin.py plugins --json
"""


def plugins(context: typer.Context, as_json: Json = False) -> None:
    """Print a row per plug-in."""
    found = state_of(context).plugins
    found.import_all()
    records = found.records
    if as_json:
        emit_json([asdict(record) for record in records])
        return
    rows = [
        (
            record.name,
            record.distribution,
            f"not in use: {record.error}" if record.error else grouped(record.registered),
            duration(record.load_seconds) if record.load_seconds else "",
            ", ".join(record.hooks),
        )
        for record in records
    ]
    table(
        ("plugin", "distribution", "registered", "load", "hooks"),
        rows,
        ("load",),
        ("distribution", "load", "hooks"),
    )
    if not rows:
        lines("no plug-ins; is tenonnx installed?")
