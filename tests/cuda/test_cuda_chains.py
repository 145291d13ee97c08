"""Chains of elementwise operators as one kernel, compiled for the host."""

from __future__ import annotations

from math import erf
from pathlib import Path
from typing import Any

import hosted
import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from emulated import session
from test_cuda_compile import check_compiles
from test_cuda_contract import EVERY

import tenonnx
from models import model, node, value
from tenonnx_cuda.elementwise import chains
from tenonnx_cuda.elementwise.chains import Chain, repeats, whole
from tenonnx_cuda.elementwise.expressions import MICROSOFT_DOMAIN, expression
from tenonnx_cuda.elementwise.formulas import COMPOUND, MICROSOFTS, SIMPLE
from tenonnx_cuda.sources import SOURCE_TYPES

pytestmark = pytest.mark.skipif(hosted.COMPILER is None, reason="no C++ compiler")

TYPES = {
    "float": (np.float32, 1e-6),
    "float16": (np.float16, 3e-3),
    "bfloat16": (ml_dtypes.bfloat16, 3e-2),
}


def gelu(dtype: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        test ({dtype}[n, 4] x, {dtype}[4] b, {dtype}[one] h) => ({dtype}[n, 4] y) {{
            z = Add(x, b)  s = Mul(z, h)  e = Erf(s)  f = Add(e, h)  g = Mul(f, z)  y = Mul(g, h)
        }}
    """)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_chain_is_one_step_and_right(dtype: str) -> None:
    kind, tolerance = TYPES[dtype]
    opened = session(gelu(dtype), graph_optimization_level=0)
    draws = np.random.default_rng(0)
    x, b = draws.standard_normal((300, 4)).astype(kind), draws.standard_normal(4).astype(kind)
    h = np.array([0.5], kind)
    (y,) = opened.run(None, {"x": x, "b": b, "h": h})
    z = x.astype(np.float64) + b.astype(np.float64)
    expected = (np.vectorize(erf)(z * 0.5) + 0.5) * z * 0.5
    assert y.dtype == kind
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
    # z is read twice, by the product and by the last but one; the rest is a chain.
    assert [len(step.nodes) for step in opened.plan.steps] == [1, 5]


def chained(nodes: list[Any], outputs: list[str], *inputs: Any) -> list[Any]:
    names = [f"x{i}" for i in range(len(inputs))]
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(array.dtype) for array in inputs]
    given = [value(n, k, a.shape) for n, k, a in zip(names, kinds, inputs, strict=True)]
    made = model(nodes, given, [value(name, kinds[0], None) for name in outputs])
    opened = session(made, graph_optimization_level=0)
    return [opened, opened.run(None, dict(zip(names, inputs, strict=True)))]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("operator", [
    "Gelu(x)", 'Gelu<approximate="tanh">(x)', "Swish<alpha=1.5>(x)", "HardSwish(x)",
    "HardSigmoid<alpha=0.3, beta=0.4>(x)", "LeakyRelu<alpha=0.2>(x)",
    "com.microsoft.BiasGelu(x, b)", "com.microsoft.FastGelu(x, b)", "com.microsoft.FastGelu(x)",
    "com.microsoft.QuickGelu(x)", "com.microsoft.Gelu(x)",
])  # fmt: skip
def test_an_activation_is_a_kernel_of_its_own(operator: str, dtype: str) -> None:
    """With the answers of the array library, which are onnxruntime's, and a NaN."""
    kind, tolerance = TYPES[dtype]
    source = onnx.parser.parse_model(f"""
        <ir_version: 13, opset_import: ["": 24, "com.microsoft": 1]>
        test ({dtype}[n, 8] x, {dtype}[8] b) => ({dtype}[n, 8] y) {{ y = {operator} }}
    """)
    draws = np.random.default_rng(0)
    x, b = (4 * draws.standard_normal((40, 8))).astype(kind), draws.standard_normal(8).astype(kind)
    x[3, 3] = np.nan
    feeds = {"x": x, "b": b}
    opened = session(source, graph_optimization_level=0)
    platform = opened._providers[0].platform  # type: ignore[attr-defined]  # the emulated one's
    platform.compiled.clear()
    (y,) = opened.run(None, feeds)
    assert platform.compiled == ["chain"]
    (expected,) = tenonnx.InferenceSession(source, providers=["cpu"]).run(None, feeds)
    assert y.dtype == kind
    np.testing.assert_allclose(
        y.astype(np.float64), expected.astype(np.float64), rtol=5 * tolerance, atol=5 * tolerance
    )


def test_what_the_kernel_does_not_take_runs_node_by_node() -> None:
    column = np.arange(3, dtype=np.float32).reshape(3, 1)
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2)
    nodes = [node("Add", "x0 x1", "a"), node("Mul", "a a", "y")]
    opened, (y,) = chained(nodes, ["y"], matrix, column)
    assert len(opened.plan.steps) == 1
    np.testing.assert_array_equal(y, (matrix + column) ** 2)
    _, (y,) = chained(nodes, ["y"], matrix.astype(np.int32), matrix.astype(np.int32))
    np.testing.assert_array_equal(y, (2 * matrix.astype(np.int32)) ** 2)
    _, (y,) = chained(nodes, ["y"], matrix[:0], matrix[:0])
    assert y.shape == (0, 2)


def test_an_output_or_a_second_reader_ends_a_chain() -> None:
    x = np.float32([1, 4, 9])
    nodes = [node("Sqrt", "x0", "a"), node("Neg", "a", "b"), node("Exp", "b", "c"),
             node("Add", "b c", "y")]  # fmt: skip
    opened, (y, a) = chained(nodes, ["y", "a"], x)
    assert [len(step.nodes) for step in opened.plan.steps] == [1, 1, 2]
    np.testing.assert_allclose(a, np.sqrt(x))
    np.testing.assert_allclose(y, np.exp(-np.sqrt(x)) - np.sqrt(x), rtol=1e-6)


def test_nan_goes_through_relu() -> None:
    x = np.float32([np.nan, -1, 2])
    _, (y,) = chained([node("Relu", "x0", "a"), node("Neg", "a", "y")], ["y"], x)
    np.testing.assert_array_equal(y, [np.nan, 0, -2])


@pytest.mark.parametrize(
    ("shape", "whole", "period"),
    [((), (2, 3), 1), ((1, 1), (2, 3), 1), ((3,), (2, 3), 3), ((2, 3), (2, 3), 6),
     ((2, 1), (2, 3), None), ((1, 3), (2, 3), 3), ((2, 1, 3), (2, 5, 3), None)],
)  # fmt: skip
def test_periods(shape: tuple[int, ...], whole: tuple[int, ...], period: int | None) -> None:
    assert repeats(shape, whole) == period


@pytest.mark.parametrize("dtype", TYPES)
def test_threads_take_several_elements_of_many(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that lie even; a number, a row and a row that does not are read as they have to be."""
    kind, tolerance = TYPES[dtype]
    monkeypatch.setattr(chains, "MIN_WIDE_ELEMENTS", 1)
    draws = np.random.default_rng(0)
    x, b, h = (draws.standard_normal(shape).astype(kind) for shape in ((40, 64), (64,), (1,)))
    for cut in (64, 63):
        opened, (y,) = chained(
            [node("Add", "x0 x1", "a"), node("Mul", "a x2", "y")], ["y"], x[:, :cut], b[:cut], h
        )
        wide = (x[:, :cut].astype(np.float64) + b[:cut].astype(np.float64)) * float(h[0])
        np.testing.assert_allclose(y.astype(np.float64), wide, rtol=tolerance, atol=tolerance)
        assert len(opened.plan.steps) == 1


@pytest.mark.parametrize("capability", [80, 90, 100] if EVERY else [80])
def test_every_expression_compiles(capability: int, tmp_path: Path) -> None:
    last, other = ir.Value(name="x"), ir.Value(name="other")
    nodes = []
    rows = {"": SIMPLE | COMPOUND, MICROSOFT_DOMAIN: MICROSOFTS}
    for domain, name in ((domain, name) for domain, names in rows.items() for name in names):
        node = ir.Node(domain, name, [last, other], version=21 if domain == "" else 1)
        if "{1}" not in (expression(node) or ""):
            node.resize_inputs(1)
        nodes.append(node)
        last = node.outputs[0]
    first = nodes[0].inputs[0]
    assert first is not None
    text = whole(Chain(tuple(nodes), (first, other)))
    for dtype, element in SOURCE_TYPES.items():
        macros = {"T": element, "WIDTH": 16 // dtype.itemsize, "HOW0": "ALL", "HOW1": "AGAIN"}
        check_compiles(text, macros, capability, tmp_path)
