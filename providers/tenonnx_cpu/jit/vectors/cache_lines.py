"""Cache lines by address."""

from __future__ import annotations

from numba import types

from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import Builder, Value


@v.inline_llvm(types.void, types.intp)
def prefetch(builder: Builder, address: Value) -> None:
    """Bring the cache line of an address into the first cache; any address will do."""
    v.prefetch(builder, address, 1)
