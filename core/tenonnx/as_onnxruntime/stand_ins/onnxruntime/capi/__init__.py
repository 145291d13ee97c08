"""onnxruntime's inner modules that programs import."""

from __future__ import annotations

from importlib import import_module

from tenonnx.as_onnxruntime import attributes_of

__getattr__, __dir__ = attributes_of("tenonnx", __name__)

for inner in (
    "_ld_preload",
    "_pybind_state",
    "onnxruntime_inference_collection",
    "onnxruntime_pybind11_state",
    "onnxruntime_validation",
):
    import_module(f"{__name__}.{inner}")
