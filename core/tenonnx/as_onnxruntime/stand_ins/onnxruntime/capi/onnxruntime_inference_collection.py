"""The names of onnxruntime's module of sessions and values."""

from __future__ import annotations

from tenonnx.as_onnxruntime import attributes_of
from tenonnx.errors import page
from tenonnx.interface.named_devices import DEVICE_TYPES
from tenonnx.interface.session_info import Session

__all__ = ["Session", "get_ort_device_type"]

get_ort_device_type = DEVICE_TYPES.__getitem__

__getattr__, __dir__ = attributes_of("tenonnx", __name__, __all__, page("onnxruntime"))
