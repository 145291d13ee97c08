"""Decoder layers in the shapes of Phi-3-mini, their matrices of 4 bits in either form or floats."""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx

from bench.builder import FLOAT, INT64, MICROSOFT, Builder, Feeds, Specs
from bench.transformers import angles, attend, join_heads, rotate, split_heads

Form = Literal["qdq", "nbits", "float"]
BLOCK = 32
WIDTH, INNER, HEADS = 3072, 8192, 32


def linear(b: Builder, x: str, inner: int, outer: int, form: Form) -> str:
    """A product with a matrix: an int4 one dequantized by a node of its own or by it, or floats."""
    if form == "float":
        return b("MatMul", x, b.small(inner, outer))
    if form == "qdq":
        w, scales = b.int4(inner, outer, BLOCK)
        return b("MatMul", x, b("DequantizeLinear", w, scales, axis=0, block_size=BLOCK))
    w, scales = b.nbits(inner, outer, BLOCK)
    return b(
        "MatMulNBits", x, w, scales, domain=MICROSOFT,
        K=inner, N=outer, bits=4, block_size=BLOCK, accuracy_level=4,
    )  # fmt: skip


def rms_norm(b: Builder, x: str, width: int) -> str:
    """As in ``transformers``, by the operators of a version that has 4-bit matrices."""
    mean = b("ReduceMean", b("Pow", x, b.number(2)), b.ints(-1), keepdims=1)
    root = b("Sqrt", b("Add", mean, b.number(1e-5)))
    return b("Mul", b("Div", x, root), b.small(width, around=1))


def phi3(
    *,
    form: Form,
    tokens: int = 1,
    past: int = 128,
    layers: int = 2,
    width: int = WIDTH,
    inner: int = INNER,
    heads: int = HEADS,
) -> tuple[onnx.ModelProto, Feeds]:
    """Some layers over hidden states of a few tokens, after others in a cache.

    More layers take longer, but nothing else: their weights are beyond any cache as it is.
    """
    b = Builder()
    size = width // heads
    random = np.random.default_rng(1)
    feeds: Feeds = {
        "x": random.standard_normal((1, tokens, width), dtype=np.float32),
        "position": np.arange(past, past + tokens)[None],
    }
    inputs: Specs = {"x": (FLOAT, ["batch", "length", width]), "position": (INT64, [1, "length"])}
    outputs: Specs = {"y": (FLOAT, ["batch", "length", width])}
    cos, sin = angles(b, size)
    later = np.triu(np.ones((tokens, tokens), bool), 1)
    mask = np.where(np.pad(later, ((0, 0), (past, 0))), np.float32(-1e4), np.float32(0))
    mask_name = b.weight(mask[None, None]) if tokens > 1 else None
    x = "x"
    for layer in range(layers):
        qkv = linear(b, rms_norm(b, x, width), width, 3 * width, form)
        names = [f"{name}_of_{layer}" for name in "qkv"]
        b.many("Split", qkv, b.ints(width, width, width), outputs=names, axis=-1)
        q, k, v = (split_heads(b, name, heads, size) for name in names)
        q, k = rotate(b, q, cos, sin, size), rotate(b, k, cos, sin, size)
        grown = []
        for name, new in (("k", k), ("v", v)):
            key, present = f"past_{name}{layer}", f"present_{name}{layer}"
            inputs[key] = (FLOAT, ["batch", heads, "past", size])
            outputs[present] = (FLOAT, ["batch", heads, "total", size])
            feeds[key] = random.standard_normal((1, heads, past, size), dtype=np.float32)
            grown.append(b("Concat", key, new, axis=2, out=present))
        mixed = join_heads(b, attend(b, q, grown[0], grown[1], size, mask_name), width)
        x = b("Add", x, linear(b, mixed, width, width, form))
        both = linear(b, rms_norm(b, x, width), width, 2 * inner, form)
        gate, up = f"gate{layer}", f"up{layer}"
        b.many("Split", both, b.ints(inner, inner), outputs=[gate, up], axis=-1)
        hidden = b("Mul", b("Mul", gate, b("Sigmoid", gate)), up)
        x = b("Add", x, linear(b, hidden, inner, width, form))
    b("Identity", x, out="y")
    return b.model(inputs, outputs, opset=21), feeds
