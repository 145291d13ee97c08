"""All graphs of a model as protobuf has it, where onnx_ir cannot read it yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

from tenonnx.errors import MalformedGraph

WITH_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def graphs(model: onnx.ModelProto) -> tuple[onnx.GraphProto, ...]:
    """Returns a model's graph, and all graphs inside it and inside its functions.

    Raises:
        MalformedGraph: A node has two attributes of one name, of which onnx_ir would keep one.
    """
    found = [model.graph]
    for function in model.functions:
        found += _inside(function.node)
    for graph in found:
        found += _inside(graph.node)
    return tuple(found)


def _inside(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        attributes = node.attribute
        if len(attributes) > 1:
            _refuse_twice(node)
        for attribute in attributes:
            if attribute.type in WITH_GRAPHS:
                yield attribute.g
                yield from attribute.graphs


def _refuse_twice(node: onnx.NodeProto) -> None:
    names = [attribute.name for attribute in node.attribute]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        called = node.name or next(iter(node.output), "") or "?"
        raise MalformedGraph(f"{node.op_type} '{called}' has the attribute {twice} more than once")
