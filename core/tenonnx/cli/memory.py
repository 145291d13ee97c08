"""What the operating system says about this process's memory."""

from __future__ import annotations

import gc
from pathlib import Path

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
CGROUP = Path("/sys/fs/cgroup")


def private_bytes() -> int | None:
    """Returns the bytes that this process alone holds and that no file holds too.

    ``None`` where the system does not say (anywhere but on Linux).
    """
    gc.collect()
    try:
        text = ROLLUP.read_text()
    except OSError:
        return None
    kinds = ("Private_Dirty:", "Private_Hugetlb:", "Swap:")
    return 1024 * sum(int(x.split()[1]) for x in text.splitlines() if x.startswith(kinds))


def growth(before: int | None, after: int | None) -> int | None:
    """Returns how many bytes were added; ``None`` if they were not measured."""
    return None if before is None or after is None else after - before


def limits() -> dict[str, int]:
    """Returns the limits on memory that are set, in bytes: of the process, of its cgroup."""
    found = {}
    for name, number in LIMITS.items():
        soft, _ = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY:
            found[name] = soft
    if (limit := cgroup_limit()) is not None:
        found["cgroup"] = limit
    return found


def cgroup_limit(root: Path = CGROUP, membership: Path = Path("/proc/self/cgroup")) -> int | None:
    """Returns the lowest limit that a cgroup of the process sets, version 1 or 2.

    Args:
        root: Where cgroups are mounted.
        membership: Which cgroups the process is in.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, file = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, file = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        # Inside a container, the path may be the host's and the group itself the root.
        inner = top / path.lstrip("/")
        for folder in (inner, *inner.parents):
            if not folder.is_relative_to(top):
                break
            found += _read_limit(folder / file)
    return min(found, default=None)


def _read_limit(path: Path) -> list[int]:
    try:
        text = path.read_text().strip()
    except OSError:
        return []
    # Version 1 says "unlimited" with a number close to 2**63.
    return [int(text)] if text.isdecimal() and int(text) < 2**60 else []


def total() -> tuple[int, int] | None:
    """Returns the machine's memory and what of it is available, in bytes."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    fields = {k: v for k, _, v in (line.partition(":") for line in text.splitlines())}
    kib = [int(fields[name].split()[0]) for name in ("MemTotal", "MemAvailable")]
    return kib[0] * 1024, kib[1] * 1024
