"""``tenonnx cache``: lists and deletes the files that are kept for other processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from tenonnx import default_registry
from tenonnx.cli.arguments import Json
from tenonnx.cli.opening import cached_plan_files
from tenonnx.cli.output import count, emit_json, lines, size, table
from tenonnx.cli.state import State, state_of

HELP = """Lists the files that are kept for other processes, or deletes them.

Derived weights and plans share a limit, TENONNX_CACHE_SIZE. Above it, the least recently used files
are deleted, and at any size those that no process used for a month. `tenonnx warmup` deletes
kernels of that age. --prune does both now, --clear deletes everything. Open sessions keep working,
and the next process that needs a file makes it again.

\b
Examples:
  tenonnx cache
  tenonnx cache --prune
  tenonnx cache --clear
"""

DAY_SECONDS = 24 * 3600


class Row(NamedTuple):
    """The kept files of one kind.

    Attributes:
        kind: The kind of the files.
        files: How many files.
        bytes: Their size.
        unused_days: Days since the least recently used one was used.
        folder: Their folder; empty if there are none.
    """

    kind: str
    files: int
    bytes: int
    unused_days: int
    folder: str


def cache(
    context: typer.Context,
    clear: Annotated[bool, typer.Option("--clear", help="Delete all files.")] = False,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete files above the size limit, or unused for a month."),
    ] = False,
    as_json: Json = False,
) -> None:
    """List kept files, or delete them."""
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
    if plans := cached_plan_files():
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
        int(max(0.0, time.time() - used) // DAY_SECONDS),
        str(files[0].parent) if files else "",
    )
