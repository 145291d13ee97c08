"""How much private memory something takes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

STATUS = Path("/proc/self/status")


def private_bytes() -> int | None:
    """Returns the process's anonymous resident memory; ``None`` where the system does not tell."""
    if not STATUS.exists():
        return None
    for line in STATUS.read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return None


def private_growth(action: Callable[[], T]) -> tuple[T, int | None]:
    """Returns what an action returns, and the private memory it left behind."""
    gc.collect()
    before = private_bytes()
    result = action()
    gc.collect()
    after = private_bytes()
    return result, None if before is None or after is None else after - before
