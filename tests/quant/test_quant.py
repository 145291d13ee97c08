"""The quant plug-in: products over quantized weights, read as stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import tenonnx
from models import FLOAT, model, node, value

K, N = 96, 40

TYPES = {
    "int4": (TensorProto.INT4, ml_dtypes.int4, -8, 7),
    "uint4": (TensorProto.UINT4, ml_dtypes.uint4, 0, 15),
    "int2": (TensorProto.INT2, ml_dtypes.int2, -2, 1),
    "uint2": (TensorProto.UINT2, ml_dtypes.uint2, 0, 3),
    "int8": (TensorProto.INT8, np.int8, -128, 127),
    "uint8": (TensorProto.UINT8, np.uint8, 0, 255),
}


def tensor(name: str, kind: str, values: np.ndarray[Any, Any]) -> onnx.TensorProto:
    code = TYPES[kind][0]
    bits = int(kind.lstrip("uint"))
    flat = (values.ravel().astype(np.int16) & ((1 << bits) - 1)).astype(np.uint8)
    each = 8 // bits
    padded = np.concatenate([flat, np.zeros(-flat.size % each, np.uint8)]).reshape(-1, each)
    packed = np.bitwise_or.reduce(padded << (np.arange(each, dtype=np.uint8) * bits), axis=1)
    return helper.make_tensor(name, code, values.shape, packed.astype(np.uint8).tobytes(), raw=True)


class Problem:
    """A quantized matrix product and its answer in float64."""

    def __init__(
        self,
        kind: str,
        axis: int,
        block: int,
        *,
        zero_points: bool = True,
        through: str = "MatMul",
        shape: tuple[int, int] = (K, N),
    ) -> None:
        rng = np.random.default_rng(0)
        _, _, low, high = TYPES[kind]
        transposed = through in ("Transpose", "transB")
        stored = shape[::-1] if transposed else shape
        self.q = rng.integers(low, high + 1, stored)
        if block:
            scale_shape = tuple(-(-n // block) if i == axis else n for i, n in enumerate(stored))
        else:
            scale_shape = () if axis < 0 else (stored[axis],)
        self.scales = (rng.random(scale_shape) * 0.1 + 0.01).astype(np.float32)
        self.zeros = rng.integers(low, high + 1, scale_shape) if zero_points else None
        w = (self.q - self._spread(self.zeros, axis, block)) * self._spread(
            self.scales.astype(np.float64), axis, block
        )
        self.w = w.T if transposed else w
        self.x = rng.standard_normal((3, 5, shape[0])).astype(np.float32)
        if through == "transB":
            self.x = self.x[0]
        self.answer = self.x.astype(np.float64) @ self.w
        self.model = self._model(kind, axis, block, through)

    def _spread(self, values: Any, axis: int, block: int) -> Any:
        if values is None:
            return 0
        if axis < 0:
            return values
        if block:
            return np.repeat(values, block, axis)[: self.q.shape[0], : self.q.shape[1]]
        return np.expand_dims(values, 1 - axis)

    def _model(self, kind: str, axis: int, block: int, through: str) -> onnx.ModelProto:
        attributes = {"axis": axis} if axis >= 0 else {}
        if block:
            attributes["block_size"] = block
        inputs = "w s" if self.zeros is None else "w s z"
        nodes = [node("DequantizeLinear", inputs, "d", **attributes)]
        if through == "Transpose":
            nodes += [node("Transpose", "d", "t"), node("MatMul", "x t", "y")]
        elif through == "transB":
            nodes += [node("Gemm", "x d", "y", transB=1)]
        else:
            nodes += [node("MatMul", "x d", "y")]
        dims = [None] * (2 if through == "transB" else 3)
        proto = model(nodes, [value("x", FLOAT, dims)], [value("y", FLOAT, dims)], opset=25)
        proto.graph.initializer.append(tensor("w", kind, self.q))
        proto.graph.initializer.append(onnx.numpy_helper.from_array(self.scales, "s"))
        if self.zeros is not None:
            proto.graph.initializer.append(tensor("z", kind, np.asarray(self.zeros)))
        return proto

    def check(self) -> tenonnx.InferenceSession:
        options = tenonnx.SessionOptions()
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
        session = tenonnx.InferenceSession(self.model, options)
        (y,) = session.run(None, {"x": self.x})
        scale = np.abs(self.x).astype(np.float64) @ np.abs(self.w)
        assert np.all(np.abs(y - self.answer) <= 1e-5 * scale + 1e-6)
        return session


def operators(session: tenonnx.InferenceSession) -> list[str]:
    return [n.op_type for n in session.model.graph]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("through", ["MatMul", "Transpose", "transB"])
@pytest.mark.parametrize(("axis", "block"), [(-1, 0), (0, 0), (1, 0), (0, 32), (1, 8)])
def test_products_of_every_type_and_granularity(
    kind: str, axis: int, block: int, through: str
) -> None:
    session = Problem(kind, axis, block, through=through).check()
    assert operators(session) == ["DequantizeMatMul"]


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(TYPES)),
    block=st.sampled_from([0, 2, 16, 32]),
    rows=st.integers(1, 3),
    columns=st.integers(1, 70),
    zeros=st.booleans(),
)
def test_odd_sizes(kind: str, block: int, rows: int, columns: int, zeros: bool) -> None:
    shape = (rows * (block or 7), columns)
    Problem(kind, 0, block, zero_points=zeros, shape=shape).check()


def test_the_weight_stays_packed_and_mapped(tmp_path: Path) -> None:
    problem = Problem("int4", 0, 32)
    path = tmp_path / "model.onnx"
    onnx.save(problem.model, path, save_as_external_data=True, size_threshold=0, location="data")
    session = tenonnx.InferenceSession(path)
    session.run(None, {"x": problem.x})
    mapped = np.frombuffer(tenonnx.default_registry().map(tmp_path / "data").buffer, np.uint8)
    (weight,) = [w for w in session.weights if w.nbytes == K * N // 2]
    assert np.shares_memory(weight.array, mapped)
    assert all(w.nbytes < K * N for w in session.weights)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_operands_that_do_not_fit_are_refused(kind: str, rows: int) -> None:
    session = tenonnx.InferenceSession(Problem(kind, 0, 32).model)
    for depth in (K - 1, K + 1, 2 * K, 1, 0):
        with pytest.raises(tenonnx.RuntimeException, match=rf"expected {K} numbers .*, {depth}\)"):
            session.run(None, {"x": np.ones((1, rows, depth), np.float32)})


def test_a_bias_and_a_residual_stay_outside_the_product() -> None:
    problem = Problem("uint4", 1, 0, through="transB")
    gemm = problem.model.graph.node[-1]
    gemm.input.append("c")
    gemm.attribute.append(helper.make_attribute("beta", 0.5))
    problem.model.graph.node.append(node("Add", "y y", "r"))
    problem.model.graph.output[0].name = "r"
    bias = np.arange(N, dtype=np.float32)
    problem.model.graph.initializer.append(onnx.numpy_helper.from_array(bias, "c"))
    session = tenonnx.InferenceSession(problem.model)
    assert "DequantizeMatMul" in operators(session)
    assert "DequantizeLinear" not in operators(session)
    (r,) = session.run(None, {"x": problem.x})
    np.testing.assert_allclose(r, 2 * (problem.answer + 0.5 * bias), rtol=1e-3, atol=1e-3)


def test_a_bias_that_is_dequantized_too_is_a_row() -> None:
    """As quantizers write it, without saying what shape the result has."""
    problem = Problem("int8", 1, 0, through="transB")
    problem.model.graph.node[-1].input.append("c")
    problem.model.graph.node.insert(0, node("DequantizeLinear", "codes unit", "c"))
    codes = np.arange(N, dtype=np.int32)
    for name, array in (("codes", codes), ("unit", np.array(0.25, np.float32))):
        problem.model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    session = tenonnx.InferenceSession(problem.model)
    assert "DequantizeMatMul" in operators(session)
    (y,) = session.run(None, {"x": problem.x})
    np.testing.assert_allclose(y, problem.answer + 0.25 * codes, rtol=1e-3, atol=1e-3)


def test_a_model_that_is_saved_keeps_the_standards_operators(tmp_path: Path) -> None:
    path = tmp_path / "saved.onnx"
    options = tenonnx.SessionOptions(optimized_model_filepath=str(path))
    tenonnx.InferenceSession(Problem("int8", 1, 0).model, options)
    onnx.checker.check_model(path)
    assert {node.domain for node in onnx.load(path).graph.node} == {""}


def test_a_dequantized_matrix_that_is_read_elsewhere_too_keeps_its_node() -> None:
    problem = Problem("int8", 1, 0)
    problem.model.graph.node.append(node("ReduceSum", "d", "total"))
    problem.model.graph.output.append(value("total", FLOAT, [None, None]))
    session = tenonnx.InferenceSession(problem.model)
    assert operators(session).count("DequantizeMatMul") == 1
    y, total = session.run(None, {"x": problem.x})
    np.testing.assert_allclose(y, problem.answer, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(total.item(), problem.w.sum(), rtol=1e-4)


def test_an_activation_that_is_dequantized_is_left_alone() -> None:
    nodes = [node("DequantizeLinear", "a s", "d"), node("MatMul", "x d", "y")]
    proto = model(
        nodes,
        [value("x", FLOAT, [2, 3]), value("a", TensorProto.INT8, [3, 4])],
        [value("y")],
        {"s": np.float32(0.5)},
    )
    assert operators(tenonnx.InferenceSession(proto)) == ["DequantizeLinear", "MatMul"]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize(("axis", "block"), [(-1, 0), (1, 0), (0, 32)])
def test_many_rows_and_few_give_the_same(kind: str, zeros: bool, axis: int, block: int) -> None:
    problem = Problem(kind, axis, block, zero_points=zeros)
    problem.check()
    problem.x = np.tile(problem.x, (4, 1, 1))
    problem.answer = np.tile(problem.answer, (4, 1, 1))
    problem.check()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("rows", [1, 40])
def test_other_activations(dtype: Any, rows: int) -> None:
    from tenonnx_quant.kernels import dequantize_matmul

    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, K * N // 2, dtype=np.uint8)
    scales = rng.random((K // 32, N)).astype(dtype)
    x = rng.standard_normal((rows, K)).astype(dtype)
    y = dequantize_matmul(
        np, x, packed, scales, bits=4, signed=1, rows=K, columns=N, axis=0, block_size=32
    )
    nibbles = np.stack([packed & 15, packed >> 4], 1).reshape(K, N).astype(np.int16)
    w = np.where(nibbles > 7, nibbles - 16, nibbles) * np.repeat(scales, 32, 0).astype(np.float64)
    assert y.dtype == dtype
    error = np.abs(y.astype(np.float64) - x.astype(np.float64) @ w)
    bound = np.abs(x.astype(np.float64)) @ np.abs(w) * float(ml_dtypes.finfo(dtype).eps) * 2
    assert np.all(error <= bound)


COMPILED = [
    ("MatMul", 0, 32),
    ("MatMul", 1, 0),
    ("MatMul", -1, 0),
    ("Transpose", 1, 32),
    ("transB", 0, 0),
    ("transB", -1, 0),
]


@pytest.mark.parametrize("kind", ["uint4", "int4", "int8", "uint8", "int2"])
@pytest.mark.parametrize(("through", "axis", "block"), COMPILED)
@pytest.mark.parametrize("zeros", [True, False])
def test_compiled_products(
    kind: str, through: str, axis: int, block: int, zeros: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    from tenonnx_cpu.quantized import dequantized

    monkeypatch.setenv("TENONNX_JIT", "1")
    found: list[Any] = []
    compiled = dequantized.matmul_q

    def noting(*arguments: Any, **options: Any) -> Any:
        found.append(compiled(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(dequantized, "matmul_q", noting)
    problem = Problem(kind, axis, block, zero_points=zeros, through=through, shape=(128, 64))
    problem.check()
    assert all(result is not None for result in found)
    bits = int(kind.lstrip("uint"))
    whole_lines = not zeros or through == "MatMul" or 128 // (block or 128) * bits % 8 == 0
    assert bool(found) == (whole_lines or axis < 0)
