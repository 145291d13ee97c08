"""A segment as OpenVINO's model: read from ONNX, with big weights put in by reference."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

if TYPE_CHECKING:
    from tenonnx import Segment

BY_REFERENCE = 4096
"""Bytes from which on a weight is not written into the model that OpenVINO reads."""

Type = tuple[str, int | None]
"""A numpy dtype's name, and the number of axes if it is known."""


def type_of(value: ir.Value) -> Type:
    """Returns a value's type; OpenVINO finds float out to be wrong, if it is."""
    dtype = "float32" if value.dtype is None else value.dtype.numpy().name
    return dtype, None if value.shape is None else len(value.shape)


def constants_of(segment: Segment) -> dict[ir.Value, np.ndarray[Any, Any]]:
    """Returns the weights that a segment reads."""
    fixed = (v for v in segment.inputs if v.is_initializer() and not v.is_graph_input())
    return {value: value.const_value.numpy() for value in fixed if value.const_value is not None}


def model_of(
    segment: Segment,
    constants: Mapping[ir.Value, np.ndarray[Any, Any]],
    types: Mapping[ir.Value, Type] | None = None,
) -> Any:
    """Returns an ``openvino.Model`` of a segment.

    Args:
        segment: Its nodes.
        constants: Weights; big ones are put in by reference.
        types: Of the inputs; what the graph says of those that are left out.
    """
    ov: Any = importlib.import_module("openvino")
    names = {value: f"v{position}" for position, value in enumerate(segment.inputs)}
    small = {v: a for v, a in constants.items() if a.nbytes < BY_REFERENCE}
    proto = _proto(segment, names, types or {}, small)
    model = ov.Core().read_model(proto.SerializeToString())
    opset: Any = importlib.import_module("openvino.opset13")
    by_name = {parameter.get_friendly_name(): parameter for parameter in model.get_parameters()}
    for value, array in constants.items():
        if (parameter := by_name.get(names[value])) is not None:
            constant = opset.constant(np.asarray(array, order="C"), shared_memory=True)
            for target in parameter.output(0).get_target_inputs():
                target.replace_source_output(constant.output(0))
            model.remove_parameter(parameter)
    model.validate_nodes_and_infer_types()
    return model


def _proto(
    segment: Segment,
    names: Mapping[ir.Value, str],
    types: Mapping[ir.Value, Type],
    constants: Mapping[ir.Value, np.ndarray[Any, Any]],
) -> onnx.ModelProto:
    names = dict(names)
    nodes = []
    for number, node in enumerate(segment.nodes):
        names.update({v: f"n{number}_{i}" for i, v in enumerate(node.outputs)})
        made = ir.serde.serialize_node(node)
        made.ClearField("input")
        made.ClearField("output")
        made.input.extend("" if value is None else names[value] for value in node.inputs)
        made.output.extend(names[value] if value.name else "" for value in node.outputs)
        nodes.append(made)
    weights = [onnx.numpy_helper.from_array(a, names[value]) for value, a in constants.items()]
    given = (value for value in segment.inputs if value not in constants)
    inputs = [_info(names[value], types.get(value) or type_of(value)) for value in given]
    outputs = [onnx.helper.make_empty_tensor_value_info(names[v]) for v in segment.outputs]
    graph = onnx.helper.make_graph(nodes, "segment", inputs, outputs, weights)
    version = max(node.version or 1 for node in segment.nodes)
    imports = [onnx.helper.make_opsetid("", version)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)


def _info(name: str, kind: Type) -> onnx.ValueInfoProto:
    dtype, rank = kind
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    shape = None if rank is None else [None] * rank
    return onnx.helper.make_tensor_value_info(name, element, shape)
