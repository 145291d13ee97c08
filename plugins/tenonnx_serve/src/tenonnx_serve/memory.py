"""A worker's memory, from the operating system."""

from __future__ import annotations

from pathlib import Path


def of_process(pid: int) -> dict[str, int]:
    """Return a process's memory in bytes; nothing if the system does not tell, or it has ended.

    ``private`` is memory that only this process has. ``mapped`` is memory of files, such as
    weights, which all processes that map them share. ``pss`` is all, shared parts divided by users.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return {}
    fields = {}
    for line in text.splitlines()[1:]:
        name, _, rest = line.partition(":")
        fields[name] = int(rest.split()[0]) * 1024
    private = fields["Anonymous"] + fields["Private_Hugetlb"] + fields["Swap"]
    return {"private": private, "mapped": fields["Rss"] - fields["Anonymous"], "pss": fields["Pss"]}
