"""Attention that splits and joins heads itself, instead of a Reshape and a Transpose for each."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph.sizes import operand
from tenonnx_fuse.known import permutation
from tenonnx_fuse.pattern import Match, Pattern, let, op
from tenonnx_fuse.rewrite import Rule, rewriting


def _swaps_heads(node: ir.Node) -> str | None:
    order = permutation(node)
    return None if order == (0, 2, 1, 3) else f"moves the axes to {order}"


def _has_no_cache(node: ir.Node) -> str | None:
    if len(node.inputs) > 4 or "q_num_heads" in node.attributes:
        return "has a cache, or heads that are packed already"
    return None


def _split(name: str) -> Pattern:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    view = let(f"{name} view", op("Reshape", name, more=True))
    return op("Transpose", view, where=_swaps_heads)


SPLIT_ATTENTION = let(
    "attention",
    op("Attention", _split("q"), _split("k"), _split("v"), where=_has_no_cache, more=True),
)
JOINED_HEADS = op("Reshape", op("Transpose", SPLIT_ATTENTION, where=_swaps_heads), more=True)


def _packed(found: Match, _: TransformContext) -> list[ir.Node] | str:
    heads = []
    for name in "qkv":
        flat, split = found.values[name], found.values[f"{name} view"]
        count = _heads(flat, split)
        if count is None:
            return f"'{split.name}' is not known to split the last axis of '{flat.name}'"
        heads.append(count)
    joined = found.last.outputs[0]
    attention = found.values["attention"].producer()
    turned = operand(found.last, 0)
    assert attention is not None
    assert turned is not None
    if _heads(joined, turned) is None:
        return f"'{joined.name}' is not known to join the last axes of '{turned.name}'"
    if heads[1] != heads[2]:
        return f"keys have {heads[1]} heads and values {heads[2]}"
    attributes = [
        *attention.attributes.values(),
        ir.AttrInt64("q_num_heads", heads[0]),
        ir.AttrInt64("kv_num_heads", heads[1]),
    ]
    inputs = [*(found.values[name] for name in "qkv"), *attention.inputs[3:]]
    return [ir.Node("", "Attention", inputs, attributes, num_outputs=1, version=attention.version)]


def _heads(flat: ir.Value, split: ir.Value) -> int | None:
    """Return how many heads there are if one value has the last axis of the other split."""
    if flat.shape is None or split.shape is None or len(flat.shape) != 3 or len(split.shape) != 4:
        return None
    if any(flat.shape[axis] != split.shape[axis] for axis in (0, 1)):
        return None
    unknown = (None, ir.SymbolicDim(None))
    if any(flat.shape[axis] in unknown for axis in (0, 1)):
        return None
    count, size, width = split.shape[2], split.shape[3], flat.shape[2]
    if not (isinstance(count, int) and isinstance(size, int)) or count * size != width:
        return None
    return count


packed_heads = rewriting(
    Rule("Attention of packed heads", JOINED_HEADS, _packed, enough=6, needs=("Attention",))
)
