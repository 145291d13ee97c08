"""Constant nodes become initializers; nodes and initializers that nobody reads go."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from tenonnx import TransformContext


def lift_constants(model: ir.Model, context: TransformContext) -> bool:
    """Turns every Constant node into an initializer over the same weight."""
    del context
    return bool(
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model).modified
    )


def remove_unused(model: ir.Model, context: TransformContext) -> bool:
    """Removes nodes and initializers that no output depends on.

    Unlike onnx_ir's pass of that purpose it reads no operator schema, which takes longer than
    all else when a small model is opened.
    """
    del context
    graphs = tuple(model.graphs())
    nodes = [_remove_nodes(graph) for graph in reversed(graphs)]
    initializers = [_remove_initializers(graph) for graph in graphs]
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
