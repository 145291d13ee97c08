"""Networks in float16, from those that are written in float32."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from bench.builder import Feeds

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def halved(proto: onnx.ModelProto, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds]:
    """Returns a network of matrices, norms and attention with all its float32s as float16s."""
    graph = proto.graph
    for tensor in graph.initializer:
        if tensor.data_type == FLOAT:
            tensor.CopyFrom(_half(tensor))
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.t.data_type == FLOAT:
                attribute.t.CopyFrom(_half(attribute.t))
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


def _half(tensor: onnx.TensorProto) -> onnx.TensorProto:
    array = numpy_helper.to_array(tensor)
    return numpy_helper.from_array(array.astype(np.float16), tensor.name)
