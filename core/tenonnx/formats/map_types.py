"""Types with maps in them, which onnx_ir has no class for: kept beside the model's values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir

from tenonnx.graph.type_names import TYPE


def has_maps(graphs: Iterable[onnx.GraphProto]) -> bool:
    """Return whether any value of graphs is a map, or holds one."""
    return any(_holds_map(value.type) for graph in graphs for value in _values(graph))


def take_map_types(graphs: Iterable[onnx.GraphProto]) -> dict[str, onnx.TypeProto]:
    """Clear every type with a map in it; return those of inputs and outputs, by name."""
    taken = {}
    for graph in graphs:
        for value in _values(graph):
            if _holds_map(value.type):
                taken[value.name] = onnx.TypeProto.FromString(value.type.SerializeToString())
                value.ClearField("type")
    return taken


def note_map_types(model: ir.Model, types: Mapping[str, onnx.TypeProto]) -> None:
    """Write what ``take_map_types`` returned on a model's inputs and outputs."""
    for value in (*model.graph.inputs, *model.graph.outputs):
        if (noted := types.get(value.name or "")) is not None:
            value.meta[TYPE] = noted


def restore_map_types(model: ir.Model, path: Path) -> None:
    """Write what ``note_map_types`` noted into a file that the model was saved to."""
    values = (*model.graph.inputs, *model.graph.outputs)
    noted = {value.name: value.meta[TYPE] for value in values if TYPE in value.meta}
    if not noted:
        return
    proto = onnx.load(path, load_external_data=False)
    for info in (*proto.graph.input, *proto.graph.output):
        if info.name in noted:
            info.type.CopyFrom(noted[info.name])
    path.write_bytes(proto.SerializeToString())


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
