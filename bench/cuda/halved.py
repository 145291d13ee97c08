"""Networks in float16, from those that are written in float32."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from bench.builder import Feeds

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def halved(proto: onnx.ModelProto, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds]:
    """Return a network of matrices, norms and attention with all its float32s as float16s."""
    graph = proto.graph
    for tensor in graph.initializer:
        if tensor.data_type == FLOAT:
            _halve(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.t.data_type == FLOAT:
                _halve(attribute.t)
            if node.op_type == "Cast" and attribute.i == FLOAT:
                attribute.i = HALF
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.elem_type = HALF
    half = np.float16
    return proto, {
        name: array.astype(half) if array.dtype == np.float32 else array
        for name, array in feeds.items()
    }


def _halve(tensor: onnx.TensorProto) -> None:
    """Round a tensor where it is: together they are gigabytes."""
    tensor.raw_data = numpy_helper.to_array(tensor).astype(np.float16).tobytes()
    tensor.ClearField("float_data")
    tensor.data_type = HALF
