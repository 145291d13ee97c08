"""The output of commands: tables, JSON, sentences, progress."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from tenonnx.errors import Fail, InvalidArgument

# Columns of sentences that no terminal shows: nothing is wrapped, so that grep finds it.
UNWRAPPED_COLUMNS = 100_000

# Columns of tables where neither ``COLUMNS`` nor a terminal says how many there are.
DEFAULT_COLUMNS = 100

REFRESH_SECONDS = 0.1

STYLES = {"error": "bold red", "warning": "bold yellow", "hint": "bold cyan"}


class Pipe(Console):
    """A console that leaves it to the command what a broken pipe means."""

    def on_broken_pipe(self) -> None:
        """Raise what rich would turn into an exit."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or error as it is now."""
    stream = sys.stderr if stderr else sys.stdout
    return Pipe(
        file=stream,
        width=None if stream.isatty() else UNWRAPPED_COLUMNS,
        markup=False,
        highlight=False,
        emoji=False,
    )


def say(kind: str, text: str) -> None:
    """Print ``kind: text`` on standard error."""
    head = f"{kind}:"
    sentence(f"{head} {text}", STYLES.get(kind, ""), len(head), stderr=True)


def note(text: str) -> None:
    """Print a sentence on standard error."""
    sentence(text, stderr=True)


def sentence(
    text: str, style: str = "", styled: int = 0, indent: int = 0, *, stderr: bool = False
) -> None:
    """Print a sentence; on a terminal, which would break within words, in lines that fit.

    Args:
        text: The sentence, or several lines of them.
        style: Of its beginning.
        styled: Letters that have that style.
        indent: Columns that further lines begin at.
        stderr: Print it on standard error.
    """
    from tenonnx.cli.tables import wrapped

    out = console(stderr=stderr)
    for line in text.split("\n"):
        parts = wrapped(line, out.width - indent) if out.is_terminal else [line]
        for number, part in enumerate(parts):
            shown = Text(" " * indent * (number > 0) + part)
            shown.stylize(style, 0, styled)
            out.print(shown, soft_wrap=True)
            styled -= min(styled, len(shown))


def check_targets(*paths: str | Path, force: bool = True) -> None:
    """Refuse files that could not be written, before any work is done for them.

    Args:
        paths: The files; an empty name stands for none.
        force: Files that are there may be replaced.

    Raises:
        InvalidArgument: The folder of one is missing or read-only, or one is a folder, or exists.
    """
    for path in [Path(path) for path in paths if path]:
        if not (folder := path.parent).is_dir():
            no_folder = f"cannot write {path}: there is no folder {folder}"
            raise InvalidArgument(no_folder, hint=f"mkdir -p {folder}")
        if not os.access(folder, os.W_OK):
            raise InvalidArgument(f"cannot write {path}: the folder {folder} is read-only for you")
        if path.is_dir():
            raise InvalidArgument(f"cannot write {path}: it is a folder", hint="name a file")
        if not force and os.path.lexists(path):
            raise InvalidArgument(
                f"{path} is there already", hint="choose another name, or replace it with --force"
            )


def write_text(path: str, text: str) -> None:
    """Write a file that an option names, and says so.

    Raises:
        Fail: It cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Fail(f"cannot write {path}: {error.strerror}") from error
    note(f"written to {path}")


def title(text: str) -> None:
    """Print a heading, a blank line before it."""
    out = console()
    out.print()
    out.print(Text(text, style="bold"))


def lines(*sentences: str) -> None:
    """Print sentences, a line each."""
    for each in sentences:
        sentence(each)


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    right: Collection[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print a table that fits the terminal; nothing if it has no rows.

    Args:
        header: The columns' names.
        rows: Cells, shown as ``str`` shows them; ``None`` is shown as nothing.
        right: Names of the columns to align right.
        spare: Names of columns to leave out where there is no room for them, the last name first.
    """
    if not rows:
        return
    from tenonnx.cli.tables import columns, fitted, wrapped

    out, width = console(), table_width()
    shown, left_out = fitted(columns(header, rows, right, spare), width)
    out.print(Text(shown[0], style="bold"), soft_wrap=True)
    for line in shown[1:]:
        out.file.write(line + "\n")
    if left_out:
        note = f"no room for {', '.join(left_out)}: set COLUMNS=200, or use --json"
        lines(*wrapped(note, width))


def table_width() -> int:
    """Return ``COLUMNS``, or else the width of the terminal that shows output or messages."""
    if (said := os.environ.get("COLUMNS", "")).isdecimal() and int(said):
        return int(said)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            if columns := os.get_terminal_size(stream.fileno()).columns:
                return columns
    return DEFAULT_COLUMNS


def emit_json(content: Any) -> None:
    """Print strict JSON; values without a JSON form become strings."""
    text = json.dumps(_wordable(content), indent=2, default=str, ensure_ascii=False)
    sys.stdout.write(text + "\n")


def _wordable(content: Any) -> Any:
    """Return JSON content with infinities and NaN, for which it has no words, as strings."""
    if isinstance(content, dict):
        return {str(key): _wordable(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_wordable(value) for value in content]
    return str(content) if isinstance(content, float) and not math.isfinite(content) else content


@contextlib.contextmanager
def progress(
    total: float | None = None, *, tells_rest: bool = False
) -> Iterator[Callable[[str, float], None]]:
    """Show how far something is, on a terminal; elsewhere a line for every new thing.

    Yields a function that takes what is being done and how much of ``total`` is done.

    Args:
        total: All of it; ``None`` if nobody knows.
        tells_rest: Show how long the rest will take, too, on a terminal.
    """
    if not sys.stderr.isatty():
        said: list[str] = []

        def tell(doing: str, done: float) -> None:
            del done
            if doing not in said:
                said.append(doing)
                note(doing)

        yield tell
        return
    rest = [TextColumn("left:"), TimeRemainingColumn()] if tells_rest else []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), *rest)
    err = console(stderr=True)
    # A thread that refreshes would take its time from what is being measured.
    with Progress(*columns, console=err, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=total)
        last = 0.0

        def show(doing: str, done: float) -> None:
            nonlocal last
            if (now := time.monotonic()) - last > REFRESH_SECONDS:
                last = now
                bar.update(task, description=doing, completed=done, refresh=True)

        yield show


def count(number: int, what: str, several: str = "") -> str:
    """Return ``1 node`` or ``2 nodes``; ``several`` is the plural if no "s" makes it."""
    return f"{number} {what}" if number == 1 else f"{number} {several or what + 's'}"


def grouped(things: Iterable[str]) -> str:
    """Return ``provider a, b; format c`` for ``provider a``, ``provider b`` and ``format c``."""
    names: dict[str, list[str]] = {}
    for thing in things:
        kind, _, name = thing.partition(" ")
        names.setdefault(kind, []).append(name)
    return "; ".join(f"{kind} {', '.join(found)}".rstrip() for kind, found in names.items())


def size(nbytes: float) -> str:
    """Return a number of bytes for people: ``1.5 MiB``."""
    sign, amount = ("-", -nbytes) if nbytes < 0 else ("", nbytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{sign}{amount:.0f} B" if unit == "B" else f"{sign}{amount:.1f} {unit}"


def duration(seconds: float | None) -> str:
    """Return a time for people, with three digits that count: ``1.23 ms``."""
    if seconds is None:
        return ""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = seconds * factor
        if value >= 1 or unit == "µs":
            break
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def shape_text(shape: Sequence[object]) -> str:
    """Return a shape as the command line shows it: ``[batch, 3, ?]``."""
    return "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"
