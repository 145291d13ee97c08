"""Types with maps in them, which onnx_ir does not read: taken off the proto, kept as names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir

from tenonnx.loading.protos import graphs
from tenonnx.type_names import TYPE, proto_type_name


def has_maps(proto: onnx.ModelProto) -> bool:
    """Tells whether any value of a model is a map, or holds one."""
    return any(_holds_map(value.type) for g in graphs(proto.graph) for value in _values(g))


def take_map_types(proto: onnx.ModelProto) -> dict[str, str]:
    """Clears every type with a map in it; returns those of inputs and outputs, by name."""
    taken = {}
    for graph in graphs(proto.graph):
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
