"""Arrays over memory by address."""

from __future__ import annotations

from typing import Any

from numba import carray, types
from numba.extending import intrinsic

from tenonnx_cpu.jit.compiling import inlined


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.float32)(types.intp), generate


@inlined
def floats(address: Any, count: Any) -> Any:
    """Returns the array of float32 at an address."""
    return carray(_pointer(address), (count,))
