"""The names of onnxruntime's C++ module."""

from __future__ import annotations

from tenonnx.as_onnxruntime import attributes_of
from tenonnx.as_onnxruntime.blockwise import (
    quantize_matmul_2bits,
    quantize_matmul_4bits,
    quantize_matmul_8bits,
    quantize_qdq_matmul_4bits,
)
from tenonnx.as_onnxruntime.state import (
    OrtDevice,
    get_all_operator_schema,
    get_all_opkernel_def,
    get_default_session_options,
    get_session_initializer,
    opkernel,
    schemadef,
)
from tenonnx.errors import page

__all__ = [
    "OrtDevice",
    "get_all_operator_schema",
    "get_all_opkernel_def",
    "get_default_session_options",
    "get_session_initializer",
    "opkernel",
    "quantize_matmul_2bits",
    "quantize_matmul_4bits",
    "quantize_matmul_8bits",
    "quantize_qdq_matmul_4bits",
    "schemadef",
]

__getattr__, __dir__ = attributes_of("tenonnx", __name__, __all__, page("onnxruntime"))
