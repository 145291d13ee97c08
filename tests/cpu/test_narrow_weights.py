"""Weights of 16-bit floats behind a Cast: widened as they are read, never as a whole."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from running import floats, require_kernels
from scipy import special

import tenonnx
from models import FLOAT, model, node, value

require_kernels()


def session(nodes: Any, weights: Any) -> Any:
    """Open a model whose constants are not folded, as those of a real size are not, nor Adds."""
    proto = model(nodes, [value("x", FLOAT, [None] * 2)], [value("y", FLOAT, None)], weights)
    options = tenonnx.SessionOptions(disabled_transforms=["fold-constants", "matmul-add"])
    return tenonnx.InferenceSession(proto.SerializeToString(), options)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("op", ["MatMul", "Gemm", "transB"])
def test_products(kind: Any, rows: int, op: str) -> None:
    weight = floats(96, 80, seed=1).astype(kind)
    x, c = floats(rows, 96), floats(80, seed=2)
    stored = np.ascontiguousarray(weight.T) if op == "transB" else weight
    product = node("MatMul", "x d", "y")
    if op != "MatMul":
        product = node("Gemm", "x d c", "y", transB=int(op == "transB"), alpha=0.5)
    made = session([node("Cast", "w", "d", to=FLOAT), product], {"w": stored, "c": c})
    assert [[n.op_type for n in step.nodes] for step in made.plan.steps] == [
        ["Cast", product.op_type]
    ]
    wide = x.astype(np.float64) @ weight.astype(np.float64)
    answer = wide if op == "MatMul" else 0.5 * wide + c
    np.testing.assert_allclose(made.run(None, {"x": x})[0], answer, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("shared", [False, True])
def test_bias_and_activation_belong_to_the_product(kind: Any, op: str, shared: bool) -> None:
    weight = floats(64, 64, seed=1).astype(kind)
    x, c = floats(9, 64), floats(64, seed=2)
    nodes = [node("Cast", "w", "d", to=FLOAT)]
    if op == "MatMul":
        nodes += [node("MatMul", "x d", "p"), node("Add", "c p", "t")]
    else:
        nodes += [node("Gemm", "x d c", "t")]
    nodes += [node("Tanh", "t", "u" if shared else "y")]
    if shared:
        nodes += [node("MatMul", "u d", "y")]
    made = session(nodes, {"w": weight, "c": c})
    found = [[n.op_type for n in step.nodes] for step in made.plan.steps]
    names = [n.op_type for n in nodes[1:4]] if op == "MatMul" else ["Gemm", "Tanh"]
    assert found == ([names, ["Cast", "MatMul"]] if shared else [["Cast", *names]])
    wide = weight.astype(np.float64)
    answer = np.tanh(x @ wide + c)
    answer = answer @ wide if shared else answer
    np.testing.assert_allclose(made.run(None, {"x": x})[0], answer, rtol=1e-5, atol=1e-4)


def test_a_cast_that_others_read_stays() -> None:
    weight = floats(64, 64, seed=1).astype(np.float16)
    x = floats(3, 64)
    nodes = [
        node("Cast", "w", "d", to=FLOAT),
        node("MatMul", "x d", "m"),
        node("Gemm", "m d", "g"),
        node("ReduceSum", "d", "t", keepdims=0),
        node("Add", "g t", "y"),
    ]
    wide = weight.astype(np.float64)
    (y,) = session(nodes, {"w": weight}).run(None, {"x": x})
    np.testing.assert_allclose(y, x @ wide @ wide + wide.sum(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_layers_of_halves_are_computed_in_float32(kind: Any) -> None:
    """Attention, a sum that is normalized, and a chain of elementwise operators."""
    exact = 2e-3 if kind == np.float16 else 2e-2
    x, scale, bias = (floats(*shape).astype(kind) for shape in ((2, 6, 32), (32,), (32,)))
    nodes = [
        node("Attention", "x x x", "a", q_num_heads=4, kv_num_heads=4),
        node("Add", "a x", "r"),
        node("LayerNormalization", "r g b", "n"),
        node("Sigmoid", "n", "s"),
        node("Mul", "n s", "m"),
        node("Mul", "m x", "y"),
    ]
    type_ = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    ends = [value("x", type_, [None] * 3)], [value("y", type_, [None] * 3)]
    proto = model(nodes, *ends, {"g": scale, "b": bias}, opset=23)
    (y,) = tenonnx.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    assert y.dtype == kind
    wide, gain, shift = (np.asarray(part, np.float64) for part in (x, scale, bias))
    heads = wide.reshape(2, 6, 4, 8).swapaxes(1, 2)
    weights = special.softmax(heads @ heads.swapaxes(2, 3) / np.sqrt(8), axis=-1)
    r = (weights @ heads).swapaxes(1, 2).reshape(2, 6, 32) + wide
    n = (r - r.mean(-1, keepdims=True)) / np.sqrt(r.var(-1, keepdims=True) + 1e-5) * gain + shift
    answer = n * special.expit(n) * wide
    np.testing.assert_allclose(np.asarray(y, np.float64), answer, rtol=exact, atol=8 * exact)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_a_gelu_whose_numbers_are_rounded_belongs_to_the_product(kind: Any) -> None:
    weight, bias = floats(64, 80, seed=1).astype(kind), floats(80, seed=2).astype(kind)
    root, one, half = (np.array(number, kind) for number in (np.sqrt(2), 1, 0.5))
    narrow = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [
        node("Cast", "x", "n", to=narrow),
        node("MatMul", "n w", "p"),
        node("Add", "p b", "s"),
        node("Div", "s root", "d"),
        node("Erf", "d", "e"),
        node("Add", "e one", "f"),
        node("Mul", "s f", "g"),
        node("Mul", "g half", "h"),
        node("Cast", "h", "y", to=FLOAT),
    ]
    weights = {"w": weight, "b": bias, "root": root, "one": one, "half": half}
    ends = [value("x", FLOAT, [None] * 2)], [value("y", FLOAT, [None] * 2)]
    proto = model(nodes, *ends, weights, opset=20)
    made = tenonnx.InferenceSession(proto.SerializeToString())
    assert ["Cast", "Gemm", "Gelu"] in [[n.op_type for n in step.nodes] for step in made.plan.steps]
    x = floats(9, 64)
    s = x.astype(np.float64) @ weight.astype(np.float64) + bias.astype(np.float64)
    exact = 2e-3 if kind == np.float16 else 2e-2
    answer = s * special.ndtr(s)
    np.testing.assert_allclose(made.run(None, {"x": x})[0], answer, rtol=exact, atol=8 * exact)


def test_every_half_is_widened_by_processors_that_have_none() -> None:
    numba = pytest.importorskip("numba")
    from numba import types

    from tenonnx_cpu.jit.vectors import vector as v
    from tenonnx_cpu.matmul.kernels.pack import floats_of_halves

    halves = np.arange(1 << 16, dtype=np.uint16)
    made = np.empty(halves.size, np.float32)

    @v.inline_llvm(types.void, types.intp, types.intp)
    def widen(b: Any, source: Any, target: Any) -> None:
        wide = b.zext(v.load(b, v.vector(v.I16, 8), source, 2), v.vector(v.I32, 8))
        v.store(b, floats_of_halves(b, wide), target, 4)

    @numba.njit
    def widen_all(source: Any, target: Any, count: Any) -> None:
        for n in range(0, count, 8):
            widen(source + 2 * n, target + 4 * n)

    widen_all(halves.ctypes.data, made.ctypes.data, halves.size)
    with np.errstate(invalid="ignore"):
        answer = halves.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(made, answer)
    np.testing.assert_array_equal(np.signbit(made), np.signbit(answer))
