"""The check before a tensor is allocated whose shape came out of data."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.operators import Namespace
from tenonnx.process.cores import GROUPS, OWN_GROUPS, Path, control_groups, text_of
from tenonnx.process.memory import allowed

# Bytes below which the operating system is not asked what is free.
_MAX_UNCHECKED_BYTES = 1 << 26

# A control group's files of its limit and its use, and the cache's name in its statistics.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"),
    2: ("memory.max", "memory.current", "file"),
}


def check_allocation(xp: Namespace, shape: Sequence[int], dtype: Any) -> None:
    """Refuse what cannot fit: Linux would promise the memory and kill the process on first use.

    Device allocators refuse by themselves.

    Raises:
        ValueError: A dimension is negative.
        MemoryError: The tensor is larger than the available memory, or than the caller allows.
    """
    if min(shape, default=0) < 0:
        raise ValueError(f"expected dimensions of at least 0, found shape {list(shape)}")
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    if xp is np and needed > _MAX_UNCHECKED_BYTES:
        check_bytes(needed, f"a {np.dtype(dtype).name} tensor of shape {list(shape)}")


def check_bytes(needed: float, what: str) -> None:
    """Refuse to make something that takes so many bytes, as above.

    Raises:
        MemoryError: They are more than there are, or than the caller allows.
    """
    if needed > _MAX_UNCHECKED_BYTES and needed > (available := min(allowed(), available_memory())):
        raise MemoryError(
            f"{what} takes {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB are available"
        )


def available_memory() -> float:
    """Bytes that can be used without swapping; all of the memory where the system is not Linux."""
    try:
        for line in text_of("/proc/meminfo").splitlines():
            if line.startswith("MemAvailable:"):
                return min(int(line.split()[1]) * 1024, _left_in_groups())
    except OSError:
        pass
    if not hasattr(os, "sysconf"):  # Windows
        return math.inf
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _left_in_groups(own: Path = OWN_GROUPS, groups: Path = GROUPS) -> float:
    """Bytes left to the process's control groups, as in a container, not counting its cache."""
    return min(
        (_left_in_group(*group) for group in control_groups("memory", own, groups)),
        default=math.inf,
    )


def _left_in_group(group: str, version: int) -> float:
    limit, used, cache = _FILES[version]
    try:
        lines = text_of(f"{group}/memory.stat").splitlines()
        stat = dict(line.split() for line in lines)
        left = int(text_of(f"{group}/{limit}")) - int(text_of(f"{group}/{used}"))
        return left + int(stat[cache])
    except (OSError, ValueError, KeyError):  # no group, no limit ("max"), or an older kernel
        return math.inf
