"""Arrays over memory by address, and of the stack."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from tenonnx_cpu.jit.compiling import inlined


@intrinsic
def _pointer(typing_context: Any, address: Any, dtype: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(signature.return_type))

    return types.CPointer(dtype.dtype)(types.intp, dtype), generate


@inlined
def elements(address: Any, count: Any, dtype: Any) -> Any:
    """Return the array of a dtype's numbers at an address."""
    return carray(_pointer(address, dtype), (count,))


@inlined
def floats(address: Any, count: Any) -> Any:
    """Return the array of float32 at an address."""
    return elements(address, count, np.float32)


@intrinsic(prefer_literal=True)
def on_stack(typing_context: Any, count: Any, dtype: Any) -> Any:
    """Return an array with anything in it, which lasts until the function that makes it returns.

    Its length is a constant. ``np.empty`` would ask the system for memory, and numba's counters.
    """
    if not isinstance(count, types.IntegerLiteral):
        return None
    kind = types.Array(dtype.dtype, 1, "C")
    length = count.literal_value

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        element = context.get_data_type(kind.dtype)
        memory = cgutils.alloca_once(builder, ir.ArrayType(element, length))
        size = context.get_abi_sizeof(element)
        word = context.get_value_type(types.intp)
        array = context.make_array(kind)(context, builder)
        populate_array(
            array,
            data=builder.bitcast(memory, element.as_pointer()),
            shape=[word(length)],
            strides=[word(size)],
            itemsize=size,
            meminfo=None,
        )
        return array._getvalue()

    return kind(count, dtype), generate
