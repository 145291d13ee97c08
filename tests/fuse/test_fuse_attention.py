"""The fuse plug-in's attention: as exporters write it, and what only looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import fusing
from fusing import fused, normal, notes, parse

B, H, G, S, D = 2, 4, 2, 3, 8

PARTS: dict[str, Any] = {
    "by": np.float32(D**-0.5),
    "root": np.float32(D**0.5),
    "low": np.float32(np.finfo(np.float32).min),
    "zero": np.float32(0),
    "ten": np.float32(10),
    "two": np.array([2]),
    "wide": np.array([B, G, H // G, S, D]),
    "flat": np.array([B, H, S, D]),
}
"""Constants that graphs below read by these names."""

HEADS = f"float[{B},{H},{S},{D}]"
INPUTS = f"({HEADS} q, {HEADS} k, {HEADS} v, float[{B},1,{S},{S}] m, bool[1,1,{S},{S}] c)"
USUAL = (
    "t = Transpose<perm=[0,1,3,2]>(k)  p = MatMul(q, t)  a = Softmax<axis=-1>({})  y = MatMul(a, v)"
)

WRITTEN = {
    "plain": USUAL.format("p"),
    "scaled": USUAL.format("s").replace(" a =", " s = Mul(p, by) a ="),
    "divided": USUAL.format("s").replace(" a =", " s = Div(p, root) a ="),
    "masked": USUAL.format("n").replace(" a =", " s = Mul(by, p) n = Add(s, m) a ="),
    "masked twice": USUAL.format("o").replace(" a =", " n = Add(m, p) o = Add(n, m) a ="),
    "both scaled": """r = Sqrt(by)  q2 = Mul(q, r)  t = Transpose<perm=[0,1,3,2]>(k)  t2 = Mul(t, r)
        p = MatMul(q2, t2)  n = Add(p, m)  a = Softmax<axis=-1>(n)  y = MatMul(a, v)""",
    "kept": USUAL.format("n").replace(" a =", " n = Where(c, p, low) a ="),
    "hidden": USUAL.format("n").replace(" a =", " h = Not(c) n = Where(h, low, p) a ="),
    "capped": USUAL.format("n").replace(
        " a =", " s = Mul(p, by) d = Div(s, ten) h = Tanh(d) r = Mul(h, ten) n = Add(r, m) a ="
    ),
    "capped and steeper": USUAL.format("r").replace(
        " a =", " d = Mul(p, ten) h = Tanh(d) r = Mul(root, h) a ="
    ),
    "safe": USUAL.format("p").replace("y =", "i = IsNaN(a) b = Where(i, zero, a) y =").replace(
        "MatMul(a, v)", "MatMul(b, v)"
    ),
}  # fmt: skip


def feeds(**more: Any) -> dict[str, Any]:
    parts = {name: normal(B, H, S, D, seed=seed) for seed, name in enumerate("qkv")}
    causal = np.tril(np.ones((1, 1, S, S), bool))
    return {**parts, "m": normal(B, 1, S, S, seed=4), "c": causal, **more}


def attention(body: str, head: str = INPUTS, **options: Any) -> tuple[dict[str, int], Any]:
    """Compare a graph before and after, once shapes are known as exporters leave them."""
    proto = parse(f"{head} => (float[B,H,S,D] y) {{ {body} }}", **PARTS)
    used = {name for node in proto.graph.node for name in node.input}
    for tensor in [t for t in proto.graph.initializer if t.name not in used]:
        proto.graph.initializer.remove(tensor)
    typed = onnx.shape_inference.infer_shapes(proto)
    names = {value.name for value in typed.graph.input}
    given = feeds(**options)
    return fused(typed, {name: array for name, array in given.items() if name in names})


@pytest.mark.parametrize("name", WRITTEN)
def test_attention(name: str) -> None:
    counts, done = attention(WRITTEN[name])
    assert counts.pop("Attention") == 1
    assert counts.keys() <= {"Add", "Constant", "Where", "Not"}
    assert notes(done, "attention") == ["matched 1 Attention"]


def test_heads_that_are_split_and_said_nothing_of() -> None:
    body = "q, k, v = Split<axis=3, num_outputs=3>(x) " + WRITTEN["plain"]
    proto = parse(f"(float[{B},{H},{S},{3 * D}] x) => (float[B,H,S,D] y) {{ {body} }}")
    counts, _ = fused(proto, {"x": normal(B, H, S, 3 * D)})
    assert counts == {"Split": 1, "Attention": 1}


REPEATED = """u = Unsqueeze(k, two)  e = Expand(u, wide)  r = Reshape(e, flat)
    u2 = Unsqueeze(v, two)  e2 = Expand(u2, wide)  r2 = Reshape(e2, flat)
    t = Transpose<perm=[0,1,3,2]>(r)  p = MatMul(q, t)  s = Mul(p, by)  a = Softmax<axis=-1>(s)
    y = MatMul(a, r2)"""
FEWER = f"({HEADS} q, float[{B},{G},{S},{D}] k, float[{B},{G},{S},{D}] v)"


def few() -> dict[str, Any]:
    return {"k": normal(B, G, S, D, seed=1), "v": normal(B, G, S, D, seed=2)}


def test_heads_that_are_repeated() -> None:
    counts, _ = attention(REPEATED, FEWER, **few())
    assert counts == {"Attention": 1}


def test_heads_that_are_repeated_to_sizes_known_when_it_runs() -> None:
    body = """sk = Shape(k)  i = Constant<value=int64[1]{0}>()  b = Gather(sk, i)
        wide_ = Concat<axis=0>(b, some)  flat_ = Concat<axis=0>(b, rest)  """ + REPEATED.replace(
        "wide)", "wide_)"
    ).replace("flat)", "flat_)")
    proto = parse(
        f"{FEWER.replace(f'float[{B},', 'float[n,')} => (float[B,H,S,D] y) {{ {body} }}",
        some=PARTS["wide"][1:],
        rest=PARTS["flat"][1:],
        two=PARTS["two"],
        by=PARTS["by"],
    )
    typed = onnx.shape_inference.infer_shapes(proto)
    counts, _ = fused(typed, {"q": normal(B, H, S, D), **few()})
    assert counts == {"Attention": 1}


def test_keys_as_projections_leave_them() -> None:
    body = """t = Transpose<perm=[0,2,3,1]>(k)  v2 = Transpose<perm=[0,2,1,3]>(v)  p = MatMul(q, t)
        s = Mul(p, by)  a = Softmax<axis=3>(s)  y = MatMul(a, v2)"""
    flat = f"float[{B},{S},{H},{D}]"
    counts, _ = attention(
        body,
        f"({HEADS} q, {flat} k, {flat} v)",
        k=normal(B, S, H, D, seed=1),
        v=normal(B, S, H, D, seed=2),
    )
    assert counts == {"Attention": 1, "Transpose": 2}


def test_a_mask_is_made_once_for_all_layers() -> None:
    body = WRITTEN["kept"].replace("y = MatMul(a, v)", "y1 = MatMul(a, v)") + """
        t2 = Transpose<perm=[0,1,3,2]>(v)  p2 = MatMul(y1, t2)  n2 = Where(c, p2, low)
        a2 = Softmax<axis=-1>(n2)  y = MatMul(a2, k)"""  # fmt: skip
    counts, _ = attention(body)
    assert (counts["Attention"], counts["Where"]) == (2, 1)


def test_what_is_nearly_attention() -> None:
    body = USUAL.format("g").replace(" a =", " g = Tanh(p) a =")
    counts, done = attention(body)
    assert "Attention" not in counts
    assert (
        "Add or Where or Mul or Div or MatMul or Cast is missing at Tanh 'g'"
        in notes(done, "attention")[0]
    )
    counts, _ = attention(USUAL.format("p").replace("axis=-1", "axis=2"))
    assert "Attention" not in counts


def test_scores_that_are_read_elsewhere() -> None:
    body = USUAL.format("p") + "  z = Neg(a)"
    proto = parse(f"{INPUTS} => ({HEADS} y, float[B,H,S,S] z) {{ {body} }}")
    counts, done = fused(proto, feeds())
    assert "Attention" not in counts
    assert "'a' is read elsewhere too" in notes(done, "attention")[0]


def test_a_fill_that_still_counts() -> None:
    counts, _ = attention(WRITTEN["kept"].replace("low", "ten"))
    assert counts["Attention"] == 1


@pytest.mark.parametrize("fill", ["low", "ten", "bottom", "infinity"])
def test_fills_of_models_that_are_saved(fill: str, tmp_path: Path) -> None:
    """The operator only adds to scores: the least number is as good as any that hides a key."""
    heads = f"float[{B},{H},{S},{D}]"
    proto = parse(
        f"({heads} q, {heads} k, {heads} v, bool[1,1,{S},{S}] c) => ({heads} y) "
        f"{{ {WRITTEN['kept'].replace('low', fill)} }}",
        opset=23,
        **{fill: {"bottom": np.float32(-1e5), "infinity": np.float32(-np.inf), **PARTS}[fill]},
    )
    given = {name: array for name, array in feeds().items() if name != "m"}
    if fill != "infinity":
        given["c"] = np.tri(S, k=-1, dtype=bool)[None, None]
    file = tmp_path / "saved.onnx"
    counts, done = fused(
        onnx.shape_inference.infer_shapes(proto), given, optimized_model_filepath=str(file)
    )
    assert counts.get("Attention", 0) == (fill != "ten")
    if fill == "ten":
        assert "become 10, which still counts" in notes(done, "attention")[0]
    elif fill != "infinity":
        before, after = (fusing.session(each, 0).run(None, given)[0] for each in (proto, str(file)))
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


def test_heads_that_are_repeated_in_another_order_stay_so() -> None:
    body = REPEATED.replace("two)", "one)").replace("wide", "turned")
    proto = parse(
        f"{FEWER} => (float[B,H,S,D] y) {{ {body} }}",
        **{name: PARTS[name] for name in ("flat", "by")},
        one=np.array([1]),
        turned=np.array([B, H // G, G, S, D]),
    )
    counts, _ = fused(onnx.shape_inference.infer_shapes(proto), {"q": normal(B, H, S, D), **few()})
    assert counts == {"Attention": 1, "Unsqueeze": 2, "Expand": 2, "Reshape": 2}


PACKED = """qs = Reshape(q, sq)  ks = Reshape(k, sk)  vs = Reshape(v, sk)
    q4 = Transpose<perm=[0,2,1,3]>(qs)  k4 = Transpose<perm=[0,2,3,1]>(ks)
    v4 = Transpose<perm=[0,2,1,3]>(vs)  p = MatMul(q4, k4)  s = Mul(p, by)
    a = Softmax<axis=-1>(s)  y4 = MatMul(a, v4)  yt = Transpose<perm=[0,2,1,3]>(y4)
    y = Reshape(yt, joined)"""


def packed(body: str, joined: list[int], batch: str = str(B)) -> tuple[dict[str, int], Any]:
    head = ", ".join(f"float[{batch},{S},{H * D}] {name}" for name in "qkv")
    proto = parse(
        f"({head}) => (float[{batch},c,d] y) {{ {body} }}",
        sq=np.array([0, S, H, D]),
        sk=np.array([0, S, H, D]),
        joined=np.array(joined),
        by=PARTS["by"],
    )
    feeds = {name: normal(B, S, H * D, seed=seed) for seed, name in enumerate("qkv")}
    return fused(onnx.shape_inference.infer_shapes(proto, data_prop=True), feeds)


@pytest.mark.parametrize("batch", [str(B), "n"])
def test_heads_that_are_split_and_joined(batch: str) -> None:
    counts, done = packed(PACKED, [0, S, H * D], batch)
    assert counts == {"Attention": 1}
    (node,) = done.model.graph
    heads = [node.attributes[name].as_int() for name in ("q_num_heads", "kv_num_heads")]
    assert heads == [H, H]


def test_heads_that_are_joined_otherwise() -> None:
    counts, done = packed(PACKED, [B, S * H, D])
    assert (counts["Attention"], counts["Reshape"]) == (1, 4)
    assert "not known to join the last axes" in notes(done, "packed-heads")[0]


SDPA = """z = Shape(k)  d = Slice(z, last, end)  n = Slice(z, before, last)
    r = Slice(z, begin, before)  f = Concat<axis=0>(last, n, d)
    k3 = Reshape(k, f)  t3 = Transpose<perm=[0,2,1]>(k3)
    g = Concat<axis=0>(r, d, n)  t = Reshape(t3, g)  qs = Mul(q, by)  ts = Mul(t, by)
    p = MatMul(qs, ts)  o = Where(c, zero, low)  u = Add(p, o)  a = Softmax<axis=-1>(u)
    i = IsNaN(a)  w = Where(i, zero, a)  y = MatMul(w, v)"""
BOUNDS = {"last": [-1], "before": [-2], "end": [2**63 - 1], "begin": [-(2**63)]}


def test_keys_that_are_turned_with_heads_and_batch_joined() -> None:
    heads = f"float[n,{H},{S},{D}]"
    head = f"({heads} q, {heads} k, {heads} v, bool[1,1,{S},{S}] c)"
    weights = {name: np.array(bound) for name, bound in BOUNDS.items()}
    weights |= {name: PARTS[name] for name in ("by", "zero", "low")}
    proto = parse(f"{head} => ({heads} y) {{ {SDPA} }}", **weights)
    given = {name: array for name, array in feeds().items() if name != "m"}
    counts, _ = fused(onnx.shape_inference.infer_shapes(proto), given)
    assert counts == {"Attention": 1, "Where": 1}


@pytest.mark.parametrize("rank", ["ws = Shape(w1)", "ws = Identity(five)"])
def test_heads_that_torchscript_repeats(rank: str) -> None:
    """No shapes are known, and Expand is guarded against sizes that are -1."""
    sizes = f"""sk = Shape(k)  b0 = Gather(sk, i0)  n0 = Gather(sk, i2)  d0 = Gather(sk, i3)
        b = Unsqueeze(b0, o)  n = Unsqueeze(n0, o)  d = Unsqueeze(d0, o)
        w0 = Concat<axis=0>(b, g, times, n, d)  w1 = Reshape(w0, all)  {rank}
        ones = ConstantOfShape<value=int64[1]{{1}}>(ws)  no = Mul(ones, minus)  e0 = Equal(w1, no)
        wide = Where(e0, ones, w1)  g0 = Gather(sk, i1)  h0 = Mul(g0, two)  h = Unsqueeze(h0, o)
        flat = Concat<axis=0>(b, h, n, d)"""
    proto = parse(
        f"{FEWER} => (float[B,H,S,D] y) {{ {sizes} {REPEATED.replace('two)', 'axis)')} }}",
        **{f"i{axis}": np.array(axis) for axis in range(4)},
        o=np.array([0]),
        five=np.array([5]),
        g=np.array([G]),
        times=np.array([H // G]),
        all=np.array([-1]),
        minus=np.array(-1),
        two=np.array(H // G),
        axis=np.array([2]),
        by=PARTS["by"],
    )
    counts, _ = fused(proto, {"q": normal(B, H, S, D), **few()})
    assert counts == {"Attention": 1}
