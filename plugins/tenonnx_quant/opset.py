"""Bringing a model to the opset that quantized types need."""

from __future__ import annotations

import onnx
import onnx_ir as ir
from onnx import version_converter

from tenonnx import NotSupported, default_registry
from tenonnx.formats.load import load

# Smaller constants take part in the conversion: axes, sizes, and the like.
INLINE_BYTES = 4096

# The IR version that came with the types of an opset.
IR_OF_OPSET = {21: 10, 19: 9, 13: 7, 10: 5}


def at_least(model: ir.Model, opset: int) -> ir.Model:
    """Return the model in an opset of ai.onnx that is this one or higher.

    Raises:
        NotSupported: An operator of it cannot be converted.
    """
    found = model.opset_imports.get("", 0)
    if 0 < found < opset:
        model = _converted(model, opset)
    model.ir_version = max(model.ir_version or 0, IR_OF_OPSET[opset])
    return model


def _converted(model: ir.Model, opset: int) -> ir.Model:
    """Return the model after onnx's version converter, which sees no weights."""
    graph, found = model.graph, model.opset_imports[""]
    kept = {
        name: value
        for name, value in graph.initializers.items()
        if value.const_value is not None and value.const_value.nbytes > INLINE_BYTES
    }
    tensors = {name: value.const_value for name, value in kept.items()}
    given = {value.name for value in graph.inputs}
    for name, value in kept.items():
        tensor = value.const_value
        assert tensor is not None
        value.shape, value.type = ir.Shape(tensor.shape.numpy()), ir.TensorType(tensor.dtype)
        del graph.initializers[name]
        if name not in given:
            graph.inputs.append(value)
    try:
        proto = version_converter.convert_version(ir.to_proto(model), opset)
        onnx.checker.check_model(proto)
    except Exception as error:  # its own, and what its C++ raises
        raise NotSupported(
            f"the model of opset {found} cannot be brought to opset {opset}: {error}",
            hint=f"export it with opset {opset}, or choose a form that needs none",
        ) from error
    converted = load(proto, default_registry())
    for value in tuple(converted.graph.inputs):
        if value.name in tensors:
            value.const_value = tensors[value.name]
            if value.name not in given:
                converted.graph.inputs.remove(value)
            converted.graph.register_initializer(value)
    return converted
