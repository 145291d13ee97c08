"""Taking nodes out of a graph whose result is a value that there is already."""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import replace_uses


def bypass(node: ir.Node, value: ir.Value) -> bool:
    """Replace a node's first output by a value for all readers; drop the node.

    Returns:
        ``False`` if that cannot be: a graph's output cannot be its input, a constant, a value of
        another graph or another of its outputs, and its name has to stay. Nor can
        it if others of the node's outputs are read.
    """
    graph = node.graph
    if graph is None or not node.outputs:
        return False
    output, *others = node.outputs
    if any(other.uses() or other.is_graph_output() for other in others):
        return False
    if output.is_graph_output():
        maker = value.producer()
        if maker is None or maker.graph is not graph or value.is_graph_output():
            return False
        name, output.name = output.name, None
        value.name = name
    value.shape = value.shape if value.shape is not None else output.shape
    value.type = value.type or output.type
    replace_uses(output, value)
    ir.convenience.replace_all_uses_with(output, value, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return True


def sweep(graph: ir.Graph | ir.Function) -> None:
    """Drop the nodes of a graph that nobody reads, so that they count as readers of nothing."""
    for node in reversed(tuple(graph)):
        if not any(output.uses() or output.is_graph_output() for output in node.outputs):
            graph.remove(node, safe=True)


def note_removed(context: TransformContext, done: Counter[str]) -> bool:
    """Write a note of how many nodes were taken out, by kind; return whether there were any."""
    if done:
        counts = ", ".join(f"{count} {name}" for name, count in sorted(done.items()))
        context.notes.append(f"took out {counts}")
    return bool(done)
