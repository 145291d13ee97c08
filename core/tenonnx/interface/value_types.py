"""Types of values: from what callers name them by, and of arrays that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from tenonnx.errors import InvalidArgument

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.interface.sparse_tensor import SparseTensor


def element_dtype(element_type: Any) -> np.dtype[Any]:
    """Return the dtype of a numpy or ONNX element type.

    Raises:
        InvalidArgument: It is neither.
    """
    try:
        if isinstance(element_type, int):
            import onnx_ir as ir

            return ir.DataType(element_type).numpy()
        dtype = np.dtype(element_type)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{element_type!r} is no element type of numpy or ONNX") from error
    return np.dtype(object) if dtype.kind in "US" else dtype


def onnx_type(array: Any) -> ir.DataType:
    """Return the ONNX element type of an array."""
    import onnx_ir as ir

    dtype = np.dtype(array.dtype)
    return ir.DataType.STRING if dtype.kind in "OUS" else ir.DataType.from_numpy(dtype)


def is_sparse(value: Any) -> TypeGuard[SparseTensor]:
    """Return whether a value is a sparse tensor."""
    if isinstance(value, np.ndarray):
        return False
    from tenonnx.interface.sparse_tensor import SparseTensor

    return isinstance(value, SparseTensor)


def describe_value(value: Any) -> str:
    """Return the name of the type that a value has."""
    if value is None:
        return "optional()"
    if is_sparse(value):
        return value.data_type()
    if isinstance(value, list):
        return f"seq({describe_value(value[0]) if value else ''})"
    if isinstance(value, dict):
        key, item = next(iter(value.items()), ("", np.float32(0)))
        kind = "string" if isinstance(key, str) else "int64"
        return f"map({kind},{describe_value(np.asarray(item))})"
    from tenonnx.graph.type_names import element_name

    return f"tensor({element_name(onnx_type(value).name)})"
