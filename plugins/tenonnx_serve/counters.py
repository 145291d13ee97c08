"""What a worker counts, and sums of what several have counted.

A snapshot is made of dictionaries, lists and numbers, as JSON has them. Of two, those of the same
name are added: numbers as they are, lists entry by entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def add(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Adds a snapshot to a total, in place; the snapshot stays as it is."""
    for name, value in more.items():
        if isinstance(value, Mapping):
            add(total.setdefault(name, {}), value)
        elif isinstance(value, list):
            before = total.get(name, [0] * len(value))
            total[name] = [a + b for a, b in zip(before, value, strict=True)]
        else:
            total[name] = total.get(name, 0) + value
