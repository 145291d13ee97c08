"""Bytes looked up in a table."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.code import numba_target
from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.shared import shared
from tenonnx_cpu.jit.vectors.vector import I8, I64, Builder, Value

# Bytes that a task looks up.
CHUNK_BYTES = 1 << 14

# Bytes of a vector, half of what one instruction looks up in.
WIDE = 64

# The CPU features that numba compiles for, as LLVM names them.
FEATURES = numba_target.context().codegen().magic_tuple()[2].split(",")


# Whether an instruction looks up as many bytes as a vector has.
HAS_TABLES = "+avx512vbmi" in FEATURES


@shared("tenonnx_look_up", [()] if HAS_TABLES else [])
def look_up_vectors(b: Builder, /, x: Value, table: Value, y: Value, vectors: Value) -> None:
    """Look up vectors of bytes, all by their addresses."""
    kind = v.vector(I8, WIDE)
    name = "llvm.x86.avx512.vpermi2var.qi.512"
    parts = [v.load(b, kind, b.add(table, I64(WIDE * n))) for n in range(4)]

    def step(index: Value, carried: list[Value]) -> list[Value]:
        offset = b.mul(index, I64(WIDE))
        codes = v.load(b, kind, b.add(x, offset))
        low, high = (v.call_function(b, name, kind, parts[n], codes, parts[n + 1]) for n in (0, 2))
        is_high = b.icmp_signed("<", codes, v.constant(kind, 0))
        v.store(b, b.select(is_high, high, low), b.add(y, offset))
        return []

    v.loop(b, vectors, [], step)


@helper
def look_up_bytes(x: Any, table: Any, y: Any) -> None:
    """Look up bytes one by one."""
    for i in range(y.size):
        y[i] = table[x[i]]


@helper
def look_up_wide(x: Any, table: Any, y: Any) -> None:
    """Look up vectors of bytes, and the rest one by one."""
    vectors = y.size // WIDE
    look_up_vectors(x.ctypes.data, table.ctypes.data, y.ctypes.data, vectors)
    look_up_bytes(x[vectors * WIDE :], table, y[vectors * WIDE :])


look_up_all = look_up_wide if HAS_TABLES else look_up_bytes


@parallel
def look_up_chunk(arguments: Any, task: Any, worker: Any) -> None:
    """Look up ``CHUNK_BYTES`` bytes."""
    every, table, result = arguments
    x = every[task * CHUNK_BYTES : (task + 1) * CHUNK_BYTES]
    look_up_all(x, table, result[task * CHUNK_BYTES : (task + 1) * CHUNK_BYTES])


@kernel(
    (In(u8, 1), In(u8, 1), Out(u8, 1), size),
    Contract(plan="scales and zero points have one number each"),
)
def look_up(x, table, y, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Compute ``y = table[x]``, for a table of 256 bytes."""
    look_up_chunk((x, table, y), -(-x.size // CHUNK_BYTES), threads)
