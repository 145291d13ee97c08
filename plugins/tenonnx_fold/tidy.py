"""Constant nodes become initializers; nodes and initializers that nobody reads go."""

from __future__ import annotations

import onnx_ir as ir

from tenonnx import TransformContext, WeightTensor
from tenonnx.graph import graphs

KINDS = frozenset(
    f"value{kind}" for kind in ("", "_float", "_floats", "_int", "_ints", "_string", "_strings")
) | {"sparse_value"}
"""The attributes of a Constant, which has one of them."""


def lift_constants(model: ir.Model, context: TransformContext) -> bool:
    """Turns every Constant node into an initializer over a weight of the registry."""
    constants = [
        n for graph in graphs(model) for n in graph if n.op_type == "Constant" and not n.domain
    ]
    # The runtime names one that is malformed; onnx_ir's pass stumbles over it.
    if not constants or any(n.attributes.keys() - KINDS for n in constants):
        return False
    from onnx_ir.passes.common import LiftConstantsToInitializersPass

    for graph in graphs(model):
        _drop_nameless(graph)
    lift = LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)
    if not lift(model).modified:
        return False
    for graph in graphs(model):
        for value in graph.initializers.values():
            _register(value, context)
    return True


def _drop_nameless(graph: ir.Graph) -> None:
    """Drops constants without an output, over which onnx_ir's pass stumbles."""
    for node in tuple(graph):
        if node.op_type == "Constant" and not node.domain and not node.outputs:
            graph.remove(node)


def _register(value: ir.Value, context: TransformContext) -> None:
    """Makes a number that was an attribute, such as ``value_float``, a weight like the others."""
    tensor = value.const_value
    if tensor is None or isinstance(tensor, WeightTensor) or tensor.dtype == ir.DataType.STRING:
        return
    shape = tensor.numpy().shape
    weight = context.weights.constant(tensor.tobytes(), tensor.dtype, shape)
    value.const_value = WeightTensor(weight, name=value.name)


def remove_unused(model: ir.Model, context: TransformContext) -> bool:
    """Removes nodes and initializers that no output depends on.

    Unlike onnx_ir's pass of that purpose it reads no operator schema, which takes longer than
    all else when a small model is opened.
    """
    del context
    inner_last = graphs(model)
    nodes = [_remove_nodes(graph) for graph in reversed(inner_last)]
    initializers = [_remove_initializers(graph) for graph in inner_last]
    return any(nodes + initializers)


def _remove_nodes(graph: ir.Graph) -> bool:
    dead = False
    for node in reversed(graph):
        if not any(output.uses() or output.is_graph_output() for output in node.outputs):
            graph.remove(node, safe=True)
            dead = True
    return dead


def _remove_initializers(graph: ir.Graph) -> bool:
    unread = [
        name
        for name, value in graph.initializers.items()
        if not (value.uses() or value.is_graph_output() or value.is_graph_input())
    ]
    for name in unread:
        del graph.initializers[name]
    return bool(unread)
