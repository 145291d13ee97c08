"""Zeros around an image that a convolution may as well think of itself."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import graphs
from tenonnx.graph.sizes import integers_of, operand
from tenonnx_fuse.bypass import note_removed
from tenonnx_fuse.known import attribute, number_of


def fold_pads(model: ir.Model, context: TransformContext) -> bool:
    """Add what a Pad adds to an image's sides to the padding of the convolutions that read it."""
    done: Counter[str] = Counter()
    for graph in graphs(model):
        for node in tuple(graph):
            pad = operand(node, 0).producer() if _is_convolution(node) else None  # type: ignore[union-attr]  # it has an image
            sides = None if pad is None else _sides(pad)
            if pad is None or sides is None:
                continue
            own = tuple(attribute(node, "pads", ())) or (0,) * len(sides)
            if len(own) != len(sides):
                continue
            both = [a + b for a, b in zip(own, sides, strict=True)]
            node.attributes["pads"] = ir.AttrInt64s("pads", both)
            node.replace_input_with(0, operand(pad, 0))
            if not pad.outputs[0].uses() and not pad.outputs[0].is_graph_output():
                assert pad.graph is not None
                pad.graph.remove(pad, safe=True)
                done["Pad before a convolution"] += 1
    return note_removed(context, done)


def _is_convolution(node: ir.Node) -> bool:
    explicit = attribute(node, "auto_pad", "NOTSET") == "NOTSET"
    return node.op_type == "Conv" and not node.domain and explicit and bool(operand(node, 0))


def _sides(node: ir.Node) -> tuple[int, ...] | None:
    """Return how many zeros a Pad adds to each side of an image; ``None`` if it does more."""
    if node.op_type != "Pad" or node.domain or (node.version or 1) < 11 or len(node.inputs) > 3:
        return None
    pads, value = integers_of(operand(node, 1)), operand(node, 2)
    if attribute(node, "mode", "constant") != "constant" or pads is None or min(pads) < 0:
        return None
    if value is not None and number_of(value) != 0:
        return None
    rank = len(pads) // 2
    if rank < 3 or any(pads[:2]) or any(pads[rank : rank + 2]):
        return None
    return (*pads[2:rank], *pads[rank + 2 :])
