"""Numbers to bytes and back, with one scale and one zero point for all."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx_cpu.int8.kernels.finishing import SCALED
from tenonnx_cpu.int8.kernels.requantize import to_byte
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, i32, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import KIND, LANES
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.tiles import side_by_side
from tenonnx_cpu.jit.vectors.vector import I64, Builder, Value
from tenonnx_cpu.jit.vectors.views import floats

F = np.float32
# Numbers that a task converts.
CHUNK_NUMBERS = 1 << 15
# Vectors that are looked at side by side.
ABREAST = 4


@parallel
def quantize_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Round some rows, or ``CHUNK_NUMBERS`` numbers of one; see ``quantize``."""
    source, apart, result, columns, together, scale, low, high, zero = arguments
    parts = -(-columns // CHUNK_NUMBERS)
    first, begin = task // parts * together, task % parts * CHUNK_NUMBERS
    for row in range(first, min(result.size // columns, first + together)):
        y = result[row * columns :][:columns][begin : begin + CHUNK_NUMBERS]
        x = floats(source + row * apart + 4 * begin, y.size)
        for i in range(y.size):
            y[i] = to_byte(x[i] / scale, low, high, zero)


@kernel((In(f32, 2, "A"), Out(u8, 1), f32, f32, f32, i32, size), SCALED)
def quantize(x, y, scale, low, high, zero, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Compute ``y = clip(round(x / scale), low, high) + zero``, halves to even.

    A row's numbers are adjacent; rows may be apart.
    """
    rows, columns = x.shape
    together = max(1, CHUNK_NUMBERS // columns)
    tasks = -(-rows // together) * -(-columns // CHUNK_NUMBERS)
    arguments = x.ctypes.data, x.strides[0], y, columns, together, scale, low, high, zero
    quantize_rows(arguments, tasks, threads)


@parallel
def dequantize_chunk(arguments: Any, task: Any, worker: Any) -> None:
    """Widen ``CHUNK_NUMBERS`` bytes; see ``dequantize``."""
    every, result, scale, zero, flip = arguments
    x = every[task * CHUNK_NUMBERS : (task + 1) * CHUNK_NUMBERS]
    y = result[task * CHUNK_NUMBERS : (task + 1) * CHUNK_NUMBERS]
    for i in range(y.size):
        y[i] = F(np.int32(x[i] ^ flip) - zero) * scale


@kernel((In(u8, 1), Out(f32, 1), f32, i32, u8, size), SCALED)
def dequantize(x, y, scale, zero, flip, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Compute ``y = ((x ^ flip) - zero) * scale``."""
    dequantize_chunk((x, y, scale, zero, flip), -(-x.size // CHUNK_NUMBERS), threads)


def least(b: Builder, x: Value, y: Value) -> Value:
    """Return the lesser lanes; y where x is NaN."""
    return b.select(b.fcmp_ordered("<", x, y), x, y)


def greatest(b: Builder, x: Value, y: Value) -> Value:
    """Return the greater lanes; y where x is NaN."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@shared("tenonnx_find_range")
def vector_range(b: Builder, /, source: Value, vectors: Value, found: Value) -> None:
    """Write the least and the greatest of some vectors and 0, ``ABREAST`` vectors at a time."""

    def step(index: Value, carried: list[Value]) -> list[Value]:
        at = b.add(source, b.mul(index, I64(4 * LANES * ABREAST)))
        xs = side_by_side(b, KIND, at, ABREAST)
        lows, highs = carried[:ABREAST], carried[ABREAST:]
        return [
            *(least(b, x, low) for x, low in zip(xs, lows, strict=True)),
            *(greatest(b, x, high) for x, high in zip(xs, highs, strict=True)),
        ]

    carried = v.loop(b, vectors, [v.constant(KIND, 0.0)] * (2 * ABREAST), step)
    for n, (choose, own) in enumerate(((least, carried[:ABREAST]), (greatest, carried[ABREAST:]))):
        best = functools.reduce(lambda x, y: choose(b, x, y), own)
        lanes = LANES
        while lanes > 1:
            lanes //= 2
            halves = [v.shuffle(b, best, best, range(k * lanes, (k + 1) * lanes)) for k in (0, 1)]
            best = choose(b, *halves)
        v.store(b, best, b.add(found, I64(4 * n)), 4)


@parallel
def chunk_range(arguments: Any, task: Any, worker: Any) -> None:
    """Find the least and the greatest of ``CHUNK_NUMBERS`` numbers; see ``quantize_by_range``."""
    every, found = arguments
    x = every[task * CHUNK_NUMBERS : (task + 1) * CHUNK_NUMBERS]
    vectors = x.size // (ABREAST * LANES)
    vector_range(x.ctypes.data, vectors, found[task].ctypes.data)
    low, high = found[task, 0], found[task, 1]
    rest = x[vectors * ABREAST * LANES :]
    for i in range(rest.size):
        low = rest[i] if rest[i] < low else low
        high = rest[i] if rest[i] > high else high
    found[task, 0], found[task, 1] = low, high


@kernel(
    (In(f32, 1), Out(u8, 1), Out(f32, 1), Out(u8, 1), Out(f32, 2), Out(i32, 1), size),
    Contract(values="the range is finite, and a scale of it is not 0"),
)
def quantize_by_range(x, y, scale, zero, ranges, refusal, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Compute what DynamicQuantizeLinear does.

    Args:
        x: Numbers.
        y: The bytes.
        scale: The scale, of one element.
        zero: The zero point, of one element.
        ranges: Room for the least and the greatest of every ``CHUNK_NUMBERS`` numbers and 0.
        refusal: Where 1 is written if the range is infinite or too narrow for a scale, else 0.
        threads: How many to use.
    """
    chunk_range((x, ranges), ranges.shape[0], threads)
    low, high = ranges[0, 0], ranges[0, 1]
    for chunk in range(1, ranges.shape[0]):
        low, high = min(low, ranges[chunk, 0]), max(high, ranges[chunk, 1])
    step = (high - low) / F(255)
    step = F(1) if high == low else step
    refusal[0] = 0 if np.isfinite(step) and step else 1
    if refusal[0]:
        return
    origin = np.int32(to_byte(-low / step, F(0), F(255), np.int32(0)))
    scale[0], zero[0] = step, origin
    bounds = F(-origin), F(255 - origin)
    arguments = x.ctypes.data, 0, y, x.size, 1, step, bounds[0], bounds[1], origin
    quantize_rows(arguments, ranges.shape[0], threads)
