"""Key and value heads that are repeated so that each query head has one of its own."""

from __future__ import annotations

from typing import TypeAlias

import onnx_ir as ir

from tenonnx.graph.sizes import integers_of, operand, rank_of
from tenonnx_fuse.known import attribute

# A number, a name, the size of a value along an axis, or something else.
Size: TypeAlias = int | str | tuple[ir.Value, int] | None


def unrepeated(value: ir.Value) -> tuple[ir.Value, int]:
    """Return heads as they were before they were repeated, and how often; 0 if that is not known.

    That is done by unsqueezing (batch, heads, length, size) behind the heads, expanding that, and
    reshaping it to (batch, heads * times, length, size). Other values are returned as they are.
    """
    reshape = _maker(value, "Reshape")
    wide = None if reshape is None else operand(reshape, 0)
    flat = None if reshape is None else sizes_of(operand(reshape, 1))
    heads = None if wide is None or flat is None else _before_expand(wide, flat)
    return heads or (value, 1)


def _before_expand(wide: ir.Value, flat: list[Size]) -> tuple[ir.Value, int] | None:
    """Return what was expanded to a value that is reshaped to these sizes, if heads were.

    The number beside it says how often they were, 0 if that is not known.
    """
    expand = _maker(wide, "Expand")
    unsqueeze = None if expand is None else _maker(operand(expand, 0), "Unsqueeze")
    if expand is None or unsqueeze is None:
        return None
    axes = attribute(unsqueeze, "axes", None)
    if len(unsqueeze.inputs) > 1:
        axes = integers_of(operand(unsqueeze, 1))
    sizes = sizes_of(operand(expand, 1))
    if axes is None or tuple(axes) != (2,) or sizes is None or not _repeats(sizes, flat):
        return None
    heads, times = operand(unsqueeze, 0), sizes[2]
    return None if heads is None else (heads, times if isinstance(times, int) else 0)


def _repeats(wide: list[Size], flat: list[Size]) -> bool:
    """Return whether reshaping five sizes to four joins the second and the third."""
    if len(wide) != 5 or len(flat) != 4:
        return False
    joined = wide[1] * wide[2] if isinstance(wide[1], int) and isinstance(wide[2], int) else None
    expected = [wide[0], joined, wide[3], wide[4]]
    same = [
        one is not None and one == other for one, other in zip(expected, flat, strict=True)
    ]  # fmt: skip
    # One of them may be left to Reshape, or be computed in a way that is not followed.
    return sum(same) >= 3


def unturned(keys: ir.Value, joined: ir.Node) -> tuple[ir.Value, int] | None:
    """Return what a Reshape gives back with its last two axes exchanged, as ``unrepeated`` does.

    Exporters join the axes before, turn (batch * heads, length, size), and split them again.

    Args:
        keys: What is joined, turned and split; (batch, heads, length, size), or heads as they are
            repeated, with an axis more.
        joined: The node that splits.
    """
    turn = _maker(operand(joined, 0), "Transpose")
    flat = None if turn is None else _maker(operand(turn, 0), "Reshape")
    if flat is None:
        return None
    first, last = sizes_of(operand(flat, 1)), sizes_of(operand(joined, 1))
    if first is None or last is None or len(first) != 3 or len(last) != 4:
        return None
    back = [*last[:2], last[3], last[2]]
    if first[1:] != back[2:] or None in back:
        return None
    if rank_of(keys) == 4:
        same = back == [size_of(keys, axis) for axis in range(4)]
        return unrepeated(keys) if same else None
    return _before_expand(keys, back)


def sizes_of(shape: ir.Value | None) -> list[Size] | None:
    """Return the sizes that a value of one axis has as its elements, where they are known."""
    constant = integers_of(shape)
    if constant is not None:
        return [None if size == -1 else size for size in constant]
    flat, chosen = _maker(shape, "Reshape"), _maker(shape, "Where")
    if flat is not None and integers_of(operand(flat, 1)) == (-1,):
        return sizes_of(operand(flat, 0))
    if chosen is not None and _replaces_unknown(chosen):
        return sizes_of(operand(chosen, 2))
    joined = _maker(shape, "Concat")
    if joined is None:
        return _sizes(shape)
    parts = [sizes_of(part) for part in joined.inputs]
    known = [part for part in parts if part is not None]
    return [size for part in known for size in part] if len(known) == len(parts) else None


def _replaces_unknown(node: ir.Node) -> bool:
    """Return whether a Where puts ones in the place of the sizes of an Expand that are -1."""
    tests, ones = _maker(operand(node, 0), "Equal"), operand(node, 1)
    if tests is None or operand(tests, 0) is not operand(node, 2):
        return False
    # Exporters write them as a ConstantOfShape, of which folding makes a constant.
    return _maker(ones, "ConstantOfShape") is not None or set(integers_of(ones) or ()) == {1}


def size_of(value: ir.Value, axis: int) -> Size:
    """Return a value's size along an axis: a number, a name, or which value's it is."""
    rank = rank_of(value)
    if rank is None:
        return (value, axis)
    axis %= rank
    dim = None if value.shape is None else value.shape[axis]
    known = dim.value if isinstance(dim, ir.SymbolicDim) else dim
    return (value, axis) if known is None else known


def _sizes(value: ir.Value | None) -> list[Size] | None:
    """Return what a part of a Shape, or one number computed from it, has as its elements."""
    single = _maker(value, "Unsqueeze")
    if single is not None:
        return _part(operand(single, 0)) or [None]
    return _part(value)


def _part(value: ir.Value | None) -> list[Size] | None:
    shape, picked = _maker(value, "Shape"), slice(None)
    if (part := _maker(value, "Slice")) is not None:
        shape = _maker(operand(part, 0), "Shape")
        bounds = [integers_of(bound) for bound in part.inputs[1:3]]
        if len(bounds) < 2 or len(part.inputs) > 4:
            return None
        if any(bound is None or len(bound) != 1 for bound in bounds):
            return None
        picked = slice(*(bound[0] for bound in bounds if bound is not None))
    elif (part := _maker(value, "Gather")) is not None:
        shape = _maker(operand(part, 0), "Shape")
        place = integers_of(operand(part, 1))
        if place is None or len(place) != 1:
            return None
        picked = slice(place[0], place[0] + 1 or None)  # -1 is the last one, and slice(-1, 0) none
    of = None if shape is None else operand(shape, 0)
    rank = rank_of(of)
    if shape is None or of is None:
        return None
    if rank is None:
        first = picked.start
        single = first is not None and picked.stop == first + 1 and "start" not in shape.attributes
        return [(of, first)] if single else None
    axes = range(rank)[attribute(shape, "start", 0) : attribute(shape, "end", None)][picked]
    return [size_of(of, axis) for axis in axes]


def _maker(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = None if value is None else value.producer()
    fits = node is not None and node.op_type == op_type and not node.domain
    return node if fits else None
