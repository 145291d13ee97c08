"""Arrays of any type of numbers over memory by address."""

from __future__ import annotations

from typing import Any

from numba import carray, types
from numba.extending import intrinsic

from tenonnx_cpu.jit.compiling import inlined


@intrinsic
def _pointer(typing_context: Any, address: Any, dtype: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return types.CPointer(dtype.dtype)(types.intp, dtype), generate


@inlined
def elements(address: Any, count: Any, dtype: Any) -> Any:
    """Returns the array of a dtype's numbers at an address."""
    return carray(_pointer(address, dtype), (count,))
