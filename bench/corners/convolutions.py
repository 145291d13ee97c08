"""Convolutions of three axes, those among attention, and networks of a few channels."""

from __future__ import annotations

import numpy as np

from bench.builder import FLOAT, Builder
from bench.corners.exported import exported
from bench.cpu.table import Row
from bench.models import Built
from bench.transformers import attend, gelu, join_heads, layer_norm, linear, split_heads


def conv3d(channels: int = 32, depth: int = 8, size: int = 32) -> Built:
    """Two convolutions of 3 x 3 x 3 and a Relu between, over a film."""
    b = Builder()
    x = b("Relu", _conv(b, "x", 3, channels))
    b("Identity", _conv(b, x, channels, channels), out="y")
    shape = [1, 3, depth, size, size]
    proto = b.model({"x": (FLOAT, shape)}, {"y": (FLOAT, [1, channels, depth, size, size])})
    return proto, {"x": np.random.default_rng(1).standard_normal(shape, dtype=np.float32)}


def _conv(b: Builder, x: str, inner: int, outer: int) -> str:
    return b("Conv", x, b.normal(outer, inner, 3, 3, 3), b.small(outer), pads=[1] * 6)


def segformer(size: int = 32, width: int = 160, heads: int = 5, stride: int = 2) -> Built:
    """A block of SegFormer: attention to fewer pixels, and a depthwise convolution between."""
    b = Builder()
    tokens, each = size * size, width // heads
    normed = layer_norm(b, "x", width)
    reduced = b(
        "Conv", _pixels(b, normed, width, size), b.normal(width, width, stride, stride),
        b.small(width), strides=[stride] * 2,
    )  # fmt: skip
    fewer = layer_norm(b, _tokens(b, reduced, width), width)
    q, k, v = (
        split_heads(b, linear(b, x, width, width), heads, each) for x in (normed, fewer, fewer)
    )
    mixed = linear(b, join_heads(b, attend(b, q, k, v, each), width), width, width)
    x = b("Add", "x", mixed)
    inner = 4 * width
    hidden = _pixels(b, linear(b, layer_norm(b, x, width), width, inner), inner, size)
    hidden = b("Conv", hidden, b.normal(inner, 1, 3, 3), b.small(inner), pads=[1] * 4, group=inner)
    b("Add", x, linear(b, gelu(b, _tokens(b, hidden, inner)), inner, width), out="y")
    shape = [1, tokens, width]
    proto = b.model({"x": (FLOAT, shape)}, {"y": (FLOAT, shape)})
    return proto, {"x": np.random.default_rng(1).standard_normal(shape, dtype=np.float32)}


def _pixels(b: Builder, x: str, channels: int, size: int) -> str:
    return b("Reshape", b("Transpose", x, perm=[0, 2, 1]), b.ints(0, channels, size, size))


def _tokens(b: Builder, x: str, channels: int) -> str:
    return b("Transpose", b("Reshape", x, b.ints(0, channels, -1)), perm=[0, 2, 1])


ROWS = {
    "conv3d": Row("Conv of 3 x 3 x 3, 8 x 32 x 32 pixels", conv3d, lambda: conv3d(4, 2, 4)),
    "tiny-resnet": exported("resnet"),
    "tiny-mobilenet": exported("mobilenet"),
    "segformer": Row("SegFormer block, 1,024 x 160", segformer, lambda: segformer(4, 32, 2)),
    "tiny-convnext": exported("convnext-dynamo"),
}
