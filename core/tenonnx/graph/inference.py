"""Types and shapes that a model leaves open, by ONNX's own inference, without its weights.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

import logging

import onnx
import onnx_ir as ir

from tenonnx.graph import nodes
from tenonnx.graph.dtypes import binding
from tenonnx.graph.type_names import SCALAR

log = logging.getLogger("tenonnx")

# Larger tensors say no shapes that are computed with; inference needs their own alone.
LARGE_BYTES = 1024

# The most passes: each infers the next operators that had unknown types.
MAX_ROUNDS = 100

# Types of the labels that classifiers return.
LABEL_TYPES = {ir.DataType.STRING, ir.DataType.INT64}


def infer_types(model: ir.Model) -> None:
    """Give values without type or shape what ONNX's inference finds, or their schema says."""
    for _ in range(MAX_ROUNDS):
        _infer(model)
        untyped = [
            v for node in nodes(model.graph) for v in node.outputs if v.type is None and v.name
        ]
        if not sum(map(_from_schema, untyped)):
            return


def _from_schema(value: ir.Value) -> bool:
    """Type an output whose operator has no inference, as those of ai.onnx.ml; return whether.

    A type that an input is bound to is that input's; one out of several may follow from the
    labels that the node has; a single one is no question.
    """
    node, index = value.producer(), value.index()
    if node is None or index is None:
        return False
    bound, allowed = binding(node, index)
    if (given := next((v.type for v in bound if v.type is not None), None)) is not None:
        value.type = given
        return True
    if allowed == LABEL_TYPES:
        of_strings = "classlabels_strings" in node.attributes
        allowed = frozenset({ir.DataType.STRING if of_strings else ir.DataType.INT64})
    if len(allowed) != 1:
        return False
    value.type = ir.TensorType(*allowed)
    return True


def _infer(model: ir.Model) -> None:
    try:
        # Exporters compute shapes with Shape, Gather and Concat: data_prop follows their elements.
        proto = onnx.shape_inference.infer_shapes(_without_bytes(model), data_prop=True)
        inferred = ir.from_proto(proto)
    except Exception as error:  # of a model that contradicts itself inference raises anything
        log.info("nothing is inferred: %s", error)
        return
    own = _dimensions(model)
    for graph, known in zip(model.graphs(), inferred.graphs(), strict=True):
        found = ir.convenience.create_value_mapping(known)
        for name, value in ir.convenience.create_value_mapping(graph).items():
            if name in found:
                value.type = value.type or found[name].type
                value.shape = _merged(value.shape, found[name].shape, own)


def _without_bytes(model: ir.Model) -> onnx.ModelProto:
    """Return a model for inference, with only the types and shapes of its larger tensors."""
    bare = model.clone()
    for value in bare.graph.inputs:
        if SCALAR in value.meta:
            value.shape = ir.Shape(())
    for graph in bare.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = _bare(value.const_value, value.name or "")
        for node in graph:
            constant = node.attributes.get("value")
            if constant is not None and constant.type == ir.AttributeType.TENSOR:
                node.attributes["value"] = ir.AttrTensor("value", _bare(constant.as_tensor(), ""))
            padding = node.attributes.get("auto_pad")
            if padding is not None and padding.value == "VALID":
                # Inference rounds up; by the operators' text and reference windows are whole.
                node.attributes.pop("ceil_mode", None)
    return ir.to_proto(bare)


def _bare(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    if tensor.nbytes <= LARGE_BYTES:
        return tensor
    shape = ir.Shape(tensor.shape.numpy())
    return ir.ExternalTensor("none", 0, tensor.nbytes, tensor.dtype, shape=shape, name=name)


def _dimensions(model: ir.Model) -> set[str]:
    """Return the names of dimensions that a model says; inference makes up others."""
    return {
        dim.value
        for graph in model.graphs()
        for values in (graph.inputs, graph.outputs, *(node.outputs for node in graph))
        for value in values
        for dim in (value.shape.dims if value.shape is not None else ())
        if not isinstance(dim, int) and dim.value
    }


def _merged(said: ir.Shape | None, found: ir.Shape | None, own: set[str]) -> ir.Shape | None:
    """Return a shape that is said, with what is found of the sizes that it leaves open."""
    if found is None or (said is not None and len(said) != len(found)):
        return said
    shape: ir.Shape = found.copy() if said is None else said.copy()
    for axis, dim in enumerate(found.dims):
        kept = shape[axis]
        if isinstance(kept, ir.SymbolicDim) and (kept.value is None or said is None):
            known = isinstance(dim, int) or dim.value in own
            shape[axis] = dim if known else None
    return shape
