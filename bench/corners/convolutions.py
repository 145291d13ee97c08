"""Convolutions of three axes, and networks so small that calls are what takes time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from bench.builder import FLOAT, Builder
from bench.cpu.table import Row
from bench.models import Built

EXPORTS = Path(__file__).parents[2] / "tests" / "exports"


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


def exported(name: str) -> Row:
    """A row of one of the tests' exported models, whose layers are of a few channels."""

    def build() -> Built:
        proto = onnx.load(EXPORTS / f"{name}.onnx")
        with np.load(EXPORTS / f"{name}.npz") as arrays:
            return proto, {value.name: arrays[f"in:{value.name}"] for value in proto.graph.input}

    return Row(f"tiny {name}, as torch exports it", build, build)


ROWS = {
    "conv3d": Row("Conv of 3 x 3 x 3, 8 x 32 x 32 pixels", conv3d, lambda: conv3d(4, 2, 4)),
    "tiny-resnet": exported("resnet"),
    "tiny-mobilenet": exported("mobilenet"),
    "tiny-deberta": exported("deberta-dynamo"),
}
