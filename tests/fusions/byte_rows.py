"""Rows for what the CPU provider fuses of bytes as it compiles nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from drafts import Draft

MS = {"domain": "com.microsoft"}


def code(d: Draft, kind: Any, *counts: int) -> tuple[str, str]:
    """Add a scale and a zero point: one number, or one for each of so many."""
    shape = d.choose([(), (1,), *((count,) for count in counts)])
    scale = d.weight((d.random.random(shape) * 0.1 + 0.05).astype(np.float32))
    low, high = (0, 9) if kind == np.int8 else (100, 150)
    return scale, d.weight(d.random.integers(low, high, shape).astype(kind))


def bytes_of(d: Draft, name: str, shape: Sequence[int], kind: Any) -> str:
    """Add an input of bytes."""
    limits = np.iinfo(kind)
    return d.feed(name, d.random.integers(limits.min, limits.max + 1, shape).astype(kind))


def dequantized(d: Draft, name: str, *shape: int) -> str:
    """Add an input of bytes and what makes it real."""
    kind = d.choose([np.uint8, np.int8])
    return d.add("DequantizeLinear", bytes_of(d, name, shape, kind), *code(d, kind))


def quantized(d: Draft, y: str) -> None:
    """Add an activation and what makes bytes of it."""
    kind = d.choose(["", "Relu", "Clip", "Clip upside down"])
    if kind == "Relu":
        y = d.add(kind, y)
    if kind.startswith("Clip"):
        y = d.add("Clip", y, d.number(0.0, 0), d.number(2.0 if kind == "Clip" else -1.0, 0))
    d.add("QuantizeLinear", y, *code(d, d.choose([np.uint8, np.int8])))


def max_pool(d: Draft) -> None:
    """The maximum of bytes."""
    shape = d.choose([(2, 3, 6, 6), (1, 3, 6, 6), (0, 3, 6, 6), (2, 3, 6), (2, 3, 1, 1)])
    scale, zero = code(d, np.uint8)
    y = d.add("DequantizeLinear", bytes_of(d, "x", shape, np.uint8), scale, zero)
    size = d.choose([2, 1, 3])
    pads = {"pads": [1] * 2 * (len(shape) - 2)} if d.choose([False, True]) else {}
    y = d.add("MaxPool", y, kernel_shape=[size] * (len(shape) - 2), **pads)
    if d.choose([False, True]):
        y = d.add("Relu", y)
    if d.choose([True, False]):
        d.add("QuantizeLinear", y, scale, zero)
    else:
        d.add("QuantizeLinear", y, *code(d, np.uint8))


def average(d: Draft) -> None:
    """The mean of each channel."""
    y = dequantized(
        d, "x", *d.choose([(2, 3, 6, 6), (1, 3, 6, 6), (0, 3, 6, 6), (2, 3, 6), (2, 3)])
    )
    quantized(d, d.add("GlobalAveragePool", y))


def concat(d: Draft) -> None:
    """Bytes side by side."""
    shapes = d.choose(
        [((2, 3), (2, 3)), ((2, 3), (2, 1)), ((2, 3), (0, 3)), ((2, 3, 4), (2, 5, 4))]
    )
    parts = [dequantized(d, name, *shape) for name, shape in zip("xz", shapes, strict=True)]
    quantized(d, d.add("Concat", *parts, axis=d.choose([1, -1, 0])))


def pairs(d: Draft) -> None:
    """Sum and products."""
    shapes = [(2, 3, 4), (1, 3, 4), (3, 4), (4,), (), (2, 1, 4), (2, 3, 1), (2, 0, 4), (1,)]
    parts = [dequantized(d, name, *d.choose(shapes)) for name in "xz"]
    quantized(d, d.both(d.choose(["Add", "Mul"]), *parts))


def product(d: Draft) -> None:
    """Products of bytes."""
    x = dequantized(d, "x", *d.choose([(2, 2, 3, 4), (1, 2, 3, 4), (3, 4), (4,), (2, 2, 0, 4)]))
    z = dequantized(d, "z", *d.choose([(2, 2, 4, 5), (2, 1, 4, 5), (4, 5), (4,), (3, 2, 4, 5)]))
    y = d.add("MatMul", *d.choose([(x, z), (x, x)]))
    if d.choose([False, True]):
        y = d.both("Add", y, d.weight(d.floats(*d.choose([(5,), (1,), (3, 1)]))))
    quantized(d, y) if d.choose([True, False]) else None


def weights(d: Draft) -> None:
    """Products with a matrix of bytes."""
    x = dequantized(d, "x", *d.choose([(3, 4), (2, 3, 4), (1, 4), (4,), (0, 4)]))
    columns = d.choose([5, 1])
    kind = d.choose([np.int8, np.uint8])
    codes = d.weight(d.random.integers(0, 100, (4, columns)).astype(kind))
    scale, zero = code(d, kind, columns)
    w = d.add("DequantizeLinear", codes, scale, zero, axis=d.choose([1, -1]))
    y = d.add("MatMul", x, w)
    if d.choose([True, False]):
        shape = d.choose(
            [(columns,), (1,), (), (1, columns), (3, columns), (3, 1), (2, 1, columns)]
        )
        y = d.both("Add", y, d.weight(d.floats(*shape)))
    quantized(d, y) if d.choose([True, False]) else None


def conv(d: Draft) -> None:
    """Convolutions of bytes."""
    x = dequantized(d, "x", *d.choose([(2, 4, 7, 7), (1, 4, 7, 7), (0, 4, 7, 7)]))
    group = d.choose([1, 2])
    codes = d.weight(d.random.integers(-100, 100, (6, 4 // group, 3, 3)).astype(np.int8))
    count = d.choose([6, 1])
    scale = d.weight((d.random.random(count) * 0.1).astype(np.float32))
    zero = d.weight(np.zeros(count, np.int8))
    given = [d.add("DequantizeLinear", codes, scale, zero, axis=0)]
    if d.choose([True, False]):
        given.append(d.weight(d.floats(d.choose([6, 1]))))
    quantized(d, d.add("Conv", x, *given, group=group, pads=d.choose([[1] * 4, [0] * 4])))


def conv_integer(d: Draft) -> None:
    """Sum of bytes made real, in float32."""
    x = bytes_of(d, "x", d.choose([(2, 4, 7, 7), (1, 4, 7, 7), (0, 4, 7, 7)]), np.uint8)
    codes = d.weight(d.random.integers(-100, 100, (6, 4, 3, 3)).astype(np.int8))
    zero = d.feed("zero", d.choose([np.uint8(100), np.full(1, 100, np.uint8)]))
    y = d.add("Cast", d.add("ConvInteger", x, codes, zero), to=1)
    shapes = [(), (1,), (6, 1, 1), (1, 6, 1, 1), (5,), (1, 1, 1, 1, 1), (3, 1, 1, 1), (6, 5, 5)]
    scale = d.floats(*d.choose(shapes)) * np.float32(0.01)
    y = d.both("Mul", y, d.feed("scale", scale) if d.choose([True, False]) else d.weight(scale))
    if d.choose([True, False]):
        y = d.both("Add", y, d.weight(d.floats(*d.choose([(6, 1, 1), *shapes]))))
    d.add("Relu", y) if d.choose([True, False]) else None


def matmul_integer(d: Draft) -> None:
    """The same for products."""
    x = bytes_of(d, "x", d.choose([(3, 4), (2, 3, 4), (1, 4), (4,), (0, 4)]), np.uint8)
    codes = d.weight(
        d.random.integers(-100, 100, d.choose([(4, 5), (4, 1), (2, 4, 5)])).astype(np.int8)
    )
    zeros = [d.feed("zero", d.choose([np.uint8(100), np.full(1, 100, np.uint8)]))]
    if d.choose([True, False]):
        shape = d.choose([(), (1,), d.weights[codes].shape[-1:]])
        zeros.append(d.weight(d.random.integers(-5, 5, shape).astype(np.int8)))
    y = d.add("Cast", d.add("MatMulInteger", x, codes, *zeros), to=1)
    shapes = [(), (1,), (5,), (1, 5), (3, 1), (3, 5), (1, 1, 1, 1), (2, 1, 1)]
    scale = d.floats(*d.choose(shapes)) * np.float32(0.01)
    y = d.both("Mul", y, d.feed("scale", scale) if d.choose([True, False]) else d.weight(scale))
    d.both("Add", y, d.weight(d.floats(*d.choose([(5,), *shapes])))) if d.choose([1, 0]) else None


def table(d: Draft) -> None:
    """Models of nodes that depend on one byte."""
    y = dequantized(d, "x", *d.choose([(2, 3, 4), (), (4,), (2, 0, 4)]))
    op = d.choose(["Mul", "Sigmoid", "HardSwish"])
    y = d.both("Mul", y, d.number(2.0, 1, 0, 4)) if op == "Mul" else d.add(op, y)
    d.add("QuantizeLinear", y, *code(d, np.uint8))


ROWS = {
    "int8.pooling:fuse_max_pool": max_pool,
    "int8.pooling:fuse_average": average,
    "int8.table:fuse_concat": concat,
    "int8.qlinear_binary:fuse_pair": pairs,
    "int8.dense:fuse_matmul": product,
    "int8.dense:fuse_weights": weights,
    "int8.conv:fuse_conv": conv,
    "int8.conv_integer:fuse_scaled": conv_integer,
    "int8.matmul:fuse_scaled": matmul_integer,
    "int8.table:fuse_table": table,
}
