"""Values that no iteration of a loop changes are read from outside of the loop."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import graphs, replace_input


def free_invariants(model: ir.Model, context: TransformContext) -> bool:
    """Have bodies of Loop read states that they hand on unchanged where these come from.

    Exporters carry all that a body reads from state to state, weights as well: outside they are
    constants.
    """
    del context
    freed = False
    for graph in graphs(model):
        for node in graph:
            body = node.attributes.get("body")
            if node.op_type != "Loop" or node.domain or body is None:
                continue
            if body.type == ir.AttributeType.GRAPH:
                freed |= _free_states(node, body.as_graph())
    return freed


def _free_states(loop: ir.Node, body: ir.Graph) -> bool:
    freed = False
    states = zip(loop.inputs[2:], body.inputs[2:], body.outputs[1:], strict=False)
    for position, (outside, inside, result) in enumerate(states):
        if outside is None or _origin(result) is not inside:
            continue
        for use in tuple(inside.uses()):
            replace_input(use.node, use.idx, outside)
            freed = True
        body.outputs[1 + position] = inside
        if position < len(loop.outputs) and not loop.outputs[position].is_graph_output():
            loop.outputs[position].replace_all_uses_with(outside)
    return freed


def _origin(value: ir.Value) -> ir.Value:
    """Return the value that another value is a mere name for."""
    node = value.producer()
    while node is not None and node.op_type == "Identity" and not node.domain and node.inputs[0]:
        value = node.inputs[0]
        node = value.producer()
    return value
