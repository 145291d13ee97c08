"""EdgeNeXt: depthwise convolutions of growing windows, and attention between channels."""

from __future__ import annotations

from bench.builder import Builder
from bench.convnets import CLASSES, finish
from bench.models import Built
from bench.transformers import gelu, layer_norm, linear

TO_TOKENS, TO_PIXELS = [0, 2, 3, 1], [0, 3, 1, 2]

# Channels, blocks, window, whether the last block attends, and in how many parts it convolves.
STAGES = (
    (24, 2, 3, 0),
    (48, 2, 5, 2),
    (88, 6, 7, 3),
    (168, 2, 9, 4),
)


def edgenext(image: int = 256, stages: tuple[tuple[int, int, int, int], ...] = STAGES) -> Built:
    """EdgeNeXt-XXS, without the encoding of places."""
    b = Builder()
    x, inner = "image", 3
    for number, (width, blocks, window, parts) in enumerate(stages):
        size = 2 if number else 4
        x = _normed(b, x, inner) if number else x
        weight = b.normal(width, inner, size, size)
        x = b("Conv", x, weight, b.small(width), kernel_shape=[size] * 2, strides=[size] * 2)
        x = x if number else _normed(b, x, width)
        for block in range(blocks):
            attends = parts and block == blocks - 1
            x = _attending(b, x, width, parts) if attends else _convolving(b, x, width, window)
        inner = width
    features = layer_norm(b, b("Flatten", b("GlobalAveragePool", x), axis=1), inner)
    b("Gemm", features, b.normal(inner, CLASSES), b.small(CLASSES), out="scores")
    return finish(b, image)


def _normed(b: Builder, x: str, width: int) -> str:
    """Norms of each pixel's channels."""
    tokens = layer_norm(b, b("Transpose", x, perm=TO_TOKENS), width)
    return b("Transpose", tokens, perm=TO_PIXELS)


def _depthwise(b: Builder, x: str, width: int, window: int) -> str:
    weight, pads = b.normal(width, 1, window, window), [window // 2] * 4
    return b("Conv", x, weight, b.small(width), kernel_shape=[window] * 2, pads=pads, group=width)


def _widened(b: Builder, x: str, width: int) -> str:
    """Two dense layers over channels, the second's outcome scaled."""
    hidden = gelu(b, linear(b, layer_norm(b, x, width), width, 4 * width))
    return b("Mul", linear(b, hidden, 4 * width, width), b.small(width, around=0.5))


def _convolving(b: Builder, x: str, width: int, window: int) -> str:
    tokens = b("Transpose", _depthwise(b, x, width, window), perm=TO_TOKENS)
    return b("Add", x, b("Transpose", _widened(b, tokens, width), perm=TO_PIXELS))


def _attending(b: Builder, x: str, width: int, parts: int, heads: int = 4) -> str:
    """Part of the channels are convolved, each with the one before; then channels attend."""
    each = -(-width // parts)
    sizes = [each] * (parts - 1) + [width - each * (parts - 1)]
    names = [f"{x}_part{number}" for number in range(parts)]
    b.many("Split", x, b.ints(*sizes), outputs=names, axis=1)
    told: list[str] = []
    for part in names[:-1]:
        part = b("Add", told[-1], part) if told else part
        told.append(_depthwise(b, part, each, 3))
    mixed = b("Concat", *told, names[-1], axis=1)
    shape = b("Shape", mixed)
    flat = b("Reshape", mixed, b.ints(0, width, -1))
    tokens = b("Transpose", flat, perm=[0, 2, 1])
    between = _between_channels(b, layer_norm(b, tokens, width), width, heads)
    tokens = b("Add", tokens, b("Mul", between, b.small(width, around=0.5)))
    tokens = _widened(b, tokens, width)
    return b("Add", x, b("Reshape", b("Transpose", tokens, perm=[0, 2, 1]), shape))


def _between_channels(b: Builder, x: str, width: int, heads: int) -> str:
    """Attention whose scores are products of channels over all pixels."""
    split = b("Reshape", linear(b, x, width, 3 * width), b.ints(0, 0, 3, heads, width // heads))
    parts = b("Transpose", split, perm=[2, 0, 3, 4, 1])
    q, k, v = (b("Gather", parts, b.scalar(number), axis=0) for number in range(3))
    q, k = (b("Div", y, b("Clip", b("ReduceL2", y, axes=[-1]), b.number(1e-12))) for y in (q, k))
    scores = b("MatMul", q, b("Transpose", k, perm=[0, 1, 3, 2]))
    weights = b("Softmax", b("Mul", scores, b.small(heads, 1, 1, around=1)), axis=-1)
    mixed = b("Transpose", b("MatMul", weights, v), perm=[0, 3, 1, 2])
    return linear(b, b("Reshape", mixed, b.ints(0, 0, width)), width, width)
