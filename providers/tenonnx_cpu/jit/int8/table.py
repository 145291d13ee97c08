"""Bytes looked up in a table."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import In, Out, kernel, size, u8
from tenonnx_cpu.jit.threads.pool import parallel

CHUNK = 1 << 14


@parallel
def look_up_chunk(arguments: Any, task: Any, worker: Any) -> None:
    """Looks up ``CHUNK`` bytes."""
    every, table, result = arguments
    x = every[task * CHUNK : (task + 1) * CHUNK]
    y = result[task * CHUNK : (task + 1) * CHUNK]
    for i in range(y.size):
        y[i] = table[x[i]]


@kernel((In(u8, 1), In(u8, 1), Out(u8, 1), size))
def look_up(x, table, y, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Computes ``y = table[x]``, for a table of 256 bytes."""
    look_up_chunk((x, table, y), -(-x.size // CHUNK), threads)
