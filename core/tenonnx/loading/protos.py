"""Models as protobuf has them: all their graphs, and how they are read into onnx_ir's form."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import onnx

from tenonnx.errors import MalformedGraph

P = TypeVar("P")
R = TypeVar("R")

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


def read_quietly(read: Callable[[P], R], proto: P) -> R:
    """Calls a function of ``onnx_ir.serde`` without its remarks on every value.

    Programs that log all there is would get one for each value whose type is not declared. What
    others have onnx_ir read is remarked on as they want it.
    """
    _reading.now = True
    try:
        return read(proto)
    finally:
        _reading.now = False


def _is_wanted(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or not getattr(_reading, "now", False)


_reading = threading.local()
logging.getLogger("onnx_ir.serde").addFilter(_is_wanted)
