"""A token of a small decoder: products by 4-bit matrices, attention over a short cache."""

from __future__ import annotations

import numpy as np

from bench.builder import FLOAT, INT64, MICROSOFT, Builder, Specs
from bench.corners.exported import exported
from bench.cpu.table import Row
from bench.llama import Attention, llama
from bench.llm import Form, linear
from bench.models import Built
from bench.transformers import angles, rotate

# Tolerance where both engines round activations to bytes.
BYTES = 0.05


def product(width: int = 512) -> Built:
    """A row by a matrix of 4 bits, activations rounded to 8."""
    b = Builder()
    b("Identity", linear(b, "x", width, width, "nbits"), out="y")
    proto = b.model({"x": (FLOAT, [1, width])}, {"y": (FLOAT, [1, width])}, opset=21)
    return proto, {"x": np.random.default_rng(1).standard_normal((1, width), dtype=np.float32)}


def attention(past: int = 96, heads: int = 8, kv_heads: int = 2, size: int = 64) -> Built:
    """Opset 23's Attention of one query over a cache that grows by it."""
    b = Builder()
    outputs = ("y", "present_key", "present_value")
    b.many("Attention", "q", "k", "v", "", "past_key", "past_value", outputs=outputs)
    shapes = {"q": (heads, 1), "k": (kv_heads, 1), "v": (kv_heads, 1)}
    shapes |= {"past_key": (kv_heads, past), "past_value": (kv_heads, past)}
    random = np.random.default_rng(1)
    feeds = {
        name: random.standard_normal((1, count, length, size), dtype=np.float32)
        for name, (count, length) in shapes.items()
    }
    lengths = dict.fromkeys(("past_key", "past_value"), "past")
    inputs = {n: (FLOAT, [1, shapes[n][0], lengths.get(n, 1), size]) for n in feeds}
    made: Specs = dict.fromkeys(outputs, (FLOAT, [1, kv_heads, "total", size]))
    made |= {"y": (FLOAT, [1, heads, 1, size])}
    return b.model(inputs, made, opset=23), feeds


def step(about: str, form: Form, attends: Attention) -> Row:
    """Return the row of a Llama's step after 96 tokens."""
    small = {"past": 4, "layers": 1, "size": 16, "inner": 64, "vocabulary": 64}
    return Row(
        f"4 layers of Llama, 1 token, {about}",
        lambda: llama(form, attends),
        lambda: llama(form, attends, **small),
        tolerance=BYTES,
    )


def partial_rotary(heads: int = 12, size: int = 64, turned: int = 16) -> Built:
    """The first numbers of each head turned, the others passed on, as GPT-NeoX has them."""
    b = Builder()
    cos, sin = angles(b, turned)
    low, high = (b.ints(number) for number in (0, turned))
    axis = b.ints(3)
    first = b("Slice", "x", low, high, axis)
    rest = b("Slice", "x", high, b.ints(size), axis)
    b("Concat", rotate(b, first, cos, sin, turned), rest, out="y", axis=-1)
    shape = [1, heads, 1, size]
    proto = b.model({"x": (FLOAT, shape), "position": (INT64, [1, 1])}, {"y": (FLOAT, shape)})
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    return proto, {"x": x, "position": np.array([[96]])}


def experts(rows: int = 1, width: int = 256, inner: int = 512, count: int = 8) -> Built:
    """QMoE: two of some experts for a token, their matrices of 4 bits in blocks of 32."""
    b = Builder()
    given = []
    for outer, depth in ((2 * inner, width), (width, inner)):
        codes = b.weight(b.random.integers(0, 256, (count, outer, depth // 2), np.uint8))
        scales = b.random.random((count, outer, depth // 32), np.float32) / np.float32(depth**0.5)
        given += [codes, b.weight(scales / 4), b.small(count, outer)]
    b(
        "QMoE", "x", "routes", *given, out="y", domain=MICROSOFT, k=2, activation_type="swiglu",
        swiglu_fusion=1, normalize_routing_weights=1, expert_weight_bits=4, block_size=32,
    )  # fmt: skip
    random = np.random.default_rng(1)
    feeds = {"x": random.standard_normal((rows, width), dtype=np.float32)}
    feeds["routes"] = random.standard_normal((rows, count), dtype=np.float32)
    shape = (FLOAT, [rows, width])
    proto = b.model({"x": shape, "routes": (FLOAT, [rows, count])}, {"y": shape})
    return proto, feeds


ROWS = {
    "nbits-512": Row(
        "MatMulNBits, 512 x 512, level 4", product, lambda: product(64), tolerance=BYTES
    ),
    "attention-96": Row("Attention, 1 query after 96", attention, lambda: attention(8, 4, 2, 16)),
    "llama-nodes": step("attention in nodes", "nbits", "nodes"),
    "llama-operator": step("opset 23's Attention", "nbits", "operator"),
    "llama-group-query": step("GroupQueryAttention", "nbits", "group-query"),
    "llama-float": step("float32", "float", "nodes"),
    "tiny-llama": exported("llama-dynamo"),
    "partial-rotary": Row("16 of 64 rotated, 12 heads", partial_rotary, partial_rotary),
    "qmoe": Row("QMoE, 2 of 8 experts, 1 row", experts, lambda: experts(1, 64, 64, 4)),
    "qmoe-32": Row(
        "QMoE, 2 of 8 experts, 32 rows", lambda: experts(32), lambda: experts(9, 64, 64, 4)
    ),
}
