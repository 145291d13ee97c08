"""The planes of an image that taps see, as ``tenonnx_cpu.conv.layout.Seen`` has them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tenonnx_cpu.jit.compiling import In, helper, i64, size

# How many planes and taps there are, the greatest line and column; each tap's plane, line, column.
TAPS_SEEN = (size, size, size, size, In(i64, 1), In(i64, 1), In(i64, 1))


class TapsSeen(NamedTuple):
    """See ``tenonnx_cpu.conv.layout.Seen``."""

    planes: Any
    taps: Any
    reach: Any
    columns: Any
    plane: Any
    line: Any
    column: Any


@helper
def taps_seen(values: Any) -> Any:
    """Return the arguments that ``TAPS_SEEN`` declares by name."""
    planes, taps, reach, columns, plane, line, column = values
    return TapsSeen(planes, taps, reach, columns, plane, line, column)


@helper
def first_seen(seen: Any, tap: Any, plane: Any, line: Any) -> Any:
    """Return where a tap sees the first window, if planes and lines have so many floats."""
    return seen.plane[tap] * plane + seen.line[tap] * line + seen.column[tap]
