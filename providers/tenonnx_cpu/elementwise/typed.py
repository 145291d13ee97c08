"""Operations on arrays of any type of elements that broadcast: one launch each."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tenonnx_cpu.buffers import UNREAD, empty, frozen
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.kernels.operations import MAX_OUTER_AXES
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces
from tenonnx_cpu.kernel_selection import Call, NDArray
from tenonnx_cpu.threading_config import shared_out

APPLY = JitKernel("elementwise.rows", "apply")
DIVIDE = JitKernel("elementwise.rows", "divide")

# Elements that are worth a second thread.
MIN_ELEMENTS_PER_THREAD = 1 << 15

# Elements of a row that are computed at a time: several pieces share a long row among threads.
ROW_PIECE_ELEMENTS = 1 << 13

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

# A length, and the bytes between elements along it: of each operand, and of the result.
Axis: TypeAlias = "tuple[int, tuple[int, ...]]"


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
    run = APPLY.run
    if run is None or any(type(x) is not np.ndarray or not x.flags.aligned for x in arrays):
        return None
    forms = tuple([(x.shape, x.strides) for x in arrays])
    laid = lay_out(*o.variant(operation, element), forms, dtype.itemsize, threads)
    if laid is None:
        return None
    result = empty(laid.shape, dtype)
    given = [first_of(x) for x in arrays] + [UNREAD] * (3 - len(arrays))
    arguments = (*given, result.reshape(-1).view(np.uint8), laid.numbers, laid.threads)
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


@dataclass(frozen=True)
class _TypedLayout:
    shape: tuple[int, ...]
    numbers: NDArray
    threads: int


@functools.lru_cache(maxsize=1024)
def lay_out(
    operation: int,
    element: int,
    forms: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...],
    itemsize: int,
    threads: int,
) -> _TypedLayout | None:
    """Return how an operation runs over arrays of these shapes and strides; ``None`` if it cannot.

    Raises:
        ValueError: The shapes do not broadcast.
    """
    shape = np.broadcast_shapes(*(shape for shape, _ in forms))
    count = math.prod(shape)
    *outer, (width, steps) = merged(forms, shape, itemsize) or [(1, (0,) * 4)]
    if not count or len(outer) > MAX_OUTER_AXES:
        return None
    piece = min(width, ROW_PIECE_ELEMENTS)
    pieces = -(-width // piece)
    units = count // width * pieces
    grain, team = shared_out(units, count, MIN_ELEMENTS_PER_THREAD, threads)
    sizes = [operation, element, len(outer), width, piece, pieces, units, grain, -(-units // grain)]
    axes = [number for length, steps in reversed(outer) for number in (length, *steps)]
    numbers = np.array([*sizes, *steps, *axes], np.int64)
    return _TypedLayout(shape, frozen(numbers), team)


def merged(
    forms: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], shape: tuple[int, ...], itemsize: int
) -> list[Axis]:
    """Return the fewest axes to loop over, with steps of three operands and of the result."""
    axes: list[Axis] = []
    result = itemsize
    absent = (0,) * (3 - len(forms))
    for axis in range(-1, -len(shape) - 1, -1):
        length = shape[axis]
        own = [
            strides[axis] if axis >= -len(sizes) and sizes[axis] > 1 else 0
            for sizes, strides in forms
        ]
        steps = (*own, *absent, result)
        result *= length
        if length == 1:
            continue
        inner, below = axes[0] if axes else (0, steps)
        if axes and all(step == inner * one for step, one in zip(steps, below, strict=True)):
            axes[0] = (length * inner, below)
        else:
            axes.insert(0, (length, steps))
    return axes
