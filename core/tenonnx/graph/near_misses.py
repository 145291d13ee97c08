"""Near misses of transforms and of providers' fusions, and their reasons.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tenonnx.graph import label

if TYPE_CHECKING:
    import onnx_ir as ir

# The beginning of the note of a near miss.
NEAR_MISS_PREFIX: Final = "nearly "

# The most near misses in a report; those that differ in names alone count as one.
MAX_NEAR_MISSES: Final = 8

QUOTED_NAME: Final = re.compile(r"'[^']*'")


class NearMisses:
    """Near misses of one session, and why they did not match."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def add(self, name: str, node: ir.Node, why: str) -> None:
        """Remember that a node is nearly something."""
        kind = QUOTED_NAME.sub("", f"{name} {node.op_type} {why}")
        self._found.setdefault(kind, []).append(f"{NEAR_MISS_PREFIX}{name} at {label(node)}: {why}")

    def notes(self) -> Iterator[str]:
        """Yield a line for each kind."""
        for like in list(self._found.values())[:MAX_NEAR_MISSES]:
            more = f" (and {len(like) - 1} like it)" if len(like) > 1 else ""
            yield like[-1] + more
        if len(self._found) > MAX_NEAR_MISSES:
            yield f"... and {len(self._found) - MAX_NEAR_MISSES} more kinds that nearly match"
