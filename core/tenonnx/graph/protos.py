"""Models as protobuf has them: all their graphs, and how they are read into onnx_ir's form."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import onnx

from tenonnx.errors import MalformedGraph

P = TypeVar("P")
R = TypeVar("R")

WITH_GRAPHS: Final = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)

# The field that has the value of an attribute of each type.
FIELD_OF: Final = {
    number: onnx.AttributeProto.DESCRIPTOR.fields_by_name[field]
    for number, field in (
        (onnx.AttributeProto.FLOAT, "f"),
        (onnx.AttributeProto.INT, "i"),
        (onnx.AttributeProto.STRING, "s"),
        (onnx.AttributeProto.TENSOR, "t"),
        (onnx.AttributeProto.GRAPH, "g"),
        (onnx.AttributeProto.SPARSE_TENSOR, "sparse_tensor"),
        (onnx.AttributeProto.TYPE_PROTO, "tp"),
        (onnx.AttributeProto.FLOATS, "floats"),
        (onnx.AttributeProto.INTS, "ints"),
        (onnx.AttributeProto.STRINGS, "strings"),
        (onnx.AttributeProto.TENSORS, "tensors"),
        (onnx.AttributeProto.GRAPHS, "graphs"),
        (onnx.AttributeProto.SPARSE_TENSORS, "sparse_tensors"),
        (onnx.AttributeProto.TYPE_PROTOS, "type_protos"),
    )
}


def graphs(model: onnx.ModelProto) -> tuple[onnx.GraphProto, ...]:
    """Return a model's graph, and all graphs inside it and inside its functions.

    Raises:
        MalformedGraph: A node has two attributes of one name, or an attribute without a type or
            with a value of another: onnx_ir would keep one, or take 0 for the value.
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
            kind = attribute.type
            # Nearly all: the name, the value and the type, in the order of the fields' numbers.
            fields = attribute.ListFields()
            if len(fields) != 3 or fields[1][0] is not FIELD_OF.get(kind):
                _refuse_misfit(node, attribute)
            if kind in WITH_GRAPHS:
                yield attribute.g
                yield from attribute.graphs


def _refuse_twice(node: onnx.NodeProto) -> None:
    names = [attribute.name for attribute in node.attribute]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedGraph(f"{_label(node)} has the attribute {twice} more than once")


def _refuse_misfit(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> None:
    """Refuse values that are not what an attribute's type says; none at all is 0, or no items.

    Of constants onnxruntime reads the value of the type, whatever else there is.
    """
    if node.op_type == "Constant" or attribute.ref_attr_name:
        return
    wanted = FIELD_OF.get(attribute.type)
    where = f"the attribute {attribute.name} of {_label(node)}"
    if wanted is None:
        raise MalformedGraph(f"{where} lacks its type")
    given = [field for field, _ in attribute.ListFields() if field in FIELD_OF.values()]
    if wrong := [field.name for field in given if field is not wanted]:
        kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
        raise MalformedGraph(
            f"{where} is of type {kind}, whose value is the field {wanted.name}, but its field "
            f"{wrong[0]} has a value",
            hint="onnx.helper.make_attribute sets the type and the field that belongs to it.",
        )


def _label(node: onnx.NodeProto) -> str:
    return f"{node.op_type} '{node.name or next(iter(node.output), '') or '?'}'"


def read_quietly(read: Callable[[P], R], proto: P) -> R:
    """Call a function of ``onnx_ir.serde`` without its remarks on every value.

    Programs that log all there is would get one for each value whose type is not declared. What
    others have onnx_ir read is remarked on as they want it.
    """
    _reading.now = True
    try:
        return read(proto)
    finally:
        _reading.now = False


def _is_logged(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or not getattr(_reading, "now", False)


_reading = threading.local()
# Of a malformed graph the exception says all; without a handler it would be said twice.
logging.getLogger("onnx_ir").addHandler(logging.NullHandler())
logging.getLogger("onnx_ir.serde").addFilter(_is_logged)
