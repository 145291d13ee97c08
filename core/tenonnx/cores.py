"""How many processors this process may use."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

OWN = Path("/proc/self/cgroup")
"""Which control groups a process of Linux is in: ``number:controllers:path`` for each hierarchy."""

GROUPS = Path("/sys/fs/cgroup")
"""Where they are."""

Limit: TypeAlias = tuple[str, ...]

LIMIT_V2: Final[Limit] = ("cpu.max",)
LIMIT_V1: Final[Limit] = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
"""Files of a control group that hold a quota and its period, in microseconds."""


@functools.cache
def available_cores() -> int:
    """Returns how many processors this process may run on, or a quota grants the time of."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = cpu_quota(OWN, GROUPS)
    return cores if quota is None else min(cores, max(1, math.ceil(quota)))


def cpu_quota(own: Path, groups: Path) -> float | None:
    """Returns the processors whose time control groups grant a process, as ``docker --cpus`` says.

    The smallest quota counts of the process's groups and those above; ``None`` without any.
    (Linux's admin-guide/cgroup-v2 and scheduler/sched-bwc.)

    Args:
        own: What says which groups it is in.
        groups: Where they are. In a container that may be its own group, whatever ``own`` says.
    """
    try:
        hierarchies = own.read_text().splitlines()
    except OSError:
        return None
    found = [_quota(folder, limit) for folder, limit in _folders(hierarchies, groups)]
    return min((quota for quota in found if quota is not None), default=None)


def _folders(hierarchies: list[str], groups: Path) -> Iterator[tuple[Path, Limit]]:
    """Yields the folders of groups that may have quotas, and how they write them."""
    for line in hierarchies:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, limit = groups, LIMIT_V2
        elif "cpu" in controllers.split(","):
            root, limit = groups / "cpu", LIMIT_V1
        else:
            continue
        folder = root / path.lstrip("/")
        yield folder, limit
        while folder != root:
            folder = folder.parent
            yield folder, limit


def _quota(folder: Path, limit: Limit) -> float | None:
    try:
        quota, period = " ".join((folder / name).read_text() for name in limit).split()
    except OSError:
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)
