"""``tenonnx plugins``: which plugins there are and what they brought."""

from __future__ import annotations

from dataclasses import asdict

import typer

from tenonnx.cli.arguments import Json
from tenonnx.cli.output import duration, emit_json, grouped, lines, table
from tenonnx.cli.state import state_of

HELP = """Lists the plugins, what each brought, or why it is not in use.

TENONNX_PLUGINS is an allow-list of names, TENONNX_BLOCK_PLUGINS a block-list, both separated by
commas.

A plugin that fails is not in use and stops nobody; one that was written for another version of the
plugin API is set aside. --trace-hooks before the subcommand prints every call of a hook.

\b
Examples:
  tenonnx plugins
  tenonnx --trace-hooks plugins
  tenonnx --plugin my_plugin.py plugins --json
"""


def plugins(context: typer.Context, as_json: Json = False) -> None:
    """Prints a row per plugin."""
    records = state_of(context).plugins.records
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
    table(("plugin", "distribution", "registered", "load", "hooks"), rows, right=("load",))
    if not rows:
        lines("no plugins; is tenonnx installed?")
