"""``tenonnx cache``: what is kept on disk for other processes, and how to be rid of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from tenonnx.cli.arguments import Json
from tenonnx.cli.output import count, emit_json, lines, size, table
from tenonnx.cli.state import State, state_of

HELP = """Lists what is kept on disk for other processes, by kind, and deletes it on request.

Derived weights make room for one another, and compiled kernels go when no process has used them for
a month (`tenonnx warmup` looks): there is seldom a need to clear anything. What is deleted is made
again by the next process that wants it; sessions that are open go on.

\b
Examples:
  tenonnx cache
  tenonnx cache --clear
"""

DAY = 24 * 3600


class Kind(NamedTuple):
    """Files of one kind.

    Attributes:
        name: What they are.
        files: Where they are.
    """

    name: str
    files: tuple[Path, ...]


def cache(
    context: typer.Context,
    clear: Annotated[bool, typer.Option("--clear", help="Delete all of it.")] = False,
    as_json: Json = False,
) -> None:
    """Lists what is kept, or deletes it."""
    rows = []
    for kind in _kinds(state_of(context)):
        used = {path: status for path in kind.files if (status := _status(path))}
        if clear:
            for path in used:
                with contextlib.suppress(OSError):
                    path.unlink()
        rows.append(
            {
                "kind": kind.name,
                "folder": str(kind.files[0].parent) if kind.files else None,
                "files": len(used),
                "bytes": sum(nbytes for nbytes, _ in used.values()),
                "oldest_days": max((age for _, age in used.values()), default=0) // DAY,
            }
        )
    if as_json:
        emit_json({"cleared": clear, "kinds": rows})
        return
    cells = [
        (
            row["kind"],
            row["files"],
            size(row["bytes"]),
            f"{row['oldest_days']:.0f} d",
            row["folder"],
        )
        for row in rows
    ]
    table(("kind", "files", "size", "oldest", "folder"), cells, right=("files", "size", "oldest"))
    if clear:
        deleted = sum(row["files"] for row in rows)
        lines(f"\n{count(deleted, 'file')} deleted")


def _kinds(state: State) -> Iterator[Kind]:
    from tenonnx.weights.sidefile import SideFiles

    yield Kind("derived weights", tuple(SideFiles.from_environment().files()))
    for provider in state.plugins.providers.values():
        if files := tuple(provider.kept_files()):
            yield Kind(f"kernels of {provider.name}", files)


def _status(path: Path) -> tuple[int, float] | None:
    """Returns a file's bytes, and the seconds since it was last used; ``None`` if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, max(0.0, time.time() - max(status.st_atime, status.st_mtime))
