"""Convolutional networks in the shapes of ResNet-50 and MobileNetV2, batch norms folded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from bench.builder import FLOAT, Builder, Feeds

CLASSES = 1000


def conv(
    b: Builder,
    x: str,
    inner: int,
    outer: int,
    kernel: int,
    stride: int = 1,
    *,
    group: int = 1,
    gain: float = 1.4,
) -> str:
    """A convolution that keeps the size, or divides it by the stride, and its bias."""
    return b(
        "Conv",
        x,
        b.normal(outer, inner // group, kernel, kernel, scale=gain),
        b.small(outer),
        kernel_shape=[kernel, kernel],
        pads=[kernel // 2] * 4,
        strides=[stride, stride],
        group=group,
    )


def classify(b: Builder, x: str, channels: int) -> None:
    """Average the pixels and add the classifier, whose output is ``"scores"``."""
    features = b("Flatten", b("GlobalAveragePool", x), axis=1)
    b("Gemm", features, b.normal(channels, CLASSES), b.small(CLASSES), out="scores")


def finish(b: Builder, image: int) -> tuple[onnx.ModelProto, Feeds]:
    proto = b.model(
        {"image": (FLOAT, ["batch", 3, image, image])}, {"scores": (FLOAT, ["batch", CLASSES])}
    )
    pixels = np.random.default_rng(1).standard_normal((1, 3, image, image), dtype=np.float32)
    return proto, {"image": pixels}


def bottleneck(b: Builder, x: str, inner: int, width: int, stride: int) -> str:
    outer = 4 * width
    y = b("Relu", conv(b, x, inner, width, 1))
    y = b("Relu", conv(b, y, width, width, 3, stride))
    y = conv(b, y, width, outer, 1, gain=0.5)
    if stride > 1 or inner != outer:
        x = conv(b, x, inner, outer, 1, stride, gain=1.0)
    return b("Relu", b("Add", y, x))


def resnet50(
    *, image: int = 224, blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64
) -> tuple[onnx.ModelProto, Feeds]:
    b = Builder()
    x = b("Relu", conv(b, "image", 3, width, 7, 2))
    x = b("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            x = bottleneck(b, x, channels, width << stage, stride)
            channels = 4 * width << stage
    classify(b, x, channels)
    return finish(b, image)


def relu6(b: Builder, x: str) -> str:
    return b("Clip", x, b.number(0), b.number(6))


def inverted_residual(
    b: Builder, x: str, inner: int, outer: int, stride: int, expansion: int
) -> str:
    hidden = inner * expansion
    y = relu6(b, conv(b, x, inner, hidden, 1)) if expansion > 1 else x
    y = relu6(b, conv(b, y, hidden, hidden, 3, stride, group=hidden))
    y = conv(b, y, hidden, outer, 1, gain=0.7)
    return b("Add", x, y) if stride == 1 and inner == outer else y


# Expansion, channels, blocks, stride of the first block.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(
    *, image: int = 224, stages: Sequence[tuple[int, int, int, int]] = STAGES
) -> tuple[onnx.ModelProto, Feeds]:
    b = Builder()
    channels = 32
    x = relu6(b, conv(b, "image", 3, channels, 3, 2))
    for expansion, outer, count, stride in stages:
        for block in range(count):
            x = inverted_residual(b, x, channels, outer, 1 if block else stride, expansion)
            channels = outer
    x = relu6(b, conv(b, x, channels, 1280, 1))
    classify(b, x, 1280)
    return finish(b, image)
