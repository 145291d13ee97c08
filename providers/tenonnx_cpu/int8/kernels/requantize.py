"""The operations on bytes between convolutions: sums, maxima and means."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.int8.kernels import POOL_FIELDS
from tenonnx_cpu.int8.kernels.band import copy_bytes, fill_bytes
from tenonnx_cpu.int8.kernels.finishing import SCALED, to_bytes
from tenonnx_cpu.jit.compiling import In, Out, f32, helper, i32, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.lanes import LANES
from tenonnx_cpu.jit.vectors.named import named
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import F32, I8, I32, I64, Builder, Value
from tenonnx_cpu.jit.vectors.views import elements

F = np.float32
# Bytes that a task converts.
CHUNK_BYTES = 1 << 14


@inlined
def to_byte(x: Any, low: Any, high: Any, zero: Any) -> Any:
    """Round half to even, clip, and move to the zero point; NaN is the least byte."""
    x = np.rint(x)
    x = x if x > low else low
    x = high if x > high else x
    return np.uint8(np.int32(x) + zero)


@helper
def chunk_size(a: Any, b: Any) -> Any:
    """Return about ``CHUNK_BYTES``; whole repetitions of b if it is repeated."""
    return CHUNK_BYTES if b.size == a.size else b.size * max(1, CHUNK_BYTES // b.size)


@helper
def add_bytes(a: Any, b: Any, y: Any, numbers: Any, zeros: Any) -> None:
    """Add bytes; see ``add``."""
    whole = y.size // LANES
    add_vectors(
        a.ctypes.data, b.ctypes.data, y.ctypes.data, whole, numbers[0], numbers[1], numbers[2],
        numbers[3], numbers[4], zeros[0], np.uint8(zeros[1]), np.uint8(zeros[2]),
    )  # fmt: skip
    for i in range(whole * LANES, y.size):
        x = F(a[i] ^ np.uint8(zeros[1])) * numbers[0] + numbers[2]
        x += F(b[i] ^ np.uint8(zeros[2])) * numbers[1]
        y[i] = to_byte(x, numbers[3], numbers[4], zeros[0])


@shared("tenonnx_add_bytes", last=(*[F32] * 5, I32, I8, I8))
def add_vectors(
    b: Builder, /, first: Value, second: Value, result: Value, count: Value, left: Value,
    right: Value, shift: Value, low: Value, high: Value, zero: Value, flip_first: Value,
    flip_second: Value,
) -> None:  # fmt: skip
    """Add whole vectors of bytes; see ``add``."""
    left, right, shift, low, high, zero, *flips = (
        v.splat(b, x, LANES) for x in (left, right, shift, low, high, zero, flip_first, flip_second)
    )

    def step(index: Value, carried: list[Value]) -> list[Value]:
        here = [b.add(place, b.mul(index, I64(LANES))) for place in (first, second, result)]
        x, y = (
            b.uitofp(b.xor(v.load(b, v.vector(I8, LANES), place), flip), low.type)
            for place, flip in zip(here[:2], flips, strict=True)
        )
        total = v.fma(b, y, right, v.fma(b, x, left, shift))
        v.store(b, to_bytes(b, total, low, high, zero), here[2])
        return []

    v.loop(b, count, [], step)


@helper
def multiply_bytes(a: Any, b: Any, y: Any, numbers: Any, zeros: Any) -> None:
    """Multiply bytes; see ``multiply``."""
    first, second, factor, low, high = (
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    )  # fmt: skip
    flip_a, flip_b = np.uint8(zeros[1]), np.uint8(zeros[2])
    for i in range(y.size):
        x = (F(a[i] ^ flip_a) - first) * (F(b[i] ^ flip_b) - second)
        y[i] = to_byte(x * factor, low, high, zeros[0])


def make_chunks(combine: Any) -> Any:
    """Return what combines the bytes of two arrays, of which the second may be repeated."""

    @parallel
    def combine_chunk(arguments: Any, task: Any, worker: Any) -> None:
        a, b, y, numbers, zeros = arguments
        chunk = chunk_size(a, b)
        start, stop = task * chunk, min(y.size, (task + 1) * chunk)
        if b.size == y.size:
            combine(a[start:stop], b[start:stop], y[start:stop], numbers, zeros)
        else:
            for i in range(start, stop, b.size):
                combine(a[i : i + b.size], b, y[i : i + b.size], numbers, zeros)

    return combine_chunk


add_chunk, multiply_chunk = make_chunks(add_bytes), make_chunks(multiply_bytes)


@kernel(
    (In(u8, 1), In(u8, 1), Out(u8, 1), In(f32, 1), In(i32, 1), size),
    SCALED._replace(captured=False),
)
def add(a, b, y, numbers, zeros, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Add numbers that bytes stand for.

    Args:
        a: Bytes.
        b: As many, or what is repeated for them all.
        y: As many as a.
        numbers: The scales of a and b in units of y's, what to add for their zero points, the
            least and the greatest result.
        zeros: The zero point of y, and the bits of a and b that are inverted.
        threads: How many threads to use.
    """
    add_chunk((a, b, y, numbers, zeros), -(-y.size // chunk_size(a, b)), threads)


@kernel(
    (In(u8, 1), In(u8, 1), Out(u8, 1), In(f32, 1), In(i32, 1), size),
    SCALED._replace(captured=False),
)
def multiply(a, b, y, numbers, zeros, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Multiply numbers that bytes stand for; as ``add``, but for the numbers.

    They are the zero points of a and b once bits are inverted, the product of their scales in
    units of y's, the least and the greatest result.
    """
    multiply_chunk((a, b, y, numbers, zeros), -(-y.size // chunk_size(a, b)), threads)


pool_sizes = named("BytePoolSizes", POOL_FIELDS)


@parallel
def pool_line(arguments: Any, task: Any, worker: Any) -> None:
    """Make a line of the result."""
    x, y, flip, sizes = arguments
    image, line = task // sizes.out_height, task % sizes.out_height
    channels = sizes.channels
    source = x.ctypes.data + image * sizes.height * sizes.width * channels
    for place in range(sizes.out_width):
        best = y.ctypes.data + (task * sizes.out_width + place) * channels
        fill_bytes(best, channels, np.uint8(0))
        for tap_y in range(sizes.kernel_y):
            row = line * sizes.stride_y - sizes.top + tap_y * sizes.step_y
            for tap_x in range(sizes.kernel_x):
                column = place * sizes.stride_x - sizes.left + tap_x * sizes.step_x
                if 0 <= row < sizes.height and 0 <= column < sizes.width:
                    seen = source + (row * sizes.width + column) * channels
                    take_maxima(seen, best, channels, flip)
        copy_bytes(best, best, channels, flip)


@helper
def take_maxima(seen: Any, best: Any, count: Any, flip: Any) -> None:
    """Keep the greater of two rows of bytes, of one of which some bits are inverted first."""
    x, y = elements(seen, count, np.uint8), elements(best, count, np.uint8)
    for i in range(count):
        y[i] = max(y[i], x[i] ^ flip)


@kernel((In(u8, 1), Out(u8, 1), u8, In(i64, 1), size), SCALED)
def max_pool(x, y, flip, numbers, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Take the maximum of what each window sees, of images that have their channels last.

    Args:
        x: The images' bytes.
        y: The result's.
        flip: Bits that are inverted to compare them.
        numbers: As ``tenonnx_cpu.int8.kernels.POOL_FIELDS`` says.
        threads: How many threads to use.
    """
    sizes = pool_sizes(numbers)
    pool_line((x, y, flip, sizes), y.size // (sizes.out_width * sizes.channels), threads)


@kernel(
    (In(u8, 3), Out(u8, 2), Out(i32, 1), (f32, f32, f32), (i32, u8, i32)),
    SCALED._replace(captured=False),
)
def average(x, y, totals, numbers, limits):  # type: ignore[no-untyped-def] # the signature has them
    """Take the mean of each channel of images that have theirs last.

    Args:
        x: ``(images, places, channels)``.
        y: ``(images, channels)``.
        totals: Memory for as many int32 as there are channels.
        numbers: What a total is multiplied by, the least and the greatest result.
        limits: The zero point of x once bits of it are inverted, those bits, and y's zero point.
    """
    factor, low, high = numbers
    origin, flip, zero = limits
    for image in range(x.shape[0]):
        totals[:] = -origin * np.int32(x.shape[1])
        for place in range(x.shape[1]):
            seen = x[image, place]
            for i in range(totals.size):
                totals[i] += np.int32(seen[i] ^ flip)
        for i in range(totals.size):
            y[image, i] = to_byte(F(totals[i]) * factor, low, high, zero)
