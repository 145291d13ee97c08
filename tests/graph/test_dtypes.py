"""Element types that a model does not say, as they follow from its operators."""

from __future__ import annotations

import onnx.parser
import onnx_ir as ir
import pytest

from tenonnx.graph.dtypes import dtype_of

STRING, INT64, DOUBLE = ir.DataType.STRING, ir.DataType.INT64, ir.DataType.DOUBLE
FLOAT8 = ir.DataType.FLOAT8E4M3FN


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        ("a = Identity(s)  y = Identity(a)", STRING),
        ("a = Shape(s)  y = Neg(a)", INT64),
        ("a = Cast <to = 11> (x)  y = Neg(a)", DOUBLE),
        ("a = EyeLike <dtype = 11> (x)  y = Neg(a)", DOUBLE),
        ("a = QuantizeLinear <output_dtype = 17> (x, x)  y = Identity(a)", FLOAT8),
        ("a = Constant <value_strings = [\"a\"]> ()  y = Identity(a)", STRING),
        ("a = Constant <value_int = 1> ()  y = Neg(a)", INT64),
        ("a = Constant <value = double[1] {1.0}> ()  y = Neg(a)", DOUBLE),
        ("a = ConstantOfShape (n)  y = Neg(a)", ir.DataType.FLOAT),
        ("a = ConstantOfShape <value = double[1] {1.0}> (n)  y = Neg(a)", DOUBLE),
        ("a = If (c) <then_branch = t () => (string q) { q = Identity(s) },"
         " else_branch = e () => (string r) { r = Identity(s) }>  y = Identity(a)", STRING),
        ("a, b = Loop (n, c, n) <body = l (int64 i, bool d, int64 k) => (bool f, int64 g, double h)"
         " { f = Identity(d)  g = Identity(k)  h = Constant <value = double[1] {1.0}> () }>"
         "  y = Neg(b)", DOUBLE),
        ("y = Other.Unknown(x)", None),
    ],
)  # fmt: skip
def test_types_follow_from_operators(body: str, dtype: ir.DataType | None) -> None:
    head = '<ir_version: 10, opset_import: ["": 21, "Other": 1]>'
    inputs = "float[n] x, string[n] s, int64 n, bool c"
    made = onnx.parser.parse_model(f"{head} test ({inputs}) => (y) {{ {body} }}")
    (y,) = ir.from_proto(made).graph.outputs
    assert dtype_of(y) == dtype
