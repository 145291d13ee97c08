"""Convolutions against onnxruntime: ``python -m bench.cpu.conv [--threads 1 4] [filter]``.

Layers of ResNet-50 and MobileNetV2 alone, then the models as a whole, in float32 and in bytes.
"""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)

import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization

from bench.builder import FLOAT, Builder, Feeds
from bench.convnets import mobilenet_v2, resnet50
from bench.cpu.side_by_side import COLUMNS, line, parser

# A model, its inputs, and how many floating-point operations it takes; 0 if nobody counted.
Built = tuple[bytes, Feeds, int]


@dataclass(frozen=True)
class Layer:
    """A convolution and its Relu: channels, height and width, kernels, their size, stride."""

    channels: int
    size: int
    rows: int
    kernel: int
    stride: int = 1
    group: int = 1

    def __str__(self) -> str:
        kind = "depthwise" if self.group > 1 else "conv"
        stride = f"/{self.stride}" if self.stride > 1 else ""
        return f"{kind}-{self.channels}x{self.size}-{self.rows}-k{self.kernel}{stride}"

    def build(self) -> Built:
        """Return the layer as a model."""
        b = Builder()
        inner = self.channels // self.group
        y = b(
            "Conv", "x", b.normal(self.rows, inner, self.kernel, self.kernel), b.small(self.rows),
            kernel_shape=[self.kernel] * 2, pads=[self.kernel // 2] * 4,
            strides=[self.stride] * 2, group=self.group,
        )  # fmt: skip
        b("Relu", y, out="y")
        shape = (1, self.channels, self.size, self.size)
        proto = b.model({"x": (FLOAT, shape)}, {"y": (FLOAT, [1, self.rows, "h", "w"])})
        x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
        pixels = (-(-self.size // self.stride)) ** 2
        return (
            proto.SerializeToString(),
            {"x": x},
            2 * self.rows * pixels * inner * self.kernel * self.kernel,
        )


LAYERS = [
    Layer(3, 224, 64, 7, 2),
    Layer(64, 56, 64, 1),
    Layer(64, 56, 64, 3),
    Layer(64, 56, 256, 1),
    Layer(256, 56, 64, 1),
    Layer(128, 56, 128, 3, 2),
    Layer(256, 56, 512, 1, 2),
    Layer(128, 28, 128, 3),
    Layer(128, 28, 512, 1),
    Layer(512, 28, 128, 1),
    Layer(256, 14, 256, 3),
    Layer(256, 14, 1024, 1),
    Layer(1024, 14, 256, 1),
    Layer(1024, 14, 2048, 1, 2),
    Layer(512, 7, 512, 3),
    Layer(512, 7, 2048, 1),
    Layer(2048, 7, 512, 1),
    Layer(3, 224, 32, 3, 2),
    Layer(16, 112, 96, 1),
    Layer(144, 56, 24, 1),
    Layer(96, 14, 576, 1),
    Layer(320, 7, 1280, 1),
    Layer(32, 112, 32, 3, 1, 32),
    Layer(96, 112, 96, 3, 2, 96),
    Layer(144, 56, 144, 3, 1, 144),
    Layer(384, 14, 384, 3, 1, 384),
    Layer(960, 7, 960, 3, 1, 960),
    Layer(240, 28, 240, 5, 1, 240),
]


def whole(build: Callable[[], tuple[onnx.ModelProto, Feeds]]) -> Built:
    """Return a model of ``bench.convnets``."""
    proto, feeds = build()
    return proto.SerializeToString(), feeds, 0


class Pixels(quantization.CalibrationDataReader):
    """A few random images for the ranges of activations."""

    def __init__(self, feeds: Feeds) -> None:
        self._left = iter([feeds] * 2)

    def get_next(self) -> Feeds | None:
        """Return the next inputs, or ``None`` after the last."""
        return next(self._left, None)


def in_bytes(build: Callable[[], tuple[onnx.ModelProto, Feeds]]) -> Built:
    """Return a model with its convolutions between QuantizeLinear and DequantizeLinear."""
    proto, feeds = build()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "model.onnx"), Path(folder, "bytes.onnx")
        onnx.save(proto, source)
        quantization.quantize_static(
            source,
            target,
            Pixels(feeds),
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        return target.read_bytes(), feeds, 0


CASES: dict[str, Callable[[], Built]] = {
    **{str(layer): layer.build for layer in LAYERS},
    "resnet50": functools.partial(whole, resnet50),
    "mobilenet-v2": functools.partial(whole, mobilenet_v2),
    "resnet50-int8": functools.partial(in_bytes, resnet50),
}


def main() -> None:
    given = parser(__doc__, seconds=0.2).parse_args()
    print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}; microseconds")
    print(f"{COLUMNS}    error  GFLOP/s")
    for name in CASES:
        if given.filter in name:
            model, feeds, operations = CASES[name]()
            for threads in given.threads:
                text, fastest = line(name, model, feeds, threads, given)
                print(f"{text} {operations / fastest / 1e9:8.0f}", flush=True)


if __name__ == "__main__":
    main()
