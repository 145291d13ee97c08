"""All graphs and nodes of a model as protobuf has it, where onnx_ir cannot read it yet."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

WITH_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yields a graph and the graphs inside it."""
    yield graph
    for node in graph.node:
        yield from _inner(node)


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yields the nodes of a model's graphs and functions."""
    for graph in graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        for node in function.node:
            yield node
            for graph in _inner(node):
                yield from graph.node


def _inner(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type in WITH_GRAPHS:
            for graph in (attribute.g, *attribute.graphs):
                yield from graphs(graph)
