"""com.microsoft's fused operators written out give what their own kernels give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from fusing import normal, notes, session
from models import FLOAT, model, node, value

MICROSOFT = "com.microsoft"
BATCH, LENGTH, WIDTH, HEADS = 2, 5, 12, 3
X = normal(BATCH, LENGTH, WIDTH)
CACHE = normal(BATCH, HEADS, 4, WIDTH // HEADS)
SEEN = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32)


def attention(**more: Any) -> dict[str, Any]:
    """Return the inputs of an Attention."""
    return {"x": X, "w": normal(WIDTH, 3 * WIDTH), "b": normal(3 * WIDTH), **more}


def multi_head(**more: Any) -> dict[str, Any]:
    """Return the inputs of a MultiHeadAttention."""
    return {"q": X, "k": X[:, ::-1].copy(), "v": X * 2, **more}


SKIP = {"x": X, "s": normal(*X.shape), "g": normal(WIDTH), "e": normal(WIDTH), "b": normal(WIDTH)}
CONV = {"x": X, "W": normal(5, 1, 4), "B": normal(5), "p": normal(BATCH, 5, 3)}
CODES: dict[str, Any] = {
    "x": np.arange(120, dtype=np.uint8).reshape(BATCH, LENGTH, WIDTH),
    "w": np.arange(432, dtype=np.uint8).reshape(WIDTH, 36),
    "b": normal(36),
    "r": np.array(0.02, np.float32),
    "s": np.array(0.01, np.float32),
    "m": SEEN,
    "z": np.array(7, np.uint8),
    "o": np.array(128, np.uint8),
}
OWN = {"num_heads": HEADS}
CASES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "attention": ("Attention x,w,b", attention(), "y", OWN),
    "attention-of-widths": (
        *("Attention x,w,b", attention(w=normal(WIDTH, 30), b=normal(30)), "y"),
        OWN | {"qkv_hidden_sizes": [12, 12, 6]},
    ),
    "attention-causal": ("Attention x,w,b", attention(), "y", OWN | {"unidirectional": 1}),
    "attention-masked": ("Attention x,w,b,m", attention(m=SEEN), "y", OWN),
    "attention-by-lengths": (
        *("Attention x,w,b,m", attention(m=np.array([4, 2], np.int32)), "y", OWN),
    ),
    "attention-with-past": (
        *("Attention x,w,b,,p", attention(p=np.stack([CACHE, CACHE * 2])), "y,c"),
        OWN | {"unidirectional": 1, "scale": 0.3},
    ),
    "attention-biased": (
        *("Attention x,w,b,m,,a", attention(m=SEEN, a=normal(1, HEADS, LENGTH, LENGTH)), "y", OWN),
    ),
    "attention-of-codes": ("QAttention x,w,b,r,s,m,z,o", CODES, "y", OWN),
    "multi-head": ("MultiHeadAttention q,k,v", multi_head(), "y,pk,pv", OWN),
    "multi-head-biased": (
        *("MultiHeadAttention q,k,v,b,m", multi_head(b=normal(3 * WIDTH), m=SEEN), "y", OWN),
    ),
    "multi-head-with-past": (
        *("MultiHeadAttention q,k,v,,,,pk,pv", multi_head(pk=CACHE, pv=CACHE * 2), "y,ck,cv", OWN),
    ),
    "multi-head-of-cache": ("MultiHeadAttention q,k,v", {"q": X, "k": CACHE, "v": CACHE}, "y", OWN),
    "bias-gelu": ("BiasGelu x,b", {"x": X, "b": normal(WIDTH)}, "y", {}),
    "fast-gelu": ("FastGelu x,b", {"x": X, "b": normal(WIDTH)}, "y", {}),
    "fast-gelu-alone": ("FastGelu x", {"x": X}, "y", {}),
    "gelu": ("Gelu x", {"x": X}, "y", {}),
    "quick-gelu": ("QuickGelu x", {"x": X}, "y", {}),
    "matmul": (
        *("FusedMatMul x,z", {"x": X, "z": normal(BATCH, 7, LENGTH)}, "y"),
        {"alpha": 0.5, "transA": 1, "transB": 1},
    ),
    "gemm": (
        *("FusedGemm x,w,b", {"x": X[0], "w": normal(7, WIDTH), "b": normal(7)}, "y"),
        {"activation": "LeakyRelu", "activation_alpha": 0.2, "transB": 1},
    ),
    "gated-norm": ("GatedRMSNorm x,G,x2", {"x": X, "G": normal(4), "x2": X * 2}, "y", {}),
    "gate": (
        *("LinearAttentionGate a,A,D,b", {"a": X, "A": normal(12), "D": normal(12), "b": X * 2}),
        *("y,t", {}),
    ),
    "conv": (
        *("CausalConvWithState x,W,B,p", CONV, "y,t", {"activation": "silu"}),
    ),
    "skip": (
        *("SkipLayerNormalization x,s,g,e,b", SKIP, "y,,,t", {"epsilon": 1e-5}),
    ),
    "skip-simplified": (
        *("SkipSimplifiedLayerNormalization x,s,g,b", SKIP, "y,,,t", {}),
    ),
}  # fmt: skip


def build(name: str) -> tuple[Any, dict[str, Any]]:
    """Return a case's model and feeds; what has a capital letter is a constant."""
    call, arrays, outputs, attributes = CASES[name]
    operator, inputs = call.split()
    names = inputs.split(",")
    feeds = {n: arrays[n] for n in names if n}
    kinds = {np.dtype(np.float32): FLOAT, np.dtype(np.int32): TensorProto.INT32}
    kinds[np.dtype(np.uint8)] = TensorProto.UINT8
    results = [n or f"unread{place}" for place, n in enumerate(outputs.split(","))]
    made = node(
        operator, " ".join(n or "_" for n in names), " ".join(results),
        domain=MICROSOFT, **attributes,
    )  # fmt: skip
    proto = model(
        [made],
        [value(n, kinds[x.dtype], x.shape) for n, x in feeds.items() if not n.isupper()],
        [value(n, FLOAT, None) for n in outputs.split(",") if n],
        {n: x for n, x in feeds.items() if n.isupper()},
        domains={MICROSOFT: 1},
    )
    return proto, {n: x for n, x in feeds.items() if not n.isupper()}


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str) -> None:
    proto, feeds = build(name)
    expected = session(proto, disabled=("microsoft-operators",)).run(None, feeds)
    done = session(proto)
    assert notes(done, "microsoft-operators")[0].startswith("matched 1 ")
    for new, old in zip(done.run(None, feeds), expected, strict=True):
        assert (new.dtype, new.shape) == (old.dtype, old.shape)
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("same", [True, False])
def test_causal_attention_of_one_input(same: bool) -> None:
    nodes = [node("MatMul", f"{'x' if same or n == 'q' else 'z'} W", n) for n in "qkv"]
    last = node("MultiHeadAttention", "q k v", "y", domain=MICROSOFT, unidirectional=1, **OWN)
    feeds = dict.fromkeys("x" if same else "xz", X)
    proto = model(
        [*nodes, last],
        [value(n, FLOAT, [None] * 3) for n in feeds],
        [value("y", FLOAT, None)],
        {"W": normal(WIDTH, WIDTH)},
        domains={MICROSOFT: 1},
    )
    done = session(proto)
    assert notes(done, "microsoft-operators")[0].startswith("matched" if same else "nearly")
    expected = session(proto, disabled=("microsoft-operators",)).run(None, feeds)
    np.testing.assert_allclose(done.run(None, feeds)[0], expected[0], rtol=1e-5, atol=1e-5)


def test_what_is_not_clear_is_left() -> None:
    proto, feeds = build("attention-by-lengths")
    mask = next(value for value in proto.graph.input if value.name == "m")
    mask.type.tensor_type.shape.dim[0].dim_param = "unknown"
    done = session(proto)
    assert "what its mask of one axis says is not known" in notes(done, "microsoft-operators")[0]
    assert done.run(None, feeds)[0].shape == X.shape


def test_layer_normalization_of_onnxruntimes_optimizer() -> None:
    feeds = {"x": X, "s": normal(WIDTH), "b": normal(WIDTH)}
    inputs = [value(n, FLOAT, x.shape) for n, x in feeds.items()]
    norm = [node("LayerNormalization", "x s b", "y", axis=-1)]
    results = [
        session(model(norm, inputs, [value("y", FLOAT, None)], opset=opset)).run(None, feeds)[0]
        for opset in (12, 17)
    ]
    np.testing.assert_array_equal(*results)
