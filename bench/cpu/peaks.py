"""Kernels that do nothing but read, or nothing but multiply and add."""

from __future__ import annotations

from typing import Any

from numba import types

from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.compiling import Contract, In, Out, f32, kernel, size
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import F32, I64, Builder, Value

# Vectors that are added to side by side: more than latency times units.
CHAINS = 12

# Per thread.
TASKS = 4


@v.inline_llvm(types.float32, types.intp, types.intp)
def read_all(b: Builder, address: Value, count: Value) -> Value:
    """Return the sum of adjacent floats, whole vectors of them."""
    kind = v.vector(F32, cpu().lanes)
    width = 4 * cpu().lanes

    def step(index: Any, sums: list[Any]) -> list[Any]:
        place = b.add(address, b.mul(index, I64(width * CHAINS)))
        loaded = [v.load(b, kind, b.add(place, I64(width * n)), 4) for n in range(CHAINS)]
        return [b.fadd(one, x) for one, x in zip(sums, loaded, strict=True)]

    turns = b.sdiv(count, I64(cpu().lanes * CHAINS))
    first, *others = v.loop(b, turns, [v.constant(kind, 0.0)] * CHAINS, step)
    for other in others:
        first = b.fadd(first, other)
    return v.total(b, first)


@v.inline_llvm(types.float32, types.intp, types.float32)
def multiply_often(b: Builder, turns: Value, factor: Value) -> Value:
    """Return what ``turns`` fused multiply-adds in every chain come to."""
    kind = v.vector(F32, cpu().lanes)
    factor = v.splat(b, factor, cpu().lanes)
    starts = [v.constant(kind, float(n)) for n in range(CHAINS)]
    ends = v.loop(b, turns, starts, lambda _, sums: [v.fma(b, one, factor, factor) for one in sums])
    first, *others = ends
    for other in others:
        first = b.fadd(first, other)
    return v.total(b, first)


@parallel
def add_some(arguments: Any, task: Any, worker: Any) -> None:
    memory, sums, tasks = arguments
    share = memory.size // tasks
    sums[64 * task] = read_all(memory.ctypes.data + 4 * share * task, share)


@kernel((In(f32, 1), Out(f32, 1), size), Contract())
def add_up(memory, sums, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Read memory; the sums are there so that it must."""
    tasks = TASKS * threads
    add_some((memory, sums, tasks), tasks, threads)


@parallel
def multiply_some(arguments: Any, task: Any, worker: Any) -> None:
    turns, sums = arguments
    sums[64 * task] = multiply_often(turns, sums[64 * task + 1])


@kernel((size, Out(f32, 1), size), Contract())
def multiply_add(turns, sums, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Multiply and add ``turns`` times in every chain of every task."""
    multiply_some((turns, sums), TASKS * threads, threads)
