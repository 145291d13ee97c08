"""``tenonnx cache``: what is kept on disk for other processes, and how to be rid of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from tenonnx import default_registry
from tenonnx.cli.arguments import Json
from tenonnx.cli.opening import kept_plans
from tenonnx.cli.output import count, emit_json, lines, size, table
from tenonnx.cli.state import State, state_of

HELP = """Lists what is kept on disk for other processes, or deletes it.

Derived weights and plans share the room that TENONNX_CACHE_SIZE says: those used longest ago make
room for new ones, and those that no process has used for a month go then. Kernels of that age go
when `tenonnx warmup` looks; --prune does all of it now. There is seldom a need to clear anything.
What is deleted is made again by the next process that wants it; sessions that are open go on.

\b
Examples:
  tenonnx cache
  tenonnx cache --prune
  tenonnx cache --clear
"""

DAY = 24 * 3600


class Row(NamedTuple):
    """What is kept of one kind.

    Attributes:
        kind: What it is.
        files: How many files.
        bytes: How many bytes they have.
        unused_days: How long ago that was used which was used longest ago.
        folder: Where they are; empty if there are none.
    """

    kind: str
    files: int
    bytes: int
    unused_days: int
    folder: str


def cache(
    context: typer.Context,
    clear: Annotated[bool, typer.Option("--clear", help="Delete all of it.")] = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Delete what no process has used for a month, or there is no room for."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Lists what is kept, or deletes it."""
    state, rows = state_of(context), []
    pruned = _pruned(state) if prune else []
    for kind, files in _kinds(state):
        rows.append(_row(kind, files))
        for path in files if clear else ():
            with contextlib.suppress(OSError):
                path.unlink()
    if as_json:
        names = [str(path) for path in pruned]
        kinds = [row._asdict() for row in rows]
        emit_json({"cleared": clear, "pruned": names, "kinds": kinds})
        return
    cells = [(r.kind, r.files, size(r.bytes), f"{r.unused_days} d", r.folder) for r in rows]
    header = ("kind", "files", "size", "unused", "folder")
    table(header, cells, right=("files", "size", "unused"))
    if clear or prune:
        gone = len(pruned) + sum(row.files for row in rows if clear)
        lines(f"\n{count(gone, 'file')} deleted")


def _pruned(state: State) -> list[Path]:
    found = default_registry().side_files.room.prune()
    for provider in state.plugins.providers.values():
        found += provider.forget_unused()
    return found


def _kinds(state: State) -> Iterator[tuple[str, list[Path]]]:
    yield "derived weights", default_registry().side_files.files()
    if plans := kept_plans():
        yield "compiled plans", plans
    for provider in state.plugins.providers.values():
        if files := list(provider.kept_files()):
            yield f"kernels of {provider.name}", files


def _row(kind: str, files: Sequence[Path]) -> Row:
    found = []
    for path in files:
        with contextlib.suppress(OSError):  # another process may have deleted it
            found.append(path.stat())
    used = min((status.st_atime for status in found), default=time.time())
    return Row(
        kind,
        len(found),
        sum(status.st_size for status in found),
        int(max(0.0, time.time() - used) // DAY),
        str(files[0].parent) if files else "",
    )
