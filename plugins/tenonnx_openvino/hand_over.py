"""A segment as OpenVINO's model: read from ONNX, with large weights by reference."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from tenonnx.segments.delegate import Type

# Types as the ONNX model says them.
AS_READ: Final[Mapping[str, Type]] = MappingProxyType({})


def model_of(
    proto: bytes, weights: Mapping[str, np.ndarray[Any, Any]], types: Mapping[str, Type] = AS_READ
) -> Any:
    """Return an ``openvino.Model``; it does not keep the weights alive.

    Args:
        proto: The ONNX model.
        weights: Arrays for some of its inputs, which become constants.
        types: Of others.
    """
    ov: Any = importlib.import_module("openvino")
    opset: Any = importlib.import_module("openvino.opset13")
    model = ov.Core().read_model(proto)
    by_name = {parameter.get_friendly_name(): parameter for parameter in model.get_parameters()}
    for name, (dtype, rank) in types.items():
        if (parameter := by_name.get(name)) is not None:
            parameter.set_element_type(ov.Type(np.dtype(dtype)))
            if rank is not None and parameter.get_partial_shape().rank.is_dynamic:
                parameter.set_partial_shape(ov.PartialShape([-1] * rank))
    for name, array in weights.items():
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
