"""Small models of the kinds whose inputs have another shape in nearly every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from bench.builder import FLOAT, INT64, Builder, Feeds, Specs
from bench.convnets import conv, inverted_residual, relu6
from bench.transformers import attend, gelu, join_heads, layer_norm, linear, split_heads

Runs = Iterator[Feeds]
# A model, and its inputs of as many runs as are asked for.
Case = tuple[onnx.ModelProto, Callable[[int], Runs]]

WIDTH, HEADS = 256, 4


def recognizer() -> Case:
    """Read a line of text: convolutions, a recurrent layer in both directions, a classifier."""
    b = Builder()
    x, inner = "image", 3
    for outer, kernel, strides in ((32, 3, [2, 2]), (64, 3, [2, 1]), (128, 3, [2, 1])):
        x = b("Relu", conv(b, x, inner, outer, kernel))
        x = b("MaxPool", x, kernel_shape=strides, strides=strides)
        inner = outer
    x = b("Relu", conv(b, x, inner, 128, 3))
    x = b("ReduceMean", x, axes=[2], keepdims=0)
    x = b("Transpose", x, perm=[2, 0, 1])
    w, r = b.normal(2, 4 * 96, 128, scale=0.3), b.normal(2, 4 * 96, 96, scale=0.3)
    x = b("LSTM", x, w, r, b.small(2, 8 * 96), direction="bidirectional", hidden_size=96)
    x = b("Reshape", b("Transpose", x, perm=[0, 2, 1, 3]), b.ints(0, 0, -1))
    b("Softmax", linear(b, x, 192, 512), axis=-1, out="text")
    proto = b.model(
        {"image": (FLOAT, ["n", 3, 32, "width"])}, {"text": (FLOAT, ["time", "n", 512])}
    )

    def runs(count: int) -> Runs:
        random = np.random.default_rng(1)
        for width in _others(random, 64, 640, count):
            batch = int(random.integers(1, 4))
            yield {"image": random.standard_normal((batch, 3, 32, width), np.float32)}

    return proto, runs


def detector() -> Case:
    """Mark text in an image: a backbone of inverted residuals, and maps of several scales."""
    b = Builder()
    x = relu6(b, conv(b, "image", 3, 16, 3, 2))
    maps, inner = [], 16
    for outer in (24, 32, 64):
        x = inverted_residual(b, x, inner, outer, 2, 4)
        x = inverted_residual(b, x, outer, outer, 1, 4)
        inner = outer
        maps.append(conv(b, x, outer, 32, 1))
    y = maps.pop()
    while maps:
        y = b("Resize", y, "", b.weight(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
        y = b("Add", y, maps.pop())
    y = b("Relu", conv(b, y, 32, 16, 3))
    y = b("ConvTranspose", y, b.normal(16, 1, 2, 2), b.small(1), strides=[2, 2])
    b("Sigmoid", y, out="map")
    proto = b.model(
        {"image": (FLOAT, ["n", 3, "height", "width"])}, {"map": (FLOAT, ["n", 1, "h", "w"])}
    )

    def runs(count: int) -> Runs:
        random = np.random.default_rng(1)
        sizes = [(16 * h, 16 * w) for h in range(6, 24) for w in range(6, 24)]
        for n in range(count):
            batch, (h, w) = 1 + n // len(sizes), sizes[n * 127 % len(sizes)]
            yield {"image": random.standard_normal((batch, 3, h, w), np.float32)}

    return proto, runs


def spectrogram() -> Case:
    """Classify sound: a spectrogram as convolutions of 512 taps, bands, and convolutions."""
    b = Builder()
    parts = []
    x = b("Unsqueeze", "sound", b.ints(1))
    for _ in range(2):
        part = b("Conv", x, b.normal(257, 1, 512), strides=[160], pads=[256, 256])
        parts.append(b("Mul", part, part))
    x = b("Transpose", b("Add", *parts), perm=[0, 2, 1])
    bands = b.weight(np.abs(b.random.standard_normal((257, 64), np.float32)) / 64)
    x = b("Log", b("Clip", b("MatMul", x, bands), b.number(1e-5)))
    x = b("Unsqueeze", b("Transpose", x, perm=[0, 2, 1]), b.ints(1))
    x = b("Relu", conv(b, x, 1, 16, 3, 2))
    x = b("Relu", conv(b, x, 16, 32, 3, 2))
    x = b("Flatten", b("GlobalAveragePool", x), axis=1)
    b("Gemm", x, b.normal(32, 50), b.small(50), out="scores")
    proto = b.model({"sound": (FLOAT, ["n", "samples"])}, {"scores": (FLOAT, ["n", 50])})

    def runs(count: int) -> Runs:
        random = np.random.default_rng(1)
        for length in _others(random, 4000, 32000, count):
            yield {"sound": random.standard_normal((1, length), np.float32)}

    return proto, runs


def voice() -> Case:
    """Return where somebody speaks: a chunk of each of some streams, and their state."""
    b = Builder()
    x = b("Relu", b("Conv", "chunk", b.normal(64, 1, 64), strides=[16]))
    x = b("Relu", b("Conv", x, b.normal(64, 64, 3), pads=[1, 1]))
    x = b("Transpose", x, perm=[2, 0, 1])
    w, r = b.normal(1, 3 * 64, 64, scale=0.3), b.normal(1, 3 * 64, 64, scale=0.3)
    b.many("GRU", x, w, r, b.small(1, 6 * 64), "", "state", outputs=["all", "next"], hidden_size=64)
    y = b("ReduceMean", b("Squeeze", "all", b.ints(1)), axes=[0], keepdims=0)
    b("Sigmoid", linear(b, y, 64, 1), out="speech")
    inputs: Specs = {"chunk": (FLOAT, ["n", 1, 512]), "state": (FLOAT, [1, "n", 64])}
    proto = b.model(inputs, {"speech": (FLOAT, ["n", 1]), "next": inputs["state"]})

    def runs(count: int) -> Runs:
        random = np.random.default_rng(1)
        for n in _others(random, 1, 65, count):
            chunk = random.standard_normal((n, 1, 512), np.float32)
            yield {"chunk": chunk, "state": np.zeros((1, n, 64), np.float32)}

    return proto, runs


def bert() -> Case:
    """Encode texts of 1 to 512 tokens."""
    b = Builder()
    length = b("Slice", b("Shape", "ids"), b.ints(1), b.ints(2))
    positions = b("Slice", b.small(512, WIDTH), b.ints(0), length, b.ints(0))
    x = layer_norm(b, b("Add", b("Gather", b.small(4096, WIDTH), "ids"), positions), WIDTH)
    seen = b("Cast", b("Unsqueeze", "mask", b.ints(1, 2)), to=FLOAT)
    mask = b("Mul", b("Sub", b.number(1), seen), b.number(-1e4))
    for _ in range(4):
        x = _attended(b, x, x, mask)
        hidden = gelu(b, linear(b, x, WIDTH, 4 * WIDTH))
        x = layer_norm(b, b("Add", x, linear(b, hidden, 4 * WIDTH, WIDTH)), WIDTH)
    b("Identity", x, out="hidden")
    inputs: Specs = {name: (INT64, ["n", "length"]) for name in ("ids", "mask")}
    proto = b.model(inputs, {"hidden": (FLOAT, ["n", "length", WIDTH])})

    def runs(count: int) -> Runs:
        random = np.random.default_rng(1)
        for tokens in _others(random, 1, 513, count):
            ids = random.integers(0, 4096, (1, tokens))
            yield {"ids": ids, "mask": np.ones_like(ids)}

    return proto, runs


def t5() -> Case:
    """Write one token after the other: caches grow, and texts of other lengths follow."""
    b = Builder()
    size = WIDTH // HEADS
    inputs: Specs = {"ids": (INT64, ["n", 1]), "text": (FLOAT, ["n", "length", WIDTH])}
    outputs: Specs = {"logits": (FLOAT, ["n", 1, 4096])}
    x = b("Gather", b.small(4096, WIDTH), "ids")
    for layer in range(4):
        y = layer_norm(b, x, WIDTH)
        q, k, v = (split_heads(b, linear(b, y, WIDTH, WIDTH), HEADS, size) for _ in range(3))
        grown = []
        for name, new in (("k", k), ("v", v)):
            past, present = f"past_{name}{layer}", f"present_{name}{layer}"
            inputs[past] = (FLOAT, ["n", HEADS, "past", size])
            outputs[present] = (FLOAT, ["n", HEADS, "total", size])
            grown.append(b("Concat", past, new, axis=2, out=present))
        mixed = join_heads(b, attend(b, q, grown[0], grown[1], size), WIDTH)
        x = b("Add", x, linear(b, mixed, WIDTH, WIDTH))
        x = _attended(b, x, "text")
        x = b("Add", x, linear(b, b("Relu", linear(b, x, WIDTH, 1024)), 1024, WIDTH))
    b("MatMul", x, b.normal(WIDTH, 4096), out="logits")

    def runs(count: int) -> Runs:
        random = np.random.default_rng(1)
        for n in range(count):
            if n % 20 == 0:
                text = random.standard_normal((1, int(random.integers(4, 200)), WIDTH), np.float32)
            cache = random.standard_normal((1, HEADS, n % 20 + 1 + n // 20 % 3, size), np.float32)
            pasts = {name: cache for name in inputs if name.startswith("past")}
            yield {"ids": np.array([[n]]), "text": text, **pasts}

    return b.model(inputs, outputs), runs


def _attended(b: Builder, x: str, text: str, mask: str | None = None) -> str:
    """Add attention to a text, and the norm behind it."""
    size = WIDTH // HEADS
    q, k, v = (
        split_heads(b, linear(b, each, WIDTH, WIDTH), HEADS, size) for each in (x, text, text)
    )
    mixed = join_heads(b, attend(b, q, k, v, size, mask), WIDTH)
    return layer_norm(b, b("Add", x, linear(b, mixed, WIDTH, WIDTH)), WIDTH)


def _others(random: np.random.Generator, least: int, end: int, count: int) -> Iterator[int]:
    """Yield numbers of a range, in an order of their own; again when all have been."""
    numbers: list[Any] = []
    for _ in range(count):
        if not numbers:
            numbers = random.permutation(np.arange(least, end)).tolist()
        yield int(numbers.pop())


CASES: Mapping[str, Callable[[], Case]] = {
    "recognizer": recognizer,
    "detector": detector,
    "spectrogram": spectrogram,
    "voice": voice,
    "bert": bert,
    "t5": t5,
}
