"""All graphs of a model as protobuf has it, where onnx_ir cannot read it yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx

WITH_GRAPHS = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def graphs(model: onnx.ModelProto) -> tuple[onnx.GraphProto, ...]:
    """Returns a model's graph, and all graphs inside it and inside its functions."""
    found = [model.graph]
    for function in model.functions:
        found += _inside(function.node)
    for graph in found:
        found += _inside(graph.node)
    return tuple(found)


def _inside(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type in WITH_GRAPHS:
                yield attribute.g
                yield from attribute.graphs
