"""An encoder like BERT, a ViT and a decoding step like GPT's, as exporters write them."""

from __future__ import annotations

import math

import numpy as np
import onnx

from bench.builder import FLOAT, INT64, Builder, Feeds, Specs

PAST = 128
LENGTH = 128


def linear(b: Builder, x: str, inner: int, outer: int) -> str:
    """A matrix product and a bias."""
    return b("Add", b("MatMul", x, b.normal(inner, outer)), b.small(outer))


def split_heads(b: Builder, x: str, heads: int, size: int) -> str:
    """``[batch, length, heads * size]`` to ``[batch, heads, length, size]``."""
    return b("Transpose", b("Reshape", x, b.ints(0, 0, heads, size)), perm=[0, 2, 1, 3])


def join_heads(b: Builder, x: str, width: int) -> str:
    """The inverse of ``split_heads``."""
    return b("Reshape", b("Transpose", x, perm=[0, 2, 1, 3]), b.ints(0, 0, width))


def attend(b: Builder, q: str, k: str, v: str, size: int, mask: str | None = None) -> str:
    """Scaled dot products of queries and keys, softmax, and the values they weigh."""
    scores = b("MatMul", q, b("Transpose", k, perm=[0, 1, 3, 2]))
    scores = b("Div", scores, b.number(math.sqrt(size)))
    if mask is not None:
        scores = b("Add", scores, mask)
    return b("MatMul", b("Softmax", scores, axis=-1), v)


def gelu(b: Builder, x: str) -> str:
    """The exact GELU, in the five nodes that exporters write for it."""
    erf = b("Erf", b("Div", x, b.number(math.sqrt(2))))
    return b("Mul", b("Mul", x, b("Add", erf, b.number(1))), b.number(0.5))


def layer_norm(b: Builder, x: str, width: int) -> str:
    return b("LayerNormalization", x, b.small(width, around=1), b.small(width), axis=-1)


def encoder(
    *, layers: int = 4, width: int = 512, heads: int = 8, vocabulary: int = 16384, batch: int = 1
) -> tuple[onnx.ModelProto, Feeds]:
    """A BERT-like encoder of sequences with an attention mask."""
    b = Builder()
    size = width // heads
    positions = b("Slice", b.small(512, width), b.ints(0), b.ints(LENGTH), b.ints(0))
    x = b("Add", b("Gather", b.small(vocabulary, width), "ids"), positions)
    x = layer_norm(b, x, width)
    seen = b("Cast", b("Unsqueeze", "mask", b.ints(1, 2)), to=FLOAT)
    mask = b("Mul", b("Sub", b.number(1), seen), b.number(-1e4))
    for _ in range(layers):
        q, k, v = (split_heads(b, linear(b, x, width, width), heads, size) for _ in range(3))
        mixed = join_heads(b, attend(b, q, k, v, size, mask), width)
        x = layer_norm(b, b("Add", x, linear(b, mixed, width, width)), width)
        hidden = gelu(b, linear(b, x, width, 4 * width))
        x = layer_norm(b, b("Add", x, linear(b, hidden, 4 * width, width)), width)
    b("Identity", x, out="hidden")
    shape: list[int | str] = ["batch", LENGTH]
    proto = b.model(
        {"ids": (INT64, shape), "mask": (INT64, shape)}, {"hidden": (FLOAT, [*shape, width])}
    )
    seen_tokens = (np.arange(LENGTH) < LENGTH * 3 // 4).astype(np.int64)
    mask_feed = np.tile(seen_tokens, (batch, 1))
    ids = np.random.default_rng(1).integers(0, vocabulary, (batch, LENGTH))
    return proto, {"ids": ids, "mask": mask_feed}


def vision(
    *, layers: int = 12, width: int = 768, heads: int = 12, image: int = 224, patch: int = 16
) -> tuple[onnx.ModelProto, Feeds]:
    """An image classifier like ViT: patches as tokens, and norms before attention."""
    b = Builder()
    size, count = width // heads, (image // patch) ** 2
    kernel = b.normal(width, 3, patch, patch)
    x = b("Conv", "image", kernel, b.small(width), strides=[patch] * 2, kernel_shape=[patch] * 2)
    x = b("Transpose", b("Reshape", x, b.ints(0, width, count)), perm=[0, 2, 1])
    x = b("Concat", b.small(1, 1, width), x, axis=1)
    x = b("Add", x, b.small(1, count + 1, width))
    for _ in range(layers):
        normed = layer_norm(b, x, width)
        parts = (linear(b, normed, width, width) for _ in range(3))
        q, k, v = (split_heads(b, part, heads, size) for part in parts)
        x = b("Add", x, linear(b, join_heads(b, attend(b, q, k, v, size), width), width, width))
        hidden = gelu(b, linear(b, layer_norm(b, x, width), width, 4 * width))
        x = b("Add", x, linear(b, hidden, 4 * width, width))
    first = b("Gather", layer_norm(b, x, width), b.scalar(0), axis=1)
    b("Gemm", first, b.normal(width, 1000), b.small(1000), out="scores")
    pixels = np.random.default_rng(1).standard_normal((1, 3, image, image), dtype=np.float32)
    return b.model({"image": (FLOAT, [1, 3, image, image])}, {"scores": (FLOAT, [1, 1000])}), {
        "image": pixels
    }


def rms_norm(b: Builder, x: str, width: int) -> str:
    mean = b("ReduceMean", b("Pow", x, b.number(2)), axes=[-1], keepdims=1)
    root = b("Sqrt", b("Add", mean, b.number(1e-6)))
    return b("Mul", b("Div", x, root), b.small(width, around=1))


def rotate(b: Builder, x: str, cos: str, sin: str, size: int) -> str:
    """Rotary position embedding: the halves of each head turned by the position's angle."""
    low = b("Slice", x, b.ints(0), b.ints(size // 2), b.ints(3))
    high = b("Slice", x, b.ints(size // 2), b.ints(size), b.ints(3))
    turned = b("Concat", b("Neg", high), low, axis=-1)
    return b("Add", b("Mul", x, cos), b("Mul", turned, sin))


def angles(b: Builder, size: int) -> tuple[str, str]:
    """Cosine and sine of the position's angles, over ``[batch, 1, length, size]``."""
    rates = 10000.0 ** (-np.arange(0, size, 2) / size)
    table = np.outer(np.arange(1024), np.concatenate([rates, rates]))
    cos, sin = (b.weight(f(table).astype(np.float32)) for f in (np.cos, np.sin))
    axis = b.ints(1)
    return tuple(b("Unsqueeze", b("Gather", t, "position"), axis) for t in (cos, sin))  # type: ignore[return-value] # two of them


def decoder(
    *,
    layers: int = 4,
    width: int = 512,
    heads: int = 8,
    vocabulary: int = 16384,
    tokens: int = PAST,
) -> tuple[onnx.ModelProto, Feeds]:
    """One decoding step of a GPT-like model: a token, a cache, an embedding tied to the head."""
    b = Builder()
    size = width // heads
    random = np.random.default_rng(1)
    feeds: Feeds = {"ids": np.array([[3]]), "position": np.array([[tokens]])}
    inputs: Specs = {"ids": (INT64, ["batch", 1]), "position": (INT64, ["batch", 1])}
    outputs: Specs = {"logits": (FLOAT, ["batch", 1, vocabulary])}
    embedding = b.small(vocabulary, width)
    x = b("Gather", embedding, "ids")
    cos, sin = angles(b, size)
    for layer in range(layers):
        normed = rms_norm(b, x, width)
        q, k, v = (split_heads(b, linear(b, normed, width, width), heads, size) for _ in range(3))
        q, k = rotate(b, q, cos, sin, size), rotate(b, k, cos, sin, size)
        grown = []
        for name, new in (("k", k), ("v", v)):
            past, present = f"past_{name}{layer}", f"present_{name}{layer}"
            inputs[past] = (FLOAT, ["batch", heads, "past", size])
            outputs[present] = (FLOAT, ["batch", heads, "total", size])
            feeds[past] = random.standard_normal((1, heads, tokens, size), dtype=np.float32)
            grown.append(b("Concat", past, new, axis=2, out=present))
        mixed = join_heads(b, attend(b, q, grown[0], grown[1], size), width)
        x = b("Add", x, linear(b, mixed, width, width))
        up = linear(b, rms_norm(b, x, width), width, 4 * width)
        x = b("Add", x, linear(b, b("Mul", up, b("Sigmoid", up)), 4 * width, width))
    b("MatMul", rms_norm(b, x, width), b("Transpose", embedding, perm=[1, 0]), out="logits")
    return b.model(inputs, outputs), feeds
