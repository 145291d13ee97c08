"""What processes hold: their private memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def private_mib(pid: int | str) -> float:
    """Returns the memory that a process shares with no other, as the kernel counts it."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return (sizes["Private_Clean"] + sizes["Private_Dirty"]) / 1024


def titled(title: str) -> Iterable[str]:
    """Yields the numbers of processes whose command line begins so."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if line.read_text().startswith(title):
                yield line.parent.name
        except (OSError, UnicodeDecodeError):  # it has ended meanwhile
            continue
