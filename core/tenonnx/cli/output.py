"""What the commands print: tables, JSON, sentences, progress."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tenonnx.errors import Fail

UNLIMITED = 100_000
"""Columns of output that is not a terminal: nothing is wrapped, so that grep finds it."""

REFRESH_SECONDS = 0.1

STYLES = {"error": "bold red", "warning": "bold yellow", "hint": "bold cyan"}


class Pipe(Console):
    """A console that leaves it to the command what a broken pipe means."""

    def on_broken_pipe(self) -> None:
        """Raises what rich would turn into an exit."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Returns a console on standard output or error as it is now."""
    stream = sys.stderr if stderr else sys.stdout
    return Pipe(
        file=stream,
        width=None if stream.isatty() else UNLIMITED,
        markup=False,
        highlight=False,
        emoji=False,
    )


def say(kind: str, sentence: str) -> None:
    """Prints ``kind: sentence`` on standard error."""
    text = Text.assemble((f"{kind}:", STYLES.get(kind, "")), " ", sentence)
    console(stderr=True).print(text, soft_wrap=True)


def note(sentence: str) -> None:
    """Prints a sentence on standard error."""
    console(stderr=True).print(sentence, soft_wrap=True)


def write_text(path: str, text: str) -> None:
    """Writes a file that an option names, and says so.

    Raises:
        Fail: It cannot be written.
    """
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Fail(f"cannot write {path}: {error.strerror}") from error
    note(f"written to {path}")


def title(text: str) -> None:
    """Prints a heading, a blank line before it."""
    out = console()
    out.print()
    out.print(Text(text, style="bold"))


def lines(*sentences: str) -> None:
    """Prints lines as they are."""
    out = console()
    for sentence in sentences:
        out.print(sentence, soft_wrap=True)


def table(
    header: Sequence[str], rows: Sequence[Sequence[object]], right: Collection[str] = ()
) -> None:
    """Prints a table; nothing if it has no rows.

    Args:
        header: The columns' names.
        rows: Cells, shown as ``str`` shows them; ``None`` is shown as nothing.
        right: Names of the columns to align right.
    """
    if not rows:
        return
    out = console()
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in header:
        grid.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*("" if cell is None else str(cell) for cell in row))
    with out.capture() as capture:
        out.print(grid)
    for line in capture.get().splitlines():
        out.file.write(line.rstrip() + "\n")


def emit_json(content: Any) -> None:
    """Prints JSON that any reader takes: what it has no words for becomes a string."""
    text = json.dumps(_wordable(content), indent=2, default=str, ensure_ascii=False)
    sys.stdout.write(text + "\n")


def _wordable(content: Any) -> Any:
    """Returns JSON content with infinities and NaN, for which it has no words, as strings."""
    if isinstance(content, dict):
        return {str(key): _wordable(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_wordable(value) for value in content]
    return str(content) if isinstance(content, float) and not math.isfinite(content) else content


@contextlib.contextmanager
def progress(total: float | None = None) -> Iterator[Callable[[str, float], None]]:
    """Shows how far something is, on a terminal; elsewhere a line for every new thing.

    Yields a function that takes what is being done and how much of ``total`` is done.
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
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
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
    """Returns ``1 node`` or ``2 nodes``; ``several`` is the plural if no "s" makes it."""
    return f"{number} {what}" if number == 1 else f"{number} {several or what + 's'}"


def grouped(things: Iterable[str]) -> str:
    """Returns ``provider a, b; format c`` for ``provider a``, ``provider b`` and ``format c``."""
    names: dict[str, list[str]] = {}
    for thing in things:
        kind, _, name = thing.partition(" ")
        names.setdefault(kind, []).append(name)
    return "; ".join(f"{kind} {', '.join(found)}".rstrip() for kind, found in names.items())


def size(nbytes: float) -> str:
    """Returns a number of bytes for people: ``1.5 MiB``."""
    sign, amount = ("-", -nbytes) if nbytes < 0 else ("", nbytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{sign}{amount:.0f} B" if unit == "B" else f"{sign}{amount:.1f} {unit}"


def duration(seconds: float | None) -> str:
    """Returns a time for people, with three digits that count: ``1.23 ms``."""
    if seconds is None:
        return ""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        value = seconds * factor
        if value >= 1 or unit == "µs":
            break
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def shape_text(shape: Sequence[object]) -> str:
    """Returns a shape as the command line shows it: ``[batch, 3, ?]``."""
    return "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"
