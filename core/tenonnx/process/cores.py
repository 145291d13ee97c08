"""The number of processors that this process may use, and the control groups that limit it."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from typing import Final, TypeAlias

# A Linux process's control groups, a line ``number:controllers:path`` for each hierarchy.
OWN_GROUPS = "/proc/self/cgroup"

# The folder of control groups.
GROUPS = "/sys/fs/cgroup"

Path: TypeAlias = str | os.PathLike[str]

# Files of a group that hold a quota and its period, in microseconds, by version.
LIMITS: Final = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}


@functools.cache
def available_cores() -> int:
    """Return the number of processors for this process, by its affinity and its quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return min(cores, granted_cores() or cores)


@functools.cache
def granted_cores() -> int | None:
    """Return the number of processors that a quota allows; ``None`` without a quota."""
    quota = cpu_quota(OWN_GROUPS, GROUPS)
    return None if quota is None else max(1, math.ceil(quota))


def bound(asked: int) -> int | None:
    """Return the number of threads of a session in a library that ignores quotas.

    Args:
        asked: The session's number; 0 for the default.

    Returns:
        The number, or ``None`` if the library's own default is right.
    """
    return min(asked, available_cores()) if asked > 0 else granted_cores()


def cpu_quota(own: Path, groups: Path) -> float | None:
    """Return the processors whose time control groups grant a process, as ``docker --cpus`` says.

    The smallest one counts; ``None`` without any. (Linux's admin-guide/cgroup-v2 and
    scheduler/sched-bwc.)
    """
    found = [_quota(group, LIMITS[v]) for group, v in control_groups("cpu", own, groups)]
    return min((quota for quota in found if quota is not None), default=None)


def control_groups(
    controller: str, own: Path = OWN_GROUPS, groups: Path = GROUPS
) -> Iterator[tuple[str, int]]:
    """Yield the folders of the control groups that may limit a process, and their version.

    They are those that it is in, and all above. There are none on other systems than Linux.

    Args:
        controller: What they limit: ``cpu`` or ``memory``.
        own: The file that lists the process's groups.
        groups: Where they are. In a container that may be its own group, whatever ``own`` says.
    """
    try:
        hierarchies = text_of(own).splitlines()
    except OSError:
        return
    for line in hierarchies:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root, version = os.fspath(groups), 2
        elif controller in controllers.split(","):
            root, version = os.path.join(groups, controller), 1
        else:
            continue
        yield root, version
        group = root
        for name in path.split("/"):
            if name:
                group = os.path.join(group, name)
                yield group, version


def text_of(path: Path) -> str:
    """Return what a file says."""
    with open(path) as file:
        return file.read()


def _quota(group: str, files: tuple[str, ...]) -> float | None:
    try:
        quota, period = " ".join(text_of(os.path.join(group, name)) for name in files).split()
    except OSError:
        return None
    return None if quota in ("max", "-1") else int(quota) / int(period)
