"""The part of the result that a task makes."""

from __future__ import annotations

from typing import Any, NamedTuple

from tenonnx_cpu.jit.compiling import helper


class TaskRange(NamedTuple):
    """Rows and columns of a matrix product, as ``tenonnx_cpu.conv.layout`` cuts it.

    Attributes:
        image: A group of channels of an image.
        first: The first row, which is a channel of the group.
        rows: How many.
        top: The first line of the image.
        lines: How many.
        left: The first column of each of them.
        columns: How many, of all lines.
    """

    image: Any
    first: Any
    rows: Any
    top: Any
    lines: Any
    left: Any
    columns: Any


@helper
def part_of(task: Any, sizes: Any) -> Any:
    """Return a task's part."""
    bands, across = -(-sizes.rows // sizes.task_rows), -(-sizes.out_width // sizes.task_width)
    strips = -(-sizes.out_height // sizes.task_height) * across
    strip, first = task // bands % strips, task % bands * sizes.task_rows
    top, left = strip // across * sizes.task_height, strip % across * sizes.task_width
    lines = min(sizes.task_height, sizes.out_height - top)
    return TaskRange(
        task // (bands * strips), first, min(sizes.task_rows, sizes.rows - first), top, lines,
        left, min(sizes.task_width, sizes.out_width - left) * lines,
    )  # fmt: skip


@helper
def channels_of(task: Any, sizes: Any) -> Any:
    """Return a task's image, channels and lines, as ``tenonnx_cpu.conv.depthwise`` cuts them.

    Channels and lines are told by the first and the one after the last.
    """
    groups = -(-sizes.channels // sizes.task_channels)
    image, part = task // (groups * sizes.bands), task % (groups * sizes.bands)
    band, first = part // groups, part % groups * sizes.task_channels
    high = -(-sizes.out_height // sizes.bands)
    return (
        image, first, min(sizes.channels, first + sizes.task_channels),
        band * high, min(sizes.out_height, (band + 1) * high),
    )  # fmt: skip
