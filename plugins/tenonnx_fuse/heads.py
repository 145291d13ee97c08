"""Key and value heads that are repeated so that each query head has one of its own."""

from __future__ import annotations

from typing import TypeAlias

import onnx_ir as ir

from tenonnx_fuse.known import attribute, integers_of

Size: TypeAlias = int | tuple[ir.Value, int] | None
"""A number, the size of a value along an axis, or something else."""


def unrepeated(value: ir.Value) -> tuple[ir.Value, list[ir.Node]]:
    """Returns heads as they were before they were repeated, and the nodes that did it.

    These unsqueeze (batch, heads, length, size) behind the heads, expand that, and reshape it to
    (batch, heads * times, length, size). A value that is not made so is returned as it is.
    """
    reshape = _maker(value, "Reshape")
    expand = None if reshape is None else _maker(reshape.inputs[0], "Expand")
    unsqueeze = None if expand is None else _maker(expand.inputs[0], "Unsqueeze")
    if reshape is None or expand is None or unsqueeze is None or unsqueeze.inputs[0] is None:
        return value, []
    axes = attribute(unsqueeze, "axes", None)
    if len(unsqueeze.inputs) > 1:
        axes = integers_of(unsqueeze.inputs[1])
    if axes is None or tuple(axes) != (2,):
        return value, []
    wide, flat = sizes_of(expand.inputs[1]), sizes_of(reshape.inputs[1])
    if wide is None or flat is None or not _repeats(wide, flat):
        return value, []
    return unsqueeze.inputs[0], [unsqueeze, expand, reshape]


def _repeats(wide: list[Size], flat: list[Size]) -> bool:
    """Says whether reshaping five sizes to four joins the second and the third."""
    if len(wide) != 5 or len(flat) != 4:
        return False
    joined = wide[1] * wide[2] if isinstance(wide[1], int) and isinstance(wide[2], int) else None
    expected = [wide[0], joined, wide[3], wide[4]]
    same = [
        one is not None and one == other for one, other in zip(expected, flat, strict=True)
    ]  # fmt: skip
    # One of them may be left to Reshape, or be computed in a way that is not followed.
    return sum(same) >= 3


def sizes_of(shape: ir.Value | None) -> list[Size] | None:
    """Returns the sizes that a value of one axis has as its elements, where they are known."""
    constant = integers_of(shape)
    if constant is not None:
        return [None if size == -1 else size for size in constant]
    joined = _maker(shape, "Concat")
    if joined is None:
        return None
    sizes: list[Size] = []
    for part in joined.inputs:
        whole = integers_of(part)
        if whole is not None:
            sizes += [None if size == -1 else size for size in whole]
        else:
            sizes.append(_size(part))
    return sizes


def _size(value: ir.Value | None) -> Size:
    """Returns the size of a value along an axis that a vector of one element is."""
    for wrapper in ("Unsqueeze", "Reshape"):
        inner = _maker(value, wrapper)
        if inner is not None:
            value = inner.inputs[0]
    shape = _maker(value, "Shape")
    if shape is not None and shape.inputs[0] is not None:
        start, end = attribute(shape, "start", 0), attribute(shape, "end", None)
        return (shape.inputs[0], start) if end == start + 1 else None
    gather = _maker(value, "Gather")
    shape = None if gather is None else _maker(gather.inputs[0], "Shape")
    position = None if gather is None else integers_of(gather.inputs[1])
    if shape is None or shape.inputs[0] is None or position is None or len(position) != 1:
        return None
    return shape.inputs[0], position[0]


def _maker(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    fits = node is not None and node.op_type == op_type and not node.domain
    return node if fits else None
