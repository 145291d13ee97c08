"""Options that the benchmarks share."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from bench.machine import tell

RESULTS = Path(__file__).with_name("results")


def parser(
    name: str, about: str | None, rows: Collection[str], metavar: str = "ROW"
) -> argparse.ArgumentParser:
    """Return a parser of names of rows, and of where results go.

    Args:
        name: The benchmark's.
        about: What ``--help`` tells.
        rows: The names there are, mapped to a word about each if there is one.
        metavar: What a name stands for.
    """
    words = rows if isinstance(rows, Mapping) else {}
    listed = "\n".join(f"  {row:20} {words.get(row, '')}".rstrip() for row in rows)
    made = argparse.ArgumentParser(
        prog=f"python -m bench {name}".strip(),
        description=about,
        epilog=f"{metavar}, all by default:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("names", nargs="*", metavar=metavar, type=one_of(rows))
    made.add_argument(
        "--output", type=Path, default=RESULTS, metavar="DIR", help="where results go"
    )
    return made


def one_of(known: Collection[str]) -> Callable[[str], str]:
    """Return what refuses all other names."""

    def check(name: str) -> str:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return name

    return check


@contextlib.contextmanager
def telling_minutes() -> Iterator[None]:
    """Return how long a benchmark took."""
    start = time.monotonic()
    yield
    tell(f"{(time.monotonic() - start) / 60:.1f} minutes")
