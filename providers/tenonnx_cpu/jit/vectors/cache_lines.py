"""Cache lines by address."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from tenonnx_cpu.jit.vectors import vector as v


@intrinsic
def prefetch(typing_context: Any, address: Any) -> Any:
    """Bring the cache line of an address into the first cache; any address will do."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        v.prefetch(builder, values[0], 1)
        return context.get_dummy_value()

    return types.void(types.intp), generate
