"""Products that bound models, and what they have to read or to multiply."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from bench.builder import FLOAT, Builder, Feeds
from bench.cpu.roofline import FLOPS, READ
from bench.llm import Form, linear

# A model, inputs, and how many bytes it reads or float operations it does.
Made = tuple[onnx.ModelProto, Feeds, float]

# Matrices that are multiplied by in a run, so that none is in a cache when its turn comes.
PARALLEL = 4


def product(rows: int, depth: int, columns: int) -> Callable[[bool], Made]:
    """A product that is bounded by its multiplications."""

    def build(quick: bool) -> Made:
        d, c = (depth // 8, columns // 8) if quick else (depth, columns)
        b = Builder()
        b("MatMul", "x", b.normal(d, c), out="y")
        proto = b.model({"x": (FLOAT, [rows, d])}, {"y": (FLOAT, [rows, c])})
        x = np.random.default_rng(1).standard_normal((rows, d), dtype=np.float32)
        return proto, {"x": x}, 2.0 * rows * d * c

    return build


def vector(form: Form | None, depth: int, columns: int) -> Callable[[bool], Made]:
    """Products of one row, which are bounded by reading the matrices."""

    def build(quick: bool) -> Made:
        d, c = (depth // 8, columns // 8) if quick else (depth, columns)
        b = Builder()
        total = ""
        for _ in range(PARALLEL):
            y = b("MatMul", "x", b.normal(d, c)) if form is None else linear(b, "x", d, c, form)
            total = b("Add", total, y) if total else y
        b("Identity", total, out="y")
        proto = b.model({"x": (FLOAT, [1, d])}, {"y": (FLOAT, [1, c])}, opset=21)
        bits = 32 if form is None else 5  # a scale of 32 bits for every 32 codes
        x = np.random.default_rng(1).standard_normal((1, d), dtype=np.float32)
        return proto, {"x": x}, PARALLEL * d * c * bits / 8

    return build


SHAPES: dict[str, tuple[str, Callable[[bool], Made]]] = {
    "f32 1024 x 1024 x 1024": (FLOPS, product(1024, 1024, 1024)),
    "f32 128 x 768 x 3072": (FLOPS, product(128, 768, 3072)),
    "f32 1 x 4096 x 4096": (READ, vector(None, 4096, 4096)),
    "int4 MatMulNBits 1 x 3072 x 16384": (READ, vector("nbits", 3072, 16384)),
    "int4 QDQ 1 x 3072 x 16384": (READ, vector("qdq", 3072, 16384)),
}
