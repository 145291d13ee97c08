"""The names of onnxruntime's C++ module, as its Python modules import them."""

from __future__ import annotations

from tenonnx.as_onnxruntime import attributes_of

__getattr__, __dir__ = attributes_of("onnxruntime.capi.onnxruntime_pybind11_state", __name__)
