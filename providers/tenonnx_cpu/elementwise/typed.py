"""Operations on arrays of any type of elements that broadcast: one launch each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.graph.shape_checks import broadcast_shapes
from tenonnx_cpu.buffers import UNREAD, empty, frozen
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces
from tenonnx_cpu.kernel_selection import Call, NDArray

APPLY = JitKernel("elementwise.rows", "apply")
DIVIDE = JitKernel("elementwise.rows", "divide")
PLAN_APPLY = JitKernel("elementwise.plan_apply", "plan_apply")

# The first number of a plan for arrays that do not broadcast.
DIFFER = -1

# Types of elements by dtype, but for bfloat16, whose dtype takes long to import.
CODE_OF_DTYPE = {
    np.dtype(name): code
    for name, code in {
        "?": o.BOOL, "b": o.INT8, "B": o.UINT8, "h": o.INT16, "H": o.UINT16, "i": o.INT32,
        "I": o.UINT32, "l": o.INT64, "L": o.UINT64, "q": o.INT64, "Q": o.UINT64, "e": o.FLOAT16,
        "f": o.FLOAT32, "d": o.FLOAT64,
    }.items()
}  # fmt: skip

DTYPES = {code: dtype for dtype, code in CODE_OF_DTYPE.items()}

# Types of elements that are moved as they are, by their bytes.
OF_SIZE = {1: o.INT8, 2: o.INT16, 4: o.INT32, 8: o.INT64}


def code_of(dtype: np.dtype[Any]) -> int | None:
    """Return the code of a type of elements; ``None`` if the kernel does not know it."""
    code = CODE_OF_DTYPE.get(dtype)
    if code is None and dtype.kind == "V" and dtype.name == "bfloat16":
        return o.BFLOAT16
    return code


def launch(
    operation: int, element: int, arrays: Sequence[NDArray], dtype: np.dtype[Any], threads: int
) -> Launch | None:
    """Return a launch of an operation; ``None`` if the kernel does not take the arrays.

    Args:
        operation: One of ``operations``.
        element: The type of its operands, for which it ``is_known``.
        arrays: Its operands, of the operation's types.
        dtype: The result's.
        threads: How many to use at most.

    Raises:
        ValueError: The shapes do not broadcast.
    """
    run, plan = APPLY.run, PLAN_APPLY.run
    if (
        run is None
        or plan is None
        or any(type(x) is not np.ndarray or not x.flags.aligned for x in arrays)
    ):
        return None
    shape = np.empty(max([x.ndim for x in arrays]), np.int64)
    numbers = np.zeros(o.APPLY_NUMBERS, np.int64)
    addresses = (*map(id, arrays), 0, 0)[:3]
    code = o.variant(operation, element)
    plan(*addresses, *code, dtype.itemsize, threads, len(arrays), shape, numbers)
    if (first := numbers.item(0)) < 0:
        if first == DIFFER:
            broadcast_shapes(*(x.shape for x in arrays))  # which says how
        return None
    result = empty(tuple(shape.tolist()), dtype)
    given = [first_of(x) for x in arrays] + [UNREAD] * (3 - len(arrays))
    arguments = (*given, result.reshape(-1).view(np.uint8), frozen(numbers), numbers.item(-1))
    return Launch(run, arguments, result)


def divided(made: Launch, plain: Call) -> Launch:
    """Return a launch of a division whose kernel refuses divisors of 0.

    Args:
        made: It, without.
        plain: What is called for these.
    """
    x, y, _, out, numbers, threads = made.arguments
    (wrong,) = pieces(((1,), np.int64))
    arguments = x, y, out, wrong, numbers, threads
    return Launch(DIVIDE.run, arguments, made.result, refusal=wrong, otherwise=plain)


def first_of(x: NDArray) -> NDArray:
    """Return the bytes of an array's first element, where they are."""
    return (x[(slice(1),) * x.ndim] if x.ndim else x).reshape(1).view(np.uint8)
