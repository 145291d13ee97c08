"""Constant nodes become initializers; nodes and initializers that nobody reads go."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from tenonnx import TransformContext, WeightTensor
from tenonnx.graph import detach, graphs, replace_uses

# Types of a Constant's attributes, besides tensors and strings.
CONSTANT_NUMBER_DTYPES = {
    "value_int": ir.DataType.INT64,
    "value_ints": ir.DataType.INT64,
    "value_float": ir.DataType.FLOAT,
    "value_floats": ir.DataType.FLOAT,
}

# The attributes of Constant that are read; the runtime refuses others by name.
CONSTANT_ATTRIBUTE_TYPES = {
    "value": ir.AttributeType.TENSOR,
    "value_int": ir.AttributeType.INT,
    "value_ints": ir.AttributeType.INTS,
    "value_float": ir.AttributeType.FLOAT,
    "value_floats": ir.AttributeType.FLOATS,
    "value_string": ir.AttributeType.STRING,
    "value_strings": ir.AttributeType.STRINGS,
}


def lift_constants(model: ir.Model, context: TransformContext) -> bool:
    """Turn every Constant node into an initializer over a weight of the registry.

    A graph's output stays a node's, and the runtime names a node that is malformed. The pass that
    onnx_ir has for this comes with eighteen modules, which take longer than lifting does.
    """
    lifted = False
    for graph in graphs(model):
        constants = (node for node in graph if node.op_type == "Constant" and not node.domain)
        unread = [node for node in constants if _is_lifted(node, context)]
        graph.remove(unread, safe=True)  # looks at all outputs of the graph, each time
        lifted = lifted or bool(unread)
    return lifted


def _is_lifted(node: ir.Node, context: TransformContext) -> bool:
    """Replace a constant by an initializer for all readers; return whether the node is unread."""
    if not node.outputs:
        return True
    output, graph = node.outputs[0], node.graph
    tensor = _tensor(node, context)
    if tensor is None or output.is_graph_output() or not isinstance(graph, ir.Graph):
        return False
    value = ir.Value(name=output.name, const_value=tensor, type=ir.TensorType(tensor.dtype))
    value.shape = ir.Shape(tensor.shape.numpy())
    graph.register_initializer(value)
    replace_uses(output, value)
    return True


def _tensor(node: ir.Node, context: TransformContext) -> ir.TensorProtocol | None:
    """Return what a Constant holds, numbers as a weight like all others."""
    if len(node.attributes) != 1:
        return None
    (attribute,) = node.attributes.values()
    if attribute.type != CONSTANT_ATTRIBUTE_TYPES.get(attribute.name):
        return None
    if attribute.name == "value":
        # ``as_tensor`` looks for everything that tensors have, which takes half of the time.
        tensor: ir.TensorProtocol = attribute.value
        return tensor
    if attribute.name == "value_string":
        return ir.StringTensor([_encoded(attribute.value)], shape=ir.Shape(()))
    if attribute.name == "value_strings":
        words = [_encoded(word) for word in attribute.value]
        return ir.StringTensor(words, shape=ir.Shape((len(words),)))
    dtype = CONSTANT_NUMBER_DTYPES[attribute.name]
    array = np.array(attribute.value, dtype.numpy())
    return WeightTensor(context.weights.constant(array.tobytes(), dtype, array.shape))


def _encoded(word: str | bytes) -> bytes:
    """Return a string as tensors have it; onnx_ir leaves it so where it is no UTF-8."""
    return word if isinstance(word, bytes) else word.encode()


def remove_unused(model: ir.Model, context: TransformContext) -> bool:
    """Remove nodes and initializers that no output depends on.

    Unlike onnx_ir's pass of that purpose it reads no operator schema, which takes longer than
    all else when a small model is opened.
    """
    del context
    inner_last = graphs(model)
    nodes = [_remove_nodes(graph) for graph in reversed(inner_last)]
    initializers = [_remove_initializers(graph) for graph in inner_last]
    return any(nodes + initializers)


def _remove_nodes(graph: ir.Graph) -> bool:
    dead = []
    for node in reversed(graph):
        if not any(output.uses() or output.is_graph_output() for output in node.outputs):
            detach(node)
            dead.append(node)
    graph.remove(dead)
    return bool(dead)


def _remove_initializers(graph: ir.Graph) -> bool:
    unread = [
        name
        for name, value in graph.initializers.items()
        if not (value.uses() or value.is_graph_output() or value.is_graph_input())
    ]
    for name in unread:
        del graph.initializers[name]
    return bool(unread)
