"""Seeds of several nodes: chains that fuse, bodies, functions, sparse and quantized weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from models import BOOL, FLOAT, INT64, graph, model, node, value

DRAW = np.random.default_rng(0)
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]


def floats(*shape: int) -> Any:
    return DRAW.standard_normal(shape, np.float32)


def small(*shape: int, dtype: Any = np.int8) -> Any:
    return DRAW.integers(0, 20, shape).astype(dtype)


def dense() -> onnx.ModelProto:
    nodes = [
        node("MatMul", "x w", "a"),
        node("Add", "a b", "c"),
        node("Relu", "c", "d"),
        node("Gemm", "d v k", "e", transB=1),
        node("LayerNormalization", "e s t", "f"),
        node("Softmax", "f", "g", axis=-1),
        node("Transpose", "g", "h", perm=[1, 0]),
        node("Reshape", "h shape", "y"),
    ]
    weights = {
        "w": floats(8, 16), "b": floats(16), "v": floats(17, 16), "k": floats(17),
        "s": floats(17), "t": floats(17), "shape": np.array([-1, 1]),
    }  # fmt: skip
    return model(nodes, [value("x", FLOAT, ["n", 8])], [value("y", FLOAT, None)], weights)


def image() -> onnx.ModelProto:
    nodes = [
        node("Conv", "x w b", "a", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "a s t m v", "c"),
        node("Relu", "c", "d"),
        node("MaxPool", "d", "e", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "e u", "f", group=8, kernel_shape=[3, 3]),
        node("HardSwish", "f", "g"),
        node("Resize", "g _ scales", "h", mode="linear"),
        node("GlobalAveragePool", "h", "i"),
        node("Flatten", "i", "y"),
    ]
    weights = {
        "w": floats(8, 3, 3, 3), "b": floats(8), "s": floats(8), "t": floats(8), "m": floats(8),
        "v": floats(8) ** 2 + 1, "u": floats(8, 1, 3, 3),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    return model(nodes, [value("x", FLOAT, ["n", 3, 12, 12])], [value("y", FLOAT, None)], weights)


def quantized() -> onnx.ModelProto:
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w ws wz", "e", axis=1),
        node("MatMul", "d e", "m"),
        node("QuantizeLinear", "m s z", "r"),
        node("DequantizeLinear", "r s z", "y"),
    ]
    weights = {
        "s": np.array(0.1, np.float32), "z": np.array(3, np.uint8), "w": small(8, 16),
        "ws": np.abs(floats(16)), "wz": np.zeros(16, np.int8),
    }  # fmt: skip
    return model(nodes, [value("x", FLOAT, ["n", 8])], [value("y", FLOAT, None)], weights)


def quantized_image() -> onnx.ModelProto:
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QLinearConv", "q s z w ws wz s z b", "r", pads=[1, 1, 1, 1]),
        node("DequantizeLinear", "r s z", "y"),
    ]
    weights = {
        "s": np.array(0.1, np.float32), "z": np.array(3, np.uint8), "w": small(8, 4, 3, 3),
        "ws": np.abs(floats(8)), "wz": np.zeros(8, np.int8), "b": small(8, dtype=np.int32),
    }  # fmt: skip
    return model(nodes, [value("x", FLOAT, [1, 4, 6, 6])], [value("y", FLOAT, None)], weights)


def int4() -> onnx.ModelProto:
    nodes = [
        node("DequantizeLinear", "w s z", "d", axis=0, block_size=16),
        node("MatMul", "x d", "m"),
        node("MatMulNBits", "m p ps", "y", K=16, N=8, bits=4, block_size=16,
             domain="com.microsoft"),
    ]  # fmt: skip
    made = model(
        nodes,
        [value("x", FLOAT, ["n", 32])],
        [value("y", FLOAT, None)],
        {"s": np.abs(floats(2, 16)), "p": small(8, 1, 8, dtype=np.uint8), "ps": floats(8)},
        domains={"com.microsoft": 1},
    )
    for name, shape in (("w", (32, 16)), ("z", (2, 16))):
        packed = small(int(np.prod(shape)) // 2, dtype=np.uint8).tobytes()
        made.graph.initializer.add(
            name=name, data_type=onnx.TensorProto.INT4, dims=shape, raw_data=packed
        )
    return made


def nested() -> onnx.ModelProto:
    body = graph(
        [node("Add", "a x", "b"), node("MatMul", "b w", "c"), node("Identity", "k", "go")],
        [value("i", INT64, []), value("k", BOOL, []), value("a", FLOAT, [2, 4])],
        [value("go", BOOL, []), value("c", FLOAT, [2, 4])],
        {"w": np.eye(4, dtype=np.float32) * 2},
    )
    then = graph([node("Loop", "n _ x", "t", body=body)], [], [value("t", FLOAT, [2, 4])])
    other = graph([node("Gather", "table ids", "e")], [], [value("e", FLOAT, [2, 4])])
    nodes = [
        node("If", "cond", "y", then_branch=then, else_branch=other),
        node("SequenceConstruct", "y x", "both"),
        node("ConcatFromSequence", "both", "z", axis=0),
    ]
    inputs = [
        value("cond", BOOL, []), value("n", INT64, []), value("ids", INT64, [2]),
        value("x", FLOAT, [2, 4]),
    ]  # fmt: skip
    return model(nodes, inputs, [value("z", FLOAT, [4, 4])], {"table": floats(16, 4)}, opset=20)


def scanned() -> onnx.ModelProto:
    body = graph(
        [node("Add", "a x", "b"), node("Tanh", "b", "c")],
        [value("a", shape=[2]), value("x", shape=[2])],
        [value("b", shape=[2]), value("c", shape=[2])],
    )
    nodes = [node("Scan", "s x", "t y", body=body, num_scan_inputs=1)]
    outputs = [value("t", FLOAT, None), value("y", FLOAT, None)]
    return model(nodes, [value("x", FLOAT, ["n", 2])], outputs, {"s": floats(2)})


def calling() -> onnx.ModelProto:
    """Functions that call functions, with attributes of their own."""
    inner = helper.make_function(
        "f", "Inner", ["a"], ["b"], [node("LeakyRelu", "a", "b")], OPSETS, ["alpha"]
    )
    inner.node[0].attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="alpha")
    call = [node("Inner", "p", "q", domain="f", alpha=0.5), node("Add", "q p", "r")]
    outer = helper.make_function("f", "Outer", ["p"], ["r"], call, OPSETS)
    nodes = [node("Outer", "x", "h", domain="f"), node("Outer", "h", "y", domain="f")]
    return model(
        nodes, [value("x", FLOAT, ["n", 4])], [value("y", FLOAT, None)],
        functions=[inner, outer], domains={"f": 1},
    )  # fmt: skip


def sparse() -> onnx.ModelProto:
    made = model(
        [node("MatMul", "x w", "a"), node("Constant", "", "c"), node("Add", "a c", "y")],
        [value("x", FLOAT, ["n", 3])],
        [value("y", FLOAT, None)],
    )
    for name, place in (("w", made.graph.sparse_initializer.add()), ("c", None)):
        tensor = place
        if tensor is None:
            made.graph.node[1].attribute.add(
                name="sparse_value", type=onnx.AttributeProto.SPARSE_TENSOR
            )
            tensor = made.graph.node[1].attribute[0].sparse_tensor
        tensor.values.CopyFrom(numpy_helper.from_array(floats(2), name))
        tensor.indices.CopyFrom(numpy_helper.from_array(np.array([1, 7]), f"{name}_indices"))
        tensor.dims.extend([3, 4] if name == "w" else [2, 4])
    return made


def annotated() -> onnx.ModelProto:
    made = quantized()
    note = made.graph.quantization_annotation.add(tensor_name="m")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    note.quant_parameter_tensor_names.add(key="ZERO_POINT_TENSOR", value="z")
    made.metadata_props.add(key="a", value="b")
    made.graph.value_info.add().CopyFrom(value("m", FLOAT, ["n", 16]))
    return made


X = floats(2, 4)
GRAPHS: dict[str, tuple[onnx.ModelProto, dict[str, Any]]] = {
    "dense": (dense(), {"x": floats(3, 8)}),
    "image": (image(), {"x": floats(1, 3, 12, 12)}),
    "quantized": (quantized(), {"x": floats(3, 8)}),
    "quantized image": (quantized_image(), {"x": floats(1, 4, 6, 6)}),
    "int4": (int4(), {"x": floats(2, 32)}),
    "nested": (
        nested(),
        {"cond": np.array(True), "n": np.array(2), "ids": np.array([3, 1]), "x": X},
    ),
    "scanned": (scanned(), {"x": floats(5, 2)}),
    "calling": (calling(), {"x": X}),
    "sparse": (sparse(), {"x": floats(2, 3)}),
    "annotated": (annotated(), {"x": floats(3, 8)}),
}
