"""Networks that beginners export: small images, few channels, some in bytes; and small volumes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.builder import FLOAT, Builder
from bench.convnets import conv
from bench.cpu.table import Row
from bench.models import Built, digits
from bench.smaller import quantized


def _finish(b: Builder, shape: Sequence[int], result: str, rank: int = 2) -> Built:
    b("Identity", result, out="y")
    made = [f"d{axis}" for axis in range(rank)]
    proto = b.model({"x": (FLOAT, list(shape))}, {"y": (FLOAT, made)})
    return proto, {"x": np.random.default_rng(1).standard_normal(shape, dtype=np.float32)}


def _halved(b: Builder, x: str, axes: int = 2) -> str:
    return b("MaxPool", x, kernel_shape=[2] * axes, strides=[2] * axes)


def lenet(batch: int = 1) -> Built:
    """LeNet on images of 28 x 28."""
    b = Builder()
    x = _halved(b, b("Relu", conv(b, "x", 1, 6, 5)))
    x = b("Relu", b("Conv", x, b.normal(16, 6, 5, 5), b.small(16), kernel_shape=[5, 5]))
    x = b("Flatten", _halved(b, x), axis=1)
    for inner, outer in ((400, 120), (120, 84), (84, 10)):
        x = b("Gemm", x, b.normal(outer, inner), b.small(outer), transB=1)
        x = b("Relu", x) if outer > 10 else x
    return _finish(b, (batch, 1, 28, 28), x)


def cifar(widths: Sequence[int] = (32, 64, 128)) -> Built:
    """A network like VGG on an image of 32 x 32."""
    b, x, inner = Builder(), "x", 3
    for outer in widths:
        for _ in range(2):
            x, inner = b("Relu", conv(b, x, inner, outer, 3)), outer
        x = _halved(b, x)
    size = (32 >> len(widths)) ** 2 * inner
    x = b("Gemm", b("Flatten", x, axis=1), b.normal(10, size), b.small(10), transB=1)
    return _finish(b, (1, 3, 32, 32), x)


def autoencoder() -> Built:
    """Convolutions down and transposed ones up again, on an image of 28 x 28."""
    b, x = Builder(), "x"
    for inner, outer in ((1, 16), (16, 32)):
        x = b("Relu", conv(b, x, inner, outer, 3, 2))
    for inner, outer in ((32, 16), (16, 1)):
        x = b(
            "ConvTranspose", x, b.normal(inner, outer, 3, 3), b.small(outer), strides=[2, 2],
            pads=[1] * 4, output_padding=[1, 1],
        )  # fmt: skip
        x = b("Relu" if outer > 1 else "Sigmoid", x)
    return _finish(b, (1, 1, 28, 28), x, 4)


def volume(size: int = 32, width: int = 16) -> Built:
    """Down and up again as in a U-Net, over a volume."""
    b = Builder()
    first = b("Relu", b("Conv", "x", b.normal(width, 1, 3, 3, 3), b.small(width), pads=[1] * 6))
    w = b.normal(2 * width, width, 3, 3, 3)
    x = b("Relu", b("Conv", _halved(b, first, 3), w, b.small(2 * width), pads=[1] * 6))
    x = b("ConvTranspose", x, b.normal(2 * width, width, 2, 2, 2), b.small(width), strides=[2] * 3)
    y = b("AveragePool", b("Add", x, first), kernel_shape=[2] * 3)
    return _finish(b, (1, 1, size, size, size), y, 5)


ROWS = {
    "lenet": Row("LeNet, 28 x 28", lenet, lenet),
    "lenet-64": Row("LeNet, 64 images", lambda: lenet(64), lambda: lenet(2)),
    "lenet-int8": Row("LeNet, int8 QDQ", lambda: quantized(lenet()), lambda: quantized(lenet())),
    "cifar": Row("CIFAR network, 32 x 32", cifar, lambda: cifar((4, 8))),
    "cifar-int8": Row(
        "CIFAR network, 32 x 32, int8 QDQ",
        lambda: quantized(cifar()),
        lambda: quantized(cifar((4, 8))),
    ),
    "digits": Row("the digits example", digits, digits),
    "autoencoder": Row("autoencoder, 28 x 28", autoencoder, autoencoder),
    "volume": Row("U-Net's ends, 32 x 32 x 32", volume, lambda: volume(8, 2)),
}
