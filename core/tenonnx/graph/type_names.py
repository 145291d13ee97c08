"""onnxruntime's names of types: ``tensor(float)``, ``seq(map(int64,tensor(float)))``."""

from __future__ import annotations

from typing import Final

import onnx
import onnx_ir as ir

from tenonnx.errors import InvalidGraph

# Metadata of a value whose type onnx_ir has no class for: the type as a proto.
TYPE: Final = "tenonnx.type"

# Metadata of inputs that a file says are scalars: whoever makes one up makes it of rank 0.
SCALAR: Final = "tenonnx.scalar"


def type_name(value_type: ir.TypeProtocol | None) -> str:
    """Return onnxruntime's name of a type; ``""`` if it is unknown."""
    match value_type:
        case ir.TensorType():
            return f"tensor({element_name(value_type.dtype.name)})"
        case ir.SequenceType():
            return f"seq({type_name(value_type.elem_type)})"
        case ir.OptionalType():
            return f"optional({type_name(value_type.elem_type)})"
        case ir.SparseTensorType():
            return f"sparse_{type_name(ir.TensorType(value_type.dtype))}"
    return ""


def element_name(name: str) -> str:
    """Return onnxruntime's name of an element type, from ONNX's."""
    return name.lower()


def proto_type_name(value_type: onnx.TypeProto) -> str:
    """Return onnxruntime's name of a type as a model's file says it; maps are only there."""
    kind = value_type.WhichOneof("value")
    match kind:
        case "map_type":
            key = _numbered(value_type.map_type.key_type)
            return f"map({key},{proto_type_name(value_type.map_type.value_type)})"
        case "sequence_type":
            return f"seq({proto_type_name(value_type.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({proto_type_name(value_type.optional_type.elem_type)})"
        case "tensor_type" | "sparse_tensor_type":
            name = _numbered(getattr(value_type, kind).elem_type)
            return f"{kind.removesuffix('_type')}({name})"
    return ""


def _numbered(element_type: int) -> str:
    try:
        return element_name(onnx.TensorProto.DataType.Name(element_type))
    except ValueError as error:
        raise InvalidGraph(f"{element_type} is no element type of ONNX") from error
