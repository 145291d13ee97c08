"""The private memory of processes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

LARGE = 5792
"""The number of rows, and of columns, of a matrix of 134 MB."""


def private_mib(pid: int | str) -> float:
    """Return what a process holds that no file holds too.

    Pages of a file that one process alone has touched so far are the file's.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return (sizes["Anonymous"] + sizes["Private_Hugetlb"] + sizes["Swap"]) / 1024


def unshared_mib(pid: int | str) -> float:
    """Return what a process has written, and shares with no other since: for those that forked."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) / 1024


def titled(title: str) -> Iterable[str]:
    """Yield the numbers of processes whose command line begins so."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if line.read_text().startswith(title):
                yield line.parent.name
        except (OSError, UnicodeDecodeError):  # it has ended meanwhile
            continue


def descendants(pid: int) -> list[str]:
    """Return the processes below one that run Python of their own: no trackers of resources."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if "resource_tracker" not in Path(f"/proc/{child}/cmdline").read_text():
            found += [child, *descendants(int(child))]
    return found


def settled(pid: int, count: int) -> list[float]:
    """Return what the processes below one hold, once they have all begun and hold no more."""
    end, before = time.monotonic() + 60, [0.0]
    while time.monotonic() < end:
        now = [private_mib(child) for child in descendants(pid)]
        if len(now) == count == len(before) and all(
            abs(a - b) < 0.5 for a, b in zip(now, before, strict=True)
        ):
            return now
        before = now
        time.sleep(2)
    raise AssertionError(f"of {count} processes there are {before}")
