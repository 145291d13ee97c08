"""A segment as an ONNX model of its own, for providers that hand it to another runtime.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from tenonnx.graph.type_names import SCALAR
from tenonnx.provider import Segment

# Bytes from which on a weight is not written into the model.
BY_REFERENCE = 4096

# A numpy dtype's name, and the number of axes if it is known.
Type = tuple[str, int | None]


@dataclass(frozen=True)
class SegmentModel:
    """The model for another runtime.

    Attributes:
        proto: The segment; its inputs are ``inputs``, then ``weights``, and its outputs the
            segment's, in order.
        inputs: Its inputs in a run.
        weights: Weights that are not inside, by their names in ``proto``: views that are to be put
            in by reference.
    """

    proto: onnx.ModelProto
    inputs: tuple[ir.Value, ...]
    weights: dict[str, np.ndarray[Any, Any]]


def type_of(value: ir.Value) -> Type:
    """Return a value's type as far as the model says it; float if it does not."""
    dtype = value.dtype.numpy().name if value.dtype else "float32"
    if value.shape is None:
        return dtype, 0 if SCALAR in value.meta else None
    return dtype, len(value.shape)


def inputs_of(segment: Segment) -> tuple[ir.Value, ...]:
    """Return what a segment reads that is no weight."""
    return tuple(value for value in segment.inputs if _weight(value) is None)


def segment_model(
    segment: Segment,
    types: Mapping[ir.Value, Type] | None = None,
    by_reference: int = BY_REFERENCE,
) -> SegmentModel:
    """Return a segment as a model.

    Args:
        segment: Its nodes.
        types: Of the inputs; what the graph says of those that are left out.
        by_reference: Weights of so many bytes and more stay outside.
    """
    inputs, names = inputs_of(segment), {v: f"v{i}" for i, v in enumerate(segment.inputs)}
    infos = [_info(names[value], (types or {}).get(value) or type_of(value)) for value in inputs]
    inside, outside = [], {}
    for value in segment.inputs:
        if (array := _weight(value)) is None:
            continue
        if array.nbytes < by_reference:
            inside.append(onnx.numpy_helper.from_array(array, names[value]))
        else:
            outside[names[value]] = array
            infos.append(_info(names[value], (array.dtype.name, array.ndim)))
    nodes = [_node(node, number, names) for number, node in enumerate(segment.nodes)]
    outputs = [onnx.helper.make_empty_tensor_value_info(names[v]) for v in segment.outputs]
    graph = onnx.helper.make_graph(nodes, "segment", infos, outputs, inside)
    by_version = sorted(segment.nodes, key=lambda node: node.version or 1)
    versions = {node.domain: node.version or 1 for node in by_version}  # the newest of each
    imports = [onnx.helper.make_opsetid(*each) for each in sorted(versions.items())]
    proto = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    return SegmentModel(proto, inputs, outside)


def segment_of(proto: onnx.ModelProto, versions: Iterable[int | None]) -> Segment:
    """Return the segment that ``segment_model`` wrote, with its weights among the inputs.

    Args:
        proto: The model.
        versions: The opset version of each node.
    """
    graph = ir.serde.deserialize_model(proto).graph
    nodes = tuple(graph)
    for node, version in zip(nodes, versions, strict=True):
        node.version = version
    return Segment(nodes, frozenset(graph.outputs))


def _weight(value: ir.Value) -> np.ndarray[Any, Any] | None:
    fixed = value.is_initializer() and not value.is_graph_input()
    return value.const_value.numpy() if fixed and value.const_value is not None else None


def _node(node: ir.Node, number: int, names: dict[ir.Value, str]) -> onnx.NodeProto:
    names.update({value: f"n{number}_{i}" for i, value in enumerate(node.outputs)})
    made = ir.serde.serialize_node(node)
    made.ClearField("input")
    made.ClearField("output")
    made.input.extend("" if value is None else names[value] for value in node.inputs)
    made.output.extend(names[value] if value.name else "" for value in node.outputs)
    return made


def _info(name: str, kind: Type) -> onnx.ValueInfoProto:
    dtype, rank = kind
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shape = None if rank is None else [None] * rank
    return onnx.helper.make_tensor_value_info(name, element, shape)
