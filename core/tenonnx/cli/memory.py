"""The operating system's figures on this process's memory."""

from __future__ import annotations

import gc
from pathlib import Path

from tenonnx.process.cores import GROUPS, OWN_GROUPS, control_groups

try:
    import resource
except ImportError:  # Windows
    LIMITS: dict[str, int] = {}
else:
    LIMITS = {
        name: getattr(resource, name)
        for name in ("RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_RSS", "RLIMIT_MEMLOCK")
    }

ROLLUP = Path("/proc/self/smaps_rollup")
# The file of a control group that holds its limit, by version.
LIMIT_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}


def private_bytes() -> int | None:
    """Return the bytes of this process that no file holds too.

    Pages of a file that it has just written are none of them, though nobody else may map them.
    ``None`` where the system does not say (anywhere but on Linux).
    """
    gc.collect()
    try:
        text = ROLLUP.read_text()
    except OSError:
        return None
    kinds = ("Anonymous:", "Private_Hugetlb:", "Swap:")
    return 1024 * sum(int(x.split()[1]) for x in text.splitlines() if x.startswith(kinds))


def growth(before: int | None, after: int | None) -> int | None:
    """Return how many bytes were added; ``None`` if they were not measured."""
    return None if before is None or after is None else after - before


def limits() -> dict[str, int]:
    """Return the limits on memory that are set, in bytes: of the process, of its cgroup."""
    found = {}
    for name, number in LIMITS.items():
        soft, _ = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY:
            found[name] = soft
    if (limit := cgroup_limit()) is not None:
        found["cgroup"] = limit
    return found


def cgroup_limit(own: str | Path = OWN_GROUPS, groups: str | Path = GROUPS) -> int | None:
    """Return the lowest limit of ``control_groups``; ``None`` if none has one."""
    found = control_groups("memory", own, groups)
    limits = [_read_limit(Path(group, LIMIT_FILES[version])) for group, version in found]
    return min((limit for limit in limits if limit is not None), default=None)


def _read_limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    # Version 1 says "unlimited" with a number close to 2**63.
    return int(text) if text.isdecimal() and int(text) < 2**60 else None


def total() -> tuple[int, int] | None:
    """Return the machine's memory and what of it is available, in bytes."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    fields = {k: v for k, _, v in (line.partition(":") for line in text.splitlines())}
    kib = [int(fields[name].split()[0]) for name in ("MemTotal", "MemAvailable")]
    return kib[0] * 1024, kib[1] * 1024
