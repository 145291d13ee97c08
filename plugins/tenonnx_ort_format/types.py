"""What an ``.ort`` file must know and a model may leave open: every value's type."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from tenonnx.functions import schema_of
from tenonnx.graph import nodes

LARGE_BYTES = 1024
"""Larger initializers say no shapes; inference gets along without their bytes."""

MAX_ROUNDS = 100
"""Each types one more row of operators that inference does not know."""

TENSORS = {
    "tensor(float)": ir.DataType.FLOAT,
    "tensor(double)": ir.DataType.DOUBLE,
    "tensor(int64)": ir.DataType.INT64,
    "tensor(string)": ir.DataType.STRING,
}
"""What operators of ai.onnx.ml give."""

LABELS = {ir.DataType.STRING, ir.DataType.INT64}
"""What classifiers give, by the labels they were fitted to."""


def infer_types(model: ir.Model) -> None:
    """Gives values without type or shape what ONNX's inference finds, or their schema says."""
    for _ in range(MAX_ROUNDS):
        _infer(model)
        untyped = [
            v for node in nodes(model.graph) for v in node.outputs if v.type is None and v.name
        ]
        if not sum(map(_from_schema, untyped)):
            return


def _from_schema(value: ir.Value) -> bool:
    """Types an output whose operator has no inference, as those of ai.onnx.ml; says whether.

    A type that an input is bound to is that input's; one out of several may follow from the
    labels that the node has; a single one is no question.
    """
    node, index = value.producer(), value.index()
    if node is None or index is None:
        return False
    if (schema := schema_of(node)) is None:
        return False
    wanted = schema.outputs[min(index, len(schema.outputs) - 1)]
    for given, parameter in zip(node.inputs, schema.inputs, strict=False):
        if parameter.type_str == wanted.type_str and given is not None and given.type is not None:
            value.type = given.type
            return True
    named = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    texts = named.get(wanted.type_str, [wanted.type_str])
    allowed = {TENSORS[text] for text in texts if text in TENSORS}
    if allowed == LABELS:
        allowed = {
            ir.DataType.STRING if "classlabels_strings" in node.attributes else ir.DataType.INT64
        }
    if len(allowed) != 1:
        return False
    value.type = ir.TensorType(allowed.pop())
    return True


def _infer(model: ir.Model) -> None:
    bare = model.clone()
    for graph in bare.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and tensor.nbytes > LARGE_BYTES:
                value.const_value = ir.ExternalTensor(
                    "none",
                    0,
                    tensor.nbytes,
                    tensor.dtype,
                    shape=ir.Shape(tensor.shape.numpy()),
                    name=value.name or "",
                )
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(bare), data_prop=True)
    inferred = ir.from_proto(proto)
    for graph, known in zip(model.graphs(), inferred.graphs(), strict=True):
        found = ir.convenience.create_value_mapping(known)
        for name, value in ir.convenience.create_value_mapping(graph).items():
            if name in found:
                value.type = value.type or found[name].type
                value.shape = value.shape if value.shape is not None else found[name].shape
