"""Types with maps in them, which onnx_ir does not read: taken off the proto, kept as names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir

from tenonnx.interface.signature import TYPE, element_name


def has_maps(proto: onnx.ModelProto) -> bool:
    """Tells whether any value of a model is a map, or holds one."""
    return any(_holds_map(value.type) for g in _graphs(proto.graph) for value in _values(g))


def take_map_types(proto: onnx.ModelProto) -> dict[str, str]:
    """Clears every type with a map in it; returns those of inputs and outputs, by name."""
    taken = {}
    for graph in _graphs(proto.graph):
        for value in _values(graph):
            if _holds_map(value.type):
                taken[value.name] = proto_type_name(value.type)
                value.ClearField("type")
    return taken


def note_map_types(model: ir.Model, names: Mapping[str, str]) -> None:
    """Writes what ``take_map_types`` returned on a model's inputs and outputs."""
    for value in (*model.graph.inputs, *model.graph.outputs):
        if (name := names.get(value.name or "")) is not None:
            value.meta[TYPE] = name


def proto_type_name(value_type: onnx.TypeProto) -> str:
    """Returns onnxruntime's name of a type: ``seq(map(int64,tensor(float)))``."""
    kind = value_type.WhichOneof("value")
    match kind:
        case "map_type":
            key = element_name(onnx.TensorProto.DataType.Name(value_type.map_type.key_type))
            return f"map({key},{proto_type_name(value_type.map_type.value_type)})"
        case "sequence_type":
            return f"seq({proto_type_name(value_type.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({proto_type_name(value_type.optional_type.elem_type)})"
        case "tensor_type" | "sparse_tensor_type":
            number = getattr(value_type, kind).elem_type
            name = element_name(onnx.TensorProto.DataType.Name(number))
            return f"{kind.removesuffix('_type')}({name})"
    return ""


def _holds_map(value_type: onnx.TypeProto) -> bool:
    match value_type.WhichOneof("value"):
        case "map_type":
            return True
        case "sequence_type":
            return _holds_map(value_type.sequence_type.elem_type)
        case "optional_type":
            return _holds_map(value_type.optional_type.elem_type)
    return False


def _values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from graph.input
    yield from graph.output
    yield from graph.value_info


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.output:
                    yield from _graphs(inner)
