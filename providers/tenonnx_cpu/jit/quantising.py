"""Numbers to bytes and back, with one scale and one zero point for all."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.jit.byte_ops import to_byte
from tenonnx_cpu.jit.compiling import In, Out, f32, i32, kernel, size, u8
from tenonnx_cpu.jit.pool import parallel

F = np.float32
CHUNK = 1 << 15


@parallel
def quantize_chunk(arguments: Any, task: Any, worker: Any) -> None:
    """Rounds ``CHUNK`` numbers; see ``quantize``."""
    every, result, scale, low, high, zero = arguments
    x = every[task * CHUNK : (task + 1) * CHUNK]
    y = result[task * CHUNK : (task + 1) * CHUNK]
    for i in range(y.size):
        y[i] = to_byte(x[i] / scale, low, high, zero)


@kernel((In(f32, 1), Out(u8, 1), f32, f32, f32, i32, size))
def quantize(x, y, scale, low, high, zero, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Computes ``y = clip(round(x / scale), low, high) + zero``, halves to even."""
    quantize_chunk((x, y, scale, low, high, zero), -(-x.size // CHUNK), threads)


@parallel
def dequantize_chunk(arguments: Any, task: Any, worker: Any) -> None:
    """Widens ``CHUNK`` bytes; see ``dequantize``."""
    every, result, scale, zero, flip = arguments
    x = every[task * CHUNK : (task + 1) * CHUNK]
    y = result[task * CHUNK : (task + 1) * CHUNK]
    for i in range(y.size):
        y[i] = F(np.int32(x[i] ^ flip) - zero) * scale


@kernel((In(u8, 1), Out(f32, 1), f32, i32, u8, size))
def dequantize(x, y, scale, zero, flip, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Computes ``y = ((x ^ flip) - zero) * scale``."""
    dequantize_chunk((x, y, scale, zero, flip), -(-x.size // CHUNK), threads)


@parallel
def chunk_range(arguments: Any, task: Any, worker: Any) -> None:
    """Finds the least and the greatest of ``CHUNK`` numbers; see ``find_range``."""
    every, found = arguments
    x = every[task * CHUNK : (task + 1) * CHUNK]
    low, high = F(0), F(0)
    for i in range(x.size):
        low = x[i] if x[i] < low else low
        high = x[i] if x[i] > high else high
    found[task, 0], found[task, 1] = low, high


@kernel((In(f32, 1), Out(f32, 2), size))
def find_range(x, found, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Finds the least and the greatest of every ``CHUNK`` numbers and 0."""
    chunk_range((x, found), found.shape[0], threads)
