"""Graphs and shapes that random ones have shown to be special."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from running import Arrays, floats, require_kernels, run, session, wide

from models import node
from tenonnx import OrtValue
from tenonnx_array.windows import Windows
from tenonnx_cpu.int8.conv_layout import ByteLayout, bytes_layout
from tenonnx_cpu.int8.kernels import BYTE_CONV_FIELDS

require_kernels()


@pytest.mark.parametrize("columns", [1, 5, 48])
@pytest.mark.parametrize("rows", [1, 8, 9, 16, 17])
@pytest.mark.parametrize("turned", [0, 1])
def test_products_of_one_column_and_one_row(turned: int, rows: int, columns: int) -> None:
    """Both of B's strides are then those of adjacent elements."""
    x, w = floats(rows, 1), floats(1, columns, seed=1)
    weights = {"w": w.T.copy() if turned else w}
    y = run([node("Gemm", "x w", "y", transB=turned)], {"x": x}, "y", weights)
    np.testing.assert_allclose(y, wide(np.matmul, x, w), rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_a_bias_for_a_single_column(shape: tuple[int, ...]) -> None:
    x, w, c = floats(6, 5), floats(5, 1, seed=1), floats(*shape, seed=2)
    y = run([node("Gemm", "x w c", "y")], {"x": x}, "y", {"w": w, "c": np.asarray(c)})
    np.testing.assert_allclose(y, wide(np.matmul, x, w) + c, rtol=1e-5)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_layers_of_one_input(op: str) -> None:
    """Whether a second input that is always 0 is there or not."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    x, w, r = floats(2, 5, 1), floats(1, gates * 8, 1, seed=1), floats(1, gates * 8, 8, seed=2)
    layer = [node(op, "x w r", "y", hidden_size=8)]
    zero = np.zeros_like
    y, wider = (
        run(layer, {"x": x}, "y", {"w": w, "r": r})
        for x, w in ((x, w), (np.concatenate([x, zero(x)], 2), np.concatenate([w, zero(w)], 2)))
    )
    np.testing.assert_allclose(y, wider, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", ["LayerNormalization", "RMSNormalization"])
def test_a_sum_that_is_read_before_it_is_normalized(norm: str) -> None:
    feeds = {"x": floats(6, 32), "z": floats(6, 32, seed=1)}
    nodes = [node("Add", "x z", "s"), node("Neg", "s", "n"), node(norm, "s w", "y")]
    negative, y = run(nodes, feeds, "n y", {"w": floats(32, seed=2)}, opset=23)
    np.testing.assert_array_equal(-negative, feeds["x"] + feeds["z"])
    alone = run(nodes[2:], {"s": -negative}, "y", {"w": floats(32, seed=2)}, opset=23)
    np.testing.assert_allclose(y, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "form", [(1, 21, 5, 5), (2, 6, 11, 12), (1, 1, 9, 9), (1, 8, 6, 6)], ids=str
)
@pytest.mark.parametrize("stride", [1, 2])
def test_bytes_that_are_read_beyond_the_last_are_memory(form: tuple[int, ...], stride: int) -> None:
    """Fours of what the last place sees end where the image does, or are of a copy."""
    out = tuple(-(-n // stride) for n in form[2:])
    one, none = (1, 1), (0, 0)
    windows = Windows(form[2:], one, (stride, stride), one, none, none, out)
    cut = bytes_layout(ByteLayout(form, last=True, signed=False), 300, 1, windows, 4)
    at = dict(zip(BYTE_CONV_FIELDS, cut.numbers.tolist(), strict=True))
    last = cut.offsets.max() + 4
    if at["copied"]:
        lines, places = at["task_height"] - 1, at["task_width"] - 1
        seen = lines * at["stride_y"] * at["line"] + places * at["pixel"] + last
        assert at["band"] + seen <= at["work"]
    else:
        lines, places = at["out_height"] - 1, at["out_width"] - 1
        assert lines * at["stride_y"] * at["line"] + places * at["pixel"] + last <= at["image"]


def test_results_of_fused_bytes_are_bound() -> None:
    """The fusion's result contains arrays, and is not hashable."""
    x, w = floats(1, 4, 6, 6), np.random.default_rng(1).integers(-99, 99, (3, 4, 1, 1), np.int8)
    scale, zero = np.float32(0.02), np.uint8(100)
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w s", "v"),
        node("Conv", "d v", "c"),
        node("QuantizeLinear", "c s z", "y"),
    ]
    weights: Arrays = {"w": w, "s": np.asarray(scale), "z": np.asarray(zero)}
    feeds, kinds = {"x": x}, {"y": 2}
    opened = session(nodes, feeds, "y", weights, kinds=kinds)
    (expected,) = opened.run(None, feeds)
    binding: Any = opened.io_binding()
    binding.bind_cpu_input("x", x)
    buffer = np.zeros_like(expected)
    binding.bind_ortvalue_output("y", OrtValue.ortvalue_from_numpy(buffer))
    opened.run_with_iobinding(binding)
    np.testing.assert_array_equal(buffer, expected)
    assert np.unique(expected).size > 10


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_codes_without_a_zero_point_have_the_type_they_have(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    p, q = (rng.integers(0 if dtype is np.uint8 else -99, 99, (2, 5, 5), dtype) for _ in range(2))
    scale = np.float32(0.01)
    nodes = [
        node("DequantizeLinear", "p s", "a"),
        node("DequantizeLinear", "q s", "b"),
        node("MatMul", "a b", "y"),
    ]
    kinds = dict.fromkeys("pq", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    y = run(nodes, {"p": p, "q": q}, "y", {"s": np.asarray(scale)}, kinds=kinds)
    np.testing.assert_allclose(y, wide(np.matmul, p, q) * wide(np.square, scale), rtol=1e-5)


def test_codes_whose_type_an_attribute_tells() -> None:
    x, scale = floats(4, 8), np.float32(0.03)
    tell = {"output_dtype": TensorProto.INT8}
    nodes = [
        node("QuantizeLinear", "x s", "p", **tell),
        node("DequantizeLinear", "p s", "a"),
        node("Transpose", "a", "t", perm=[1, 0]),
        node("MatMul", "a t", "m"),
        node("QuantizeLinear", "m r", "y", **tell),
    ]
    weights: Arrays = {"s": np.asarray(scale), "r": np.asarray(np.float32(0.25))}
    y = run(nodes, {"x": x}, "y", weights, kinds={"y": TensorProto.INT8})
    codes = np.clip(np.rint(x / scale), -128, 127).astype(np.int64)  # BLAS may raise flags
    sums = codes @ codes.T * (wide(np.square, scale) / 0.25)
    assert y.dtype == np.int8
    assert np.abs(y - np.clip(np.rint(sums), -128, 127)).max() <= 1
