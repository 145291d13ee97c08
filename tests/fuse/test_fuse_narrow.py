"""Subgraphs of 16-bit floats are computed in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from fusing import fused, normal, notes, parse, session
from tenonnx.graph import FACTORS_KEY
from tenonnx_fuse.rewrite import PRODUCTS


def test_subgraphs_of_narrow_floats() -> None:
    text = """(float[a,8] x) => (float[a,8] y) {
        n = Cast<to=10>(x)  m = Mul(n, h)  s = Softmax(m)  t = Add(s, n)  y0 = Cast<to=1>(t)
        y = Neg(y0) }"""
    counts, done = fused(parse(text, h=np.float16(0.5)), {"x": normal(3, 8)}, rtol=2e-3, atol=2e-3)
    assert counts == {"Mul": 1, "Softmax": 1, "Add": 1, "Neg": 1}
    (y,) = done.run(None, {"x": normal(3, 8)})
    x = normal(3, 8).astype(np.float64)
    e = np.exp(x / 2)
    np.testing.assert_allclose(y, -(e / e.sum(1, keepdims=True) + x), rtol=1e-5)


def test_what_is_as_fast_in_16_bits_stays() -> None:
    text = """(float[a,8] x, float16[a,8] z) => (float[a,16] y) {
        n = Cast<to=10>(x)  s = Add(n, z)  t = Concat<axis=1>(s, z)  y = Cast<to=1>(t) }"""
    feeds = {"x": normal(3, 8), "z": normal(3, 8, dtype=np.float16)}
    counts, done = fused(parse(text), feeds)
    assert counts == {"Cast": 2, "Add": 1, "Concat": 1}
    assert "'z' would have to be cast" in notes(done, "widen-fp16")[0]


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("body", "casts"),
    [
        ("y = Softmax(x)", 2),
        ("y = Sigmoid(x)", 2),
        ("y = MatMul(x, z)", 3),
        ("y = LayerNormalization(x, v)", 0),  # its kernel takes 16 bits
        ("y = SimplifiedLayerNormalization(x, v)", 0),
        ("a, b = Split<axis=1, num_outputs=2>(x) c = Tanh(a) y = Mul(c, b)", 2),
        ("y, i = TopK(x, three)", 2),
    ],
    ids=lambda value: str(value).split("(", maxsplit=1)[0],
)
def test_one_slow_node_is_worth_its_casts(kind: Any, body: str, casts: int) -> None:
    narrow = "float16" if kind == np.float16 else "bfloat16"
    text = f"({narrow}[a,8] x, {narrow}[8,8] z) => ({narrow}[a,b] y) {{ {body} }}"
    weights = {"v": normal(8).astype(kind), "three": np.array([3])}
    if "v" not in body:
        del weights["v"]
    if "three" not in body:
        del weights["three"]
    feeds = {"x": normal(5, 8).astype(kind), "z": normal(8, 8, seed=1).astype(kind)}
    counts, done = fused(parse(text, **weights), feeds, rtol=2e-2, atol=2e-2)
    assert counts.get("Cast", 0) == casts
    wide = {name: array.astype(np.float32) for name, array in feeds.items()}
    proto = parse(text.replace(narrow, "float"), **{
        name: array.astype(np.float32) if name == "v" else array for name, array in weights.items()
    })  # fmt: skip
    (y,), (right,) = done.run(None, feeds), session(proto).run(None, wide)
    if kind == np.float16 or "MatMul" not in body:  # whose factors are bfloat16, and sums ordered
        np.testing.assert_array_equal(y, right.astype(kind))


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_recurrent_weights_are_widened_ahead(kind: Any) -> None:
    narrow = "float16" if kind == np.float16 else "bfloat16"
    text = f"""({narrow}[a,1,8] x) => ({narrow}[a,1,1,4] y, {narrow}[1,1,4] h) {{
        y, h = LSTM<hidden_size=4>(x, w, r) }}"""
    weights = {"w": normal(1, 16, 8).astype(kind), "r": normal(1, 16, 4, seed=1).astype(kind)}
    counts, _ = fused(
        parse(text, **weights), {"x": normal(5, 1, 8).astype(kind)}, rtol=3e-2, atol=3e-2
    )
    assert counts == {"Cast": 3, "LSTM": 1}


def test_a_subgraph_whose_output_is_read_in_16_bits_too() -> None:
    """The output keeps its type, where the Cast that made it is taken out."""
    text = """(float[a,8] x) => (float[a,8] y, bool[a,8] b) {
        n = Cast<to=10>(x)  p = MatMul(n, w)  q = Add(p, p)  r = Exp(q)  s = Mul(r, r)
        t = Sigmoid(s)  y = Cast<to=1>(t)  b = Cast<to=9>(t) }"""
    weights = {"w": normal(8, 8, dtype=np.float16, seed=1)}
    _, done = fused(parse(text, **weights), {"x": normal(3, 8)}, rtol=4e-3, atol=4e-3)
    assert "matched 1 subgraphs" in notes(done, "widen-fp16")[0]


def test_attention_that_looks_for_nan_is_widened_and_found() -> None:
    """As torch writes it: IsNaN is no member, and takes float32 as it takes 16 bits."""
    text = """(float16[1,2,5,8] q, float16[1,2,8,5] k, float16[1,2,5,8] v) => (float16[1,2,5,8] y) {
        p = MatMul(q, k)  a = Add(p, m)  s = Softmax(a)  n = IsNaN(s)  t = Where(n, zero, s)
        o = MatMul(t, v)  y = MatMul(o, w) }"""
    half = np.float16
    mask = np.where(np.arange(5)[:, None] == 2, half("-inf"), half(0)) * np.ones((5, 5), half)
    named = {"m": mask, "zero": half(0), "w": normal(8, 8, dtype=half, seed=1)}
    feeds = {name: normal(1, 2, 5, 8, dtype=half, seed=seed) for seed, name in enumerate("qv")}
    feeds["k"] = normal(1, 2, 8, 5, dtype=half, seed=3)
    counts, done = fused(parse(text, **named), feeds, rtol=4e-3, atol=4e-3)
    assert counts["Attention"] == 1
    assert "IsNaN" not in counts
    (y,) = done.run(None, feeds)
    assert not y[:, :, 2].any()


def test_an_output_of_undefined_type_that_a_subgraph_reads() -> None:
    text = """(float[a,8] x) => (float16[a,8] n, float[a,8] y) {
        n = Cast<to=10>(x)  p = MatMul(n, w)  s = Softmax(p)  y = Cast<to=1>(s) }"""
    proto = parse(text, w=normal(8, 8, dtype=np.float16, seed=1))
    for output in proto.graph.output:
        output.type.tensor_type.elem_type = onnx.TensorProto.UNDEFINED
    _, done = fused(proto, {"x": normal(3, 8)}, rtol=4e-3, atol=4e-3)
    assert "matched 1 subgraphs" in notes(done, "widen-fp16")[0]


def test_a_subgraph_casts_what_is_of_no_known_type(tmp_path: Path) -> None:
    """Operands have one type: what a subgraph reads beside narrow data is narrow."""
    text = """(float16[1,2,8] x, float16[2,2,3] w) => (float16[1,2,6] y) {
        u = CastLike(z, x)  c = Concat<axis=0>(u, x)  d = Slice(c, one, two, nil)
        y = Conv(d, w) }"""
    weights = {"z": np.ones((1, 2, 8), np.float32), "one": np.array([1]), "two": np.array([2])}
    proto = parse(text, **weights, nil=np.array([0]))
    path = tmp_path / "saved.onnx"
    feeds = {"x": normal(1, 2, 8, dtype=np.float16), "w": normal(2, 2, 3, dtype=np.float16)}
    fused(proto, feeds, rtol=4e-3, atol=4e-3, optimized_model_filepath=str(path))
    onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True, check_type=True)


@pytest.mark.parametrize("where", ["beside", "in branches"])
def test_subgraphs_share_the_cast_of_what_both_read(where: str) -> None:
    matrices = {"w": normal(8, 8, dtype=np.float16), "v": normal(8, 8, dtype=np.float16, seed=1)}
    one = "p{0} = MatMul(z, {1})  q{0} = Softmax(p{0})  r{0} = Mul(q{0}, q{0})  s{0} = Tanh(r{0})"
    one += "  t{0} = Exp(s{0})  y{0} = Cast<to=1>(t{0})"
    both = [one.format(number, name) for number, name in ((1, "w"), (2, "v"))]
    if where == "beside":
        body = f"{both[0]} {both[1]} y = Add(y1, y2)"
    else:
        branches = [
            f"{name}_branch = {name} () => (float[a,8] y{i}) {{ {both[i - 1]} }}"
            for i, name in ((1, "then"), (2, "else"))
        ]
        body = f"y = If(c) <{', '.join(branches)}>"
    text = f"(float16[a,8] z, bool c) => (float[a,8] y) {{ {body} }}"
    feeds = {"z": normal(3, 8, dtype=np.float16), "c": np.array(True)}
    counts, done = fused(parse(text, **matrices), feeds, rtol=3e-2, atol=3e-3)
    casts = [node.inputs[0].name for node in done.model.graph if node.op_type == "Cast"]
    # A matrix is cast where the product is, which reads it as it is stored.
    assert sorted(casts) == (["z"] if where == "in branches" else ["v", "w", "z"])
    assert counts["Cast"] == len(casts)
    assert "matched 2 subgraphs" in notes(done, "widen-fp16")[-1]


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_what_is_16_bits_wide_is_computed_in_float32(kind: Any) -> None:
    narrow = {10: "float16", 16: "bfloat16"}[10 if kind == np.float16 else 16]
    text = f"""({narrow}[a,8] x) => ({narrow}[a,8] y, {narrow}[a,72] k) {{
        h = MatMul(x, w)  k = Add(h, b)  r = Relu(k)  l = MatMul(r, v)  s = Softmax(l)
        d = Mul(s, s)  e = Sub(d, c)  t = Tanh(e)  y = Add(t, c) }}"""
    weights = {"w": normal(8, 72), "b": normal(72), "v": normal(72, 8), "c": normal(8)}
    narrowed = {name: array.astype(kind) for name, array in weights.items()}
    x = normal(3, 8).astype(kind)
    counts, done = fused(parse(text, **narrowed), {"x": x}, rtol=3e-2, atol=3e-2)
    # x, two matrices, and the two outputs.
    assert counts["Cast"] == 5
    y, k = done.run(None, {"x": x})
    assert y.dtype == k.dtype == kind
    w, b, v, c = (narrowed[name].astype(np.float64) for name in "wbvc")
    h = x.astype(np.float64) @ w + b
    e = np.exp(np.maximum(h, 0) @ v)
    expected = np.tanh((e / e.sum(1, keepdims=True)) ** 2 - c) + c
    # Rounded once, at the end.
    unit = 2.0**-10 if kind == np.float16 else 2.0**-7
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=unit, atol=unit / 4)
    np.testing.assert_allclose(k.astype(np.float64), h, rtol=unit, atol=unit / 4)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_products_of_bfloat16_are_noted(kind: Any) -> None:
    """Also what takes their place; those in float32 are not."""
    narrow, number = ("float16", 10) if kind == np.float16 else ("bfloat16", 16)
    text = f"""(float[1,2,5,8] x) => (float[1,2,5,8] y) {{
        n = Cast<to={number}>(x)  q = MatMul(n, w)  t = Transpose<perm=[0,1,3,2]>(n)
        p = MatMul(q, t)  s = Softmax(p)  o = MatMul(s, n)  u = Cast<to=1>(o)
        y = MatMul(u, v) }}"""
    weights = {"w": normal(8, 8, dtype=kind, seed=1), "v": normal(8, 8, seed=2)}
    _, done = fused(parse(text, **weights), {"x": normal(1, 2, 5, 8)}, rtol=5e-2, atol=5e-2)
    noted = {
        node.op_type: node.metadata_props.get(FACTORS_KEY)
        for node in done.model.graph
        if node.op_type in PRODUCTS
    }
    factors = "bfloat16" if narrow == "bfloat16" else None
    assert noted == {"Attention": factors, "MatMul": None}
    first = next(node for node in done.model.graph if node.op_type == "MatMul")
    assert first.metadata_props.get(FACTORS_KEY) == factors


def test_chains_are_rounded_once() -> None:
    """The logarithm of 1 + x has no digit of x that 1 + x has lost."""
    proto = parse("(float16[4000] x) => (float16[4000] y) { a = Add(x, one)  y = Log(a) }",
                  one=np.float16(1))  # fmt: skip
    x = np.linspace(1e-4, 3e-2, 4000).astype(np.float16)
    exact = np.log1p(x.astype(np.float64))
    (y,) = session(proto).run(None, {"x": x})
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=2**-10)
