"""What the operating system says about a worker's memory."""

from __future__ import annotations

from pathlib import Path


def of_process(pid: int) -> dict[str, int]:
    """Returns a process's bytes; nothing where the system does not say, or it has ended.

    ``private`` are those that no file holds too, ``mapped`` those of files, such as weights,
    which all processes that map them share; ``pss`` is all, what is shared divided by its users.
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
