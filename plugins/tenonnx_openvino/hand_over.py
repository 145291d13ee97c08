"""A segment as OpenVINO's model: read from ONNX, with large weights by reference."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

import numpy as np

from tenonnx.segments.delegate import SegmentModel


def model_of(given: SegmentModel) -> Any:
    """Return an ``openvino.Model``; it does not keep the weights alive."""
    ov: Any = importlib.import_module("openvino")
    opset: Any = importlib.import_module("openvino.opset13")
    model = ov.Core().read_model(given.proto.SerializeToString())
    by_name = {parameter.get_friendly_name(): parameter for parameter in model.get_parameters()}
    for name, array in given.weights.items():
        if (parameter := by_name.get(name)) is not None:
            constant = opset.constant(_writable(array), shared_memory=True)
            for target in parameter.output(0).get_target_inputs():
                target.replace_source_output(constant.output(0))
            model.remove_parameter(parameter)
    model.validate_nodes_and_infer_types()
    return model


def _writable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a view that is marked writable: OpenVINO takes no other, and never writes to it."""
    array = np.asarray(array, order="C")
    if array.flags.writeable:
        return array
    memory: Any = (ctypes.c_ubyte * array.nbytes).from_address(array.ctypes.data)
    return np.ndarray(array.shape, array.dtype, memory)
