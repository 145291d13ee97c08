"""The number of a mask's tokens, by row and in all, as decoders compute it for their attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenonnx.process.later import Later
from tenonnx_cpu.attention.token_counts import counted
from tenonnx_cpu.fuse import PATTERN, Fused, Scope, fusion

if TYPE_CHECKING:
    import onnx_ir as ir

INT32 = 6

# Behind sums by bucket, which begin with a ReduceSum, too.
BEHIND = PATTERN + 1


@fusion("ReduceSum", priority=BEHIND)
def fuse_mask_lengths(node: ir.Node, scope: Scope) -> Fused | None:
    """Take ReduceSum, Sub and Cast, and Shape, Gather and Cast, of one mask.

    The mask is longer at every token. Six steps then take a tenth of the token of a small model.
    """
    mask = node.inputs[0]
    axes = scope.site(node).scalar(1) if len(node.inputs) == 2 else None
    shapes = [] if mask is None else [use.node for use in mask.uses() if use.node is not node]
    if axes is None or axes.item() not in (1, -1) or scope.site(node).attribute("keepdims", 1):
        return None
    if len(shapes) != 1 or shapes[0].op_type != "Shape" or shapes[0].domain or mask is None:
        return None
    (shape,) = shapes
    lengths, total = _behind(node, "Sub", scope), _behind(shape, "Gather", scope)
    if not scope.has(shape) or shape.attributes or lengths is None or total is None:
        return None
    less, place = (scope.site(each[0]).scalar(1) for each in (lengths, total))
    if less is None or less.ndim > 1 or place is None or place.ndim or not -2 <= place.item() < 2:
        return None
    nodes = tuple(sorted((node, shape, *lengths, *total), key=scope.position))
    rest = [scope.plain(each).call for each in (node, *lengths, shape, *total)]
    inputs = mask, node.inputs[1], lengths[0].inputs[1], total[0].inputs[1]
    outputs = lengths[1].outputs[0], total[1].outputs[0]
    return Fused(nodes, inputs, outputs, counted(int(place.item()), Later(rest)))


def _behind(node: ir.Node, operator: str, scope: Scope) -> tuple[ir.Node, ir.Node] | None:
    """Return the node of an operator that reads a node, and the Cast to int32 behind it."""
    made = node.outputs[0]
    found = scope.follower(made, operator)
    if found is None or found.inputs[0] is not made or scope.site(found).attribute("axis", 0):
        return None
    cast = scope.follower(found.outputs[0], "Cast")
    if cast is None or scope.site(cast).attribute("to", 0) != INT32:
        return None
    return found, cast
